/* SPDX-License-Identifier: MIT
 *
 * dirty.h - free memory that is kept for reuse, and when it goes back to the kernel.
 *
 * Threads     Call with the page heap locked, except dirty_totals.
 */
#pragma once

#include "heap/chunk.h"

/* In units; may lag. */
struct dirty_totals {
    size_t kept;   /* free, and perhaps still resident */
    size_t purged; /* given back to the kernel so far */
};

/* A background thread looks after what is kept. */
extern bool dirty_has_background HIDDEN;

/* Free units are taken into use: they are no longer kept.  True when they read as zeros. */
bool dirty_reuse(struct chunk *chunk, unit_map units);

/* Units became free and are kept for now. */
void dirty_keep(struct chunk *chunk, unit_map units);

/* Before `units` units are kept: reads the clock, now and then.  True when dirty_decay is due. */
bool dirty_looks_at_clock(size_t units);

/* Gives back what has been kept long enough. */
void dirty_decay(void);

/* Gives back everything that is kept; units that went. */
size_t dirty_purge_all(void);

/* Forgets the queue and the sums; every chunk is added again afterwards by dirty_add_again. */
void dirty_reset(void);

/* After a reset: all free units of the chunk count as kept. */
void dirty_add_again(struct chunk *chunk);

struct dirty_totals dirty_totals(void);
