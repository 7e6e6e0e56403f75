/* SPDX-License-Identifier: MIT
 *
 * test_depot.c - magazines in waiting: what is put in comes out once, the budget holds, and memory
 * that waits goes back when asked.
 */
#include "heap/depot.h"
#include "heap/pool.h"

#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/dirty.h"
#include "heap/heap.h"
#include "heap/pages.h"
#include "heap/slab.h"
#include "opt/opt.h"
#include "unit.h"

static void start(void) {
    start_heap_with("narenas:3");
}
TEST_SETUP(start);

enum { CLASS = 4, MANY = 20 };

/* A magazine with `count` objects of the class in its first slots, as a cache hands it over. */
static struct magazine *filled(unsigned size_class, unsigned count) {
    struct magazine *magazine = pool_take();
    check(magazine != NULL);
    check_eq((uintptr_t)magazine % MAGAZINE_BYTES, 0);
    check_eq(bin_refill(arena_bin(0, size_class), magazine->slots, count, PAGES_MAY_GROW), count);
    return magazine;
}

/* The magazine goes to the pool: the heap misses none that it is asked to verify. */
static void put(unsigned size_class, struct magazine *magazine, unsigned count) {
    depot_put(0, size_class, magazine->slots, count);
    pool_put(magazine);
}

static size_t nout(unsigned size_class) {
    return bin_nout(arena_bin(0, size_class));
}

TEST(objects_put_in_come_out_last_first) {
    void *objects[MAGAZINE_MOST];
    struct magazine *magazine = filled(CLASS, 40);
    memcpy(objects, magazine->slots, 40 * sizeof(void *));
    put(CLASS, magazine, 40);
    check_eq(depot_count(CLASS), 40);
    heap_verify();
    magazine = pool_take();
    for (unsigned i = 0; i < 40; i++) {
        check(depot_holds(CLASS, objects[i]));
        check(!depot_holds(CLASS + 1, objects[i]));
    }
    check_eq(depot_take(0, CLASS, magazine->slots, 15), 15);
    check(memcmp(magazine->slots, objects + 25, 15 * sizeof(void *)) == 0);
    check(!depot_holds(CLASS, objects[25]));
    check(depot_holds(CLASS, objects[24]));
    check_eq(depot_take(0, CLASS, magazine->slots + 15, 10), 10);
    check(memcmp(magazine->slots, objects + 25, 15 * sizeof(void *)) == 0);
    check(memcmp(magazine->slots + 15, objects + 15, 10 * sizeof(void *)) == 0);
    struct magazine *second = pool_take();
    check_eq(depot_take(0, CLASS, second->slots, MAGAZINE_MOST), 15);
    check(memcmp(second->slots, objects, 15 * sizeof(void *)) == 0);
    check_eq(depot_count(CLASS), 0);
    check_eq(depot_take(0, CLASS, second->slots + 15, MAGAZINE_MOST - 15), 0);
}

TEST(putting_nothing_changes_nothing) {
    struct magazine *magazine = pool_take();
    depot_put(0, CLASS, magazine->slots, 0);
    check_eq(depot_count(CLASS), 0);
}

/* Objects of three arenas, shuffled, are put by a thread of any: each arena gets back its own, in the
 * order in which they came. */
TEST(objects_go_home) {
    enum { ARENAS = 3, EACH = 40 };
    for (unsigned a = 0; a < ARENAS; a++) {
        check(arena_prepare(a));
    }
    struct random random = random_start(26, 0);
    for (unsigned round = 0; round < 50; round++) {
        void *mixed[MAGAZINE_MOST], *own[ARENAS][EACH];
        unsigned of[ARENAS] = {0}, count = 0;
        for (unsigned a = 0; a < ARENAS; a++) {
            unsigned wanted = (unsigned)random_below(&random, EACH + 1);
            of[a] = wanted == 0
                        ? 0
                        : bin_refill(arena_bin(a, CLASS), mixed + count, wanted, PAGES_MAY_GROW);
            check_eq(of[a], wanted);
            count += wanted;
        }
        for (unsigned i = 0; i < count; i++) {
            unsigned j = i + (unsigned)random_below(&random, count - i);
            void *object = mixed[i];
            mixed[i] = mixed[j];
            mixed[j] = object;
        }
        unsigned seen[ARENAS] = {0};
        for (unsigned i = 0; i < count; i++) {
            unsigned a = classmap_span((uintptr_t)mixed[i])->arena;
            own[a][seen[a]++] = mixed[i];
        }
        depot_put((unsigned)random_below(&random, ARENAS), CLASS, mixed, count);
        check_eq(depot_count(CLASS), count);
        heap_verify();
        for (unsigned a = 0; a < ARENAS; a++) {
            void *back[EACH];
            check_eq(depot_take(a, CLASS, back, EACH), of[a]);
            check(memcmp(back, own[a], of[a] * sizeof(void *)) == 0);
            bin_drain(CLASS, back, of[a]);
        }
    }
}

/* Each object that is waiting has a tally mark in its first word. */
static void mark_all(struct magazine *magazine, unsigned count, long change) {
    for (unsigned i = 0; i < count; i++) {
        *(long *)magazine->slots[i] += change;
        check_eq(*(long *)magazine->slots[i], change > 0);
    }
}

TEST(random_puts_and_takes_lose_and_double_nothing) {
    struct random random = random_start(24, 0);
    struct magazine *hand = pool_take(); /* what the test holds, never above half */
    unsigned held = 0;
    size_t waiting = 0;
    opt.depot_bytes = 1 << 30;
    for (unsigned step = 0; step < 20000; step++) {
        unsigned n = (unsigned)random_below(&random, MAGAZINE_MOST / 2) + 1;
        switch (random_below(&random, 3)) {
        case 0: {
            if (waiting > 5000) {
                break;
            }
            struct magazine *magazine = filled(CLASS, n);
            for (unsigned i = 0; i < n; i++) {
                *(long *)magazine->slots[i] = 0;
            }
            mark_all(magazine, n, 1);
            put(CLASS, magazine, n);
            waiting += n;
            break;
        }
        case 1: {
            unsigned got =
                depot_take(0, CLASS, hand->slots + held, n <= MAGAZINE_MOST - held ? n : 0);
            check(got <= n && (got > 0 || waiting == 0 || n > MAGAZINE_MOST - held));
            for (unsigned i = held; i < held + got; i++) {
                *(long *)hand->slots[i] -= 1;
                check_eq(*(long *)hand->slots[i], 0);
            }
            held += got;
            waiting -= got;
            break;
        }
        default:
            mark_all(hand, held, 1);
            depot_put(0, CLASS, hand->slots, held);
            waiting += held;
            held = 0;
        }
        check_eq(depot_count(CLASS), waiting);
        check_eq(nout(CLASS), waiting + held);
    }
    bin_drain(CLASS, hand->slots, held);
    pool_put(hand);
    heap_verify();
    depot_drain_all();
    check_eq(nout(CLASS), 0);
    check_eq(depot_count(CLASS), 0);
    heap_verify();
}

TEST(objects_beyond_the_budget_go_back_to_their_slabs) {
    opt.depot_bytes = 0;
    struct magazine *magazine = filled(CLASS, 50);
    depot_put(0, CLASS, magazine->slots, 50);
    pool_put(magazine);
    check_eq(depot_count(CLASS), 0);
    check_eq(nout(CLASS), 0);
    opt.depot_bytes = 100 * size_classes[CLASS].size;
    size_t waiting = 0;
    for (unsigned i = 0; i < 6; i++) {
        put(CLASS, filled(CLASS, 30), 30);
        waiting = depot_count(CLASS);
        check(waiting <= 100);
        check_eq(nout(CLASS), waiting);
    }
    check_eq(waiting, 90);
    depot_drain_all();
    heap_verify();
}

TEST(budget_is_one_for_all_classes) {
    opt.depot_bytes = 64 << 10;
    size_t bytes = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        put(c, filled(c, 8), 8);
        bytes += depot_count(c) * size_classes[c].size;
        size_t share = pages_totals().used / 16; /* a larger heap may keep more waiting */
        check(bytes <= (share > opt.depot_bytes ? share : opt.depot_bytes));
    }
    check(bytes > opt.depot_bytes / 2);
    depot_drain_all();
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        check_eq(depot_count(c), 0);
    }
    struct magazine *asked = pool_take();
    for (unsigned i = 0; i < 1000; i++) {
        check_eq(depot_take(0, CLASS, asked->slots, MAGAZINE_MOST), 0);
    }
    put(CLASS, filled(CLASS, 40), 40); /* There is budget again. */
    check_eq(depot_count(CLASS), 40);
}

TEST(tiny_objects_count_for_their_magazines) {
    opt.depot_bytes = 64 << 10;
    for (unsigned i = 0; i < 100 && !bin_heap_is_shrinking(); i++) {
        put(1, filled(1, 100), 100);
        check(depot_count(1) <= (64 << 10) / 64);
    }
}

TEST(idle_depot_is_empty_after_two_ticks) {
    check(!depot_tick());
    for (unsigned i = 0; i < 10; i++) {
        put(CLASS, filled(CLASS, 100), 100);
        put(CLASS + 9, filled(CLASS + 9, 10), 10);
    }
    check(depot_tick());
    check_eq(depot_count(CLASS), 1000);
    check(!depot_tick());
    check_eq(depot_count(CLASS) + depot_count(CLASS + 9), 0);
    check_eq(nout(CLASS) + nout(CLASS + 9), 0);
    heap_verify();
}

/* Of ten magazines five are needed between two ticks. */
TEST(tick_leaves_what_was_needed_since_the_last_one) {
    struct magazine *taken[5];
    for (unsigned i = 0; i < 10; i++) {
        put(CLASS, filled(CLASS, MAGAZINE_MOST), MAGAZINE_MOST);
    }
    depot_tick();
    for (unsigned i = 0; i < 5; i++) {
        taken[i] = pool_take();
        check_eq(depot_take(0, CLASS, taken[i]->slots, MAGAZINE_MOST), MAGAZINE_MOST);
    }
    for (unsigned i = 0; i < 5; i++) {
        put(CLASS, taken[i], MAGAZINE_MOST);
    }
    depot_tick();
    check_eq(depot_count(CLASS), 5 * MAGAZINE_MOST);
    check_eq(nout(CLASS), 5 * MAGAZINE_MOST);
    depot_tick();
    check_eq(depot_count(CLASS), 0);
    heap_verify();
}

static void put_bytes(unsigned size_class, size_t bytes) {
    size_t batch = MAGAZINE_MOST * size_classes[size_class].size;
    for (size_t done = 0; done < bytes; done += batch) {
        put(size_class, filled(size_class, MAGAZINE_MOST), MAGAZINE_MOST);
    }
}

static void ask_for_bytes(unsigned size_class, size_t bytes) {
    struct magazine *magazine = pool_take();
    for (size_t done = 0; done < bytes; done += MAGAZINE_MOST * size_classes[size_class].size) {
        unsigned got = depot_take(0, size_class, magazine->slots, MAGAZINE_MOST);
        bin_drain(size_class, magazine->slots, got);
    }
    pool_put(magazine);
}

/* filled() takes from the slabs and does not ask the depots, so all that is put is surplus. */
TEST(depots_close_when_the_heap_shrinks_and_open_on_demand) {
    opt.depot_bytes = 1 << 20;
    put_bytes(CLASS, 3 << 20);
    check(!bin_heap_is_shrinking());
    check(depot_count(CLASS) > 0);
    put_bytes(CLASS, 2 << 20);
    check(bin_heap_is_shrinking());
    check_eq(depot_count(CLASS), 0);
    check_eq(nout(CLASS), 0);
    check_eq(arena_bin(0, CLASS)->empty, 0);
    put_bytes(CLASS + 1, 1 << 20);
    check_eq(depot_count(CLASS + 1), 0);
    ask_for_bytes(CLASS, 1 << 20);
    check(!bin_heap_is_shrinking());
    put_bytes(CLASS, 1 << 16);
    check(depot_count(CLASS) > 0);
    heap_verify();
}

TEST(saw_tooth_does_not_count_as_shrinking_for_long) {
    opt.depot_bytes = 1 << 20;
    dirty_decay_ms[CHUNK_DIRTY] = INT64_MAX; /* Patience lasts. */
    for (unsigned round = 0; round < 10; round++) {
        put_bytes(CLASS, 8 << 20);
        check_eq(bin_heap_is_shrinking(), round < 2); /* at 4 MiB, then at 8, then at 16 */
        ask_for_bytes(CLASS, 8 << 20);
    }
    dirty_decay_ms[CHUNK_DIRTY] = 0; /* Patience is over. */
    put_bytes(CLASS, 8 << 20);
    check(bin_heap_is_shrinking());
}

TEST(draining_all_gives_empty_slabs_back) {
    heap_trim();
    size_t used = pages_totals().used;
    for (unsigned c = 1; c < CLASS_COUNT; c += 5) {
        for (unsigned i = 0; i < MANY; i++) {
            put(c, filled(c, 20), 20);
        }
    }
    heap_verify();
    depot_drain_all();
    heap_verify();
    heap_trim();
    check_eq(pages_totals().used, used);
}

TEST(returned_magazines_are_used_again) {
    struct magazine *first = pool_take();
    pool_put(first);
    check_eq(pool_take(), first);
    struct magazine *second = pool_take();
    check(second != first && second != NULL);
}

static void *exchange(void *unused) {
    (void)unused;
    static _Atomic unsigned stream;
    struct random random = random_start(25, stream++);
    struct magazine *magazine = pool_take();
    unsigned held = 0;
    for (unsigned step = 0; step < 5000; step++) {
        if (held == 0) {
            held = depot_take(0, CLASS, magazine->slots, MAGAZINE_MOST);
        }
        if (held == 0) {
            held = (unsigned)random_below(&random, MAGAZINE_MOST) + 1;
            check_eq(bin_refill(arena_bin(0, CLASS), magazine->slots, held, PAGES_MAY_GROW), held);
        }
        for (unsigned i = 0; i < held; i++) { /* Alone with each object, or the sum is wrong. */
            *(uintptr_t *)magazine->slots[i] = (uintptr_t)&held;
        }
        for (unsigned i = 0; i < held; i++) {
            check_eq(*(uintptr_t *)magazine->slots[i], &held);
        }
        depot_put(0, CLASS, magazine->slots, held);
        held = 0;
    }
    pool_put(magazine);
    return NULL;
}

TEST(threads_exchange_objects_and_own_each_alone) {
    run_threads(4, exchange, NULL);
    heap_verify();
    check_eq(nout(CLASS), depot_count(CLASS));
    depot_drain_all();
    check_eq(nout(CLASS), 0);
}
