/* SPDX-License-Identifier: MIT
 *
 * walked_stacks.h - calls whose stacks are known, for test_unwind*.c.
 *
 * Each function on the way notes its own return address, so the truth is known frame by frame.  Code
 * without frame pointers, and without unwind tables, is written in assembler, where nothing depends on
 * the compiler.  What libgcc is asked for is counted on its way out of dlsym (--wrap).
 */
#ifndef TALLY_TEST_WALKED_STACKS_H
#define TALLY_TEST_WALKED_STACKS_H

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>
#include <unwind.h>

#include "base/os.h"
#include "opt/opt.h"
#include "stack/libgcc.h"
#include "stack/stack.h"
#include "unit.h"

/* ---------------------------------------------------------------- libgcc, counted */

static libgcc_finder *real_table;
static _Atomic unsigned tables;

static inline const void *counting_table(void *address, struct libgcc_bases *bases) {
    tables++;
    return real_table(address, bases);
}

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name) {
    void *symbol = __real_dlsym(library, name);
    if (strcmp(name, "_Unwind_Find_FDE") == 0) {
        *(void **)&real_table = symbol;
        return (void *)counting_table;
    }
    return symbol;
}

/* A sanitizer has libgcc in the program: there it cannot be counted. */
static inline bool has_counted(unsigned count, unsigned expected) {
    return SANITIZED || count == expected;
}

/* ---------------------------------------------------------------- code of other kinds */

#if defined(__x86_64__)
/* call_*(function, argument, value) calls the function; `value` goes to rbp where it is clobbered. */
void call_clobbering(void (*function)(void *), void *argument, uintptr_t value);
void call_frameless(void (*function)(void *), void *argument, uintptr_t value);
void call_without_tables(void (*function)(void *), void *argument, uintptr_t value);
void call_frame_without_tables(void (*function)(void *), void *argument, uintptr_t value);
void call_varying(void (*function)(void *), void *argument, uintptr_t value);
void call_saving(void (*function)(void *), void *argument, uintptr_t value);
void call_like_signal(void (*function)(void *), void *argument, uintptr_t value);
extern const char after_varying[], after_clobbering[], after_frameless[], after_without_tables[],
    after_frame_without_tables[], after_like_signal[];

__asm__(".text\n"
        /* Uses rbp for something else, as optimized code does; has unwind tables. */
        "call_clobbering: .cfi_startproc\n"
        "pushq %rbp\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbp, 0\n"
        "movq %rdx, %rbp\n movq %rdi, %rax\n movq %rsi, %rdi\n"
        "callq *%rax\n"
        "after_clobbering: popq %rbp\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbp\n"
        "retq\n .cfi_endproc\n"
        /* Leaves rbp alone and has no frame: it is skipped by frame pointers. */
        "call_frameless: .cfi_startproc\n"
        "subq $8, %rsp\n .cfi_adjust_cfa_offset 8\n movq %rdi, %rax\n movq %rsi, %rdi\n"
        "callq *%rax\n"
        "after_frameless: addq $8, %rsp\n .cfi_adjust_cfa_offset -8\n"
        "retq\n .cfi_endproc\n"
        /* The same, and its tables call it a signal's, as those of some run-time systems do. */
        "call_like_signal: .cfi_startproc\n .cfi_signal_frame\n"
        "subq $8, %rsp\n .cfi_adjust_cfa_offset 8\n movq %rdi, %rax\n movq %rsi, %rdi\n"
        "callq *%rax\n"
        "after_like_signal: addq $8, %rsp\n .cfi_adjust_cfa_offset -8\n"
        "retq\n .cfi_endproc\n"
        /* The frameless one with rbp saved among other registers. */
        "call_saving: .cfi_startproc\n"
        "pushq %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbx, 0\n"
        "pushq %rbp\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbp, 0\n"
        "subq $8, %rsp\n .cfi_adjust_cfa_offset 8\n"
        "movq %rdx, %rbp\n movq %rdx, %rbx\n movq %rdi, %rax\n movq %rsi, %rdi\n"
        "callq *%rax\n"
        "addq $8, %rsp\n .cfi_adjust_cfa_offset -8\n"
        "popq %rbp\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbp\n"
        "popq %rbx\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbx\n"
        "retq\n .cfi_endproc\n"
        /* Takes `value` bytes of the stack, as alloca does, and finds back by rbx. */
        "call_varying: .cfi_startproc\n"
        "pushq %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbx, 0\n"
        "movq %rsp, %rbx\n .cfi_def_cfa_register %rbx\n"
        "subq %rdx, %rsp\n movq %rdi, %rax\n movq %rsi, %rdi\n"
        "callq *%rax\n"
        "after_varying: movq %rbx, %rsp\n .cfi_def_cfa_register %rsp\n"
        "popq %rbx\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbx\n"
        "retq\n .cfi_endproc\n"
        /* The first without tables. */
        "call_without_tables:\n"
        "pushq %rbp\n movq %rdx, %rbp\n movq %rdi, %rax\n movq %rsi, %rdi\n"
        "callq *%rax\n"
        "after_without_tables: popq %rbp\n retq\n"
        /* A frame, but no tables: machine code made at run time often is like this. */
        "call_frame_without_tables:\n"
        "pushq %rbp\n movq %rsp, %rbp\n movq %rdi, %rax\n movq %rsi, %rdi\n"
        "callq *%rax\n"
        "after_frame_without_tables: popq %rbp\n retq\n");
#endif

/* ---------------------------------------------------------------- the truth */

enum { MOST_NOTED = 400 };

struct walk {
    struct unwind_thread *thread;
    unsigned most;
    uintptr_t noted[MOST_NOTED]; /* return addresses, outermost first */
    unsigned nnoted;
    uintptr_t found[UNWIND_ROOM];
    unsigned nfound;
};

static struct unwind_thread main_thread;

static inline void note(struct walk *walk, const void *address) {
    check(walk->nnoted < MOST_NOTED);
    walk->noted[walk->nnoted++] = (uintptr_t)address;
}

/* Innermost first, wherever it was found. */
static inline unsigned unwind(struct unwind_thread *thread, void *frame,
                              uintptr_t addresses[UNWIND_ROOM], unsigned most) {
    struct unwind_stack stack = unwind_again(thread, frame, addresses, most);
    for (unsigned i = 0; stack.levels != NULL && i < stack.count; i++) {
        addresses[i] = unwind_address(&stack.levels[stack.count - 1 - i]);
    }
    return stack.count;
}

/* The end of each way. */
static __attribute__((noinline, unused)) void look(void *argument) {
    struct walk *walk = argument;
    note(walk, __builtin_return_address(0));
    walk->nfound = unwind(walk->thread, __builtin_frame_address(0), walk->found, walk->most);
}

static __attribute__((noinline, unused)) void descend(struct walk *walk, unsigned levels) {
    note(walk, __builtin_return_address(0));
    if (levels > 0) {
        descend(walk, levels - 1);
    } else {
        look(walk);
    }
    __asm__ volatile("" ::: "memory");
}

static inline void check_found(const struct walk *walk) {
    check(walk->nfound >= walk->nnoted);
    for (unsigned i = 0; i < walk->nnoted; i++) {
        check_eq(walk->found[i], walk->noted[walk->nnoted - 1 - i]);
    }
}

static inline void begin(uint64_t how) {
    os_init();
    opt.prof_unwind = how;
    unwind_init();
    unwind_prepare();
    tables = 0;
}

static inline struct walk new_walk(void) {
    return (struct walk){.thread = &main_thread, .most = 128};
}

static __attribute__((noinline, unused)) void descend_again(struct walk *walk, unsigned levels) {
    struct walk again = {.thread = walk->thread, .most = walk->most};
    *walk = again;
    descend(walk, levels);
    check_found(walk);
}

#endif
