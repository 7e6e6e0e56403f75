/* SPDX-License-Identifier: MIT
 *
 * units.h - what page heaps have in common: partly used chunks by what is free in them, marking
 * units, ranges of units that reach over several chunks.
 *
 * There is one page heap for all (pages.c), and one for each arena with extent hooks (extents.c).
 *
 * Threads     Guarded by the page heap's lock.
 */
#pragma once

#include "heap/classmap.h"

/* Chunks with some available units, in buckets by their largest naturally aligned block of them: 1,
 * 2, 4 ... 128 units.  Each bucket is ordered by address. */
enum { UNITS_BUCKETS = 8 };
struct units_set {
    struct pairing_node *buckets[UNITS_BUCKETS];
};

/* Puts a chunk into the bucket for blocks of 2^order units, or takes it out where that is -1. */
void units_settle(struct units_set *set, struct chunk *chunk, int order);

/* The lowest chunk with `count` available units in a row, starting at a multiple of `alignment`,
 * among the first of each bucket; NULL when there is none.  `*unit` is where they start. */
struct chunk *units_find(const struct units_set *set, unsigned count, unsigned alignment,
                         unsigned *unit);

/* Free units join the span whose first unit in this chunk is `head`; or units become free. */
void units_mark_used(struct chunk *chunk, unsigned first, unsigned count, unsigned head);
void units_mark_free(struct chunk *chunk, unsigned first, unsigned count);

/* A range of units, and the part of it that lies in one chunk. */
struct units_range {
    uintptr_t at;
    size_t units;
};
struct units_part {
    struct chunk *chunk; /* NULL where the heap has none */
    unsigned first, count;
};

/* Cuts the first part off a range; false when nothing is left of it. */
static inline bool units_next(struct units_range *range, struct units_part *part) {
    assert(range->at % UNIT_BYTES == 0);
    if (range->units == 0) {
        return false;
    }
    part->chunk = classmap_chunk(range->at);
    part->first = chunk_unit(range->at);
    part->count = (unsigned)min_size(range->units, CHUNK_UNITS - part->first);
    range->at += (uintptr_t)part->count * UNIT_BYTES;
    range->units -= part->count;
    return true;
}

/* A part that is to join the span at `base`, which ends right before it: returns the span's first
 * unit in this chunk.  A chunk that the span enters is told where the span began. */
unsigned units_continue(const struct units_part *part, uintptr_t base);

/* Checks the maps of one chunk; and a set, how many chunks it has. */
void units_verify_chunk(const struct chunk *chunk);
size_t units_verify(const struct units_set *set);
