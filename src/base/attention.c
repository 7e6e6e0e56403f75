/* SPDX-License-Identifier: MIT
 *
 * attention.c - the word of attention.h, and how a fork is noticed.
 *
 * Several threads of a child may find the word empty at once, if the child started them before its
 * first slow call.  One of them renews the locks; the others wait for that, a few instructions.
 */
#include "base/attention.h"

#include "base/os.h"

enum { GENERATION_STEP = 4 }; /* lock.h keeps two bits below it */

static const uint32_t noticing = ~(uint32_t)ATTENTION_CALM;

struct attention_page attention_page = {.word = 0};

/* What the page says, or said before the kernel emptied it. */
static _Atomic uint32_t generation = GENERATION_STEP;
static _Atomic bool is_started;

void attention_begin(void) {
    uint32_t none = 0;
    atomic_compare_exchange_strong(&attention_page.generation, &none, generation);
}

bool attention_init(void) {
    return os_wipe_on_fork(&attention_page, sizeof(attention_page)) == 0;
}

void attention_start(void) {
    /* Release: whoever sees the word sees the heap. */
    atomic_store_explicit(&attention_page.word, ATTENTION_CALM, memory_order_release);
    is_started = true;
}

void attention_forget(void) {
    atomic_store_explicit(&attention_page.generation, 0, memory_order_relaxed);
    atomic_store_explicit(&attention_page.word, 0, memory_order_relaxed);
}

bool attention_notice_fork(void) {
    if (!is_started) {
        return false;
    }
    uint32_t wiped = 0;
    if (atomic_compare_exchange_strong_explicit(&attention_page.word, &wiped, noticing,
                                                memory_order_acquire, memory_order_relaxed)) {
        generation += GENERATION_STEP;
        atomic_store_explicit(&attention_page.generation, generation, memory_order_relaxed);
        /* Release: who sees the bit sees the new generation. */
        atomic_store_explicit(&attention_page.word, ATTENTION_CALM | ATTENTION_FORKED,
                              memory_order_release);
    }
    while (attention_get() == noticing) {
    }
    return true;
}

void attention_raise(enum attention bit) {
    if ((attention_get() & bit) == 0) {
        atomic_fetch_or_explicit(&attention_page.word, bit, memory_order_relaxed);
    }
}

uint32_t attention_take(uint32_t bits) {
    return atomic_fetch_and_explicit(&attention_page.word, ~bits, memory_order_acquire) & bits;
}
