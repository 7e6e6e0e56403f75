/* SPDX-License-Identifier: MIT
 *
 * extents.h - the page heap of an arena whose memory comes from extent hooks; calls no hook.
 *
 *      extent    | chunk | chunk | chunk |        one call of the alloc hook, aligned to a chunk
 *      unit        used, or free: available (committed), decommitted, or dirty (available, touched)
 *
 * Chunks with dirty units, and those whose extent holds nothing, stand in a queue, until hooked.c
 * asks the hooks to take something back.
 *
 * Threads     Call with the page heap locked, unless a function says otherwise.
 */
#pragma once

#include <stdatomic.h>

#include "base/count.h"
#include "heap/bin.h"
#include "heap/hooks.h"
#include "heap/units.h"

/* What one call of the alloc hook gave.  In the list of its heap, in the hands of the thread that
 * calls a hook for it, or a spare. */
struct extent {
    uintptr_t base;
    size_t chunks;
    size_t used_units; /* of all its chunks, those a hook works on included */
    bool retained;     /* new, or the dalloc hook refused it; and nobody used it since */
    bool is_listed;    /* in the list of its heap; then all its chunks are in the chunk table */
    struct extent *next;
};

/* One chunk of an extent. */
struct piece {
    struct chunk chunk; /* first: what the chunk table knows */
    struct extent *extent;
    uint64_t freed_ms; /* when it joined the queue */
    struct piece *next_spare;
};

/* The page heap of one arena. */
struct hooked {
    struct bin bins[CLASS_COUNT];
    _Atomic(struct extent_hooks *) hooks;
    unsigned arena;
    struct extent *extents;
    struct units_set partly;
    struct chunk_list queue; /* linked through queued[CHUNK_DIRTY] */
    uint64_t queued;         /* pieces in it; read without the lock */
    /* In units; written under the lock, read without. */
    uint64_t mapped, used, dirty, muzzy;
    uint64_t decommitted;        /* free and not committed */
    _Atomic uint32_t callers;    /* threads that may be calling hooks */
    _Atomic uint32_t generation; /* of their process (lock.h): a fork leaves them behind */
    bool is_leaving;             /* the arena is being destroyed */
    struct hooked *next;         /* all of them, for repair */
};

/* NULL for NULL: the chunk is the first member. */
static inline struct piece *extents_piece(struct chunk *chunk) {
    return (struct piece *)chunk;
}

/* Units that were used and then freed, and that no hook has cleaned up since. */
static inline unit_map extents_dirty(const struct piece *piece) {
    return ~piece->chunk.used & piece->chunk.touched & ~piece->chunk.muzzy;
}

/* Adds a heap without memory to those that are repaired after a fork. */
void extents_begin(struct hooked *h);

/*
 * Units in extents that are there and committed, as with pages_take, pages_extend within an extent,
 * and pages_give_back.  These three take the lock.  `arena` may carry ARENA_HOOKED.
 */
struct span *extents_take(unsigned arena, size_t units, size_t alignment, bool *zeroed);
bool extents_extend(uintptr_t base, size_t units, size_t more);
void extents_give_back(uintptr_t base, size_t units);

/* Makes an extent of what the alloc hook gave; false, with nothing changed, if it overlaps what we
 * have, lies too high, or we have no memory to describe it.  Takes the lock. */
bool extents_add(struct hooked *h, uintptr_t base, size_t chunks, bool zero);

/* The address of `units` free units that start a chunk or lie within one, and are committed if that
 * is asked for.  Looks at all extents.  0 when there are none. */
uintptr_t extents_find(struct hooked *h, size_t units, size_t alignment, bool committed);

/* Sets aside a run of units of one chunk while a hook works on it without the lock: nobody else
 * gets them meanwhile, and what is known of their contents stays. */
void extents_mark_busy(struct hooked *h, struct piece *piece, unsigned first, unsigned units);
void extents_mark_free(struct hooked *h, struct piece *piece, unsigned first, unsigned units);

/* The queue: the piece that has waited longest, or NULL; and the end of its wait. */
struct piece *extents_oldest(const struct hooked *h);
void extents_leave_queue(struct hooked *h, struct piece *piece);

/* Puts a piece where its units say: a bucket, and the queue. */
void extents_settle(struct hooked *h, struct piece *piece);

/* Takes an extent that holds nothing out of sight, while a hook decides; its pieces are linked
 * through next_spare.  Then it is put back in its place, or forgotten. */
struct piece *extents_hide(struct hooked *h, struct extent *extent);
void extents_take_back(struct hooked *h, struct extent *extent, struct piece *hidden);
void extents_forget(struct extent *extent, struct piece *hidden);

/* Checks all extents of a heap; ends the process when something is wrong.  Takes the lock. */
void extents_verify(struct hooked *h);

/* The page heap's repair after a fork: sets are forgotten, then each chunk is added again. */
void extents_repair_begin(void);
void extents_repair_chunk(struct chunk *chunk);
