/* SPDX-License-Identifier: MIT
 *
 * Where the blocks of threads lie: `bench_lines [key=value ...]`.  Every thread has `slots` blocks of
 * `least` to `most` bytes (density 1/x²) and replaces one chosen at random, `steps` times; no block is
 * ever passed on.  Then the 64-byte lines are counted at which blocks begin, which is where a
 * program writes first and where a free list would be kept:
 *
 *   lines      that hold the blocks of one thread, on average.  Few: neighbours in time are
 *              neighbours in memory, and the program's own caches hold more of it
 *   shared     percentage of a thread's lines that hold a block of another thread too.  Whoever
 *              writes to such a line takes it away from the other's CPU
 *   pages      that hold the blocks of one thread, and page_shared, the same of pages
 */
#include "bench.h"

#include <pthread.h>

enum { THREADS_MOST = 32, LINE_BITS = 6, PAGE_BITS = 12, SIZES = 4096 };

/* Which threads have a block in a line (or page): open addressing, never full. */
struct cell {
    uintptr_t number;
    uint32_t threads; /* a bit for each; 0 is an empty cell */
};

static struct {
    size_t threads, slots, steps;
    uint32_t size[SIZES];
    void **block[THREADS_MOST];
    pthread_t thread[THREADS_MOST];
    pthread_barrier_t begin, end, leave;
    struct cell *table;
    size_t cells; /* a power of two */
} g;

static void *replace_blocks(void *context) {
    size_t index = (size_t)(uintptr_t)context;
    void **block = g.block[index];
    uint64_t random = 0x9E3779B97F4A7C15u * (2 * index + 1);
    pthread_barrier_wait(&g.begin);
    for (size_t i = 0; i < g.steps + g.slots; i++) {
        size_t slot = i < g.slots ? i : rng_next(&random) % g.slots;
        free(block[slot]);
        uint32_t *made = malloc(g.size[rng_next(&random) % SIZES]);
        *made = (uint32_t)slot;
        block[slot] = made;
    }
    pthread_barrier_wait(&g.end);
    pthread_barrier_wait(&g.leave);
    return NULL;
}

static void note(uintptr_t number, uint32_t thread) {
    size_t at = (number * 0x9E3779B97F4A7C15u >> 20) & (g.cells - 1);
    while (g.table[at].threads != 0 && g.table[at].number != number) {
        at = (at + 1) & (g.cells - 1);
    }
    g.table[at].number = number;
    g.table[at].threads |= thread;
}

/* What one thread has of lines or pages, and how many percent of them it shares. */
static void count(unsigned bits, double *each, double *shared) {
    memset(g.table, 0, g.cells * sizeof *g.table);
    for (size_t t = 0; t < g.threads; t++) {
        for (size_t i = 0; i < g.slots; i++) {
            note((uintptr_t)g.block[t][i] >> bits, UINT32_C(1) << t);
        }
    }
    size_t had = 0, both = 0;
    for (size_t i = 0; i < g.cells; i++) {
        size_t threads = (size_t)__builtin_popcount(g.table[i].threads);
        had += threads;
        both += threads > 1 ? threads : 0;
    }
    *each = (double)had / (double)g.threads;
    *shared = 100.0 * (double)both / (double)had;
}

static void make_sizes(double least, double most) {
    for (size_t i = 0; i < SIZES; i++) {
        double share = ((double)i + 0.5) / SIZES;
        g.size[i] = (uint32_t)(1 / (1 / least - share * (1 / least - 1 / most)));
    }
}

int main(int argc, char **argv) {
    bench_begin(argc - 1, argv + 1);
    g.threads = arg_number("threads", 1);
    g.slots = arg_number("slots", 1024);
    g.steps = arg_number("steps", 8000000);
    make_sizes((double)arg_number("least", 4), (double)arg_number("most", 32768));
    args_end();
    if (g.threads == 0 || g.threads > THREADS_MOST || g.slots == 0) {
        say(2, "threads: 1 to 32; slots: at least 1\n");
        return EXIT_USAGE;
    }
    for (g.cells = 1024; g.cells < 4 * g.threads * g.slots;) {
        g.cells *= 2;
    }
    g.table = harness_memory(g.cells * sizeof *g.table);
    pthread_barrier_init(&g.begin, NULL, (unsigned)g.threads);
    pthread_barrier_init(&g.end, NULL, (unsigned)g.threads + 1);
    pthread_barrier_init(&g.leave, NULL, (unsigned)g.threads + 1);
    for (size_t i = 0; i < g.threads; i++) {
        g.block[i] = harness_memory(g.slots * sizeof *g.block[i]);
        pthread_create(&g.thread[i], NULL, replace_blocks, (void *)(uintptr_t)i);
    }
    pthread_barrier_wait(&g.end);
    double lines, shared, pages, page_shared;
    count(LINE_BITS, &lines, &shared);
    count(PAGE_BITS, &pages, &page_shared);
    say(1, "threads=%zu lines=%.0f shared=%.1f pages=%.0f page_shared=%.1f\n", g.threads, lines,
        shared, pages, page_shared);
    pthread_barrier_wait(&g.leave);
    for (size_t i = 0; i < g.threads; i++) {
        pthread_join(g.thread[i], NULL);
    }
    return 0;
}
