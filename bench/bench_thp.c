/* SPDX-License-Identifier: MIT
 *
 * bench_thp.c - patterns in which huge pages show: in time, in memory, or in both.
 *
 *     hello   one small block
 *     walk    `mib` MiB of 64-byte objects, linked in random order and followed once around
 *     saw     grows to `mib` MiB of small objects, frees all but every 64th in a row of 4096, eight
 *             times, then gives back and looks what is left
 *
 * Prints one line.  Times are CPU time; memory is the anonymous memory of the process, without the
 * arrays of the bench itself, which are kept away from huge pages.
 *
 * Read next   thp.py, which runs this for every kernel setting and every value of the option thp.
 */
#include <malloc.h>

#include "bench.h"

enum { OBJECT_BYTES = 64, SAW_BYTES = 256, SAW_ROUNDS = 8, SAW_ROW = 4096, SAW_KEEP = 64 };

static void *plain_array(size_t bytes) {
    void *array = harness_memory(bytes);
    madvise(array, bytes, MADV_NOHUGEPAGE);
    return array;
}

static double seconds(void) {
    return (double)clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9;
}

static size_t anonymous_mib(size_t array_bytes) {
    return (read_memory().anon_kib >> 10) - (array_bytes >> 20);
}

static size_t huge_mib(void) {
    return field_kib(read_proc("/proc/self/smaps_rollup"), "\nAnonHugePages:") >> 10;
}

static void run_hello(void) {
    args_end();
    keep(malloc(100));
    say(1, "pattern=hello rss_kib=%zu huge_mib=%zu\n", read_memory().rss_kib, huge_mib());
}

static void run_walk(void) {
    size_t count = arg_number("mib", 1024) * ((1 << 20) / OBJECT_BYTES);
    args_end();
    void ***object = plain_array(count * sizeof(void **));
    uint64_t random = 0x9e3779b97f4a7c15;
    double start = seconds();
    for (size_t i = 0; i < count; i++) {
        object[i] = malloc(OBJECT_BYTES);
        *object[i] = NULL;
    }
    double built = seconds();
    for (size_t i = count - 1; i > 0; i--) {
        size_t other = rng_next(&random) % (i + 1);
        void **swapped = object[i];
        object[i] = object[other];
        object[other] = swapped;
    }
    for (size_t i = 0; i < count; i++) {
        *object[i] = object[(i + 1) % count];
    }
    double linked = seconds();
    void **at = object[0];
    for (size_t i = 0; i < count; i++) {
        at = *at;
    }
    keep(at);
    double walked = seconds();
    say(1, "pattern=walk build_s=%.2f walk_s=%.2f rss_mib=%zu huge_mib=%zu\n", built - start,
        walked - linked, anonymous_mib(count * sizeof(void **)), huge_mib());
}

static void run_saw(void) {
    size_t count = arg_number("mib", 200) * ((1 << 20) / SAW_BYTES);
    args_end();
    char **object = plain_array(count * sizeof(char *));
    size_t peak = 0;
    double start = seconds();
    for (unsigned round = 0; round < SAW_ROUNDS; round++) {
        for (size_t i = 0; i < count; i++) {
            if (object[i] == NULL) {
                object[i] = malloc(SAW_BYTES);
                memset(object[i], 1, SAW_BYTES);
            }
        }
        peak = anonymous_mib(count * sizeof(char *));
        for (size_t i = 0; i < count; i++) {
            if (i / SAW_ROW % SAW_KEEP != 0) {
                free(object[i]);
                object[i] = NULL;
            }
        }
    }
    double done = seconds();
    malloc_trim(0);
    say(1, "pattern=saw time_s=%.2f peak_mib=%zu left_mib=%zu huge_mib=%zu\n", done - start, peak,
        anonymous_mib(count * sizeof(char *)), huge_mib());
}

static const struct {
    const char *name;
    void (*run)(void);
} patterns[] = {{"hello", run_hello}, {"walk", run_walk}, {"saw", run_saw}};

int main(int argc, char **argv) {
    bench_begin(argc - 2, argv + 2);
    for (size_t i = 0; argc > 1 && i < sizeof patterns / sizeof patterns[0]; i++) {
        if (strcmp(argv[1], patterns[i].name) == 0) {
            patterns[i].run();
            return 0;
        }
    }
    say(2, "usage: bench_thp hello|walk|saw [mib=N]\n");
    return EXIT_USAGE;
}
