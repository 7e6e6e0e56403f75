/* SPDX-License-Identifier: MIT
 *
 * pages.h - the page heap: runs of 16 KiB units for slabs and large objects.
 *
 * One page heap serves the whole process, so a page that anybody freed is found before the heap
 * grows.  That, and not any timer, is what keeps peak memory low.
 *
 * Threads     One lock inside; all functions may be called from any thread, also with a bin locked.
 */
#pragma once

#include "heap/chunk.h"

struct lock;

void pages_init(void);

/* How far a request may go.  Each step costs resident memory that the one before does not. */
enum pages_growth {
    PAGES_USED_BEFORE, /* only memory that was used before and not given back since */
    PAGES_IN_CHUNKS,   /* also units of existing chunks that were never touched, or purged */
    PAGES_MAY_GROW,    /* also new chunks */
};

/*
 * Takes `units` units starting at a multiple of `alignment` units (a power of two) and returns
 * their span with base set and kind SPAN_NONE: nobody finds it before the owner sets the kind.
 * `*zeroed` tells whether the memory reads as zeros.  NULL, with nothing changed, when memory is
 * short or `growth` does not go far enough: the caller can then empty caches first and ask for
 * more.
 */
struct span *pages_take(size_t units, size_t alignment, enum pages_growth growth, bool *zeroed);

/* The same for a span that will probably grow: if there is a choice, it gets a place where it can
 * grow by half without moving.  Nothing is kept free for it. */
struct span *pages_take_to_grow(size_t units, enum pages_growth growth, bool *zeroed);

/* Of a part of a span, the units that did not read as zeros when they were taken. */
struct units_part;
unit_map pages_stale_units(const struct units_part *part);

/* Gives back `units` units from `base` on; the owner has forgotten them already. */
void pages_give_back(uintptr_t base, size_t units);

/* The same for units that read as zeros and have no memory behind them. */
void pages_give_back_zeros(uintptr_t base, size_t units);

/* Adds the `more` units behind a span of `units` units.  False, with nothing changed, when they are
 * not all free; units behind the end of the heap count as free if `growth` lets the heap grow and
 * it can. */
bool pages_extend(uintptr_t base, size_t units, size_t more, enum pages_growth growth);

/* Gives back what has been kept long enough.  Milliseconds until there is more to do, UINT64_MAX
 * when nothing is kept. */
uint64_t pages_tick(void);

/* The address space is limited now: from now on nothing is reserved ahead, and what was is given
 * back. */
void pages_shed_reservations(void);

/* While the kernel takes free units of a chunk: releases the page heap's lock, under which nobody
 * gets these units, and takes it again.  One at a time: the caller holds the lock for purging. */
void pages_begin_purge(struct chunk *chunk, unit_map units);
void pages_end_purge(struct chunk *chunk);

/* Calls `visit` for every span, under the page heap's lock. */
void pages_walk(void (*visit)(struct span *span, void *context), void *context);

/* Free units as they are told apart: dirty, muzzy, and without memory behind them. */
enum { PAGES_CLEAN = CHUNK_QUEUES, PAGES_KINDS };

/* Calls `visit` for every free run of one kind, with its units, under the page heap's lock.  The
 * lock is released every few chunks, so a run that changes meanwhile may be seen in parts. */
void pages_walk_free(void (*visit)(unsigned kind, size_t units, void *context), void *context);

/* Its lock, for the lock counts. */
struct lock *pages_counted_lock(void);

/*
 * The same in steps: calls `visit` for the spans from `*cursor` on (0 at first) until it answers
 * true or a chunk has been seen, and moves the cursor.  Others have the lock between the steps.
 * False when there is nothing left to see.
 */
bool pages_walk_on(size_t *cursor, bool (*visit)(struct span *span, void *context), void *context);

/* The page heap's lock, for code that describes chunks of its own (extents.c). */
void pages_lock(void);
void pages_unlock(void);
bool pages_is_mine(void); /* for asserts: does the caller hold it? */

/* Checks every invariant of the page heap; stops the process when one is broken. */
void pages_verify(void);
