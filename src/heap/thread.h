/* SPDX-License-Identifier: MIT
 *
 * thread.h - what a thread keeps: its magazines, and the numbers the fast paths need.
 *
 *      TLS (42 bytes)            struct thread
 *      hot  ------------------>  rec[0..63]   A, F, geometry: 32 bytes per class
 *      self ------------------>  secret
 *                                tab[]        size -> class, for sizes up to 1024
 *                                ...          slow paths only
 *
 * The fast paths use `hot` only.  A thread that has no heap (yet, or any more), or that is parked
 * (all its calls take the slow path), points at a block of zeros: every magazine in it is both
 * empty and full.
 *
 *      new --16 slow calls--> alive --thread exit--> dead (served by the bins, never a heap again)
 *       '---- the heap a thread left is at hand ---^
 *
 * Counts.  Nothing is counted on the fast paths.  What a class has handed out and taken back follows
 * from two sums that change on slow calls only, and from what its magazines hold:
 *
 *      allocated objects = filled - |A|            all that came into A, less what is still there
 *      freed objects     = filled - fetched + |F|  all that came into A from F, and what is in F
 *
 * Threads     A heap is written by its owner only.  Others read the tops, to count or to search.
 *             The heap of a thread that is gone belongs to whoever takes it over.
 * Invariant   rec[0] and rec[63] are zero in every heap.
 */
#pragma once

#include "heap/magazine.h"
#include "heap/size_class.h"

struct lock;
struct stash;
struct verify;

/* One class as the fast paths see it. */
struct rec {
    uintptr_t take; /* next object to hand out (magazine.h) */
    uintptr_t give; /* next slot to fill */
    /* The class's constants (size_class.h).  All are 0 in record 0, so that the free of anything
     * but a published small object takes the slow path. */
    uint32_t mult;
    uint32_t limit;
    uint32_t mask;
};
_Static_assert(sizeof(struct rec) == 32, "thread_record scales 4 * class by 8");

struct hot {
    struct rec rec[CLASS_COUNT + 1]; /* 64 records */
    uint64_t secret;
    uint8_t tab[TABLE_MAX / 16 + 1]; /* (size + 15) / 16  ->  4 * class */
};

/* Bytes counted call by call, for a thread that asked for it. */
struct thread_exact {
    uint64_t allocated;
    uint64_t deallocated;
    int64_t base; /* their difference at the last reset of the peak */
    int64_t peak; /* largest difference since, above base */
};

struct thread {
    struct hot hot;
    uint8_t room[CLASS_COUNT]; /* objects both magazines of a class may hold together */
    uint8_t cap[CLASS_COUNT];  /* objects the giving magazine is open for now */
    uint8_t turn[CLASS_COUNT]; /* counts how often the class was opened, for those who look in */
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
    /* Sampling: what filled - |A| is when the next allocation is to be sampled, and the rate's epoch in
     * which that was drawn, 0 for none (track.c). */
    uint64_t due[CLASS_COUNT];
    uint64_t epoch;
    struct stash *stash; /* free tracked objects; NULL until every object is tracked (stash.h) */
    uint32_t generation; /* lock_generation() of the process in which it has a thread; 0: none */
    struct thread_exact exact;
    uint32_t needs;       /* times a class below its largest room asked or left objects elsewhere */
    uint32_t visits;      /* of depots and bins */
    size_t spare_bytes;   /* of the budget, not promised to any class */
    struct thread *next;  /* list of all heaps */
    struct thread **link; /* what points at this one */
    struct thread *older; /* the heap that was made before this one; constant */
};

struct tls {
    struct hot *hot;
    struct thread *self; /* NULL: no heap */
    uint16_t calls;      /* slow calls before there was a heap */
    uint8_t dead;        /* the heap was given up; never make another */
    uint8_t registered;  /* the end of this thread will be told to us */
    uint8_t inside;      /* in the slow half: a call now comes from a signal handler (life.h) */
    /* Bytes that went past the heap, plus those of heaps given up, less what the heap had counted when
     * this thread got it; thread_allocated() adds what it has counted now. */
    uint64_t allocated;
    uint64_t deallocated;
    uint8_t modes; /* enum thread_mode; what is out of the ordinary with this thread's calls */
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

extern __thread struct tls tls HIDDEN __attribute__((tls_model("initial-exec")));

/* Marks the caller as inside or outside of the slow half.  The compiler moves nothing across: a
 * signal handler of this thread relies on the mark. */
static inline void thread_mark_inside(bool inside) {
    __asm__ volatile("" ::: "memory");
    tls.inside = inside;
    __asm__ volatile("" ::: "memory");
}

/* While a function of the program, or of libc, is called from inside: it may allocate as usual, and its
 * errno stays its own. */
struct thread_outside {
    int error;
    bool was_inside;
};
struct thread_outside thread_go_outside(void);
void thread_come_back(struct thread_outside before);

/*
 * The record of a class byte.  The compiler is kept from sharing the sum between uses: hot + class4
 * * 8 is an addressing mode, and computing it once would be one more instruction on each fast path.
 */
static inline struct rec *thread_record(struct hot *hot, size_t *class4) {
    __asm__("" : "+r"(*class4));
    return (struct rec *)((char *)hot + *class4 * 8);
}

void thread_init(void);

/* This thread's heap, or NULL while it has not earned one or after it was given up. */
struct thread *thread_self(void);

/* Gives up this thread's heap.  The last one given up is kept as it is for a thread to come. */
void thread_exit(void);

/* Empties the heaps that are kept for threads to come. */
void thread_flush_left(void);

/* In the child of a fork, called by the thread that survived: all other heaps are orphans. */
void thread_forked(void);

/* Recovers what some magazines of orphans hold; false when no orphan is left. */
bool thread_recover_some(void);

/* Empties the caller's magazines. */
void thread_flush(void);

/* Is this object in a magazine of any thread?  A positive answer is sure; thread.c says why. */
bool thread_any_holds(unsigned size_class, const void *object);

/* Objects of a class in the magazines of all threads; may lag behind. */
size_t thread_count_cached(unsigned size_class);

/* Bytes of free objects that the caller's heap keeps. */
size_t thread_cached_bytes(void);

/* What the heaps of an arena have counted by class. */
struct thread_sums {
    uint64_t requests[CLASS_COUNT]; /* of heaps that exist; others: arena_sums */
    size_t cached[CLASS_COUNT];
    unsigned threads; /* that own one of them */
};
enum { THREAD_ALL_ARENAS = UINT16_MAX };
struct thread_sums thread_read_arena(unsigned arena);

/* Number of heaps. */
size_t thread_count(void);

/* Its lock, to be counted. */
struct lock *thread_list_lock(void);

/* Bytes that the caller allocates or frees past its heap: large objects, and small ones without a
 * cache. */
static inline void thread_note_alloc(size_t bytes) {
    tls.allocated += bytes;
}

static inline void thread_note_free(size_t bytes) {
    tls.deallocated += bytes;
}

/* Before a heap changes its arena, or is emptied for good: what it has counted becomes the arena's
 * past, and the owner's. */
void thread_settle_counts(struct thread *thread);

/* A heap that belongs to no thread, for an explicit cache, NULL without memory; and the end of one that
 * is empty. */
struct thread *thread_make_apart(void);
void thread_end_apart(struct thread *apart);

/* The caller's arena was found to use hooks while one of its classes is closed. */
void thread_note_hooks(void);

/* For a thread with modes, before a call is served: does what thread_note_hooks left to do. */
void thread_settle_modes(void);

/* The caller is THREAD_EXACT and got, or gave up, so many usable bytes. */
void thread_count_alloc(size_t bytes);
void thread_count_free(size_t bytes);

/* ---------------------------------------------------------------- what a thread may ask for itself */

/* The arena the caller allocates from, and a change of it: what it caches goes back first.  False when
 * there is no such arena, or no memory. */
unsigned thread_arena(void);
bool thread_set_arena(unsigned arena);

/* Does the caller keep free objects for itself?  Without, every call takes the slow path. */
bool thread_is_cached(void);
void thread_set_cached(bool cached);

/* Largest object the caller caches. */
size_t thread_cache_max(void);
void thread_set_cache_max(size_t bytes);

/* Most objects of a class the caller caches; 0: none. */
unsigned thread_class_max(unsigned size_class);
void thread_set_class_max(unsigned size_class, unsigned objects);

/* Bytes, at usable size, that the caller has allocated and freed since it began. */
uint64_t thread_allocated(void);
uint64_t thread_deallocated(void);

/* Is what the caller allocates to carry a mark that says that it is no leak?  Meanwhile every call takes the
 * slow path. */
void thread_set_ignored(bool is_ignored);

/* Addresses of the same as running counters, NULL without memory.  From now on every call of this
 * thread takes the slow path, which keeps them. */
uint64_t *thread_allocated_live(void);
uint64_t *thread_deallocated_live(void);

/* The largest difference of the two since the last reset, or since the first call of either. */
uint64_t thread_peak(void);
void thread_reset_peak(void);

/* Checks the lists of heaps and all heaps but those of explicit caches; how many of these there are. */
size_t thread_verify(struct verify *walk);
