/* SPDX-License-Identifier: MIT
 *
 * test_modes.c - what a thread may ask for itself: no cache, a smaller one, another arena, and exact
 * counters (heap/thread.h).
 */
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/thread.h"
#include "opt/opt.h"
#include "unit.h"

static const size_t sizes[] = {1, 16, 100, 1000, 1024, 1025, 20000, 32768, 32769, 300000};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static bool is_parked(void) {
    return tls.hot != &tls.self->hot;
}

static void use_all_sizes(void) {
    for (unsigned i = 0; i < 50 * SIZES; i++) {
        void *object = tally_malloc(sizes[i % SIZES]);
        check(object != NULL);
        memset(object, 1, sizes[i % SIZES]);
        tally_free(object);
    }
}

static size_t cached_objects(void) {
    size_t sum = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        sum += thread_count_cached(c);
    }
    return sum;
}

TEST(thread_that_asks_before_it_has_a_heap_gets_one) {
    start_heap();
    check(tls.self == NULL);
    check(thread_is_cached());
    thread_set_cached(false);
    check(tls.self != NULL && is_parked());
}

TEST(cache_can_be_switched_off_and_on) {
    start_heap();
    use_all_sizes();
    check(cached_objects() > 0);
    check(thread_is_cached());
    thread_set_cached(false);
    check(!thread_is_cached() && is_parked());
    check_eq(cached_objects(), 0);
    use_all_sizes();
    check_eq(cached_objects(), 0);
    thread_set_cached(true);
    check(thread_is_cached() && !is_parked());
    use_all_sizes();
    check(cached_objects() > 0);
    heap_verify();
}

TEST(new_threads_may_begin_without_a_cache) {
    start_heap();
    opt.tcache = false;
    check(!thread_is_cached());
    use_all_sizes();
    check(tls.self != NULL && is_parked() && !thread_is_cached());
    check_eq(cached_objects(), 0);
    thread_set_cached(true);
    use_all_sizes();
    check(cached_objects() > 0);
}

TEST(objects_above_the_largest_cached_size_are_not_cached) {
    start_heap();
    check_eq(thread_cache_max(), SMALL_MAX);
    use_all_sizes();
    check(thread_count_cached(size_class_of(1025)) > 0);
    thread_set_cache_max(1024);
    check_eq(thread_cache_max(), 1024);
    check_eq(thread_count_cached(size_class_of(1025)), 0);
    check(thread_count_cached(size_class_of(100)) > 0);
    use_all_sizes();
    check_eq(thread_count_cached(size_class_of(1025)), 0);
    check_eq(thread_count_cached(size_class_of(20000)), 0);
    thread_set_cache_max(SMALL_MAX);
    check_eq(thread_cache_max(), SMALL_MAX);
    use_all_sizes();
    check(thread_count_cached(size_class_of(1025)) > 0);
    thread_set_cache_max(0);
    check_eq(thread_cache_max(), 0);
    use_all_sizes();
    check_eq(cached_objects(), 0);
}

TEST(new_threads_may_begin_with_a_smaller_largest_size) {
    start_heap();
    opt.tcache_max = 100;
    check_eq(thread_class_max(size_class_of(1000)), 0);
    use_all_sizes();
    check_eq(thread_count_cached(size_class_of(1000)), 0);
    check(thread_count_cached(size_class_of(16)) > 0);
}

TEST(most_objects_of_a_class_are_kept_to) {
    start_heap();
    unsigned c = size_class_of(64);
    check_eq(thread_class_max(c), size_classes[c].room_max);
    static void *objects[2000];
    for (unsigned most = 0; most <= 300; most += 20) {
        thread_set_class_max(c, most);
        check_eq(thread_class_max(c), most < 254 ? most : 254);
        for (unsigned round = 0; round < 3; round++) {
            for (unsigned i = 0; i < 2000; i++) {
                objects[i] = tally_malloc(64);
            }
            for (unsigned i = 0; i < 2000; i++) {
                tally_free(objects[i]);
                check(thread_count_cached(c) <= most);
            }
        }
        check(most == 0 || thread_count_cached(c) > 0);
    }
}

static void *change_limits(void *argument) {
    thread_set_class_max(size_class_of(64), 1);
    thread_set_cached(argument == NULL);
    use_all_sizes();
    return NULL;
}

static void *expect_usual_limits(void *argument) {
    (void)argument;
    use_all_sizes();
    check(thread_is_cached() && !is_parked());
    check_eq(thread_class_max(size_class_of(64)), size_classes[size_class_of(64)].room_max);
    return NULL;
}

TEST(next_thread_inherits_no_limits) {
    start_heap_with("narenas:1");
    for (unsigned i = 0; i < 4; i++) {
        run_threads(1, change_limits, i % 2 == 0 ? NULL : &tls);
        run_threads(1, expect_usual_limits, NULL);
    }
}

/* ---------------------------------------------------------------- exact counters */

static size_t usable(void *object) {
    return tally_usable_size(object);
}

TEST(counters_are_exact_at_every_call) {
    start_heap();
    uint64_t *allocated = thread_allocated_live();
    uint64_t *deallocated = thread_deallocated_live();
    check(allocated != NULL && deallocated != NULL && is_parked());
    check_eq(allocated, thread_allocated_live());
    uint64_t got = *allocated, gave = *deallocated;
    for (unsigned i = 0; i < 20 * SIZES; i++) {
        void *object = tally_malloc(sizes[i % SIZES]);
        check_eq(*allocated, got += usable(object));
        void *zeros = tally_calloc(1, sizes[i % SIZES]);
        check_eq(*allocated, got += usable(zeros));
        void *aligned = tally_aligned_alloc(4096, sizes[i % SIZES]);
        check_eq(*allocated, got += usable(aligned));
        bool zeroed;
        void *placed = place_alloc((struct place){0, PLACE_NO_CACHE}, sizes[i % SIZES], 1, &zeroed);
        check_eq(*allocated, got += usable(placed));
        check_eq(*deallocated, gave);
        void *const all[] = {object, zeros, aligned};
        for (unsigned k = 0; k < 3; k++) {
            gave += usable(all[k]);
            tally_free(all[k]);
            check_eq(*deallocated, gave);
        }
        struct heap_object found = heap_look(placed);
        check(place_free((struct place){0, PLACE_NO_CACHE}, &found));
        check_eq(*deallocated, gave += found.size);
        check_eq(*allocated, got);
    }
    check_eq(thread_allocated(), got);
    check_eq(thread_deallocated(), gave);
}

TEST(counters_follow_realloc) {
    start_heap();
    uint64_t *allocated = thread_allocated_live();
    uint64_t *deallocated = thread_deallocated_live();
    void *object = tally_malloc(10);
    for (size_t size = 10; size < 64 << 20; size += size / 2) {
        object = tally_realloc(object, size);
        check_eq(*allocated - *deallocated, usable(object));
    }
    for (size_t size = 60 << 20; size > 10; size /= 3) {
        object = tally_realloc(object, size);
        check_eq(*allocated - *deallocated, usable(object));
    }
    tally_free(object);
    check_eq(*allocated, *deallocated);
}

static void check_kept(void *object, size_t size) {
    uint64_t allocated = thread_allocated(), deallocated = thread_deallocated();
    uint64_t *live = thread_allocated_live(), before = *live, peak = thread_peak();
    check_eq(tally_realloc(object, size), object);
    check_eq(thread_allocated() - allocated, usable(object));
    check_eq(thread_deallocated() - deallocated, usable(object));
    check_eq(*live - before, usable(object));
    check_eq(thread_peak(), peak);
}

TEST(counters_follow_a_realloc_that_changes_nothing) {
    start_heap();
    void *small = tally_malloc(100);
    uint64_t allocated = thread_allocated(), deallocated = thread_deallocated();
    check_eq(tally_realloc(small, 110), small); /* before anybody counts call by call */
    check_eq(thread_allocated() - allocated, usable(small));
    check_eq(thread_deallocated() - deallocated, usable(small));
    check_kept(small, 105);
    void *large = tally_malloc(100000);
    check_kept(large, 100001);
    tally_free(small);
    tally_free(large);
}

TEST(peak_is_the_largest_difference_since_the_reset) {
    start_heap();
    thread_reset_peak();
    check_eq(thread_peak(), 0);
    void *first = tally_malloc(100000);
    size_t one = usable(first);
    check_eq(thread_peak(), one);
    void *second = tally_malloc(100000);
    tally_free(first);
    check_eq(thread_peak(), 2 * one);
    thread_reset_peak();
    check_eq(thread_peak(), 0);
    tally_free(second);
    tally_free(tally_malloc(16));
    check_eq(thread_peak(), 0); /* below where it began */
    void *third = tally_malloc(200000);
    check_eq(thread_peak(), usable(third) - one);
}

enum { PEAK_BLOCKS = 100000, PEAK_BYTES = 112 };

static void *reach_a_peak(void *large) {
    static __thread void *blocks[PEAK_BLOCKS];
    size_t held = large != NULL ? 5 << 20 : 0;
    void *block = large != NULL ? tally_malloc(held) : NULL;
    for (unsigned i = 0; i < PEAK_BLOCKS; i++) {
        blocks[i] = tally_malloc(PEAK_BYTES);
    }
    for (unsigned i = 0; i < PEAK_BLOCKS; i++) {
        tally_free(blocks[i]);
    }
    tally_free(block);
    size_t most = held + (size_t)PEAK_BLOCKS * PEAK_BYTES;
    check(thread_peak() > most - (256 << 10) && thread_peak() <= most + 4096);
    return NULL;
}

TEST(peak_is_known_before_anybody_asks) {
    start_heap();
    run_threads(1, reach_a_peak, NULL);
    run_threads(3, reach_a_peak, &(int){0});
    heap_verify();
}

static void *count_in_thread(void *argument) {
    (void)argument;
    uint64_t *allocated = thread_allocated_live();
    uint64_t begin = *allocated;
    for (unsigned i = 0; i < 1000; i++) {
        tally_free(tally_malloc(64));
    }
    check_eq(*allocated - begin, 64000);
    return NULL;
}

TEST(each_thread_has_counters_of_its_own) {
    start_heap();
    uint64_t *allocated = thread_allocated_live();
    uint64_t before = *allocated;
    run_threads(4, count_in_thread, NULL);
    run_threads(4, count_in_thread, NULL);
    check_eq(*allocated, before);
    heap_verify();
}

TEST(counting_works_without_a_cache_and_in_window_mode) {
    check_child({
        start_heap();
        thread_set_cached(false);
        count_in_thread(NULL);
    });
    check_child({
        limit_address_space((rlim_t)1 << 30);
        start_heap();
        count_in_thread(NULL);
        thread_set_cached(false);
        thread_set_cached(true);
        check(is_parked());
    });
}
