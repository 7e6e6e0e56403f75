/* SPDX-License-Identifier: MIT
 *
 * fast.h - what malloc and free inline: a thread's records, magazines, the class map, the secret.
 *
 *      TLS (56 bytes)            struct thread (thread.h)
 *      hot  ------------------>  rec[0..63]   A, F, geometry: 32 bytes per class
 *      self ------------------>  secret
 *                                tab[]        size -> class, for all small sizes
 *                                ...          slow paths only
 *
 * The fast paths use `hot` only.  A thread that has no heap (yet, or any more), or that is parked
 * (all its calls take the slow path), points at a block of zeros: every magazine in it is both
 * empty and full.
 *
 * Threads     A heap is written by its owner only.
 * Invariant   rec[0] and rec[63] are zero in every heap.
 */
#pragma once

#include "heap/heap.h"
#include "heap/magazine.h"

/* ---------------------------------------------------------------- records */

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
    uint8_t tab[SMALL_MAX / 16 + 1]; /* (size + 15) / 16  ->  4 * class */
};

struct thread;

struct tls {
    struct hot *hot;
    struct thread *self; /* NULL: no heap */
    uint16_t calls;      /* slow calls before there was a heap */
    uint8_t dead;        /* the heap was given up; never make another */
    uint8_t registered;  /* we will hear of this thread's end */
    uint8_t inside;      /* in the slow half: a call now comes from a signal handler (life.h) */
    uint8_t modes; /* enum thread_mode; what is out of the ordinary with this thread's calls */
    /* Another thread parked this one while it slept, and may be emptying its heap (sleepers.c). */
    uint8_t claimed;
    uint8_t is_telling; /* a callback that crosses the limit again is not called again (limit.c) */
    /* Bytes that went past the heap, plus those of heaps given up, less what the heap had counted
     * when this thread got it; thread_allocated() adds what it has counted now. */
    uint64_t allocated;
    uint64_t deallocated;
    /* The largest difference of all allocated and freed bytes that was seen, and what the most that
     * it can be (thread.h) has to reach before it is looked at again. */
    int64_t peak, look_at;
};

extern __thread struct tls tls HIDDEN __attribute__((tls_model("initial-exec")));

/* Marks the caller as inside or outside of the slow half.  The compiler moves nothing across: a
 * signal handler of this thread relies on the mark. */
static inline void thread_mark_again(bool inside) {
    __asm__ volatile("" ::: "memory");
    tls.inside = inside;
    __asm__ volatile("" ::: "memory");
}

/* The caller has resized an object of so many usable bytes, which it keeps: as in jemalloc, one was
 * freed and one allocated.  The first function is for a thread with a mode. */
void thread_count_kept(size_t usable);
static inline void thread_note_kept(size_t usable) {
    tls.allocated += usable;
    tls.deallocated += usable;
    if (UNLIKELY(tls.modes != 0)) {
        thread_count_kept(usable);
    }
}

/* The heap is the caller's own again. */
void thread_wake(void);

/* The same for whoever has not found its heap in `hot` just now: it may have slept since. */
static inline void thread_mark_inside(bool inside) {
    thread_mark_again(inside);
    if (UNLIKELY(tls.claimed) && inside) {
        thread_wake();
    }
}

/*
 * The record of a class byte.  The compiler is kept from sharing the sum between uses: hot + class4
 * * 8 is an addressing mode, and computing it once would be one more instruction on each fast path.
 */
static inline struct rec *thread_record(struct hot *hot, size_t *class4) {
    assert(*class4 % 4 == 0 && *class4 / 4 <= CLASS_COUNT);
    __asm__("" : "+r"(*class4));
    return (struct rec *)((char *)hot + *class4 * 8);
}

/* ---------------------------------------------------------------- class map (classmap.h) */

struct granule {
    _Atomic uint8_t class4; /* 4 * class where it is ready for the fast path, else 0 */
    _Atomic uint8_t arena;  /* of its slab, if it is an automatic one */
};

extern _Atomic(struct granule *) classmap HIDDEN;
extern _Atomic uint32_t classmap_mask HIDDEN; /* 31 ones, or 0 */

/*
 * The mask may change meanwhile, at the start of the process or when a limit comes, so it is read
 * once, and before the map: a mask of 0 is right for every map.  Compilers spend a register and an
 * instruction on an atomic load; on x86-64, where loads keep their order, it is the operand of the
 * `and`.
 */
static inline uintptr_t classmap_index(uintptr_t address) {
    uintptr_t index = address >> LG_UNIT;
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    /* Clears the upper half, too. */
    __asm__ volatile("andl %1, %k0" : "+r"(index) : "m"(classmap_mask) : "cc", "memory");
    return index;
#else
    return index & atomic_load_explicit(&classmap_mask, memory_order_acquire);
#endif
}

/* 4 * class for an address in a granule of small objects ready for the fast path; otherwise 0. */
static inline uint8_t classmap_get(uintptr_t address) {
    uintptr_t index = classmap_index(address);
    struct granule *map = atomic_load_explicit(&classmap, memory_order_relaxed);
    return atomic_load_explicit(&map[index].class4, memory_order_relaxed);
}

/* The arena of a small object of an automatic one; in window mode 0. */
static inline unsigned classmap_arena(uintptr_t address) {
    uintptr_t index = classmap_index(address);
    struct granule *map = atomic_load_explicit(&classmap, memory_order_relaxed);
    return atomic_load_explicit(&map[index].arena, memory_order_relaxed);
}

/* ---------------------------------------------------------------- the secret */

/*
 * Written into word 1 of every object that is not live, cleared when one is handed out.  A free
 * that finds it takes the slow path, which proves or refutes a double free.  No pointer and no
 * small integer equals it.
 */
extern uint64_t slab_secret HIDDEN;

static inline uint64_t slab_word1(const void *object) {
    assert((uintptr_t)object % SMALLEST == 0);
    return ((const uint64_t *)object)[1];
}

static inline void slab_set_word1(void *object, uint64_t value) {
    assert((uintptr_t)object % SMALLEST == 0);
    ((uint64_t *)object)[1] = value;
}

/* ---------------------------------------------------------------- an empty or a full magazine */

/* An object for a thread whose taking magazine of the class is empty, with word 1 as it was; NULL
 * without memory, and when the allocation is to be sampled. */
void *cache_alloc_empty(struct thread *thread, size_t size_class);

/* Keeps a free object that carries the secret, where the giving magazine is full. */
void cache_free_full(struct thread *thread, size_t size_class, void *object);

/* The same for a caller that has a heap.  The pointer given to the second has passed all checks of
 * the fast path. */
static inline void *heap_alloc_cached(unsigned size_class) {
    assert(tls.self != NULL && size_class >= 1 && size_class < CLASS_COUNT);
    void *object = cache_alloc_empty(tls.self, size_class);
    if (LIKELY(object != NULL)) {
        slab_set_word1(object, 0);
    }
    return object;
}

static inline void heap_free_cached(unsigned size_class, void *address) {
    assert(tls.self != NULL && size_class >= 1 && size_class < CLASS_COUNT);
    slab_set_word1(address, slab_secret);
    cache_free_full(tls.self, size_class, address);
}
