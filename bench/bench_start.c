/* SPDX-License-Identifier: MIT
 *
 * What a process costs before and after its work: `bench_start PATTERN [key=value ...]`.
 *
 *   true   starts `program` (/bin/true) `runs` times with LD_PRELOAD=`preload`, which this process
 *          itself does not have: the least CPU time in us, the median of page faults
 *   fork   a child that exits at once, and one that makes 64 blocks before: page faults of each
 *
 * The kernel counts both for a process that was waited for (wait4).
 */
#define _GNU_SOURCE
#include "bench.h"

#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

enum { RUNS_MOST = 4096, BLOCKS = 64 };

struct cost {
    uint64_t us, faults;
};

static struct cost wait_for(pid_t pid) {
    struct rusage used;
    int status = 0;
    if (pid <= 0 || wait4(pid, &status, 0, &used) != pid || status != 0) {
        say(2, "a child cannot be started, or fails\n");
        _exit(1);
    }
    uint64_t us = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
                  (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    return (struct cost){us, (uint64_t)used.ru_minflt};
}

static uint64_t median(uint64_t *values, size_t count) {
    for (size_t i = 1; i < count; i++) {
        for (size_t j = i; j > 0 && values[j - 1] > values[j]; j--) {
            uint64_t other = values[j];
            values[j] = values[j - 1];
            values[j - 1] = other;
        }
    }
    return values[count / 2];
}

static pid_t spawn(const char *program) {
    char *arguments[] = {(char *)(uintptr_t)program, NULL};
    pid_t pid = 0;
    return posix_spawn(&pid, program, NULL, NULL, arguments, environ) == 0 ? pid : -1;
}

static void run_true(void) {
    const char *program = arg_text("program", "/bin/true");
    const char *preload = arg_text("preload", NULL);
    size_t runs = arg_number("runs", 200);
    args_end();
    if (preload != NULL) {
        setenv("LD_PRELOAD", preload, 1);
    }
    runs = runs == 0 ? 1 : runs < RUNS_MOST ? runs : RUNS_MOST;
    static uint64_t us[RUNS_MOST], faults[RUNS_MOST];
    for (size_t i = 0; i < runs; i++) {
        struct cost cost = wait_for(spawn(program));
        us[i] = cost.us;
        faults[i] = cost.faults;
    }
    uint64_t middle = median(us, runs); /* sorts */
    say(1, "pattern=true us=%lu median_us=%lu faults=%lu\n", us[0], middle, median(faults, runs));
}

static uint64_t fork_faults(size_t blocks) {
    static uint64_t faults[21];
    for (size_t i = 0; i < 21; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (size_t k = 0; k < blocks; k++) {
                char *block = malloc(16 * k + 1);
                *block = 1;
            }
            _exit(0);
        }
        faults[i] = wait_for(pid).faults;
    }
    return median(faults, 21);
}

static void run_fork(void) {
    args_end();
    free(malloc(100));
    uint64_t plain = fork_faults(0), working = fork_faults(BLOCKS);
    say(1, "pattern=fork faults=%lu working_faults=%lu\n", plain, working);
}

int main(int argc, char **argv) {
    bench_begin(argc > 2 ? argc - 2 : 0, argv + 2);
    if (argc > 1 && strcmp(argv[1], "true") == 0) {
        run_true();
    } else if (argc > 1 && strcmp(argv[1], "fork") == 0) {
        run_fork();
    } else {
        say(2, "usage: bench_start true|fork [key=value ...]\n");
        return EXIT_USAGE;
    }
    return 0;
}
