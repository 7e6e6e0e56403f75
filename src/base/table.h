/* SPDX-License-Identifier: MIT
 *
 * table.h - an array that grows and never moves, so that a number is enough to find an item.
 *
 *      segment    0          1                   2
 *      items      0 .. 255   256 .. 767          768 .. 1791        each twice as long as the last
 *
 * Memory comes straight from the kernel as zeros and is touched only as far as it is used.
 *
 * Threads     table_at and table_reach take no lock and may be called from any thread and handler.
 */
#pragma once

#include <stdatomic.h>

#include "base/bits.h"
#include "base/common.h"

enum { TABLE_FIRST_LG = 8, TABLE_FIRST = 1 << TABLE_FIRST_LG, TABLE_SEGMENTS = 24 };

struct table {
    uint32_t item_bytes;
    /* Each less what TABLE_FIRST + number of its first item takes, so that no item needs a subtraction;
     * 0: not there yet. */
    _Atomic uintptr_t segments[TABLE_SEGMENTS];
};

/* The item of a number that table_reach has accepted.  The first for those who know how large items are. */
static inline void *table_at_sized(struct table *table, uint32_t number, size_t item_bytes) {
    uint64_t place = (uint64_t)number + TABLE_FIRST;
    /* Acquire: the memory is mapped before it can be seen. */
    uintptr_t segment = atomic_load_explicit(
        &table->segments[bits_floor_log2(place) - TABLE_FIRST_LG], memory_order_acquire);
    return (void *)(segment + place * item_bytes);
}

static inline void *table_at(struct table *table, uint32_t number) {
    return table_at_sized(table, number, table->item_bytes);
}

/* Makes room for the item of this number.  False without memory, with nothing changed. */
bool table_reach(struct table *table, uint32_t number);

/* All that is in a table is in another one then, which was empty. */
void table_move(struct table *table, struct table *to);

/* Gives everything back.  Nobody may use the table meanwhile. */
void table_clear(struct table *table);

/* Bytes all tables have had from the kernel; most may never have been touched. */
size_t table_bytes(void);
