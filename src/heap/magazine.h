/* SPDX-License-Identifier: MIT
 *
 * magazine.h - 128 slots for pointers, with the limits in the low bits of the pointer into them.
 *
 *      slot      0        1     2     3    ...   126   127
 *             [header | obj | obj | obj |  ...  |     |     ]      1024 bytes, 1024-byte aligned
 *                              ^
 *      taking   A points at the next object to hand out and moves down; A % 1024 == 0: empty
 *      giving   F points at the next slot to fill and moves up;         F % 1024 == 0: full
 *
 * So neither push nor pop loads a bound, and a pointer that is NULL is both empty and full: a
 * thread without magazines needs no test of its own.  A magazine that may hold only n objects
 * starts filling at slot 128 - n.
 *
 * Order       pop lowers the top before it reads the slot, push fills the slot before it raises the
 *             top.  A fork in between then loses at most one object and doubles none.  On x86-64
 *             each top is changed by a single instruction.
 * Signals     A handler that allocates may run between the load of a top and its change.  The fast
 *             paths take that risk (docs/manual/life.md); slow paths use swap_top,
 *             the change of a top that fails when somebody was quicker.
 */
#pragma once

#include "base/common.h"
#include "base/log.h"

enum {
    MAGAZINE_BYTES = 1024,
    MAGAZINE_SLOTS = MAGAZINE_BYTES / sizeof(void *),
    MAGAZINE_MOST = MAGAZINE_SLOTS - 1,
    MAGAZINE_MASK = MAGAZINE_BYTES - 1,
};

struct magazine {
    struct magazine *next; /* in a depot or a pool */
    void *slots[MAGAZINE_MOST];
};

/* The magazine a taking pointer points into. */
static inline struct magazine *magazine_of_take(uintptr_t take) {
    return (struct magazine *)align_down(take, MAGAZINE_BYTES);
}

/* The magazine a giving pointer points into; a full one points at its end. */
static inline struct magazine *magazine_of_give(uintptr_t give) {
    return (struct magazine *)align_down(give - sizeof(void *), MAGAZINE_BYTES);
}

static inline bool magazine_take_is_empty(uintptr_t take) {
    return (take & MAGAZINE_MASK) == 0;
}

static inline bool magazine_give_is_full(uintptr_t give) {
    return (give & MAGAZINE_MASK) == 0;
}

static inline unsigned magazine_take_count(uintptr_t take) {
    return (unsigned)(take & MAGAZINE_MASK) / (unsigned)sizeof(void *);
}

/* Where a magazine that may hold `capacity` objects starts filling. */
static inline uintptr_t magazine_give_start(struct magazine *magazine, unsigned capacity) {
    assert(capacity <= MAGAZINE_MOST);
    return (uintptr_t)magazine + (MAGAZINE_SLOTS - capacity) * sizeof(void *);
}

static inline unsigned magazine_give_count(uintptr_t give, unsigned capacity) {
    uintptr_t start = magazine_give_start(magazine_of_give(give), capacity);
    return give == 0 ? 0 : (unsigned)((give - start) / sizeof(void *));
}

/* Changes a top from `*seen` to `value`, if it still is `*seen`; else `*seen` becomes what it is.
 * Only a signal handler of this thread may interfere: a single instruction suffices, and it need
 * not lock the bus. */
static inline bool magazine_swap_top(uintptr_t *top, uintptr_t *seen, uintptr_t value) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    bool same;
    __asm__ volatile("cmpxchgq %3, %1"
                     : "=@ccz"(same), "+m"(*top), "+a"(*seen)
                     : "r"(value)
                     : "memory");
    return same;
#else
    return __atomic_compare_exchange_n(top, seen, value, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
#endif
}

/* Pop and push of the slow paths: NULL or false when the magazine is empty or full. */
static inline void *magazine_pop_slowly(uintptr_t *take) {
    uintptr_t top = *(volatile uintptr_t *)take;
    do {
        if (magazine_take_is_empty(top)) {
            return NULL;
        }
    } while (!magazine_swap_top(take, &top, top - sizeof(void *)));
    return *(void **)top;
}

/* The magazine looks full until the slot is filled: a handler that frees in between would use the
 * same slot. */
static inline bool magazine_push_slowly(uintptr_t *give, void *object) {
    uintptr_t top = *(volatile uintptr_t *)give;
    do {
        if (magazine_give_is_full(top)) {
            return false;
        }
    } while (!magazine_swap_top(give, &top, 0));
    *(void **)top = object;
    /* Release: a reader that sees the new top finds the slot filled. */
    __atomic_store_n(give, top + sizeof(void *), __ATOMIC_RELEASE);
    return true;
}

/* Hands out the object at the top; the caller made sure that there is one. */
static inline void *magazine_pop(uintptr_t *take, uintptr_t top) {
    assert(!magazine_take_is_empty(top) && top % sizeof(void *) == 0);
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__ volatile("subq $8, %0" : "+m"(*take));
#else
    __atomic_store_n(take, top - sizeof(void *), __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
    return *(void **)top;
}

/* Puts an object on top; the caller made sure that there is room. */
static inline void magazine_push(uintptr_t *give, uintptr_t top, void *object) {
    assert(!magazine_give_is_full(top) && top % sizeof(void *) == 0);
    *(void **)top = object;
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__ volatile("addq $8, %0" : "+m"(*give) : : "memory");
#else
    /* Release: a reader that sees the new top finds the slot filled. */
    __atomic_store_n(give, top + sizeof(void *), __ATOMIC_RELEASE);
#endif
}
