/* SPDX-License-Identifier: MIT
 *
 * arena.h - bins under one roof: four arenas per CPU of the process, and those the program makes.
 * An automatic arena is made when it is first used, so a program of one thread pays for one.
 *
 * A new thread gets the arena that fewest use, mostly one for itself.  So threads rarely meet at a
 * lock, and what one allocates does not share cache lines with another's.
 *
 *      0 .. arena_count() - 1                automatic: threads are spread over them
 *      arena_count() .. arena_limit() - 1    manual: made by the program, one at a time
 *
 * All of them share one page heap, except memory that an arena had from extent hooks: that has bins
 * of its own, under the arena's index plus ARENA_HOOKED, and a page heap of its own (extents.h).
 * Tracked objects (track.h) have bins of their own too, under the index plus ARENA_TRACKED.
 *
 * Threads     All functions may be called from any thread.
 */
#pragma once

#include "base/log.h"
#include "heap/bin.h"
#include "heap/counts.h"

struct hooked;

enum { MOST_ARENAS = 256 }; /* automatic ones */

enum arena_state {
    ARENA_GONE, /* destroyed; its bins stay, since caches may hold objects of theirs */
    ARENA_LIVE,
    ARENA_LEAVING, /* is being destroyed */
};

/* What an arena counts beside its bins; several threads change it at once (count_add_shared). */
struct arena_sums {
    uint64_t requests[CLASS_COUNT]; /* of threads that are gone, and those past caches */
    struct {
        uint64_t nmalloc, ndalloc;
    } lextents[LEXTENT_CLASSES];
    uint64_t large_bytes; /* of large objects, at usable size */
    uint64_t large_total; /* the same of all there ever were */
    size_t pactive;       /* pages that have an owner; its address is given to programs */
    uint64_t born_ms;
};

/* Made once for an index and never unmapped.  Bins have locks of their own, atomics are written by
 * anybody, the rest under the lock of arena.c. */
struct arena {
    struct bin bins[CLASS_COUNT];
    _Atomic uint8_t state;           /* enum arena_state */
    _Atomic bool uses_hooks;         /* new memory comes from hooked */
    _Atomic uint32_t threads;        /* bound to it */
    _Atomic(struct hooked *) hooked; /* NULL: never had hooks */
    _Atomic int64_t decay_ms[CHUNK_QUEUES];
    struct arena_sums sums;
    char name[ARENA_NAME_BYTES];
};

/* False when the kernel refuses the memory. */
bool arena_init(void);

/* The automatic arena that a new thread should use; the second function binds the caller to it. */
unsigned arena_choose(void);
unsigned arena_claim(void);

/* The arena of an index, whatever its state, or NULL when there never was one, or when an automatic
 * one has not been used yet. */
struct arena *arena_get(unsigned arena);

/* Makes an automatic arena, if that has not been done.  Before anything is taken from an arena that
 * arena_choose has not chosen.  False when there is no such arena, or no memory. */
bool arena_prepare(unsigned arena);

/* The bin of a class; `arena` has been in use, and may carry ARENA_HOOKED if it had hooks, and
 * ARENA_TRACKED if it was prepared for it. */
enum { ARENA_BIN_SETS = 2 * ARENA_TRACKED };
extern _Atomic(struct bin *) arena_bins[ARENA_BIN_SETS] HIDDEN;
static inline struct bin *arena_bin(unsigned arena, unsigned size_class) {
    assert(arena < ARENA_BIN_SETS && size_class < CLASS_COUNT);
    assert(atomic_load_explicit(&arena_bins[arena], memory_order_relaxed) != NULL);
    return &atomic_load_explicit(&arena_bins[arena], memory_order_acquire)[size_class];
}

/* An arena has up to four bins of a class; a walk over all asks for each.  NULL: no such bin. */
enum arena_set {
    ARENA_SET_USUAL,
    ARENA_SET_HOOKED,
    ARENA_SET_TRACKED,
    ARENA_SET_HOOKED_TRACKED,
    ARENA_SETS
};
struct bin *arena_bin_of_set(unsigned arena, enum arena_set set, unsigned size_class);

/* Gives an arena bins for tracked objects of its present memory, that of hooks or not, if it has
 * none; returns the index with the flags of its bins, 0 without memory. */
unsigned arena_prepare_tracked(unsigned arena);

/* The page heap of its hooks, or NULL.  `arena` may carry ARENA_HOOKED. */
struct hooked *arena_hooked(unsigned arena);

/* Does new memory of this arena come from extent hooks?  The variable: has any ever had hooks? */
extern _Atomic bool arena_any_hooked HIDDEN;
bool arena_has_hooks(unsigned arena);
static inline bool arena_uses_hooks(unsigned arena) {
    return UNLIKELY(atomic_load_explicit(&arena_any_hooked, memory_order_acquire)) &&
           arena_has_hooks(arena);
}

/* Units got an owner in this arena, or lost it where `units` is negative, modulo 2^64.  `arena` may
 * carry ARENA_HOOKED. */
void arena_add_units(unsigned arena, size_t units);

/* What pages are counted in: those of the kernel, or units where those are smaller. */
size_t arena_page_bytes(void);

/* True from the first arena_create on. */
extern _Atomic bool arena_has_manual HIDDEN;

/* A thread uses this arena from now on, or does no longer.  False when there is no such arena. */
bool arena_bind(unsigned arena);
void arena_unbind(unsigned arena);

/* Number of threads that use the arena. */
unsigned arena_thread_count(unsigned arena);

/* In the child of a fork: no thread uses any. */
void arena_forked(void);

/* Gives free memory of all arenas back to their hooks: what is due, returning milliseconds until
 * there is more to do; or all of it, returning bytes that went.  Call with no lock held. */
uint64_t arena_settle_hooked(void);
size_t arena_purge_hooked(void);

/* Checks every arena with its bins and what they count. */
void arena_verify(void);
