/* SPDX-License-Identifier: MIT
 *
 * test_stop.c - a leak check beside other threads: what they hold, which of them can be stopped, and that
 * all go on as if nothing had been.
 */
#include <grp.h>
#include <jemalloc/jemalloc.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include "base/os_threads.h"
#include "base/own.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "leak/leak.h"
#include "leak_checks.h"
#include "unit.h"

TEST_SETUP(need_plain_memory);

/* ---------------------------------------------------------------- other threads */

static void *hold_on_stack(void *unused) {
    void *volatile local[2] = {make(64), NULL};
    local[1] = make(100);
    wipe();
    reach(1);
    await(2);
    return local[0] == unused ? NULL : local[1]; /* lost, but for what join returns */
}

TEST(the_stack_of_another_thread_holds_until_it_ends) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_on_stack);
    struct leak_result *result = check_now();
    expect_nothing(result);
    check_eq(result->threads, 2);
    check_eq(result->unanswered, 0);
    check_eq(result->reachable.objects, 2);
    leak_release(result);
    end_thread(thread); /* libc keeps its stack, with the pointers */
    expect_lost(2, 64 + 112, 0, 0);
}

#if defined(__x86_64__)
static void *hold_in_registers(void *unused) {
    void *object = make(64);
    void *vector = make(100);
    wipe();
    bool is_wide = __builtin_cpu_supports("avx");
    __asm__ volatile("movq %1, %%xmm7\n"
                     "xorl %k1, %k1\n"
                     "testb %3, %3\n"
                     "je 1f\n"
                     "vxorps %%ymm6, %%ymm6, %%ymm6\n"
                     "vinsertf128 $1, %%xmm7, %%ymm6, %%ymm7\n" /* into the upper half alone */
                     "1: movq %0, %%r14\n"
                     "xorl %k0, %k0\n"
                     "leaq -128(%%rsp), %%rdi\n" /* what a leaf may use counts, too */
                     "xorl %%eax, %%eax\n"
                     "movl $16, %%ecx\n"
                     "rep stosq\n"
                     "movl $1, %2\n"
                     "2: pause\n"
                     "cmpl $2, %2\n"
                     "jne 2b\n"
                     : "+r"(object), "+r"(vector), "+m"(stage)
                     : "r"(is_wide)
                     : "r14", "xmm6", "xmm7", "rax", "rcx", "rdi", "cc", "memory");
    wipe();
    return unused;
}

TEST(registers_of_another_thread_hold_vectors_too) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_in_registers);
    struct leak_result *result = check_now();
    check_eq(result->reachable.objects, 2);
    expect_nothing(result);
    leak_release(result);
    end_thread(thread);
    expect_lost(2, 64 + 112, 0, 0);
}
#endif

static void *hold_in_its_storage(void *unused) {
    in_thread_storage = make(64);
    wipe();
    reach(1);
    await(2);
    return unused;
}

TEST(thread_local_storage_of_another_thread_holds_until_it_ends) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_in_its_storage);
    expect_all_held();
    end_thread(thread);
    expect_lost(1, 64, 0, 0);
}

TEST(a_thread_that_keeps_signals_away_holds_and_is_counted) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_while_signals_are_blocked);
    struct leak_result *result = check_now();
    expect_nothing(result);
    check_eq(result->reachable.objects, 1);
    check_eq(result->unanswered, 1);
    check_str(result->why,
              "threads that could not be stopped: 1; what they hold in registers is not seen");
    leak_release(result);
    end_thread(thread);
    expect_lost(1, 64, 0, 0);
}

/* Mostly outside, where it holds what it has only in a register for a moment. */
static void *work_unstoppably(void *unused) {
    void *own[16] = {0};
    sigset_t all;
    sigfillset(&all);
    check(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
    for (unsigned i = 0; atomic_load(&stage) < 2; i++) {
        tally_free(own[i % 16]);
        own[i % 16] = make(100 + i % 400);
        for (volatile int k = 0; k < 20000; k++) {
        }
    }
    for (int i = 0; i < 16; i++) {
        tally_free(own[i]);
    }
    return unused;
}

TEST(threads_that_keep_signals_away_and_allocate_have_no_leaks) {
    pthread_t threads[8];
    unsigned done = 0;
    start_heap();
    lose_all_of(lose_three);
    for (int i = 0; i < 8; i++) {
        check(pthread_create(&threads[i], NULL, work_unstoppably, NULL) == 0);
    }
    for (int i = 0; i < 6 || done == 0; i++) {
        struct leak_wish wish = {.max_pause_ns = LONG_PAUSE_NS};
        struct leak_result *result;
        wipe();
        if (leak_check(&wish, &result)) {
            check(result->unanswered <= 8);
            expect(result, LEAK_DEFINITE, 3, 3 * 112);
            done++;
        } else {
            check_str(result->why, "a thread that cannot be stopped is in the allocator");
        }
        leak_release(result);
    }
    reach(2);
    for (int i = 0; i < 8; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    expect_lost(3, 3 * 112, 0, 0);
}

static void *return_an_object(void *unused) {
    (void)unused;
    return make(64);
}

static __attribute__((noinline)) void join(pthread_t thread) {
    void *object;
    check(pthread_join(thread, &object) == 0);
    check(object != NULL);
}

static bool count_thread(uint32_t thread, void *count) {
    (void)thread;
    ++*(unsigned *)count;
    return true;
}

TEST(what_a_thread_returns_is_held_until_it_is_joined) {
    pthread_t thread;
    unsigned threads;
    start_heap();
    check(pthread_create(&thread, NULL, return_an_object, NULL) == 0);
    do {
        threads = 0;
        check(os_walk_threads(count_thread, &threads) == 0);
    } while (threads > 1);
    expect_all_held();
    join(thread);
    expect_lost(1, 64, 0, 0);
}

static void set_alternate_stack(void) {
    stack_t stack = {.ss_sp = make(64 * KIB), .ss_size = 64 * KIB};
    check(sigaltstack(&stack, NULL) == 0);
}

TEST(a_stack_for_handlers_that_only_the_kernel_knows_is_held) {
    start_heap();
    lose_all_of(set_alternate_stack);
    expect_all_held();
    check(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
    expect_lost(1, 64 * KIB, 0, 0);
}

static void *check_without_first_thread(void *first) {
    struct os_thread_look look;
    do {
        look = os_look_at_thread((uint32_t)getpid(), SIGRTMAX);
    } while (!look.is_gone);
    (void)first;
    expect_lost(3, 3 * 112, 0, 0);
    _exit(0);
}

TEST(a_process_whose_first_thread_has_ended_is_checked) {
    pthread_t thread;
    start_heap();
    held = make(64);
    lose_all_of(lose_three);
    check(pthread_create(&thread, NULL, check_without_first_thread, NULL) == 0);
    pthread_exit(NULL);
}

/* ---------------------------------------------------------------- looking at threads */

TEST(a_thread_is_gone_when_the_kernel_says_so_and_not_for_want_of_a_descriptor) {
    uint32_t self = os_thread_id();
    struct rlimit few = {0, 0}, before;
    check(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few.rlim_max = before.rlim_max;
    check(setrlimit(RLIMIT_NOFILE, &few) == 0);
    struct os_thread_look look = os_look_at_thread(self, SIGRTMAX);
    check(look.is_unknown && !look.is_gone);
    start_heap();
    struct leak_result *result;
    check(!leak_check(&(struct leak_wish){0}, &result));
    check_str(result->why, "the threads of the process cannot be listed: is /proc mounted?");
    leak_release(result);
    check(setrlimit(RLIMIT_NOFILE, &before) == 0);
    look = os_look_at_thread(self, SIGRTMAX);
    check(!look.is_unknown && !look.is_gone && !look.blocks_signals && !look.is_asleep);
    look = os_look_at_thread(0x7ffffff0, SIGRTMAX);
    check(look.is_gone && !look.is_unknown);
}

TEST(many_groups_do_not_hide_which_signals_a_thread_blocks) {
    gid_t groups[2000];
    sigset_t set;
    for (unsigned i = 0; i < 2000; i++) {
        groups[i] = 1000000 + i;
    }
    if (setgroups(2000, groups) != 0) {
        skip("groups cannot be set");
    }
    check(!os_look_at_thread(os_thread_id(), SIGRTMAX).blocks_signals);
    sigemptyset(&set);
    sigaddset(&set, SIGRTMAX);
    check(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    check(os_look_at_thread(os_thread_id(), SIGRTMAX).blocks_signals);
}

static void on_alternate_stack(int number) {
    (void)number;
    void *volatile local = make(100);
    wipe();
    reach(1);
    await(2);
    (void)local;
}

static void *hold_below_a_handler(void *unused) {
    void *volatile local = make(64);
    static char memory[128 * KIB];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
    struct sigaction action = {.sa_handler = on_alternate_stack, .sa_flags = SA_ONSTACK};
    check(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    check(raise(SIGUSR1) == 0);
    memset(memory, 0, sizeof(memory));
    return local == unused ? NULL : unused;
}

TEST(a_thread_in_a_handler_on_another_stack_holds_by_both) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_below_a_handler);
    expect_all_held();
    end_thread(thread);
    expect_lost(2, 64 + 112, 0, 0);
}

static void *stay_inside(void *unused) {
    thread_mark_inside(true);
    reach(1);
    while (atomic_load(&stage) < 2) {
    }
    thread_mark_inside(false);
    return unused;
}

TEST(a_thread_that_does_not_leave_the_allocator_is_not_waited_for_beyond_the_time_allowed) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, stay_inside);
    struct leak_wish wish = {.max_pause_ns = 20000000};
    struct leak_result *result;
    check(!leak_check(&wish, &result));
    check_str(result->why, "its threads could not be stopped in the time allowed");
    leak_release(result);
    end_thread(thread);
    expect_all_held();
}

static void *stay_inside_for_a_while(void *unused) {
    thread_mark_inside(true);
    reach(1);
    uint64_t end = os_now_ns() + 300000000;
    while (os_now_ns() < end) {
    }
    thread_mark_inside(false);
    await(2);
    return unused;
}

TEST(a_check_that_comes_too_early_is_tried_again) {
    pthread_t thread;
    start_heap();
    lose_all_of(lose_three);
    start_thread(&thread, stay_inside_for_a_while);
    struct leak_result *result = check_with((struct leak_wish){.max_pause_ns = 400000000});
    expect(result, LEAK_DEFINITE, 3, 3 * 112);
    check_eq(result->threads, 2);
    leak_release(result);
    end_thread(thread);
}

static void *hold_by_errno(void *unused) {
    errno = 4711;
    reach(1);
    while (atomic_load(&stage) < 2) {
        check_eq(errno, 4711);
    }
    return unused;
}

TEST(a_stopped_thread_keeps_its_errno) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_by_errno);
    for (int i = 0; i < 20; i++) {
        expect_all_held();
    }
    end_thread(thread);
}

/* One of the library's own: what it has on its stack while it works is not the program's. */
static void *work_as_own(void *unused) {
    sigset_t all;
    sigfillset(&all);
    check(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
    own_enroll();
    reach(1);
    while (atomic_load(&stage) < 2) {
        own_begin();
        void *volatile object = tally_malloc(64);
        check(object != NULL);
        tally_free(object);
        own_end();
    }
    own_leave();
    return unused;
}

TEST(threads_of_the_library_are_kept_from_working_and_are_not_counted) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, work_as_own);
    for (int i = 0; i < 20; i++) {
        struct leak_result *result = check_now();
        expect_nothing(result);
        check_eq(result->heap_bytes, 0); /* its object is free whenever it does not work */
        check_eq(result->threads, 1);
        check_eq(result->unanswered, 0);
        leak_release(result);
    }
    end_thread(thread);
}

/* ---------------------------------------------------------------- load */

static _Atomic bool stops;

/* Allocates, frees and passes on; holds everything on its stack or in `passed`. */
static void *work(void *argument) {
    static _Atomic(void *) passed[256];
    void *own[64] = {0};
    struct random random = random_start((uint64_t)(uintptr_t)&own, 0);
    while (!stops) {
        size_t i = random_below(&random, 64);
        tally_free(own[i]);
        own[i] = make(1 + random_below(&random, random_below(&random, 50) == 0 ? 100000 : 500));
        if (random_below(&random, 4) == 0) {
            own[i] = atomic_exchange(&passed[random_below(&random, 256)], own[i]);
        }
    }
    for (int i = 0; i < 64; i++) {
        tally_free(own[i]);
    }
    return argument;
}

static void check_under_load(const char *conf) {
    pthread_t threads[8];
    bool is_whole = getenv("STRESS") != NULL;
    unsigned checks = is_whole ? 1000 : 25;
    test_allow_seconds(is_whole ? 1800 : TEST_SECONDS);
    start_heap_with(conf);
    for (int i = 0; i < 8; i++) {
        check(pthread_create(&threads[i], NULL, work, NULL) == 0);
    }
    lose_all_of(lose_three);
    for (unsigned i = 0; i < checks; i++) {
        struct leak_result *result = check_with((struct leak_wish){.max_pause_ns = 10000000000});
        check_eq(result->threads, 9);
        check_eq(result->unanswered, 0);
        expect(result, LEAK_DEFINITE, 3, 3 * 112);
        expect(result, LEAK_INDIRECT, 0, 0);
        check_eq(result->kinds[LEAK_POSSIBLE].objects, 0);
        leak_release(result);
    }
    stops = true;
    for (int i = 0; i < 8; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    struct leak_result *result = check_now();
    expect(result, LEAK_DEFINITE, 3, 3 * 112);
    leak_release(result);
    heap_verify();
}

TEST(eight_threads_that_allocate_are_stopped_again_and_again) {
    check_under_load("");
}

TEST(eight_threads_whose_every_allocation_is_sampled_are_stopped_again_and_again) {
    check_under_load("prof:true,lg_prof_sample:0");
}
