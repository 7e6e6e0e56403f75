/* SPDX-License-Identifier: MIT
 *
 * test_os_threads.c - what the kernel tells of the threads of this process, signals with numbers, and copies
 * of the process.
 */
#define _GNU_SOURCE
#include "base/os_threads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

static _Atomic uint32_t thread_number;
static _Atomic bool is_over;

static void *wait_until_over(void *blocks) {
    if (blocks != NULL) {
        uint64_t before;
        os_block_signals(&before);
    }
    thread_number = os_thread_id();
    while (!is_over) {
        os_sleep_ns(100000);
    }
    return NULL;
}

static pthread_t start_thread(bool blocks) {
    pthread_t thread;
    os_init();
    check_eq(pthread_create(&thread, NULL, wait_until_over, blocks ? &thread_number : NULL), 0);
    while (thread_number == 0) {
        os_sleep_ns(100000);
    }
    return thread;
}

static bool count(uint32_t thread, void *sum) {
    check(thread != 0);
    ++*(unsigned *)sum;
    return true;
}

static bool count_one(uint32_t thread, void *sum) {
    (void)count(thread, sum);
    return false;
}

TEST(threads_are_walked_until_the_visitor_has_seen_enough) {
    unsigned threads = 0, first = 0;
    start_thread(false);
    check_eq(os_walk_threads(count, &threads), 0);
    check(threads == 2 || (SANITIZED && threads > 2)); /* a sanitizer makes threads, too */
    check_eq(os_walk_threads(count_one, &first), 0);
    check_eq(first, 1);
}

TEST(the_kernel_says_whether_a_thread_blocks_a_signal) {
    start_thread(true);
    struct os_thread_look look = os_look_at_thread(thread_number, SIGUSR1);
    check(look.blocks_signals && !look.is_gone && !look.is_unknown);
    look = os_look_at_thread(os_thread_id(), SIGUSR1);
    check(!look.blocks_signals && !look.is_gone);
}

TEST(a_thread_that_was_joined_is_gone) {
    pthread_t thread = start_thread(false);
    is_over = true;
    pthread_join(thread, NULL);
    while (!os_look_at_thread(thread_number, SIGUSR1).is_gone) {
        os_sleep_ns(100000); /* The kernel tells the one who joins a moment before. */
    }
    check_eq(os_signal_thread(thread_number, SIGUSR1, 1), -ESRCH);
}

/* The thread sanitizer hands a signal on when it comes by, and no sanitizer is whole in a copy. */
static void need_no_sanitizer(void) {
    if (SANITIZED) {
        skip("a sanitizer delays signals, and does not survive in a copy of the process");
    }
    os_init();
}

static _Atomic uint64_t received;
static _Atomic bool was_ours;

static void receive(int signal_number, siginfo_t *info, void *context) {
    uint64_t number = 0;
    (void)signal_number;
    (void)context;
    was_ours = os_signal_number(info, &number);
    received = number;
}

TEST(a_signal_brings_its_number_and_is_told_from_others) {
    struct sigaction action = {.sa_sigaction = receive, .sa_flags = SA_SIGINFO};
    need_no_sanitizer();
    check_eq(sigaction(SIGUSR1, &action, NULL), 0);
    check_eq(os_signal_thread(os_thread_id(), SIGUSR1, UINT64_C(1) << 40 | 17), 0);
    check(was_ours);
    check_eq(received, UINT64_C(1) << 40 | 17);
    check_eq(raise(SIGUSR1), 0);
    check(!was_ours);
}

TEST(blocked_signals_come_when_they_are_let_in_again) {
    struct sigaction action = {.sa_sigaction = receive, .sa_flags = SA_SIGINFO};
    uint64_t before;
    need_no_sanitizer();
    check_eq(sigaction(SIGUSR1, &action, NULL), 0);
    os_block_signals(&before);
    check_eq(os_signal_thread(os_thread_id(), SIGUSR1, 5), 0);
    check_eq(received, 0);
    os_restore_signals(&before);
    check_eq(received, 5);
}

static int copy_and_wait(void (*work)(uint32_t *), uint32_t *shared) {
    int status, copy = os_copy_process();
    if (copy == 0) {
        work(shared);
        syscall(SYS_exit_group, 7);
    }
    check(copy > 0);
    while (!os_copy_has_ended(copy, &status)) {
        os_sleep_ns(100000);
    }
    return status;
}

static void write_word(uint32_t *shared) {
    *shared = 42;
}

static void wait_for_ever(uint32_t *shared) {
    (void)shared;
    for (;;) {
        os_sleep_ns(1000000000);
    }
}

TEST(a_copy_shares_what_is_shared_and_no_parent_hears_of_its_end) {
    need_no_sanitizer();
    uint32_t *shared = os_map_shared(4096);
    check(shared != NULL);
    int status = copy_and_wait(write_word, shared);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    check_eq(*shared, 42);
    check(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

TEST(a_copy_can_be_ended) {
    need_no_sanitizer();
    int status, copy = os_copy_process();
    if (copy == 0) {
        wait_for_ever(NULL);
    }
    check(copy > 0);
    check(!os_copy_has_ended(copy, &status));
    os_kill_copy(copy);
    while (!os_copy_has_ended(copy, &status)) {
        os_sleep_ns(100000);
    }
    check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
