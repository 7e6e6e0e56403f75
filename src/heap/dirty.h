/* SPDX-License-Identifier: MIT
 *
 * dirty.h - free memory that is kept for reuse, and when it goes back to the kernel.
 *
 *      used --freed--> dirty --dirty_decay_ms--> muzzy --muzzy_decay_ms--> clean
 *                        '---------- muzzy_decay_ms is 0, the default ------^
 *
 * Dirty units are as they were left.  Muzzy ones were offered to the kernel, which takes them when
 * it is short of memory; until then they are resident, and whether they still are cannot be known.
 * Clean ones have no memory behind them and read as zeros.  All are used again alike.
 *
 * Threads     Call with the page heap locked, except dirty_totals.
 */
#pragma once

#include <stdatomic.h>

#include "heap/chunk.h"

/* In units; may lag. */
struct dirty_totals {
    size_t dirty;
    size_t muzzy;
    size_t purged; /* given back to the kernel so far */
};

/* The times in effect, in milliseconds as in the options of these names; may change at any time. */
extern _Atomic int64_t dirty_decay_ms[CHUNK_QUEUES] HIDDEN;

/* Free units are taken into use: they are no longer kept.  True when they read as zeros. */
bool dirty_reuse(struct chunk *chunk, unit_map units);

/* Units became free, are marked as touched, and are kept for now. */
void dirty_keep(struct chunk *chunk, unit_map units);

/* Before `units` units are kept: looks at the clock, now and then; true when it did. */
bool dirty_expect(size_t units);

/* Looks at the clock: what has been kept long enough is due. */
void dirty_look_at_clock(void);

/* Is more kept than a heap of `used` units may keep? */
bool dirty_is_too_much(size_t used);

/*
 * Gives back up to `most` units of what is due, or of what is too much for a heap of `used` units,
 * oldest first.  True when there is more to do.  Those who purge hold both locks (pages.c); the
 * page heap's is released and taken again meanwhile.
 */
enum { DIRTY_PIECE_UNITS = 2 * CHUNK_UNITS };
bool dirty_purge_some(size_t used, size_t most);

/* Milliseconds until something will be due, as of the last look at the clock; UINT64_MAX when
 * nothing is kept. */
uint64_t dirty_wait_ms(void);

/* Gives back a part of all that is kept; units that went, 0 when nothing is left to do. */
size_t dirty_purge_piece(void);

/* Forgets the queues and the sums; every chunk is added again afterwards by dirty_add_again. */
void dirty_reset(void);

/* After a reset: all touched free units of the chunk count as dirty. */
void dirty_add_again(struct chunk *chunk);

/* Checks one chunk; the units of it that are kept. */
size_t dirty_verify_chunk(const struct chunk *chunk);

struct dirty_totals dirty_totals(void);

/* The free units of a chunk that are of the kind. */
unit_map dirty_units(enum chunk_queue kind, const struct chunk *chunk);
