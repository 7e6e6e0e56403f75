/* SPDX-License-Identifier: MIT
 *
 * test_background.c - when there is a background thread, when there is none, and what it does.
 *
 * The number of threads and the resident memory are those the kernel tells.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

enum { MIB = 1 << 20, BURST_MIB = 64, PATIENCE_MS = 300000 };

/* A number behind a word in a file of /proc/self; read without stdio, which allocates. */
static long number_after(const char *path, const char *word) {
    static char text[8192];
    int fd = open(path, O_RDONLY);
    check(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    check(n > 0);
    close(fd);
    text[n] = '\0';
    const char *found = strstr(text, word);
    check(found != NULL);
    return strtol(found + strlen(word), NULL, 10);
}

static long threads(void) {
    return number_after("/proc/self/status", "Threads:");
}

static long anonymous_kib(void) {
    return number_after("/proc/self/smaps_rollup", "Anonymous:");
}

static void burst(void) {
    char *blocks[BURST_MIB];
    for (int i = 0; i < BURST_MIB; i++) {
        blocks[i] = malloc(MIB);
        check(blocks[i] != NULL);
        memset(blocks[i], 1, MIB);
    }
    for (int i = 0; i < BURST_MIB; i++) {
        free(blocks[i]);
    }
}

static void wait_until(bool (*reached)(long), long argument) {
    for (int ms = 0; !reached(argument); ms += 10) {
        check(ms < PATIENCE_MS);
        usleep(10000);
    }
}

static bool threads_are(long count) {
    return threads() == count;
}

static bool anonymous_is_below(long kib) {
    return anonymous_kib() < kib;
}

int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);

static size_t background_threads(void) {
    uint64_t epoch = 1;
    size_t number, length = sizeof number;
    check_eq(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch), 0);
    check_eq(mallctl("stats.background_thread.num_threads", &number, &length, NULL, 0), 0);
    return number;
}

TEST(mallctl_starts_it_at_once_and_ends_it) {
    free(malloc(1));
    for (int i = 0; i < 10; i++) {
        bool on = true, old;
        size_t length = sizeof old;
        check_eq(mallctl("background_thread", NULL, NULL, &on, sizeof on), 0);
        check_eq(threads(), 2);
        check_eq(background_threads(), 1);
        on = false;
        check_eq(mallctl("background_thread", &old, &length, &on, sizeof on), 0);
        check(old);
        check_eq(background_threads(), 0);
        wait_until(threads_are, 1); /* The kernel may need a moment. */
        check_eq(mallctl("background_thread", &old, &length, NULL, 0), 0);
        check(!old);
    }
    burst();
    check_eq(threads(), 1);
}

static bool runs_are_above(long count) {
    uint64_t runs;
    size_t length = sizeof runs;
    check_eq(background_threads(), 1);
    check_eq(mallctl("stats.background_thread.num_runs", &runs, &length, NULL, 0), 0);
    return runs > (uint64_t)count;
}

TEST(its_runs_are_counted) {
    bool on = true;
    check_eq(mallctl("background_thread", NULL, NULL, &on, sizeof on), 0);
    wait_until(runs_are_above, 0);
    burst();
    wait_until(runs_are_above, 1);
}

static _Atomic bool stop;
static _Atomic unsigned stays; /* threads that have made their first call */

static void *stay(void *unused) {
    free(malloc(100));
    stays++;
    while (!stop) {
        usleep(1000);
    }
    return unused;
}

/* It is known to the allocator when this returns. */
static void start_stayer(pthread_t *thread) {
    unsigned before = stays;
    check(pthread_create(thread, NULL, stay, NULL) == 0);
    while (stays == before) {
        usleep(1000);
    }
}

static unsigned new_arena(void) {
    unsigned arena;
    size_t length = sizeof arena;
    check_eq(mallctl("arenas.create", &arena, &length, NULL, 0), 0);
    return arena;
}

static size_t small_bytes_of(unsigned arena) {
    uint64_t epoch = 1;
    size_t bytes, length = sizeof bytes;
    char name[64];
    snprintf(name, sizeof name, "stats.arenas.%u.small.allocated", arena);
    check_eq(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch), 0);
    check_eq(mallctl(name, &bytes, &length, NULL, 0), 0);
    return bytes;
}

/* Libc allocates for a thread that is made; arena.<i>.reset would take that away. */
TEST(making_it_takes_nothing_from_an_arena_of_the_program) {
    bool on = true, off = false;
    unsigned arena = new_arena(), bound;
    size_t length = sizeof bound;
    check_eq(mallctl("background_thread", NULL, NULL, &off, sizeof off), 0);
    check_eq(mallctl("thread.arena", NULL, NULL, &arena, sizeof arena), 0);
    check_eq(small_bytes_of(arena), 0);
    check_eq(mallctl("background_thread", NULL, NULL, &on, sizeof on), 0);
    check_eq(background_threads(), 1);
    check_eq(mallctl("thread.arena", &bound, &length, NULL, 0), 0);
    check_eq(bound, arena);
    check_eq(small_bytes_of(arena), 0);
}

TEST(a_program_with_one_thread_keeps_one) {
    burst();
    check_eq(threads(), 1);
    check(unshare(CLONE_FS) == 0);
}

/* While it keeps much for the next tooth; afterwards both go. */
TEST(a_saw_tooth_of_one_thread_gets_another) {
    for (int i = 0; i < 20; i++) {
        burst();
    }
    wait_until(threads_are, 2);
    wait_until(anonymous_is_below, 8 << 10);
    wait_until(threads_are, 1);
}

TEST(threads_without_debt_bring_no_other) {
    pthread_t thread;
    start_stayer(&thread);
    for (int i = 0; i < 1000; i++) {
        free(malloc(1000));
    }
    check_eq(threads(), 2);
    stop = true;
    pthread_join(thread, NULL);
}

TEST(it_comes_with_debt_gives_memory_back_in_silence_and_goes_with_the_last_thread) {
    pthread_t thread;
    start_stayer(&thread);
    long before = anonymous_kib();
    burst();
    check_eq(threads(), 3);
    check(anonymous_kib() > before + BURST_MIB * 1024 / 2);
    wait_until(anonymous_is_below, before + 8192);
    check_eq(threads(), 3);
    stop = true;
    pthread_join(thread, NULL);
    wait_until(threads_are, 1);
    burst(); /* And it does not come back. */
    check_eq(threads(), 1);
}

TEST(it_wakes_again_for_a_second_burst) {
    pthread_t thread;
    start_stayer(&thread);
    long before = anonymous_kib();
    for (int i = 0; i < 3; i++) {
        burst();
        wait_until(anonymous_is_below, before + 8192);
    }
    check_eq(threads(), 3);
    stop = true;
    pthread_join(thread, NULL);
}

static _Atomic int signals;
static _Atomic int signals_elsewhere;

static void note_thread(int number) {
    (void)number;
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    signals++;
    signals_elsewhere += strcmp(name, "tally") == 0;
}

TEST(signals_for_the_process_never_reach_it) {
    pthread_t thread;
    signal(SIGUSR1, note_thread);
    start_stayer(&thread);
    burst();
    check_eq(threads(), 3);
    for (int i = 0; i < 2000; i++) {
        kill(getpid(), SIGUSR1);
    }
    usleep(50000);
    check(signals > 0);
    check_eq(signals_elsewhere, 0);
    stop = true;
    pthread_join(thread, NULL);
}

/* In the child the thread does not exist, and nothing waits for it. */
TEST(a_forked_child_starts_without_and_gets_its_own) {
    pthread_t thread;
    start_stayer(&thread);
    burst();
    check_eq(threads(), 3);
    pid_t pid = fork();
    if (pid == 0) {
        check_eq(threads(), 1);
        burst();
        check_eq(threads(), 1);
        long before = anonymous_kib();
        start_stayer(&thread);
        burst();
        check_eq(threads(), 3);
        wait_until(anonymous_is_below, before + 8192);
        stop = true;
        pthread_join(thread, NULL);
        _exit(0);
    }
    int status;
    check(waitpid(pid, &status, 0) == pid);
    check_eq(status, 0);
    stop = true;
    pthread_join(thread, NULL);
}
