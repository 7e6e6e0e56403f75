/* SPDX-License-Identifier: MIT
 *
 * test.h - the test harness, for C and C++.
 *
 *     TEST(free_of_null_does_nothing) {
 *         free(NULL);
 *         check_eq(errno, 0);
 *     }
 *
 * A test registers itself, is named by a sentence, and runs in a process of its own, so that one
 * crash is one failure and no test sees what another left behind. test.c has main(): without
 * arguments every test runs, names run only those, --list prints the names. The program exits
 * with 0 when all passed, 1 when one failed, 77 when all were skipped (ctest's
 * SKIP_RETURN_CODE), 2 for a wrong argument; the last line counts.
 *
 * The harness calls neither malloc nor stdio between the steps a test observes: it formats into
 * static buffers and writes with raw system calls.
 *
 * Threads: a check may fail in any thread and ends the test. check_dies and check_child belong
 * to a thread that may fork.
 */
#ifndef TALLY_TEST_H
#define TALLY_TEST_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One test. The object is static and lives as long as the program. */
struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
};

/* One child that is expected to die, between its fork and its verdict. */
struct test_death {
    const char *file;
    int line;
    int stderr_fd;
    pid_t pid;
};

enum test_match { TEST_MATCH_PART, TEST_MATCH_WHOLE };

#define TEST(name)                                                                                 \
    static void name(void);                                                                        \
    static struct test_case test_case_##name = {#name, name, NULL};                                \
    __attribute__((constructor)) static void test_register_##name(void) {                          \
        test_register(&test_case_##name);                                                          \
    }                                                                                              \
    static void name(void)

/* Runs a function at the beginning of every test of the program, in the test's own process. */
#define TEST_SETUP(function)                                                                       \
    __attribute__((constructor)) static void test_setup_##function(void) {                         \
        test_set_setup(function);                                                                  \
    }                                                                                              \
    struct test_case

/* Fails the test unless the condition holds. */
#define check(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            test_fail(__FILE__, __LINE__, "check(" #condition ")");                                \
        }                                                                                          \
    } while (0)

/* Fails the test unless two integers or two pointers are equal, and prints both. */
#define check_eq(a, b) test_check_eq(__FILE__, __LINE__, #a, (uintptr_t)(a), #b, (uintptr_t)(b))

/* Fails the test unless two strings are equal, and prints both. */
#define check_str(a, b) test_check_str(__FILE__, __LINE__, (a), (b))

/* Runs the body in a child with its standard error captured, and fails the test unless the child
 * is ended by the signal and its standard error contains the text. In the text %p stands for an
 * address (0x and lower-case hexadecimal digits) and %d for a decimal number. A body is an
 * expression, a call, or a block in braces that has no comma outside parentheses. */
#define check_dies(body, text, signal_number) test_dies(body, text, signal_number, TEST_MATCH_PART)

/* The same, but the standard error must be this one line and nothing else. */
#define check_dies_exactly(body, line_text, signal_number)                                         \
    test_dies(body, line_text, signal_number, TEST_MATCH_WHOLE)

#define test_dies(body, text, signal_number, match)                                                \
    do {                                                                                           \
        struct test_death test_death_;                                                             \
        if (test_death_begin(&test_death_, __FILE__, __LINE__)) {                                  \
            body;                                                                                  \
            test_death_survived();                                                                 \
        }                                                                                          \
        test_death_end(&test_death_, text, signal_number, match);                                  \
    } while (0)

/* Runs the body in a child made by fork and fails the test unless the child reaches its end. */
#define check_child(body)                                                                          \
    do {                                                                                           \
        pid_t test_child_ = test_child_begin(__FILE__, __LINE__);                                  \
        if (test_child_ == 0) {                                                                    \
            body;                                                                                  \
            test_child_done();                                                                     \
        }                                                                                          \
        test_child_end(test_child_, __FILE__, __LINE__);                                           \
    } while (0)

/* Ends the test as skipped and prints why. */
#define skip(reason) test_skip(reason)

/* Fails the test unless libtally.so is mapped into this process, linked or preloaded. An
 * integration test writes TEST_SETUP(require_tally); near its top: without it a preload that the
 * loader could not map would leave the test running on libc. */
void require_tally(void);

/* Every test may run for this long before it is ended, which is for hangs: a machine may be busy.  One that
 * needs longer says so here. */
enum { TEST_SECONDS = 600 };
void test_allow_seconds(unsigned seconds);

/* Returns how many bytes of anonymous memory the process has resident, or 0 when the kernel does
 * not tell. */
size_t test_anonymous_bytes(void);

/* Writes its arguments, strings up to a NULL, to standard output in one write. */
void test_say(const char *first, ...) __attribute__((sentinel));

/* Writes a number in decimal into the buffer and returns the buffer. */
char *test_decimal(char buffer[24], long long value);

/* Keeps the compiler from knowing where a pointer comes from, so that it neither warns about nor
 * optimizes what a test does with it on purpose. */
static inline void *test_launder(void *p) {
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

/* What the macros stand on. */
void test_register(struct test_case *test);
void test_set_setup(void (*setup)(void));
__attribute__((noreturn)) void test_fail(const char *file, int line, const char *what);
__attribute__((noreturn)) void test_skip(const char *reason);
void test_check_eq(const char *file, int line, const char *a_text, uintptr_t a, const char *b_text,
                   uintptr_t b);
void test_check_str(const char *file, int line, const char *a, const char *b);
bool test_death_begin(struct test_death *death, const char *file, int line);
__attribute__((noreturn)) void test_death_survived(void);
void test_death_end(const struct test_death *death, const char *text, int signal_number,
                    enum test_match match);
pid_t test_child_begin(const char *file, int line);
__attribute__((noreturn)) void test_child_done(void);
void test_child_end(pid_t pid, const char *file, int line);

#ifdef __cplusplus
}
#endif

#endif
