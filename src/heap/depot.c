/* SPDX-License-Identifier: MIT
 *
 * depot.c - a stack of magazines per arena and class, and a budget per arena.
 *
 *      depot    waiting   [o o o . .] -> [o o o o o] -> [o o o o o]
 *               empty     [. . . . .] -> [. . . . .]       left by threads that took a full one
 *
 * The last object in is the first out: it is the warmest.  Objects are copied into the top magazine,
 * so all magazines but that one are full.
 *
 * Going home.  What a thread leaves may belong to several arenas.  Those of its own go first; the
 * others follow arena by arena.  An arena's depots are made when the first object comes.
 *
 * Waiting objects keep their slabs from running empty.  So they are drained before the heap is
 * allowed to grow (cache.c): memory that is free anywhere is used first.  And they are drained when
 * the heap shrinks.  The last free may be the last call, so this must be seen on the way down:
 *
 *      surplus    what came and was not asked for since
 *      shrinking  from the moment an arena's surplus is above four budgets: depots are drained, what comes
 *                 goes through to the slabs, and bins and caches keep little as well (bin.h)
 *      ended      when a quarter of the budget was asked for
 *
 * A program that frees and allocates tens of MiB again and again does not shrink.  So after each
 * end twice as much must come as the last time, during the next dirty_decay_ms.
 *
 * Threads     One lock per depot.  The budget is a sum that may be exceeded by
 *             one batch per thread at a time.
 * Invariant   count == objects in the waiting and leaving magazines of a depot; none is empty.
 */
#include "heap/depot.h"

#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/dirty.h"
#include "heap/pool.h"
#include "heap/fast.h"
#include "heap/slab.h"
#include "heap/verify.h"
#include "opt/opt.h"

enum {
    HEAP_SHARE = 16,
    SHARE_MOST = 8 << 20,
    BUDGET_LEAST = 2 << 20, /* of one arena */
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

/* The depots of one arena. */
struct depots {
    struct depot of[CLASS_COUNT];
    _Atomic size_t bytes; /* of all objects in them */
    /* Bytes that came and were not asked for since, and bytes asked for while closed.  They guide
     * and need not be exact. */
    _Atomic size_t surplus;
    _Atomic size_t demand;
    /* How much more may come before the heap counts as shrinking, and since when. */
    _Atomic size_t patience;
    _Atomic uint64_t patience_ms;
};

static struct {
    _Atomic(struct depots *) depots[MOST_ARENAS];
    _Atomic unsigned count; /* of those that were made */
} g;

/* The depots of an arena, or NULL while there are none. */
static inline struct depots *get_depots(unsigned arena) {
    assert(arena < MOST_ARENAS);
    return atomic_load_explicit(&g.depots[arena], memory_order_acquire);
}

/* Of two threads that make them at once, one leaves a few KiB behind for good. */
static COLD struct depots *make_depots(unsigned arena) {
    struct depots *made = meta_alloc(sizeof(struct depots), CACHE_LINE);
    if (made == NULL) {
        return NULL;
    }
    for (unsigned c = 0; c < CLASS_COUNT; c++) {
        made->of[c].lock = (struct lock)LOCK_OF_RANK(RANK_DEPOT);
    }
    struct depots *there = NULL;
    if (!atomic_compare_exchange_strong(&g.depots[arena], &there, made)) {
        return there;
    }
    atomic_fetch_add_explicit(&g.count, 1, memory_order_relaxed);
    return made;
}

static inline struct depots *need_depots(unsigned arena) {
    struct depots *depots = get_depots(arena);
    return LIKELY(depots != NULL) ? depots : make_depots(arena);
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

static size_t bytes_of(unsigned size_class, size_t objects) {
    assert(size_class >= 1 && size_class < CLASS_COUNT);
    return objects * max_size(size_classes[size_class].size, OBJECT_LEAST);
}

/* A stale look is harmless. */
static inline size_t count_in(const struct depot *depot) {
    return atomic_load_explicit(&depot->count, memory_order_relaxed);
}

/* Accounts for `change` more objects, which may be negative. */
static inline void account(struct depots *depots, unsigned size_class, size_t change) {
    struct depot *depot = &depots->of[size_class];
    size_t count = atomic_load_explicit(&depot->count, memory_order_relaxed);
    assert(lock_is_mine(&depot->lock) && count + change <= SIZE_MAX / 2);
    atomic_store_explicit(&depot->count, count + change, memory_order_relaxed);
    size_t bytes = bytes_of(size_class, change);
    if (lock_is_single_threaded()) {
        bytes += atomic_load_explicit(&depots->bytes, memory_order_relaxed);
        atomic_store_explicit(&depots->bytes, bytes, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&depots->bytes, bytes, memory_order_relaxed);
    }
}

/* The holder vanished in a fork.  The chain of waiting magazines is whole at every step
 * (set_waiting) and stays; those that were leaving may hold the same objects, and are dropped. */
static COLD void repair(struct depots *depots, struct depot *depot) {
    assert(lock_is_mine(&depot->lock));
    size_t count = 0;
    while (depot->waiting != NULL && waiting_count(depot->waiting) == 0) {
        depot->waiting = waiting_next(depot->waiting); /* It had just been emptied. */
    }
    for (struct magazine *m = depot->waiting; m != NULL; m = waiting_next(m)) {
        count += waiting_count(m);
    }
    depot->leaving = depot->empty = NULL;
    depot->fewest = 0;
    atomic_store_explicit(&depot->count, count, memory_order_relaxed);
    size_t bytes = 0; /* The sum may have missed what the holder was doing. */
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        bytes += bytes_of(c, count_in(&depots->of[c]));
    }
    atomic_store_explicit(&depots->bytes, bytes, memory_order_relaxed);
}

static inline struct depot *enter(struct depots *depots, unsigned size_class) {
    struct depot *depot = &depots->of[size_class];
    if (UNLIKELY(lock_acquire(&depot->lock) == LOCK_ABANDONED)) {
        repair(depots, depot);
    }
    return depot;
}

/* What all arenas may keep is divided between them; where they are many, each may have a little. */
static size_t budget(void) {
    size_t all = max_size(opt.depot_bytes, min_size(pages_totals().used / HEAP_SHARE, SHARE_MOST));
    return max_size(all / max_size(g.count, 1), min_size(opt.depot_bytes, BUDGET_LEAST));
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

static bool patience_is_over(const struct depots *depots) {
    return os_now_ms() - depots->patience_ms >= (uint64_t)dirty_decay_ms[CHUNK_DIRTY];
}

/* Looks at the clock only once in a while. */
static bool is_patient(struct depots *depots, size_t surplus, size_t bytes) {
    if (surplus % PATIENCE_STEP < bytes && patience_is_over(depots)) {
        sum_set(&depots->patience, 0);
    }
    return surplus <= budget() * MUCH + sum_get(&depots->patience);
}

static __attribute__((noinline)) bool accepts_much(struct depots *depots, size_t held,
                                                   size_t surplus, size_t bytes) {
    size_t most = budget();
    if (LIKELY(surplus <= most * MUCH || is_patient(depots, surplus, bytes))) {
        return held <= most;
    }
    if (!bin_heap_is_shrinking()) {
        close_depots();
    }
    return false;
}

/* May `bytes` more wait? */
static inline bool accepts(struct depots *depots, size_t bytes) {
    size_t surplus = sum_get(&depots->surplus) + bytes;
    size_t held = sum_get(&depots->bytes) + bytes;
    sum_set(&depots->surplus, surplus);
    size_t little = min_size(opt.depot_bytes, BUDGET_LEAST);
    return LIKELY(surplus <= little && held <= little) ||
           accepts_much(depots, held, surplus, bytes);
}

/* The heap did not shrink after all, or no longer does: next time twice as much must come. */
static COLD void open_depots(struct depots *depots, size_t most) {
    size_t patience = patience_is_over(depots) ? 0 : sum_get(&depots->patience);
    sum_set(&depots->patience, most * MUCH + 2 * patience);
    depots->patience_ms = os_now_ms();
    sum_set(&depots->surplus, 0);
    sum_set(&depots->demand, 0);
    bin_set_shrinking(false);
}

/* Objects are asked for, from a depot or from the slabs. */
static inline void note_demand(struct depots *depots, size_t bytes) {
    size_t surplus = sum_get(&depots->surplus);
    if (LIKELY(!bin_heap_is_shrinking())) {
        sum_set(&depots->surplus, surplus - min_size(bytes, surplus));
        return;
    }
    size_t demand = sum_get(&depots->demand) + bytes;
    sum_set(&depots->demand, demand);
    size_t most = budget();
    if (demand > most / ENOUGH) {
        open_depots(depots, most);
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

/* Copies as many objects as fit into the top magazine, or into a new one if that is full; returns
 * how many: 0 without memory. */
static unsigned put_some(struct depot *depot, void **slots, unsigned count) {
    assert(lock_is_mine(&depot->lock) && count >= 1);
    struct magazine *top = depot->waiting;
    unsigned there = top != NULL ? waiting_count(top) : MAGAZINE_MOST;
    if (there < MAGAZINE_MOST) {
        unsigned fit = (unsigned)min_size(count, MAGAZINE_MOST - there);
        memcpy(top->slots + there, slots, fit * sizeof(void *));
        set_next(top, waiting_next(top), there + fit);
        return fit;
    }
    struct magazine *empty = depot->empty != NULL ? pop(&depot->empty) : pool_take();
    if (UNLIKELY(empty == NULL)) {
        return 0;
    }
    unsigned fit = (unsigned)min_size(count, MAGAZINE_MOST);
    memcpy(empty->slots, slots, fit * sizeof(void *));
    set_next(empty, top, fit);
    set_waiting(depot, empty);
    return fit;
}

/* Objects of manual arenas have been sorted out; in window mode all wait in the first depot. */
static inline unsigned home_of(const void *object) {
    return classmap_arena((uintptr_t)object);
}

/* The objects are all of one arena, whose depots are NULL without memory. */
static void put_home(struct depots *depots, unsigned c, void **slots, unsigned count) {
    unsigned done = 0;
    if (LIKELY(depots != NULL) && accepts(depots, bytes_of(c, count))) {
        struct depot *depot = enter(depots, c);
        for (unsigned some = 1; some > 0 && done < count; done += some) {
            some = put_some(depot, slots + done, count - done);
        }
        account(depots, c, done);
        lock_release(&depot->lock);
    }
    bin_drain(c, slots + done, count - done);
}

/* Moves the objects of one arena to the front, in their order, and the others to `rest`; returns
 * the number of the first. */
static unsigned sort_home(unsigned arena, void **slots, unsigned count, void **rest) {
    unsigned own = 0, others = 0;
    while (own < count && LIKELY(home_of(slots[own]) == arena)) {
        own++;
    }
    for (unsigned i = own; i < count; i++) {
        void *object = slots[i];
        if (home_of(object) == arena) {
            slots[own++] = object;
        } else {
            rest[others++] = object;
        }
    }
    assert(own + others == count);
    return own;
}

void depot_put(unsigned arena, unsigned c, void **slots, unsigned count) {
    assert(count <= MAGAZINE_MOST);
    if (UNLIKELY(arena_has_manual)) {
        /* Depots are shared: what a reset may free must not reach threads of other arenas. */
        count = bin_drain_manual(c, slots, count);
    }
    while (count > 0) {
        void *rest[MAGAZINE_MOST];
        unsigned own = sort_home(arena, slots, count, rest);
        if (own > 0) {
            put_home(need_depots(arena), c, slots, own);
        }
        count -= own;
        if (LIKELY(count == 0)) {
            break;
        }
        memcpy(slots, rest, count * sizeof(void *));
        arena = home_of(slots[0]);
    }
}

/* Copies the last objects out of the top magazine; returns how many. */
static unsigned take_some(struct depot *depot, void **slots, unsigned most) {
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
    unsigned n = there < most ? there : most;
    assert(there >= 1);
    /* Counted down first, so that a fork in between loses objects and duplicates none. */
    set_next(top, waiting_next(top), there - n);
    memcpy(slots, top->slots + there - n, n * sizeof(void *));
    if (there == n) {
        set_waiting(depot, waiting_next(top));
        push(&depot->empty, top);
    }
    return n;
}

unsigned depot_take(unsigned arena, unsigned c, void **slots, unsigned most) {
    assert(most <= MAGAZINE_MOST);
    struct depots *depots = get_depots(arena);
    if (UNLIKELY(depots == NULL)) {
        return 0;
    }
    note_demand(depots, bytes_of(c, most));
    if (count_in(&depots->of[c]) == 0) {
        return 0; /* A stale look is harmless: the caller then refills from the bin. */
    }
    struct depot *depot = enter(depots, c);
    unsigned got = take_some(depot, slots, most);
    if (got < most && got > 0) {
        got += take_some(depot, slots + got, most - got);
    }
    account(depots, c, -(size_t)got);
    assert(got <= most);
    depot->fewest = min_size(depot->fewest, count_in(depot));
    lock_release(&depot->lock);
    return got;
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
static void drain(struct depots *depots, unsigned c, bool all) {
    struct depot *depot = enter(depots, c);
    if (all || depot->leaving == NULL) {
        let_leave(depot, all ? 0 : count_in(depot) - depot->fewest);
    }
    struct magazine *empty;
    while ((empty = pop(&depot->empty)) != NULL) {
        pool_put(empty);
    }
    for (struct magazine *m; (m = depot->leaving) != NULL; enter(depots, c)) {
        unsigned count = waiting_count(m);
        depot->leaving = waiting_next(m);
        account(depots, c, -(size_t)count);
        lock_release(&depot->lock);
        bin_drain(c, m->slots, count);
        pool_put(m);
    }
    lock_release(&depot->lock);
}

/* Drains the depots of one arena. */
static void drain_arena(struct depots *depots, bool all) {
    for (unsigned c = 1; c < CLASS_COUNT && sum_get(&depots->bytes) > 0; c++) {
        if (count_in(&depots->of[c]) > 0) {
            drain(depots, c, all);
        }
    }
}

void depot_drain_all(void) {
    for (unsigned a = 0; a < arena_count(); a++) {
        struct depots *depots = get_depots(a);
        if (depots != NULL) {
            drain_arena(depots, true);
        }
    }
}

bool depot_tick(void) {
    bool some_wait = false;
    for (unsigned a = 0; a < arena_count(); a++) {
        struct depots *depots = get_depots(a);
        if (depots != NULL) {
            drain_arena(depots, false);
            some_wait |= sum_get(&depots->bytes) > 0;
        }
    }
    return some_wait;
}

void depot_drain_surplus(unsigned arena) {
    struct depots *depots = arena < arena_count() ? get_depots(arena) : NULL;
    if (depots != NULL && sum_get(&depots->bytes) > max_size(budget() / MUCH, SMALL_SURPLUS)) {
        drain_arena(depots, true);
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

static bool depots_hold(struct depots *depots, unsigned c, const void *object) {
    struct depot *depot = enter(depots, c);
    bool found = chain_holds(depot->waiting, object) || chain_holds(depot->leaving, object);
    lock_release(&depot->lock);
    return found;
}

/* A granule that is not published any more tells no arena, so all are asked. */
bool depot_holds(unsigned size_class, const void *object) {
    bool found = false;
    for (unsigned a = 0; a < arena_count() && !found; a++) {
        struct depots *depots = get_depots(a);
        found = depots != NULL && count_in(&depots->of[size_class]) > 0 &&
                depots_hold(depots, size_class, object);
    }
    return found;
}

size_t depot_count(unsigned size_class) {
    size_t count = 0;
    for (unsigned a = 0; a < arena_count(); a++) {
        const struct depots *depots = get_depots(a);
        count += depots != NULL ? count_in(&depots->of[size_class]) : 0;
    }
    return count;
}

/* ---------------------------------------------------------------- verifying */

/* In window mode nobody knows where an object belongs. */
static bool may_wait(const struct span *slab, const void *arena) {
    return slab_is_shared(slab) &&
           (slab->arena == *(const unsigned *)arena || classmap_is_windowed());
}

/* The objects in a chain of magazines that wait. */
static size_t verify_chain(const struct magazine *chain, unsigned arena, unsigned c,
                           struct verify *walk) {
    size_t count = 0;
    for (; chain != NULL; chain = waiting_next(chain)) {
        unsigned here = waiting_count(chain);
        ensure(here >= 1 && here <= MAGAZINE_MOST);
        verify_magazine(walk, chain);
        verify_slots(walk, c, chain->slots, here, may_wait, &arena);
        count += here;
    }
    return count;
}

static void verify_empty(const struct magazine *list, struct verify *walk) {
    for (; list != NULL; list = list->next) {
        verify_magazine(walk, list);
    }
}

static void verify_arena(struct depots *depots, unsigned arena, struct verify *walk) {
    size_t bytes = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        struct depot *depot = enter(depots, c);
        size_t count = verify_chain(depot->waiting, arena, c, walk);
        count += verify_chain(depot->leaving, arena, c, walk);
        ensure(count == count_in(depot) && depot->fewest <= count);
        verify_empty(depot->empty, walk);
        bytes += bytes_of(c, count);
        lock_release(&depot->lock);
    }
    ensure(bytes == sum_get(&depots->bytes) || lock_is_in_child());
}

void depot_verify(struct verify *walk) {
    unsigned made = 0;
    for (unsigned a = 0; a < arena_count(); a++) {
        if (get_depots(a) != NULL) {
            verify_arena(get_depots(a), a, walk);
            made++;
        }
    }
    ensure(made == g.count || lock_is_in_child());
}
