/* SPDX-License-Identifier: MIT
 *
 * test_seccomp.c - what the library may ask of the kernel once it has started.
 *
 * A sandboxed program is killed at the first system call that its filter does not know. The filter
 * here knows those that the library's documents name, and those with which a program ends: mmap,
 * munmap, mremap, mprotect, madvise, futex, clock_gettime, write, exit, exit_group. Work that visits
 * every slow path must live under it, in one thread and in threads made before the filter.
 *
 * A filter can also lie. When it answers clock_gettime with success and writes nothing, the clock
 * that the library reads by a system call of its own jumps back to zero and stands; a namespace of
 * time moves it a day ahead.
 *
 * The program starts itself again for each test.  No thread of the library's own is made once the
 * program confines itself; one that is there goes on, and must be content with the same calls.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);

TEST_SETUP(require_tally);

#if defined(__x86_64__)
enum { ARCHITECTURE = AUDIT_ARCH_X86_64 };
#else
enum { ARCHITECTURE = AUDIT_ARCH_AARCH64 };
#endif

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { NO_FILTER = 3, BROKEN = 4, NO_NAMESPACE = 5 };

/* ---------------------------------------------------------------- work */

enum { SMALL = 20000, LARGE = 60, ROUNDS = 3, THREADS = 3 };

static void expect(bool condition) {
    if (!condition) {
        _exit(BROKEN);
    }
}

static void fill_and_free(char **blocks, size_t count, size_t size) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = i % 2 == 0 ? malloc(size) : calloc(1, size);
        expect(blocks[i] != NULL);
        expect(i % 2 == 0 || (blocks[i][0] == 0 && blocks[i][size - 1] == 0));
        blocks[i][0] = blocks[i][size - 1] = (char)i;
    }
    for (size_t i = 0; i < count; i++) {
        expect(blocks[i][0] == (char)i && blocks[i][size - 1] == (char)i);
        free(blocks[i]);
    }
}

/* A block that grows in place, by moving its pages and by copying, and shrinks. */
static void grow_and_shrink(void) {
    char *p = NULL;
    for (size_t size = 1000; size < 30000000; size = size * 3 / 2) {
        char *blocker = malloc(size);
        p = realloc(p, size);
        expect(p != NULL && blocker != NULL && (size == 1000 || p[0] == 7));
        p[0] = p[size - 1] = 7;
        free(blocker);
    }
    for (size_t size = 30000000; size > 100; size /= 3) {
        p = realloc(p, size);
        expect(p != NULL && p[0] == 7);
    }
    free(p);
}

static void work(void) {
    char **blocks = malloc(SMALL * sizeof *blocks);
    expect(blocks != NULL);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t size = 40; size < 2000; size *= 4) {
            fill_and_free(blocks, SMALL, size);
        }
        fill_and_free(blocks, LARGE, 200000);
        fill_and_free(blocks, LARGE / 10, 5000000);
        grow_and_shrink();
        malloc_trim(0);
        mallinfo2();
        expect(malloc(PTRDIFF_MAX / 2) == NULL);
    }
    free(blocks);
}

/* ---------------------------------------------------------------- filters */

#define FILTER_LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define FILTER_ANSWER(answer) BPF_STMT(BPF_RET | BPF_K, answer)
#define FILTER_CASE(number, answer)                                                                \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), FILTER_ANSWER(answer)

static struct sock_filter kill_filter[] = {
    FILTER_LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
    FILTER_ANSWER(SECCOMP_RET_KILL_PROCESS),
    FILTER_LOAD(nr),
    FILTER_CASE(SYS_mmap, SECCOMP_RET_ALLOW),
    FILTER_CASE(SYS_munmap, SECCOMP_RET_ALLOW),
    FILTER_CASE(SYS_mremap, SECCOMP_RET_ALLOW),
    FILTER_CASE(SYS_mprotect, SECCOMP_RET_ALLOW),
    FILTER_CASE(SYS_madvise, SECCOMP_RET_ALLOW),
    FILTER_CASE(SYS_futex, SECCOMP_RET_ALLOW),
    FILTER_CASE(SYS_clock_gettime, SECCOMP_RET_ALLOW),
    FILTER_CASE(SYS_write, SECCOMP_RET_ALLOW),
    FILTER_CASE(SYS_exit, SECCOMP_RET_ALLOW),
    FILTER_CASE(SYS_exit_group, SECCOMP_RET_ALLOW),
    FILTER_ANSWER(SECCOMP_RET_KILL_PROCESS),
};

static struct sock_filter lying_clock[] = {
    FILTER_LOAD(nr),
    FILTER_CASE(SYS_clock_gettime, SECCOMP_RET_ERRNO | 0),
    FILTER_ANSWER(SECCOMP_RET_ALLOW),
};

/* For all threads, because some were made before. */
static void install(struct sock_filter *filter, size_t length) {
    struct sock_fprog program = {(unsigned short)length, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) {
        _exit(NO_FILTER);
    }
}

#define INSTALL(filter) install(filter, sizeof(filter) / sizeof *(filter))

/* ---------------------------------------------------------------- what the program does again */

static int under_filter(void) {
    INSTALL(kill_filter);
    work();
    return 0;
}

/* Proof that the filter kills. */
static int forbidden_call(void) {
    INSTALL(kill_filter);
    syscall(SYS_getpid);
    return 0;
}

static pthread_barrier_t gate, never;
static atomic_int finished;

/* Never returns: leaving would be libc's business, and it asks the kernel for more. */
static void *work_behind_gate(void *unused) {
    pthread_barrier_wait(&gate); /* libc has made the thread */
    pthread_barrier_wait(&gate); /* the filter is there */
    work();
    atomic_fetch_add(&finished, 1);
    pthread_barrier_wait(&gate);
    pthread_barrier_wait(&never);
    return unused;
}

static int under_filter_with_threads(void) {
    pthread_t thread;
    pthread_barrier_init(&gate, NULL, THREADS + 1);
    pthread_barrier_init(&never, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        expect(pthread_create(&thread, NULL, work_behind_gate, NULL) == 0);
    }
    pthread_barrier_wait(&gate);
    INSTALL(kill_filter);
    pthread_barrier_wait(&gate);
    work();
    pthread_barrier_wait(&gate);
    return atomic_load(&finished) == THREADS ? 0 : BROKEN;
}

static uint64_t clock_now(void) {
    struct timespec now = {0};
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec;
}

static size_t count_background_threads(void) {
    uint64_t epoch = 1;
    size_t number = 0, length = sizeof number;
    expect(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) == 0);
    expect(mallctl("stats.background_thread.num_threads", &number, &length, NULL, 0) == 0);
    return number;
}

/* With the background thread there, which goes on ticking behind the filter: for longer than pages
 * decay and sleeping threads are left alone. */
static int under_filter_with_background(void) {
    enum { TICKED_SECONDS = 3, GROWN = 40 << 20 };
    pthread_t thread;
    pthread_barrier_init(&gate, NULL, THREADS + 1);
    pthread_barrier_init(&never, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        expect(pthread_create(&thread, NULL, work_behind_gate, NULL) == 0);
    }
    work();
    void *grown = calloc(1, GROWN);
    expect(grown != NULL);
    free(grown);
    expect(count_background_threads() == 1);
    pthread_barrier_wait(&gate);
    INSTALL(kill_filter);
    pthread_barrier_wait(&gate);
    pthread_barrier_wait(&gate);
    for (uint64_t end = clock_now() + TICKED_SECONDS; clock_now() < end;) {
        work();
    }
    return atomic_load(&finished) == THREADS ? 0 : BROKEN;
}

static int clock_goes_back_and_stands(void) {
    work();
    INSTALL(lying_clock);
    expect(clock_now() == 0);
    work();
    tally_verify();
    return 0;
}

/* The child of a process that has chosen another time for its children. */
static int clock_jumps_ahead(void) {
    static const char offset[] = "monotonic 86400 0\n";
    static void *left[SMALL];
    int status = BROKEN;
    work();
    for (size_t i = 0; i < SMALL; i++) {
        left[i] = malloc(1000);
        expect(left[i] != NULL);
        memset(left[i], 1, 1000);
    }
    for (size_t i = 0; i < SMALL; i++) {
        free(left[i]);
    }
    uint64_t before = clock_now();
    int fd = unshare(CLONE_NEWTIME) == 0 ? open("/proc/self/timens_offsets", O_WRONLY) : -1;
    if (fd < 0 || write(fd, offset, sizeof offset - 1) < 0) {
        return NO_NAMESPACE;
    }
    pid_t pid = fork();
    if (pid == 0) {
        expect(clock_now() >= before + 86400);
        work();
        tally_verify();
        _exit(0);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : BROKEN;
}

static const struct part {
    const char *name;
    int (*play)(void);
} parts[] = {
    {"--filter", under_filter},
    {"--forbidden", forbidden_call},
    {"--threads", under_filter_with_threads},
    {"--background", under_filter_with_background},
    {"--back", clock_goes_back_and_stands},
    {"--ahead", clock_jumps_ahead},
};

__attribute__((constructor)) static void begin(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(argv[1], parts[i].name) == 0) {
            _exit(parts[i].play());
        }
    }
}

/* Returns the wait status of this program, started again in a part. */
static int play(const char *part) {
    bool has_background = strcmp(part, "--background") == 0;
    char *environment[] = {
        (char *)(uintptr_t)(has_background ? "TALLY_CONF=" : "TALLY_CONF=background_thread:false"),
        NULL};
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(TEST_SECONDS);
        execle("/proc/self/exe", "test_seccomp", part, (char *)NULL, environment);
        _exit(127);
    }
    check_eq(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_FILTER) {
        skip("the kernel lets us have no filter of system calls");
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_NAMESPACE) {
        skip("the kernel lets us have no namespace of time, or we are not privileged");
    }
    return status;
}

TEST(the_filter_kills) {
    int status = play("--forbidden");
    check(WIFSIGNALED(status));
    check_eq(WTERMSIG(status), SIGSYS);
}

TEST(a_heavy_load_needs_only_the_published_system_calls) {
    check_eq(play("--filter"), 0);
}

TEST(threads_made_before_the_filter_need_no_more) {
    check_eq(play("--threads"), 0);
}

TEST(background_thread_made_before_the_filter_needs_no_more) {
    check_eq(play("--background"), 0);
}

TEST(a_clock_that_goes_back_and_stands_does_no_harm) {
    check_eq(play("--back"), 0);
}

TEST(a_clock_that_jumps_a_day_ahead_does_no_harm) {
    check_eq(play("--ahead"), 0);
}
