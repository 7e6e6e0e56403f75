/* SPDX-License-Identifier: MIT
 *
 * program_shares.c - a program whose functions use known shares of its processor time: 70, 20 and 10 %.
 *
 *      shares alone SECONDS     one thread, which calls them in turn
 *      shares threads SECONDS   a thread for each, named after its share
 *      shares asked SECONDS     as alone, but it waits for a byte before, says that it is done, and waits again
 *
 * A function computes until its thread's clock has run for its part of a round, so the shares are true on any
 * machine and under any load.  It looks at the clock seldom.  Each allocates a little, too.
 */
#define _GNU_SOURCE /* pthread_setname_np */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

enum { ROUNDS = 5, SHARES = 3 };

static double seconds;
static volatile uint64_t sink;

static double own_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Inlined, so that the time is that of the function whose share it is. */
static inline __attribute__((always_inline)) void compute(double share) {
    double end = own_time() + share * seconds / ROUNDS;
    do {
        uint64_t x = sink;
        for (int i = 0; i < 300000; i++) {
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
        }
        sink = x;
    } while (own_time() < end);
    free(malloc(1000));
}

NOINLINE static void seventy(void) {
    compute(0.7);
}

NOINLINE static void twenty(void) {
    compute(0.2);
}

NOINLINE static void ten(void) {
    compute(0.1);
}

static void (*const functions[SHARES])(void) = {seventy, twenty, ten};
static const char *const names[SHARES] = {"seventy", "twenty", "ten"};

static void *run_one(void *which) {
    size_t index = (size_t)(uintptr_t)which;
    pthread_setname_np(pthread_self(), names[index]);
    for (int i = 0; i < ROUNDS; i++) {
        functions[index]();
    }
    return NULL;
}

static void run_threads(void) {
    pthread_t threads[SHARES];
    for (size_t i = 0; i < SHARES; i++) {
        if (pthread_create(&threads[i], NULL, run_one, (void *)(uintptr_t)i) != 0) {
            exit(3);
        }
    }
    for (size_t i = 0; i < SHARES; i++) {
        pthread_join(threads[i], NULL);
    }
}

int main(int count, char **words) {
    if (count != 3 || (seconds = atof(words[2])) <= 0) {
        fprintf(stderr, "usage: shares alone|threads|asked SECONDS\n");
        return 2;
    }
    if (strcmp(words[1], "threads") == 0) {
        run_threads();
        return 0;
    }
    bool is_asked = strcmp(words[1], "asked") == 0;
    char byte;
    if (is_asked && read(0, &byte, 1) != 1) {
        return 3;
    }
    for (int i = 0; i < ROUNDS * SHARES; i++) {
        functions[i % SHARES]();
    }
    if (is_asked) {
        return write(1, "done\n", 5) != 5 || read(0, &byte, 1) != 1;
    }
    return 0;
}
