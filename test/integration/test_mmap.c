/* SPDX-License-Identifier: MIT
 *
 * test_mmap.c - the program's own mappings: calls that do what libc's do, recorded or not.
 *
 * Every test runs as the program was started, where the calls are inert, and again in a program that was
 * started with prof_mmap, where what is alive is counted by the profile.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

enum { PAGE = 4096, MIB = 1 << 20, THREADS = 4, ROUNDS = 20000 };

static bool is_recorded(void) {
    bool on = false;
    size_t length = sizeof on;
    check_eq(mallctl("opt.prof_mmap", &on, &length, NULL, 0), 0);
    return on;
}

/* Bytes of mappings that live, by the total of a profile; nothing else is in it. */
static size_t live_bytes(void) {
    char line[256];
    size_t bytes = SIZE_MAX;
    FILE *file = tmpfile();
    check(file != NULL);
    check_eq(tally_profile_dump_fd(fileno(file), TALLY_PROFILE_GPERFTOOLS), 0);
    rewind(file);
    check(fgets(line, sizeof line, file) != NULL);
    check(sscanf(line, "heap profile: %*u: %zu", &bytes) == 1);
    fclose(file);
    return bytes;
}

static void check_live(size_t bytes) {
    int saved = errno;
    if (is_recorded()) {
        check_eq(live_bytes(), bytes);
    }
    errno = saved;
}

/* Runs the test of this name again in a program with mappings recorded. */
static void again(const char *name) {
    if (getenv("TALLY_CONF") == NULL) {
        setenv("TALLY_CONF", "prof:true,prof_mmap_only:true", 1);
        execl("/proc/self/exe", "test_mmap", name, NULL);
        check(!"it cannot be started again");
    }
}

static char *map(size_t bytes) {
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(p != MAP_FAILED);
    return p;
}

static bool is_mapped(const char *page) {
    unsigned char residency;
    int saved = errno;
    bool is_there = mincore((void *)page, PAGE, &residency) == 0;
    errno = saved;
    return is_there;
}

/* ---------------------------------------------------------------- what the calls do */

TEST(parts_are_unmapped_moved_and_replaced) {
    errno = 123;
    char *p = map(10 * PAGE - 5);
    memset(p, 7, 10 * PAGE);
    check_live(10 * PAGE);
    check_eq(munmap(p + 3 * PAGE, 2 * PAGE), 0);
    check(is_mapped(p + 2 * PAGE) && !is_mapped(p + 3 * PAGE) && is_mapped(p + 5 * PAGE));
    check_live(8 * PAGE);
    check_eq(mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
    check_eq(p[0], 0);
    check_live(8 * PAGE);
    char *moved = mremap(p + 5 * PAGE, 5 * PAGE, 20 * PAGE, MREMAP_MAYMOVE);
    check(moved != MAP_FAILED && moved[5 * PAGE - 1] == 7 && moved[20 * PAGE - 1] == 0);
    check_live(23 * PAGE);
    char *place = map(4 * PAGE);
    check_eq(mremap(moved, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place), place);
    check_eq(place[PAGE], 7);
    check(!is_mapped(moved));
    check_live(23 * PAGE);
    check_eq(mremap(place, 4 * PAGE, PAGE, 0), place);
    check_live(20 * PAGE);
    check_eq(munmap(place, PAGE), 0);
    check_eq(munmap(moved + 4 * PAGE, 16 * PAGE), 0);
    check_eq(munmap(p, 3 * PAGE), 0);
    check_live(0);
    check_eq(errno, 123);
    again("parts_are_unmapped_moved_and_replaced");
}

TEST(failures_are_libcs) {
    char *p = map(PAGE);
    errno = 0;
    check_eq(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED);
    check_eq(errno, EINVAL);
    check_eq(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0), MAP_FAILED);
    check_eq(errno, EBADF);
    check_eq(mmap64(NULL, (size_t)1 << 60, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
             MAP_FAILED);
    check_eq(errno, ENOMEM);
    check_eq(munmap(p + 1, PAGE), -1);
    check_eq(errno, EINVAL);
    errno = 0;
    check_eq(mremap(p, PAGE, (size_t)1 << 60, MREMAP_MAYMOVE), MAP_FAILED);
    check(errno != 0);
    errno = 0;
    check_eq(sbrk((intptr_t)1 << 60), (void *)-1);
    check_eq(errno, ENOMEM);
    check_live(PAGE);
    again("failures_are_libcs");
}

TEST(the_break_is_libcs) {
    errno = 123;
    char *start = sbrk(0);
    check_eq(sbrk(5 * PAGE + 100), start);
    memset(start, 1, 5 * PAGE + 100);
    check_live(5 * PAGE + 100);
    check_eq(sbrk(-2 * PAGE), start + 5 * PAGE + 100);
    check_live(3 * PAGE + 100);
    check_eq(errno, 123);
    check_eq(brk(start), 0);
    check_eq(sbrk(0), start);
    again("the_break_is_libcs");
}

/* ---------------------------------------------------------------- everywhere */

static void *map_and_unmap(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < ROUNDS / 4; i++) {
        size_t pages = 2 + i % 7;
        char *p = map(pages * PAGE);
        p[PAGE] = 1;
        check_eq(munmap(p + PAGE, (pages - 1) * PAGE), 0);
        p = mremap(p, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
        check(p != MAP_FAILED);
        check_eq(munmap(p + PAGE, PAGE), 0);
        check_eq(munmap(p, PAGE), 0);
    }
    return NULL;
}

TEST(a_child_of_a_fork_beside_threads_that_map_is_whole) {
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        check_eq(pthread_create(&threads[i], NULL, map_and_unmap, NULL), 0);
    }
    for (unsigned i = 0; i < 50; i++) {
        check_child({
            char *p = map(16 * PAGE);
            check_eq(munmap(p + PAGE, PAGE), 0);
            check_eq(munmap(p, 16 * PAGE), 0);
            free(test_launder(malloc(100000)));
        });
    }
    for (unsigned i = 0; i < THREADS; i++) {
        check_eq(pthread_join(threads[i], NULL), 0);
    }
    check_live(0);
    again("a_child_of_a_fork_beside_threads_that_map_is_whole");
}

static volatile sig_atomic_t handled;

static void handle(int number) {
    (void)number;
    int saved = errno;
    char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || munmap(p, 2 * PAGE) != 0) {
        _exit(9);
    }
    handled++;
    errno = saved;
}

TEST(a_handler_may_map_whatever_it_interrupts) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 200}, {0, 200}};
    struct itimerval never = {{0, 0}, {0, 0}};
    check_eq(sigaction(SIGALRM, &action, NULL), 0);
    check_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (unsigned i = 0; i < ROUNDS || handled < 200; i++) {
        char *p = map(3 * PAGE);
        void *volatile object = malloc(i % 40000);
        check_eq(munmap(p, 3 * PAGE), 0);
        free(object);
    }
    check_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
    again("a_handler_may_map_whatever_it_interrupts");
}

/* ---------------------------------------------------------------- what is told */

TEST(calls_are_logged_if_that_is_wanted) {
    static char text[65536];
    int ends[2];
    check_eq(pipe(ends), 0);
    pid_t child = fork();
    check(child >= 0);
    if (child == 0) {
        dup2(ends[1], 2);
        setenv("HEAP_PROFILE_MMAP_LOG", "1", 1);
        execl("/proc/self/exe", "test_mmap", "parts_are_unmapped_moved_and_replaced", NULL);
        _exit(9);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t n; (n = read(ends[0], text + length, sizeof text - 1 - length)) > 0;) {
        length += (size_t)n;
    }
    int status = 0;
    check_eq(waitpid(child, &status, 0), child);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check(strstr(text, "tally: mmap(start=0x0, len=40955, prot=0x3, flags=0x22, fd=-1, offset=0x0) "
                       "= 0x") != NULL);
    check(strstr(text, ", len=8192) = 0\n") != NULL);
    check(strstr(text, "tally: mremap(old_addr=0x") != NULL);
    check(strstr(text, ", old_size=20480, new_size=81920, flags=0x1, new_addr=0x0) = 0x") != NULL);
}
