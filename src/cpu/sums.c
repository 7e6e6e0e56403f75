/* SPDX-License-Identifier: MIT
 *
 * sums.c - a table that grows at its end, and an index of it by hash.
 */
#include "cpu/sums.h"

#include <stdatomic.h>

#include "base/hash.h"
#include "base/os.h"
#include "base/table.h"

struct sum {
    uint32_t stack, thread;
    _Atomic uint64_t count;
};

enum { SMALLEST_LG = 10, MOST = 1 << 20, RESERVE = MOST / 8 };

static struct {
    struct table sums;
    _Atomic uint32_t count;
    uint32_t *index; /* numbers + 1; 0 where there is none */
    uint32_t lg;     /* of its slots */
} g = {.sums.item_bytes = sizeof(struct sum)};

static struct sum *sum_at(uint32_t number) {
    return table_at(&g.sums, number);
}

static size_t index_bytes(uint32_t lg) {
    return align_up(sizeof(uint32_t) << lg, os_facts.page_bytes);
}

/* The slot that has it, or the one where it belongs. */
static uint32_t *find_slot(uint32_t stack, uint32_t thread) {
    uint32_t mask = (UINT32_C(1) << g.lg) - 1;
    uint32_t at = (uint32_t)hash_place((uint64_t)thread << 32 | stack, g.lg);
    for (; g.index[at] != 0; at = (at + 1) & mask) {
        const struct sum *sum = sum_at(g.index[at] - 1);
        if (sum->stack == stack && sum->thread == thread) {
            break;
        }
    }
    return &g.index[at];
}

/* At most half of the slots are used. */
static bool grow_index(void) {
    uint32_t *old = g.index;
    uint32_t old_lg = g.lg;
    if (old != NULL && 2 * (uint64_t)g.count < UINT64_C(1) << old_lg) {
        return true;
    }
    uint32_t lg = old == NULL ? SMALLEST_LG : old_lg + 1;
    uint32_t *made = os_map(index_bytes(lg));
    if (made == NULL) {
        return false;
    }
    g.index = made;
    g.lg = lg;
    for (uint32_t i = 0; i < g.count; i++) {
        *find_slot(sum_at(i)->stack, sum_at(i)->thread) = i + 1;
    }
    if (old != NULL) {
        os_unmap(old, index_bytes(old_lg));
    }
    return true;
}

bool sums_add(uint32_t stack, uint32_t thread, uint64_t count) {
    uint32_t number = g.count;
    if (!grow_index()) {
        return false;
    }
    uint32_t *slot = find_slot(stack, thread);
    if (*slot != 0) {
        atomic_fetch_add_explicit(&sum_at(*slot - 1)->count, count, memory_order_relaxed);
        return true;
    }
    if (number >= MOST + (thread == 0 ? RESERVE : 0) || !table_reach(&g.sums, number)) {
        return false;
    }
    struct sum *sum = sum_at(number);
    sum->stack = stack;
    sum->thread = thread;
    atomic_store_explicit(&sum->count, count, memory_order_relaxed);
    *slot = number + 1;
    /* Release shows the sum to whoever acquires the number. */
    atomic_store_explicit(&g.count, number + 1, memory_order_release);
    return true;
}

uint32_t sums_count(void) {
    return atomic_load_explicit(&g.count, memory_order_acquire);
}

bool sums_read(uint32_t index, struct cpu_sample *sample) {
    if (index >= sums_count()) {
        return false;
    }
    const struct sum *sum = sum_at(index);
    *sample = (struct cpu_sample){sum->stack, sum->thread,
                                  atomic_load_explicit(&sum->count, memory_order_relaxed)};
    return true;
}

/* The memory stays, so that whoever reads meanwhile reads something. */
void sums_clear(bool is_sound) {
    if (g.index != NULL && is_sound) {
        os_unmap(g.index, index_bytes(g.lg));
    }
    g.index = NULL;
    atomic_store_explicit(&g.count, 0, memory_order_release);
}
