/* SPDX-License-Identifier: MIT
 *
 * cache.c - what happens when a magazine runs empty or full.
 *
 *      malloc  takes from A;  A empty:  the few freed last go from F to A; if F holds less than
 *                                       that, more come from depot or bin
 *      free    puts into F;   F full:   F opens wider; where there is no room, its older half leaves
 *
 * A is short and F is deep: what was freed last is soon used again, while it is still in the
 * processor's cache, and a class goes to its depot only when its balance of calls has swung by half
 * of its room.  They are two, because the number of allocations until A runs empty is then known
 * when it is filled: nothing that is freed meanwhile changes it.  Sampling is built on that
 * (track.c): while it is on, A never gets more objects than there are requests before the one that
 * is due.
 *
 * Room.  A class may hold `room` objects in A and F together.  Between slow calls A only shrinks
 * and F only grows, so it is enough to open F for what A leaves of the room:
 *
 *      F with room for 4     [ header |  ...  |124|125|126|127 ]      starts at slot 128 - 4
 *
 * Slow start.  A class gets magazines at its eighth slow call, so threads that touch a size once
 * cost nothing.  It fetches 4 objects first, then 6, 9 and so on.  Its room starts small and
 * doubles at each slow call, up to 254 objects or 128 KiB, as long as the thread's budget lasts.
 * Then the budget grows, if all threads together keep little; else classes with much room give way
 * to those in need.  A thread may set lower limits (thread.h).
 *
 * Threads     The owner only.  A class is closed (F full, A empty) before objects are moved, and
 *             its new tops are published last, so a search by another thread never meets half a
 *             move, a signal handler finds nothing to take, and a fork finds sound tops.
 * Invariant   |A| + |F| <= room of a class, which is at least 1 while it has magazines; F is always
 *             open for one, since a free must find a slot.
 *             spare_bytes + sum of room * size == budget_bytes <= opt.thread_cache_bytes.
 * Read next   depot.c and bin.c, where objects go and come from.
 */
#include "heap/cache.h"

#include <string.h>

#include "base/attention.h"
#include "base/log.h"
#include "opt/opt.h"
#include "base/os.h"
#include "heap/arena.h"
#include "heap/depot.h"
#include "heap/dirty.h"
#include "heap/pool.h"
#include "heap/hooked.h"
#include "heap/reclaim.h"
#include "heap/stash.h"
#include "heap/slab.h"
#include "heap/track.h"
#include "heap/verify.h"

enum {
    CALLS_BEFORE_MAGAZINES = 8,
    FIRST_ROOM = 8,
    FIRST_GOAL = 4,
    NEEDS_BEFORE_MORE = 16,
    FIRST_BUDGET = 64 << 10,
    USUAL_BUDGET = 256 << 10, /* every thread may have this */
    HEAP_SHARE = 16,          /* beyond that, all together may keep this part of the heap, ... */
    BUDGET_PER_CPU = 1 << 20, /* ... or that, if it is more */
    VISITS_PER_LOOK = 16,     /* a look at the clock takes about 10 ns, a visit 100 or more */
    /* While the heap shrinks: bytes of slabs a class may keep from running empty, and the largest
     * objects it may keep at all. */
    KEPT_SLAB_BYTES = 512 << 10,
    KEPT_OBJECT_BYTES = 1 << 10,
};

/* ---------------------------------------------------------------- room and budget */

static size_t bytes_of(unsigned c, unsigned objects) {
    assert(c < CLASS_COUNT);
    return (size_t)objects * size_classes[c].size;
}

static void set_room(struct thread *thread, unsigned c, unsigned room) {
    assert(c >= 1 && room <= UINT8_MAX);
    thread->spare_bytes += bytes_of(c, thread->room[c]);
    assert(bytes_of(c, room) <= thread->spare_bytes);
    thread->spare_bytes -= bytes_of(c, room);
    thread->room[c] = (uint8_t)room;
}

/* What budgets have beyond the usual. */
static _Atomic size_t grown_bytes;

static size_t beyond_usual(size_t budget) {
    return budget > USUAL_BUDGET ? budget - USUAL_BUDGET : 0;
}

static void set_budget(struct thread *thread, size_t bytes) {
    assert(bytes + thread->spare_bytes >= thread->budget_bytes && bytes <= opt.thread_cache_bytes);
    size_t change = beyond_usual(bytes) - beyond_usual(thread->budget_bytes);
    if (change != 0) {
        atomic_fetch_add_explicit(&grown_bytes, change, memory_order_relaxed);
    }
    thread->spare_bytes += bytes - thread->budget_bytes;
    thread->budget_bytes = bytes;
}

void cache_begin_budget(struct thread *thread) {
    thread->budget_bytes = min_size(FIRST_BUDGET, opt.thread_cache_bytes);
    thread->spare_bytes = thread->budget_bytes;
}

/* A thread whose classes are all empty begins anew. */
static void shrink_budget(struct thread *thread) {
    assert(thread->spare_bytes == thread->budget_bytes);
    set_budget(thread, min_size(FIRST_BUDGET, opt.thread_cache_bytes));
}

/* Doubles the budget; false where it is as large as it may be. */
static bool grow_budget(struct thread *thread) {
    size_t wanted = min_size(thread->budget_bytes * 2, opt.thread_cache_bytes);
    size_t more = beyond_usual(wanted) - beyond_usual(thread->budget_bytes);
    size_t most =
        max_size(pages_totals().used / HEAP_SHARE, (size_t)BUDGET_PER_CPU * os_facts.cpus);
    size_t grown = atomic_load_explicit(&grown_bytes, memory_order_relaxed);
    if (wanted <= thread->budget_bytes || (more > 0 && grown + more > most)) {
        return false;
    }
    set_budget(thread, wanted);
    return true;
}

/*
 * How little the last byte of a class's room spares it.  Slow calls go with 1 / room, and a byte
 * more means 1 / size objects more, so it spares 1 / (room^2 * size) of them.  Where this is equal
 * for all classes in use, their slow calls together are the fewest.
 */
static uint64_t plenty(const struct thread *thread, unsigned c) {
    return (uint64_t)thread->room[c] * thread->room[c] * size_classes[c].size;
}

/* The class that misses a byte least; none gives the room for its last object. */
static unsigned richest_class(const struct thread *thread) {
    unsigned richest = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        if (thread->room[c] > 1 && plenty(thread, c) > plenty(thread, richest)) {
            richest = c;
        }
    }
    return richest;
}

/* The class had a slow call: double its room, as far as class and budget allow. */
static inline void grow_room(struct thread *thread, size_t c) {
    const struct size_class *sc = &size_classes[c];
    unsigned room = thread->room[c];
    unsigned most = thread->most[c];
    if (room == most || thread->spare_bytes < sc->size) {
        return;
    }
    size_t affordable = room + thread->spare_bytes / sc->size;
    set_room(thread, (unsigned)c, (unsigned)min_size(min_size(room * 2u, most), affordable));
    assert(thread->room[c] >= room && thread->room[c] <= most);
}

static void empty_class(struct thread *thread, unsigned c);

/* The budget is spent: now and then the class that can best do so gives up half of its room.  Where
 * it has not much more than the one in need, room would only go to and fro. */
static COLD void steal_room(struct thread *thread, unsigned c) {
    unsigned victim = richest_class(thread);
    if (victim != 0 && plenty(thread, victim) > 4 * plenty(thread, c)) {
        assert(victim != c && thread->room[victim] >= 2);
        set_room(thread, victim, thread->room[victim] / 2u);
        empty_class(thread, victim);
        grow_room(thread, c);
    }
}

/* The class had to fetch objects or to give some away: if the budget kept it from growing, it is
 * time for a larger one, or for another class to give way. */
static inline void note_need(struct thread *thread, unsigned c) {
    if (thread->room[c] < thread->most[c] && ++thread->needs % NEEDS_BEFORE_MORE == 0 &&
        thread->spare_bytes < size_classes[c].size && !grow_budget(thread)) {
        steal_room(thread, c);
    }
}

/* The class gets so many objects from depot or bin, or leaves them there.  It may be time to publish the
 * figures of the heap: because much has moved, or by the clock, which is read now and then. */
static inline void count_visit(struct thread *thread, unsigned c, int64_t objects) {
    thread->moved += objects * (int64_t)size_classes[c].size;
    if (UNLIKELY(!attention_may_move(thread->moved))) {
        thread->moved = 0;
    }
    if (UNLIKELY(++thread->visits % VISITS_PER_LOOK == 0)) {
        attention_note_time(os_now_ms());
    }
}

/* ---------------------------------------------------------------- tops */

/* Tops are read by other threads; the owner's stores are ordered behind what they publish. */
static void publish(uintptr_t *top, uintptr_t value) {
    __atomic_store_n(top, value, __ATOMIC_RELEASE);
}

/* A class that was closed: what its magazines held, and where. */
struct closed {
    struct magazine *take;
    struct magazine *give;
    void **given; /* first filled slot of `give` */
    unsigned ntake;
    unsigned ngive;
};

static inline uintptr_t close_top(uintptr_t *top, uintptr_t mask) {
    uintptr_t seen = *(volatile uintptr_t *)top;
    while (UNLIKELY(!magazine_swap_top(top, &seen, seen & mask))) {
    }
    return seen;
}

/* Keeps the compiler from addressing the two tops separately: one register then serves both. */
static inline struct rec *record_of(struct thread *thread, size_t c) {
    struct rec *rec = &thread->hot.rec[c];
    __asm__("" : "+r"(rec));
    return rec;
}

static inline struct closed close_give(struct thread *thread, struct rec *rec, size_t c) {
    uintptr_t give = close_top(&rec->give, 0);
    struct closed closed = {.give = magazine_of_give(give)};
    assert(give != 0 && thread->cap[c] >= 1);
    closed.given = (void **)magazine_give_start(closed.give, thread->cap[c]);
    closed.ngive = (unsigned)((void **)give - closed.given);
    assert(closed.ngive <= thread->cap[c]);
    return closed;
}

static inline struct closed close_class(struct thread *thread, struct rec *rec, size_t c) {
    struct closed closed = close_give(thread, rec, c);
    uintptr_t take = close_top(&rec->take, ~(uintptr_t)MAGAZINE_MASK);
    closed.take = magazine_of_take(take);
    closed.ntake = magazine_take_count(take);
    assert(closed.take != NULL && closed.take != closed.give);
    return closed;
}

/* The top that is published next makes the new turn visible to other threads. */
static inline void count_turn(uint8_t *turn) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __asm__ volatile("incb %0" : "+m"(*turn));
#else
    __atomic_store_n(turn, (uint8_t)(*turn + 1), __ATOMIC_RELAXED);
#endif
}

/* What A gets from F at once. */
static inline unsigned handful(const struct thread *thread, size_t c) {
    unsigned half = (thread->room[c] + 1u) / 2;
    unsigned few = size_classes[c].few;
    return few < half ? few : half;
}

/* F is open for what A leaves of the room, and always for one object. */
static inline bool is_within_room(unsigned room, unsigned ntake, unsigned cap) {
    return cap >= 1 && cap <= MAGAZINE_MOST && (ntake + cap <= room || (ntake <= room && cap == 1));
}

/* How far F may open: A may get a handful from it later. */
static inline unsigned cap_beside(const struct thread *thread, size_t c, unsigned ntake) {
    unsigned room = thread->room[c];
    unsigned most = handful(thread, c) > ntake ? handful(thread, c) : ntake;
    unsigned left = room > most ? room - most : 1;
    unsigned cap = left < MAGAZINE_MOST ? left : MAGAZINE_MOST;
    assert(room > 0 && is_within_room(room, ntake, cap));
    return cap;
}

/* The new capacity of F and its objects are published together by the new top. */
static inline void open_give(struct thread *thread, struct rec *rec, size_t c, unsigned cap,
                             uintptr_t give) {
    assert(rec->give == 0);
    count_turn(&thread->turn[c]);
    __atomic_store_n(&thread->cap[c], (uint8_t)cap, __ATOMIC_RELEASE);
    publish(&rec->give, give);
}

/* Opens the class with F open for what A leaves of the room, and empty. */
static inline void open_class(struct thread *thread, struct rec *rec, size_t c,
                              struct closed closed) {
    assert(rec->give == 0 && magazine_take_is_empty(rec->take));
    assert(closed.ntake <= MAGAZINE_MOST && closed.take != closed.give);
    unsigned cap = cap_beside(thread, c, closed.ntake);
    publish(&rec->take, (uintptr_t)closed.take + closed.ntake * sizeof(void *));
    open_give(thread, rec, c, cap, magazine_give_start(closed.give, cap));
}

/* Copies two slots, word by word: they were just written one by one, and a wider load would have to
 * wait until the stores have left the store buffer.  From C, the compiler makes one wide load, or
 * spends as much on indices as on the copy. */
static inline void copy_two(void **to, void **from, size_t end) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    void *first, *second;
    __asm__ volatile("movq -8(%[from],%[end],8), %[second]\n\t"
                     "movq -16(%[from],%[end],8), %[first]\n\t"
                     "movq %[second], -8(%[to],%[end],8)\n\t"
                     "movq %[first], -16(%[to],%[end],8)"
                     : [first] "=&r"(first), [second] "=&r"(second)
                     : [from] "r"(from), [to] "r"(to), [end] "r"(end)
                     : "memory");
#else
    to[end - 1] = from[end - 1];
    to[end - 2] = from[end - 2];
#endif
}

static inline void copy_slots(void **to, void **from, size_t count) {
    assert(count <= MAGAZINE_MOST);
    for (; count >= 2; count -= 2) {
        copy_two(to, from, count);
    }
    if (count != 0) {
        to[0] = from[0];
    }
}

static inline bool fits_on_take(const struct closed *closed) {
    return closed->ntake + closed->ngive <= MAGAZINE_MOST;
}

/* Moves what F holds on top of what A holds; a whole F and an empty A just change places. */
static inline void give_to_take(struct closed *closed) {
    assert(fits_on_take(closed));
    if (closed->ntake == 0 && closed->given == closed->give->slots) {
        struct magazine *emptied = closed->take;
        closed->take = closed->give;
        closed->give = emptied;
    } else {
        copy_slots(closed->take->slots + closed->ntake, closed->given, closed->ngive);
    }
    closed->ntake += closed->ngive;
}

/* Objects leave the class, to a depot or to slabs: those of A and those of F. */
static void count_leaving(struct thread *thread, unsigned c, const struct closed *closed) {
    count_add(&thread->filled[c], -(uint64_t)closed->ntake);
    count_add(&thread->fetched[c], -(uint64_t)(closed->ntake + closed->ngive));
}

/* Gives a class its magazines once it has been asked for often enough. */
static COLD bool earn_magazines(struct thread *thread, unsigned c) {
    if (thread->most[c] == 0 || ++thread->seen[c] < CALLS_BEFORE_MAGAZINES) {
        return false;
    }
    thread->seen[c] = 0;
    size_t room = min_size(FIRST_ROOM, thread->most[c]);
    if (bytes_of(c, (unsigned)room) > thread->spare_bytes) {
        steal_room(thread, c);
        room = min_size(room, thread->spare_bytes / size_classes[c].size);
    }
    if (room == 0) {
        return false;
    }
    assert(thread->hot.rec[c].take == 0 && thread->room[c] == 0);
    struct closed empty = {.take = pool_take(), .give = pool_take()};
    if (empty.take == NULL || empty.give == NULL) {
        if (empty.take != NULL) {
            pool_put(empty.take);
        }
        return false;
    }
    set_room(thread, c, (unsigned)room);
    thread->goal[c] = FIRST_GOAL;
    open_class(thread, record_of(thread, c), c, empty);
    return true;
}

static bool has_magazines(struct thread *thread, unsigned c) {
    return LIKELY(thread->hot.rec[c].take != 0) || earn_magazines(thread, c);
}

/* ---------------------------------------------------------------- moving objects */

void cache_make_way(struct thread *thread, unsigned busy_class) {
    for (unsigned c = 1; thread != NULL && c < CLASS_COUNT; c++) {
        if (c != busy_class && thread->hot.rec[c].take != 0) {
            empty_class(thread, c);
        }
    }
    if (thread != NULL) {
        stash_empty(thread, busy_class);
        shelf_empty(thread);
    }
    depot_drain_all();
    reclaim_some();
}

/* Fetches up to `count` objects from the bin.  A cached object keeps its slab from running empty.
 * So the depots' surplus is put back into slabs before memory without a page behind it is touched,
 * and all that the depots and this thread's other classes hold before a new chunk is asked for. */
static unsigned fetch(struct thread *thread, struct bin *bin, void **slots, unsigned count) {
    assert(count >= 1 && count <= MAGAZINE_MOST);
    unsigned got = bin_refill(bin, slots, count, PAGES_USED_BEFORE);
    if (UNLIKELY(got == 0)) {
        if (!(attention_get() & ATTENTION_ORPHANS)) { /* A young child shares pages: touch few. */
            depot_drain_surplus(bin->arena & ARENA_INDEX);
        }
        got = bin_refill(bin, slots, count, PAGES_IN_CHUNKS);
    }
    if (UNLIKELY(got == 0)) {
        cache_make_way(thread, bin->size_class);
        got = bin_refill(bin, slots, count, PAGES_MAY_GROW);
    }
    assert(got <= count);
    return got;
}

void cache_count_past_alloc(unsigned arena, unsigned c) {
    count_add_shared(&arena_get(arena)->sums.requests[c], 1);
    thread_note_alloc(size_classes[c].size);
}

void cache_count_past_free(unsigned c) {
    thread_note_free(size_classes[c].size);
}

/* Does the distance to the next sample (track.c) count this object?  An object that it does not
 * count is a request too, and must not shorten it. */
enum turn { IN_TURN, OUT_OF_TURN };

/* An object has gone from an arena's slabs to the program, past the magazines of `thread`, which
 * may be NULL.  One from the thread's own arena counts as if it had come through A. */
static void count_uncached(struct thread *thread, unsigned arena, unsigned c, enum turn turn) {
    bool is_foreign = thread == tls.self && thread != NULL && thread->arena != arena;
    if (thread == NULL || is_foreign) {
        cache_count_past_alloc(arena, c);
    } else {
        count_add(&thread->filled[c], 1);
        count_add(&thread->fetched[c], 1);
        thread->fetched_bytes += size_classes[c].size;
        thread->due[c] += turn == OUT_OF_TURN;
    }
}

static void *alloc_from(struct thread *thread, unsigned arena, unsigned c, enum turn turn) {
    assert(c >= 1 && c < CLASS_COUNT && arena_get(arena) != NULL);
    void *object = NULL;
    bool calls_hooks = false;
    if (UNLIKELY(arena_uses_hooks(arena))) {
        /* The lock of an explicit cache is held, and no hook may be called inside another. */
        calls_hooks = thread == tls.self && !(tls.modes & THREAD_IN_HOOK);
        arena = calls_hooks ? arena : 0;
    }
    if (UNLIKELY(calls_hooks)) {
        object = hooked_alloc_small(arena, c);
    } else {
        fetch(thread, arena_bin(arena, c), &object, 1);
    }
    if (LIKELY(object != NULL)) {
        count_uncached(thread, arena, c, turn);
    }
    return object;
}

void *cache_alloc_from(struct thread *thread, unsigned arena, unsigned c) {
    return alloc_from(thread, arena, c, OUT_OF_TURN);
}

void *cache_alloc_uncached(struct thread *thread, unsigned c) {
    return alloc_from(thread, thread != NULL ? thread->arena : arena_choose(), c, IN_TURN);
}

/* Only the caller's own heap, if it uses this arena, has a stash of the arena's objects. */
static bool can_stash(const struct thread *thread, unsigned arena, unsigned c) {
    return thread != NULL && thread == tls.self && thread->arena == arena &&
           stash_is_wanted(thread, c);
}

void *cache_alloc_tracked(struct thread *thread, unsigned arena, unsigned c, bool in_turn) {
    assert(arena & ARENA_TRACKED && arena_bin(arena, c) != NULL);
    unsigned index = arena & ARENA_INDEX;
    void *object = NULL;
    if (UNLIKELY(arena & ARENA_HOOKED)) {
        object = hooked_alloc_small(arena, c);
    } else {
        if (can_stash(thread, index, c) && stash_count(thread, c) == 0) {
            object = stash_fill(thread, index, c);
        }
        if (object == NULL) {
            fetch(thread, arena_bin(arena, c), &object, 1);
        }
    }
    if (object != NULL) {
        count_uncached(thread, index, c, in_turn ? IN_TURN : OUT_OF_TURN);
    }
    return object;
}

static void count_tracked_free(struct thread *thread, unsigned c) {
    if (LIKELY(thread != NULL)) {
        count_add(&thread->fetched[c], -(uint64_t)1);
    } else {
        cache_count_past_free(c);
    }
}

/* The stash is full or closed, or belongs to another arena.  Once it is no longer wanted, what it
 * holds goes with the next object of the class. */
static __attribute__((noinline)) void free_past_stash(struct thread *thread, unsigned arena,
                                                      unsigned c, void *object) {
    if (can_stash(thread, arena, c)) {
        stash_relieve(thread, c);
        if (stash_push(thread, c, object)) {
            return;
        }
    } else if (thread != NULL && thread->arena == arena) {
        stash_empty_class(thread, c);
    }
    bin_drain(c, &object, 1);
}

void cache_free_tracked(unsigned arena, unsigned c, void *object) {
    assert(slab_word1(object) == slab_secret && !(arena & ARENA_TRACKED));
    struct thread *thread = tls.self;
    count_tracked_free(thread, c);
    if (UNLIKELY(arena & ARENA_HOOKED)) {
        bin_drain(c, &object, 1);
    } else if (UNLIKELY(thread == NULL || thread->arena != arena ||
                        !stash_push(thread, c, object))) {
        free_past_stash(thread, arena, c, object);
    }
}

/* Frees an object past F. */
static void drain_one(struct thread *thread, unsigned c, void *object) {
    assert(slab_word1(object) == slab_secret);
    count_add(&thread->fetched[c], -(uint64_t)1);
    bin_drain(c, &object, 1);
}

/* The `ntake` objects in `take` are too few: fetch more, each time half as much again, up to half
 * the room and to `most`.  Returns how many there are then. */
static __attribute__((noinline)) unsigned fetch_more(struct thread *thread, unsigned c,
                                                     struct magazine *take, unsigned ntake,
                                                     uint64_t most) {
    note_need(thread, c);
    unsigned half = (thread->room[c] + 1u) / 2;
    unsigned goal = thread->goal[c] < half ? thread->goal[c] : half;
    thread->goal[c] = (uint8_t)min_size(goal + (goal + 1) / 2, MAGAZINE_MOST);
    goal = (unsigned)min_size(goal, most);
    if (ntake >= goal) {
        return ntake;
    }
    void **slots = take->slots + ntake;
    unsigned got = LIKELY(!thread->apart) ? depot_take(thread->arena, c, slots, goal - ntake) : 0;
    if (got == 0 && UNLIKELY(arena_uses_hooks(thread->arena))) {
        thread_note_hooks(); /* No hook can be called while the class is closed. */
    } else if (got == 0) {
        got = fetch(thread, arena_bin(thread->arena, c), slots, goal - ntake);
    }
    count_add(&thread->fetched[c], got);
    count_visit(thread, c, got);
    thread->fetched_bytes += (int64_t)((size_t)got * size_classes[c].size);
    assert(ntake + got <= goal && goal <= most);
    return ntake + got;
}

static COLD void *open_empty(struct thread *thread, struct rec *rec, unsigned c,
                             struct closed closed) {
    open_class(thread, rec, c, closed);
    return NULL;
}

/* F holds more than is to go into A: the objects freed last go, the others stay where they are.
 * The object is taken before the class is open again, when no signal handler can take it too. */
static inline __attribute__((always_inline)) void *refill_in_part(struct thread *thread,
                                                                  struct rec *rec, size_t c,
                                                                  struct closed closed,
                                                                  unsigned count) {
    assert(count >= 1 && count < closed.ngive && magazine_take_is_empty(rec->take));
    unsigned stay = closed.ngive - count;
    copy_slots(closed.take->slots, closed.given + stay, count);
    count_add(&thread->filled[c], count);
    count_turn(&thread->turn[c]);
    publish(&rec->take, (uintptr_t)closed.take + (count - 1) * sizeof(void *));
    publish(&rec->give, (uintptr_t)(closed.given + stay));
    return closed.take->slots[count - 1];
}

/* A is empty, its top is the magazine: hand out what was freed last, and if that is little, fetch
 * more.  A gets no more than `most` objects. */
static inline __attribute__((always_inline)) void *
refill_up_to(struct thread *thread, struct rec *rec, size_t c, uintptr_t take_top, uint64_t most) {
    assert(most >= 1 && magazine_take_is_empty(take_top));
    struct closed closed = close_give(thread, rec, c);
    closed.take = (struct magazine *)take_top;
    uint64_t some = min_size(handful(thread, c), most);
    if (LIKELY(closed.ngive > some)) {
        return refill_in_part(thread, rec, c, closed, (unsigned)some);
    }
    give_to_take(&closed);
    grow_room(thread, c);
    if (closed.ntake <= thread->room[c] / 4u) {
        closed.ntake = fetch_more(thread, (unsigned)c, closed.take, closed.ntake, most);
        if (UNLIKELY(closed.ntake == 0)) {
            return open_empty(thread, rec, (unsigned)c, closed);
        }
    }
    assert(closed.ntake > 0 && closed.ntake <= most);
    count_add(&thread->filled[c], closed.ntake);
    void *object = closed.take->slots[--closed.ntake];
    open_class(thread, rec, c, closed);
    return object;
}

static inline __attribute__((always_inline)) void *refill(struct thread *thread, struct rec *rec,
                                                          size_t c, uintptr_t take_top) {
    return refill_up_to(thread, rec, c, take_top, UINT64_MAX);
}

/* The program gave up much memory and now asks again: the first call after a while finds out what
 * may go back to the kernel, where no background thread does. */
static COLD void look_after_shrinking(void) {
    (void)depot_tick();
    if (!dirty_has_background) {
        (void)pages_tick();
    }
}

static COLD void *refill_before_sample(struct thread *thread, struct rec *rec, unsigned c,
                                       uintptr_t take_top, uint64_t most) {
    return refill_up_to(thread, rec, c, take_top, most);
}

/* As refill, with no more objects than there are requests before the one to be sampled; NULL when
 * that is the next.  A refill brings no more than the room: half of what it may double to. */
static __attribute__((noinline)) void *refill_sampling(struct thread *thread, struct rec *rec,
                                                       unsigned c, uintptr_t take_top) {
    uint64_t distance = track_distance(thread, c);
    if (LIKELY(distance >= thread->room[c])) {
        return refill(thread, rec, c, take_top);
    }
    return distance != 0 ? refill_before_sample(thread, rec, c, take_top, distance) : NULL;
}

static COLD void *alloc_unusually(struct thread *thread, unsigned c) {
    if (bin_heap_is_shrinking()) {
        look_after_shrinking();
    }
    bool samples = bin_is_sampling();
    if (!has_magazines(thread, c)) {
        bool is_due = samples && track_distance(thread, c) == 0;
        return is_due ? NULL : cache_alloc_uncached(thread, c);
    }
    /* A signal handler may have filled A since the caller looked. */
    struct rec *rec = &thread->hot.rec[c];
    void *object = magazine_pop_slowly(&rec->take);
    if (object == NULL) {
        object = samples ? refill_sampling(thread, rec, c, rec->take)
                         : refill(thread, rec, c, rec->take);
    }
    return object;
}

static __attribute__((noinline)) void *alloc_between_samples(struct thread *thread, unsigned c) {
    struct rec *rec = record_of(thread, c);
    uintptr_t take = rec->take;
    track_look_for_agents();
    if (LIKELY(take != 0 && magazine_take_is_empty(take) && bin_is_sampling() &&
               !bin_heap_is_shrinking())) {
        return refill_sampling(thread, rec, c, take);
    }
    return alloc_unusually(thread, c);
}

/* Where nothing but sampling is unusual it should cost little, least where a sample is due. */
static __attribute__((noinline)) void *alloc_sampling(struct thread *thread, unsigned c) {
    uint64_t epoch = atomic_load_explicit(&track_epoch, memory_order_acquire);
    if (bin_get_unusual() == BIN_SAMPLING && thread->epoch == epoch &&
        thread->due[c] == thread->filled[c] && magazine_take_is_empty(thread->hot.rec[c].take)) {
        return NULL;
    }
    return alloc_between_samples(thread, c);
}

void *cache_alloc_empty(struct thread *thread, size_t c) {
    struct rec *rec = record_of(thread, c);
    uintptr_t take = rec->take;
    thread_watch_peak(thread);
    if (UNLIKELY(take == 0 || !magazine_take_is_empty(take) || bin_get_unusual() != 0)) {
        return alloc_sampling(thread, (unsigned)c);
    }
    return refill(thread, rec, c, take);
}

/* The caller has asked before whether a sample is due, or does not sample: one that has become due
 * meanwhile is passed. */
void *cache_alloc(struct thread *thread, unsigned c) {
    void *object = magazine_pop_slowly(&thread->hot.rec[c].take);
    if (object == NULL) {
        object = cache_alloc_empty(thread, c);
    }
    if (UNLIKELY(object == NULL) && bin_is_sampling()) {
        object = cache_alloc_uncached(thread, c);
    }
    return object;
}

/* The older `count` objects of F, which is closed, go to others. */
static void let_older_leave(struct thread *thread, unsigned c, struct closed *closed,
                            unsigned count) {
    assert(count >= 1 && count <= closed->ngive);
    count_add(&thread->fetched[c], -(uint64_t)count);
    thread->fetched_bytes -= (int64_t)((size_t)count * size_classes[c].size);
    depot_put(thread->arena, c, closed->given, count);
    closed->given += count;
    closed->ngive -= count;
    note_need(thread, c);
    count_visit(thread, c, -(int64_t)count);
}

/* F is full: it opens wider, or, where there is no room, its older half leaves.  The object that
 * found no slot comes on top.  A stays as it is. */
static inline void relieve(struct thread *thread, size_t c, void *object) {
    struct rec *rec = record_of(thread, c);
    struct closed closed = close_give(thread, rec, c);
    unsigned ntake = magazine_take_count(*(volatile uintptr_t *)&rec->take);
    grow_room(thread, c);
    unsigned cap = cap_beside(thread, c, ntake);
    if (closed.ngive + closed.ngive / 4 >= cap) {
        /* A thread that does not allocate the class has no use for what it frees. */
        unsigned stay = (unsigned)min_size(closed.ngive / (ntake > 0 ? 2 : 8), cap / 2);
        let_older_leave(thread, (unsigned)c, &closed, closed.ngive - stay);
        cap = cap_beside(thread, c, ntake);
    }
    assert(closed.ngive < cap);
    void **start = (void **)magazine_give_start(closed.give, cap);
    memmove(start, closed.given, closed.ngive * sizeof(void *));
    start[closed.ngive] = object;
    open_give(thread, rec, c, cap, (uintptr_t)(start + closed.ngive + 1));
}

static COLD void free_unusually(struct thread *thread, unsigned c, void *object);

static __attribute__((noinline)) void free_sampling(struct thread *thread, unsigned c,
                                                    void *object) {
    track_look_for_agents();
    if (UNLIKELY(thread->hot.rec[c].take == 0 || bin_heap_is_shrinking())) {
        free_unusually(thread, c, object);
    } else {
        relieve(thread, c, object);
    }
}

void cache_free_full(struct thread *thread, size_t c, void *object) {
    if (UNLIKELY(thread->hot.rec[c].take == 0 || bin_get_unusual() != 0)) {
        free_sampling(thread, (unsigned)c, object);
    } else {
        relieve(thread, c, object);
    }
}

void cache_free(struct thread *thread, unsigned c, void *object) {
    assert(slab_word1(object) == slab_secret);
    if (!magazine_push_slowly(&thread->hot.rec[c].give, object)) {
        cache_free_full(thread, c, object);
    }
}

/* Leaves the class closed, with both magazines empty. */
static struct closed put_all(struct thread *thread, unsigned c) {
    struct closed closed = close_class(thread, record_of(thread, c), c);
    count_leaving(thread, c, &closed);
    depot_put(thread->arena, c, closed.take->slots, closed.ntake);
    depot_put(thread->arena, c, closed.given, closed.ngive);
    closed.ntake = closed.ngive = 0;
    return closed;
}

static void empty_class(struct thread *thread, unsigned c) {
    struct closed closed = put_all(thread, c);
    open_class(thread, record_of(thread, c), c, closed);
}

static void flush_class(struct thread *thread, unsigned c) {
    if (thread->hot.rec[c].take != 0) {
        struct closed closed = put_all(thread, c);
        publish(&thread->hot.rec[c].take, 0);
        pool_put(closed.take);
        pool_put(closed.give);
        set_room(thread, c, 0);
    }
    assert(thread->hot.rec[c].take == 0 && thread->hot.rec[c].give == 0);
}

/* Each object kept here may be the last of its slab.  A class keeps few, none if they are large,
 * and all of them in F: the next allocation then comes to cache_alloc, which looks around. */
static COLD void free_while_shrinking(struct thread *thread, unsigned c, void *object) {
    assert((thread->room[c] == 0) == (thread->hot.rec[c].take == 0));
    if (size_classes[c].size > KEPT_OBJECT_BYTES || thread->room[c] == 0) {
        flush_class(thread, c);
        drain_one(thread, c, object);
        return;
    }
    unsigned few = KEPT_SLAB_BYTES / (size_classes[c].slab_mask + 1);
    struct rec *rec = record_of(thread, c);
    struct closed closed = close_class(thread, rec, c);
    count_leaving(thread, c, &closed);
    bin_drain(c, closed.take->slots, closed.ntake);
    bin_drain(c, closed.given, closed.ngive);
    closed.ntake = 0;
    set_room(thread, c, thread->room[c] < few ? thread->room[c] : few);
    open_class(thread, rec, c, closed);
    bool is_kept = magazine_push_slowly(&rec->give, object);
    assert(is_kept);
    (void)is_kept;
}

static COLD void free_unusually(struct thread *thread, unsigned c, void *object) {
    if (bin_heap_is_shrinking()) {
        free_while_shrinking(thread, c, object);
    } else if (thread->hot.rec[c].take != 0) {
        relieve(thread, c, object); /* The heap has just stopped shrinking. */
    } else if (!has_magazines(thread, c) ||
               !magazine_push_slowly(&thread->hot.rec[c].give, object)) {
        drain_one(thread, c, object);
    }
}

void cache_flush_class(struct thread *thread, unsigned c) {
    flush_class(thread, c);
    stash_empty_class(thread, c);
}

void cache_flush(struct thread *thread) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        flush_class(thread, c);
    }
    stash_empty(thread, 0);
    shelf_empty(thread);
    shrink_budget(thread);
}

/*
 * Where F is closed, the thread was moving the class's objects when it vanished, and what it moved
 * is lost: even the magazines may be in a depot already.  Only an A with objects in it is sound
 * then: it is closed after F and opened before it.
 */
void cache_recover_class(struct thread *gone, unsigned c) {
    struct rec *rec = &gone->hot.rec[c];
    if (rec->give != 0) {
        flush_class(gone, c);
        return;
    }
    uintptr_t take = rec->take;
    publish(&rec->take, 0);
    set_room(gone, c, 0);
    if (!magazine_take_is_empty(take)) {
        struct closed closed = {.ntake = magazine_take_count(take)};
        count_leaving(gone, c, &closed);
        depot_put(gone->arena, c, magazine_of_take(take)->slots, closed.ntake);
        pool_put(magazine_of_take(take));
    }
}

/* Room may be promised to a class that got no magazines, or may have been on its way. */
void cache_recover(struct thread *gone) {
    assert(gone->apart || gone == tls.self);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        if (gone->hot.rec[c].take != 0) {
            cache_recover_class(gone, c);
        }
        gone->room[c] = 0;
    }
    gone->spare_bytes = gone->budget_bytes;
}

/* ---------------------------------------------------------------- verifying */

static bool may_be_cached(const struct span *slab, const void *heap) {
    return slab_is_shared(slab) || slab->arena == ((const struct thread *)heap)->arena;
}

static bool may_be_put(const struct span *slab, const void *heap) {
    (void)heap;
    return !(slab->arena & ARENA_APART);
}

/* A class of an orphan may be in the middle of a move: then only an A that holds something is still
 * its own (cache_recover_class). */
static void verify_slots_of(const struct thread *thread, unsigned c, enum cache_kind kind,
                            struct verify *walk) {
    const struct rec *rec = &thread->hot.rec[c];
    struct magazine *take = magazine_of_take(rec->take);
    bool is_open = rec->give != 0;
    if (is_open || !magazine_take_is_empty(rec->take)) {
        verify_magazine(walk, take);
        verify_slots(walk, c, take->slots, magazine_take_count(rec->take),
                     kind == CACHE_OF_NO_THREAD ? may_be_put : may_be_cached, thread);
    }
    if (is_open) {
        struct magazine *give = magazine_of_give(rec->give);
        verify_magazine(walk, give);
        verify_slots(walk, c, (void *const *)magazine_give_start(give, thread->cap[c]),
                     magazine_give_count(rec->give, thread->cap[c]),
                     kind == CACHE_OF_NO_THREAD ? may_be_put : may_be_cached, thread);
    }
}

static void verify_room(const struct thread *thread, unsigned c) {
    const struct rec *rec = &thread->hot.rec[c];
    unsigned room = thread->room[c], cap = thread->cap[c];
    ensure((rec->take != 0) == (rec->give != 0) && (rec->take != 0) == (room != 0));
    ensure(room <= thread->most[c]);
    if (rec->take != 0) {
        ensure(is_within_room(room, magazine_take_count(rec->take), cap));
        ensure(magazine_give_count(rec->give, cap) <= cap);
    }
}

void cache_verify(const struct thread *thread, enum cache_kind kind, struct verify *walk) {
    static const struct rec zero;
    const struct hot *hot = &thread->hot;
    size_t promised = 0;
    ensure(memcmp(&hot->rec[0], &zero, sizeof(zero)) == 0);
    ensure(memcmp(&hot->rec[CLASS_COUNT], &zero, sizeof(zero)) == 0 && hot->secret == slab_secret);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        const struct size_class *sc = &size_classes[c];
        const struct rec *rec = &hot->rec[c];
        ensure(rec->mult == sc->mult && rec->limit == sc->limit && rec->mask == sc->slab_mask);
        if (kind != CACHE_OF_ORPHAN) {
            verify_room(thread, c);
        }
        verify_slots_of(thread, c, kind, walk);
        promised += bytes_of(c, thread->room[c]);
    }
    ensure(kind == CACHE_OF_ORPHAN || thread->spare_bytes + promised == thread->budget_bytes);
    ensure(thread->budget_bytes <= opt.thread_cache_bytes);
    stash_verify(thread, walk);
}
