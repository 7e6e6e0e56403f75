/* SPDX-License-Identifier: MIT
 *
 * Small allocation patterns, one per run: `bench_micro PATTERN [key=value ...]`.  Each prints one
 * line of key=value: the time per malloc+free pair (the best of its rounds) and the resident size.
 * Patterns of several threads, and of random sizes of any law, are in bench_threads.c.
 *
 *   hello    nothing at all: what the library costs a program that does not use it
 *   pair     malloc, write, free
 *   burst    n blocks, then all freed in order lifo, fifo or random
 *   churn    `live` blocks of 8..1000 bytes; one chosen at random is replaced, again and again
 *   usable   malloc_usable_size of 1,000 blocks
 *   inplace  realloc by a few bytes, which needs no other block
 *   realloc  buffers that grow by 1.3 from 16 bytes to some MiB, as strings and vectors do
 *   grow     blocks that grow by turns from 128 KiB to some MiB in steps of some KiB
 *   move     one step of realloc, 64 to 65 MiB, with another block in the way; copy=1 does by hand
 *            what realloc would have to do if it could not move pages
 *   large    a live set of 32 KiB..8 MiB blocks, every page touched
 *   idle     threads that used 64 sizes once and then sleep
 *   phase    60 MB of small objects, nearly all freed, then 60 MB of larger ones
 *
 * Everything random is computed before the clock starts, so inside the loop the harness costs a
 * few instructions, the same for every allocator.  With calls=0 the patterns pair, burst and churn
 * run the same loop without calling malloc and free; instructions.py subtracts that run.
 */
#include "bench.h"

#include <malloc.h>
#include <pthread.h>

#include "list.h"

enum { SMALLEST = 8, LARGEST = 1000, TOUCH_BYTES = 4096 };

static uint64_t seed = 0x9E3779B97F4A7C15u; /* argument seed=N chooses another sequence */
static char blank[LARGEST];                 /* what takes the place of a block when calls=0 */

/* The two calls under test, or nothing.  `calls` is a constant wherever these are inlined. */
static inline __attribute__((always_inline)) char *take(bool calls, size_t size) {
    char *block = calls ? malloc(size) : blank;
    *(uint64_t *)block = size; /* A program writes what it allocates; SMALLEST bytes are there. */
    return block;
}

static inline __attribute__((always_inline)) void give_back(bool calls, void *block) {
    if (calls) {
        free(block);
    } else {
        keep(block);
    }
}

static void print_result(const char *pattern, double ns) {
    struct memory now = read_memory();
    say(1, "pattern=%s ns=%.3f peak_kib=%zu rss_kib=%zu anon_kib=%zu\n", pattern, ns, now.peak_kib,
        now.rss_kib, now.anon_kib);
}

/* One step of a random pattern: which slot is replaced, and by how many bytes. */
struct step {
    uint32_t slot, size;
};

static struct step *make_steps(size_t count, size_t slots) {
    struct step *steps = harness_memory(count * sizeof *steps);
    uint64_t random = seed;
    for (size_t i = 0; i < count; i++) {
        steps[i].slot = (uint32_t)(rng_next(&random) % slots);
        steps[i].size = SMALLEST + rng_next(&random) % (LARGEST - SMALLEST + 1);
    }
    return steps;
}

static void run_hello(void) {
    args_end();
    struct memory now = read_memory();
    say(1, "pattern=hello peak_kib=%zu rss_kib=%zu anon_kib=%zu\n", now.peak_kib, now.rss_kib,
        now.anon_kib);
}

struct pair {
    size_t size, repeat;
    bool calls;
};

static inline __attribute__((always_inline)) void pair_loop(struct pair *pair, bool calls) {
    size_t size = pair->size;
    for (size_t i = pair->repeat; i > 0; i--) {
        give_back(calls, take(calls, size));
    }
}

static void pair_round(void *context) {
    struct pair *pair = context;
    if (pair->calls) {
        pair_loop(pair, true);
    } else {
        pair_loop(pair, false);
    }
}

static void run_pair(void) {
    struct pair pair = {
        .size = arg_number("size", 64),
        .repeat = arg_number("repeat", 1000000),
        .calls = arg_number("calls", 1) != 0,
    };
    size_t rounds = arg_number("rounds", 25);
    args_end();
    double ns = best_ns(CLOCK_PROCESS_CPUTIME_ID, rounds, pair.repeat, pair_round, &pair);
    print_result("pair", ns);
}

struct burst {
    size_t n, size, repeat;
    void **block;
    uint32_t *order; /* which block is freed first, second ... */
    bool calls;
};

static inline __attribute__((always_inline)) void burst_loop(struct burst *burst, bool calls) {
    size_t n = burst->n, size = burst->size;
    void **block = burst->block;
    const uint32_t *order = burst->order;
    for (size_t again = burst->repeat; again > 0; again--) {
        for (size_t i = 0; i < n; i++) {
            block[i] = take(calls, size);
        }
        for (size_t i = 0; i < n; i++) {
            give_back(calls, block[order[i]]);
        }
    }
}

static void burst_round(void *context) {
    struct burst *burst = context;
    if (burst->calls) {
        burst_loop(burst, true);
    } else {
        burst_loop(burst, false);
    }
}

/* Fill `order` with a permutation of 0..n-1; false when `name` is no order we know. */
static bool make_order(uint32_t *order, size_t n, const char *name) {
    bool lifo = strcmp(name, "lifo") == 0;
    for (size_t i = 0; i < n; i++) {
        order[i] = (uint32_t)(lifo ? n - 1 - i : i);
    }
    if (strcmp(name, "random") != 0) {
        return lifo || strcmp(name, "fifo") == 0;
    }
    uint64_t random = seed;
    for (size_t i = n - 1; i > 0; i--) {
        size_t other = rng_next(&random) % (i + 1);
        uint32_t swapped = order[i];
        order[i] = order[other];
        order[other] = swapped;
    }
    return true;
}

static void run_burst(void) {
    struct burst burst = {
        .n = arg_number("n", 1000),
        .size = arg_number("size", 64),
        .calls = arg_number("calls", 1) != 0,
    };
    burst.repeat = arg_number("repeat", 1 + 200000 / (burst.n + 1));
    size_t rounds = arg_number("rounds", 25);
    const char *order = arg_text("order", "lifo");
    args_end();
    burst.block = harness_memory((burst.n + 1) * sizeof *burst.block);
    burst.order = harness_memory((burst.n + 1) * sizeof *burst.order);
    if (burst.n == 0 || !make_order(burst.order, burst.n, order)) {
        say(2, "burst needs n above 0 and order=lifo, fifo or random\n");
        _exit(EXIT_USAGE);
    }
    size_t pairs = burst.n * burst.repeat;
    print_result("burst", best_ns(CLOCK_PROCESS_CPUTIME_ID, rounds, pairs, burst_round, &burst));
}

struct churn {
    size_t steps, repeat;
    const struct step *step;
    void **block;
    bool calls;
};

static inline __attribute__((always_inline)) void churn_loop(struct churn *churn, bool calls) {
    void **block = churn->block;
    for (size_t again = churn->repeat; again > 0; again--) {
        const struct step *end = churn->step + churn->steps;
        for (const struct step *step = churn->step; step < end; step++) {
            give_back(calls, block[step->slot]);
            block[step->slot] = take(calls, step->size);
        }
    }
}

static void churn_round(void *context) {
    struct churn *churn = context;
    if (churn->calls) {
        churn_loop(churn, true);
    } else {
        churn_loop(churn, false);
    }
}

static void run_churn(void) {
    struct churn churn = {
        .steps = arg_number("steps", 50000),
        .repeat = arg_number("repeat", 10),
        .calls = arg_number("calls", 1) != 0,
    };
    size_t live = arg_number("live", 1000);
    size_t rounds = arg_number("rounds", 10);
    args_end();
    churn.step = make_steps(churn.steps, live);
    churn.block = harness_memory(live * sizeof *churn.block);
    uint64_t random = ~seed;
    for (size_t i = 0; i < live; i++) {
        churn.block[i] = take(churn.calls, SMALLEST + rng_next(&random) % (LARGEST - SMALLEST + 1));
    }
    size_t pairs = churn.steps * churn.repeat;
    print_result("churn", best_ns(CLOCK_PROCESS_CPUTIME_ID, rounds, pairs, churn_round, &churn));
}

enum { ASKED = 1000, ASKED_REPEAT = 500 };

static void usable_round(void *context) {
    void **block = context;
    for (size_t again = 0; again < ASKED_REPEAT; again++) {
        for (size_t i = 0; i < ASKED; i++) {
            keep((void *)malloc_usable_size(block[i]));
        }
    }
}

/* By some bytes more and less, which every allocator can do where the block is. */
static void inplace_round(void *context) {
    void **block = context;
    for (size_t again = 0; again < ASKED_REPEAT; again++) {
        for (size_t i = 0; i < ASKED; i++) {
            block[i] = realloc(block[i], LARGEST - again % 8);
        }
    }
}

static void run_asking(const char *pattern, void (*round)(void *)) {
    size_t rounds = arg_number("rounds", 20);
    args_end();
    static void *block[ASKED];
    for (size_t i = 0; i < ASKED; i++) {
        block[i] = take(true, round == inplace_round ? LARGEST : SMALLEST + i);
    }
    size_t calls = (size_t)ASKED * ASKED_REPEAT;
    print_result(pattern, best_ns(CLOCK_PROCESS_CPUTIME_ID, rounds, calls, round, block));
}

static void run_usable(void) {
    run_asking("usable", usable_round);
}

static void run_inplace(void) {
    run_asking("inplace", inplace_round);
}

enum { BUFFERS = 16 };

/*
 * Grow all buffers in turn, so that none can simply stay at the end of the heap.  Three of four
 * write all they gained, like a string that is appended to; the fourth writes its last byte only,
 * like a table that is reserved ahead.
 */
static void realloc_round(void *context) {
    size_t *reallocs = context;
    char *buffer[BUFFERS] = {NULL};
    size_t size[BUFFERS] = {0};
    for (bool growing = true; growing;) {
        growing = false;
        for (size_t i = 0; i < BUFFERS; i++) {
            if (size[i] >= (1 + i % 4) << 20) {
                continue;
            }
            size_t grown = size[i] == 0 ? 16 : size[i] + size[i] * 3 / 10;
            buffer[i] = realloc(buffer[i], grown);
            size_t written = i % 4 == 3 ? grown - 1 : size[i];
            memset(buffer[i] + written, 1, grown - written);
            size[i] = grown;
            growing = true;
            ++*reallocs;
        }
    }
    for (size_t i = 0; i < BUFFERS; i++) {
        free(buffer[i]);
    }
}

static void run_realloc(void) {
    size_t rounds = arg_number("rounds", 8);
    args_end();
    size_t reallocs = 0;
    double ns = best_ns(CLOCK_PROCESS_CPUTIME_ID, rounds, 1, realloc_round, &reallocs);
    print_result("realloc", ns * (double)rounds / (double)reallocs);
}

enum { GROW_LEAST = 128 << 10, GROWING_MOST = 16 };

struct grow {
    size_t blocks, step, to;
    size_t mappings; /* most that the process had, as seen now and then */
};

static size_t count_mappings(void) {
    size_t lines = 0;
    for (const char *at = read_proc("/proc/self/maps"); *at != '\0'; at++) {
        lines += *at == '\n';
    }
    return lines;
}

/* What a block gained is written, so the pages have to be had in any case; that is the floor. */
static void grow_round(void *context) {
    struct grow *grow = context;
    char *block[GROWING_MOST];
    size_t size = GROW_LEAST, looks = 0;
    for (size_t i = 0; i < grow->blocks; i++) {
        block[i] = memset(malloc(size), 1, size);
    }
    for (; size < grow->to; size += grow->step) {
        for (size_t i = 0; i < grow->blocks; i++) {
            block[i] = realloc(block[i], size + grow->step);
            memset(block[i] + size, 1, grow->step);
        }
        if (size >= grow->to / 64 * looks) { /* 64 times in all */
            size_t now = count_mappings();
            grow->mappings = now > grow->mappings ? now : grow->mappings;
            looks++;
        }
    }
    for (size_t i = 0; i < grow->blocks; i++) {
        free(block[i]);
    }
}

static void run_grow(void) {
    struct grow grow = {
        .blocks = arg_number("blocks", 2),
        .step = arg_number("step_kib", 64) << 10,
        .to = arg_number("to_mib", 256) << 20,
    };
    size_t rounds = arg_number("rounds", 1);
    args_end();
    if (grow.blocks > GROWING_MOST || grow.step == 0) {
        say(2, "grow has at most %d blocks and a step above 0\n", GROWING_MOST);
        _exit(EXIT_USAGE);
    }
    size_t before = count_mappings();
    size_t reallocs = (grow.to - GROW_LEAST) / grow.step * grow.blocks;
    double ns = best_ns(CLOCK_PROCESS_CPUTIME_ID, rounds, reallocs, grow_round, &grow);
    say(1, "pattern=grow mappings=%zu most_mappings=%zu end_mappings=%zu\n", before, grow.mappings,
        count_mappings());
    print_result("grow", ns);
}

enum { MOVE_FENCES = 64 };

/* A block with another right behind it, where the allocator is willing to put one there. */
static char *make_fenced(size_t bytes, char **fence) {
    char *block = memset(malloc(bytes), 1, bytes);
    for (size_t i = 0; i < MOVE_FENCES; i++) {
        fence[i] = malloc(1 << 20);
    }
    return block;
}

static void run_move(void) {
    size_t from = arg_number("from_mib", 64) << 20, to = from + (1 << 20);
    size_t rounds = arg_number("rounds", 20);
    bool copy = arg_number("copy", 0) != 0;
    args_end();
    static char *fence[MOVE_FENCES];
    uint64_t best = UINT64_MAX;
    size_t elsewhere = 0;
    for (size_t round = 0; round < rounds; round++) {
        char *block = make_fenced(from, fence);
        uint64_t start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        char *moved = copy ? malloc(to) : realloc(block, to);
        if (copy) {
            memcpy(moved, block, from);
            free(block);
        }
        uint64_t taken = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start;
        elsewhere += moved != block;
        best = moved != block && taken < best ? taken : best;
        free(moved);
        for (size_t i = 0; i < MOVE_FENCES; i++) {
            free(fence[i]);
        }
    }
    say(1, "pattern=move rounds=%zu elsewhere=%zu\n", rounds, elsewhere);
    print_result("move", (double)best);
}

enum { LARGE_SLOTS = 32, LARGE_LEAST = 32 << 10, LARGE_DOUBLINGS = 8 };

struct large {
    size_t steps;
    const struct step *step;
    void *block[LARGE_SLOTS];
};

static void large_round(void *context) {
    struct large *large = context;
    for (size_t i = 0; i < large->steps; i++) {
        const struct step *step = &large->step[i];
        free(large->block[step->slot]);
        char *block = malloc(step->size);
        for (size_t at = 0; at < step->size; at += TOUCH_BYTES) {
            block[at] = 1;
        }
        large->block[step->slot] = block;
    }
}

/* Sizes are spread evenly over the eight doublings from 32 KiB to 8 MiB: mostly small ones. */
static void run_large(void) {
    static struct large large;
    large.steps = arg_number("steps", 400);
    size_t rounds = arg_number("rounds", 3);
    args_end();
    struct step *steps = make_steps(large.steps, LARGE_SLOTS);
    uint64_t random = ~seed;
    for (size_t i = 0; i < large.steps; i++) {
        uint32_t least = (uint32_t)LARGE_LEAST << (rng_next(&random) % LARGE_DOUBLINGS);
        steps[i].size = least + rng_next(&random) % least;
    }
    large.step = steps;
    double ns = best_ns(CLOCK_PROCESS_CPUTIME_ID, rounds, large.steps, large_round, &large);
    print_result("large", ns);
}

enum { IDLE_MOST = 1000, IDLE_SIZES = 64, IDLE_STEP = 16 };

static struct { pthread_barrier_t settled, leave; } idle;

static void *use_sizes_and_sleep(void *unused) {
    void *block[IDLE_SIZES];
    for (size_t i = 0; i < IDLE_SIZES; i++) {
        block[i] = take(true, (i + 1) * IDLE_STEP);
    }
    for (size_t i = 0; i < IDLE_SIZES; i++) {
        free(block[i]);
    }
    pthread_barrier_wait(&idle.settled);
    pthread_barrier_wait(&idle.leave);
    return unused;
}

static void run_idle(void) {
    static pthread_t thread[IDLE_MOST];
    size_t threads = arg_number("threads", 100);
    args_end();
    threads = threads < IDLE_MOST ? threads : IDLE_MOST;
    pthread_barrier_init(&idle.settled, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&idle.leave, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++) {
        if (pthread_create(&thread[i], NULL, use_sizes_and_sleep, NULL) != 0) {
            say(2, "cannot start thread %zu\n", i);
            _exit(1);
        }
    }
    pthread_barrier_wait(&idle.settled);
    usleep(50000); /* Until all of them sleep in the second barrier. */
    struct memory asleep = read_memory();
    pthread_barrier_wait(&idle.leave);
    for (size_t i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
    }
    struct memory after = read_memory();
    say(1, "pattern=idle threads=%zu peak_kib=%zu rss_kib=%zu anon_kib=%zu after_rss_kib=%zu\n",
        threads, asleep.peak_kib, asleep.rss_kib, asleep.anon_kib, after.rss_kib);
}

static void phase_round(void *context) {
    size_t bytes = *(size_t *)context;
    struct link *survivors = thin_list(build_list(bytes / 64, 64), 64);
    struct link *second = build_list(bytes / 400, 400);
    thin_list(survivors, 0);
    thin_list(second, 0);
}

static void run_phase(void) {
    size_t bytes = arg_number("bytes", 60000000);
    size_t idle_ms = arg_number("idle_ms", 0);
    args_end();
    size_t pairs = bytes / 64 + bytes / 400;
    double ns = best_ns(CLOCK_PROCESS_CPUTIME_ID, 1, pairs, phase_round, &bytes);
    usleep((useconds_t)(idle_ms * 1000));
    print_result("phase", ns);
}

static const struct pattern {
    const char *name;
    void (*run)(void);
} patterns[] = {
    {"hello", run_hello},     {"pair", run_pair},     {"burst", run_burst},
    {"churn", run_churn},     {"usable", run_usable}, {"inplace", run_inplace},
    {"realloc", run_realloc}, {"large", run_large},   {"grow", run_grow},
    {"move", run_move},       {"idle", run_idle},     {"phase", run_phase},
};

int main(int argc, char **argv) {
    size_t known = sizeof patterns / sizeof *patterns;
    if (argc > 1) {
        bench_begin(argc - 2, argv + 2);
        seed *= 2 * arg_number("seed", 0) + 1;
    }
    for (size_t i = 0; argc > 1 && i < known; i++) {
        if (strcmp(argv[1], patterns[i].name) == 0) {
            patterns[i].run();
            return 0;
        }
    }
    say(2, "usage: bench_micro PATTERN [key=value ...], PATTERN one of:");
    for (size_t i = 0; i < known; i++) {
        say(2, " %s", patterns[i].name);
    }
    say(2, "\n");
    return EXIT_USAGE;
}
