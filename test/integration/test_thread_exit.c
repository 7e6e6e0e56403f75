/* SPDX-License-Identifier: MIT
 *
 * test_thread_exit.c - everything that may happen while a thread goes away.
 *
 * A thread's end runs destructors of keys, up to four rounds of them, and then libc frees what it
 * kept for the thread.  All of that allocates and frees, some of it after the allocator has given
 * the thread's heap up.  Threads here have allocated before, or only freed, or done neither; they
 * are joined, detached or cancelled; and others free their blocks meanwhile.  Each test ends with
 * the number of live bytes it began with, the number of heaps it began with, and a sound heap.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>

#include <tally/tally.h>

#include "random.h"
#include "watch.h"

TEST_SETUP(require_tally);

enum { KEYS = 8, ROUNDS = 4, SLICE_THREADS = 400, WHOLE_THREADS = 100000 };

static size_t live_bytes(void) {
    struct tally_totals now;
    tally_totals(&now);
    return now.live;
}

/* mallinfo2 tells the number of threads' heaps in this field. */
static size_t heaps(void) {
    return mallinfo2().ordblks;
}

static void run_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    check_eq(pthread_create(&thread, NULL, body, argument), 0);
    check_eq(pthread_join(thread, NULL), 0);
}

static void *churn(void *unused) {
    for (unsigned i = 0; i < 300; i++) {
        char *block = malloc(i * 13 % 3000 + 1);
        check(block != NULL);
        *block = 1;
        free(block);
    }
    return unused;
}

/* Nothing may be left of the threads that a test ran.  libc keeps stacks and what belongs to them,
 * so a test runs each kind of thread once before it notes where it stands.  A heap or two may wait
 * for the next thread: a purge ends that. */
struct stand {
    size_t live, heaps;
};

static struct stand take_stand(void) {
    churn(NULL); /* The main thread earns its own heap now and not later. */
    tally_purge();
    struct stand stand = {live_bytes(), heaps()};
    return stand;
}

/* `of_libc` are bytes that libc may hold for stacks it keeps. */
static void check_stand(struct stand before, size_t of_libc) {
    tally_verify();
    check(live_bytes() >= before.live && live_bytes() <= before.live + of_libc);
    tally_purge();
    check_eq(heaps(), before.heaps);
    tally_verify();
}

/* ---------------------------------------------------------------- destructors of keys */

struct armed {
    unsigned key, round;
    char *block;
};

static pthread_key_t keys[KEYS];
static atomic_uint destructor_calls;

static size_t size_for(unsigned key, unsigned round) {
    return (size_t)1 << (key * 2 + round);
}

static struct armed *new_armed(unsigned key, unsigned round) {
    struct armed *armed = malloc(sizeof *armed);
    check(armed != NULL);
    *armed = (struct armed){key, round, malloc(size_for(key, round))};
    check(armed->block != NULL);
    armed->block[0] = (char)round;
    return armed;
}

/* Frees, allocates, and arms its key again as long as libc promises another round. */
static void destroy(void *value) {
    struct armed *armed = value;
    unsigned key = armed->key, round = armed->round;
    check_eq(armed->block[0], (char)round);
    free(armed->block);
    free(armed);
    free(malloc(100));
    free(malloc(size_for(key, round) + 40000));
    atomic_fetch_add(&destructor_calls, 1);
    if (round < ROUNDS) {
        check_eq(pthread_setspecific(keys[key], new_armed(key, round + 1)), 0);
    }
}

static void make_keys(void) {
    for (unsigned i = 0; i < KEYS; i++) {
        check_eq(pthread_key_create(&keys[i], destroy), 0);
    }
}

static void set_keys(void **values) {
    for (unsigned i = 0; i < KEYS; i++) {
        check_eq(pthread_setspecific(keys[i], values[i]), 0);
    }
}

/* The blocks come from another thread: this one has never allocated when its destructors run. */
static void *never_allocate(void *values) {
    set_keys(values);
    return NULL;
}

static void *only_free(void *values) {
    void **all = values;
    set_keys(values);
    for (unsigned i = KEYS; all[i] != NULL; i++) {
        free(all[i]);
    }
    return NULL;
}

static void *allocate_too(void *values) {
    churn(NULL);
    set_keys(values);
    free(malloc(50));
    return NULL;
}

enum { FOREIGN = 100 };

static void run_armed_thread(void *(*body)(void *)) {
    void *values[KEYS + FOREIGN + 1] = {NULL};
    for (unsigned i = 0; i < KEYS; i++) {
        values[i] = new_armed(i, 1);
    }
    for (unsigned i = 0; body == only_free && i < FOREIGN; i++) {
        values[KEYS + i] = malloc(i * 11 + 1);
    }
    run_thread(body, values);
}

static void try_destructors(void *(*body)(void *)) {
    unsigned threads = slice_or(SLICE_THREADS, WHOLE_THREADS / 3);
    test_allow_seconds(slice_or(TEST_SECONDS, 1200));
    make_keys();
    run_armed_thread(body);
    struct stand stand = take_stand();
    for (unsigned i = 0; i < threads; i++) {
        run_armed_thread(body);
    }
    check_eq(destructor_calls, (threads + 1) * KEYS * ROUNDS);
    check_stand(stand, 0);
}

TEST(destructors_allocate_in_a_thread_that_never_allocated) {
    try_destructors(never_allocate);
}

TEST(destructors_allocate_in_a_thread_that_only_freed) {
    try_destructors(only_free);
}

TEST(destructors_allocate_in_a_thread_that_allocated) {
    try_destructors(allocate_too);
}

/* ---------------------------------------------------------------- detached threads */

static sem_t ended;

static void tell_the_end(void *unused) {
    (void)unused;
    churn(NULL);
    sem_post(&ended);
}

static pthread_key_t last_key;

static void *be_detached(void *unused) {
    (void)unused;
    check_eq(pthread_detach(pthread_self()), 0);
    churn(NULL);
    check_eq(pthread_setspecific(last_key, (void *)1), 0);
    return NULL;
}

static void start_detached(void) {
    pthread_t thread;
    while (pthread_create(&thread, NULL, be_detached, NULL) != 0) {
        sched_yield(); /* Those that ended may not be gone yet. */
    }
}

/* The threads are over when the kernel has only the main one left. */
static void wait_until_alone(void) {
    while (proc_number("/proc/self/status", "Threads:") > 1) {
        nap_us(1000);
    }
}

static void end_detached(void) {
    check_eq(sem_init(&ended, 0, 0), 0);
    check_eq(pthread_key_create(&last_key, tell_the_end), 0);
    run_thread(churn, NULL);
    struct stand stand = take_stand();
    for (unsigned i = 0; i < slice_or(SLICE_THREADS, WHOLE_THREADS); i++) {
        start_detached();
        if (i % 8 == 7) {
            for (unsigned j = 0; j < 8; j++) {
                sem_wait(&ended);
            }
        }
        step(0);
    }
    wait_until_alone();
    run_thread(churn, NULL); /* libc frees the stacks of detached threads when it makes another. */
    check_stand(stand, 8 * 1024);
}

TEST(detached_threads_leave_nothing_behind) {
    test_allow_seconds(slice_or(TEST_SECONDS, 1200));
    run_watched(end_detached);
}

/* ---------------------------------------------------------------- cancelled threads */

struct cancelled {
    atomic_bool running;
    void *block; /* what the clean-up handler frees */
};

static void free_block(void *argument) {
    struct cancelled *cancelled = argument;
    free(cancelled->block);
    free(malloc(1000));
}

/* A cleanup handler makes what the thread holds at its end known. */
static void *wait_for_cancel(void *argument) {
    struct cancelled *cancelled = argument;
    pthread_cleanup_push(free_block, cancelled);
    for (unsigned i = 0;; i++) {
        cancelled->block = malloc(i % 5000 + 1);
        atomic_store(&cancelled->running, true);
        pthread_testcancel();
        free(cancelled->block);
        cancelled->block = NULL;
        pthread_testcancel();
    }
    pthread_cleanup_pop(1);
    return NULL;
}

static void cancel_one(void) {
    struct cancelled cancelled = {false, NULL};
    pthread_t thread;
    void *result = NULL;
    check_eq(pthread_create(&thread, NULL, wait_for_cancel, &cancelled), 0);
    while (!atomic_load(&cancelled.running)) {
        sched_yield();
    }
    check_eq(pthread_cancel(thread), 0);
    check_eq(pthread_join(thread, &result), 0);
    check_eq(result, PTHREAD_CANCELED);
    step(0);
}

static void cancel_many(void) {
    cancel_one();
    struct stand stand = take_stand();
    for (unsigned i = 0; i < slice_or(SLICE_THREADS, 10000); i++) {
        cancel_one();
    }
    check_stand(stand, 0);
}

TEST(cancelled_threads_leave_nothing_behind) {
    test_allow_seconds(slice_or(TEST_SECONDS, 1200));
    run_watched(cancel_many);
}

/* No call of the allocator is a point where a cancelled thread ends: those who hold locks of their
 * own around a malloc rely on it. */
static void *use_allocator_while_cancelled(void *reached_end) {
    check_eq(pthread_cancel(pthread_self()), 0);
    for (size_t size = 1; size < 10 << 20; size *= 3) {
        char *block = malloc(size);
        check(block != NULL);
        *block = 1;
        block = realloc(block, size * 2);
        free(block);
        free(calloc(3, size));
        free(aligned_alloc(4096, size));
    }
    malloc_trim(0);
    tally_purge();
    *(bool *)reached_end = true;
    pthread_testcancel();
    return NULL;
}

TEST(the_allocator_has_no_cancellation_points) {
    bool reached_end = false;
    pthread_t thread;
    void *result = NULL;
    check_eq(pthread_create(&thread, NULL, use_allocator_while_cancelled, &reached_end), 0);
    check_eq(pthread_join(thread, &result), 0);
    check(reached_end);
    check_eq(result, PTHREAD_CANCELED);
    tally_verify();
}

/* ---------------------------------------------------------------- ends beside frees of others */

enum { MAKERS = 4, FREERS = 2, HANDED = 200, MAILBOXES = 16 };

struct parcel {
    struct parcel *next;
    size_t size;
};

static struct {
    _Atomic(struct parcel *) boxes[MAILBOXES];
    atomic_uint live_makers;
} mail;

static void post(struct parcel *parcel, unsigned box) {
    struct parcel *top = atomic_load(&mail.boxes[box]);
    do {
        parcel->next = top;
    } while (!atomic_compare_exchange_weak(&mail.boxes[box], &top, parcel));
}

static bool empty_boxes(void) {
    bool found = false;
    for (unsigned box = 0; box < MAILBOXES; box++) {
        struct parcel *parcel = atomic_exchange(&mail.boxes[box], NULL);
        while (parcel != NULL) {
            struct parcel *next = parcel->next;
            check(malloc_usable_size(parcel) >= parcel->size);
            free(parcel);
            parcel = next;
            found = true;
        }
    }
    return found;
}

/* Posts its blocks and ends at once, so that they are freed while it goes away. */
static void *post_and_end(void *number) {
    struct random random = random_start(13, (uintptr_t)number);
    for (unsigned i = 0; i < HANDED; i++) {
        size_t size = sizeof(struct parcel) + random_below(&random, i % 40 == 0 ? 100000 : 1500);
        struct parcel *parcel = malloc(size);
        check(parcel != NULL);
        parcel->size = size;
        post(parcel, i % MAILBOXES);
    }
    return NULL;
}

static void *make_short_threads(void *number) {
    for (unsigned i = 0; i < slice_or(SLICE_THREADS, WHOLE_THREADS) / MAKERS; i++) {
        run_thread(post_and_end, (void *)((uintptr_t)number * 1000000 + i));
        step((unsigned)(uintptr_t)number);
    }
    atomic_fetch_sub(&mail.live_makers, 1);
    return NULL;
}

static void *free_until_done(void *unused) {
    bool done;
    do {
        done = atomic_load(&mail.live_makers) == 0;
        if (!empty_boxes()) {
            sched_yield();
        }
    } while (!done);
    empty_boxes();
    return unused;
}

static void post_and_free(void) {
    pthread_t threads[MAKERS + FREERS];
    struct stand stand = take_stand();
    atomic_store(&mail.live_makers, MAKERS);
    for (uintptr_t i = 0; i < MAKERS + FREERS; i++) {
        void *(*body)(void *) = i < MAKERS ? make_short_threads : free_until_done;
        check_eq(pthread_create(&threads[i], NULL, body, (void *)i), 0);
    }
    for (unsigned i = 0; i < MAKERS + FREERS; i++) {
        check_eq(pthread_join(threads[i], NULL), 0);
    }
    check_stand(stand, 16 * 1024);
}

TEST(threads_end_while_others_free_their_blocks) {
    test_allow_seconds(slice_or(TEST_SECONDS, 1200));
    run_watched(post_and_free);
}
