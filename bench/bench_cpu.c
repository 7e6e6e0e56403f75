/* SPDX-License-Identifier: MIT
 *
 * bench_cpu.c - what the CPU profiler costs.  Run it with libtally.so preloaded and CPUPROFILE_FREQUENCY set:
 *
 *      LD_PRELOAD=build/libtally.so CPUPROFILE_FREQUENCY=100 build/bench_cpu [rounds [folder]]
 *
 * Rounds of the same work, a few tenths of a second of allocating and computing at the depth of 40 calls, with the
 * profile on and off in turn; the processor time of the whole process counts, so that of the thread that
 * counts samples does, too.  Printed are the medians of both, what lies between them in percent, and the same per
 * sample.  The order within a pair alternates, so that a machine that becomes slower favours neither.
 *
 * The cost is that of a signal times their number.  At 100 Hz it is below what a shared machine can tell, so
 * measure it at 4000 Hz on the wall (CPUPROFILE_REALTIME=1), where it is larger by the factor, and divide.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gperftools/profiler.h>

enum { MOST_ROUNDS = 1000, DEPTH = 40, TURNS = 400, TIMES = 60 };

extern int ProfilerStart(const char *name) __attribute__((weak));
extern void ProfilerStop(void) __attribute__((weak));
extern void ProfilerGetCurrentState(struct ProfilerState *state) __attribute__((weak));

static volatile uint64_t sink;

static double process_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

__attribute__((noinline)) static void work(unsigned depth) {
    if (depth > 0) {
        work(depth - 1);
        sink++;
        return;
    }
    for (unsigned turn = 0; turn < TURNS; turn++) {
        void *blocks[64];
        for (unsigned i = 0; i < 64; i++) {
            blocks[i] = malloc(16 + (turn * 7 + i * 13) % 2000);
        }
        for (unsigned i = 0; i < 3000; i++) {
            sink += i;
        }
        for (unsigned i = 0; i < 64; i++) {
            free(blocks[i]);
        }
    }
}

static double run(void) {
    double start = process_us();
    for (unsigned i = 0; i < TIMES; i++) {
        work(DEPTH);
    }
    return process_us() - start;
}

static unsigned long samples;

static double run_profiled(const char *file) {
    struct ProfilerState state;
    if (!ProfilerStart(file)) {
        exit(1);
    }
    double time = run();
    ProfilerGetCurrentState(&state);
    samples += (unsigned long)state.samples_gathered;
    ProfilerStop();
    return time;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

int main(int argc, char **argv) {
    static double off[MOST_ROUNDS], on[MOST_ROUNDS];
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 20;
    const char *folder = argc > 2 ? argv[2] : ".";
    char file[4096];
    rounds = rounds > MOST_ROUNDS ? MOST_ROUNDS : rounds;
    if (ProfilerStart == NULL) {
        fprintf(stderr, "bench_cpu: preload libtally.so\n");
        return 1;
    }
    snprintf(file, sizeof file, "%s/bench_cpu.%d.prof", folder, (int)getpid());
    run();
    for (unsigned i = 0; i < rounds; i++) {
        if (i % 2 == 0) {
            off[i] = run();
        }
        on[i] = run_profiled(file);
        if (i % 2 != 0) {
            off[i] = run();
        }
    }
    unlink(file);
    double without = median(off, rounds), with = median(on, rounds);
    printf("rounds=%u off_us=%.0f on_us=%.0f overhead_percent=%.2f samples_per_round=%.1f\n",
           rounds, without, with, (with - without) / without * 100, (double)samples / rounds);
    return 0;
}
