/* SPDX-License-Identifier: MIT
 *
 * How long single calls take when much happens: `bench_latency PATTERN [key=value ...]`.
 *
 *   growth  one thread fills `mib` with blocks of `least`..`most` bytes and writes to them
 *   shrink  the same, then frees all in random order, with new ones of other sizes between
 *   purge   the same, freed in the order of allocation, so that whole runs of pages come free
 *   trim    nine of ten blocks are freed at random, so that many slabs are partly free; then one
 *           thread asks again and again for everything to be given back (trim.h), while another
 *           makes and frees bursts of small blocks.  Only the calls of the latter count
 *
 * One line of key=value: us at the median, for 999 of 1,000 and the longest, for malloc and free.
 * A call is timed by the clock on the wall, because waiting for a lock counts.  So a call in which the
 * kernel took the CPU away is left out (`lost`): the thread's count of involuntary switches is read
 * before and after every call that took long, and every few calls otherwise.  What the machine
 * below took away cannot be seen from here; `calm_us` is the longest turn of an empty loop.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "trim.h"

/* Times in ns by sixteenths of a doubling. */
enum { PARTS = 16, BUCKETS = 40 * PARTS, LONG_NS = 20000, LOOK_EVERY = 16, BURST = 4096 };

struct times {
    uint64_t count[BUCKETS], total, longest, lost;
};

static struct {
    struct times making, freeing, calm;
    size_t least, most, bytes, blocks;
    char **list;
    uint64_t random;
    long switches; /* as read last, and how long ago */
    size_t unread;
    atomic_bool measured;
} g = {.random = 0x9E3779B97F4A7C15u};

static size_t bucket_of(uint64_t ns) {
    if (ns < PARTS) {
        return ns;
    }
    unsigned top = 63 - (unsigned)__builtin_clzll(ns); /* at least 4 */
    size_t bucket = (top - 3) * PARTS + (ns >> (top - 4)) % PARTS;
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static double bucket_us(size_t bucket) {
    if (bucket < PARTS) {
        return (double)bucket / 1e3;
    }
    return (double)((bucket % PARTS + PARTS) << (bucket / PARTS - 1)) / 1e3;
}

static long count_switches(void) {
    struct rusage used;
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_nivcsw;
}

static uint64_t begin_call(void) {
    if (g.unread++ % LOOK_EVERY == 0) {
        g.switches = count_switches();
    }
    return clock_ns(CLOCK_MONOTONIC);
}

static void end_call(struct times *times, uint64_t start) {
    uint64_t ns = clock_ns(CLOCK_MONOTONIC) - start;
    if (ns > LONG_NS) {
        long now = count_switches();
        bool lost = now != g.switches;
        g.switches = now;
        if (lost) {
            times->lost++;
            return;
        }
    }
    times->count[bucket_of(ns)]++;
    times->total++;
    times->longest = ns > times->longest ? ns : times->longest;
}

static double us_for(const struct times *times, uint64_t of_1000) {
    uint64_t below = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        below += times->count[i];
        if (below * 1000 >= times->total * of_1000) {
            return bucket_us(i);
        }
    }
    return 0;
}

static void print_times(const char *name, const struct times *times) {
    say(1, " %s_p50=%.3f %s_p999=%.3f %s_max=%.1f %s_lost=%lu", name, us_for(times, 500), name,
        us_for(times, 999), name, (double)times->longest / 1e3, name, times->lost);
}

static char *timed_malloc(size_t size) {
    uint64_t start = begin_call();
    char *block = malloc(size);
    end_call(&g.making, start);
    *block = 1;
    return block;
}

static void timed_free(char *block) {
    uint64_t start = begin_call();
    free(block);
    end_call(&g.freeing, start);
}

/* Evenly over the doublings from least to most. */
static size_t random_size(void) {
    unsigned doublings = 1;
    while (g.least << (doublings + 1) <= g.most) {
        doublings++;
    }
    size_t low = g.least << rng_next(&g.random) % doublings;
    return low + rng_next(&g.random) % low;
}

static void fill_all(bool timed) {
    size_t most_blocks = g.bytes / g.least;
    g.list = harness_memory(most_blocks * sizeof *g.list);
    for (size_t filled = 0; filled < g.bytes && g.blocks < most_blocks; g.blocks++) {
        size_t size = random_size();
        char *block = timed ? timed_malloc(size) : malloc(size);
        for (size_t at = 0; at < size; at += 4096) {
            block[at] = 1;
        }
        g.list[g.blocks] = block;
        filled += size;
    }
}

static void mix_order(void) {
    for (size_t i = g.blocks - 1; i > 0; i--) {
        size_t other = ((uint64_t)rng_next(&g.random) << 32 | rng_next(&g.random)) % (i + 1);
        char *swapped = g.list[i];
        g.list[i] = g.list[other];
        g.list[other] = swapped;
    }
}

/* Bursts of one size, longer than what a thread keeps for itself. */
static void *make_and_free(void *unused) {
    static char *burst[BURST];
    while (!atomic_load_explicit(&g.measured, memory_order_relaxed)) {
        size_t size = g.least << rng_next(&g.random) % 3;
        for (size_t i = 0; i < BURST; i++) {
            burst[i] = timed_malloc(size);
        }
        for (size_t i = 0; i < BURST; i++) {
            timed_free(burst[i]);
        }
    }
    return unused;
}

static void trim_beside(size_t times) {
    pthread_t other;
    for (size_t i = 0; i < g.blocks; i++) {
        if (rng_next(&g.random) % 10 != 0) {
            free(g.list[i]);
        }
    }
    if (pthread_create(&other, NULL, make_and_free, NULL) != 0) {
        say(2, "cannot start a thread\n");
        _exit(1);
    }
    usleep(100000);
    for (size_t i = 0; i < times; i++) {
        trim_everything();
        usleep(10000);
    }
    atomic_store(&g.measured, true);
    pthread_join(other, NULL);
}

static void look_at_machine(void) {
    for (size_t i = 0; i < 2000000; i++) {
        end_call(&g.calm, begin_call());
    }
}

int main(int argc, char **argv) {
    const char *pattern = argc > 1 ? argv[1] : "";
    bench_begin(argc > 2 ? argc - 2 : 0, argv + 2);
    g.bytes = arg_number("mib", 1024) << 20;
    g.least = arg_number("least", 64);
    g.most = arg_number("most", 4096);
    size_t times = arg_number("times", 20);
    args_end();
    bool shrink = strcmp(pattern, "shrink") == 0, purge = strcmp(pattern, "purge") == 0;
    bool growth = strcmp(pattern, "growth") == 0, trim = strcmp(pattern, "trim") == 0;
    if (!(shrink || purge || growth || trim) || g.least == 0 || g.most < 2 * g.least) {
        say(2,
            "usage: bench_latency growth|shrink|purge|trim [key=value ...]; most >= 2 * least\n");
        return EXIT_USAGE;
    }
    look_at_machine();
    fill_all(!trim);
    if (shrink) {
        mix_order();
    }
    for (size_t i = 0; i < g.blocks && (shrink || purge); i++) {
        timed_free(g.list[i]);
        if (shrink && i % 64 == 0) {
            timed_free(timed_malloc(random_size()));
        }
    }
    if (trim) {
        trim_beside(times);
    }
    say(1, "pattern=%s calm_us=%.1f", pattern, (double)g.calm.longest / 1e3);
    print_times("malloc", &g.making);
    print_times("free", &g.freeing);
    say(1, "\n");
    return 0;
}
