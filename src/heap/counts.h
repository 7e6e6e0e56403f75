/* SPDX-License-Identifier: MIT
 *
 * counts.h - how much there is of everything: sums, and the figures of counters.def as structs.
 *
 * Threads     Reading takes no lock for longer than a few microseconds and stops nobody: figures of
 *             one struct may be a few calls apart.  At rest they are exact and add up.
 */
#pragma once

#include "heap/heap.h"

struct lock;

/* ---------------------------------------------------------------- sums */

/* Everything the heap can account for, in bytes unless it says otherwise. */
enum { HEAP_WORST = 3 };
struct heap_totals {
    size_t live;         /* objects the program holds, at their usable size */
    size_t live_objects; /* number */
    size_t cached;       /* free objects in magazines, depots and on shelves */
    size_t slab_free;    /* free space in slabs, tails included */
    size_t untouched;    /* of this, pages that were never used and have no memory */
    size_t large_rest;   /* unused ends of the units of large objects */
    size_t dirty;        /* free pages kept for reuse */
    size_t mapped;       /* addresses made usable */
    size_t metadata;     /* our own descriptors */
    size_t large_blocks; /* number */
    size_t large_bytes;
    size_t threads;   /* number of thread heaps */
    size_t reentered; /* number of calls from signal handlers, served apart */
    /* The classes with most free space in slabs that has memory behind it, the worst first; zeros
     * where there is none. */
    struct {
        size_t size, bytes;
    } worst[HEAP_WORST];
};
struct heap_totals heap_totals(void);

/* What the heaps of an arena's threads, or of all, have counted by class; slow with many heaps. */
struct thread_sums {
    uint64_t requests[CLASS_COUNT]; /* of heaps that exist; others: struct arena_sums */
    size_t cached[CLASS_COUNT];
    unsigned threads; /* that own one of them */
};
enum { THREAD_ALL_ARENAS = UINT16_MAX };
struct thread_sums thread_read_arena(unsigned arena);

/* The totals, where the sums of all threads have been read before; and what existing arenas have
 * ever allocated. */
struct heap_traffic {
    uint64_t objects;
    uint64_t bytes; /* at usable size */
};
struct heap_totals heap_totals_with(const struct thread_sums *threads);
struct heap_traffic heap_traffic(const struct thread_sums *threads);

/* Sums over a page heap, in bytes; may lag.  The first function reads the shared one alone, the
 * second those over extent hooks as well. */
struct pages_totals {
    size_t mapped; /* addresses the heap has made usable */
    size_t used;   /* in spans */
    size_t dirty;  /* free, and still resident */
    size_t muzzy;  /* free, offered to the kernel, and perhaps still resident */
    size_t purged; /* given back to the kernel so far */
};
struct pages_totals pages_totals(void);
struct pages_totals heap_pages(void);

/* What was purged of dirty or muzzy units so far. */
struct dirty_purges {
    uint64_t times; /* one piece each */
    uint64_t calls; /* of the kernel */
    uint64_t units;
};
struct dirty_purges dirty_purges(enum chunk_queue kind);

/* Slabs of a class, its objects that are handed out or cached, and those that are cached; and those
 * that wait in its depot. */
void heap_class_counts(unsigned size_class, size_t *nslabs, size_t *nout, size_t *ncached);
size_t depot_count(unsigned size_class);

/* Live large objects in a class of sizes below, of an arena that need not exist. */
uint64_t arena_count_large(unsigned arena, unsigned lextent);

/* ---------------------------------------------------------------- figures */

enum {
    BIN_CLASSES = CLASS_COUNT - 1, /* bin j serves size class j + 1 */
    LEXTENT_CLASSES = 124,         /* large objects are counted by these sizes, 40 KiB and up */
    EXTENT_CLASSES = 128,          /* free runs by these, 16 KiB and up */
};

#define FIELD(name, type, merge, help) type name;

#define MUTEX FIELD
struct mutex_counts {
#include "heap/counters.def"
};
#undef MUTEX

#define TOTAL FIELD
struct total_counts {
#include "heap/counters.def"
};
#undef TOTAL

#define BIN FIELD
struct bin_counts {
#include "heap/counters.def"
    struct mutex_counts mutex;
};
#undef BIN

#define LEXTENT FIELD
struct lextent_counts {
#include "heap/counters.def"
};
#undef LEXTENT

#define EXTENT FIELD
struct extent_counts {
#include "heap/counters.def"
};
#undef EXTENT

#define KIND FIELD
struct kind_counts {
#include "heap/counters.def"
};
#undef KIND

/* Locks of an arena by jemalloc's names; those that have no counterpart in tally stay 0. */
enum arena_mutex {
    ARENA_MUTEX_LARGE,
    ARENA_MUTEX_EXTENT_AVAIL,
    ARENA_MUTEX_EXTENTS_DIRTY,
    ARENA_MUTEX_EXTENTS_MUZZY,
    ARENA_MUTEX_EXTENTS_RETAINED,
    ARENA_MUTEX_DECAY_DIRTY,
    ARENA_MUTEX_DECAY_MUZZY,
    ARENA_MUTEX_BASE,
    ARENA_MUTEX_TCACHE_LIST,
    ARENA_MUTEX_HPA_SHARD,
    ARENA_MUTEX_HPA_SHARD_GROW,
    ARENA_MUTEX_HPA_SEC,
    ARENA_MUTEXES,
};

#define ARENA FIELD
struct arena_counts {
#include "heap/counters.def"
    struct kind_counts small, large;
    struct bin_counts bins[BIN_CLASSES];
    struct lextent_counts lextents[LEXTENT_CLASSES];
    struct extent_counts extents[EXTENT_CLASSES];
    struct mutex_counts mutexes[ARENA_MUTEXES];
};
#undef ARENA
#undef FIELD

void counts_read_totals(struct total_counts *totals);

/* One arena.  False, with `*counts` all zeros, when there is no such arena. */
bool counts_read_arena(unsigned arena, struct arena_counts *counts);

/* What arenas that were destroyed had counted. */
void counts_read_destroyed(struct arena_counts *counts);

/* For arena.c: an arena that nobody uses is being destroyed.  Adds its counts to the above and
 * starts its own again; objects of it that wait in caches stay with its index. */
void counts_note_destroyed(unsigned arena);

/* What a lock has counted; and a new start for the counts of all locks listed above. */
void counts_read_lock(const struct lock *lock, struct mutex_counts *counts);
void counts_reset_mutexes(void);

/* Adds one to the other, each field by its merge rule. */
void counts_merge(struct arena_counts *sum, const struct arena_counts *one);

/* Largest size counted in a class, and the class in which a size is counted. */
size_t counts_lextent_size(unsigned index);
unsigned counts_lextent_of(size_t size);
size_t counts_extent_size(unsigned index);
unsigned counts_extent_of(size_t size);
