/* SPDX-License-Identifier: MIT
 *
 * verify.c - heap_verify: every part of the heap checks itself, then all of them together.
 *
 * Pages, bins and slabs are checked under their locks.  Caches have no lock, so the library's
 * own threads are kept waiting meanwhile, and the caller answers for the program's.
 *
 * That a free object is in one place only is known from a table of all addresses met in the walk.
 * It has its own memory, which goes afterwards; without memory that one property is not checked.
 *
 * Read next   bin.c and cache.c for the invariants.
 */
#include "heap/verify.h"

#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "base/own.h"
#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/depot.h"
#include "heap/emergency.h"
#include "heap/heap.h"
#include "heap/pages.h"
#include "heap/pool.h"
#include "heap/slab.h"
#include "heap/tcaches.h"
#include "heap/thread.h"

enum { FIRST_SLOTS = 4096, LONGEST_WAIT_MS = 10000 };

struct verify {
    uintptr_t *slots; /* open addressing; 0: free */
    size_t slot_count, used;
    bool is_blind; /* no memory for the table */
    size_t cached[CLASS_COUNT];
    size_t magazines;
    size_t shelved; /* large blocks */
};

/* ---------------------------------------------------------------- the table */

/* The slot of an address, or the free one where it belongs. */
static uintptr_t *find_slot(const struct verify *walk, uintptr_t address) {
    size_t at = hash_masked(address, walk->slot_count - 1);
    while (walk->slots[at % walk->slot_count] != 0 &&
           walk->slots[at % walk->slot_count] != address) {
        at++;
    }
    return &walk->slots[at % walk->slot_count];
}

static void drop_table(struct verify *walk) {
    if (walk->slots != NULL) {
        os_unmap(walk->slots, walk->slot_count * sizeof(uintptr_t));
    }
}

static void grow_table(struct verify *walk) {
    struct verify larger = *walk;
    larger.slot_count = max_size(2 * walk->slot_count, FIRST_SLOTS);
    larger.slots = os_map(larger.slot_count * sizeof(uintptr_t));
    larger.is_blind = larger.slots == NULL;
    for (size_t i = 0; i < walk->slot_count && !larger.is_blind; i++) {
        if (walk->slots[i] != 0) {
            *find_slot(&larger, walk->slots[i]) = walk->slots[i];
        }
    }
    drop_table(walk);
    *walk = larger;
}

static void meet(struct verify *walk, uintptr_t address) {
    if (!walk->is_blind && 2 * walk->used >= walk->slot_count) {
        grow_table(walk);
    }
    if (!walk->is_blind) {
        uintptr_t *slot = find_slot(walk, address);
        bool was_met_before = *slot == address;
        ensure(!was_met_before);
        *slot = address;
        walk->used++;
    }
}

/* ---------------------------------------------------------------- what parts of the heap meet */

const struct span *verify_cached(struct verify *walk, unsigned size_class, const void *object) {
    const struct span *slab = classmap_span((uintptr_t)object);
    ensure(slab != NULL && slab->kind == SPAN_SLAB && slab->size_class == size_class);
    uint32_t offset = (uint32_t)((uintptr_t)object - slab->base);
    ensure(size_class_is_start(slab_class(slab), offset));
    uint32_t index = size_class_index(slab_class(slab), offset);
    ensure(slab_is_out(slab, index));
    meet(walk, (uintptr_t)object);
    return slab;
}

void verify_slots(struct verify *walk, unsigned size_class, void *const *slots, unsigned count,
                  bool (*may_be_here)(const struct span *slab, const void *holder),
                  const void *holder) {
    for (unsigned i = 0; i < count; i++) {
        const struct span *slab = verify_cached(walk, size_class, slots[i]);
        ensure(may_be_here(slab, holder));
    }
    walk->cached[size_class] += count;
}

void verify_shelved(struct verify *walk, const struct span *span) {
    ensure(classmap_span(span->base) == span);
    meet(walk, span->base);
    walk->shelved++;
}

void verify_magazine(struct verify *walk, const struct magazine *magazine) {
    ensure(magazine != NULL && (uintptr_t)magazine % MAGAZINE_BYTES == 0);
    meet(walk, (uintptr_t)magazine);
    walk->magazines++;
}

size_t verify_magazine_count(const struct verify *walk) {
    return walk->magazines;
}

/* ---------------------------------------------------------------- the walk */

static void count_shelved(struct span *span, void *context) {
    *(size_t *)context += span->kind == SPAN_SHELVED;
}

/* The pool comes last: it knows how many magazines there are. */
static void verify_caches(struct verify *walk) {
    size_t explicit_heaps = thread_verify(walk);
    size_t explicit_caches = tcaches_verify(walk);
    ensure(explicit_heaps == explicit_caches || lock_is_in_child());
    depot_verify(walk);
    pool_verify(walk);
    emergency_verify(walk);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        ensure(walk->cached[c] == thread_count_cached(c) + depot_count(c));
    }
    size_t shelved = 0;
    pages_walk(count_shelved, &shelved);
    ensure(walk->shelved == shelved || lock_is_in_child());
}

void heap_verify(void) {
    struct verify walk = {0};
    bool is_quiet = own_close(LONGEST_WAIT_MS);
    pages_verify();
    arena_verify();
    if (is_quiet) {
        verify_caches(&walk);
        own_open();
    }
    drop_table(&walk);
}
