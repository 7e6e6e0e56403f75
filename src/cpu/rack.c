/* SPDX-License-Identifier: MIT
 *
 * rack.c - two bits for each slot.
 */
#include "cpu/rack.h"

#include <stdatomic.h>

#include "base/os.h"
#include "base/own.h"

enum { WORD_BITS = 64, WORDS = RACK_SLOTS / WORD_BITS, CROWDED = RACK_SLOTS / 4 };

static struct {
    struct rack_slot *_Atomic slots; /* somebody may ask before they are there */
    _Atomic uint64_t taken[WORDS];
    _Atomic uint64_t ready[WORDS];
} g;

bool rack_make(void) {
    if (g.slots == NULL) {
        size_t bytes = align_up(RACK_SLOTS * sizeof(struct rack_slot), os_facts.page_bytes);
        g.slots = os_map(bytes);
        if (g.slots != NULL) {
            own_memory(g.slots, bytes); /* pages of stacks */
        }
    }
    return g.slots != NULL;
}

static struct rack_slot *take_from(unsigned word) {
    uint64_t taken = atomic_load_explicit(&g.taken[word], memory_order_relaxed);
    while (~taken != 0) {
        unsigned bit = (unsigned)__builtin_ctzll(~taken);
        /* Acquire: the writer has read what was in it. */
        if (atomic_compare_exchange_weak_explicit(&g.taken[word], &taken,
                                                  taken | UINT64_C(1) << bit, memory_order_acquire,
                                                  memory_order_relaxed)) {
            struct rack_slot *slot = &g.slots[word * WORD_BITS + bit];
            slot->number = word * WORD_BITS + bit;
            return slot;
        }
    }
    return NULL;
}

struct rack_slot *rack_take(void) {
    struct rack_slot *slot = NULL;
    for (unsigned word = 0; g.slots != NULL && word < WORDS && slot == NULL; word++) {
        slot = take_from(word);
    }
    return slot;
}

void rack_put_back(struct rack_slot *slot) {
    uint32_t number = slot->number;
    atomic_fetch_and_explicit(&g.taken[number / WORD_BITS], ~(UINT64_C(1) << number % WORD_BITS),
                              memory_order_release);
}

bool rack_give(struct rack_slot *slot) {
    uint32_t number = slot->number;
    /* Release shows what is in it. */
    atomic_fetch_or_explicit(&g.ready[number / WORD_BITS], UINT64_C(1) << number % WORD_BITS,
                             memory_order_release);
    return number == CROWDED;
}

unsigned rack_empty(void (*visit)(struct rack_slot *slot)) {
    unsigned count = 0;
    for (unsigned word = 0; word < WORDS; word++) {
        if (atomic_load_explicit(&g.ready[word], memory_order_relaxed) == 0) {
            continue;
        }
        uint64_t ready = atomic_exchange_explicit(&g.ready[word], 0, memory_order_acquire);
        for (uint64_t rest = ready; rest != 0; rest &= rest - 1) {
            visit(&g.slots[word * WORD_BITS + (unsigned)__builtin_ctzll(rest)]);
            count++;
        }
        atomic_fetch_and_explicit(&g.taken[word], ~ready, memory_order_release);
    }
    return count;
}

STARTUP void rack_clear(void) {
    for (unsigned word = 0; word < WORDS; word++) {
        g.taken[word] = g.ready[word] = 0;
    }
}
