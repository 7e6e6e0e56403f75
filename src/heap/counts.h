/* SPDX-License-Identifier: MIT
 *
 * counts.h - the figures of counters.def as structs, and how they are read.
 *
 * Threads     Reading takes no lock for longer than a few microseconds and stops nobody: figures of one
 *             struct may be a few calls apart.  At rest they are exact and add up.
 */
#pragma once

#include <sys/types.h>

#include "heap/size_class.h"

struct lock;

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

/* An arena is being destroyed, and nobody uses it: what it has counted is added to that, and its own
 * counts start again.  Objects of it that wait in caches stay with its index. */
void counts_note_destroyed(unsigned arena);

/* What a lock has counted, and a new start for the counts of all locks that are told of above. */
void counts_read_lock(const struct lock *lock, struct mutex_counts *counts);
void counts_reset_mutexes(void);

/* Adds one to the other, each field by its merge rule. */
void counts_merge(struct arena_counts *sum, const struct arena_counts *one);

/* Largest size counted in a class, and the class in which a size is counted. */
size_t counts_lextent_size(unsigned index);
unsigned counts_lextent_of(size_t size);
size_t counts_extent_size(unsigned index);
unsigned counts_extent_of(size_t size);
