/* SPDX-License-Identifier: MIT
 *
 * stress_profile.c - the profiler is switched on and off, reset and asked for profiles without pause, in a
 * program whose threads allocate, hand each other blocks, start, end, fork and are interrupted.
 *
 * It begins without the profiler: threads run before it is armed for the first time.  A profile must never be
 * half of one, in any format; a child of fork can write one at once, whatever the other threads were doing,
 * and after a reset nothing is left in the profile but what is allocated from then on.
 *
 * Three seconds; STRESS=1 takes ten minutes.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/time.h>
#include <tally/tally.h>

#include "random.h"
#include "watch.h"

TEST_SETUP(require_tally);

enum { WORKERS = 3, SLOTS = 300, EXCHANGE = 64, SLICE_SECONDS = 3, WHOLE_SECONDS = 600 };
enum { STEPS_OF_STEERING = WORKERS, STEPS_OF_FORKS, STEPS_OF_PROFILES };

static _Atomic bool stop;
static void *_Atomic exchange[EXCHANGE];
static _Atomic unsigned streams;

static size_t choose_size(struct random *random) {
    uint64_t kind = random_below(random, 100);
    return 1 + random_below(random, kind < 80 ? 300 : kind < 98 ? 5000 : 300000);
}

/* Stacks of many shapes. */
__attribute__((noinline)) static void *allocate(struct random *random, unsigned depth) {
    if (depth > 0) {
        void *block = allocate(random, depth - 1);
        __asm__ volatile("" : : : "memory");
        return block;
    }
    void *block = malloc(choose_size(random));
    check(block != NULL);
    memset(block, 1, 1);
    return block;
}

static void change_one(void **slot, struct random *random) {
    uint64_t what = random_below(random, 10);
    if (what == 0) {
        *slot = atomic_exchange(&exchange[random_below(random, EXCHANGE)], *slot);
    } else if (what == 1) {
        *slot = realloc(*slot, choose_size(random));
    } else {
        free(*slot);
        *slot = allocate(random, (unsigned)random_below(random, 12));
    }
}

static void *live(void *counter) {
    void *slots[SLOTS] = {NULL};
    struct random random = random_start(11, atomic_fetch_add(&streams, 1));
    for (unsigned i = 0; i < 3000; i++) {
        change_one(&slots[random_below(&random, SLOTS)], &random);
        step((unsigned)(uintptr_t)counter);
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        free(slots[i]);
    }
    return NULL;
}

static void *follow_each_other(void *counter) {
    while (!atomic_load(&stop)) {
        pthread_t thread;
        check_eq(pthread_create(&thread, NULL, live, counter), 0);
        check_eq(pthread_join(thread, NULL), 0);
    }
    return NULL;
}

/* ---------------------------------------------------------------- profiles */

static bool starts_with(const char *bytes, const char *text) {
    return memcmp(bytes, text, strlen(text)) == 0;
}

static void check_file(int fd, enum tally_profile_format format) {
    static const char *const beginnings[] = {
        [TALLY_PROFILE_PROTO] = "\x1f\x8b",
        [TALLY_PROFILE_JEMALLOC] = "heap_v2/",
        [TALLY_PROFILE_GPERFTOOLS] = "heap profile: ",
    };
    char bytes[16] = "";
    off_t length = lseek(fd, 0, SEEK_END);
    check(length > 16);
    check_eq(pread(fd, bytes, sizeof bytes, 0), sizeof bytes);
    check(starts_with(bytes, beginnings[format]));
    if (format != TALLY_PROFILE_PROTO) { /* the maps are the end */
        check_eq(pread(fd, bytes, 1, length - 1), 1);
        check_eq(bytes[0], '\n');
    }
}

static void write_profile(enum tally_profile_format format) {
    int fd = memfd_create("profile", MFD_CLOEXEC);
    check(fd >= 0);
    check_eq(tally_profile_dump_fd(fd, format), 0);
    check_file(fd, format);
    close(fd);
    step(STEPS_OF_PROFILES);
}

/* Whether sampling is on is this thread's alone. */
static void *steer(void *nothing) {
    struct random random = random_start(12, 0);
    check_eq(tally_profile_dump_fd(2, TALLY_PROFILE_PROTO), ENOENT); /* never armed */
    nap_us(50000);
    check_eq(tally_profile_start(1), 0);
    while (!atomic_load(&stop)) {
        switch (random_below(&random, 6)) {
        case 0:
            check_eq(tally_profile_stop(), 0);
            nap_us(200);
            break;
        case 1:
            check_eq(tally_profile_start((size_t)1 << random_below(&random, 16)), 0);
            break;
        case 2:
            check_eq(tally_profile_reset(), 0);
            break;
        default:
            check_eq(tally_profile_start(1), 0);
            write_profile((enum tally_profile_format)random_below(&random, 3));
        }
        step(STEPS_OF_STEERING);
    }
    return nothing;
}

static void be_a_child(unsigned number) {
    struct random random = random_start(13, number);
    void *slots[SLOTS] = {NULL};
    if (number % 2 == 0) {
        check_eq(tally_profile_start(1), 0);
    }
    for (unsigned i = 0; i < 500; i++) {
        change_one(&slots[random_below(&random, SLOTS)], &random);
        step(STEPS_OF_FORKS);
    }
    write_profile((enum tally_profile_format)(number % 3));
    check_eq(tally_profile_reset(), 0);
    write_profile((enum tally_profile_format)(number / 2 % 3));
    tally_verify();
}

static void *fork_again_and_again(void *nothing) {
    nap_us(100000); /* the profiler is armed by then */
    for (unsigned number = 0; !atomic_load(&stop); number++) {
        pid_t pid = fork();
        check(pid >= 0);
        if (pid == 0) {
            be_a_child(number);
            _exit(0);
        }
        check_ending(watch_process(pid, STALL_SECONDS_INSIDE), __FILE__, __LINE__);
        step(STEPS_OF_FORKS);
    }
    return nothing;
}

/* ---------------------------------------------------------------- signals */

/* It interrupts anything; where the allocator is at work, the answer is EBUSY. */
static void on_timer(int signal) {
    int saved = errno;
    (void)signal;
    int answer = tally_profile_dump_fd(-1, TALLY_PROFILE_JEMALLOC);
    check(answer == EBADF || answer == EBUSY || answer == ENOENT);
    errno = saved;
}

static void interrupt_all(void) {
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    struct itimerval period = {{0, 2000}, {0, 2000}};
    check_eq(sigaction(SIGALRM, &action, NULL), 0);
    check_eq(setitimer(ITIMER_REAL, &period, NULL), 0);
}

static void calm_down(void) {
    struct itimerval never = {{0, 0}, {0, 0}};
    check_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
}

/* ---------------------------------------------------------------- the storm */

/* After a reset nothing is live but what is allocated from then on. */
static void check_that_nothing_is_left(void) {
    char line[256] = "";
    unsigned long objects = 0, bytes = 0;
    int fd = memfd_create("profile", MFD_CLOEXEC);
    check_eq(tally_profile_start(1), 0);
    check_eq(tally_profile_reset(), 0);
    void *block = malloc(1 << 20); /* small ones may come from a cache, unseen */
    check_eq(tally_profile_dump_fd(fd, TALLY_PROFILE_JEMALLOC), 0);
    check(pread(fd, line, sizeof line - 1, 0) > 0);
    check_eq(sscanf(line, "heap_v2/1 t*: %lu: %lu", &objects, &bytes), 2);
    check_eq(objects, 1);
    check_eq(bytes, tally_usable_size(block));
    free(block);
    close(fd);
}

static void storm(void) {
    pthread_t threads[WORKERS + 2];
    for (uintptr_t i = 0; i < WORKERS; i++) {
        check_eq(pthread_create(&threads[i], NULL, follow_each_other, (void *)i), 0);
    }
    check_eq(pthread_create(&threads[WORKERS], NULL, steer, NULL), 0);
    check_eq(pthread_create(&threads[WORKERS + 1], NULL, fork_again_and_again, NULL), 0);
    interrupt_all();
    struct timespec end, now;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += slice_or(SLICE_SECONDS, WHOLE_SECONDS);
    do {
        nap_us(50000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < WORKERS + 2; i++) {
        check_eq(pthread_join(threads[i], NULL), 0);
    }
    calm_down();
    for (unsigned i = 0; i < EXCHANGE; i++) {
        free(exchange[i]);
    }
    check_that_nothing_is_left();
    tally_verify();
    char number[3][24];
    test_say("    ", test_decimal(number[0], (long long)watch_counters[STEPS_OF_PROFILES]),
             " profiles, ", test_decimal(number[1], (long long)watch_counters[STEPS_OF_STEERING]),
             " switches, ", test_decimal(number[2], streams), " threads\n", NULL);
    check(watch_counters[STEPS_OF_PROFILES] > 50);
}

TEST(the_profiler_is_steered_while_threads_allocate_fork_and_are_interrupted) {
    test_allow_seconds(slice_or(TEST_SECONDS, 1200));
    run_watched(storm);
}
