/* SPDX-License-Identifier: MIT
 *
 * test_log.c - what the library says is one line, and how it stops is SIGABRT, whatever the program
 * did to that signal.
 */
#include "base/log.h"

#include <errno.h>

#include "base/os.h"
#include "unit.h"

TEST(message_is_one_line_with_our_name) {
    struct capture capture = capture_begin();
    log_line("%s and %zu", "text", (size_t)42);
    check_str(capture_end(capture), "tally: text and 42\n");
}

TEST(message_that_is_too_long_is_cut_and_still_a_line) {
    static char long_text[2000];
    memset(long_text, 'x', sizeof long_text - 1);
    struct capture capture = capture_begin();
    log_line("%s", long_text);
    const char *said = capture_end(capture);
    check_eq(count_lines(said), 1);
    check(strlen(said) <= 512 && strlen(said) > 400);
    check(strncmp(said, "tally: xxxx", 11) == 0);
    check_eq(said[strlen(said) - 1], '\n');
}

TEST(message_leaves_errno_alone) {
    struct capture capture = capture_begin();
    errno = 1234;
    log_line("anything");
    check_eq(errno, 1234);
    close(2);
    log_line("nobody listens");
    check_eq(errno, 1234);
    capture_end(capture);
}

TEST(a_note_is_written_only_where_standard_error_is_what_it_was) {
    struct capture capture = capture_begin(); /* another file */
    log_note("audit");
    log_line("message");
    check_str(capture_end(capture), "tally: message\n");
    capture = capture_begin();
    os_init();
    log_note("audit %d", 1);
    check_str(capture_end(capture), "tally: audit 1\n");
}

TEST(fatal_says_its_sentence_and_aborts) {
    check_dies_exactly(fatal("%s(%p): went wrong", "free", (void *)16),
                       "tally: free(%p): went wrong", SIGABRT);
}

static void return_from_signal(int number) {
    (void)number;
}

TEST(fatal_ends_the_process_when_the_handler_returns) {
    check_dies(
        {
            signal(SIGABRT, return_from_signal);
            fatal("end");
        },
        "tally: end", SIGABRT);
}

TEST(fatal_ends_the_process_when_the_signal_is_ignored) {
    check_dies(
        {
            signal(SIGABRT, SIG_IGN);
            fatal("end");
        },
        "tally: end", SIGABRT);
}

TEST(fatal_ends_the_process_when_the_signal_is_blocked) {
    check_dies(
        {
            sigset_t all;
            sigfillset(&all);
            sigprocmask(SIG_BLOCK, &all, NULL);
            fatal("end");
        },
        "tally: end", SIGABRT);
}

TEST(ensure_stops_when_the_condition_does_not_hold) {
    volatile int two = 2;
    ensure(two == 2);
    check_dies(ensure(two == 3), "tally: internal error: 'two == 3' does not hold at ", SIGABRT);
}

TEST(assert_stops_in_debug_builds_only) {
    volatile int two = 2;
    assert(two == 2);
    if (DEBUG) {
        check_dies(assert(two == 3), "tally: internal error: 'two == 3' does not hold", SIGABRT);
    } else {
        assert(two == 3);
    }
}
