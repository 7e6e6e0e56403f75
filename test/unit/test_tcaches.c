/* SPDX-License-Identifier: MIT
 *
 * test_tcaches.c - caches by number: made, used by several threads, emptied, destroyed, found by a
 * search for double frees, and whole in the child of a fork.
 */
#include "heap/tcaches.h"

#include <semaphore.h>

#include "heap/bin.h"
#include "heap/counts.h"
#include "heap/depot.h"
#include "heap/heap.h"
#include "heap/thread.h"
#include "unit.h"

enum { SIZE = 200, COUNT = 100 };

static void *alloc_from(int id, size_t size) {
    bool zeroed;
    void *object = place_alloc((struct place){PLACE_OWN, id}, size, 1, &zeroed);
    check(object != NULL);
    return object;
}

static void free_into(int id, void *object) {
    struct heap_object found = heap_look(object);
    check_eq(found.verdict, HEAP_LIVE);
    check(place_free((struct place){PLACE_OWN, id}, &found));
}

/* Leaves some objects in the cache. */
static void fill(int id) {
    void *objects[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        objects[i] = alloc_from(id, SIZE);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        free_into(id, objects[i]);
    }
}

static size_t cached(void) {
    return thread_count_cached(size_class_of(SIZE));
}

TEST(numbers_are_given_lowest_first_and_again) {
    start_heap();
    check(!tcaches_exists(0) && !tcaches_exists(TCACHES_MOST) && !tcaches_exists(~0u));
    for (int i = 0; i < 10; i++) {
        check_eq(tcaches_create(), i);
        check(tcaches_exists((unsigned)i));
    }
    tcaches_destroy(7);
    tcaches_destroy(3);
    check(!tcaches_exists(3) && !tcaches_exists(7));
    check_eq(tcaches_create(), 3);
    check_eq(tcaches_create(), 7);
    check_eq(tcaches_create(), 10);
}

TEST(numbers_come_to_an_end) {
    start_heap();
    for (int i = 0; i < TCACHES_MOST; i++) {
        check_eq(tcaches_create(), i);
    }
    check_eq(tcaches_create(), -1);
    tcaches_destroy(4000);
    check_eq(tcaches_create(), 4000);
}

TEST(unknown_numbers_do_nothing) {
    start_heap();
    tcaches_flush(5);
    tcaches_destroy(5);
    tcaches_flush(~0u);
    tcaches_destroy(~0u);
    check(!tcaches_exists(5));
}

TEST(cache_keeps_objects_until_it_is_flushed_or_destroyed) {
    start_heap();
    int id = tcaches_create();
    fill(id);
    check(cached() > 0);
    tcaches_flush((unsigned)id);
    check_eq(cached(), 0);
    fill(id);
    check(cached() > 0);
    tcaches_destroy((unsigned)id);
    check_eq(cached(), 0);
    heap_trim();
    check_eq(heap_totals().cached, 0);
    heap_verify();
}

TEST(two_caches_do_not_share_objects) {
    start_heap_with("narenas:1");
    int a = tcaches_create();
    int b = tcaches_create();
    fill(a);
    fill(b);
    void *seen[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        seen[i] = alloc_from(i % 2 == 0 ? a : b, SIZE);
        for (unsigned k = 0; k < i; k++) {
            check(seen[k] != seen[i]);
        }
    }
}

TEST(object_in_an_explicit_cache_is_known_to_be_free) {
    start_heap();
    int id = tcaches_create();
    fill(id);
    void *object = alloc_from(id, SIZE);
    free_into(id, object);
    check(thread_any_holds(size_class_of(SIZE), object));
    check_eq(heap_look(object).verdict, HEAP_DOUBLE_FREE);
    check_dies(tally_free(object), "already free", SIGABRT);
}

TEST(explicit_cache_takes_nothing_from_depots) {
    start_heap_with("narenas:1");
    struct place place = {arena_create(NULL), tcaches_create()};
    bool zeroed;
    for (unsigned i = 0; i < 40; i++) { /* It has magazines now, and its arena a slab. */
        check(place_alloc(place, SIZE, 1, &zeroed) != NULL);
    }
    static void *objects[5000];
    for (unsigned i = 0; i < 5000; i++) {
        objects[i] = tally_malloc(SIZE);
    }
    for (unsigned i = 0; i < 5000; i++) {
        tally_free(objects[i]);
    }
    check(depot_count(size_class_of(SIZE)) > 0);
    for (unsigned i = 0; i < 500; i++) {
        check_eq(arena_of(place_alloc(place, SIZE, 1, &zeroed)), place.arena);
    }
}

/* ---------------------------------------------------------------- threads and forks */

static int shared;

static void *use_shared(void *argument) {
    struct random random = random_start((uintptr_t)&argument, 1);
    void *held[50] = {NULL};
    for (unsigned i = 0; i < 20000 / SLOWER; i++) {
        unsigned k = (unsigned)random_below(&random, 50);
        if (held[k] == NULL) {
            held[k] = alloc_from(shared, 16 + random_below(&random, 3000));
            *(void **)held[k] = held + k;
        } else {
            check_eq(*(void **)held[k], held + k); /* nobody else has it */
            free_into(shared, held[k]);
            held[k] = NULL;
        }
    }
    for (unsigned k = 0; k < 50; k++) {
        if (held[k] != NULL) {
            free_into(shared, held[k]);
        }
    }
    return NULL;
}

TEST(threads_share_a_cache_and_own_each_object_alone) {
    start_heap();
    shared = tcaches_create();
    size_t before = heap_totals().live;
    run_threads(4, use_shared, NULL);
    tcaches_destroy((unsigned)shared);
    heap_trim();
    check_eq(heap_totals().live, before);
    heap_verify();
}

static void *use_for_ever(void *argument) {
    for (;;) {
        use_shared(argument);
    }
    return NULL;
}

TEST(child_of_a_fork_uses_a_cache_whose_user_vanished) {
    start_heap();
    shared = tcaches_create();
    pthread_t threads[3];
    for (unsigned i = 0; i < 3; i++) {
        check(pthread_create(&threads[i], NULL, use_for_ever, NULL) == 0);
    }
    for (unsigned i = 0; i < 100 / SLOWER; i++) {
        check_child({
            fill(shared);
            tcaches_flush((unsigned)shared);
            fill(shared);
            tcaches_destroy((unsigned)shared);
            check_eq(tcaches_create(), shared);
            fill(shared);
        });
    }
}

/* ---------------------------------------------------------------- a fork at a chosen moment */

static bool forks_at_next_put;

static sem_t fork_now, fork_done;

/* The thread that empties the cache is not in the child, where the heap shrinks. */
static void *fork_when_told(void *object) {
    check(sem_wait(&fork_now) == 0);
    check_child({
        bin_set_shrinking(true);
        free_into(shared, object);
        fill(shared);
        tcaches_destroy((unsigned)shared);
    });
    check(sem_post(&fork_done) == 0);
    return NULL;
}

void __real_depot_put(unsigned arena, unsigned size_class, void **slots, unsigned count);
void __wrap_depot_put(unsigned arena, unsigned size_class, void **slots, unsigned count);
void __wrap_depot_put(unsigned arena, unsigned size_class, void **slots, unsigned count) {
    if (forks_at_next_put) {
        forks_at_next_put = false;
        check(sem_post(&fork_now) == 0 && sem_wait(&fork_done) == 0);
    }
    __real_depot_put(arena, size_class, slots, count);
}

TEST(cache_that_was_being_emptied_is_used_while_the_heap_shrinks) {
    start_heap();
    shared = tcaches_create();
    void *object = alloc_from(shared, SIZE);
    fill(shared);
    pthread_t thread;
    check(pthread_create(&thread, NULL, fork_when_told, object) == 0);
    forks_at_next_put = true;
    tcaches_flush((unsigned)shared);
    check(!forks_at_next_put && pthread_join(thread, NULL) == 0);
}
