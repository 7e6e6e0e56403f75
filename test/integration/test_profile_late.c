/* SPDX-License-Identifier: MIT
 *
 * test_profile_late.c - the profiler is armed in a program that runs already, with threads and a heap of its
 * own; who is recorded, under which name, and what is forgotten.
 *
 * Profiles are written in jemalloc's format, which has threads, to a file in memory, and read back from it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <tally/tally.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

enum { THREADS = 4, BLOCKS = 1000, CACHED = 64, TEXT_BYTES = 1 << 22, SIZE = 1000 };

static char text[TEXT_BYTES];

static const char *take_profile(void) {
    int fd = memfd_create("profile", MFD_CLOEXEC);
    check(fd >= 0);
    check_eq(tally_profile_dump_fd(fd, TALLY_PROFILE_JEMALLOC), 0);
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    check(length > 0 && length < (ssize_t)sizeof text - 1);
    text[length] = '\0';
    close(fd);
    return text;
}

struct counts {
    unsigned long objects, bytes;
};

/* Of all that the profile has. */
static struct counts take_totals(void) {
    struct counts counts = {0, 0};
    unsigned long rate;
    check_eq(
        sscanf(take_profile(), "heap_v2/%lu t*: %lu: %lu", &rate, &counts.objects, &counts.bytes),
        3);
    return counts;
}

/* The line of a thread at the top of the profile that was taken last, by its name. */
static struct counts find_thread(const char *name) {
    struct counts counts = {0, 0};
    for (const char *line = strchr(text, '\n') + 1; *line == ' '; line = strchr(line, '\n') + 1) {
        char found[32] = "";
        struct counts here;
        if (sscanf(line, " t%*[0-9]: %lu: %lu [%*u: %*u] %31[^\n]", &here.objects, &here.bytes,
                   found) == 3 &&
            strcmp(found, name) == 0) {
            counts.objects += here.objects;
            counts.bytes += here.bytes;
        }
    }
    return counts;
}

static void set_switch(const char *name, bool value) {
    check_eq(mallctl(name, NULL, NULL, &value, sizeof value), 0);
}

static void set_lg_sample(size_t lg) {
    check_eq(mallctl("prof.reset", NULL, NULL, &lg, sizeof lg), 0);
}

/* ---------------------------------------------------------------- threads that run already */

static struct {
    pthread_barrier_t barrier; /* passed by all threads and the test, before and after each round */
    void *blocks[THREADS][BLOCKS];
    void (*_Atomic act)(unsigned thread);
} g;

static void allocate_blocks(unsigned thread) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        g.blocks[thread][i] = malloc(SIZE);
        check(g.blocks[thread][i] != NULL);
    }
}

/* Those of the neighbour. */
static void free_blocks(unsigned thread) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        free(g.blocks[(thread + 1) % THREADS][i]);
    }
}

static void *act_until_told(void *number) {
    for (;;) {
        pthread_barrier_wait(&g.barrier);
        void (*act)(unsigned) = g.act;
        if (act == NULL) {
            return NULL;
        }
        act((unsigned)(uintptr_t)number);
        pthread_barrier_wait(&g.barrier);
    }
}

static void start_threads(pthread_t threads[THREADS]) {
    check_eq(pthread_barrier_init(&g.barrier, NULL, THREADS + 1), 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        check_eq(pthread_create(&threads[i], NULL, act_until_told, (void *)i), 0);
    }
}

static void all_act(void (*act)(unsigned)) {
    g.act = act;
    pthread_barrier_wait(&g.barrier);
    pthread_barrier_wait(&g.barrier);
}

static void end_threads(pthread_t threads[THREADS]) {
    g.act = NULL;
    pthread_barrier_wait(&g.barrier);
    for (unsigned i = 0; i < THREADS; i++) {
        check_eq(pthread_join(threads[i], NULL), 0);
    }
}

/* What was in the caches of the threads is not recorded, and the names of the profiler answer at once. */
static void check_late_arming(void (*arm)(void)) {
    pthread_t threads[THREADS];
    start_threads(threads);
    all_act(allocate_blocks);
    all_act(free_blocks);
    all_act(allocate_blocks); /* and these stay unknown */
    arm();
    check(take_totals().objects < CACHED);
    all_act(free_blocks);
    check(take_totals().objects < CACHED);
    all_act(allocate_blocks);
    struct counts all = take_totals();
    check(all.objects <= THREADS * BLOCKS + CACHED);
    check(all.objects >= THREADS * (BLOCKS - CACHED));
    check(all.bytes >= all.objects * SIZE - CACHED * SIZE);
    all_act(free_blocks);
    check(take_totals().objects < CACHED);
    all_act(allocate_blocks); /* by now the caches have nothing unseen */
    struct counts again = take_totals();
    check(again.objects >= THREADS * BLOCKS && again.objects <= THREADS * BLOCKS + CACHED);
    all_act(free_blocks);
    end_threads(threads);
    check(take_totals().objects < CACHED);
    tally_verify();
}

static void arm_by_name(void) {
    set_switch("prof.active", true);
    set_lg_sample(0);
}

static void arm_by_call(void) {
    check_eq(tally_profile_start(1), 0);
}

TEST(prof_active_arms_a_program_that_runs_already) {
    size_t lg = 0;
    check_eq(mallctl("prof.reset", NULL, NULL, &lg, sizeof lg), ENOENT);
    check_late_arming(arm_by_name);
}

TEST(tally_profile_start_arms_a_program_that_runs_already) {
    check_eq(tally_profile_dump_fd(2, TALLY_PROFILE_PROTO), ENOENT);
    check_late_arming(arm_by_call);
}

TEST(objects_recorded_before_the_profiler_stops_leave_the_profile_when_freed) {
    pthread_t threads[THREADS];
    start_threads(threads);
    arm_by_call();
    all_act(allocate_blocks);
    check_eq(tally_profile_stop(), 0);
    struct counts kept = take_totals();
    check(kept.objects >= THREADS * BLOCKS);
    void *unseen = malloc(SIZE);
    check_eq(take_totals().objects, kept.objects);
    all_act(free_blocks);
    check_eq(take_totals().objects, kept.objects - THREADS * BLOCKS);
    free(unseen);
    end_threads(threads);
}

/* ---------------------------------------------------------------- one thread among others */

static void *allocate_named(void *name) {
    check_eq(mallctl("thread.prof.name", NULL, NULL, &name, sizeof name), 0);
    for (unsigned i = 0; i < 10; i++) {
        g.blocks[0][i] = malloc(SIZE);
    }
    return NULL;
}

static void *allocate_unseen(void *nothing) {
    bool was_active = false;
    size_t length = sizeof was_active;
    check_eq(mallctl("thread.prof.active", &was_active, &length, NULL, 0), 0);
    check(was_active);
    set_switch("thread.prof.active", false);
    for (unsigned i = 0; i < 10; i++) {
        g.blocks[1][i] = malloc(SIZE);
    }
    set_switch("thread.prof.active", true);
    g.blocks[1][10] = malloc(SIZE);
    return nothing;
}

static void *do_nothing(void *nothing) {
    return nothing;
}

/* The first thread leaves libc a stack, whose descriptor the next ones find. */
static void run_thread(void *(*act)(void *), const char *argument) {
    pthread_t thread;
    check_eq(pthread_create(&thread, NULL, act, (void *)(uintptr_t)argument), 0);
    check_eq(pthread_join(thread, NULL), 0);
}

TEST(threads_keep_their_names_in_the_profile_after_their_end) {
    arm_by_call();
    run_thread(allocate_named, "first worker");
    take_profile();
    check_eq(find_thread("first worker").objects, 10);
    check_eq(find_thread("first worker").bytes, 10 * tally_usable_size(g.blocks[0][0]));
    for (unsigned i = 0; i < 10; i++) {
        free(g.blocks[0][i]);
    }
    take_profile();
    check_eq(find_thread("first worker").objects, 0);
}

TEST(a_thread_that_is_switched_off_is_not_recorded) {
    run_thread(do_nothing, NULL);
    arm_by_call();
    unsigned long before = take_totals().objects;
    run_thread(allocate_unseen, NULL);
    check_eq(take_totals().objects, before + 1);
    check(strstr(text, "MAPPED_LIBRARIES:") != NULL);
}

TEST(new_threads_begin_as_thread_active_init_says) {
    arm_by_call();
    set_switch("prof.thread_active_init", false);
    unsigned long before = take_totals().objects;
    run_thread(allocate_named, "unseen");
    check_eq(take_totals().objects, before);
    check_eq(find_thread("unseen").objects, 0);
}

/* ---------------------------------------------------------------- the peak */

/* Live counts of the peak, from a file, which is removed. */
static struct counts take_peak(void) {
    char path[] = "/tmp/tally-peak-XXXXXX.heap", line[256] = "";
    struct counts counts = {0, 0};
    int fd = mkstemps(path, 5);
    check(fd >= 0);
    check_eq(tally_profile_dump_peak(path), 0);
    check(pread(fd, line, sizeof line - 1, 0) > 0);
    close(fd);
    check_eq(unlink(path), 0);
    check_eq(sscanf(line, "heap_v2/1 t*: %lu: %lu", &counts.objects, &counts.bytes), 2);
    return counts;
}

TEST(peak_is_what_lived_when_most_did) {
    check_eq(tally_profile_dump_peak("x"), ENOENT);
    arm_by_call();
    check_eq(tally_profile_dump_peak(NULL), EINVAL);
    check_eq(tally_profile_reset(), 0);
    void *most[3], *other;
    for (unsigned i = 0; i < 3; i++) {
        most[i] = malloc(1 << 20);
    }
    size_t usable = tally_usable_size(most[0]);
    free(most[0]);
    free(most[1]);
    other = malloc(3 * SIZE); /* lives now, and did not then */
    struct counts peak = take_peak(), now = take_totals();
    check_eq(peak.objects, 3);
    check_eq(peak.bytes, 3 * usable);
    check_eq(now.objects, 2);
    check_eq(now.bytes, usable + tally_usable_size(other));
    free(most[2]);
    free(other);
    check_eq(take_peak().objects, 3);
    check_eq(tally_profile_reset(), 0);
    check_eq(take_peak().objects, 0);
}

/* ---------------------------------------------------------------- who walks the stacks */

typedef void backtrace_hook(void **addresses, unsigned *count, unsigned most);

static backtrace_hook *first_hook;
static unsigned walks;

static void walk_and_count(void **addresses, unsigned *count, unsigned most) {
    walks++;
    first_hook(addresses, count, most);
}

static backtrace_hook *exchange_hook(backtrace_hook *hook) {
    backtrace_hook *old = NULL;
    size_t length = sizeof old;
    check_eq(mallctl("experimental.hooks.prof_backtrace", &old, &length,
                     hook != NULL ? &hook : NULL, hook != NULL ? sizeof hook : 0),
             0);
    return old;
}

static struct {
    void *addresses[64];
    unsigned count;
} stacks[3], *stack;

static void keep_stack(const void *object, size_t size, void **addresses, unsigned count,
                       size_t usable) {
    (void)object, (void)usable;
    if (stack != NULL && size == SIZE) {
        stack->count = count < 64 ? count : 64;
        memcpy(stack->addresses, addresses, stack->count * sizeof(void *));
    }
}

TEST(the_unwinder_is_a_hook_that_can_be_wrapped_and_put_back) {
    void (*sample_hook)(const void *, size_t, void **, unsigned, size_t) = keep_stack;
    arm_by_call();
    check_eq(
        mallctl("experimental.hooks.prof_sample", NULL, NULL, &sample_hook, sizeof sample_hook), 0);
    first_hook = exchange_hook(NULL);
    check(first_hook != NULL);
    for (unsigned i = 0; i < 3; i++) { /* as it is, wrapped, put back */
        backtrace_hook *before = exchange_hook(i == 1 ? walk_and_count : first_hook);
        check(before == (i == 2 ? walk_and_count : first_hook));
        unsigned walks_before = walks;
        stack = &stacks[i];
        free(test_launder(malloc(SIZE)));
        stack = NULL;
        check_eq(walks - walks_before, i == 1);
        check(stacks[i].count > 1 && stacks[i].count == stacks[0].count);
        check(memcmp(stacks[i].addresses, stacks[0].addresses, stacks[0].count * sizeof(void *)) ==
              0);
    }
}

__attribute__((noinline)) static unsigned walk_from_here(void **addresses, unsigned most) {
    unsigned count = 99;
    exchange_hook(NULL)(addresses, &count, most);
    return count;
}

TEST(the_unwinder_can_be_called_at_any_time) {
    void *addresses[64];
    check_eq(walk_from_here(addresses, 64), 0); /* the profiler was never armed */
    arm_by_call();
    unsigned count = walk_from_here(addresses, 64);
    check(count > 2 && count < 64);
    uintptr_t start = (uintptr_t)walk_from_here, found = (uintptr_t)addresses[0];
    check(found > start && found < start + 1000);
    check_eq(walk_from_here(addresses, 2), 2);
    check_eq(walk_from_here(addresses, 0), 0);
}

/* ---------------------------------------------------------------- nowhere to write to */

TEST(descriptor_that_takes_nothing_gives_its_error_and_the_program_goes_on) {
    int ends[2];
    arm_by_call();
    check_eq(tally_profile_dump_fd(-1, TALLY_PROFILE_PROTO), EBADF);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full >= 0) {
        for (int format = TALLY_PROFILE_PROTO; format <= TALLY_PROFILE_GPERFTOOLS; format++) {
            check_eq(tally_profile_dump_fd(full, (enum tally_profile_format)format), ENOSPC);
        }
        close(full);
    }
    check_eq(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    check_eq(tally_profile_dump_fd(ends[1], TALLY_PROFILE_JEMALLOC), EPIPE); /* and no SIGPIPE */
    close(ends[1]);
    check_eq(tally_profile_dump_fd(ends[1], TALLY_PROFILE_JEMALLOC), EBADF);
}

TEST(no_descriptor_left_gives_the_error_and_no_file) {
    struct rlimit none = {0, 0};
    arm_by_call();
    check_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    check_eq(tally_profile_dump("/tmp/tally-no-such-profile.heap"), EMFILE);
    check_eq(access("/tmp/tally-no-such-profile.heap", F_OK), -1);
}

/* ---------------------------------------------------------------- forgetting */

TEST(reset_forgets_and_later_frees_of_what_was_forgotten_change_nothing) {
    arm_by_call();
    void *old = malloc(SIZE), *old_large = malloc(1 << 20);
    check(take_totals().objects >= 2);
    check_eq(tally_profile_reset(), 0);
    check_eq(take_totals().objects, 0);
    void *young = malloc(SIZE);
    check_eq(take_totals().objects, 1);
    free(old);
    free(old_large);
    check_eq(take_totals().objects, 1);
    check_eq(take_totals().bytes, tally_usable_size(young));
    free(young);
    check_eq(take_totals().objects, 0);
}

TEST(reset_with_a_value_changes_the_rate) {
    size_t lg = 99, length = sizeof lg;
    arm_by_call();
    set_lg_sample(14);
    check_eq(mallctl("prof.lg_sample", &lg, &length, NULL, 0), 0);
    check_eq(lg, 14);
    check(strncmp(take_profile(), "heap_v2/16384\n", 14) == 0);
    allocate_blocks(0);
    unsigned long sampled = take_totals().objects; /* one in about 16, if this printed raw counts */
    check(sampled < BLOCKS / 4);
}
