/* SPDX-License-Identifier: MIT
 *
 * cache.c - what happens when a magazine runs empty or full.
 *
 *      malloc  takes from A;  A empty:  F becomes A   | and if that is little, more from depot or bin
 *      free    puts into F;   F full:   F goes onto A | or, if A holds much, A leaves and F becomes A
 *
 * Two magazines, because the number of allocations until A runs empty is then known when it is
 * filled: nothing that is freed meanwhile changes it.  Sampling will be built on that.
 *
 * Room.  A class may hold `room` objects in A and F together.  Between slow calls A only shrinks and
 * F only grows, so it is enough to open F, each time, for what A leaves of the room:
 *
 *      F with room for 4     [ header |  ...  |60|61|62|63 ]      starts at slot 64 - 4
 *
 * Slow start.  A class gets magazines at its eighth slow call, so threads that touch a size once
 * cost nothing.  Its room starts small and doubles each time it proves too small, up to 126 objects
 * or 64 KiB, as long as the thread's budget lasts; then the class with the most room gives way.
 *
 * Threads     The owner only.  A class is closed (F full, A empty) before objects are moved, and its
 *             new tops are published last, so a search by another thread never meets half a move.
 * Invariant   |A| + |F| <= room of a class, which is at least 1 while it has magazines.
 *             spare_bytes + sum of room * size == opt.thread_cache_bytes.
 * Read next   depot.c and bin.c, where objects go and come from.
 */
#include "heap/cache.h"

#include "base/log.h"
#include "heap/arena.h"
#include "heap/depot.h"

enum {
    CALLS_BEFORE_MAGAZINES = 8,
    FIRST_ROOM = 8,
    DENIALS_BEFORE_STEALING = 32,
};

/* ---------------------------------------------------------------- room and budget */

static size_t bytes_of(unsigned c, unsigned objects) {
    return (size_t)objects * size_classes[c].size;
}

static void set_room(struct thread *thread, unsigned c, unsigned room) {
    thread->spare_bytes += bytes_of(c, thread->room[c]);
    thread->spare_bytes -= bytes_of(c, room);
    thread->room[c] = (uint8_t)room;
}

/* Of the classes with room for more than `objects` objects, the one with the most bytes; 0: none. */
static unsigned richest_class(const struct thread *thread, unsigned objects) {
    unsigned richest = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        if (thread->room[c] > objects &&
            bytes_of(c, thread->room[c]) > bytes_of(richest, thread->room[richest])) {
            richest = c;
        }
    }
    return richest;
}

static void empty_class(struct thread *thread, unsigned c);

/*
 * The budget is spent: now and then a class that has room for more than twice as many objects as
 * the one in need gives half of it up.  Objects count and not bytes, because slow calls do: for a
 * program that uses all sizes alike, equal room means the fewest of them.
 */
static COLD void steal_room(struct thread *thread, unsigned c) {
    thread->denials++;
    if (thread->denials % DENIALS_BEFORE_STEALING != 0) {
        return;
    }
    /* Never the last object's room: a class with magazines has some. */
    unsigned victim = richest_class(thread, (unsigned)max_size(2u * thread->room[c], 1));
    if (victim != 0) {
        set_room(thread, victim, thread->room[victim] / 2u);
        empty_class(thread, victim);
    }
}

/* The class proved too small: double its room, as far as class and budget allow. */
static void grow_room(struct thread *thread, unsigned c) {
    unsigned room = thread->room[c];
    if (room == size_classes[c].room_max) {
        return;
    }
    unsigned wanted = (unsigned)min_size(room * 2u, size_classes[c].room_max);
    if (bytes_of(c, wanted - room) <= thread->spare_bytes) {
        set_room(thread, c, wanted);
    } else {
        steal_room(thread, c);
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

static inline struct closed close_class(struct thread *thread, unsigned c) {
    struct rec *rec = &thread->hot.rec[c];
    struct closed class = {
        .take = magazine_of_take(rec->take),
        .give = magazine_of_give(rec->give),
        .ntake = magazine_take_count(rec->take),
    };
    class.given = (void **)magazine_give_start(class.give, thread->cap[c]);
    class.ngive = (unsigned)((void **)rec->give - class.given);
    publish(&rec->give, 0);
    publish(&rec->take, (uintptr_t) class.take);
    return class;
}

/* Opens the class with F empty and open for what A leaves of the room, at most half of it. */
static inline void open_class(struct thread *thread, unsigned c, const struct closed *class) {
    struct rec *rec = &thread->hot.rec[c];
    unsigned room = thread->room[c];
    assert(room > 0);
    unsigned left = room > class->ntake ? room - class->ntake : 1;
    unsigned half = (room + 1) / 2;
    unsigned cap = left < half ? left : half;
    __atomic_store_n(&thread->cap[c], (uint8_t)cap, __ATOMIC_RELEASE);
    publish(&rec->take, (uintptr_t) class->take + class->ntake * sizeof(void *));
    publish(&rec->give, magazine_give_start(class->give, cap));
}

/* Copies pairs, so it may write one slot more than `count`; there are 63 and never all are in use
 * when something is copied. */
static inline void copy_slots(void **to, void **from, unsigned count) {
    for (unsigned i = 0; i < count; i += 2) {
        __builtin_memcpy(to + i, from + i, 2 * sizeof(void *));
    }
}

static inline bool fits_on_take(const struct closed *class) {
    return class->ntake == 0 || class->ntake + class->ngive < MAGAZINE_MOST;
}

/* Moves what F holds on top of what A holds; a whole F and an empty A just change places. */
static inline void give_to_take(struct closed *class) {
    assert(fits_on_take(class));
    if (class->ntake == 0 && class->given == class->give->slots) {
        struct magazine *emptied = class->take;
        class->take = class->give;
        class->give = emptied;
    } else {
        copy_slots(class->take->slots + class->ntake, class->given, class->ngive);
    }
    class->ntake += class->ngive;
}

/* Gives a class its magazines once it has been asked for often enough. */
static COLD bool earn_magazines(struct thread *thread, unsigned c) {
    unsigned room = (unsigned)min_size(FIRST_ROOM, size_classes[c].room_max);
    if (++thread->seen[c] < CALLS_BEFORE_MAGAZINES) {
        return false;
    }
    thread->seen[c] = 0;
    if (bytes_of(c, room) > thread->spare_bytes) {
        steal_room(thread, c);
        return false;
    }
    struct closed empty = {.take = depot_new_magazine(), .give = depot_new_magazine()};
    if (empty.take == NULL || empty.give == NULL) {
        if (empty.take != NULL) {
            depot_return_magazine(empty.take);
        }
        return false;
    }
    set_room(thread, c, room);
    open_class(thread, c, &empty);
    return true;
}

static bool has_magazines(struct thread *thread, unsigned c) {
    return LIKELY(thread->hot.rec[c].take != 0) || earn_magazines(thread, c);
}

/* ---------------------------------------------------------------- moving objects */

/* Up to `count` objects from the bin.  Before the heap grows, all that waits in depots is put back
 * into slabs: perhaps a slab runs empty by that. */
static unsigned fetch(unsigned arena, unsigned c, void **slots, unsigned count) {
    struct bin *bin = arena_bin(arena, c);
    unsigned got = bin_refill(bin, slots, count, PAGES_AS_THEY_ARE);
    if (UNLIKELY(got == 0)) {
        depot_drain_all();
        got = bin_refill(bin, slots, count, PAGES_MAY_GROW);
    }
    return got;
}

void *cache_alloc_uncached(unsigned arena, unsigned c) {
    void *object = NULL;
    fetch(arena, c, &object, 1);
    return object;
}

/* What was freed is too little: let the class grow, and fetch as much as it may hold.  Returns how
 * many objects the magazine has then. */
static __attribute__((noinline)) unsigned fetch_more(struct thread *thread, unsigned c,
                                                     struct magazine **take, unsigned ntake) {
    grow_room(thread, c);
    unsigned half = (thread->room[c] + 1u) / 2;
    if (ntake >= half) {
        return ntake;
    }
    unsigned got = depot_take(c, take, ntake, half - ntake);
    if (got == 0) {
        got = fetch(thread->arena, c, (*take)->slots + ntake, half - ntake);
    }
    return ntake + got;
}

/* A is empty: hand out what was freed, and if that is little, fetch more. */
static void refill(struct thread *thread, unsigned c) {
    struct closed class = close_class(thread, c);
    unsigned room = thread->room[c];
    give_to_take(&class);
    bool comfortable = room >= size_classes[c].room_comfort;
    if (class.ntake <= room / 4 || (!comfortable && bytes_of(c, room) <= thread->spare_bytes)) {
        class.ntake = fetch_more(thread, c, &class.take, class.ntake);
    }
    open_class(thread, c, &class);
}

void *cache_alloc(struct thread *thread, unsigned c) {
    struct rec *rec = &thread->hot.rec[c];
    if (magazine_take_is_empty(rec->take)) {
        if (!has_magazines(thread, c)) {
            return cache_alloc_uncached(thread->arena, c);
        }
        refill(thread, c);
        if (magazine_take_is_empty(rec->take)) {
            return NULL;
        }
    }
    return magazine_pop(&rec->take, rec->take);
}

/* F is full: put it onto A, or let A, which is colder, leave first. */
static void relieve(struct thread *thread, unsigned c) {
    struct closed class = close_class(thread, c);
    if (!fits_on_take(&class) || class.ntake > thread->room[c] / 4u) {
        class.take = depot_put(c, class.take, class.ntake);
        class.ntake = 0;
        grow_room(thread, c);
    }
    give_to_take(&class);
    open_class(thread, c, &class);
}

void cache_free(struct thread *thread, unsigned c, void *object) {
    struct rec *rec = &thread->hot.rec[c];
    if (magazine_give_is_full(rec->give)) {
        if (!has_magazines(thread, c)) {
            bin_drain(c, &object, 1);
            return;
        }
        if (magazine_give_is_full(rec->give)) {
            relieve(thread, c);
        }
    }
    magazine_push(&rec->give, rec->give, object);
}

/* Leaves the class closed, with both magazines empty. */
static struct closed put_all(struct thread *thread, unsigned c) {
    struct closed class = close_class(thread, c);
    if (!fits_on_take(&class)) {
        class.take = depot_put(c, class.take, class.ntake);
        class.ntake = 0;
    }
    give_to_take(&class);
    class.take = depot_put(c, class.take, class.ntake);
    class.ntake = 0;
    return class;
}

static void empty_class(struct thread *thread, unsigned c) {
    struct closed class = put_all(thread, c);
    open_class(thread, c, &class);
}

void cache_flush(struct thread *thread) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        if (thread->hot.rec[c].take != 0) {
            struct closed class = put_all(thread, c);
            publish(&thread->hot.rec[c].take, 0);
            depot_return_magazine(class.take);
            depot_return_magazine(class.give);
            set_room(thread, c, 0);
        }
    }
}
