/* SPDX-License-Identifier: MIT
 *
 * thread.h - what a thread keeps: its magazines, and the numbers the fast paths need.
 *
 *      TLS (22 bytes)            struct thread
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
 * Threads     A heap is written by its owner only.  Others read the tops, to count or to search.
 *             The heap of a thread that is gone belongs to whoever takes it over.
 * Invariant   rec[0] and rec[63] are zero in every heap.
 */
#pragma once

#include "heap/magazine.h"
#include "heap/size_class.h"

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

struct thread {
    struct hot hot;
    uint8_t room[CLASS_COUNT]; /* objects both magazines of a class may hold together */
    uint8_t cap[CLASS_COUNT];  /* objects the giving magazine is open for now */
    uint8_t turn[CLASS_COUNT]; /* counts how often the class was opened, for those who look in */
    uint8_t goal[CLASS_COUNT]; /* objects the next fetch should bring it to */
    uint8_t seen[CLASS_COUNT]; /* slow calls for a class that has no magazines yet */
    uint16_t arena;
    uint32_t needs;       /* times a class below its largest room asked or left objects elsewhere */
    size_t spare_bytes;   /* of the budget, not promised to any class */
    struct thread *next;  /* list of all heaps */
    struct thread **link; /* what points at this one */
};

struct tls {
    struct hot *hot;
    struct thread *self; /* NULL: no heap */
    uint16_t calls;      /* slow calls before there was a heap */
    uint8_t dead;        /* the heap was given up; never make another */
    uint8_t registered;  /* the end of this thread will be told to us */
    uint8_t inside;      /* in the slow half: a call now comes from a signal handler (life.h) */
};

extern __thread struct tls tls HIDDEN __attribute__((tls_model("initial-exec")));

/* Marks the caller as inside or outside of the slow half.  The compiler moves nothing across: a
 * signal handler of this thread relies on the mark. */
static inline void thread_mark_inside(bool inside) {
    __asm__ volatile("" ::: "memory");
    tls.inside = inside;
    __asm__ volatile("" ::: "memory");
}

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

/* Number of heaps. */
size_t thread_count(void);
