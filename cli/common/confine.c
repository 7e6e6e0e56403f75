/* SPDX-License-Identifier: MIT
 *
 * confine.c - the rights that a process gives up before it looks into a stranger's file.
 *
 * Two kinds of files come from anywhere: profiles and files with symbols.  Each is parsed by a
 * child of the command that can do nothing but compute and write its result into a pipe, so the
 * worst that a hostile file gets is a wrong profile or no names.
 *
 * Read next   read_worker.c and sym_worker.c, the two children.
 */
#define _GNU_SOURCE /* setresuid */
#include "common/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CPU_SECONDS = 300, NOBODY = 65534 };

/* A sanitizer's shadow is larger than any limit. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool limits_addresses = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
static const bool limits_addresses = false;
#else
static const bool limits_addresses = true;
#endif
#else
static const bool limits_addresses = true;
#endif

static void limit(__rlimit_resource_t what, rlim_t most) {
    struct rlimit now;
    if (getrlimit(what, &now) == 0 && (now.rlim_max == RLIM_INFINITY || now.rlim_max > most)) {
        struct rlimit limits = {most, most};
        setrlimit(what, &limits);
    }
}

/* Moves them by way of numbers above all of them, so that none overwrites another. */
static void keep_descriptors(const int *fds, size_t count) {
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC), high[8];
    int above = CONFINE_RESULT + (int)count;
    for (size_t i = 0; i < count; i++) {
        high[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD, above);
    }
    for (int i = 0; i < CONFINE_RESULT; i++) {
        dup2(nothing, i);
    }
    for (size_t i = 0; i < count; i++) {
        close(CONFINE_RESULT + (int)i);
        if (high[i] >= 0) {
            dup2(high[i], CONFINE_RESULT + (int)i);
        }
    }
    syscall(SYS_close_range, above, ~0U, 0);
}

void confine_start(const int *fds, size_t count, uint64_t memory) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    keep_descriptors(fds, count);
    if (limits_addresses) {
        limit(RLIMIT_AS, memory);
    }
    limit(RLIMIT_CPU, CPU_SECONDS);
    limit(RLIMIT_CORE, 0);
    signal(SIGVTALRM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
}

/* ---------------------------------------------------------------- the filter */

#if defined(__x86_64__)
static const uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
static const uint32_t architecture = AUDIT_ARCH_AARCH64;
#else
static const uint32_t architecture = 0; /* no filter */
#endif

struct program {
    struct sock_filter steps[96];
    unsigned short length;
};

static void add(struct program *program, struct sock_filter step) {
    program->steps[program->length++] = step;
}

static void load(struct program *program, size_t offset) {
    add(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

/* Skips this number of steps unless the loaded word is `value`. */
static void skip_unless(struct program *program, long value, uint8_t steps) {
    add(program,
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)value, 0, steps));
}

static void end(struct program *program, uint32_t action) {
    add(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static const uint32_t refuse = SECCOMP_RET_ERRNO | EPERM;

/* Allows a call for `count` descriptors from `first` on and refuses it for others. */
static void allow_for(struct program *program, long number, int first, unsigned count) {
    skip_unless(program, number, (uint8_t)(2 * count + 2));
    load(program, offsetof(struct seccomp_data, args)); /* little-endian: the lower half */
    for (unsigned i = 0; i < count; i++) {
        skip_unless(program, first + (int)i, 1);
        end(program, SECCOMP_RET_ALLOW);
    }
    end(program, refuse);
}

static void build_filter(struct program *program, unsigned inputs) {
    static const int allowed[] = {
        SYS_mmap,          SYS_munmap,         SYS_mremap,     SYS_mprotect,   SYS_madvise,
        SYS_brk,           SYS_futex,          SYS_exit,       SYS_exit_group, SYS_rt_sigreturn,
        SYS_clock_gettime, SYS_setitimer,      SYS_getrandom,  SYS_close,      SYS_getpid,
        SYS_gettid,        SYS_rt_sigprocmask, SYS_sigaltstack};
    load(program, offsetof(struct seccomp_data, arch));
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0));
    end(program, refuse);
    load(program, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        skip_unless(program, allowed[i], 1);
        end(program, SECCOMP_RET_ALLOW);
    }
    allow_for(program, SYS_write, CONFINE_RESULT, 1);
    allow_for(program, SYS_read, CONFINE_RESULT + 1, inputs);
    end(program, refuse);
}

void confine_finish(unsigned inputs) {
    struct program program = {.length = 0};
    if (geteuid() == 0 && setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
        setresuid(NOBODY, NOBODY, NOBODY) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* which a change of user takes away */
    }
    build_filter(&program, inputs);
    struct sock_fprog filter = {.len = program.length, .filter = program.steps};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (architecture != 0) {
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    }
}
