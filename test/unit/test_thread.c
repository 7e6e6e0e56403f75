/* SPDX-License-Identifier: MIT
 *
 * test_thread.c - a thread earns its heap, gives everything back when it ends, and what it keeps can
 * be counted and found by others.
 */
#include "heap/thread.h"

#include "heap/arena.h"
#include "heap/cache.h"
#include "heap/classmap.h"
#include "heap/depot.h"
#include "heap/heap.h"
#include "heap/meta.h"
#include "unit.h"

enum { CLASS = 6, SIZE = 96 };

static void earn(void) {
    for (unsigned i = 0; thread_self() == NULL; i++) {
        check(i < 100);
    }
}

TEST(heap_is_earned_by_repeated_slow_calls) {
    start_heap();
    check(tls.self == NULL);
    unsigned calls = 0;
    while (thread_self() == NULL) {
        check_eq(thread_count(), 0);
        calls++;
    }
    check(calls > 4 && calls < 100);
    check_eq(thread_count(), 1);
    check_eq(thread_self(), tls.self);
    check_eq(tls.hot, &tls.self->hot);
    check(tls.self->arena < arena_count());
}

TEST(fast_path_numbers_are_those_of_the_classes) {
    start_heap();
    earn();
    const struct hot *hot = &tls.self->hot;
    static const struct rec no_class;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        check_eq(hot->rec[c].mult, size_classes[c].mult);
        check_eq(hot->rec[c].limit, size_classes[c].limit);
        check_eq(hot->rec[c].mask, size_classes[c].slab_mask);
    }
    check(memcmp(&hot->rec[0], &no_class, sizeof no_class) == 0);
    for (unsigned c = CLASS_COUNT; c < sizeof hot->rec / sizeof hot->rec[0]; c++) {
        check(memcmp(&hot->rec[c], &no_class, sizeof no_class) == 0);
    }
    for (size_t size = 0; size <= SMALL_MAX; size++) {
        check_eq(hot->tab[(size + 15) / 16], 4 * size_class_of(size));
    }
    check_eq(hot->secret, slab_secret);
}

TEST(thread_without_a_heap_has_magazines_that_are_empty_and_full) {
    for (unsigned c = 0; c < CLASS_COUNT; c++) {
        check(magazine_take_is_empty(tls.hot->rec[c].take));
        check(magazine_give_is_full(tls.hot->rec[c].give));
        check_eq(tls.hot->rec[c].limit, 0);
    }
}

static void *use_and_exit(void *unused) {
    (void)unused;
    void *blocks[300];
    for (unsigned i = 0; i < 300; i++) {
        blocks[i] = tally_malloc(SIZE);
        check(blocks[i] != NULL);
    }
    for (unsigned i = 0; i < 300; i++) {
        tally_free(blocks[i]);
    }
    check(tls.self != NULL);
    check(thread_count_cached(CLASS) > 0);
    return NULL;
}

TEST(thread_that_ends_gives_everything_back) {
    start_heap();
    for (unsigned i = 0; i < 10; i++) {
        run_threads(4, use_and_exit, NULL);
        check(thread_count() <= arena_count());
        thread_flush_left();
        check_eq(thread_count(), 0);
        check_eq(thread_count_cached(CLASS), 0);
        heap_verify();
    }
    struct heap_totals totals = heap_totals();
    check_eq(totals.live, 0);
    heap_trim();
    check_eq(heap_totals().cached, 0);
    check_eq(pages_totals().used, 0);
}

TEST(heaps_of_ended_threads_are_used_again) {
    start_heap();
    for (unsigned i = 0; i < 300; i++) { /* Depots fill and are drained meanwhile. */
        run_threads(1, use_and_exit, NULL);
    }
    size_t metadata = meta_bytes();
    for (unsigned i = 0; i < 300; i++) {
        run_threads(1, use_and_exit, NULL);
    }
    /* Perhaps a chunk or a magazine more, as chance has it, but no heap and no magazines per thread. */
    check(meta_bytes() < metadata + 100 * sizeof(struct magazine));
}

static void *use_after_exit(void *unused) {
    use_and_exit(unused);
    thread_exit();
    check(tls.self == NULL && tls.dead);
    for (unsigned i = 0; i < 100; i++) { /* What destructors may still do. */
        void *block = tally_malloc(SIZE);
        check(block != NULL);
        memset(block, 1, SIZE);
        tally_free(block);
        check(tls.self == NULL);
    }
    check(thread_self() == NULL);
    thread_exit();
    return NULL;
}

TEST(dead_thread_is_served_and_never_gets_another_heap) {
    start_heap();
    run_threads(3, use_after_exit, NULL);
    check(thread_count() <= arena_count());
    heap_trim();
    check_eq(thread_count(), 0);
    check_eq(pages_totals().used, 0);
    heap_verify();
}

static struct {
    pthread_barrier_t barrier;
    void *cached;
    void *live;
} other;

static void *keep_one_cached(void *unused) {
    (void)unused;
    void *blocks[100];
    for (unsigned i = 0; i < 100; i++) {
        blocks[i] = tally_malloc(SIZE);
    }
    for (unsigned i = 0; i < 99; i++) {
        tally_free(blocks[i]);
    }
    other.cached = blocks[98];
    other.live = blocks[99];
    pthread_barrier_wait(&other.barrier);
    pthread_barrier_wait(&other.barrier);
    tally_free(other.live);
    return NULL;
}

TEST(objects_in_magazines_of_any_thread_are_found_and_counted) {
    pthread_t thread;
    start_heap();
    pthread_barrier_init(&other.barrier, NULL, 2);
    check(pthread_create(&thread, NULL, keep_one_cached, NULL) == 0);
    pthread_barrier_wait(&other.barrier);
    check(thread_any_holds(CLASS, other.cached));
    check(!thread_any_holds(CLASS, other.live));
    check(!thread_any_holds(CLASS + 1, other.cached));
    check_eq(thread_count(), 1);
    size_t nslabs, nout, ncached;
    heap_class_counts(CLASS, &nslabs, &nout, &ncached);
    check_eq(thread_count_cached(CLASS) + depot_count(CLASS), ncached);
    check_eq(nout, ncached + 1);
    pthread_barrier_wait(&other.barrier);
    check(pthread_join(thread, NULL) == 0);
    check(thread_any_holds(CLASS, other.cached)); /* in the heap the thread left */
    thread_flush_left();
    check(!thread_any_holds(CLASS, other.cached));
}

static void *allocate_once(void *unused) {
    (void)unused;
    tally_free(tally_malloc(SIZE));
    return tls.self;
}

TEST(heap_a_thread_leaves_is_adopted_with_what_it_holds) {
    start_heap_with("narenas:1");
    run_threads(1, use_and_exit, NULL);
    check_eq(thread_count(), 1);
    size_t cached = thread_count_cached(CLASS);
    check(cached > 0);
    earn();
    struct thread *left = tls.self;
    check_eq(thread_count(), 1);
    check_eq(thread_count_cached(CLASS), cached);
    thread_exit();
    pthread_t thread;
    void *adopted;
    check(pthread_create(&thread, NULL, allocate_once, NULL) == 0);
    check(pthread_join(thread, &adopted) == 0);
    check_eq(adopted, left);
    check_eq(thread_count(), 1);
    heap_verify();
}

TEST(each_cached_object_is_found) {
    start_heap();
    earn();
    void *blocks[200];
    for (unsigned i = 0; i < 200; i++) {
        blocks[i] = tally_malloc(SIZE);
    }
    for (unsigned i = 0; i < 200; i++) {
        check(!thread_any_holds(CLASS, blocks[i]) && !depot_holds(CLASS, blocks[i]));
        tally_free(blocks[i]);
        bool cached = thread_any_holds(CLASS, blocks[i]) || depot_holds(CLASS, blocks[i]);
        check(cached || heap_look(blocks[i]).verdict == HEAP_DOUBLE_FREE ||
              heap_look(blocks[i]).verdict == HEAP_FREE_PAGES);
        check(!cached || !thread_any_holds(CLASS, blocks[i]) || !depot_holds(CLASS, blocks[i]));
    }
    check(thread_count_cached(CLASS) > 0);
    thread_flush();
    check_eq(thread_count_cached(CLASS), 0);
    heap_verify();
}

TEST(all_slow_keeps_threads_off_the_fast_path) {
    start_heap_with("all_slow:true");
    earn();
    check(tls.hot != &tls.self->hot);
    void *block = tally_malloc(SIZE);
    tally_free(block);
    check(tls.hot != &tls.self->hot);
    check_eq(heap_look(block).verdict, HEAP_DOUBLE_FREE);
}

static void *search_forever(void *stop) {
    void *nowhere = &other;
    while (!*(_Atomic bool *)stop) {
        check(!thread_any_holds(CLASS, nowhere));
        thread_count_cached(CLASS);
    }
    return NULL;
}

TEST(searching_beside_working_threads_is_safe) {
    static _Atomic bool stop;
    pthread_t searcher;
    start_heap();
    check(pthread_create(&searcher, NULL, search_forever, (void *)&stop) == 0);
    for (unsigned i = 0; i < 40; i++) {
        run_threads(3, use_and_exit, NULL);
    }
    stop = true;
    check(pthread_join(searcher, NULL) == 0);
    heap_verify();
}

static void *come_and_go(void *stop) {
    while (!*(_Atomic bool *)stop) {
        run_threads(2, use_and_exit, NULL);
    }
    return NULL;
}

TEST(child_of_a_fork_among_coming_and_going_threads_works) {
    static _Atomic bool stop;
    pthread_t thread;
    if (SANITIZED) {
        skip("sanitizers do not survive threads in a child that was forked beside threads");
    }
    start_heap();
    check(pthread_create(&thread, NULL, come_and_go, (void *)&stop) == 0);
    for (unsigned i = 0; i < 50; i++) {
        check_child({
            use_and_exit(NULL);
            run_threads(2, use_and_exit, NULL);
            thread_exit();
        });
    }
    stop = true;
    check(pthread_join(thread, NULL) == 0);
}
