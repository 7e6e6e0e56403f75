/* SPDX-License-Identifier: MIT
 *
 * stress_threads_live.c - what a thread costs that holds one block and sleeps.
 *
 * Ten thousand threads with stacks of 64 KiB, each of which has allocated one block of 1,000 bytes
 * and written to all of it.  Resident memory per thread, with its stack and libc's own pages, must
 * not be above 12 KiB.  The slice has a thousand threads, STRESS=1 ten thousand.
 *
 * A second kind of thread has also allocated and freed in many sizes before it sleeps.  What it has
 * cached goes once it sleeps: at a call of malloc_trim, or by itself.  What is left is its heap;
 * the pages of its magazines go, too.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>

#include "watch.h"

TEST_SETUP(require_tally);

enum { SLICE_THREADS = 1000, WHOLE_THREADS = 10000, STACK_BYTES = 64 << 10 };
enum { BLOCK_BYTES = 1000, MOST_BYTES_PER_THREAD = 12 << 10, MOST_BYTES_AFTER_WORK = 48 << 10 };

static struct {
    void *blocks[WHOLE_THREADS];
    pthread_t threads[WHOLE_THREADS];
    pthread_barrier_t ready, leave;
    bool busy_first, calls_trim;
    unsigned count;
} g;

static void use_many_sizes(void) {
    for (size_t size = 16; size <= 32768; size += size / 4) {
        void *blocks[40];
        for (unsigned i = 0; i < 40; i++) {
            blocks[i] = malloc(size);
            check(blocks[i] != NULL);
            memset(blocks[i], 1, size);
        }
        for (unsigned i = 0; i < 40; i++) {
            free(blocks[i]);
        }
    }
}

static void *hold_one_block(void *number) {
    if (g.busy_first) {
        use_many_sizes();
    }
    void *block = malloc(BLOCK_BYTES);
    check(block != NULL);
    memset(block, 1, BLOCK_BYTES);
    g.blocks[(uintptr_t)number] = block;
    step(0);
    pthread_barrier_wait(&g.ready);
    pthread_barrier_wait(&g.leave);
    return NULL;
}

static void start_threads(void) {
    pthread_attr_t small_stack;
    check_eq(pthread_attr_init(&small_stack), 0);
    check_eq(pthread_attr_setstacksize(&small_stack, STACK_BYTES), 0);
    for (uintptr_t i = 0; i < g.count; i++) {
        int error = pthread_create(&g.threads[i], &small_stack, hold_one_block, (void *)i);
        if (error != 0) {
            skip("this system does not let a process have that many threads");
        }
    }
}

/* It takes a moment until all sleep. */
static void await_less(size_t bytes) {
    size_t before = SIZE_MAX;
    for (size_t now; (now = test_anonymous_bytes()) > bytes; before = now) {
        if (g.calls_trim) {
            malloc_trim(0);
        }
        if (now != before) {
            step(1);
        }
        nap_us(LONGEST_NAP_US);
    }
}

/* Returns bytes per thread. */
static size_t measure(void) {
    pthread_barrier_init(&g.ready, NULL, g.count + 1);
    pthread_barrier_init(&g.leave, NULL, g.count + 1);
    memset(g.blocks, 0, sizeof g.blocks);
    memset(g.threads, 0, sizeof g.threads); /* Pages of our own, touched before we measure. */
    size_t before = test_anonymous_bytes();
    start_threads();
    pthread_barrier_wait(&g.ready);
    if (g.busy_first) {
        await_less(before + g.count * (size_t)MOST_BYTES_AFTER_WORK);
    }
    size_t after = test_anonymous_bytes();
    check(before > 0 && after > before);
    pthread_barrier_wait(&g.leave);
    for (unsigned i = 0; i < g.count; i++) {
        check_eq(pthread_join(g.threads[i], NULL), 0);
        free(g.blocks[i]);
    }
    return (after - before) / g.count;
}

static void measure_and_check(size_t most) {
    char text[2][24];
    size_t bytes = measure();
    test_say("    ", test_decimal(text[0], g.count), " threads, ",
             test_decimal(text[1], (long long)bytes), " bytes each\n", NULL);
    check(bytes <= most);
}

static void measure_sleepers(void) {
    measure_and_check(MOST_BYTES_PER_THREAD);
}

TEST(a_thread_that_holds_one_block_costs_at_most_12_kib) {
    test_allow_seconds(600);
    g.count = slice_or(SLICE_THREADS, WHOLE_THREADS);
    run_watched(measure_sleepers);
}

static void measure_busy(void) {
    measure_and_check(MOST_BYTES_AFTER_WORK + 4096); /* after it was below for a moment */
}

static void measure_after_work(bool calls_trim) {
    test_allow_seconds(600);
    g.count = slice_or(SLICE_THREADS / 3, SLICE_THREADS); /* enough for a background thread */
    g.busy_first = true;
    g.calls_trim = calls_trim;
    run_watched(measure_busy);
}

TEST(a_thread_that_sleeps_after_work_keeps_no_cache_when_memory_is_trimmed) {
    measure_after_work(true);
}

TEST(a_thread_that_sleeps_after_work_keeps_no_cache_for_long) {
    measure_after_work(false);
}
