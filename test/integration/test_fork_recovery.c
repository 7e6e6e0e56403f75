/* SPDX-License-Identifier: MIT
 *
 * test_fork_recovery.c - what a child does about the caches of threads it does not have.
 *
 * 64 threads fill their caches, in many classes, and stand still; then the process forks.  The
 * child must not pay for it at once (a child that execs soon would copy pages for nothing), but one
 * that goes on must come to own what those threads had cached, and lose nothing.  As the threads
 * stood still, the numbers are exact: not one live byte more or less.  When they are busy at the
 * moment of the fork, each magazine may lose one object.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#include <tally/tally.h>

#include "random.h"
#include "watch.h"

TEST_SETUP(require_tally);

enum { THREADS = 64, LARGEST_CACHED = 16384, BATCH = 24, KEPT = 50 };
enum { FEW_CALLS = 20, FEW_SIZES = 5, MOST_DIRTY_KIB = 256 };
/* What a process of one thread may cache: little, so that what the threads left stands out. */
/* Nobody else empties the caches of threads that stand still, or is about to when the process forks. */
const char *malloc_conf = "thread_cache_bytes:131072,depot_bytes:1048576,narenas:2,"
                          "background_thread:false";
enum { OWN_SHARE = (128 << 10) + 2 * (1 << 20) }; /* the depots of two arenas */
enum { WORK_AT_ONCE = 20000, MOST_WORK = 300 };

/* Sizes of many classes: four to a doubling. */
static size_t next_size(size_t size) {
    return size + (size < 64 ? 16 : size / 4);
}

static struct {
    pthread_t threads[THREADS];
    void *kept[THREADS][KEPT];
    pthread_barrier_t ready, leave;
    atomic_bool stop;
} g;

/* Leaves something in the magazines of every class. */
static void fill_caches(void) {
    for (unsigned pass = 0; pass < 4; pass++) {
        for (size_t size = 16; size <= LARGEST_CACHED; size = next_size(size)) {
            void *blocks[BATCH];
            for (unsigned i = 0; i < BATCH; i++) {
                blocks[i] = malloc(size);
                check(blocks[i] != NULL);
            }
            for (unsigned i = 0; i < BATCH; i++) {
                free(blocks[i]);
            }
        }
    }
}

static void *fill_and_stand_still(void *number) {
    uintptr_t self = (uintptr_t)number;
    for (unsigned i = 0; i < KEPT; i++) {
        g.kept[self][i] = malloc(i * i + 1);
        check(g.kept[self][i] != NULL);
    }
    fill_caches();
    pthread_barrier_wait(&g.ready);
    pthread_barrier_wait(&g.leave);
    return NULL;
}

static void start_threads(void *(*body)(void *)) {
    pthread_barrier_init(&g.ready, NULL, THREADS + 1);
    pthread_barrier_init(&g.leave, NULL, THREADS + 1);
    for (uintptr_t i = 0; i < THREADS; i++) {
        check_eq(pthread_create(&g.threads[i], NULL, body, (void *)i), 0);
    }
}

static void join_threads(void) {
    for (unsigned i = 0; i < THREADS; i++) {
        check_eq(pthread_join(g.threads[i], NULL), 0);
    }
}

static void free_kept(void) {
    for (unsigned t = 0; t < THREADS; t++) {
        for (unsigned i = 0; i < KEPT; i++) {
            free(g.kept[t][i]);
            g.kept[t][i] = NULL;
        }
    }
}

/* Takes from and gives to every class, more than any cache holds, so that all paths are visited. */
static void work(struct random *random) {
    static void *blocks[400];
    for (unsigned i = 0; i < WORK_AT_ONCE; i++) {
        void **slot = &blocks[random_below(random, 400)];
        free(*slot);
        *slot = malloc((size_t)1 << (4 + random_below(random, 11)));
        check(*slot != NULL);
    }
    for (unsigned i = 0; i < 400; i++) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
    step(0);
}

static struct tally_totals totals(void) {
    struct tally_totals now;
    tally_totals(&now);
    return now;
}

static void say_cached(const char *when, struct tally_totals now) {
    char text[2][24];
    test_say("    ", when, ": live ", test_decimal(text[0], (long long)now.live), ", cached ",
             test_decimal(text[1], (long long)now.cached), " bytes\n", NULL);
}

/* Works until the caches hold no more than `enough`, but not for ever. */
static struct tally_totals work_until_recovered(size_t enough) {
    struct random random = random_start(3, 3);
    for (unsigned i = 0; i < MOST_WORK && totals().cached > enough; i++) {
        work(&random);
    }
    return totals();
}

/* ---------------------------------------------------------------- threads that stand still */

/* The child of a process whose threads stood still: nothing is lost, and a purge finds all that was
 * cached. */
static void check_recovery(const char *who, const struct tally_totals *before) {
    struct tally_totals after = work_until_recovered(OWN_SHARE);
    say_cached(who, after);
    check_eq(after.live, before->live);
    check(after.cached <= OWN_SHARE);
    tally_verify();
    tally_purge();
    after = totals();
    check_eq(after.live, before->live);
    check_eq(after.cached, 0);
    free_kept();
    tally_verify();
}

static struct tally_totals start_still_threads(void) {
    start_threads(fill_and_stand_still);
    pthread_barrier_wait(&g.ready);
    struct tally_totals before = totals();
    say_cached("before the fork", before);
    check(before.cached > 2 * OWN_SHARE); /* Else there is nothing to see. */
    return before;
}

static void end_still_threads(void) {
    pthread_barrier_wait(&g.leave);
    join_threads();
    free_kept();
    tally_verify();
}

static void recover_from_still_threads(void) {
    struct tally_totals before = start_still_threads();
    check_child(check_recovery("in the child after work", &before));
    end_still_threads();
}

TEST(a_child_recovers_the_caches_of_threads_that_stood_still) {
    run_watched(recover_from_still_threads);
}

static void purge_at_once(const struct tally_totals *before) {
    tally_purge();
    struct tally_totals after = totals();
    check_eq(after.live, before->live);
    check_eq(after.cached, 0);
}

static void recover_by_purge(void) {
    struct tally_totals before = start_still_threads();
    check_child(purge_at_once(&before));
    end_still_threads();
}

TEST(a_purge_recovers_them_at_once) {
    run_watched(recover_by_purge);
}

/* The child of the child finds what the child has not recovered yet. */
static void be_a_child(const struct tally_totals *before) {
    free(malloc(100));
    check_child(check_recovery("in the grandchild after work", before));
}

static void recover_in_grandchild(void) {
    struct tally_totals before = start_still_threads();
    check_child(be_a_child(&before));
    end_still_threads();
}

TEST(a_grandchild_recovers_them_as_well) {
    run_watched(recover_in_grandchild);
}

/* ---------------------------------------------------------------- threads that are busy */

enum { BUSY_CHILDREN = 5, LOST_BYTES = 20000, MAGAZINE = 64, EMPTYING = 4 };

/* What each thread holds besides.  A block is shown here when it is allocated, and taken out before
 * it is freed. */
static _Atomic(void *) shown[THREADS][BATCH];

static void *fill_until_stopped(void *number) {
    uintptr_t self = (uintptr_t)number;
    for (unsigned i = 0; i < KEPT; i++) {
        g.kept[self][i] = malloc(i * i + 1);
    }
    fill_caches();
    pthread_barrier_wait(&g.ready);
    struct random random = random_start(5, self);
    while (!atomic_load(&g.stop)) {
        size_t size = (size_t)16 << random_below(&random, 11);
        for (unsigned i = 0; i < BATCH; i++) {
            atomic_store(&shown[self][i], malloc(size));
        }
        for (unsigned i = 0; i < BATCH; i++) {
            free(atomic_exchange(&shown[self][i], NULL));
        }
    }
    return NULL;
}

static void free_shown(void) {
    for (unsigned t = 0; t < THREADS; t++) {
        for (unsigned i = 0; i < BATCH; i++) {
            free(atomic_exchange(&shown[t][i], NULL));
        }
    }
}

/*
 * Of a thread that was inside the allocator, what it moved at that moment is lost: one object on
 * the fast path, up to a magazine on the slow one, and a block on its way to or from the table.  That
 * is little on average; the few that were just emptying a depot may each lose a magazine of the
 * largest objects.
 */
static void check_busy_recovery(size_t own, unsigned *lost_much) {
    struct tally_totals after = work_until_recovered(OWN_SHARE);
    check(after.cached <= OWN_SHARE);
    tally_verify();
    free_shown();
    free_kept();
    tally_purge();
    after = totals();
    say_cached("in a child of a busy process, at the end", after);
    check_eq(after.cached, 0);
    check(after.live >= own);
    size_t little = (size_t)THREADS * LOST_BYTES;
    check(after.live - own <= little + (size_t)EMPTYING * MAGAZINE * LARGEST_CACHED);
    *lost_much += after.live - own > little;
    tally_verify();
}

static void recover_from_busy_threads(void) {
    size_t own = totals().live;
    unsigned *lost_much = mmap(NULL, sizeof *lost_much, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0); /* by so many children */
    check(lost_much != MAP_FAILED);
    start_threads(fill_until_stopped);
    pthread_barrier_wait(&g.ready);
    for (unsigned child = 0; child < BUSY_CHILDREN; child++) {
        check_child(check_busy_recovery(own, lost_much));
        step(0);
    }
    check(*lost_much <= BUSY_CHILDREN / 2);
    atomic_store(&g.stop, true);
    join_threads();
    free_kept();
    tally_verify();
}

TEST(a_child_recovers_the_caches_of_threads_that_were_busy) {
    run_watched(recover_from_busy_threads);
}

/* ---------------------------------------------------------------- a child in a hurry */

enum { HURRIED_CHILDREN = 5 };

static size_t private_dirty_kib(void) {
    return proc_number("/proc/self/smaps_rollup", "Private_Dirty:");
}

static size_t growth_of_few_calls(void) {
    size_t before = private_dirty_kib();
    for (unsigned i = 0; i < FEW_CALLS; i++) {
        char *block = malloc(i % FEW_SIZES * 300 + 1);
        check(block != NULL);
        *block = 1;
        free(block);
    }
    size_t after = private_dirty_kib();
    char text[2][24];
    test_say("    private and dirty: ", test_decimal(text[0], (long long)before), " KiB, after ",
             "some calls ", test_decimal(text[1], (long long)after), " KiB\n", NULL);
    check(before > 0); /* 0 is what a kernel without this file would tell. */
    return after - before;
}

static void dirty_little(void) {
    start_threads(fill_and_stand_still);
    pthread_barrier_wait(&g.ready);
    private_dirty_kib(); /* The buffer and the code are touched once before. */
    for (unsigned child = 0; child < HURRIED_CHILDREN; child++) {
        check_child(check(growth_of_few_calls() <= MOST_DIRTY_KIB));
    }
    pthread_barrier_wait(&g.leave);
    join_threads();
    free_kept();
}

TEST(a_child_that_makes_few_calls_copies_few_pages) {
    run_watched(dirty_little);
}
