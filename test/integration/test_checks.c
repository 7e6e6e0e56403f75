/* SPDX-License-Identifier: MIT
 *
 * test_checks.c - the harness under its own tests: a check that could not fail would make every
 * other test worthless, so each verdict is seen here in both directions. This is the one program
 * of this folder that does not need the library.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

/* Runs a function in a child whose output goes nowhere, and returns how the child ended. */
static int status_of(void (*function)(void)) {
    pid_t pid = fork();
    if (pid == 0) {
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
        function();
        _exit(0);
    }
    int status = -1;
    check_eq(waitpid(pid, &status, 0), pid);
    return status;
}

static void say_and_abort(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) == (ssize_t)strlen(text)) {
        abort();
    }
}

static void false_check(void) {
    check(1 + 1 == 3);
}

static void unequal_numbers(void) {
    check_eq(1, 2);
}

static void unequal_strings(void) {
    check_str("one", "two");
}

static void surviving_body(void) {
    check_dies(say_and_abort(""), "never said", SIGABRT);
}

static void wrong_message(void) {
    check_dies(say_and_abort("tally: another message\n"), "tally: the message", SIGABRT);
}

static void wrong_signal(void) {
    check_dies(say_and_abort("tally: the message\n"), "tally: the message", SIGSEGV);
}

static void more_than_the_line(void) {
    check_dies_exactly(say_and_abort("tally: one\ntally: two\n"), "tally: one", SIGABRT);
}

static void failing_child(void) {
    check_child(check(false));
}

static void body_that_lives(void) {
    check_dies((void)0, "", SIGABRT);
}

static void skipping(void) {
    skip("to see how a skip ends");
}

TEST(a_false_check_ends_the_test_with_status_1) {
    void (*failing[])(void) = {false_check,        unequal_numbers, unequal_strings,
                               surviving_body,     wrong_message,   wrong_signal,
                               more_than_the_line, failing_child,   body_that_lives};
    for (size_t i = 0; i < sizeof failing / sizeof *failing; i++) {
        int status = status_of(failing[i]);
        check(WIFEXITED(status));
        check_eq(WEXITSTATUS(status), 1);
    }
}

TEST(a_skip_ends_the_test_with_status_77) {
    int status = status_of(skipping);
    check(WIFEXITED(status));
    check_eq(WEXITSTATUS(status), 77);
}

TEST(true_checks_go_on) {
    check(1 + 1 == 2);
    check_eq(-1, -1L);
    check_str("one", "one");
    check_child(check(true));
}

TEST(a_death_is_known_by_signal_and_message) {
    check_dies(say_and_abort("tally: free(0x7f00): 8 bytes\n"), "free(%p): %d", SIGABRT);
    check_dies_exactly(say_and_abort("tally: free(0x7f00): 8 bytes\n"), "tally: free(%p): %d bytes",
                       SIGABRT);
    check_dies(raise(SIGKILL), "", SIGKILL);
}
