/* SPDX-License-Identifier: MIT
 *
 * test_track_arenas.c - sampling without a profiler above it: arenas that are reset, bound or have hooks,
 * forks, and the stashes in which threads keep tracked objects.
 */
#include <jemalloc/jemalloc.h>
#include <math.h>

#include "heap/arena.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "heap/hooks.h"
#include "heap/stash.h"
#include "noted_samples.h"
#include "unit.h"

/* ---------------------------------------------------------------- arenas */

TEST(reset_of_an_arena_tells_of_all_its_objects) {
    start_exactly();
    int arena = arena_create(NULL);
    enum { COUNT = 2000 };
    for (unsigned i = 0; i < COUNT; i++) {
        check(je_mallocx(all_sizes[i % SIZES], MALLOCX_ARENA((unsigned)arena)) != NULL);
    }
    void *other = tally_malloc(100);
    check_eq(live_samples, COUNT + 1);
    check(arena_reset((unsigned)arena));
    check_eq(live_samples, 1);
    check_eq(records[id_of(other)].state, LIVE);
    heap_verify();
    void *object = je_mallocx(100, MALLOCX_ARENA((unsigned)arena));
    check(id_of(object) != 0);
    check(arena_destroy((unsigned)arena));
    check_eq(live_samples, 1);
    tally_free(other);
    heap_verify();
}

TEST(thread_bound_to_an_arena_is_sampled_there) {
    start_exactly();
    int arena = arena_create(NULL);
    check(thread_set_arena((unsigned)arena));
    void *small = tally_malloc(100), *large = tally_malloc(MIB);
    check(id_of(small) != 0 && id_of(large) != 0);
    check_eq(arena_of(small), arena);
    check_eq(arena_of(large), arena);
    tally_free(small);
    tally_free(large);
    thread_set_arena(0);
    check(arena_destroy((unsigned)arena));
}

static void *hook_alloc(struct extent_hooks *hooks, void *address, size_t size, size_t alignment,
                        bool *zero, bool *commit, unsigned arena) {
    (void)hooks;
    return hooks_default.alloc(&hooks_default, address, size, alignment, zero, commit, arena);
}

TEST(memory_from_hooks_is_sampled_too) {
    start_exactly();
    static struct extent_hooks hooks = {.alloc = hook_alloc};
    int arena = arena_create(&hooks);
    check(arena >= 0);
    void *small = je_mallocx(100, MALLOCX_ARENA((unsigned)arena));
    void *large = je_mallocx(MIB, MALLOCX_ARENA((unsigned)arena));
    check(small != NULL && large != NULL);
    check(id_of(small) != 0 && id_of(large) != 0);
    check_eq(heap_look(small).span->arena, (unsigned)arena | ARENA_HOOKED | ARENA_TRACKED);
    check(thread_set_arena((unsigned)arena));
    void *objects[200];
    for (unsigned i = 0; i < 1000; i++) {
        void **object = &objects[i % 200];
        if (i >= 200) {
            tally_free(*object);
        }
        *object = tally_malloc(all_sizes[i % SIZES]);
        check(id_of(*object) == last_id);
        check(heap_look(*object).span->arena & ARENA_HOOKED);
    }
    heap_verify();
    for (unsigned i = 0; i < 200; i++) {
        tally_free(objects[i]);
    }
    large = je_rallocx(large, 2 * MIB, MALLOCX_ARENA((unsigned)arena));
    check_eq(id_of(large), last_id);
    check_eq(records[last_id].usable, 2 * MIB);
    thread_set_arena(0);
    tally_free(small);
    check_eq(heap_look(small).verdict, HEAP_DOUBLE_FREE);
    tally_free(large);
    check_eq(live_samples, 0);
    heap_verify();
}

TEST(memory_from_hooks_is_sampled_by_its_size) {
    start_heap_with("narenas:1");
    static struct extent_hooks hooks = {.alloc = hook_alloc};
    int arena = arena_create(&hooks);
    check(thread_set_arena((unsigned)arena));
    begin(3, 1000);
    struct tally tally = {0};
    for (unsigned i = 0; i < 20000; i++) {
        tally_free(tally_malloc(100));
    }
    expect(&tally, 20000, 100, 1000);
    tally.seen = (double)samples();
    check_within(&tally, 4, "from hooks", 100, 1000);
    check(arena_reset((unsigned)arena));
    check_eq(live_samples, 0);
    heap_verify();
}

TEST(reset_of_an_arena_with_hooks_ends_its_samples) {
    start_exactly();
    static struct extent_hooks hooks = {.alloc = hook_alloc};
    int arena = arena_create(&hooks);
    for (unsigned i = 0; i < 500; i++) {
        check(je_mallocx(all_sizes[i % SIZES], MALLOCX_ARENA((unsigned)arena)) != NULL);
    }
    check_eq(live_samples, 500);
    check(arena_reset((unsigned)arena));
    check_eq(live_samples, 0);
    heap_verify();
    check(arena_destroy((unsigned)arena));
    heap_verify();
}

TEST(arena_that_gets_hooks_late_stays_sampled) {
    start_exactly();
    static struct extent_hooks hooks = {.alloc = hook_alloc};
    int arena = arena_create(NULL);
    check(thread_set_arena((unsigned)arena));
    void *before = tally_malloc(100);
    check(id_of(before) != 0);
    check(arena_set_hooks((unsigned)arena, &hooks));
    uint64_t seen = samples();
    for (unsigned i = 0; i < 1000; i++) {
        void *object = tally_malloc(100);
        check(object != NULL && heap_look(object).span->arena & ARENA_HOOKED);
        tally_free(object);
    }
    check_eq(samples(), seen + 1000);
    tally_free(before);
    check_eq(live_samples, 0);
    heap_verify();
}

/* ---------------------------------------------------------------- other conditions */

TEST(window_mode_is_sampled_too) {
    limit_address_space(8ul << 30);
    start_exactly();
    void *objects[500];
    for (unsigned i = 0; i < 500; i++) {
        objects[i] = tally_malloc(all_sizes[i % 10]);
        check_eq(id_of(objects[i]), i + 1);
    }
    heap_verify();
    for (unsigned i = 0; i < 500; i++) {
        tally_free(objects[i]);
    }
    check_eq(live_samples, 0);
    struct tally tally = {0};
    begin(10, 1000);
    for (unsigned i = 0; i < 20000; i++) {
        tally_free(tally_malloc(100));
    }
    tally.seen = (double)samples() - 500;
    expect(&tally, 20000, 100, 1000);
    check_within(&tally, 3, "window mode", 100, 1000);
}

static void *take_some(void *objects) {
    for (unsigned i = 0; i < 200; i++) {
        ((void **)objects)[i] = tally_malloc(all_sizes[i % SIZES]);
    }
    return NULL;
}

static void free_some(void **objects) {
    for (unsigned i = 0; i < 200; i++) {
        tally_free(objects[i]);
    }
    check_eq(live_samples, 0);
    void *object = tally_malloc(100);
    check(id_of(object) != 0);
    tally_free(object);
    for (unsigned i = 0; i < 1000; i++) {
        tally_free(tally_malloc(3000)); /* orphans are recovered */
    }
    heap_verify();
}

TEST(child_of_a_fork_frees_what_its_parent_tracked) {
    start_exactly();
    static void *objects[200];
    run_threads(1, take_some, objects);
    check_child(free_some(objects));
    free_some(objects);
}

static void *leave_half_done(void *bin_to_spoil) {
    struct bin *bin = bin_to_spoil;
    lock_acquire(&bin->lock);
    bin->nmalloc += 7;
    bin->nslabs = 100;
    bin->slabs = NULL;
    return NULL;
}

TEST(abandoned_bin_of_tracked_objects_is_rebuilt) {
    start_heap_with("narenas:1");
    track_set_rate(1);
    void *objects[500];
    for (unsigned i = 0; i < 500; i++) {
        objects[i] = tally_malloc(200);
    }
    run_threads(1, leave_half_done, arena_bin(ARENA_TRACKED, size_class_of(200)));
    pretend_fork();
    for (unsigned i = 0; i < 500; i++) {
        check_eq(id_of(objects[i]), i + 1);
        tally_free(objects[i]);
    }
    check_eq(live_samples, 0);
    heap_verify();
}

static void *churn(void *stop) {
    static _Atomic unsigned stream;
    struct random random = random_start(11, stream++);
    void *held[100] = {NULL};
    while (!*(_Atomic bool *)stop) {
        void **slot = &held[random_below(&random, 100)];
        tally_free(*slot);
        *slot = tally_malloc(all_sizes[random_below(&random, 13)]);
    }
    for (unsigned i = 0; i < 100; i++) {
        tally_free(held[i]);
    }
    return NULL;
}

static void use_each_class(void) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        void *object = tally_malloc(size_classes[c].size);
        check(object != NULL);
        tally_free(object);
    }
    heap_verify();
}

static void fork_beside_busy_threads(uint64_t rate) {
    start_heap_with("narenas:2");
    track_set_rate(rate);
    _Atomic bool stop = false;
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_create(&threads[i], NULL, churn, &stop) == 0);
    }
    for (unsigned i = 0; i < 60 / SLOWER && last_id < MOST_RECORDS / 2; i++) {
        check_child(use_each_class());
    }
    stop = true;
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    check_eq(live_samples, 0);
    heap_verify();
}

TEST(children_forked_beside_busy_threads_have_a_sound_heap) {
    fork_beside_busy_threads(200);
}

static void *change_rates(void *stop) {
    struct random random = random_start(12, 0);
    while (!*(_Atomic bool *)stop && last_id < MOST_RECORDS - 100000) {
        thread_mark_inside(true);
        track_set_rate(random_below(&random, 3) == 0 ? 0 : random_below(&random, 1000));
        thread_mark_inside(false);
        usleep(50);
    }
    track_set_rate(0);
    return NULL;
}

/* An allocation that was told "not yet" just before the rate changed must not fail for it. */
TEST(rate_may_change_beside_busy_threads) {
    start_heap_with("narenas:2");
    _Atomic bool stop = false;
    pthread_t changer;
    struct work work = {.length = 100000 / SLOWER};
    check(pthread_create(&changer, NULL, change_rates, &stop) == 0);
    for (unsigned round = 0; round < 5; round++) {
        run_threads(3, work_a_while, &work);
    }
    stop = true;
    check(pthread_join(changer, NULL) == 0);
    check_eq(live_samples, 0);
    heap_verify();
}

/* ---------------------------------------------------------------- stashes */

static size_t tracked_out(unsigned c) {
    return bin_nout(arena_bin(ARENA_TRACKED, c));
}

TEST(stash_keeps_a_few_until_it_is_flushed) {
    start_exactly();
    enum { COUNT = 300 };
    void *objects[COUNT];
    unsigned c = size_class_of(200);
    for (unsigned i = 0; i < COUNT; i++) {
        objects[i] = tally_malloc(200);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        tally_free(objects[i]);
    }
    unsigned kept = stash_count(tls.self, c);
    check(kept > 0 && kept <= STASH_MOST);
    check_eq(tracked_out(c), kept);
    check_eq(heap_totals().live, 0);
    check_eq(heap_totals().cached, kept * 208);
    check_eq(heap_look(objects[COUNT - 1]).verdict, HEAP_DOUBLE_FREE); /* the last one is there */
    check_eq(heap_free_tracked(objects[COUNT - 1]), HEAP_TRACKED_LATE);
    check_dies(tally_free(objects[COUNT - 1]), "is already free", SIGABRT);
    heap_verify();
    thread_flush();
    check_eq(stash_count(tls.self, c), 0);
    check_eq(tracked_out(c), 0);
    heap_verify();
}

TEST(stash_keeps_nothing_where_few_are_tracked) {
    start_heap_with("narenas:1");
    track_set_rate(4096);
    unsigned c = size_class_of(200);
    for (unsigned i = 0; i < 20000; i++) {
        tally_free(tally_malloc(200));
        check(tls.self == NULL || stash_count(tls.self, c) == 0);
    }
    check(last_id > 0);
}

TEST(stash_is_left_when_sampling_ends) {
    start_exactly();
    enum { COUNT = 100 };
    void *objects[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        objects[i] = tally_malloc(200);
    }
    track_set_rate(0);
    for (unsigned i = 0; i < COUNT; i++) {
        tally_free(objects[i]);
    }
    check_eq(stash_count(tls.self, size_class_of(200)), 0);
    check_eq(tracked_out(size_class_of(200)), 0);
}

TEST(stash_of_a_thread_that_leaves_its_arena_stays_behind) {
    start_exactly();
    void *object = tally_malloc(200);
    for (unsigned i = 0; i < 20; i++) {
        tally_free(tally_malloc(200));
    }
    unsigned c = size_class_of(200);
    check(stash_count(tls.self, c) > 0);
    int manual = arena_create(NULL);
    check(manual > 0 && thread_set_arena((unsigned)manual));
    check_eq(stash_count(tls.self, c), 0);
    tally_free(object); /* of the other arena: straight to its slab */
    check_eq(stash_count(tls.self, c), 0);
    check_eq(tracked_out(c), 0);
    void *kept = tally_malloc(200);
    tally_free(tally_malloc(200));
    check(stash_count(tls.self, c) > 0);
    check(arena_reset((unsigned)manual));
    check_eq(live_samples, 0);
    check_eq(heap_look(kept).verdict == HEAP_LIVE, false);
    heap_verify();
    void *objects[100];
    for (unsigned i = 0; i < 100; i++) { /* what was in the stash, and the rest: none twice */
        objects[i] = tally_malloc(200);
        memset(objects[i], (int)i, 200);
    }
    for (unsigned i = 0; i < 100; i++) {
        check_eq(((unsigned char *)objects[i])[199], i);
        tally_free(objects[i]);
    }
    check_eq(live_samples, 0);
    heap_verify();
}

TEST(stashed_objects_are_handed_out_once_whatever_happens) {
    start_heap_with("narenas:2");
    struct random random = random_start(13, 0);
    enum { SLOTS = 600 };
    static struct {
        uint64_t *object;
        size_t size;
    } slots[SLOTS];
    for (unsigned turn = 0; turn < 200000 / SLOWER; turn++) {
        unsigned i = random_below(&random, SLOTS);
        if (slots[i].object != NULL) {
            check_eq(slots[i].object[0], i);
            check_eq(slots[i].object[slots[i].size / 8 - 1], i);
            tally_free(slots[i].object);
        }
        slots[i].size = 16 + random_below(&random, random_below(&random, 9) == 0 ? 20000 : 300);
        slots[i].object = tally_malloc(slots[i].size);
        slots[i].object[0] = slots[i].object[slots[i].size / 8 - 1] = i;
        if (turn % 1000 == 0) {
            static const uint64_t choices[] = {1, 1, 100, 0};
            track_set_rate(choices[random_below(&random, 4)]);
        } else if (turn % 1777 == 0) {
            thread_flush();
        } else if (turn % 2999 == 0) {
            heap_trim();
            heap_verify();
        }
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        tally_free(slots[i].object);
    }
    thread_flush();
    check_eq(live_samples, 0);
    check_eq(heap_totals().live, 0);
    heap_verify();
}

TEST(children_forked_beside_full_stashes_have_a_sound_heap) {
    fork_beside_busy_threads(1);
}
