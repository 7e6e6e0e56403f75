/* SPDX-License-Identifier: MIT
 *
 * watch.h - work that may hang, done in a process of its own and watched from outside.
 *
 *      static void work(void) {                    in the watched process; any number of threads
 *          while (...) {
 *              fork, allocate, read ...
 *              step(READER);                       one of WATCH_COUNTERS numbers of the caller's
 *          }
 *      }
 *      run_watched(work);                          fails the test unless work() returns in time
 *
 * A handler or an alarm inside a process that hangs may hide the hang or hang too, so the watcher
 * is the parent.  The counters lie in shared memory, where children of the watched process see them
 * as well.  The work fails when no counter at all has moved for two minutes; a single thread that
 * hangs beside busy ones is found when work() waits for it at its end.
 *
 * Also here: what /proc tells about this process, read without malloc, and whether the run is a
 * short slice or the whole length.
 */
#ifndef TALLY_TEST_WATCH_H
#define TALLY_TEST_WATCH_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

/* Who watches a child from inside watched work is the first to notice and can say more. */
enum { STALL_SECONDS = 120, STALL_SECONDS_INSIDE = 100 };
enum { WATCH_COUNTERS = 32, LONGEST_NAP_US = 50000 };

static _Atomic uint64_t *watch_counters; /* shared with the watcher and with children */

/* True for the whole length, `make stress`; false for the slice that `make test` runs. */
static inline bool whole_length(void) {
    return getenv("STRESS") != NULL;
}

static inline unsigned slice_or(unsigned slice, unsigned whole) {
    return whole_length() ? whole : slice;
}

static inline void step(unsigned counter) {
    atomic_fetch_add_explicit(&watch_counters[counter], 1, memory_order_relaxed);
}

static inline void nap_us(long microseconds) {
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&time, NULL);
}

/* For tests that use step() without run_watched(), and for run_watched(). */
static inline void watch_begin(void) {
    if (watch_counters == NULL) {
        watch_counters = mmap(NULL, WATCH_COUNTERS * sizeof *watch_counters, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        check(watch_counters != MAP_FAILED);
    }
}

static inline uint64_t watch_sum(void) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < WATCH_COUNTERS; i++) {
        sum += atomic_load_explicit(&watch_counters[i], memory_order_relaxed);
    }
    return sum;
}

static inline void watch_say_counters(void) {
    char number[2][24];
    for (unsigned i = 0; i < WATCH_COUNTERS; i++) {
        uint64_t steps = atomic_load_explicit(&watch_counters[i], memory_order_relaxed);
        if (steps > 0) {
            test_say("    counter ", test_decimal(number[0], i), ": ",
                     test_decimal(number[1], (long long)steps), " steps\n", NULL);
        }
    }
}

/* How a process ended, or that it hangs: then it is ended by SIGKILL.  Time is counted in naps of
 * the watcher, so that a machine which stands still altogether is no hang. */
struct ending {
    bool hung;
    int status;
};

static inline struct ending watch_process(pid_t pid, unsigned stall_seconds) {
    struct ending ending = {false, 0};
    uint64_t sum = watch_sum();
    long quiet = 0; /* microseconds */
    for (long nap = 50;; nap = nap * 2 < LONGEST_NAP_US ? nap * 2 : LONGEST_NAP_US) {
        pid_t got = waitpid(pid, &ending.status, WNOHANG);
        check(got >= 0 || errno == EINTR);
        if (got == pid) {
            return ending;
        }
        uint64_t sum_now = watch_sum();
        quiet = sum_now == sum ? quiet + nap : 0;
        sum = sum_now;
        if (quiet > (long)stall_seconds * 1000000) {
            ending.hung = true;
            kill(pid, SIGKILL);
            waitpid(pid, &ending.status, 0);
            return ending;
        }
        nap_us(nap);
    }
}

static inline void watch_say_ending(struct ending ending) {
    char number[24];
    if (ending.hung) {
        test_say("    no progress for two minutes\n", NULL);
        watch_say_counters();
    } else if (WIFSIGNALED(ending.status)) {
        test_say("    ended by signal ", test_decimal(number, WTERMSIG(ending.status)), "\n", NULL);
    } else {
        test_say("    exit status ", test_decimal(number, WEXITSTATUS(ending.status)), "\n", NULL);
    }
}

static inline void check_ending(struct ending ending, const char *file, int line) {
    if (ending.hung || ending.status != 0) {
        watch_say_ending(ending);
        test_fail(file, line, ending.hung ? "it hangs" : "it did not reach its end");
    }
}

/* Runs the work in a child and fails the test unless it returns without a stall. */
#define run_watched(work) watch_run(work, __FILE__, __LINE__)

static inline void watch_run(void (*work)(void), const char *file, int line) {
    watch_begin();
    memset((void *)watch_counters, 0, WATCH_COUNTERS * sizeof *watch_counters);
    pid_t pid = test_child_begin(file, line);
    if (pid == 0) {
        alarm(0); /* The watcher decides. */
        work();
        test_child_done();
    }
    check_ending(watch_process(pid, STALL_SECONDS), file, line);
}

/* The number behind `field`, such as "Private_Dirty:", in a file of /proc; 0 when there is none. */
static inline size_t proc_number(const char *path, const char *field) {
    static char text[8192];
    size_t used = 0;
    ssize_t got;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    check(fd >= 0);
    while (used < sizeof text - 1 && (got = read(fd, text + used, sizeof text - 1 - used)) > 0) {
        used += (size_t)got;
    }
    close(fd);
    text[used] = '\0';
    const char *found = strstr(text, field);
    return found == NULL ? 0 : strtoul(found + strlen(field), NULL, 10);
}

/* How many mappings this process has. */
static inline size_t count_mappings(void) {
    static char text[65536];
    size_t lines = 0;
    ssize_t got;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    check(fd >= 0);
    while ((got = read(fd, text, sizeof text)) > 0) {
        for (ssize_t i = 0; i < got; i++) {
            lines += text[i] == '\n';
        }
    }
    close(fd);
    return lines;
}

#endif
