/* SPDX-License-Identifier: MIT
 *
 * stress_cpu.c - both profilers on: 4000 signals a second in every thread, and every allocation recorded, while
 * threads allocate at many depths, start and end, load and unload a library, unwind by libgcc and fork, and
 * the CPU profile is stopped, started and written.
 *
 * Nothing hangs, errno and floating point are as they were, a read that waits is not cut short, and at most one sample in a hundred is lost.  Time
 * on the wall is sampled, because only then the kernel sends as many signals as it is asked for.
 *
 *      STRESS=1    goes on until ten million signals have come, instead of for three seconds
 *      SIGNALS=n   as many as these
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <fenv.h>
#include <pthread.h>
#include <stdio.h>
#include <tally/tally.h>

#include "base/os.h"
#include "cpu/cpu.h"
#include "random.h"
#include "watch.h"

enum { WORKERS = 6, BLOCKS = 64, SLICE_SECONDS = 3, DEEPEST = 120 };
enum { WHOLE_SIGNALS = 10000000, WHOLE_SECONDS = 3600 };
enum {
    STEP_WORK,
    STEP_THREADS = WORKERS,
    STEP_LOAD,
    STEP_UNWIND,
    STEP_FORK,
    STEP_READ,
    STEP_PROFILE
};

/* The thread sanitizer does not like threads in children, and makes everything slow. */
#if defined(__SANITIZE_THREAD__)
enum { CAN_START_IN_CHILD = 0, MOST_LOST_PERCENT = 100, HZ = 100, SLICE_SIGNALS = 500 };
#elif defined(__SANITIZE_ADDRESS__) /* A lock of its own, for threads, may be held in a fork. */
enum { CAN_START_IN_CHILD = 0, MOST_LOST_PERCENT = 1, HZ = 4000, SLICE_SIGNALS = 5000 };
#else
enum { CAN_START_IN_CHILD = 1, MOST_LOST_PERCENT = 1, HZ = 4000, SLICE_SIGNALS = 5000 };
#endif

static _Atomic bool stop;
static _Atomic uint64_t signals;
static _Atomic unsigned streams;

static int count_signal(void *argument) {
    (void)argument;
    atomic_fetch_add(&signals, 1);
    errno = 4711; /* It must not be seen outside. */
    return 1;
}

static const struct cpu_options options = {.hz = HZ, .is_wall = true, .filter = count_signal};

__attribute__((noinline)) static void allocate_deep(struct random *random, unsigned depth) {
    if (depth > 0) {
        allocate_deep(random, depth - 1);
        __asm__ volatile("" : : : "memory");
        return;
    }
    void *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = tally_malloc(1 + random_below(random, 5000));
        check(blocks[i] != NULL);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        tally_free(blocks[i]);
    }
}

/* What a handler must leave alone. */
static double compute(void) {
    volatile double sum = 0;
    for (unsigned i = 1; i < 2000; i++) {
        sum += 1.0 / i;
    }
    return sum;
}

static void *work(void *number) {
    struct random random = random_start(7, atomic_fetch_add(&streams, 1));
    double expected = compute();
    fesetround(FE_DOWNWARD);
    double below = compute();
    while (!atomic_load(&stop)) {
        errno = 0;
        __asm__ volatile("" : : : "memory"); /* A handler may write to it. */
        check(compute() == below);
        __asm__ volatile("" : : : "memory");
        check_eq(errno, 0);
        check_eq(fegetround(), FE_DOWNWARD);
        allocate_deep(&random, (unsigned)random_below(&random, DEEPEST));
        step(STEP_WORK + (unsigned)(uintptr_t)number);
    }
    fesetround(FE_TONEAREST);
    check(compute() == expected);
    return NULL;
}

static void *be_short(void *unused) {
    struct random random = random_start(8, atomic_fetch_add(&streams, 1));
    allocate_deep(&random, 3);
    return unused;
}

static void *make_threads(void *unused) {
    while (!atomic_load(&stop)) {
        pthread_t thread;
        check_eq(pthread_create(&thread, NULL, be_short, NULL), 0);
        check_eq(pthread_join(thread, NULL), 0);
        step(STEP_THREADS);
    }
    return unused;
}

__attribute__((noinline)) static unsigned be_called_back(unsigned number) {
    for (volatile unsigned i = 0; i < 100; i++) {
        number += i;
    }
    return number;
}

/* One takes the other's place in memory, as a rule. */
static void *load_and_unload(void *unused) {
    static const char *const plugins[] = {CPU_PLUGIN_SMALL, CPU_PLUGIN_LARGE};
    for (unsigned i = 0; !atomic_load(&stop); i++) {
        void *library = dlopen(plugins[i % 2], RTLD_NOW | RTLD_LOCAL);
        check(library != NULL);
        unsigned (*compute_there)(unsigned (*)(unsigned), unsigned) =
            (unsigned (*)(unsigned (*)(unsigned), unsigned))dlsym(library, "compute_in_plugin");
        check(compute_there != NULL);
        (void)compute_there(be_called_back, 5000);
        check_eq(dlclose(library), 0);
        step(STEP_LOAD);
    }
    return unused;
}

static void *unwind_all_the_time(void *unused) {
    while (!atomic_load(&stop)) {
        void *addresses[64];
        check(backtrace(addresses, 64) > 1);
        step(STEP_UNWIND);
    }
    return unused;
}

/* The kernel takes up again what a signal has interrupted. */
static int channel[2];

static void *read_all_the_time(void *unused) {
    char byte;
    while (read(channel[0], &byte, 1) == 1 && byte != 'e') {
        step(STEP_READ);
    }
    check_eq(byte, 'e');
    return unused;
}

static void fork_once(void) {
    pid_t child = fork();
    if (child == 0) {
        void *block = tally_malloc(100);
        tally_free(block);
        char why[CPU_WHY];
        bool is_quiet = !cpu_is_on() && cpu_sample_count() == 0;
        bool starts = !CAN_START_IN_CHILD || (cpu_start(&options, why) && cpu_stop());
        _exit(is_quiet && starts ? 0 : 1);
    }
    int status;
    check(child > 0);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    check_eq(status, 0);
}

static void *fork_and_wait(void *unused) {
    while (!atomic_load(&stop)) {
        fork_once();
        nap_us(2000);
        step(STEP_FORK);
    }
    return unused;
}

static struct cpu_totals sum;

static void restart(void) {
    struct cpu_totals totals;
    char why[CPU_WHY];
    check(cpu_stop());
    cpu_read_totals(&totals);
    sum.samples += totals.samples;
    sum.lost += totals.lost;
    check(cpu_start(&options, why));
}

/* One call per round: restart it, write it, read it. */
static void steer(unsigned round) {
    static const enum cpu_format formats[] = {CPU_PPROF, CPU_GPERFTOOLS};
    int file = open("/dev/null", O_WRONLY);
    check_eq(write(channel[1], "x", 1), 1);
    check(cpu_dump_fd(file, formats[round % 2]));
    close(file);
    if (round % 8 == 7) {
        restart();
    }
    step(STEP_PROFILE);
}

static uint64_t wanted_signals(void) {
    const char *text = getenv("SIGNALS");
    return text != NULL ? strtoull(text, NULL, 10) : WHOLE_SIGNALS;
}

static bool is_over(uint64_t start_ns) {
    uint64_t seconds = (os_now_ns() - start_ns) / 1000000000;
    return whole_length() ? signals >= wanted_signals() || seconds > WHOLE_SECONDS
                          : seconds >= SLICE_SECONDS && signals >= SLICE_SIGNALS;
}

static void say_what_came(void) {
    char line[160];
    snprintf(line, sizeof line, "    %lu signals, %lu samples counted, %lu lost\n",
             (unsigned long)signals, (unsigned long)sum.samples, (unsigned long)sum.lost);
    test_say(line, NULL);
}

static void profile_all(void) {
    void *(*others[])(void *) = {make_threads, load_and_unload, unwind_all_the_time, fork_and_wait,
                                 read_all_the_time};
    enum { OTHERS = sizeof others / sizeof others[0] };
    pthread_t threads[WORKERS + OTHERS];
    char why[CPU_WHY];
    check_eq(pipe(channel), 0);
    check_eq(tally_profile_start(1), 0);
    check(cpu_start(&options, why));
    for (unsigned i = 0; i < WORKERS; i++) {
        check_eq(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), 0);
    }
    for (unsigned i = 0; i < OTHERS; i++) {
        check_eq(pthread_create(&threads[WORKERS + i], NULL, others[i], NULL), 0);
    }
    uint64_t start_ns = os_now_ns();
    for (unsigned round = 0; !is_over(start_ns); round++) {
        steer(round);
        nap_us(20000);
    }
    atomic_store(&stop, true);
    check_eq(write(channel[1], "e", 1), 1);
    for (unsigned i = 0; i < WORKERS + OTHERS; i++) {
        check_eq(pthread_join(threads[i], NULL), 0);
    }
    restart();
    check(cpu_stop());
    say_what_came();
    check(sum.samples >= SLICE_SIGNALS);
    check(sum.lost * 100 <= (sum.samples + sum.lost) * MOST_LOST_PERCENT);
}

TEST(both_profilers_survive_storms_of_signals) {
    test_allow_seconds(whole_length() ? WHOLE_SECONDS + 120 : 120);
    run_watched(profile_all);
}
