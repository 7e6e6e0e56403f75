/* SPDX-License-Identifier: MIT
 *
 * test_unwind_stacks.c - the stack that is found against the stack that there is: on deep stacks, in handlers,
 * in coroutines and in threads.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unwind.h>

#include "base/os.h"
#include "opt/opt.h"
#include "stack/stack.h"
#include "unit.h"
#include "walked_stacks.h"

/* ---------------------------------------------------------------- depth */

static uintptr_t in_recursion;

static __attribute__((noinline)) void recurse(struct walk *walk, unsigned levels) {
    volatile char room[64];
    room[0] = 0;
    in_recursion = (uintptr_t)__builtin_return_address(0);
    if (levels > 0) {
        recurse(walk, levels - 1);
    } else {
        look(walk);
    }
    __asm__ volatile("" ::"r"(room) : "memory");
}

static void check_deep(uint64_t how) {
    begin(how);
    struct walk walk = new_walk();
    for (unsigned levels = 40000; levels > 0; levels /= 3) {
        walk.nnoted = 0;
        recurse(&walk, levels);
        if (levels > 200) {
            check_eq(walk.nfound, 128);
            for (unsigned i = 1; i < 128; i++) {
                check_eq(walk.found[i], in_recursion);
            }
        }
    }
}

TEST(deep_recursion_is_cut_by_frame_pointers) {
    check_deep(PROF_UNWIND_FRAME_POINTERS);
}

TEST(deep_recursion_is_cut_by_tables) {
    check_deep(PROF_UNWIND_LIBGCC);
}

TEST(deep_recursion_is_cut) {
    check_deep(PROF_UNWIND_AUTO);
    unsigned before = tables;
    struct walk walk = new_walk();
    recurse(&walk, 5000);
    recurse(&walk, 5000);
    check(has_counted(tables, before)); /* cut before these calls */
}

TEST(the_depth_that_is_asked_for_is_kept) {
    begin(PROF_UNWIND_AUTO);
    for (unsigned most = 1; most <= 21; most += 4) {
        struct walk walk = new_walk();
        walk.most = most;
        descend(&walk, 20);
        check_eq(walk.nfound, most);
        for (unsigned i = 0; i < most; i++) {
            check_eq(walk.found[i], walk.noted[walk.nnoted - 1 - i]);
        }
    }
    struct walk walk = new_walk();
    walk.most = 100000;
    descend(&walk, 300);
    check_eq(walk.nfound, UNWIND_MOST);
}

/* ---------------------------------------------------------------- other stacks */

static struct walk *in_handler;

static void handle(int number) {
    (void)number;
    look(in_handler);
}

static __attribute__((noinline)) void be_interrupted(struct walk *walk) {
    note(walk, __builtin_return_address(0));
    in_handler = walk;
    raise(SIGUSR1);
    __asm__ volatile("" ::: "memory");
}

/* An alternate stack at the end of a mapping, between pages that cannot be read. */
static void handle_on_other_stack(void) {
    size_t bytes = 64 << 10;
    char *pages = mmap(NULL, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mprotect(pages + 4096, bytes, PROT_READ | PROT_WRITE) == 0);
    stack_t stack = {.ss_sp = pages + 4096, .ss_size = bytes};
    check(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    check(sigaction(SIGUSR1, &action, NULL) == 0);
}

static bool is_found(const struct walk *walk, uintptr_t address) {
    for (unsigned i = 0; i < walk->nfound; i++) {
        if (walk->found[i] == address) {
            return true;
        }
    }
    return false;
}

TEST(a_handler_on_an_alternate_stack_is_walked_to_its_end) {
    begin(PROF_UNWIND_FRAME_POINTERS);
    handle_on_other_stack();
    struct walk walk = new_walk();
    descend(&walk, 3); /* knows its own stack now */
    walk.nnoted = 0;
    be_interrupted(&walk);
    check(walk.nfound >= 1);
}

TEST(auto_walks_through_a_handler_into_what_it_interrupted) {
    begin(PROF_UNWIND_AUTO);
    handle_on_other_stack();
    for (unsigned i = 0; i < 4; i++) {
        struct walk walk = new_walk();
        be_interrupted(&walk);
        check(is_found(&walk, walk.noted[0]));
        descend_again(&walk, 5);
    }
}

#if defined(__x86_64__)
extern const char forbidden[];

static void handle_forbidden(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    look(in_handler);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

TEST(where_a_signal_came_the_address_is_one_behind_the_instruction) {
    begin(PROF_UNWIND_AUTO);
    struct sigaction action = {.sa_sigaction = handle_forbidden, .sa_flags = SA_SIGINFO};
    check(sigaction(SIGILL, &action, NULL) == 0);
    for (volatile unsigned i = 0; i < 3; i++) {
        struct walk walk = new_walk();
        in_handler = &walk;
        __asm__ volatile("forbidden: ud2" ::: "memory");
        check(is_found(&walk, (uintptr_t)forbidden + 1));
        check(!is_found(&walk, (uintptr_t)forbidden));
    }
}
#endif

static ucontext_t outside, coroutine;
static struct walk *in_coroutine;
static unsigned coroutine_levels;

static void run_coroutine(void) {
    descend(in_coroutine, coroutine_levels);
}

static void walk_in_coroutine(struct walk *walk, char *stack, size_t bytes) {
    in_coroutine = walk;
    check(getcontext(&coroutine) == 0);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = bytes;
    coroutine.uc_link = &outside;
    makecontext(&coroutine, run_coroutine, 0);
    check(swapcontext(&outside, &coroutine) == 0);
}

/* Stacks of several sizes at the same addresses, unmapped and mapped again, with nothing behind. */
static void check_coroutines(uint64_t how) {
    begin(how);
    size_t most = 256 << 10;
    char *area = mmap(NULL, most + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (unsigned i = 0; i < 12; i++) {
        size_t bytes = most >> i % 3;
        check(munmap(area, most + 8192) == 0);
        check(mmap(area, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                   0) == area);
        struct walk walk = new_walk();
        coroutine_levels = i;
        walk_in_coroutine(&walk, area, bytes);
        check_found(&walk);
    }
}

TEST(coroutines_are_walked_to_their_end_by_frame_pointers) {
    check_coroutines(PROF_UNWIND_FRAME_POINTERS);
}

TEST(coroutines_are_walked_to_their_end) {
    check_coroutines(PROF_UNWIND_AUTO);
}

#if defined(__x86_64__)
static uintptr_t in_register;

static void run_with_clobbered_frame(void) {
    call_clobbering(look, in_coroutine, in_register);
}

/* Whatever the frame pointer holds, nothing outside of the stack is read: not the page before it, not
 * the one behind. */
TEST(no_value_in_the_frame_pointer_makes_a_coroutine_fault) {
    begin(PROF_UNWIND_FRAME_POINTERS);
    size_t bytes = 64 << 10;
    char *area = mmap(NULL, bytes + (4 << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mprotect(area, bytes, PROT_READ | PROT_WRITE) == 0);
    for (uintptr_t at = bytes - 4096; at < bytes + (2 << 20); at += at < bytes + 64 ? 8 : 40000) {
        struct walk walk = new_walk();
        in_register = (uintptr_t)area + at;
        in_coroutine = &walk;
        check(getcontext(&coroutine) == 0);
        coroutine.uc_stack.ss_sp = area;
        coroutine.uc_stack.ss_size = bytes;
        coroutine.uc_link = &outside;
        makecontext(&coroutine, run_with_clobbered_frame, 0);
        check(swapcontext(&outside, &coroutine) == 0);
        check_eq(walk.found[0], (uintptr_t)after_clobbering);
    }
}

static void begin_with_junk(void) {
    descend(in_coroutine, coroutine_levels);
    check(setcontext(&outside) == 0);
}

/* As some libraries do it: a frame pointer and a return address that lead nowhere, or into a hole. */
static void walk_on_junk(struct walk *walk, char *end, uintptr_t frame, uintptr_t address) {
    uintptr_t *top = (uintptr_t *)(void *)end - 3;
    in_coroutine = walk;
    top[0] = address;
    check(getcontext(&coroutine) == 0);
    coroutine.uc_mcontext.gregs[REG_RSP] = (greg_t)top;
    coroutine.uc_mcontext.gregs[REG_RBP] = (greg_t)frame;
    coroutine.uc_mcontext.gregs[REG_RIP] = (greg_t)begin_with_junk;
    check(swapcontext(&outside, &coroutine) == 0);
}

TEST(coroutines_that_begin_with_anything_are_walked_to_their_end) {
    static const uint64_t ways[] = {PROF_UNWIND_AUTO, PROF_UNWIND_LIBGCC,
                                    PROF_UNWIND_FRAME_POINTERS};
    size_t bytes = 64 << 10;
    char *stack = mmap(NULL, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mprotect(stack, bytes, PROT_READ | PROT_WRITE) == 0);
    uintptr_t hole = (uintptr_t)stack + bytes;
    uintptr_t junk[] = {UINT64_C(0xdeaddeaddeaddead), hole, hole - 1, 1, UINTPTR_MAX, 0};
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        begin(ways[i]);
        for (unsigned j = 0; j < sizeof(junk) / sizeof(junk[0]); j++) {
            struct walk walk = new_walk();
            coroutine_levels = j;
            walk_on_junk(&walk, stack + bytes, junk[j], junk[j]);
            check_found(&walk);
        }
    }
}

/* The tables tell to find the caller by the frame pointer here, and that leads into a hole. */
static void begin_with_frame(void) {
    void *volatile varying = __builtin_alloca(coroutine_levels * 16 + 16);
    (void)varying;
    descend(in_coroutine, 2);
    check(setcontext(&outside) == 0);
}

TEST(frame_pointers_that_lead_into_a_hole_are_tried_before) {
    begin(PROF_UNWIND_LIBGCC);
    size_t bytes = 64 << 10;
    char *stack = mmap(NULL, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mprotect(stack, bytes, PROT_READ | PROT_WRITE) == 0);
    uintptr_t *top = (uintptr_t *)(void *)(stack + bytes) - 3;
    struct walk walk = new_walk();
    in_coroutine = &walk;
    coroutine_levels = 1;
    top[0] =
        (uintptr_t)after_frameless; /* tables for it, and the stack ends before its frame does */
    check(getcontext(&coroutine) == 0);
    coroutine.uc_mcontext.gregs[REG_RSP] = (greg_t)top;
    coroutine.uc_mcontext.gregs[REG_RBP] = (greg_t)stack + (greg_t)bytes;
    coroutine.uc_mcontext.gregs[REG_RIP] = (greg_t)begin_with_frame;
    top[1] = top[2] = (uintptr_t)after_frameless;
    check(swapcontext(&outside, &coroutine) == 0);
    check_found(&walk);
}
#endif

/* The first thread's data are no part of its stack: what is mapped beside them may be a stack of the
 * program, and gone when a later walk believes it to be readable. */
TEST(the_first_thread_is_at_home_on_its_stack_alone) {
    begin(PROF_UNWIND_FRAME_POINTERS);
    char *stack = mmap(NULL, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct unwind_thread own = {0};
    struct walk walk = {.thread = &own, .most = 64};
    coroutine_levels = 3;
    walk_in_coroutine(&walk, stack, 64 << 10);
    check_found(&walk);
    check_eq(own.high, os_first_stack_end());
    check(own.low > (uintptr_t)stack + (64 << 10));
}

/* ---------------------------------------------------------------- threads */

static struct walk in_threads[2];

static void *walk_in_thread(void *unused) {
    (void)unused;
    struct unwind_thread own = {0};
    unsigned at_first = 0;
    for (volatile unsigned i = 0; i < 2; i++) {
        in_threads[i] = (struct walk){.thread = &own, .most = 128};
        descend(&in_threads[i], 6);
        check_found(&in_threads[i]);
        at_first = i == 0 ? tables : at_first;
    }
    check(has_counted(tables, at_first));
    check(in_threads[1].nfound > in_threads[1].nnoted + 1);
    check_eq(in_threads[0].nfound, in_threads[1].nfound);
    unsigned n = in_threads[0].nfound;
    check(memcmp(in_threads[0].found, in_threads[1].found, n * sizeof(uintptr_t)) == 0);
    return NULL;
}

TEST(the_start_of_a_thread_is_part_of_its_stacks) {
    begin(PROF_UNWIND_AUTO);
    run_threads(1, walk_in_thread, NULL);
    uintptr_t outermost = in_threads[0].found[in_threads[0].nfound - 1];
    run_threads(1, walk_in_thread, NULL);
    check_eq(in_threads[0].found[in_threads[0].nfound - 1], outermost);
}

static void *walk_in_small_thread(void *argument) {
    struct unwind_thread own = {0};
    struct walk walk = {.thread = &own, .most = 64};
    descend(&walk, 4);
    check_found(&walk);
    *(struct unwind_thread *)argument = own;
    return NULL;
}

/* A stack without a page behind or before it that could be read by mistake. */
TEST(a_stack_the_program_supplies_is_known_like_any_other) {
    begin(PROF_UNWIND_FRAME_POINTERS);
    size_t bytes = SANITIZED ? 4 << 20 : 64 << 10;
    char *area = mmap(NULL, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mprotect(area + 4096, bytes, PROT_READ | PROT_WRITE) == 0);
    pthread_attr_t attributes;
    pthread_t thread;
    struct unwind_thread seen;
    check(pthread_attr_init(&attributes) == 0);
    check(pthread_attr_setstack(&attributes, area + 4096, bytes) == 0);
    check(pthread_create(&thread, &attributes, walk_in_small_thread, &seen) == 0);
    check(pthread_join(thread, NULL) == 0);
    if (SANITIZED) {
        return; /* a sanitizer's own data lie between stack and thread-local variables */
    }
    check(seen.low >= (uintptr_t)area + 4096);
    check(seen.high > seen.low && seen.high <= (uintptr_t)area + 4096 + bytes);
}
