/* SPDX-License-Identifier: MIT
 *
 * test_limits_set.c - limit_soft and limit_hard as a program meets them: set by a call, with a
 * callback that allocates, and with threads at the limit.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <tally/tally.h>

#include "random.h"
#include "test.h"

TEST_SETUP(require_tally);

enum { THREADS = 4 };
static const size_t MIB = 1024 * 1024;

struct block {
    struct block *next;
    unsigned char bytes[];
};

/* Sizes from a list node to a few large blocks. */
static size_t some_size(struct random *random) {
    size_t top = (size_t)32 << random_below(random, 14);
    return sizeof(struct block) + top / 2 + random_below(random, top / 2);
}

static struct block *fill(struct random *random, unsigned failures, size_t *sum) {
    struct block *list = NULL;
    while (failures > 0) {
        size_t size = some_size(random);
        errno = 0;
        struct block *block = malloc(size);
        if (block == NULL) {
            check_eq(errno, ENOMEM);
            failures--;
            continue;
        }
        memset(block->bytes, 1, size - sizeof *block);
        block->next = list;
        list = block;
        *sum += size;
    }
    return list;
}

static void free_list(struct block *list) {
    while (list != NULL) {
        struct block *next = list->next;
        free(list);
        list = next;
    }
}

/* ---------------------------------------------------------------- hard */

TEST(hard_limit_holds_for_every_way_to_allocate) {
    tally_set_limits(0, 64 * MIB);
    void *keep = malloc(50 * MIB);
    check(keep != NULL);
    errno = 0;
    check(malloc(20 * MIB) == NULL);
    check_eq(errno, ENOMEM);
    check(calloc(20, MIB) == NULL);
    check(aligned_alloc(4096, 20 * MIB) == NULL);
    void *result = &result;
    check_eq(posix_memalign(&result, 4096, 20 * MIB), ENOMEM);
    check_eq(result, &result);
    errno = 0;
    check(realloc(keep, 80 * MIB) == NULL);
    check_eq(errno, ENOMEM);
    memset(keep, 1, 50 * MIB); /* Still there. */
    free(keep);
    check((keep = malloc(50 * MIB)) != NULL);
    free(keep);
    tally_verify();
}

TEST(most_of_a_hard_limit_is_usable_and_never_exceeded) {
    struct random random = random_start(1, 0);
    const size_t hard = 100 * MIB;
    tally_set_limits(0, hard);
    for (unsigned round = 0; round < 4; round++) {
        size_t sum = 0;
        struct block *list = fill(&random, 50, &sum);
        check(tally_held() <= hard);
        check(sum >= hard / 100 * 80);
        free_list(list);
    }
    check(test_anonymous_bytes() < hard + 16 * MIB);
    tally_set_limits(0, 0);
    void *block = malloc(2 * hard);
    check(block != NULL);
    free(block);
    tally_verify();
}

static void *fill_and_free(void *argument) {
    struct random random = random_start(2, (uintptr_t)argument);
    for (unsigned round = 0; round < 20; round++) {
        size_t sum = 0;
        free_list(fill(&random, 10, &sum));
    }
    return NULL;
}

TEST(threads_at_the_hard_limit_get_null_and_go_on) {
    const size_t hard = 60 * MIB;
    tally_set_limits(0, hard);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        check(pthread_create(&threads[i], NULL, fill_and_free, (void *)i) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    check(tally_held() <= hard);
    void *block = malloc(30 * MIB);
    check(block != NULL);
    free(block);
    tally_verify();
}

/* ---------------------------------------------------------------- soft */

static _Atomic unsigned calls;
static _Atomic size_t last_held;

static void count_call(size_t held, void *context) {
    check_eq(context, &calls);
    last_held = held;
    calls++;
    /* No lock is held and nothing is in the middle of a change: everything may be called. */
    void *small = malloc(100), *large = malloc(MIB);
    check(small != NULL && large != NULL);
    free(small);
    free(large);
    check(tally_held() > 0);
    tally_verify();
    errno = EDOM; /* Not what the allocation that led here leaves behind. */
}

TEST(soft_limit_is_told_once_for_each_crossing) {
    tally_on_soft_limit(count_call, &calls);
    tally_set_limits(40 * MIB, 0);
    for (unsigned round = 1; round <= 5; round++) {
        void *low = malloc(30 * MIB);
        check_eq(calls, round - 1);
        errno = 0;
        void *high = malloc(20 * MIB);
        check_eq(calls, round);
        check_eq(errno, 0);
        check(last_held >= 50 * MIB);
        free(malloc(10 * MIB));
        check_eq(calls, round);
        free(high);
        free(low);
        tally_purge(); /* Kept pages count: the next round starts without. */
    }
}

TEST(soft_limit_is_noticed_by_small_allocations) {
    enum { COUNT = 200000 };
    static void *objects[COUNT];
    tally_on_soft_limit(count_call, &calls);
    tally_set_limits(10 * MIB, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        check((objects[i] = malloc(100)) != NULL);
    }
    check_eq(calls, 1);
    check(last_held > 10 * MIB && last_held < 12 * MIB);
    for (unsigned i = 0; i < COUNT; i++) {
        free(objects[i]);
    }
    tally_purge();
    for (unsigned i = 0; i < COUNT; i++) {
        check((objects[i] = malloc(100)) != NULL);
    }
    check_eq(calls, 2);
}

TEST(freed_pages_make_way_below_the_soft_limit) {
    tally_set_limits(40 * MIB, 0);
    void *block = malloc(30 * MIB);
    memset(block, 1, 30 * MIB);
    void *fence = malloc(100000); /* Keeps the block from growing over its neighbours. */
    free(block);
    void *larger = malloc(35 * MIB);
    check(larger != NULL);
    check(tally_held() <= 40 * MIB);
    check(test_anonymous_bytes() < 20 * MIB);
    free(fence);
    free(larger);
}

static void *spare[8];

static void free_spare(size_t held, void *context) {
    (void)context;
    check(held > 40 * MIB);
    calls++;
    for (unsigned i = 0; i < 8; i++) {
        free(spare[i]);
        spare[i] = NULL;
    }
}

TEST(callback_may_free_what_the_program_can_spare) {
    for (unsigned i = 0; i < 8; i++) {
        check((spare[i] = malloc(4 * MIB)) != NULL);
    }
    tally_on_soft_limit(free_spare, NULL);
    tally_set_limits(40 * MIB, 0);
    void *block = malloc(20 * MIB);
    check_eq(calls, 1);
    check(tally_held() < 40 * MIB);
    tally_purge();
    check(tally_held() < 24 * MIB);
    free(block);
}

static void *cross_often(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < 200; i++) {
        void *low = malloc(8 * MIB), *high = malloc(8 * MIB);
        check(low != NULL && high != NULL);
        free(low);
        free(high);
    }
    return NULL;
}

static void count_only(size_t held, void *context) {
    (void)held;
    (void)context;
    calls++;
    free(malloc(100));
}

TEST(threads_cross_the_soft_limit_together) {
    tally_on_soft_limit(count_only, NULL);
    tally_set_limits(12 * MIB, 0);
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        check(pthread_create(&threads[i], NULL, cross_often, NULL) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    check(calls >= 1 && calls <= THREADS * 200 * 2);
    check(tally_held() <= 12 * MIB);
    tally_verify();
}
