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

enum { MIB = 1 << 20, BURST_MIB = 64, PATIENCE_MS = 20000 };

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

static _Atomic bool stop;

static void *stay(void *unused) {
    free(malloc(100));
    while (!stop) {
        usleep(1000);
    }
    return unused;
}

TEST(a_program_with_one_thread_keeps_one) {
    for (int i = 0; i < 20; i++) {
        burst();
    }
    check_eq(threads(), 1);
    check(unshare(CLONE_FS) == 0);
}

TEST(threads_without_debt_bring_no_other) {
    pthread_t thread;
    check(pthread_create(&thread, NULL, stay, NULL) == 0);
    for (int i = 0; i < 1000; i++) {
        free(malloc(1000));
    }
    check_eq(threads(), 2);
    stop = true;
    pthread_join(thread, NULL);
}

TEST(it_comes_with_debt_gives_memory_back_in_silence_and_goes_with_the_last_thread) {
    pthread_t thread;
    check(pthread_create(&thread, NULL, stay, NULL) == 0);
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
    check(pthread_create(&thread, NULL, stay, NULL) == 0);
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
    check(pthread_create(&thread, NULL, stay, NULL) == 0);
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
    check(pthread_create(&thread, NULL, stay, NULL) == 0);
    burst();
    check_eq(threads(), 3);
    pid_t pid = fork();
    if (pid == 0) {
        check_eq(threads(), 1);
        burst();
        check_eq(threads(), 1);
        check(pthread_create(&thread, NULL, stay, NULL) == 0);
        long before = anonymous_kib();
        usleep(20000); /* until the new thread has made its first call */
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
