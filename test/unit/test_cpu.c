/* SPDX-License-Identifier: MIT
 *
 * test_cpu.c - the CPU profiler as its callers see it: who is sampled, where, and what is written.
 *
 * Nothing is measured against a clock: threads compute until there are samples.
 */
#define _GNU_SOURCE /* pthread_setname_np, sigaltstack */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <time.h>
#include <unistd.h>

#include "base/os.h"
#include "cpu/cpu.h"
#include "cpu/sums.h"
#include "prof/prof.h"
#include "unit.h"

enum { ENOUGH = 20, DEPTH = 60 };

/* The thread sanitizer runs handlers later, somewhere in its own code. */
static void need_real_signals(void) {
#if defined(__SANITIZE_THREAD__)
    skip("the thread sanitizer delays signals");
#endif
}

static __thread volatile uint64_t sink;

TEST_SETUP(start_heap);

static void start(struct cpu_options options) {
    char why[CPU_WHY] = "";
    bool started = cpu_start(&options, why);
    check_str(why, "");
    check(started);
}

static uint64_t count_samples(void) {
    struct cpu_totals totals;
    cpu_read_totals(&totals);
    return totals.samples;
}

__attribute__((noinline)) static void compute(void) {
    for (unsigned i = 0; i < 100000; i++) {
        sink += i;
    }
}

/* The last call is not at its end, so that it has a frame of its own. */
__attribute__((noinline)) static void compute_until(uint64_t samples) {
    while (count_samples() < samples) {
        compute();
    }
    sink++;
}

__attribute__((noinline)) static void go_deep(unsigned depth, uint64_t samples) {
    if (depth == 0) {
        compute_until(samples);
    } else {
        go_deep(depth - 1, samples);
    }
    sink++;
}

/* Is the address in the function?  They are compiled one behind the other and are short. */
static bool is_in(uintptr_t address, void (*function)(void)) {
    return address - (uintptr_t)function < 200;
}

/* Samples whose stack has the function at or after this place. */
static uint64_t count_in(void (*function)(void), unsigned from, unsigned *deepest) {
    struct cpu_sample sample;
    uint64_t count = 0;
    for (uint32_t i = 0; cpu_read_sample(i, &sample); i++) {
        uintptr_t addresses[PROF_DEPTH_MOST];
        unsigned depth = prof_read_stack(sample.stack, addresses, PROF_DEPTH_MOST);
        bool found = false;
        for (unsigned k = from; k < depth && !found; k++) {
            found = is_in(addresses[k] - 1, function);
        }
        count += found ? sample.count : 0;
        if (found && deepest != NULL && depth > *deepest) {
            *deepest = depth;
        }
    }
    return count;
}

TEST(samples_are_where_the_time_is_spent) {
    need_real_signals();
    start((struct cpu_options){.hz = 1000});
    check(cpu_is_on());
    compute_until(ENOUGH);
    check(cpu_stop());
    check(!cpu_is_on());
    struct cpu_totals totals;
    cpu_read_totals(&totals);
    check(totals.samples >= ENOUGH);
    check_eq(totals.lost, 0);
    check_eq(totals.hz, 1000);
    check_eq(totals.period_ns, 1000000);
    check(!totals.is_wall);
    check(count_in(compute, 0, NULL) * 10 >= totals.samples * 8);
    check(count_in((void (*)(void))compute_until, 0, NULL) * 10 >= totals.samples * 8);
}

TEST(samples_are_kept_after_the_end_and_forgotten_by_reset) {
    start((struct cpu_options){.hz = 1000});
    compute_until(1);
    check(cpu_stop());
    check(!cpu_stop());
    uint64_t before = count_samples();
    compute();
    check_eq(count_samples(), before);
    check(cpu_sample_count() > 0);
    cpu_reset();
    check_eq(count_samples(), 0);
    check_eq(cpu_sample_count(), 0);
    struct cpu_sample sample;
    check(!cpu_read_sample(0, &sample));
}

TEST(deep_stacks_are_walked_to_their_end_without_frame_pointers) {
    need_real_signals();
    unsigned deepest = 0;
    start((struct cpu_options){.hz = 1000});
    go_deep(DEPTH, ENOUGH);
    check(cpu_stop());
    check(count_in(compute, 0, &deepest) > 0);
    check(deepest > DEPTH + 3);
}

TEST(stacks_deeper_than_the_limit_keep_their_inner_part) {
    need_real_signals();
    unsigned deepest = 0;
    start((struct cpu_options){.hz = 1000});
    go_deep(1000, ENOUGH);
    check(cpu_stop());
    check(count_in(compute, 0, &deepest) > 0);
    check_eq(deepest, 254);
}

static _Atomic bool is_done;

static void *compute_in_thread(void *unused) {
    pthread_setname_np(pthread_self(), "worker");
    while (!is_done) {
        compute();
    }
    return unused;
}

/* Samples of threads of this name. */
static uint64_t count_of(const char *wanted) {
    struct cpu_sample sample;
    uint64_t count = 0;
    for (uint32_t i = 0; cpu_read_sample(i, &sample); i++) {
        char name[16];
        pid_t tid;
        check(cpu_read_thread(sample.thread, name, &tid));
        count += strcmp(name, wanted) == 0 ? sample.count : 0;
    }
    return count;
}

/* Neither thread allocates: only /proc shows them. */
static void check_threads(struct cpu_options options) {
    pthread_t before, after;
    check_eq(pthread_create(&before, NULL, compute_in_thread, NULL), 0);
    start(options);
    check_eq(pthread_create(&after, NULL, compute_in_thread, NULL), 0);
    while (count_of("worker") < 5 || cpu_sample_count() < 2) {
        usleep(10000);
    }
    is_done = true;
    pthread_join(before, NULL);
    pthread_join(after, NULL);
    check(cpu_stop());
}

static unsigned count_workers(void) {
    struct cpu_sample sample;
    pid_t seen[64] = {0};
    unsigned count = 0;
    for (uint32_t i = 0; cpu_read_sample(i, &sample); i++) {
        char name[16];
        pid_t tid;
        check(cpu_read_thread(sample.thread, name, &tid));
        bool is_new = strcmp(name, "worker") == 0;
        for (unsigned k = 0; k < count; k++) {
            is_new &= seen[k] != tid;
        }
        if (is_new && count < 64) {
            seen[count++] = tid;
        }
    }
    return count;
}

static uint32_t count_left_out(void) {
    struct cpu_totals totals;
    cpu_read_totals(&totals);
    return totals.left_out;
}

TEST(threads_are_found_whether_they_began_before_or_after) {
    check_threads((struct cpu_options){.hz = 1000});
    check(count_workers() >= 1);
    check_eq(count_left_out(), 0);
}

TEST(both_workers_appear_when_they_run_long_enough) {
    pthread_t threads[2];
    start((struct cpu_options){.hz = 1000});
    for (unsigned i = 0; i < 2; i++) {
        check_eq(pthread_create(&threads[i], NULL, compute_in_thread, NULL), 0);
    }
    while (count_workers() < 2) {
        usleep(10000);
    }
    is_done = true;
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    check(cpu_stop());
}

static void block_all(int how) {
    sigset_t all;
    sigfillset(&all);
    check_eq(pthread_sigmask(how, &all, NULL), 0);
}

/* Blocks everything, as threads of servers do that leave signals to another one. */
static void *compute_blocked(void *unused) {
    block_all(SIG_BLOCK);
    return compute_in_thread(unused);
}

TEST(a_thread_that_blocks_signals_is_said_to_be_missing) {
    pthread_t thread;
    start((struct cpu_options){.hz = 1000});
    check_eq(pthread_create(&thread, NULL, compute_blocked, NULL), 0);
    while (count_left_out() == 0) {
        usleep(10000);
    }
    check_eq(count_left_out(), 1);
    check_eq(count_of("worker"), 0);
    is_done = true;
    pthread_join(thread, NULL);
    check(cpu_stop());
    check_eq(count_left_out(), 1); /* also when it has ended */
    start((struct cpu_options){.hz = 1000});
    check_eq(count_left_out(), 0);
    check(cpu_stop());
}

static uint64_t thread_time_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

__attribute__((noinline)) static void unblock(void) {
    block_all(SIG_UNBLOCK);
    sink++;
}

TEST(time_with_the_signal_blocked_is_lost_and_not_put_where_it_ends) {
    need_real_signals();
    struct cpu_totals totals;
    start((struct cpu_options){.hz = 1000});
    block_all(SIG_BLOCK);
    for (uint64_t end = thread_time_ns() + 300000000; thread_time_ns() < end;) {
        compute();
    }
    unblock();
    compute_until(1);
    check(cpu_stop());
    cpu_read_totals(&totals);
    check(totals.lost >= 200);
    check(count_in(unblock, 0, NULL) <= 50);
}

/* No sample is counted twice, and what the kernel takes late is not more than was used. */
TEST(there_are_no_more_samples_than_time) {
    struct cpu_totals totals;
    start((struct cpu_options){.hz = 1000});
    compute_until(2);
    check(cpu_stop());
    uint64_t before = thread_time_ns();
    start((struct cpu_options){.hz = 1000}); /* no timer is left from the first time */
    compute_until(200);
    check(cpu_stop());
    uint64_t used_ns = thread_time_ns() - before;
    cpu_read_totals(&totals);
    check(totals.samples * totals.period_ns <= used_ns + used_ns / 10 + 10000000);
}

TEST(one_timer_for_the_process_samples_all_threads) {
    check_threads((struct cpu_options){.hz = 1000, .is_process_timer = true});
}

TEST(on_the_wall_a_thread_that_waits_is_sampled) {
    start((struct cpu_options){.hz = 200, .is_wall = true});
    while (count_samples() < 10) {
        usleep(10000);
    }
    check(cpu_stop());
    struct cpu_totals totals;
    cpu_read_totals(&totals);
    check(totals.is_wall);
}

TEST(a_thread_that_waits_is_not_sampled_by_its_processor_time) {
    pthread_t thread;
    start((struct cpu_options){.hz = 1000});
    check_eq(pthread_create(&thread, NULL, compute_in_thread, NULL), 0);
    while (count_of("worker") < ENOUGH) {
        usleep(1000);
    }
    is_done = true;
    pthread_join(thread, NULL);
    check(cpu_stop());
    check(count_of("worker") * 10 >= count_samples() * 8);
}

static _Atomic unsigned asked;
static int refuse(void *answer) {
    asked++;
    return *(int *)answer;
}

TEST(a_filter_and_a_pause_drop_samples) {
    int answer = 0;
    start((struct cpu_options){.hz = 1000, .filter = refuse, .filter_argument = &answer});
    while (asked < 5) {
        compute();
    }
    check_eq(count_samples(), 0);
    answer = 1;
    compute_until(2);
    cpu_pause(true);
    unsigned before = asked;
    for (unsigned i = 0; i < 300; i++) {
        compute();
    }
    check_eq(asked, before);
    cpu_pause(false);
    while (asked == before) {
        compute();
    }
    check(cpu_stop());
}

static void expect_refusal(struct cpu_options options, const char *expected) {
    char why[CPU_WHY] = "";
    check(!cpu_start(&options, why));
    check_str(why, expected);
    check(!cpu_is_on());
}

static void on_other(int number) {
    (void)number;
}

TEST(what_cannot_be_started_is_told_in_a_sentence) {
    signal(SIGPROF, on_other);
    signal(SIGUSR1, on_other);
    expect_refusal((struct cpu_options){.is_process_timer = true},
                   "every signal that would do is used by the program");
    expect_refusal((struct cpu_options){.signal = SIGUSR1},
                   "signal 10 is taken or cannot be caught");
    expect_refusal((struct cpu_options){.signal = SIGKILL},
                   "signal 9 is taken or cannot be caught");
    expect_refusal((struct cpu_options){.signal = 65}, "signal 65 is taken or cannot be caught");
    start((struct cpu_options){0});
    struct cpu_totals totals;
    cpu_read_totals(&totals);
    check_eq(totals.hz, CPU_HZ_DEFAULT);
    char why[CPU_WHY];
    check(!cpu_start(&(struct cpu_options){0}, why));
    check_str(why, "the CPU profiler is on already");
    check(cpu_stop());
    start((struct cpu_options){.hz = 1000000});
    cpu_read_totals(&totals);
    check_eq(totals.hz, CPU_HZ_MOST);
    check(cpu_stop());
}

TEST(without_a_timer_there_is_no_profile) {
    struct rlimit none = {0, 0};
    check_eq(setrlimit(RLIMIT_SIGPENDING, &none), 0);
    expect_refusal((struct cpu_options){0}, "the kernel gives no timer for a thread");
    start((struct cpu_options){.is_process_timer = true}); /* of which there is always one */
    check(cpu_stop());
}

TEST(signals_of_the_program_are_left_alone) {
    for (int number = SIGRTMAX; number > SIGRTMAX - 3; number--) {
        signal(number, on_other);
    }
    start((struct cpu_options){.hz = 1000});
    compute_until(2);
    check(cpu_stop());
    for (int number = SIGRTMAX; number > SIGRTMAX - 3; number--) {
        struct sigaction action;
        check_eq(sigaction(number, NULL, &action), 0);
        check(action.sa_handler == on_other);
    }
}

/* A signal that is blocked is waited for, by signalfd or sigwaitinfo; one that is ignored was set so. */
TEST(signals_that_the_program_waits_for_are_left_alone) {
    struct sigaction action;
    sigset_t last;
    sigemptyset(&last);
    sigaddset(&last, SIGRTMAX);
    check_eq(pthread_sigmask(SIG_BLOCK, &last, NULL), 0);
    signal(SIGRTMAX - 1, SIG_IGN);
    start((struct cpu_options){.hz = 1000});
    compute_until(2);
    check(cpu_stop());
    check_eq(sigaction(SIGRTMAX, NULL, &action), 0);
    check(action.sa_handler == SIG_DFL);
    check_eq(sigaction(SIGRTMAX - 1, NULL, &action), 0);
    check(action.sa_handler == SIG_IGN);
}

static uintptr_t interrupted[64];
static unsigned interrupted_count;

static void read_interrupted(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    interrupted_count = cpu_read_stack(context, interrupted, 64, 0);
}

/* A signal handler of the program: the stack goes through it to what it interrupted. */
static void compute_in_handler(int number) {
    (void)number;
    compute_until(ENOUGH);
    sink++;
}

__attribute__((noinline)) static void be_interrupted(void) {
    raise(SIGUSR1);
    sink++;
}

static void check_handler(bool on_other_stack) {
    static char stack[1 << 16];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = compute_in_handler,
                               .sa_flags = on_other_stack ? SA_ONSTACK : 0};
    if (on_other_stack) {
        check_eq(sigaltstack(&other, NULL), 0);
    }
    check_eq(sigaction(SIGUSR1, &action, NULL), 0);
    start((struct cpu_options){.hz = 1000});
    be_interrupted();
    check(cpu_stop());
    uint64_t all = count_samples();
    check(count_in((void (*)(void))compute_in_handler, 1, NULL) * 10 >= all * 8);
    check(count_in(be_interrupted, 2, NULL) * 10 >= all * 8);
}

TEST(a_walk_goes_through_signal_handlers) {
    need_real_signals();
    check_handler(false);
}

TEST(a_walk_goes_from_another_stack_to_the_first) {
    need_real_signals();
    check_handler(true);
}

/* Nothing is kept for ever: what is too much counts for one thread, and then not at all. */
TEST(sums_have_an_end) {
    uint32_t rows = 0;
    sums_clear(true);
    while (sums_add(1 + rows, 1, 1)) {
        rows++;
    }
    check(rows >= 100000 && rows <= 2000000);
    check(sums_add(1, 1, 1));
    check(!sums_add(1 + rows, 1, 1));
    check(sums_add(1 + rows, 0, 1));
    sums_clear(true);
}

TEST(a_child_is_quiet_and_can_begin_again) {
    need_real_signals();
    start((struct cpu_options){.hz = 1000});
    compute_until(2);
    check_child({
        tally_free(tally_malloc(1 << 20));
        check(!cpu_is_on());
        check_eq(cpu_sample_count(), 0);
        start((struct cpu_options){.hz = 1000});
        compute_until(2);
        check(cpu_stop());
    });
    uint64_t before = count_samples();
    compute_until(before + 2);
    check(cpu_stop());
}

TEST(the_stack_of_a_context_is_read_by_whoever_handles_a_signal) {
    uintptr_t addresses[32];
    start((struct cpu_options){.hz = 1000}); /* so that something is known about the code */
    unsigned count = cpu_read_stack(NULL, addresses, 32, 0);
    check(count > 2);
    check_eq(cpu_read_stack(NULL, addresses, 1, 0), 1);
    check_eq(cpu_read_stack(NULL, addresses, 32, 1), count - 1);
    check_eq(cpu_read_stack(NULL, addresses, 32, 1000), 0);
    check(cpu_stop());
}

/* In a handler, on a stack that is as small as programs dare to have it. */
TEST(the_stack_that_a_handler_interrupted_is_read) {
    need_real_signals();
    static char small[1 << 16];
    size_t needed = (size_t)sysconf(_SC_MINSIGSTKSZ) + 4096;
    check(needed <= sizeof small);
    stack_t other = {.ss_sp = small, .ss_size = needed};
    struct sigaction action = {.sa_sigaction = read_interrupted,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK};
    check_eq(sigaltstack(&other, NULL), 0);
    check_eq(sigaction(SIGUSR1, &action, NULL), 0);
    be_interrupted();
    check_eq(interrupted_count, 1); /* there never was a profile */
    start((struct cpu_options){.hz = 100});
    be_interrupted();
    check(cpu_stop());
    bool found = false;
    for (unsigned i = 0; i < interrupted_count; i++) {
        found |= is_in(interrupted[i] - 1, be_interrupted);
    }
    check(found);
}

/* ---------------------------------------------------------------- files */

static size_t dump(enum cpu_format format, unsigned char *bytes, size_t capacity) {
    int fd = memfd_create("profile", 0);
    check(fd >= 0);
    check(cpu_dump_fd(fd, format));
    ssize_t length = pread(fd, bytes, capacity, 0);
    close(fd);
    check(length > 0);
    return (size_t)length;
}

static unsigned char bytes[1 << 20];

TEST(the_binary_format_has_header_records_trailer_and_maps) {
    start((struct cpu_options){.hz = 500});
    compute_until(ENOUGH);
    check(cpu_stop());
    size_t length = dump(CPU_GPERFTOOLS, bytes, sizeof bytes);
    const uintptr_t *words = (const void *)bytes;
    const uintptr_t header[] = {0, 3, 0, 2000, 0};
    check(memcmp(words, header, sizeof header) == 0);
    size_t at = 5;
    uint64_t samples = 0;
    while (words[at] != 0) {
        samples += words[at];
        check(words[at + 1] >= 1 && words[at + 1] <= 254);
        check(words[at + 2] != 0);
        at += 2 + words[at + 1];
        check(at * sizeof(uintptr_t) < length);
    }
    check_eq(samples, count_samples());
    check(words[at + 1] == 1 && words[at + 2] == 0);
    bytes[length - 1] = '\0';
    check(strstr((const char *)&words[at + 3], "test_cpu") != NULL);
}

TEST(profile_proto_is_in_gzip) {
    start((struct cpu_options){.hz = 500});
    compute_until(2);
    check(cpu_stop());
    check(dump(CPU_PPROF, bytes, sizeof bytes) > 100);
    check(bytes[0] == 0x1f && bytes[1] == 0x8b);
}

TEST(names_say_which_format_is_wanted) {
    check_eq(cpu_format_by_name("a.pb.gz"), CPU_PPROF);
    check_eq(cpu_format_by_name("a.pb"), CPU_PPROF);
    check_eq(cpu_format_by_name("a.prof"), CPU_GPERFTOOLS);
    check_eq(cpu_format_by_name(".pb"), CPU_GPERFTOOLS);
    check_eq(cpu_format_by_name(""), CPU_GPERFTOOLS);
}
