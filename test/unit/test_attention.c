/* SPDX-License-Identifier: MIT
 *
 * test_attention.c - the word is empty in every kind of child, and bits are raised and taken once.
 */
#define _GNU_SOURCE
#include "base/attention.h"

#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/lock.h"
#include "base/os.h"
#include "unit.h"

static void begin(void) {
    os_init();
    attention_begin();
    check(attention_init());
    attention_start();
}

TEST(before_the_start_there_is_no_fork_to_notice) {
    check_eq(attention_get(), 0);
    check(!attention_notice_fork());
    check_eq(attention_get(), 0);
}

TEST(bits_are_raised_and_taken) {
    begin();
    check_eq(attention_get(), ATTENTION_CALM);
    attention_raise(ATTENTION_BACKGROUND);
    attention_raise(ATTENTION_DEFERRED);
    attention_raise(ATTENTION_DEFERRED);
    check_eq(attention_take(ATTENTION_DEFERRED | ATTENTION_ORPHANS), ATTENTION_DEFERRED);
    check_eq(attention_take(ATTENTION_DEFERRED), 0);
    check_eq(attention_get(), ATTENTION_CALM | ATTENTION_BACKGROUND);
}

/* What the child of each kind sees; its exit status is 0 when that is right. */
static int look_around(uint32_t generation) {
    bool wiped = attention_get() == 0 && lock_generation() == 0;
    bool noticed = attention_notice_fork() &&
                   attention_get() == (ATTENTION_CALM | ATTENTION_FORKED) &&
                   lock_generation() != generation;
    generation = lock_generation();
    bool once = attention_notice_fork() && lock_generation() == generation;
    return wiped && noticed && once ? 0 : 1;
}

static void expect_child(pid_t pid, uint32_t generation) {
    if (pid == 0) {
        _exit(look_around(generation));
    }
    int status;
    check(pid > 0 && waitpid(pid, &status, 0) == pid);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check_eq(attention_get(), ATTENTION_CALM);
    check_eq(lock_generation(), generation);
}

TEST(every_kind_of_fork_is_noticed_once) {
    begin();
    expect_child(fork(), lock_generation());
    expect_child(_Fork(), lock_generation());
    expect_child((pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0), lock_generation());
}

TEST(a_child_that_shares_memory_is_no_fork) {
    if (SANITIZED) {
        skip("sanitizers turn vfork into fork");
    }
    begin();
    pid_t pid = vfork();
    if (pid == 0) {
        _exit(attention_get() == ATTENTION_CALM ? 0 : 1);
    }
    int status;
    check(waitpid(pid, &status, 0) == pid);
    check_eq(status, 0);
}

TEST(where_the_kernel_cannot_wipe_a_handler_says_so) {
    begin();
    attention_forget(); /* What the handler does in the child. */
    check_eq(look_around(lock_generation()), 0);
}

static void *notice(void *unused) {
    attention_notice_fork();
    uint32_t generation = lock_generation();
    check(attention_get() & ATTENTION_FORKED);
    check(generation != 0 && generation == lock_generation());
    return unused;
}

TEST(threads_that_notice_together_agree_on_a_new_generation) {
    begin();
    for (unsigned i = 0; i < 200; i++) {
        uint32_t generation = lock_generation();
        attention_forget();
        run_threads(4, notice, NULL);
        check(lock_generation() != generation && lock_generation() != 0);
        check_eq(attention_get(), ATTENTION_CALM | ATTENTION_FORKED);
    }
}
