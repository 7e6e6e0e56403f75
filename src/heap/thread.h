/* SPDX-License-Identifier: MIT
 *
 * thread.h - what a thread keeps: its magazines, and the numbers the fast paths need.
 * Its beginning, `hot`, is what the fast paths use (fast.h).
 *
 *      new --16 slow calls--> alive --thread exit--> dead (served by the bins, never a heap again)
 *       '---- the heap a thread left is at hand ---^
 *
 * Counts.  Nothing is counted on the fast paths.  What a class has handed out and taken back
 * follows from two sums that change on slow calls only, and from what its magazines hold:
 *
 *      allocated objects = filled - |A|            all that came into A, less what is still there
 *      freed objects     = filled - fetched + |F|  all that came into A from F, and what is in F
 *
 * Threads     A heap is written by its owner only.  Others read the tops, to count or to search.
 *             The heap of a thread that is gone belongs to whoever takes it over, and that of one
 *             that sleeps to whoever has claimed it (sleepers.c).
 */
#pragma once

#include "base/lock.h"
#include "heap/fast.h"
#include "heap/shelf.h"

struct stash;
struct verify;

/* Bytes counted call by call, for a thread that asked for it. */
struct thread_exact {
    uint64_t allocated;
    uint64_t deallocated;
    int64_t base; /* their difference at the last reset of the peak */
    int64_t peak; /* largest difference since, above base */
};

/* What becomes of a heap whose owner sleeps. */
enum thread_sleep {
    THREAD_AWAKE,    /* its owner uses it */
    THREAD_EMPTYING, /* a claim is being used; in a child: was, when the process was forked */
    THREAD_ASLEEP,   /* it holds nothing, and its owner is parked until its next call */
};

struct thread {
    struct hot hot;
    uint8_t room[CLASS_COUNT]; /* objects both magazines of a class may hold together */
    uint8_t cap[CLASS_COUNT];  /* objects the giving magazine is open for now */
    uint8_t turn[CLASS_COUNT]; /* counts openings of the class, for other threads that look in */
    uint8_t goal[CLASS_COUNT]; /* objects the next fetch should bring it to */
    uint8_t seen[CLASS_COUNT]; /* slow calls for a class that has no magazines yet */
    uint8_t most[CLASS_COUNT]; /* largest room of a class; 0: it is not cached */
    bool apart;                /* takes nothing from depots: its arena is the program's choice */
    bool is_custom;            /* its limits were set by hand: no thread to come gets it as it is */
    uint16_t arena;
    /* Objects that were put into A, less those that left it otherwise than to the program. */
    uint64_t filled[CLASS_COUNT];
    /* Objects that came from depots and bins, less those that went there. */
    uint64_t fetched[CLASS_COUNT];
    /* Sampling: what filled - |A| is when the next allocation is to be sampled, and the rate's
     * epoch in which that was drawn, 0 for none (track.c). */
    uint64_t due[CLASS_COUNT];
    uint64_t epoch;
    int64_t fetched_bytes; /* the sum of `fetched`, roughly; when the peak is looked at exactly */
    struct shelf shelf;    /* free large blocks */
    struct stash *stash;   /* free tracked objects; NULL until every object is tracked (stash.h) */
    uint32_t generation;   /* lock_generation() of the process in which it has a thread; 0: none */
    struct thread_exact exact;
    uint32_t needs;  /* times a class below its largest room asked or left objects elsewhere */
    uint32_t visits; /* of depots and bins */
    int64_t moved;   /* bytes that came from there, less those that went, since they were told */
    size_t budget_bytes;  /* of free objects that it may keep; grows by need (cache.c) */
    size_t spare_bytes;   /* of these, not promised to any class */
    struct thread *next;  /* list of all heaps */
    struct thread **link; /* what points at this one */
    struct thread *older; /* the heap that was made before this one; constant */
    /* How others find the owner, where `generation` says that there is one (sleepers.c).  It changes
     * under the claim, and so do the words below. */
    struct lock claim;
    struct tls *owner;
    uint32_t number;   /* the kernel's, of the owner */
    uint8_t sleep;     /* enum thread_sleep */
    uint8_t refusals;  /* times the owner could not be said to sleep, since the heap changed */
    uint64_t looks;    /* how its tops looked */
    uint64_t since_ms; /* when they were found changed, or the owner awake */
};

enum thread_mode {
    THREAD_UNCACHED = 1,   /* the program switched its cache off */
    THREAD_HOOKED = 2,     /* its arena has extent hooks, so nothing may be cached */
    THREAD_EXACT = 4,      /* every call is counted */
    THREAD_IN_HOOK = 8,    /* an extent hook runs: what it allocates comes from elsewhere */
    THREAD_UNSETTLED = 16, /* THREAD_HOOKED was found in the middle of a call: flush, and park */
    THREAD_IGNORED = 32,   /* what it allocates is no leak (track.h) */
    THREAD_PAST_CACHE = THREAD_UNCACHED | THREAD_HOOKED | THREAD_IN_HOOK,
};

void thread_init(void);

/* The heap that was made last; `older` leads to all others. */
struct thread *thread_first(void);

/* This thread's heap, or NULL while it has not earned one or after it was given up. */
struct thread *thread_self(void);

/* Parks the owner of a heap that the caller has claimed. */
void thread_park_owner(struct thread *thread);

/* Does a heap cache nothing? */
bool thread_is_empty(const struct thread *thread);

/* Empties the heaps that are kept for threads to come. */
void thread_flush_left(void);

/* Is this object in a magazine of any thread?  A positive answer is sure; thread.c says why. */
bool thread_any_holds(unsigned size_class, const void *object);

/* Objects of a class in the magazines of all threads; may lag behind. */
size_t thread_count_cached(unsigned size_class);

/* Number of heaps. */
size_t thread_count(void);

/* The lock of the lists, for the lock counts. */
struct lock *thread_list_lock(void);

/* Looks how much the caller holds, for its peak, whenever that can be 64 KiB more than ever before:
 * it holds no more than went past its heap and was fetched into it.  The second is the rest of the
 * first; all classes are open. */
enum { THREAD_PEAK_STEP = 64 << 10 };
void thread_look_at_peak(void);
static inline void thread_watch_peak(const struct thread *thread) {
    int64_t most =
        (int64_t)(tls.allocated - tls.deallocated) + (thread != NULL ? thread->fetched_bytes : 0);
    if (UNLIKELY(most >= tls.look_at)) {
        thread_look_at_peak();
    }
}

/* Bytes that the caller allocates or frees past its heap: large objects, and small ones without a
 * cache. */
static inline void thread_note_alloc(size_t bytes) {
    tls.allocated += bytes;
    thread_watch_peak(tls.self);
}

static inline void thread_note_free(size_t bytes) {
    tls.deallocated += bytes;
}

/* Before a heap changes its arena, or is emptied for good: what it has counted becomes the arena's
 * past, and the owner's. */
void thread_settle_counts(struct thread *thread);

/* A heap that belongs to no thread, for an explicit cache, NULL without memory; and the end of one
 * that is empty. */
struct thread *thread_make_apart(void);
void thread_end_apart(struct thread *apart);

/* The caller's arena was found to use hooks while one of its classes is closed. */
void thread_note_hooks(void);

/* For a thread with modes, before a call is served: does what thread_note_hooks left to do. */
void thread_settle_modes(void);

/* The caller is THREAD_EXACT and got, or gave up, this number of usable bytes. */
void thread_count_alloc(size_t bytes);
void thread_count_free(size_t bytes);

/* Sets whether the caller's allocations are marked as no leaks; while they are, every call takes
 * the slow path. */
void thread_set_ignored(bool is_ignored);

/* Checks the lists of heaps, and all heaps except those of explicit caches; returns the number of
 * these. */
size_t thread_verify(struct verify *walk);
