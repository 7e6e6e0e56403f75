/* SPDX-License-Identifier: MIT
 *
 * meta.c - hands out pieces of private mappings, one behind the other, and takes none back.
 *
 * Code that needs descriptors again and again keeps a list of used ones; we have few kinds, so no
 * general allocator is needed below the allocator.  Mappings are large and are touched only as
 * far as they are used, so size costs addresses and not memory.
 *
 * Threads     One lock, a leaf.
 */
#include "heap/meta.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "heap/limit.h"

/* Under an address space limit every reserved byte is taken from the program. */
enum { STEP_BYTES = 1 << 20, STEP_BYTES_LIMITED = 128 << 10, MOST_RANGES = 64 };

/* Mappings that the kernel has put side by side are one range. */
struct range {
    _Atomic uintptr_t start, end;
};

static struct {
    struct lock lock;
    uintptr_t next; /* guarded by lock */
    uintptr_t end;  /* guarded by lock */
    _Atomic size_t bytes;
    struct range ranges[MOST_RANGES]; /* written under the lock, read without */
    _Atomic unsigned range_count;
} g = {.lock = LOCK_OF_RANK(RANK_METADATA)};

/* Each change becomes visible by one store.  Ranges beyond MOST_RANGES are not noted. */
static void note_range(uintptr_t start, uintptr_t end) {
    assert(lock_is_mine(&g.lock) && start < end);
    unsigned count = g.range_count;
    for (unsigned i = 0; i < count; i++) {
        if (g.ranges[i].start == end) {
            g.ranges[i].start = start;
            return;
        }
        if (g.ranges[i].end == start) {
            g.ranges[i].end = end;
            return;
        }
    }
    if (count < MOST_RANGES) {
        g.ranges[count].start = start;
        g.ranges[count].end = end;
        g.range_count = count + 1;
    }
}

void meta_walk(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context) {
    unsigned count = g.range_count;
    for (unsigned i = 0; i < count; i++) {
        visit(g.ranges[i].start, g.ranges[i].end, context);
    }
}

static bool grow(size_t bytes) {
    size_t step = os_facts.address_space_limited ? STEP_BYTES_LIMITED : STEP_BYTES;
    size_t wanted = align_up(max_size(bytes, step), os_facts.page_bytes);
    void *start = os_map(wanted);
    if (start == NULL) {
        return false;
    }
    g.next = (uintptr_t)start;
    g.end = g.next + wanted;
    note_range(g.next, g.end);
    return true;
}

void *meta_alloc(size_t bytes, size_t alignment) {
    assert(bytes > 0 && is_power_of_two(alignment));
    if (!limit_allows(bytes)) {
        return NULL;
    }
    if (lock_acquire(&g.lock) == LOCK_ABANDONED) {
        g.next = g.end = 0; /* The two may not match; the rest of the mapping is lost. */
    }
    uintptr_t start = align_up(g.next, alignment);
    if (g.next == 0 || start + bytes > g.end) {
        if (!grow(bytes + alignment)) {
            lock_release(&g.lock);
            return NULL;
        }
        start = align_up(g.next, alignment);
    }
    g.next = start + bytes;
    assert(start % alignment == 0 && g.next <= g.end);
    atomic_fetch_add_explicit(&g.bytes, bytes, memory_order_relaxed);
    lock_release(&g.lock);
    return (void *)start;
}

struct lock *meta_lock(void) {
    return &g.lock;
}

size_t meta_bytes(void) {
    return atomic_load_explicit(&g.bytes, memory_order_relaxed);
}
