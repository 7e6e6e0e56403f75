/* SPDX-License-Identifier: MIT
 *
 * leak_checks.h - objects that are lost or held, and checks that look for them, for the tests of leak/.
 *
 * The objects are tally_malloc's, so the heap has only what a test has put there.  A pointer that is to be
 * lost is made in a function of its own (lose), and what that leaves on the stack and in registers is wiped:
 * otherwise it might still be held by chance.
 *
 * Include with _GNU_SOURCE defined.
 */
#ifndef TALLY_TEST_LEAK_CHECKS_H
#define TALLY_TEST_LEAK_CHECKS_H

#include <jemalloc/jemalloc.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include "leak/leak.h"
#include "prof/prof.h"
#include "unit.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

/* A sanitizer's own words about the stack look like accesses that must not be. */
static inline void need_plain_memory(void) {
    if (SANITIZED) {
        skip("a sanitizer watches what a search reads");
    }
}

/* Overwrites what calls that have returned have left behind. */
static __attribute__((noinline, unused)) void wipe(void) {
    volatile char rest[32 * KIB];
    for (size_t i = 0; i < sizeof(rest); i++) {
        rest[i] = 0;
    }
#if defined(__x86_64__)
    __asm__ volatile("xorl %%eax, %%eax\n xorl %%ecx, %%ecx\n xorl %%edx, %%edx\n"
                     "xorl %%esi, %%esi\n xorl %%edi, %%edi\n xorl %%r8d, %%r8d\n"
                     "xorl %%r9d, %%r9d\n xorl %%r10d, %%r10d\n xorl %%r11d, %%r11d\n"
                     "pxor %%xmm0, %%xmm0\n pxor %%xmm1, %%xmm1\n pxor %%xmm2, %%xmm2\n"
                     "pxor %%xmm3, %%xmm3\n pxor %%xmm4, %%xmm4\n pxor %%xmm5, %%xmm5\n"
                     "xorl %%ebx, %%ebx\n xorl %%r12d, %%r12d\n xorl %%r13d, %%r13d\n"
                     "xorl %%r14d, %%r14d\n xorl %%r15d, %%r15d"
                     :
                     :
                     : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "rbx", "r12",
                       "r13", "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
                       "memory");
#endif
}

static __attribute__((noinline, unused)) void *make(size_t size) {
    void *object = tally_malloc(size);
    check(object != NULL);
    memset(object, 0, size);
    return object;
}

static __attribute__((noinline, unused)) void lose(void (*body)(void)) {
    body();
}

/* Runs a body whose pointers are gone afterwards. */
static inline void lose_all_of(void (*body)(void)) {
    lose(body);
    wipe();
}

static inline struct leak_result *check_with(struct leak_wish wish) {
    struct leak_result *result;
    wipe();
    if (!leak_check(&wish, &result)) {
        test_fail(__FILE__, __LINE__, result != NULL ? result->why : "no result");
    }
    return result;
}

/* However long others keep the processors. */
#define LONG_PAUSE_NS UINT64_C(20000000000)

static inline struct leak_result *check_now(void) {
    return check_with((struct leak_wish){.max_pause_ns = LONG_PAUSE_NS});
}

static inline void expect(const struct leak_result *result, enum leak_kind kind, uint64_t objects,
                          uint64_t bytes) {
    check_eq(result->kinds[kind].objects, objects);
    check_eq(result->kinds[kind].bytes, bytes);
}

static inline void expect_nothing(const struct leak_result *result) {
    expect(result, LEAK_DEFINITE, 0, 0);
    expect(result, LEAK_INDIRECT, 0, 0);
    expect(result, LEAK_POSSIBLE, 0, 0);
    check_eq(result->group_count, 0);
    check_eq(result->object_count, 0);
}

/* Nothing, definite and indirect in turn. */
static inline void expect_lost(uint64_t definite, uint64_t definite_bytes, uint64_t indirect,
                               uint64_t indirect_bytes) {
    struct leak_result *result = check_now();
    expect(result, LEAK_DEFINITE, definite, definite_bytes);
    expect(result, LEAK_INDIRECT, indirect, indirect_bytes);
    expect(result, LEAK_POSSIBLE, 0, 0);
    leak_release(result);
}

static inline void expect_all_held(void) {
    struct leak_result *result = check_now();
    expect_nothing(result);
    leak_release(result);
}

static void *volatile held; /* global data */

/* ---------------------------------------------------------------- what is lost, what holds it */

static inline void lose_three(void) {
    for (volatile int i = 0; i < 3; i++) {
        make(100);
    }
}

static __thread void *volatile in_thread_storage;

/* ---------------------------------------------------------------- other threads */

static _Atomic int stage; /* what a thread has done, and may do */

static inline void reach(int number) {
    atomic_store(&stage, number);
}

static inline void await(int number) {
    while (atomic_load(&stage) < number) {
        usleep(100);
    }
}

static inline void start_thread(pthread_t *thread, void *(*body)(void *)) {
    reach(0);
    check(pthread_create(thread, NULL, body, NULL) == 0);
    await(1);
}

static inline void end_thread(pthread_t thread) {
    reach(2);
    check(pthread_join(thread, NULL) == 0);
}

static inline void *hold_while_signals_are_blocked(void *unused) {
    void *volatile local = make(64);
    sigset_t all;
    sigfillset(&all);
    check(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
    wipe();
    reach(1);
    await(2);
    return local == unused ? NULL : unused;
}

#endif
