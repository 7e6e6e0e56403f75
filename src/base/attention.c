/* SPDX-License-Identifier: MIT
 *
 * attention.c - the word of attention.h, and how a fork is noticed.
 *
 * Several threads of a child may find the word empty at once, if the child started them before its
 * first slow call.  One of them renews the locks; the others wait for that, a few instructions.
 */
#include "base/attention.h"

#include "base/lock.h"
#include "base/os.h"

static const uint32_t noticing = ~(uint32_t)ATTENTION_CALM;

/* Before the start, and for good where no page can be had. */
static _Atomic uint32_t not_started;
static _Atomic uint32_t without_page;

_Atomic uint32_t *attention_word = &not_started;

bool attention_init(void) {
    _Atomic uint32_t *word = os_map(os_facts.page_bytes);
    bool sees_forks = word != NULL && os_wipe_on_fork(word, os_facts.page_bytes) == 0;
    if (word == NULL) {
        word = &without_page;
    }
    atomic_store_explicit(word, ATTENTION_CALM, memory_order_relaxed);
    __atomic_store_n(&attention_word, word, __ATOMIC_RELEASE);
    return sees_forks;
}

void attention_forget(void) {
    atomic_store_explicit(attention_word, 0, memory_order_relaxed);
}

bool attention_notice_fork(void) {
    if (attention_word == &not_started) {
        return false;
    }
    uint32_t wiped = 0;
    if (atomic_compare_exchange_strong_explicit(attention_word, &wiped, noticing,
                                                memory_order_acquire, memory_order_relaxed)) {
        lock_forked();
        /* Release: who sees the bit sees the new generation. */
        atomic_store_explicit(attention_word, ATTENTION_CALM | ATTENTION_FORKED,
                              memory_order_release);
    }
    while (atomic_load_explicit(attention_word, memory_order_acquire) == noticing) {
    }
    return true;
}

void attention_raise(enum attention bit) {
    if ((attention_get() & bit) == 0) {
        atomic_fetch_or_explicit(attention_word, bit, memory_order_relaxed);
    }
}

uint32_t attention_take(uint32_t bits) {
    return atomic_fetch_and_explicit(attention_word, ~bits, memory_order_acquire) & bits;
}
