/* SPDX-License-Identifier: MIT
 *
 * attention.c - the word of attention.h, and how a fork is noticed.
 *
 * Several threads of a child may find the page empty at once, if the child started them before its
 * first slow call.  Each proposes a new generation and then the word; the first wins, and no state
 * in between can be seen that is neither old nor new.
 */
#include "base/attention.h"

#include "base/os.h"

enum { GENERATION_STEP = 4 }; /* lock.h keeps two bits below it */

struct attention_page attention_page = {.word = 0};

/* What the page says, or said before the kernel emptied it. */
static struct {
    _Atomic uint32_t generation;
    _Atomic bool is_started;
} g = {.generation = GENERATION_STEP};

void attention_begin(void) {
    uint32_t none = 0;
    atomic_compare_exchange_strong(&attention_page.generation, &none, g.generation);
}

bool attention_init(void) {
    return os_wipe_on_fork(&attention_page, sizeof(attention_page)) == 0;
}

void attention_start(void) {
    /* Release: whoever sees the word sees the heap. */
    atomic_store_explicit(&attention_page.word, ATTENTION_CALM, memory_order_release);
    g.is_started = true;
}

void attention_forget(void) {
    atomic_store_explicit(&attention_page.generation, 0, memory_order_relaxed);
    atomic_store_explicit(&attention_page.word, 0, memory_order_relaxed);
}

bool attention_notice_fork(void) {
    if (!g.is_started) {
        return false;
    }
    uint32_t next = atomic_fetch_add(&g.generation, GENERATION_STEP) + GENERATION_STEP;
    uint32_t wiped = 0;
    atomic_compare_exchange_strong(&attention_page.generation, &wiped, next);
    wiped = 0;
    /* Release: whoever sees the bit sees a generation. */
    atomic_compare_exchange_strong_explicit(&attention_page.word, &wiped,
                                            ATTENTION_CALM | ATTENTION_FORKED, memory_order_release,
                                            memory_order_relaxed);
    return true;
}

void attention_raise(enum attention bit) {
    uint32_t word = attention_get();
    /* 0: a handler forked, and its child has not looked yet; or the heap is just being made. */
    if (word == 0 && !attention_notice_fork()) {
        return;
    }
    if ((word & bit) == 0) {
        atomic_fetch_or(&attention_page.word, bit);
    }
}

uint32_t attention_take(uint32_t bits) {
    return atomic_fetch_and(&attention_page.word, ~bits) & bits;
}
