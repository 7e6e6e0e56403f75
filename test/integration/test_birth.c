/* SPDX-License-Identifier: MIT
 *
 * test_birth.c - a program whose first malloc comes out of libc, while libc holds a lock that the
 * library's own start needs.
 *
 * pthread_atfork and atexit have room for some handlers and allocate, under their lock, when that
 * is used up. A library that starts at that very malloc and then registers handlers of its own
 * waits for itself. The program starts itself again and registers handlers in a constructor,
 * before which nothing in it has allocated; an alarm ends the one that hangs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

enum { HANDLERS = 60, PATIENCE_SECONDS = 120, UNTOUCHED = 0, TOUCHED = 3, BROKEN = 4 };

static int calls;

static void count_call(void) {
    calls++;
}

/* The handlers are all there, ours and the library's. */
static int fork_with_handlers(void) {
    int status = BROKEN;
    pid_t pid = fork();
    if (pid == 0) {
        void *p = malloc(100);
        free(p);
        _exit(p != NULL && calls == 2 * HANDLERS ? 0 : BROKEN);
    }
    return waitpid(pid, &status, 0) == pid && status == 0 && calls == 2 * HANDLERS ? 0 : BROKEN;
}

static int register_fork_handlers(void) {
    for (int i = 0; i < HANDLERS; i++) {
        if (pthread_atfork(count_call, count_call, count_call) != 0) {
            return BROKEN;
        }
    }
    return fork_with_handlers();
}

static int register_exit_handlers(void) {
    for (int i = 0; i < HANDLERS; i++) {
        if (atexit(count_call) != 0) {
            return BROKEN;
        }
    }
    return 0;
}

static int look_at_heap(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks == 0 && info.hblkhd == 0 && info.fsmblks == 0 ? UNTOUCHED : TOUCHED;
}

/* libc passes the arguments of main. Constructors of a program run after those of libraries. */
__attribute__((constructor)) static void begin(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--look") == 0) {
        exit(look_at_heap());
    } else if (argc == 2 && strcmp(argv[1], "--atfork") == 0) {
        exit(register_fork_handlers());
    } else if (argc == 2 && strcmp(argv[1], "--atexit") == 0) {
        exit(register_exit_handlers());
    }
}

static char said[8192]; /* what the last child wrote to its standard error */

static void read_all(int fd) {
    size_t length = 0;
    ssize_t n;
    while ((n = read(fd, said + length, sizeof said - 1 - length)) > 0 ||
           (n < 0 && errno == EINTR)) {
        length += n > 0 ? (size_t)n : 0;
    }
    said[length] = '\0';
}

/* Returns the wait status of this program, started again with one argument. */
static int run_again(const char *argument, const char *conf) {
    int ends[2];
    int status = -1;
    check_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char setting[100] = "TALLY_CONF=";
        char *environment[] = {strcat(setting, conf), NULL};
        alarm(PATIENCE_SECONDS);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execle("/proc/self/exe", "test_birth", argument, (char *)NULL, environment);
        _exit(127);
    }
    close(ends[1]);
    read_all(ends[0]);
    close(ends[0]);
    check_eq(waitpid(pid, &status, 0), pid);
    return status;
}

/* Where something allocates before a program's constructors, what is tested cannot happen. */
static void require_untouched_heap(void) {
    int status = run_again("--look", "");
    check(WIFEXITED(status));
    if (WEXITSTATUS(status) == TOUCHED) {
        skip("something allocates before the constructors of a program");
    }
    check_eq(WEXITSTATUS(status), UNTOUCHED);
}

TEST(the_first_malloc_may_come_out_of_pthread_atfork) {
    require_untouched_heap();
    check_eq(run_again("--atfork", ""), 0);
    check_str(said, "");
}

TEST(the_first_malloc_may_come_out_of_atexit) {
    require_untouched_heap();
    check_eq(run_again("--atexit", ""), 0);
    check_str(said, "");
}

TEST(the_first_malloc_may_come_out_of_atexit_when_the_library_prints_at_exit) {
    require_untouched_heap();
    check_eq(run_again("--atexit", "stats_print:true"), 0);
    check(strstr(said, "tally: where the heap's bytes are\n") != NULL);
}
