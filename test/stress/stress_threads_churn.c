/* SPDX-License-Identifier: MIT
 *
 * stress_threads_churn.c - threads come and go, a hundred thousand of them, and nothing grows.
 *
 * Every thread allocates in many classes, frees most of it itself and hands a few blocks on, which
 * a later one frees.  After the first thousand the process has all it needs: resident memory and
 * mappings must stay where they are.
 *
 * The tolerance is for what happens once: pages of libc's stacks that a thread reaches deeper than
 * those before it.  It does not depend on the number of threads, so with 100,000 of them a leak of
 * three bytes per thread fails.
 *
 * Where four threads live at a time and each takes other sizes, or two thousand have filled the
 * depots, it takes long until what waits there has touched all it ever will.  There growth may
 * reach the option depot_bytes, once.
 *
 * 3,000 threads; STRESS=1 takes 100,000, and the same with 2,000 others alive.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include <tally/tally.h>

#include "cpus.h"
#include "random.h"
#include "watch.h"

TEST_SETUP(require_tally);

enum { FIRST_THREADS = 1000, SLICE_THREADS = 3000, WHOLE_THREADS = 100000 };
enum { ALIVE_SLICE = 200, ALIVE_WHOLE = 2000 };
enum { TOLERATED_BYTES = 256 << 10, DEPOT_BYTES = 4 << 20, TOLERATED_MAPPINGS = 8 };
enum { BLOCKS = 100, HANDED = 5, STACK_BYTES = 64 << 10, MOST_AT_ONCE = 4 };
enum { VERIFY_EVERY = 20 }; /* threads, which is some thousand operations */

static struct {
    _Atomic(void *) handed[HANDED * MOST_AT_ONCE];
    pthread_attr_t small_stack;
    pthread_barrier_t ready, leave;
    unsigned at_once;
    bool sizes_differ; /* from thread to thread */
} g;

static size_t choose_size(struct random *random) {
    uint64_t kind = random_below(random, 100);
    return 1 + random_below(random, kind < 80 ? 600 : kind < 99 ? 8000 : 60000);
}

/* Leaves blocks to a later thread, and frees those that an earlier one left. */
static void hand_on(struct random *random) {
    for (unsigned i = 0; i < HANDED; i++) {
        void *block = malloc(random_below(random, 200) + 1);
        check(block != NULL);
        free(atomic_exchange(&g.handed[random_below(random, HANDED * MOST_AT_ONCE)], block));
    }
}

static void *live_shortly(void *number) {
    struct random random = random_start(17, g.sizes_differ ? (uintptr_t)number : 0);
    void *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t size = choose_size(&random);
        blocks[i] = malloc(size);
        check(blocks[i] != NULL);
        memset(blocks[i], 1, size < 32 ? size : 32);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
    hand_on(&random);
    return NULL;
}

/* Threads side by side end in any order. */
static void create_and_join(unsigned first, unsigned count) {
    pthread_t threads[MOST_AT_ONCE];
    for (unsigned i = 0; i < count; i += g.at_once) {
        for (uintptr_t j = 0; j < g.at_once; j++) {
            void *number = (void *)(first + i + j);
            check_eq(pthread_create(&threads[j], &g.small_stack, live_shortly, number), 0);
        }
        for (unsigned j = 0; j < g.at_once; j++) {
            check_eq(pthread_join(threads[j], NULL), 0);
        }
        if (i % VERIFY_EVERY == 0) {
            tally_verify();
        }
        step(0);
    }
}

static void say_change(const char *what, size_t before, size_t after) {
    char text[2][24];
    test_say("    ", what, ": ", test_decimal(text[0], (long long)before), " after the first ",
             "thousand, ", test_decimal(text[1], (long long)after), " at the end\n", NULL);
}

static void check_no_growth(size_t tolerated) {
    cpu_set_t allowed = cpus_allowed();
    for (unsigned i = 0; i < FIRST_THREADS; i += g.at_once) {
        cpus_use_one(allowed, i / g.at_once);
        create_and_join(i, g.at_once);
    }
    cpus_use(allowed);
    size_t bytes = test_anonymous_bytes(), mappings = count_mappings();
    check(bytes > 0);
    create_and_join(FIRST_THREADS, slice_or(SLICE_THREADS, WHOLE_THREADS) - FIRST_THREADS);
    size_t bytes_now = test_anonymous_bytes(), mappings_now = count_mappings();
    say_change("bytes", bytes, bytes_now);
    say_change("mappings", mappings, mappings_now);
    check(bytes_now <= bytes + tolerated);
    check(mappings_now <= mappings + TOLERATED_MAPPINGS);
}

static void make_small_stack(void) {
    check_eq(pthread_attr_init(&g.small_stack), 0);
    check_eq(pthread_attr_setstacksize(&g.small_stack, STACK_BYTES), 0);
}

static void churn_alike(void) {
    g.at_once = 1;
    make_small_stack();
    check_no_growth(TOLERATED_BYTES);
}

TEST(threads_that_come_and_go_grow_nothing) {
    test_allow_seconds(slice_or(TEST_SECONDS, 3600));
    run_watched(churn_alike);
}

static void churn_differently(void) {
    g.at_once = MOST_AT_ONCE;
    g.sizes_differ = true;
    make_small_stack();
    check_no_growth(TOLERATED_BYTES + DEPOT_BYTES);
}

TEST(threads_of_many_kinds_that_come_and_go_grow_no_more_than_the_depots) {
    test_allow_seconds(slice_or(TEST_SECONDS, 3600));
    run_watched(churn_differently);
}

static void *live_long(void *number) {
    live_shortly(number);
    pthread_barrier_wait(&g.ready);
    pthread_barrier_wait(&g.leave);
    return NULL;
}

static void churn_beside_living_threads(void) {
    static pthread_t living[ALIVE_WHOLE];
    unsigned alive = slice_or(ALIVE_SLICE, ALIVE_WHOLE);
    g.at_once = 1;
    make_small_stack();
    pthread_barrier_init(&g.ready, NULL, alive + 1);
    pthread_barrier_init(&g.leave, NULL, alive + 1);
    for (uintptr_t i = 0; i < alive; i++) {
        void *number = (void *)(i + 1000000);
        check_eq(pthread_create(&living[i], &g.small_stack, live_long, number), 0);
    }
    pthread_barrier_wait(&g.ready);
    check_no_growth(TOLERATED_BYTES + DEPOT_BYTES);
    pthread_barrier_wait(&g.leave);
    for (unsigned i = 0; i < alive; i++) {
        check_eq(pthread_join(living[i], NULL), 0);
    }
}

TEST(threads_that_come_and_go_beside_many_others_grow_no_more_than_the_depots) {
    test_allow_seconds(slice_or(TEST_SECONDS, 3600));
    run_watched(churn_beside_living_threads);
}
