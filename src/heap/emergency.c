/* SPDX-License-Identifier: MIT
 *
 * emergency.c - areas for calls that interrupt the allocator, and the objects they free.
 *
 *      area    | state, bytes | head, block | head, block | ...        |
 *                                                         ^next
 *      state   next (32 bits) | live blocks (32 bits)
 *
 * A block is cut off at `next`.  When the last live block of an area is freed, the area starts
 * again from its beginning; both numbers are one word, changed by compare and swap, so no block can
 * be cut while that happens.  The first area is part of the library, since the very first call may
 * need it; others are mapped as needed and stay.
 *
 * Threads     Lock-free.  A handler that interrupts a compare and swap makes it fail and repeat.
 * Invariant   live == 0 implies next == 0.  The sum of live blocks is what free has not seen.
 * Read next   api/life.h for who counts as interrupted.
 */
#include "heap/emergency.h"

#include <stdatomic.h>

#include "base/attention.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "heap/classmap.h"
#include "heap/verify.h"

enum { FIRST_BYTES = 64 << 10, AREAS = 64, HEAD_BYTES = 16 };

struct area {
    _Atomic uint64_t state;
    size_t bytes; /* of the blocks */
    char blocks[] __attribute__((aligned(16)));
};

/* Stands before each block. */
struct head {
    _Atomic size_t size; /* 0 once it is freed */
    uintptr_t self;      /* its own address, inverted */
};
_Static_assert(sizeof(struct head) == HEAD_BYTES, "blocks are aligned to 16 bytes");

static struct {
    _Alignas(16) char first[FIRST_BYTES]; /* the memory of areas[0] */
    _Atomic(struct area *) areas[AREAS];
    _Atomic size_t count;
    _Atomic(void *) deferred;
} g SPARSE;

static const size_t most_bytes = UINT32_MAX / 2;

/* Offset of a block of this alignment when the area is filled up to `next`. */
static size_t place_block(const struct area *area, uint32_t next, size_t alignment) {
    uintptr_t block = align_up((uintptr_t)area->blocks + next + HEAD_BYTES, alignment);
    return block - (uintptr_t)area->blocks;
}

static void *cut_block(struct area *area, size_t size, size_t alignment) {
    uint64_t state = atomic_load_explicit(&area->state, memory_order_relaxed);
    for (;;) {
        size_t start = place_block(area, (uint32_t)(state >> 32), alignment);
        size_t end = align_up(start + size, 16);
        if (end > area->bytes) {
            return NULL;
        }
        uint64_t after = (uint64_t)end << 32 | ((uint32_t)state + 1);
        assert(end > start && start >= HEAD_BYTES && (uint32_t)state < UINT32_MAX);
        /* Acquire: an area that starts again was left by others. */
        if (atomic_compare_exchange_weak_explicit(&area->state, &state, after, memory_order_acquire,
                                                  memory_order_relaxed)) {
            struct head *head = (struct head *)(area->blocks + start - HEAD_BYTES);
            head->self = ~(uintptr_t)head;
            atomic_store_explicit(&head->size, size, memory_order_release);
            return area->blocks + start;
        }
    }
}

/* Enters a new area, large enough for the block, at `slot`; false without memory. */
static bool add_area(_Atomic(struct area *) *slot, size_t size, size_t alignment) {
    struct area *area = (struct area *)g.first;
    size_t bytes = sizeof(g.first);
    if (slot != &g.areas[0]) {
        size_t needed = sizeof(struct area) + HEAD_BYTES + alignment + size;
        bytes = align_up(max_size(needed, FIRST_BYTES), FIRST_BYTES);
        area = os_map(bytes);
    }
    if (area == NULL) {
        return false;
    }
    area->bytes = bytes - sizeof(struct area);
    struct area *nobody = NULL;
    /* Release: whoever finds the area finds its size. */
    if (!atomic_compare_exchange_strong_explicit(slot, &nobody, area, memory_order_release,
                                                 memory_order_relaxed) &&
        slot != &g.areas[0]) {
        os_unmap(area, bytes);
    }
    return true;
}

void *emergency_alloc(size_t size, size_t alignment) {
    size = max_size(size, 16);
    if (size > most_bytes || alignment > most_bytes) {
        return NULL;
    }
    alignment = max_size(alignment, 16);
    assert(is_power_of_two(alignment));
    for (unsigned i = 0; i < AREAS; i++) {
        struct area *area = atomic_load_explicit(&g.areas[i], memory_order_acquire);
        if (area == NULL) {
            if (!add_area(&g.areas[i], size, alignment)) {
                return NULL;
            }
            area = atomic_load_explicit(&g.areas[i], memory_order_acquire);
        }
        void *block = cut_block(area, size, alignment);
        if (block != NULL) {
            atomic_fetch_add_explicit(&g.count, 1, memory_order_relaxed);
            return block;
        }
    }
    return NULL;
}

static struct area *find_area(uintptr_t address) {
    for (unsigned i = 0; i < AREAS; i++) {
        struct area *area = atomic_load_explicit(&g.areas[i], memory_order_acquire);
        if (area == NULL) {
            break;
        }
        if (address - (uintptr_t)area->blocks < area->bytes) {
            return area;
        }
    }
    return NULL;
}

enum emergency_verdict emergency_look(const void *address, size_t *size) {
    const struct area *area = find_area((uintptr_t)address);
    *size = 0;
    if (area == NULL) {
        return EMERGENCY_ELSEWHERE;
    }
    const struct head *head = (const struct head *)((const char *)address - HEAD_BYTES);
    if ((uintptr_t)address % 16 != 0 || (const char *)head < area->blocks ||
        head->self != ~(uintptr_t)head) {
        return EMERGENCY_NOTHING;
    }
    *size = atomic_load_explicit(&head->size, memory_order_acquire);
    return *size != 0 ? EMERGENCY_LIVE : EMERGENCY_FREE;
}

bool emergency_free(void *block) {
    struct head *head = (struct head *)((char *)block - HEAD_BYTES);
    if (atomic_exchange_explicit(&head->size, 0, memory_order_acq_rel) == 0) {
        return false;
    }
    struct area *area = find_area((uintptr_t)block);
    assert(area != NULL && head->self == ~(uintptr_t)head);
    uint64_t state = atomic_load_explicit(&area->state, memory_order_relaxed);
    uint64_t after;
    do {
        assert((uint32_t)state >= 1);
        after = (uint32_t)state == 1 ? 0 : state - 1;
        /* Release: whoever cuts the area anew comes after our last use of the block. */
    } while (!atomic_compare_exchange_weak_explicit(&area->state, &state, after,
                                                    memory_order_acq_rel, memory_order_relaxed));
    return true;
}

size_t emergency_count(void) {
    return atomic_load_explicit(&g.count, memory_order_relaxed);
}

/* ---------------------------------------------------------------- objects to free later */

void emergency_defer(void *object) {
    assert((uintptr_t)object % SMALLEST == 0);
    void *next = atomic_load_explicit(&g.deferred, memory_order_relaxed);
    do {
        *(void **)object = next;
        /* Release: whoever takes the list finds the link. */
    } while (!atomic_compare_exchange_weak_explicit(&g.deferred, &next, object,
                                                    memory_order_release, memory_order_relaxed));
    attention_raise(ATTENTION_DEFERRED);
}

void *emergency_take_deferred(void) {
    return atomic_exchange_explicit(&g.deferred, NULL, memory_order_acquire);
}

/* ---------------------------------------------------------------- verifying */

/* Live blocks of an area, none of which reaches into the next. */
static uint32_t count_live(const struct area *area, size_t end) {
    uint32_t live = 0;
    size_t taken = 0;
    for (size_t at = 0; at + HEAD_BYTES <= end; at += HEAD_BYTES) {
        const struct head *head = (const struct head *)(area->blocks + at);
        size_t size = atomic_load_explicit(&head->size, memory_order_relaxed);
        if (head->self == ~(uintptr_t)head && size != 0) {
            ensure(at >= taken);
            taken = at + HEAD_BYTES + size;
            live++;
        }
    }
    ensure(taken <= end);
    return live;
}

static void verify_area(const struct area *area) {
    uint64_t state = atomic_load_explicit(&area->state, memory_order_relaxed);
    size_t end = (size_t)(state >> 32);
    uint32_t live = count_live(area, end);
    if (atomic_load_explicit(&area->state, memory_order_relaxed) != state) {
        return; /* A signal handler came in between. */
    }
    ensure(end <= area->bytes && ((uint32_t)state != 0 || end == 0));
    ensure(live == (uint32_t)state || (live < (uint32_t)state && lock_is_in_child()));
}

void emergency_verify(struct verify *walk) {
    for (unsigned i = 0; i < AREAS && g.areas[i] != NULL; i++) {
        verify_area(g.areas[i]);
    }
    for (void *object = g.deferred; object != NULL; object = *(void **)object) {
        const struct span *span = classmap_span((uintptr_t)object);
        ensure(span != NULL && span_is_owned(span));
        if (span->kind == SPAN_SLAB) {
            (void)verify_cached(walk, span->size_class, object);
        } else {
            ensure(span->base == (uintptr_t)object);
        }
    }
}
