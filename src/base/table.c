/* SPDX-License-Identifier: MIT
 *
 * table.c - how a table gets its segments.
 *
 * Two threads may want the same segment at once.  Both map it, one wins, the other gives its own back:
 * that is rare, and nobody ever waits.
 */
#include "base/table.h"

#include "base/os.h"

static _Atomic size_t mapped;

static size_t segment_bytes(const struct table *table, unsigned segment) {
    return align_up(((size_t)TABLE_FIRST << segment) * table->item_bytes, os_facts.page_bytes);
}

/* What its address is less by in the table. */
static uintptr_t segment_bias(const struct table *table, unsigned segment) {
    return ((uintptr_t)TABLE_FIRST << segment) * table->item_bytes;
}

static bool add_segment(struct table *table, unsigned segment) {
    size_t bytes = segment_bytes(table, segment);
    char *made = os_map(bytes);
    if (made == NULL) {
        return false;
    }
    uintptr_t expected = 0;
    uintptr_t biased = (uintptr_t)made - segment_bias(table, segment);
    /* Release pairs with the acquire in table_at. */
    if (atomic_compare_exchange_strong_explicit(&table->segments[segment], &expected, biased,
                                                memory_order_release, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&mapped, bytes, memory_order_relaxed);
    } else {
        os_unmap(made, bytes);
    }
    return true;
}

bool table_reach(struct table *table, uint32_t number) {
    unsigned segment = bits_floor_log2((uint64_t)number + TABLE_FIRST) - TABLE_FIRST_LG;
    if (segment >= TABLE_SEGMENTS) {
        return false;
    }
    return atomic_load_explicit(&table->segments[segment], memory_order_relaxed) != 0 ||
           add_segment(table, segment);
}

void table_move(struct table *table, struct table *to) {
    to->item_bytes = table->item_bytes;
    for (unsigned i = 0; i < TABLE_SEGMENTS; i++) {
        to->segments[i] = atomic_exchange_explicit(&table->segments[i], 0, memory_order_relaxed);
    }
}

void table_clear(struct table *table) {
    for (unsigned i = 0; i < TABLE_SEGMENTS; i++) {
        uintptr_t segment = atomic_exchange_explicit(&table->segments[i], 0, memory_order_relaxed);
        if (segment != 0) {
            atomic_fetch_sub_explicit(&mapped, segment_bytes(table, i), memory_order_relaxed);
            os_unmap((void *)(segment + segment_bias(table, i)), segment_bytes(table, i));
        }
    }
}

size_t table_bytes(void) {
    return atomic_load_explicit(&mapped, memory_order_relaxed);
}
