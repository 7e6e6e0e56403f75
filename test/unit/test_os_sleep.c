/* SPDX-License-Identifier: MIT
 *
 * test_os_sleep.c - which threads sleep, whether it is still the same sleep, and whether a handler of
 * signals has been called on a stack.
 */
#define _GNU_SOURCE
#include "base/os_sleep.h"

#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "base/os_threads.h"
#include "unit.h"

/* ---------------------------------------------------------------- files of the kernel */

static const char *text_of_call, *text_of_status; /* in place of the kernel's, if not NULL */

int __real_os_read_file(const char *path, char *text, size_t capacity);
int __wrap_os_read_file(const char *path, char *text, size_t capacity);
int __wrap_os_read_file(const char *path, char *text, size_t capacity) {
    const char *played = strstr(path, "/syscall") != NULL ? text_of_call : text_of_status;
    if (played == NULL) {
        return __real_os_read_file(path, text, capacity);
    }
    if (*played == '\0') {
        return -ENOENT;
    }
    size_t length = strlen(played) < capacity - 1 ? strlen(played) : capacity - 1;
    memcpy(text, played, length);
    text[length] = '\0';
    return (int)length;
}

enum { NUMBER = 17 };
static const char waits[] = "0 0x3 0x1 0x2 0x0 0x0 0x0 0x7ffc1000 0x7f1000\n";
static const char status[] = "Name:\tx\nNSpid:\t17\nvoluntary_ctxt_switches:\t40\n"
                             "nonvoluntary_ctxt_switches:\t2\n";

TEST(a_wait_in_a_system_call_is_read_with_its_stack_and_its_count) {
    struct os_sleep sleep;
    text_of_call = waits;
    text_of_status = status;
    check(os_look_at_sleep(NUMBER, &sleep));
    check_eq(sleep.call, 0);
    check_eq(sleep.sp, 0x7ffc1000);
    check_eq(sleep.pc, 0x7f1000);
    check_eq(sleep.switches, 42);
}

static bool sleeps(const char *call, const char *state) {
    struct os_sleep sleep;
    text_of_call = call;
    text_of_status = state;
    return os_look_at_sleep(NUMBER, &sleep);
}

TEST(what_is_not_a_wait_in_a_system_call_is_no_sleep) {
    check(!sleeps("", status));
    check(!sleeps("running\n", status));
    check(!sleeps("-1 0x7ffc1000 0x7f1000\n", status)); /* for a page */
    check(!sleeps("0 0x3 0x1 0x2 0x0 0x0 0x0 0x7ffc1000", status));
    check(!sleeps("0 0x3\n", status));
}

TEST(who_lends_itself_to_a_child_does_not_sleep) {
    char text[128];
    const long calls[] = {
#if defined(SYS_vfork)
        SYS_vfork,
#endif
        SYS_clone,
        SYS_clone3
    };
    for (unsigned i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        snprintf(text, sizeof text, "%ld%s", calls[i], waits + 1);
        check(!sleeps(text, status));
    }
}

TEST(without_all_that_is_to_be_known_nobody_sleeps) {
    check(sleeps(waits, status));
    check(!sleeps(waits, ""));
    check(!sleeps(waits, "NSpid:\t17\nvoluntary_ctxt_switches:\t40\n"));
    check(!sleeps(waits, "NSpid:\t17\nnonvoluntary_ctxt_switches:\t40\n"));
    check(!sleeps(waits, "voluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t2\n"));
}

/* The numbers that /proc has for threads are then not those we know them by. */
TEST(in_an_inner_namespace_nobody_sleeps) {
    check(!sleeps(waits, "NSpid:\t17\t3\nvoluntary_ctxt_switches:\t1\n"
                         "nonvoluntary_ctxt_switches:\t2\n"));
    check(!sleeps(waits, "NSpid:\t18\nvoluntary_ctxt_switches:\t1\n"
                         "nonvoluntary_ctxt_switches:\t2\n"));
}

/* ---------------------------------------------------------------- threads */

static _Atomic uint32_t number;
static _Atomic bool spins = true;
static int pipe_of_test[2];

static void *sleep_in_read(void *unused) {
    char byte;
    number = os_thread_id();
    check_eq(read(pipe_of_test[0], &byte, 1), 1);
    number = os_thread_id();
    check_eq(read(pipe_of_test[0], &byte, 1), 1);
    return unused;
}

static void *spin(void *unused) {
    number = os_thread_id();
    while (spins) {
    }
    return unused;
}

static uint32_t start(pthread_t *thread, void *(*body)(void *)) {
    os_init();
    check(pipe(pipe_of_test) == 0);
    check(pthread_create(thread, NULL, body, NULL) == 0);
    while (number == 0) {
        os_sleep_ns(100000);
    }
    return number;
}

static struct os_sleep await_sleep(uint32_t thread) {
    struct os_sleep sleep;
    while (!os_look_at_sleep(thread, &sleep)) {
        os_sleep_ns(100000);
    }
    return sleep;
}

TEST(two_looks_at_one_sleep_agree_and_a_new_sleep_differs) {
    pthread_t thread;
    uint32_t reader = start(&thread, sleep_in_read);
    struct os_sleep first = await_sleep(reader), second = await_sleep(reader);
    while (memcmp(&first, &second, sizeof first) != 0) { /* It was on its way to the sleep. */
        first = second;
        second = await_sleep(reader);
    }
    check(first.call == SYS_read && first.sp != 0 && first.pc != 0);
    number = 0;
    check_eq(write(pipe_of_test[1], "x", 1), 1);
    while (number == 0) {
        os_sleep_ns(100000);
    }
    struct os_sleep third = await_sleep(reader);
    check(third.switches > first.switches);
    check_eq(write(pipe_of_test[1], "x", 1), 1);
    check(pthread_join(thread, NULL) == 0);
    check(!os_look_at_sleep(reader, &third));
}

TEST(a_thread_that_runs_does_not_sleep) {
    pthread_t thread;
    struct os_sleep sleep;
    uint32_t spinner = start(&thread, spin);
    for (unsigned i = 0; i < 1000; i++) {
        check(!os_look_at_sleep(spinner, &sleep));
    }
    spins = false;
    check(pthread_join(thread, NULL) == 0);
}

TEST(the_fence_can_be_repeated) {
    os_init();
    if (!os_fence_threads()) {
        skip("this kernel has no membarrier");
    }
    check(os_fence_threads());
    check_child({ check(os_fence_threads()); });
}

/* ---------------------------------------------------------------- handlers */

/* From here up to the thread's own data, which libc puts at the end of its stack. */
static __attribute__((noinline)) bool finds_handler(void) {
    static __thread char own;
    return os_stack_has_handler((uintptr_t)__builtin_frame_address(0), (uintptr_t)&own);
}

static _Atomic int found; /* 1: yes, 2: no */
static bool has_deep_handler;

static void look(int unused) {
    (void)unused;
    found = finds_handler() ? 1 : 2;
}

static void look_through_another(int unused) {
    (void)unused;
    check(signal(SIGUSR2, look) != SIG_ERR);
    check(raise(SIGUSR2) == 0);
}

static void *look_in_thread(void *handler) {
    struct sigaction action = {.sa_handler = (void (*)(int))handler, .sa_flags = SA_ONSTACK};
    char stack[64 << 10];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    os_init();
    found = finds_handler() ? 1 : 2;
    check_eq(found, 2);
    if (has_deep_handler) {
        check(sigaltstack(&alternate, NULL) == 0);
    }
    check(sigaction(SIGUSR1, &action, NULL) == 0);
    check(raise(SIGUSR1) == 0);
    check_eq(found, 1);
    if (has_deep_handler) {
        alternate.ss_flags = SS_DISABLE;
        check(sigaltstack(&alternate, NULL) == 0);
    }
    return NULL;
}

static void look_in_a_thread(void (*handler)(int)) {
    if (SANITIZED) {
        skip("a sanitizer calls handlers in a way of its own");
    }
    run_threads(1, look_in_thread, (void *)handler);
}

TEST(a_handler_is_found_on_the_stack) {
    look_in_a_thread(look);
}

TEST(a_handler_in_a_handler_is_found) {
    look_in_a_thread(look_through_another);
}

TEST(a_handler_is_found_on_a_stack_of_its_own) {
    has_deep_handler = true;
    look_in_a_thread(look);
}

TEST(a_stack_whose_end_is_too_far_away_may_have_one) {
    enum { BYTES = 1 << 20 };
    os_init();
    char *stack = os_map(BYTES);
    check(stack != NULL);
    uintptr_t start_of = (uintptr_t)stack;
    check(os_stack_has_handler(start_of, 0));
    check(os_stack_has_handler(start_of, start_of + BYTES));
    check(!os_stack_has_handler(start_of, start_of + 8192));
    check(os_unmap(stack + BYTES / 2, BYTES / 2) == 0);
    check(!os_stack_has_handler(start_of + BYTES / 2 - 8192, 0));
    check(os_stack_has_handler(start_of + BYTES / 2, 0)); /* not even its beginning can be read */
}
