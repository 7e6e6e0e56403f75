/* SPDX-License-Identifier: MIT
 *
 * moved.c - a short list of moved ranges.
 *
 * When realloc moves pages instead of copying them (large.c), the kernel remembers where they were
 * first, and so cannot join their new place with the memory beside it:
 *
 *      before    |--------------------- heap, one mapping ---------------------|
 *      after     |--- heap ---|=== moved ===|--------------- heap -------------|
 *
 * The list bounds how many such places there are, and tells a later move where one mapping ends and
 * the next begins.  It is advice: if an entry were missing, a mapping would stay apart and a block
 * would be copied once more, nothing worse.
 *
 * Threads     One lock.  An entry is made and unmade by a single store of its length, so whoever
 *             finds the lock abandoned after a fork has nothing to repair.
 * Cost        Walks the entries in use.  Only blocks that were ever moved come here.
 */
#include "heap/moved.h"

#include "base/lock.h"
#include "base/log.h"

struct range {
    uintptr_t start;
    _Atomic size_t bytes; /* 0: no entry.  Atomic, to be ordered after `start`; under the lock. */
};

static struct {
    struct lock lock;
    size_t top; /* entries from here on were never used */
} g = {.lock = LOCK_OF_RANK(RANK_MOVED)};

/* Apart from g, whose initial values would put all of this into the library's file. */
SPARSE static struct range ranges[MOVED_MOST];

static struct range *find_empty(void) {
    assert(lock_is_mine(&g.lock) && g.top <= MOVED_MOST);
    for (size_t i = 0; i < g.top; i++) {
        if (ranges[i].bytes == 0) {
            return &ranges[i];
        }
    }
    return g.top < MOVED_MOST ? &ranges[g.top++] : NULL;
}

bool moved_add(uintptr_t start, size_t bytes) {
    assert(bytes > 0);
    (void)lock_acquire(&g.lock);
    struct range *range = find_empty();
    if (range != NULL) {
        range->start = start;
        /* Release: a child of a fork that sees the length sees the start. */
        atomic_store_explicit(&range->bytes, bytes, memory_order_release);
    }
    lock_release(&g.lock);
    return range != NULL;
}

void moved_forget(uintptr_t start, uintptr_t end) {
    assert(start <= end);
    (void)lock_acquire(&g.lock);
    for (size_t i = 0; i < g.top; i++) {
        struct range *range = &ranges[i];
        if (range->start >= start && range->start < end) {
            range->bytes = 0;
        } else if (range->start < start && range->start + range->bytes > start) {
            range->bytes = start - range->start;
        }
    }
    lock_release(&g.lock);
}

bool moved_look(uintptr_t at, uintptr_t end, uintptr_t *piece_end) {
    assert(at < end);
    bool moved = false;
    (void)lock_acquire(&g.lock);
    for (size_t i = 0; i < g.top; i++) {
        const struct range *range = &ranges[i];
        if (range->bytes == 0) {
            continue;
        }
        if (range->start <= at && at < range->start + range->bytes) {
            moved = true;
            end = min_size(end, range->start + range->bytes);
        } else if (range->start > at) {
            end = min_size(end, range->start);
        }
    }
    lock_release(&g.lock);
    assert(end > at);
    *piece_end = end;
    return moved;
}

size_t moved_count(void) {
    size_t count = 0;
    (void)lock_acquire(&g.lock);
    for (size_t i = 0; i < g.top; i++) {
        count += ranges[i].bytes != 0;
    }
    lock_release(&g.lock);
    return count;
}

void moved_walk_memory(void (*visit)(uintptr_t start, uintptr_t end, void *context),
                       void *context) {
    visit((uintptr_t)ranges, (uintptr_t)ranges + sizeof(ranges), context);
}
