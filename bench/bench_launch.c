/* SPDX-License-Identifier: MIT
 *
 * Starts one program under an allocator and prints what it cost:
 *
 *   bench_launch [--cpu N] [--preload LIB] [--env NAME=VALUE] [--stdin FILE] [--stdout FILE]
 *                -- PROGRAM [arguments]
 *   status=0 wall_ms=812.4 user_ms=790.1 sys_ms=20.3 maxrss_kib=10240
 *
 * The kernel's ru_maxrss of a process remembers the process that forked it, up to the exec.  A
 * Python harness of 12 MiB would thus give every program at least 12 MiB; this launcher is small
 * enough not to matter.  LD_PRELOAD is set in the child only.  Times and ru_maxrss from wait4 cover
 * the children the program waited for (the sum and the largest), such as the cc1 of a gcc.
 *
 * The status is that of the program, 128 plus the signal when it was killed, and is also the exit
 * status of the launcher; 127 means that the program could not be started.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_NOT_STARTED = 127 };

static void fail(const char *what, const char *which) {
    fprintf(stderr, "bench_launch: %s: ", what);
    perror(which);
    _exit(EXIT_NOT_STARTED);
}

static void redirect(const char *path, int flags, int fd) {
    int opened = open(path, flags | O_CLOEXEC, 0666);
    if (opened < 0 || dup2(opened, fd) < 0) {
        fail("cannot open", path);
    }
}

static void pin_to(const char *cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)atoi(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        fail("cannot run on CPU", cpu);
    }
}

/* Apply one option in the child; false when there is no such option. */
static int apply_option(const char *option, const char *value) {
    if (strcmp(option, "--cpu") == 0) {
        pin_to(value);
    } else if (strcmp(option, "--preload") == 0) {
        setenv("LD_PRELOAD", value, 1);
    } else if (strcmp(option, "--env") == 0 && strchr(value, '=') != NULL) {
        putenv((char *)(size_t)value);
    } else if (strcmp(option, "--stdin") == 0) {
        redirect(value, O_RDONLY, 0);
    } else if (strcmp(option, "--stdout") == 0) {
        redirect(value, O_WRONLY | O_CREAT | O_TRUNC, 1);
    } else {
        return 0;
    }
    return 1;
}

/* The child: prepare, then become the program.  It dies with the launcher, so that an
 * interrupted benchmark leaves no server behind. */
static void become_program(char **argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (; *argv != NULL && strcmp(*argv, "--") != 0; argv += 2) {
        if (argv[1] == NULL || !apply_option(argv[0], argv[1])) {
            fprintf(stderr, "bench_launch: bad option '%s'\n", argv[0]);
            _exit(EXIT_USAGE);
        }
    }
    if (argv[0] == NULL || argv[1] == NULL) {
        fprintf(stderr, "usage: bench_launch [options] -- PROGRAM [arguments]\n");
        _exit(EXIT_USAGE);
    }
    execvp(argv[1], argv + 1);
    fail("cannot start", argv[1]);
}

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static double timeval_ms(struct timeval time) {
    return (double)time.tv_sec * 1e3 + (double)time.tv_usec / 1e3;
}

int main(int argc, char **argv) {
    (void)argc;
    double start = now_ms();
    pid_t child = fork();
    if (child == 0) {
        become_program(argv + 1);
    }
    int wait_status = 0;
    struct rusage used;
    if (child < 0 || wait4(child, &wait_status, 0, &used) != child) {
        fail("cannot run", "child process");
    }
    double wall = now_ms() - start;
    int status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    printf("status=%d wall_ms=%.1f user_ms=%.1f sys_ms=%.1f maxrss_kib=%ld\n", status, wall,
           timeval_ms(used.ru_utime), timeval_ms(used.ru_stime), used.ru_maxrss);
    return status;
}
