/* SPDX-License-Identifier: MIT
 *
 * test_replay_races.c - bugs of other allocators that need two threads, replayed: a process that
 * ends while its threads allocate, one object freed by two threads at once, memory that changes its
 * size class while older blocks are still being freed.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <tally/tally.h>

#include "random.h"
#include "watch.h"

TEST_SETUP(require_tally);

/* ---------------------------------------------------------------- exit beside busy threads */

enum { BUSY = 3, EXITS = 60, WHOLE_EXITS = 10000 };

static _Atomic unsigned awake;

static void *churn(void *unused) {
    void *blocks[64] = {NULL};
    struct random random = random_start(49, (uintptr_t)&blocks);
    (void)unused;
    atomic_fetch_add(&awake, 1);
    for (;;) {
        void **slot = &blocks[random_below(&random, 64)];
        free(*slot);
        *slot = malloc(random_below(&random, random_below(&random, 30) == 0 ? 200000 : 700));
        check(*slot != NULL);
        *(volatile char *)*slot = 1;
    }
    return NULL;
}

static void *exit_in_thread(void *unused) {
    (void)unused;
    exit(0);
}

static void allocate_at_exit(void) {
    for (unsigned i = 1; i < 200; i++) {
        free(malloc(i * 37));
    }
}

/* Threads run on while one of them ends the process, each time in another way. */
static void end_beside_busy_threads(unsigned way) {
    pthread_t thread;
    atexit(allocate_at_exit);
    at_quick_exit(allocate_at_exit);
    for (unsigned i = 0; i < BUSY; i++) {
        check(pthread_create(&thread, NULL, churn, NULL) == 0);
    }
    while (atomic_load(&awake) < BUSY) {
        nap_us(1000);
    }
    switch (way) {
    case 0:
        exit(0);
    case 1:
        quick_exit(0);
    case 2:
        _exit(0);
    case 3:
        abort();
    default:
        check(pthread_create(&thread, NULL, exit_in_thread, NULL) == 0);
        pthread_exit(NULL);
    }
}

static void exit_races(void) {
    watch_begin();
    for (unsigned i = 0; i < slice_or(EXITS, WHOLE_EXITS); i++) {
        pid_t pid = fork();
        check(pid >= 0);
        if (pid == 0) {
            int nowhere = open("/dev/null", O_WRONLY);
            dup2(nowhere, 1);
            dup2(nowhere, 2);
            end_beside_busy_threads(i % 5);
        }
        struct ending ending = watch_process(pid, STALL_SECONDS);
        bool aborted = WIFSIGNALED(ending.status) && WTERMSIG(ending.status) == SIGABRT;
        if (ending.hung || (i % 5 == 3 ? !aborted : ending.status != 0)) {
            char number[24];
            test_say("    way ", test_decimal(number, i % 5), "\n", NULL);
            watch_say_ending(ending);
            test_fail(__FILE__, __LINE__, "the process did not end as it wanted to");
        }
    }
}

TEST(a_process_ends_while_its_threads_allocate) {
    test_allow_seconds(slice_or(TEST_SECONDS, 3600));
    exit_races();
}

/* ---------------------------------------------------------------- one object, two frees at once */

enum { DOUBLE_FREES = 150, WHOLE_DOUBLE_FREES = 20000 };

static struct {
    void *volatile object;
    _Atomic unsigned arrived;
} duel;

static void *free_at_once(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < 40; i++) { /* so that this thread has a heap and magazines */
        free(malloc(64));
    }
    atomic_fetch_add(&duel.arrived, 1);
    while (atomic_load(&duel.arrived) < 2) {
    }
    free(duel.object);
    return NULL;
}

/* Both frees may pass the check, since neither sees the other's mark; then the object is found out
 * when the caches are emptied.  Either the process ends by the message, or all is well. */
static void duel_once(size_t size) {
    pthread_t threads[2];
    void *others[100];
    for (unsigned i = 0; i < 100; i++) {
        others[i] = malloc(size);
    }
    duel.object = malloc(size);
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_create(&threads[i], NULL, free_at_once, NULL) == 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    for (unsigned i = 0; i < 100; i++) {
        free(others[i]);
    }
    malloc_trim(0);
    tally_verify();
}

/* The first line that the child wrote to its standard error. */
static const char *read_message(int fd) {
    static char text[256];
    ssize_t got = pread(fd, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    return text;
}

/* For a large object the pages may be free by the time of the second look. */
static bool is_about_double_free(const char *message) {
    return strncmp(message, "tally: free(", 12) == 0 &&
           (strstr(message, "already free") != NULL ||
            strstr(message, "this memory of the heap is free") != NULL);
}

TEST(an_object_freed_by_two_threads_at_once_is_told_and_does_no_other_harm) {
    static const size_t sizes[] = {64, 64, 64, 64, 2000, 100000};
    unsigned told = 0, rounds = slice_or(DOUBLE_FREES, WHOLE_DOUBLE_FREES);
    test_allow_seconds(slice_or(TEST_SECONDS, 3600));
    watch_begin();
    for (unsigned i = 0; i < rounds; i++) {
        int fd = memfd_create("messages", 0);
        pid_t pid = fork();
        check(fd >= 0 && pid >= 0);
        if (pid == 0) {
            dup2(fd, 2);
            duel_once(sizes[i % 6]);
            _exit(0);
        }
        struct ending ending = watch_process(pid, STALL_SECONDS);
        const char *message = read_message(fd);
        bool aborted = WIFSIGNALED(ending.status) && WTERMSIG(ending.status) == SIGABRT &&
                       is_about_double_free(message);
        if (!aborted) {
            test_say("    message: ", message, "\n", NULL);
            watch_say_ending(ending);
            test_fail(__FILE__, __LINE__, "a double free was not told");
        }
        told++;
        close(fd);
    }
    check_eq(told, rounds);
}

/* ---------------------------------------------------------------- spans that change their class */

enum { SHARERS = 4, HANDED = 3000, PHASES = 600, WHOLE_PHASES = 20000 };

/* Each thread fills its table with blocks of one class and another thread frees them, while the
 * memory they lay in is given back and serves the next class. */
static struct {
    unsigned char *blocks[SHARERS][HANDED];
    size_t size[SHARERS];
    pthread_barrier_t barrier;
} share;

static void *make_and_free_others(void *argument) {
    unsigned me = (unsigned)(uintptr_t)argument;
    struct random random = random_start(76, me);
    for (unsigned phase = 0; phase < slice_or(PHASES, WHOLE_PHASES); phase++) {
        size_t size = 16 + random_below(&random, phase % 3 == 0 ? 12000 : 400);
        unsigned count = size > 1000 ? HANDED / 10 : HANDED;
        share.size[me] = size;
        for (unsigned i = 0; i < HANDED; i++) {
            share.blocks[me][i] = i < count ? malloc(size) : NULL;
            check(i >= count || share.blocks[me][i] != NULL);
            if (i < count) {
                memset(share.blocks[me][i], (int)(me + i), size);
            }
        }
        step(me);
        pthread_barrier_wait(&share.barrier);
        unsigned other = (me + 1) % SHARERS;
        for (unsigned i = 0; i < HANDED; i++) {
            unsigned char *p = share.blocks[other][i];
            if (p != NULL) {
                check_eq(p[0], (unsigned char)(other + i));
                check_eq(p[share.size[other] - 1], (unsigned char)(other + i));
                free(p);
            }
        }
        if (phase % 2 == me % 2) {
            malloc_trim(0); /* beside the other's frees, so that spans leave while they go on */
        }
        pthread_barrier_wait(&share.barrier);
    }
    return NULL;
}

static void change_classes(void) {
    pthread_t threads[SHARERS];
    check(pthread_barrier_init(&share.barrier, NULL, SHARERS) == 0);
    for (uintptr_t i = 0; i < SHARERS; i++) {
        check(pthread_create(&threads[i], NULL, make_and_free_others, (void *)i) == 0);
    }
    for (unsigned i = 0; i < SHARERS; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    tally_verify();
}

TEST(memory_changes_its_class_while_others_free) {
    test_allow_seconds(slice_or(TEST_SECONDS, 3600));
    run_watched(change_classes);
}
