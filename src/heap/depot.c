/* SPDX-License-Identifier: MIT
 *
 * depot.c - a stack of magazines per class, a pool of empty ones, and one byte budget.
 *
 *      depot    waiting   [o o o . .] -> [o o o o o] -> [o o o o o]
 *               empty     [. . . . .] -> [. . . . .]       left by threads that took a full one
 *      pool     empty     [. . . . .] -> ...               for all classes
 *
 * The last magazine in is the first out: its objects are the warmest.  Small batches are copied
 * into the top magazine, so that magazines are well filled.
 *
 * Waiting objects keep their slabs from running empty.  So they are drained before the heap is
 * allowed to grow (cache.c): memory that is free anywhere is used first.  And they are drained when
 * the heap shrinks.  The last free may be the last call, so this must be seen on the way down:
 *
 *      surplus    what came and was not asked for since
 *      shrinking  from the moment the surplus is above four budgets: depots are drained, what comes
 *                 goes through to the slabs, and bins and caches keep little as well (bin.h)
 *      ended      when a quarter of the budget was asked for
 *
 * A program that frees and allocates tens of MiB again and again does not shrink.  So after each
 * end twice as much must come as the last time, during the next dirty_decay_ms.
 *
 * Threads     One lock per class, one for the pool.  The budget is a sum that may be exceeded by
 *             one batch per thread at a time.
 * Invariant   count == objects in the waiting and leaving magazines of a depot; none is empty.
 *             Every magazine ever made is in one thread's class, in one depot or in the pool.
 */
#include "heap/depot.h"

#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "heap/arena.h"
#include "heap/dirty.h"
#include "heap/slab.h"
#include "heap/verify.h"
#include "opt/opt.h"

enum {
    HEAP_SHARE = 16,
    SHARE_MOST = 8 << 20,
    SMALL_SURPLUS = 256 << 10,
    OBJECT_LEAST = 64, /* bytes an object counts as at least, since magazines take memory too */
    MUCH = 4,          /* budgets that came without being asked for: the heap shrinks by much */
    ENOUGH = 4,        /* where a quarter of the budget is asked for, the heap does not shrink */
    PATIENCE_STEP = 1 << 20,
};

struct depot {
    struct lock lock;
    struct magazine *waiting; /* linked through `next`, which also counts: see pack() */
    struct magazine *leaving; /* likewise; on their way to the slabs */
    struct magazine *empty;
    _Atomic size_t count; /* of both lists; written under the lock, read without */
    size_t fewest;        /* objects that waited all the time since the last tick */
} __attribute__((aligned(CACHE_LINE)));

static struct {
    struct depot depots[CLASS_COUNT];
    _Atomic size_t bytes; /* of all objects in all depots */
    /* Bytes that came and were not asked for since, and bytes asked for while closed.  They guide
     * and need not be exact. */
    _Atomic size_t surplus;
    _Atomic size_t demand;
    /* How much more may come before the heap counts as shrinking, and since when. */
    _Atomic size_t patience;
    _Atomic uint64_t patience_ms;
    struct lock pool_lock;
    struct magazine *pool; /* guarded by pool_lock */
    size_t made;           /* magazines; guarded by pool_lock */
} g;

void depot_init(void) {
    for (unsigned c = 0; c < CLASS_COUNT; c++) {
        g.depots[c].lock = (struct lock)LOCK_OF_RANK(RANK_DEPOT);
    }
    g.pool_lock = (struct lock)LOCK_OF_RANK(RANK_POOL);
}

/* The address of a magazine has ten zero bits; in `next` they count the objects of the magazine
 * itself. */
static void *pack(struct magazine *next, unsigned count) {
    assert((uintptr_t)next % MAGAZINE_BYTES == 0 && count <= MAGAZINE_MOST);
    return (void *)((uintptr_t)next | count);
}

static unsigned waiting_count(const struct magazine *magazine) {
    return (unsigned)(uintptr_t)magazine->next & MAGAZINE_MASK;
}

static struct magazine *waiting_next(const struct magazine *magazine) {
    return (struct magazine *)align_down((uintptr_t)magazine->next, MAGAZINE_BYTES);
}

static inline struct magazine *pop(struct magazine **list) {
    struct magazine *first = *list;
    if (first != NULL) {
        *list = first->next;
    }
    return first;
}

static inline void push(struct magazine **list, struct magazine *magazine) {
    magazine->next = *list;
    *list = magazine;
}

static void enter_pool(void) {
    if (UNLIKELY(lock_acquire(&g.pool_lock) == LOCK_ABANDONED)) {
        g.pool = NULL;
    }
}

struct magazine *depot_new_magazine(void) {
    enter_pool();
    struct magazine *magazine = pop(&g.pool);
    if (UNLIKELY(magazine == NULL)) {
        magazine = meta_alloc(sizeof(struct magazine), MAGAZINE_BYTES);
        g.made += magazine != NULL;
    }
    lock_release(&g.pool_lock);
    return magazine;
}

void depot_return_magazine(struct magazine *empty) {
    assert(empty != NULL && (uintptr_t)empty % MAGAZINE_BYTES == 0);
    enter_pool();
    push(&g.pool, empty);
    lock_release(&g.pool_lock);
}

static size_t bytes_of(unsigned size_class, size_t objects) {
    assert(size_class >= 1 && size_class < CLASS_COUNT);
    return objects * max_size(size_classes[size_class].size, OBJECT_LEAST);
}

/* Accounts for `change` more objects, which may be negative. */
static inline void account(struct depot *depot, unsigned size_class, size_t change) {
    size_t count = atomic_load_explicit(&depot->count, memory_order_relaxed);
    assert(lock_is_mine(&depot->lock) && count + change <= SIZE_MAX / 2);
    atomic_store_explicit(&depot->count, count + change, memory_order_relaxed);
    size_t bytes = bytes_of(size_class, change);
    if (lock_is_single_threaded()) {
        bytes += atomic_load_explicit(&g.bytes, memory_order_relaxed);
        atomic_store_explicit(&g.bytes, bytes, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&g.bytes, bytes, memory_order_relaxed);
    }
}

/* The holder vanished in a fork.  The chain of waiting magazines is whole at every step
 * (set_waiting) and stays; those that were leaving may hold the same objects, and are dropped. */
static COLD void repair(struct depot *depot) {
    assert(lock_is_mine(&depot->lock));
    size_t count = 0;
    for (struct magazine *m = depot->waiting; m != NULL; m = waiting_next(m)) {
        count += waiting_count(m);
    }
    depot->leaving = depot->empty = NULL;
    depot->fewest = 0;
    atomic_store_explicit(&depot->count, count, memory_order_relaxed);
    size_t bytes = 0; /* The sum may have missed what the holder was doing. */
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        bytes += bytes_of(c, depot_count(c));
    }
    atomic_store_explicit(&g.bytes, bytes, memory_order_relaxed);
}

static inline struct depot *enter(unsigned size_class) {
    struct depot *depot = &g.depots[size_class];
    if (UNLIKELY(lock_acquire(&depot->lock) == LOCK_ABANDONED)) {
        repair(depot);
    }
    return depot;
}

static size_t budget(void) {
    return max_size(opt.depot_bytes, min_size(pages_totals().used / HEAP_SHARE, SHARE_MOST));
}

static size_t sum_get(const _Atomic size_t *sum) {
    return atomic_load_explicit(sum, memory_order_relaxed);
}

static void sum_set(_Atomic size_t *sum, size_t value) {
    atomic_store_explicit(sum, value, memory_order_relaxed);
}

/* Much came and was not asked for: the program is giving memory up. */
static COLD void close_depots(void) {
    bin_set_shrinking(true);
    depot_drain_all();
}

static bool patience_is_over(void) {
    return os_now_ms() - g.patience_ms >= (uint64_t)dirty_decay_ms[CHUNK_DIRTY];
}

/* Looks at the clock only once in a while. */
static bool is_patient(size_t surplus, size_t bytes) {
    if (surplus % PATIENCE_STEP < bytes && patience_is_over()) {
        sum_set(&g.patience, 0);
    }
    return surplus <= budget() * MUCH + sum_get(&g.patience);
}

static __attribute__((noinline)) bool accepts_much(size_t held, size_t surplus, size_t bytes) {
    size_t most = budget();
    if (LIKELY(surplus <= most * MUCH || is_patient(surplus, bytes))) {
        return held <= most;
    }
    if (!bin_heap_is_shrinking()) {
        close_depots();
    }
    return false;
}

/* May `bytes` more wait? */
static inline bool accepts(size_t bytes) {
    size_t surplus = sum_get(&g.surplus) + bytes;
    size_t held = sum_get(&g.bytes) + bytes;
    sum_set(&g.surplus, surplus);
    return LIKELY(surplus <= opt.depot_bytes && held <= opt.depot_bytes) ||
           accepts_much(held, surplus, bytes);
}

/* The heap did not shrink after all, or no longer does: next time twice as much must come. */
static COLD void open_depots(size_t most) {
    size_t patience = patience_is_over() ? 0 : sum_get(&g.patience);
    sum_set(&g.patience, most * MUCH + 2 * patience);
    g.patience_ms = os_now_ms();
    sum_set(&g.surplus, 0);
    sum_set(&g.demand, 0);
    bin_set_shrinking(false);
}

/* Objects are asked for, from a depot or from the slabs. */
static inline void note_demand(size_t bytes) {
    size_t surplus = sum_get(&g.surplus);
    if (LIKELY(!bin_heap_is_shrinking())) {
        sum_set(&g.surplus, surplus - min_size(bytes, surplus));
        return;
    }
    size_t demand = sum_get(&g.demand) + bytes;
    sum_set(&g.demand, demand);
    size_t most = budget();
    if (demand > most / ENOUGH) {
        open_depots(most);
    }
}

/* Release, for the child of a fork: what the chain leads to was stored before. */
static inline void set_waiting(struct depot *depot, struct magazine *first) {
    assert(lock_is_mine(&depot->lock));
    __atomic_store_n(&depot->waiting, first, __ATOMIC_RELEASE);
}

static inline void set_next(struct magazine *magazine, struct magazine *next, unsigned count) {
    __atomic_store_n(&magazine->next, (struct magazine *)pack(next, count), __ATOMIC_RELEASE);
}

/* Copies a small batch into the top magazine; false when it does not fit. */
static bool top_up(struct depot *depot, const struct magazine *from, unsigned count) {
    assert(lock_is_mine(&depot->lock) && count >= 1);
    struct magazine *top = depot->waiting;
    if (top == NULL || waiting_count(top) + count > MAGAZINE_MOST) {
        return false;
    }
    memcpy(top->slots + waiting_count(top), from->slots, count * sizeof(void *));
    set_next(top, waiting_next(top), waiting_count(top) + count);
    return true;
}

struct magazine *depot_put(unsigned size_class, struct magazine *magazine, unsigned count) {
    assert(magazine != NULL && count <= MAGAZINE_MOST);
    if (UNLIKELY(arena_has_manual) && count > 0) {
        /* Depots are shared: what a reset may free must not reach threads of other arenas. */
        count = bin_drain_manual(size_class, magazine->slots, count);
    }
    if (count == 0) {
        return magazine;
    }
    if (!accepts(bytes_of(size_class, count))) {
        bin_drain(size_class, magazine->slots, count);
        return magazine;
    }
    struct depot *depot = enter(size_class);
    struct magazine *empty = magazine;
    if (!top_up(depot, magazine, count)) {
        empty = depot->empty != NULL ? pop(&depot->empty) : depot_new_magazine();
        if (UNLIKELY(empty == NULL)) {
            lock_release(&depot->lock);
            bin_drain(size_class, magazine->slots, count);
            return magazine;
        }
        set_next(magazine, depot->waiting, count);
        set_waiting(depot, magazine);
    }
    account(depot, size_class, count);
    lock_release(&depot->lock);
    return empty;
}

/* Exchanges the top magazine for an empty one, or copies the last objects out of it. */
static unsigned take_from(struct depot *depot, struct magazine **magazine, unsigned count,
                          unsigned most) {
    assert(lock_is_mine(&depot->lock));
    if (depot->waiting == NULL) { /* Magazines that have not left yet are as good. */
        depot->waiting = depot->leaving;
        depot->leaving = NULL;
    }
    struct magazine *top = depot->waiting;
    if (top == NULL) {
        return 0;
    }
    unsigned there = waiting_count(top);
    assert(there >= 1);
    if (count == 0 && there <= most) {
        set_waiting(depot, waiting_next(top));
        push(&depot->empty, *magazine);
        *magazine = top;
        return there;
    }
    unsigned n = there < most ? there : most;
    /* Counted down first, so that a fork in between loses objects and duplicates none. */
    set_next(top, waiting_next(top), there - n);
    memcpy((*magazine)->slots + count, top->slots + there - n, n * sizeof(void *));
    if (there == n) {
        set_waiting(depot, waiting_next(top));
        push(&depot->empty, top);
    }
    return n;
}

unsigned depot_take(unsigned size_class, struct magazine **magazine, unsigned count,
                    unsigned most) {
    assert(*magazine != NULL && count + most <= MAGAZINE_MOST);
    note_demand(bytes_of(size_class, most));
    if (depot_count(size_class) == 0) {
        return 0; /* A stale look is harmless: the caller then refills from the bin. */
    }
    struct depot *depot = enter(size_class);
    unsigned n = take_from(depot, magazine, count, most);
    account(depot, size_class, -(size_t)n);
    assert(n <= most);
    depot->fewest = min_size(depot->fewest, depot_count(size_class));
    lock_release(&depot->lock);
    return n;
}

/* Lets all magazines leave but the youngest with at least `stay` objects. */
static void let_leave(struct depot *depot, size_t stay) {
    assert(lock_is_mine(&depot->lock));
    struct magazine *last = NULL; /* of those that stay */
    size_t count = 0;
    for (struct magazine *m = depot->waiting; m != NULL && count < stay; m = waiting_next(m)) {
        count += waiting_count(m);
        last = m;
    }
    struct magazine *first = last != NULL ? waiting_next(last) : depot->waiting;
    struct magazine *end = first;
    while (end != NULL && waiting_next(end) != NULL) {
        end = waiting_next(end);
    }
    if (end != NULL) {
        end->next = pack(depot->leaving, waiting_count(end));
        depot->leaving = first;
    }
    if (last != NULL) {
        last->next = pack(NULL, waiting_count(last));
    } else {
        depot->waiting = NULL;
    }
    depot->fewest = count;
    assert(count <= atomic_load_explicit(&depot->count, memory_order_relaxed));
}

/* Drains a depot, or only what nobody has needed since the last tick: the oldest magazines.  It
 * drains one at a time, with the lock released: a fork then loses no more than that one. */
static void drain(unsigned size_class, bool all) {
    struct depot *depot = enter(size_class);
    if (all || depot->leaving == NULL) {
        let_leave(depot, all ? 0 : depot_count(size_class) - depot->fewest);
    }
    struct magazine *empty;
    while ((empty = pop(&depot->empty)) != NULL) {
        depot_return_magazine(empty);
    }
    for (struct magazine *m; (m = depot->leaving) != NULL; enter(size_class)) {
        unsigned count = waiting_count(m);
        depot->leaving = waiting_next(m);
        account(depot, size_class, -(size_t)count);
        lock_release(&depot->lock);
        bin_drain(size_class, m->slots, count);
        depot_return_magazine(m);
    }
    lock_release(&depot->lock);
}

void depot_drain_all(void) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        if (depot_count(c) > 0) {
            drain(c, true);
        }
    }
}

bool depot_tick(void) {
    for (unsigned c = 1; c < CLASS_COUNT && sum_get(&g.bytes) > 0; c++) {
        if (depot_count(c) > 0) {
            drain(c, false);
        }
    }
    return sum_get(&g.bytes) > 0;
}

void depot_drain_surplus(void) {
    if (sum_get(&g.bytes) > max_size(pages_totals().used / HEAP_SHARE, SMALL_SURPLUS)) {
        depot_drain_all();
    }
}

static bool chain_holds(const struct magazine *chain, const void *object) {
    for (; chain != NULL; chain = waiting_next(chain)) {
        for (unsigned i = 0; i < waiting_count(chain); i++) {
            if (chain->slots[i] == object) {
                return true;
            }
        }
    }
    return false;
}

bool depot_holds(unsigned size_class, const void *object) {
    struct depot *depot = enter(size_class);
    bool found = chain_holds(depot->waiting, object) || chain_holds(depot->leaving, object);
    lock_release(&depot->lock);
    return found;
}

size_t depot_count(unsigned size_class) {
    return atomic_load_explicit(&g.depots[size_class].count, memory_order_relaxed);
}

/* ---------------------------------------------------------------- verifying */

static bool may_wait(const struct span *slab, const void *depot) {
    (void)depot;
    return slab_is_shared(slab);
}

/* The objects in a chain of magazines that wait. */
static size_t verify_chain(const struct magazine *chain, unsigned c, struct verify *walk) {
    size_t count = 0;
    for (; chain != NULL; chain = waiting_next(chain)) {
        unsigned here = waiting_count(chain);
        ensure(here >= 1 && here <= MAGAZINE_MOST);
        verify_magazine(walk, chain);
        verify_slots(walk, c, chain->slots, here, may_wait, NULL);
        count += here;
    }
    return count;
}

static void verify_empty(const struct magazine *list, struct verify *walk) {
    for (; list != NULL; list = list->next) {
        verify_magazine(walk, list);
    }
}

void depot_verify(struct verify *walk) {
    size_t bytes = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        struct depot *depot = enter(c);
        size_t count = verify_chain(depot->waiting, c, walk);
        count += verify_chain(depot->leaving, c, walk);
        ensure(count == depot_count(c) && depot->fewest <= count);
        verify_empty(depot->empty, walk);
        bytes += bytes_of(c, count);
        lock_release(&depot->lock);
    }
    ensure(bytes == sum_get(&g.bytes) || lock_is_in_child());
    enter_pool();
    verify_empty(g.pool, walk);
    size_t met = verify_magazine_count(walk);
    ensure(met == g.made || (met < g.made && lock_is_in_child()));
    lock_release(&g.pool_lock);
}
