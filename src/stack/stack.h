/* SPDX-License-Identifier: MIT
 *
 * stack.h - call stacks: the caller's own (heap profiler), and interrupted code's (CPU profiler).
 *
 * Both use the unwind tables of the code (walk.h, cfi.h), which are right even without frame
 * pointers, and keep the rules that they find there (rules.h).
 */
#pragma once

#include "base/common.h"

/* On aarch64 the upper bits of a return address may hold a signature. */
enum { STACK_ADDRESS_BITS = 48 };
static inline uintptr_t stack_plain_address(uintptr_t address) {
    return address & ((UINT64_C(1) << STACK_ADDRESS_BITS) - 1);
}

/* ---------------------------------------------------------------- one's own (unwind.c) */

enum { UNWIND_MOST = 256, UNWIND_OWN = 16, UNWIND_ROOM = UNWIND_MOST + UNWIND_OWN };
enum { UNWIND_AT_ONCE = 4 }; /* levels that are compared */

/* One call of a kept walk: two words as they were read, and which of their bits count, so that both
 * can be compared at once. */
struct unwind_level {
    uintptr_t frame; /* frame pointer of the function that it returns to */
    uintptr_t word;  /* return address */
    uintptr_t mask;  /* all ones: the frame pointer counts, and was read below the return address */
    uintptr_t all;   /* all ones */
    uintptr_t slot;  /* where the return address is */
    uint32_t note;   /* the caller's; 0 in a level that is new or inside a new one */
    uint32_t above;  /* from the slot to where the stack is after the return */
    uint32_t below;  /* from where the frame pointer was read to the slot; 0: it was not */
    uint8_t flags;   /* enum level_flag in levels.c */
    uint8_t needs;   /* 1: the frame pointer counts, since it is used here or further out */
};

/* What a thread knows about its own stack; zeros at first. */
struct unwind_thread {
    uintptr_t low, high; /* part of the stack it was started on, known to be readable */
    uint32_t walks;      /* counted, to have some of them checked */
    uint32_t count;      /* levels kept */
    uint32_t same;       /* of these, as in the walk before */
    uint8_t has_far;     /* 1: frame pointers that count were read elsewhere */
    uint64_t generation; /* of rules when the levels were found */
    struct unwind_level before[UNWIND_AT_ONCE]; /* levels that never change */
    struct unwind_level levels[UNWIND_ROOM]; /* outermost first; the rest is for the walk to come */
};

/*
 * Return addresses of the function that calls this one and of its callers, without those inside
 * this library; at most `most`, at least one, even if it is our own.  `frame` is
 * __builtin_frame_address(0) of that function, which must have been compiled with frame pointers.
 * `levels` has them outermost first, with the notes made in levels that are as in the thread's last
 * walk; if it is NULL they are in `addresses`, innermost first.
 *
 * All are return addresses: the call is the instruction before.  Where a signal handler interrupted
 * code, one is added to the address, so that this holds there, too.
 *
 * Takes no lock of ours, allocates nothing and may be called from signal handlers; libgcc, which
 * finds the tables, may lock or allocate, see tables.h.
 */
struct unwind_stack {
    unsigned count;
    unsigned same; /* levels that may have notes, ours included */
    struct unwind_level *levels;
};
struct unwind_stack unwind_again(struct unwind_thread *thread, void *frame,
                                 uintptr_t addresses[UNWIND_ROOM], unsigned most);

/* The return address of a level. */
static inline uintptr_t unwind_address(const struct unwind_level *level) {
    return stack_plain_address(level->word);
}

/* Forgets the levels: another thread uses them now. */
void unwind_begin(struct unwind_thread *thread);

/* Finds out which code is ours. */
void unwind_init(void);

/* Finds libgcc and has it make what it needs.  Allocates and takes the loader's locks: call it
 * neither inside nor before constructors may run.  Without libgcc, only frame pointers are used. */
void unwind_prepare(void);

/* In the child of a fork: a lock of libgcc's may be held by a thread that does not exist here. */
void unwind_forked(void);

/* ---------------------------------------------------------------- of interrupted code (interrupted.c) */

/* The registers that matter.  `link` holds the return address where a register does. */
struct walk_registers {
    uintptr_t address, stack, pointer, base, link;
};

/* Those in a handler's context, and those of the function that calls this one. */
struct walk_registers walk_registers_of(const void *context);
struct walk_registers walk_registers_here(void);

/* Room for the tables of one function, and a part of the stack. */
enum { CODE_ROOM = 4096, CODE_WINDOW = 4096 };
struct code_room {
    unsigned char bytes[CODE_ROOM];
    unsigned char window[CODE_WINDOW];
    bool is_asked, is_careful; /* false at the beginning of each walk */
};

/*
 * Addresses innermost first, at least one; one is added to those that are no return addresses, so
 * that the call, or the instruction, is always before.  `*met_unknown` is set if the walk came to
 * an address that is not known to be code: the stack ends before it.
 *
 * Takes no lock, allocates nothing, calls nothing outside, needs little stack: for signal handlers.
 */
unsigned walk_interrupted(struct walk_registers registers, uintptr_t *addresses, unsigned most,
                          struct code_room *room, bool *met_unknown);

/* Reads in /proc what is code now, and forgets rules of code that is gone.  True if something has
 * changed.  Does nothing while what the last look replaced cannot be given back: `is_idle` says
 * whether no handler runs now, or none that began before now.  For one thread at a time. */
bool code_look(bool (*is_idle)(void));

/* In the child of a fork there are no handlers. */
void code_forked(void);
