/* SPDX-License-Identifier: MIT
 *
 * test.c - the harness behind test.h: runs every registered test in its own process and counts.
 *
 * The parent forks once per test and reads the verdict from how the child ended: exit 0 passed,
 * exit 77 skipped, anything else failed. A failing check writes where it stands and leaves at
 * once. A passing test leaves through exit(), so the end of a process is part of every test.
 *
 * Nothing here allocates: text is put together in buffers on the stack and written with
 * write(2). Output of parent and children therefore needs no flushing and keeps its order.
 */
#define _GNU_SOURCE
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SURVIVED = 70, EXIT_SKIPPED = 77 };
enum { CAPTURE_BYTES = 8192, SAY_BYTES = 4096 };

static struct {
    struct test_case *first;
    struct test_case **last_link;
    void (*setup)(void);
    unsigned passed, failed, skipped;
} g = {.last_link = &g.first};

void test_register(struct test_case *test) {
    *g.last_link = test;
    g.last_link = &test->next;
}

void test_set_setup(void (*setup)(void)) {
    g.setup = setup;
}

/* Writes all bytes; a reader that has gone is not this program's failure. */
static void write_all(int fd, const char *text, size_t length) {
    while (length > 0) {
        ssize_t n = write(fd, text, length);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return;
        }
        text += n;
        length -= (size_t)n;
    }
}

void test_say(const char *first, ...) {
    char line[SAY_BYTES];
    size_t used = 0;
    int saved_errno = errno;
    va_list arguments;
    va_start(arguments, first);
    for (const char *part = first; part != NULL; part = va_arg(arguments, const char *)) {
        size_t length = strlen(part);
        if (length > sizeof line - used) {
            length = sizeof line - used;
        }
        memcpy(line + used, part, length);
        used += length;
    }
    va_end(arguments);
    write_all(STDOUT_FILENO, line, used);
    errno = saved_errno;
}

char *test_decimal(char buffer[24], long long value) {
    char digits[24];
    size_t count = 0;
    size_t used = 0;
    unsigned long long rest =
        value < 0 ? 0ULL - (unsigned long long)value : (unsigned long long)value;
    do {
        digits[count++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) {
        buffer[used++] = '-';
    }
    while (count > 0) {
        buffer[used++] = digits[--count];
    }
    buffer[used] = '\0';
    return buffer;
}

static char *hexadecimal(char buffer[24], uintptr_t value) {
    size_t used = 2;
    int shift = 60;
    memcpy(buffer, "0x", 2);
    while (shift > 0 && value >> shift == 0) {
        shift -= 4;
    }
    for (; shift >= 0; shift -= 4) {
        buffer[used++] = "0123456789abcdef"[(value >> shift) & 15];
    }
    buffer[used] = '\0';
    return buffer;
}

/* Coverage counters are written at exit(); a test that leaves by _exit() writes them here, where
 * there are any. */
extern void __gcov_dump(void) __attribute__((weak));

__attribute__((noreturn)) static void leave(int status) {
    if (__gcov_dump != NULL) {
        __gcov_dump();
    }
    _exit(status);
}

void test_fail(const char *file, int line, const char *what) {
    char number[24];
    test_say("    ", file, ":", test_decimal(number, line), ": failed: ", what, "\n", NULL);
    leave(EXIT_FAILED);
}

void test_skip(const char *reason) {
    test_say("    skipped: ", reason, "\n", NULL);
    leave(EXIT_SKIPPED);
}

void test_check_eq(const char *file, int line, const char *a_text, uintptr_t a, const char *b_text,
                   uintptr_t b) {
    if (a == b) {
        return;
    }
    char number[4][24];
    test_say("    ", a_text, " is ", test_decimal(number[0], (long long)a), " (",
             hexadecimal(number[1], a), "), ", b_text, " is ",
             test_decimal(number[2], (long long)b), " (", hexadecimal(number[3], b), ")\n", NULL);
    test_fail(file, line, "check_eq");
}

void test_check_str(const char *file, int line, const char *a, const char *b) {
    if (a != NULL && b != NULL && strcmp(a, b) == 0) {
        return;
    }
    test_say("    first:  ", a != NULL ? a : "(null)", "\n    second: ", b != NULL ? b : "(null)",
             "\n", NULL);
    test_fail(file, line, "check_str");
}

void test_allow_seconds(unsigned seconds) {
    alarm(seconds);
}

/* A child must not outlive its test, leave a core file, or wait for ever. */
static void confine_child(void) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(TEST_SECONDS);
}

/* Returns how a child ended. A child that cannot be waited for counts as one that failed. */
static int wait_for(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return SIGKILL;
        }
    }
    return status;
}

static void say_ending(const char *prefix, int status) {
    char number[24];
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        test_say(prefix, "ended by signal ", test_decimal(number, WTERMSIG(status)), " (SIG",
                 name != NULL ? name : "?", ")",
                 WTERMSIG(status) == SIGALRM ? ": it took too long" : "", "\n", NULL);
    } else {
        test_say(prefix, "exit status ", test_decimal(number, WEXITSTATUS(status)), "\n", NULL);
    }
}

pid_t test_child_begin(const char *file, int line) {
    pid_t pid = fork();
    if (pid < 0) {
        test_fail(file, line, "fork");
    }
    if (pid == 0) {
        confine_child();
    }
    return pid;
}

void test_child_done(void) {
    leave(0);
}

void test_child_end(pid_t pid, const char *file, int line) {
    int status = wait_for(pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        say_ending("    the child: ", status);
        test_fail(file, line, "check_child");
    }
}

bool test_death_begin(struct test_death *death, const char *file, int line) {
    int ends[2];
    *death = (struct test_death){.file = file, .line = line, .stderr_fd = -1, .pid = -1};
    if (pipe2(ends, O_CLOEXEC) != 0) {
        test_fail(file, line, "check_dies: pipe2");
    }
    death->stderr_fd = ends[0];
    death->pid = test_child_begin(file, line);
    if (death->pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        return true;
    }
    close(ends[1]);
    return false;
}

void test_death_survived(void) {
    leave(EXIT_SURVIVED);
}

/* Returns what follows the part of `text` that the pattern matches at its start, or NULL. See
 * check_dies for %p and %d. */
static const char *match_here(const char *text, const char *pattern) {
    while (*pattern != '\0') {
        if (pattern[0] == '%' && (pattern[1] == 'p' || pattern[1] == 'd')) {
            bool address = pattern[1] == 'p';
            if (address && strncmp(text, "0x", 2) != 0) {
                return NULL;
            }
            text += address ? 2 : 0;
            size_t digits = strspn(text, address ? "0123456789abcdef" : "0123456789");
            if (digits == 0) {
                return NULL;
            }
            text += digits;
            pattern += 2;
        } else if (*text++ != *pattern++) {
            return NULL;
        }
    }
    return text;
}

static bool matches(const char *text, const char *pattern, enum test_match match) {
    if (match == TEST_MATCH_WHOLE) {
        const char *rest = match_here(text, pattern);
        return rest != NULL && strcmp(rest, "\n") == 0;
    }
    for (const char *start = text;; start++) {
        if (match_here(start, pattern) != NULL) {
            return true;
        }
        if (*start == '\0') {
            return false;
        }
    }
}

static void read_all(int fd, char *buffer, size_t size) {
    size_t used = 0;
    for (;;) {
        char excess[256];
        bool full = used == size - 1;
        ssize_t n =
            full ? read(fd, excess, sizeof excess) : read(fd, buffer + used, size - 1 - used);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break;
        }
        used += full ? 0 : (size_t)n;
    }
    buffer[used] = '\0';
}

void test_death_end(const struct test_death *death, const char *text, int signal_number,
                    enum test_match match) {
    static char captured[CAPTURE_BYTES];
    read_all(death->stderr_fd, captured, sizeof captured);
    close(death->stderr_fd);
    int status = wait_for(death->pid);
    bool died = WIFSIGNALED(status) && WTERMSIG(status) == signal_number;
    if (died && matches(captured, text, match)) {
        return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SURVIVED) {
        test_say("    the body survived\n", NULL);
    } else if (!died) {
        say_ending("    the body: ", status);
    }
    test_say("    expected: ", text, "\n    stderr:   ", captured, "\n", NULL);
    test_fail(death->file, death->line, "check_dies");
}

/* Finds a word in a file without keeping the file: the end of each piece is carried over to the
 * next. */
static bool file_contains(const char *path, const char *word) {
    char piece[4096];
    size_t kept = 0;
    size_t length = strlen(word);
    bool found = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n;
    while (!found && (n = read(fd, piece + kept, sizeof piece - kept)) > 0) {
        size_t have = kept + (size_t)n;
        found = memmem(piece, have, word, length) != NULL;
        kept = have < length ? have : length - 1;
        memmove(piece, piece + have - kept, kept);
    }
    close(fd);
    return found;
}

void require_tally(void) {
    int saved_errno = errno;
    if (!file_contains("/proc/self/maps", "libtally.so")) {
        test_fail("/proc/self/maps", 0, "libtally.so is not loaded: link it or preload it");
    }
    errno = saved_errno;
}

size_t test_anonymous_bytes(void) {
    static char text[4096];
    size_t kilobytes = 0;
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    read_all(fd, text, sizeof text);
    close(fd);
    const char *line = strstr(text, "\nAnonymous:");
    if (line == NULL) {
        return 0;
    }
    line += strcspn(line, "0123456789");
    for (; *line >= '0' && *line <= '9'; line++) {
        kilobytes = kilobytes * 10 + (size_t)(*line - '0');
    }
    return kilobytes * 1024;
}

__attribute__((noreturn)) static void run_in_child(const struct test_case *test) {
    setpgid(0, 0);
    confine_child();
    if (g.setup != NULL) {
        g.setup();
    }
    errno = 0;
    test->run();
    exit(0);
}

static void run_test(const struct test_case *test) {
    pid_t pid = fork();
    if (pid == 0) {
        run_in_child(test);
    }
    int status = pid < 0 ? SIGKILL : wait_for(pid);
    if (pid > 0) {
        kill(-pid, SIGKILL); /* What the test started and left behind ends with it. */
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        g.passed++;
        test_say("pass ", test->name, "\n", NULL);
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED) {
        g.skipped++;
        test_say("skip ", test->name, "\n", NULL);
    } else {
        g.failed++;
        say_ending("    ", status);
        test_say("FAIL ", test->name, "\n", NULL);
    }
}

static void say_count(void) {
    char number[3][24];
    test_say(test_decimal(number[0], g.passed), " passed, ", test_decimal(number[1], g.failed),
             " failed, ", test_decimal(number[2], g.skipped), " skipped\n", NULL);
}

static const struct test_case *find_test(const char *name) {
    const struct test_case *test = g.first;
    while (test != NULL && strcmp(test->name, name) != 0) {
        test = test->next;
    }
    return test;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const struct test_case *test = g.first; test != NULL; test = test->next) {
            test_say(test->name, "\n", NULL);
        }
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        const struct test_case *test = find_test(argv[i]);
        if (test == NULL) {
            test_say("no test is called ", argv[i], "; --list prints the names\n", NULL);
            return EXIT_USAGE;
        }
        run_test(test);
    }
    for (const struct test_case *test = g.first; argc == 1 && test != NULL; test = test->next) {
        run_test(test);
    }
    say_count();
    if (g.failed > 0 || g.passed + g.skipped == 0) {
        return EXIT_FAILED;
    }
    return g.passed == 0 ? EXIT_SKIPPED : 0;
}
