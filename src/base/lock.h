/* SPDX-License-Identifier: MIT
 *
 * lock.h - a futex lock that survives fork, with a rank.
 *
 *      word    generation (30 bits) | waiters | locked
 *
 * Nobody holds an allocator lock across fork on purpose, but another thread may hold one at that
 * moment and then does not exist in the child.  The word carries the fork generation: a locked word
 * of an older generation has no holder, so it is taken over and the caller is told to repair.  The
 * generation lies in a page that is empty in a child, so the first lock the child takes finds out.
 *
 * Threads     Locks are taken in ascending rank, at most one per rank.  Debug builds check it.
 * Invariant   While a lock is held nothing outside the library is called that locks or allocates.
 */
#pragma once

#include <stdatomic.h>

#include "base/attention.h"
#include "base/count.h"

/* The order in which locks may be nested; the smaller is taken first. */
enum lock_rank {
    RANK_LEAK,     /* one check for leaks at a time */
    RANK_START,    /* initialising the process */
    RANK_CTL,      /* settings and copies of counters that mallctl keeps */
    RANK_COUNTS,   /* the figures of arenas that are gone */
    RANK_ARENAS,   /* making and destroying arenas */
    RANK_TCACHES,  /* making and destroying explicit caches */
    RANK_THREADS,  /* the list of thread heaps */
    RANK_CLAIM,    /* one thread's heap, for others; never two */
    RANK_TCACHE,   /* one explicit cache; never two */
    RANK_RECLAIM,  /* giving pages of slabs back */
    RANK_BIN,      /* the slabs of one class in one arena; never two */
    RANK_DEPOT,    /* waiting objects of one class */
    RANK_POOL,     /* the pool of empty magazines */
    RANK_PURGE,    /* giving pages to the kernel, one thread at a time */
    RANK_PAGES,    /* the page heap */
    RANK_MAPPINGS, /* the program's own mappings */
    RANK_CPU,      /* samples and threads of the CPU profile */
    RANK_PROF,     /* what the profiler has recorded */
    RANK_DUMP,     /* the prefix of names of profiles; a leaf */
    RANK_IN_PLACE, /* writing a profile over a file; a leaf */
    RANK_METADATA, /* our own memory; a leaf */
    RANK_MOVED,    /* the list of moved ranges; a leaf */
    RANK_IGNORED,  /* what is no leak; a leaf */
};

/* The counts are changed by the holder, but for `sleepers`. */
struct lock {
    _Atomic uint32_t word;
    uint32_t rank;
    uint64_t taken; /* how often */
    /* Of the threads that found it held: */
    uint64_t spun;  /* had it after spinning */
    uint64_t slept; /* had it after a sleep */
    uint64_t slept_ns;
    uint64_t longest_ns;
    _Atomic uint32_t sleepers; /* now */
    uint32_t most_sleepers;
};

/* The counts of a lock as they were at some moment. */
struct lock_counts {
    uint64_t taken, spun, slept, slept_ns, longest_ns;
    uint32_t most_sleepers;
};

/* A free lock of an old generation: 0 is what a child reads before it has noticed the fork, and no
 * lock may look free to it. */
#define LOCK_OF_RANK(name)                                                                         \
    { .word = 1u << LOCK_GENERATION_SHIFT, .rank = name }

/* What the caller finds behind the lock. */
enum lock_found {
    LOCK_SOUND,
    LOCK_ABANDONED, /* the holder vanished in a fork: rebuild before use */
};

enum { LOCK_LOCKED = 1, LOCK_WAITERS = 2, LOCK_GENERATION_SHIFT = 2 };

/* The generation, shifted.  0 before the start, and in a forked child until the fork is noticed. */
static inline uint32_t lock_generation(void) {
    return atomic_load_explicit(&attention_page.generation, memory_order_relaxed);
}

/* Is this process the child of one that had a heap?  What that one's other threads were moving is lost then. */
static inline bool lock_is_in_child(void) {
    return lock_generation() > 1u << LOCK_GENERATION_SHIFT;
}

/*
 * Points at libc's word that is not 0 while the process has one thread, or at a 0.  Then nobody
 * else can want the lock, and two atomic operations, the dearest part of a slow call, are saved.
 */
extern _Atomic(const char *) lock_single_threaded HIDDEN;

static inline bool lock_is_single_threaded(void) {
    const char *word = atomic_load_explicit(&lock_single_threaded, memory_order_relaxed);
    return *(const volatile char *)word != 0;
}

/* The parts of acquire and release that few calls need. */
enum lock_found lock_acquire_slowly(struct lock *lock);
void lock_wake(struct lock *lock);
void lock_note_acquired(const struct lock *lock);
void lock_note_released(const struct lock *lock);

static inline enum lock_found lock_acquire(struct lock *lock) {
    uint32_t free_word = lock_generation();
    enum lock_found found = LOCK_SOUND;
    if (lock_is_single_threaded() &&
        atomic_load_explicit(&lock->word, memory_order_relaxed) == free_word) {
        atomic_store_explicit(&lock->word, free_word | LOCK_LOCKED, memory_order_relaxed);
        /* Acquire pairs with the release in lock_release. */
    } else if (UNLIKELY(!atomic_compare_exchange_strong_explicit(
                   &lock->word, &free_word, free_word | LOCK_LOCKED, memory_order_acquire,
                   memory_order_relaxed))) {
        found = lock_acquire_slowly(lock);
    }
    count_add(&lock->taken, 1);
    if (DEBUG) {
        lock_note_acquired(lock);
    }
    return found;
}

/* Without waiting; false when somebody else has it. */
bool lock_try(struct lock *lock, enum lock_found *found);

static inline void lock_release(struct lock *lock) {
    if (DEBUG) {
        lock_note_released(lock);
    }
    uint32_t now = lock_generation();
    if (lock_is_single_threaded()) {
        atomic_store_explicit(&lock->word, now, memory_order_release);
        return;
    }
    /* Release publishes what the holder wrote. */
    uint32_t word = atomic_exchange_explicit(&lock->word, now, memory_order_release);
    if (UNLIKELY(word & LOCK_WAITERS)) {
        lock_wake(lock);
    }
}

static inline bool lock_is_held(const struct lock *lock) {
    return atomic_load_explicit(&lock->word, memory_order_relaxed) & LOCK_LOCKED;
}

/* For asserts, since debug builds alone know: does the caller hold it? */
bool lock_is_mine(const struct lock *lock);

/* Takes no lock, so the figures may be a few calls apart. */
struct lock_counts lock_read_counts(const struct lock *lock);

/* Counts from 0 again.  Takes the lock for a moment. */
void lock_reset_counts(struct lock *lock);

/* Finds libc's word, where there is one.  Before it is called, locks take the atomic way. */
void lock_init(void);
