/* SPDX-License-Identifier: MIT
 *
 * test_stderr.c - the library's last words where standard error is not what it should be: closed,
 * full, at a device without space, at a pipe that nobody reads. The process ends by SIGABRT all the
 * same, and at once: neither SIGPIPE nor SIGXFSZ comes before. A program that was started without
 * standard error may have opened a file of its own under that number, and nothing is written there.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

static void free_twice(void) {
    char *p = malloc(100);
    free(p);
    free(test_launder(p));
}

static void forbid(int resource) {
    struct rlimit none = {0, 0};
    setrlimit(resource, &none);
}

static int wait_for(pid_t pid) {
    int status = 0;
    check_eq(waitpid(pid, &status, 0), pid);
    return status;
}

/* Runs free_twice() with this descriptor as standard error, or none. */
static int death_with_stderr(int fd) {
    pid_t pid = fork();
    if (pid == 0) {
        forbid(RLIMIT_CORE);
        if (fd < 0) {
            close(STDERR_FILENO);
        } else {
            dup2(fd, STDERR_FILENO);
        }
        free_twice();
        _exit(0);
    }
    return wait_for(pid);
}

static void check_aborted(int status) {
    check(WIFSIGNALED(status));
    check_eq(WTERMSIG(status), SIGABRT);
}

TEST(a_closed_standard_error_does_not_change_the_end) {
    check_aborted(death_with_stderr(-1));
}

TEST(a_full_device_does_not_change_the_end) {
    int fd = open("/dev/full", O_WRONLY);
    if (fd < 0) {
        skip("there is no /dev/full");
    }
    check_aborted(death_with_stderr(fd));
}

TEST(a_pipe_without_a_reader_does_not_change_the_end) {
    int ends[2];
    check_eq(pipe(ends), 0);
    close(ends[0]);
    check_aborted(death_with_stderr(ends[1]));
}

TEST(a_full_pipe_that_does_not_wait_does_not_change_the_end) {
    int ends[2];
    char zeros[4096] = {0};
    check_eq(pipe2(ends, O_NONBLOCK), 0);
    while (write(ends[1], zeros, sizeof zeros) > 0) {
    }
    check_eq(errno, EAGAIN);
    check_aborted(death_with_stderr(ends[1]));
}

static int unnamed_file(void) {
    char path[] = "/tmp/tally-stderr.XXXXXX";
    int fd = mkstemp(path);
    check(fd >= 0);
    unlink(path);
    return fd;
}

TEST(a_file_at_its_size_limit_does_not_change_the_end) {
    int fd = unnamed_file();
    pid_t pid = fork();
    if (pid == 0) {
        forbid(RLIMIT_FSIZE);
        _exit(death_with_stderr(fd) & 255);
    }
    int status = wait_for(pid);
    check(WIFEXITED(status));
    check_eq(WEXITSTATUS(status), SIGABRT);
}

/* A part that this program plays when it is started again, with standard error closed: its data
 * file, inherited as the descriptor 9, takes the number. */
enum { DATA = 9, NUMBER_IS_TAKEN = 3 };

__attribute__((constructor)) static void begin(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--reuse") == 0) {
        if (fcntl(STDERR_FILENO, F_GETFD) >= 0 || dup2(DATA, STDERR_FILENO) != STDERR_FILENO) {
            _exit(NUMBER_IS_TAKEN);
        }
        free_twice();
        _exit(0);
    }
}

TEST(a_file_that_took_the_number_of_a_closed_standard_error_is_not_written_to) {
    int fd = unnamed_file();
    pid_t pid = fork();
    if (pid == 0) {
        char *environment[] = {NULL};
        forbid(RLIMIT_CORE);
        dup2(fd, DATA);
        close(STDERR_FILENO);
        execle("/proc/self/exe", "test_stderr", "--reuse", (char *)NULL, environment);
        _exit(127);
    }
    check_aborted(wait_for(pid));
    check_eq(lseek(fd, 0, SEEK_END), 0);
}
