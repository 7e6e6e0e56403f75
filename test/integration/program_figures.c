/* SPDX-License-Identifier: MIT
 *
 * program_figures.c - a small program that its seed decides: threads, sizes, lifetimes, waves, and how it
 * ends.  It prints the number of its allocations, which cli/figures.sh compares with what `tally` says.
 *
 *      program_figures SEED exit|_exit|abort
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "random.h"

enum { THREADS_MOST = 3, SLOTS = 512, ALLOCATIONS_MOST = 20000 };

static struct {
    uint64_t seed, large_share, keep_share;
    unsigned threads, waves, allocations;
    void *slots[THREADS_MOST][SLOTS];
} g;

__attribute__((noinline)) static void *small_object(size_t size) {
    return malloc(size);
}

__attribute__((noinline)) static void *large_object(size_t size) {
    return calloc(1, size);
}

static size_t choose_size(struct random *random) {
    return 1 + random_below(random, (uint64_t)1 << random_below(random, 13));
}

/* Each wave fills its slots and empties those that are not kept. */
static void *work(void *argument) {
    unsigned thread = (unsigned)(uintptr_t)argument;
    struct random random = random_start(g.seed, thread + 2);
    for (unsigned i = 0; i < g.allocations; i++) {
        unsigned slot = i % SLOTS;
        free(g.slots[thread][slot]);
        bool is_large = random_below(&random, 1000) < g.large_share;
        g.slots[thread][slot] =
            is_large ? large_object(64 * choose_size(&random)) : small_object(choose_size(&random));
        if (i % (g.allocations / g.waves + 1) == 0) {
            for (unsigned j = 0; j < SLOTS; j++) {
                if (random_below(&random, 100) >= g.keep_share) {
                    free(g.slots[thread][j]);
                    g.slots[thread][j] = NULL;
                }
            }
        }
    }
    return NULL;
}

int main(int count, char **words) {
    struct random random = random_start(count > 1 ? strtoull(words[1], NULL, 10) : 1, 1);
    const char *end = count > 2 ? words[2] : "exit";
    pthread_t threads[THREADS_MOST];
    g.seed = random_below(&random, 1 << 30);
    g.threads = 1 + (unsigned)random_below(&random, THREADS_MOST);
    g.waves = 1 + (unsigned)random_below(&random, 5);
    g.allocations = 100 + (unsigned)random_below(&random, ALLOCATIONS_MOST);
    g.large_share = random_below(&random, 30);
    g.keep_share = random_below(&random, 100);
    for (uintptr_t i = 0; i < g.threads; i++) {
        pthread_create(&threads[i], NULL, work, (void *)i);
    }
    for (unsigned i = 0; i < g.threads; i++) {
        pthread_join(threads[i], NULL);
    }
    char text[32];
    int length = snprintf(text, sizeof text, "%u\n", g.threads * g.allocations);
    if (write(STDOUT_FILENO, text, (size_t)length) != length) {
        return 1;
    }
    if (strcmp(end, "_exit") == 0) {
        _exit(0);
    }
    if (strcmp(end, "abort") == 0) {
        abort();
    }
    return 0;
}
