/* SPDX-License-Identifier: MIT
 *
 * unwind.h - the call stack of the caller: as libgcc's unwinder sees it, but a hundred times faster.
 *
 * Threads     unwind() takes no lock of ours, allocates nothing and may be called from signal handlers;
 *             libgcc may lock or allocate, see unwind.c.
 */
#pragma once

#include "base/common.h"

enum { UNWIND_MOST = 256, UNWIND_OWN = 16, UNWIND_ROOM = UNWIND_MOST + UNWIND_OWN };
enum { UNWIND_AT_ONCE = 4 }; /* levels that are compared */

/* One call of a walk that is kept.  Two words as they were read, and which of their bits count, so that both
 * can be compared at once. */
struct unwind_level {
    uintptr_t frame; /* frame pointer of the function that it returns to; 0: unknown */
    uintptr_t word;  /* return address */
    uintptr_t
        mask; /* all ones: the frame pointer was read below the return address; 0: it was not */
    uintptr_t all;   /* all ones */
    uintptr_t slot;  /* where the return address is */
    uint32_t note;   /* the caller's; 0 in a level that is new or outside of which one is */
    uint8_t guess;   /* is the next level outwards one (enum guess in unwind.c)? */
    uint8_t guesses; /* the worst of these from here on outwards */
};

/* What a thread has learnt about its own stack; zeros at first. */
struct unwind_thread {
    uintptr_t low, high; /* part of the stack it was started on, known to be readable */
    uint32_t walks;      /* counted, to have some of them checked */
    uint32_t epoch;      /* of what was known about sites when the levels were found */
    uint32_t count;      /* levels kept */
    uint32_t same;       /* of these, as in the walk before */
    struct unwind_level before[UNWIND_AT_ONCE]; /* levels that never change */
    struct unwind_level levels[UNWIND_ROOM]; /* outermost first; the rest is for the walk to come */
};

/*
 * Return addresses of the function that calls this one and of its callers, innermost first, without
 * those inside this library; at most `most`.  `frame` is __builtin_frame_address(0) of that function,
 * which must have been compiled with frame pointers.  At least one, if only our own.
 *
 * All are return addresses: the call is the instruction before.  Where a signal handler interrupted
 * code, one is added to the address, so that this holds there, too.
 */
unsigned unwind(struct unwind_thread *thread, void *frame, uintptr_t addresses[UNWIND_ROOM],
                unsigned most);

/*
 * The same with less work where the outer part of the stack is that of the thread's last walk.  `levels`
 * has it outermost first, with the notes that were made in what is unchanged; where that is NULL it is in
 * `addresses`, as above.
 */
struct unwind_stack {
    unsigned count;
    unsigned same; /* levels that may have notes, of ours too */
    struct unwind_level *levels;
};
struct unwind_stack unwind_again(struct unwind_thread *thread, void *frame,
                                 uintptr_t addresses[UNWIND_ROOM], unsigned most);

/* On aarch64 the upper bits of a return address may hold a signature. */
enum { UNWIND_ADDRESS_BITS = 48 };
static inline uintptr_t unwind_plain_address(uintptr_t address) {
    return address & ((UINT64_C(1) << UNWIND_ADDRESS_BITS) - 1);
}

/* The return address of a level. */
static inline uintptr_t unwind_address(const struct unwind_level *level) {
    return unwind_plain_address(level->word);
}

/* Forgets the levels: another thread uses them now. */
void unwind_begin(struct unwind_thread *thread);

/* Finds out which code is ours. */
void unwind_init(void);

/* Finds libgcc's unwinder and has it make what it needs.  Allocates and takes the loader's locks:
 * neither inside nor before constructors may run.  Without, frame pointers are all there is. */
void unwind_prepare(void);

/* In the child of a fork: a lock of libgcc's may be held by a thread that is not there. */
void unwind_forked(void);
