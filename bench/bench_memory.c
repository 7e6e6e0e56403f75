/* SPDX-License-Identifier: MIT
 *
 * What a process keeps, one pattern per run: `bench_memory PATTERN [key=value ...]`.  Each prints one
 * line of key=value.  Sizes are MiB of resident memory beyond what the process had before the
 * pattern: `now` at once, `idle` after `idle_ms`, `trim` after a call that gives back what can be
 * given back (trim.h); `live` is what the program itself holds then.
 *
 *   tenth     `mib` of blocks of `size` bytes, of which a random tenth is kept
 *   migrate   the same with 4 KiB, then 300 MiB of blocks of 1,000 bytes: can they use the space?
 *   sleepers  `threads` threads hold 3 MiB of small blocks each, free all of it, and sleep
 *   saw       one thread fills `mib` and frees all, five times
 *   calloc    3 GiB of which 1 MiB was written, freed; then calloc of 3 GiB: ms, and `now`
 *   limit     blocks of `least`..`most` bytes until malloc fails under an RLIMIT_AS of `mib`, then all
 *             freed, six times: MiB that the first and the last round got
 *
 * Blocks are written whole.  Nothing of the harness comes from malloc, and its arrays are resident
 * before the first figure is taken.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <pthread.h>
#include <sys/resource.h>

#include "trim.h"

static uint64_t random_state = 0x9E3779B97F4A7C15u;

static double resident_mib(void) {
    return (double)read_memory().rss_kib / 1024;
}

/* An array whose pages are there already. */
static char **make_list(size_t count) {
    char **list = harness_memory((count + 1) * sizeof *list);
    memset(list, 1, (count + 1) * sizeof *list);
    return list;
}

static char *make_block(size_t size) {
    char *block = malloc(size);
    return block == NULL ? NULL : memset(block, 1, size);
}

static void fill_list(char **list, size_t count, size_t size) {
    for (size_t i = 0; i < count; i++) {
        list[i] = make_block(size);
    }
}

/* Free all but about one of `kept_of` blocks, in the order of allocation; bytes that are kept. */
static size_t free_most(char **list, size_t count, size_t size, size_t kept_of) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept_of != 0 && rng_next(&random_state) % kept_of == 0) {
            kept += size;
        } else {
            free(list[i]);
        }
    }
    return kept;
}

static void print_sizes(const char *pattern, double before, double live_mib) {
    size_t idle_ms = arg_number("idle_ms", 3000);
    double now = resident_mib() - before;
    usleep((useconds_t)(idle_ms * 1000));
    double idle = resident_mib() - before;
    trim_everything();
    double trim = resident_mib() - before;
    double peak = (double)read_memory().peak_kib / 1024 - before;
    say(1, "pattern=%s live=%.2f now=%.2f idle=%.2f trim=%.2f peak=%.2f", pattern, live_mib, now,
        idle, trim, peak);
    if (live_mib > 0) {
        say(1, " now_ratio=%.2f idle_ratio=%.2f trim_ratio=%.2f", now / live_mib, idle / live_mib,
            trim / live_mib);
    }
    say(1, "\n");
}

static void run_tenth(void) {
    size_t size = arg_number("size", 4096), bytes = arg_number("mib", 400) << 20;
    size_t count = bytes / size;
    arg_number("idle_ms", 0);
    args_end();
    char **list = make_list(count);
    double before = resident_mib();
    fill_list(list, count, size);
    size_t kept = free_most(list, count, size, 10);
    print_sizes("tenth", before, (double)kept / (1 << 20));
}

static void run_migrate(void) {
    size_t count = (arg_number("mib", 400) << 20) / 4096, second = (300u << 20) / 1000;
    arg_number("idle_ms", 0);
    args_end();
    char **list = make_list(count), **others = make_list(second);
    double before = resident_mib();
    fill_list(list, count, 4096);
    size_t kept = free_most(list, count, 4096, 10);
    fill_list(others, second, 1000);
    print_sizes("migrate", before, (double)(kept + second * 1000) / (1 << 20));
}

enum { SLEEPERS_MOST = 1000, SLEEPER_BLOCKS = 4096 };

static struct {
    pthread_barrier_t filled, emptied, leave;
    pthread_t thread[SLEEPERS_MOST];
} sleepers;

/* Sizes 16..2,048 with a density of 1/x, 3 MiB in all; by halves, so that no thread runs alone. */
static void *fill_and_sleep(void *context) {
    char **list = context;
    uint64_t random = (uintptr_t)context * 2 + 1;
    for (size_t i = 0; i < SLEEPER_BLOCKS; i++) {
        uint32_t least = 16u << rng_next(&random) % 7;
        list[i] = make_block(least + rng_next(&random) % least);
    }
    pthread_barrier_wait(&sleepers.filled);
    for (size_t i = 0; i < SLEEPER_BLOCKS; i++) {
        free(list[i]);
    }
    pthread_barrier_wait(&sleepers.emptied);
    pthread_barrier_wait(&sleepers.leave);
    return NULL;
}

static void run_sleepers(void) {
    size_t threads = arg_number("threads", 100);
    arg_number("idle_ms", 0);
    args_end();
    threads = threads < SLEEPERS_MOST ? threads : SLEEPERS_MOST;
    char **list = make_list(threads * SLEEPER_BLOCKS);
    pthread_barrier_init(&sleepers.filled, NULL, (unsigned)threads);
    pthread_barrier_init(&sleepers.emptied, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&sleepers.leave, NULL, (unsigned)threads + 1);
    double before = resident_mib();
    for (size_t i = 0; i < threads; i++) {
        if (pthread_create(&sleepers.thread[i], NULL, fill_and_sleep, list + i * SLEEPER_BLOCKS)) {
            say(2, "cannot start thread %zu\n", i);
            _exit(1);
        }
    }
    pthread_barrier_wait(&sleepers.emptied);
    usleep(50000); /* until all of them sleep */
    print_sizes("sleepers", before, 0);
    pthread_barrier_wait(&sleepers.leave);
    for (size_t i = 0; i < threads; i++) {
        pthread_join(sleepers.thread[i], NULL);
    }
}

/* Log-uniform in whole doublings, evenly within each. */
static size_t random_size(size_t least, size_t most) {
    unsigned doublings = 0;
    while (least << (doublings + 1) <= most) {
        doublings++;
    }
    size_t low = doublings == 0 ? least : least << rng_next(&random_state) % doublings;
    size_t width = doublings == 0 ? most - least + 1 : low;
    return low + rng_next(&random_state) % width;
}

static void run_saw(void) {
    size_t bytes = arg_number("mib", 500) << 20, teeth = arg_number("teeth", 5);
    size_t least = arg_number("least", 64), most = arg_number("most", 1 << 20);
    arg_number("idle_ms", 0);
    args_end();
    size_t count_most = bytes / least;
    char **list = make_list(count_most);
    double before = resident_mib();
    for (size_t tooth = 0; tooth < teeth; tooth++) {
        size_t count = 0;
        for (size_t filled = 0; filled < bytes && count < count_most; count++) {
            size_t size = random_size(least, most);
            list[count] = make_block(size);
            filled += size;
        }
        free_most(list, count, 0, 0);
    }
    print_sizes("saw", before, 0);
}

static void run_calloc(void) {
    size_t bytes = arg_number("mib", 3072) << 20;
    args_end();
    double before = resident_mib();
    char *first = malloc(bytes);
    if (first == NULL) {
        say(2, "no block of %zu bytes\n", bytes);
        _exit(1);
    }
    memset(first + bytes / 2, 1, 1 << 20);
    free(first);
    uint64_t start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    char *second = calloc(bytes, 1);
    double ms = (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / 1e6;
    keep(second);
    say(1, "pattern=calloc ms=%.3f now=%.2f\n", ms, resident_mib() - before);
}

/* Blocks are kept in a list of their own, as the limit would count an array of the harness. */
static size_t fill_until_refused(size_t least, size_t most) {
    size_t bytes = 0;
    void **first = NULL;
    for (;;) {
        size_t size = random_size(least, most);
        void **block = malloc(size);
        if (block == NULL) {
            break;
        }
        *block = first;
        first = block;
        bytes += size;
    }
    while (first != NULL) {
        void **next = *first;
        free(first);
        first = next;
    }
    return bytes >> 20;
}

static void run_limit(void) {
    size_t limit = arg_number("mib", 400) << 20, rounds = arg_number("rounds", 6);
    size_t least = arg_number("least", 16), most = arg_number("most", 1 << 16);
    args_end();
    struct rlimit bound = {limit, limit};
    if (least < sizeof(void *) || setrlimit(RLIMIT_AS, &bound) != 0) {
        say(2, "least is below 8, or RLIMIT_AS cannot be set\n");
        _exit(1);
    }
    size_t first = 0, last = 0;
    for (size_t i = 0; i < rounds; i++) {
        last = fill_until_refused(least, most);
        first = i == 0 ? last : first;
    }
    say(1, "pattern=limit first=%zu last=%zu\n", first, last);
}

static const struct {
    const char *name;
    void (*run)(void);
} patterns[] = {{"tenth", run_tenth}, {"migrate", run_migrate}, {"sleepers", run_sleepers},
                {"saw", run_saw},     {"calloc", run_calloc},   {"limit", run_limit}};

int main(int argc, char **argv) {
    bench_begin(argc > 2 ? argc - 2 : 0, argv + 2);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (argc > 1 && strcmp(argv[1], patterns[i].name) == 0) {
            patterns[i].run();
            return 0;
        }
    }
    say(2, "usage: bench_memory tenth|migrate|sleepers|saw|calloc|limit [key=value ...]\n");
    return EXIT_USAGE;
}
