/* SPDX-License-Identifier: MIT
 *
 * life.h - entering and leaving the allocator; start, thread exit, fork and process exit.
 *
 * Everything but a hit on a fast path happens between life_enter and life_leave.  A call that comes
 * in between, in the same thread, can only come from a signal handler (or, during the start, from a
 * function of libc that somebody replaced).  It may not touch what the interrupted call is working
 * on and is served apart: heap/emergency.h.
 *
 *      if (!life_enter()) {
 *          return what a call gets that interrupts us;
 *      }
 *      ... locks, magazines, slabs ...
 *      life_leave();
 */
#pragma once

#include "base/attention.h"
#include "heap/fast.h"

/* The rare parts: start or fork, what was left to do, a thread that is new here. */
void life_wake(void);
void life_attend(void);
void life_attend_growth(void);
void life_register_thread(void);

/* False when this thread is inside already. */
static inline bool life_enter(void) {
    if (UNLIKELY(tls.inside)) {
        return false;
    }
    thread_mark_inside(true);
    if (UNLIKELY(attention_get() == 0)) {
        life_wake();
    }
    return true;
}

/* The same for a thread that has a heap.  Whether this is the child of a fork need not be asked: the
 * first lock will. */
static inline bool life_enter_again(void) {
    if (UNLIKELY(tls.inside)) {
        return false;
    }
    thread_mark_inside(true);
    return true;
}

static inline void life_leave(void) {
    thread_mark_inside(false);
    if (UNLIKELY(attention_get() != ATTENTION_CALM)) {
        life_attend();
    }
}

/* The same at the end of an allocation, the place where a background thread may be made: libc frees
 * under locks that making a thread needs, but it never allocates under one. */
static inline void life_leave_alloc(void) {
    thread_mark_inside(false);
    if (UNLIKELY(attention_get() != ATTENTION_CALM)) {
        life_attend();
        life_attend_growth();
    }
}

/* A call outside of the fast path may be the first of its thread, whose end libc must then announce.
 * Asking for that may allocate. */
static inline void life_greet_thread(void) {
    if (UNLIKELY(!tls.registered)) {
        life_register_thread();
    }
}

/* At exit, profiles and statistics are to be written.  Call outside: libc may allocate for it. */
void life_watch_exit(void);
void life_process_ends(void);

/* Threads of the program that have used the allocator and not ended; may lag. */
size_t life_thread_count(void);
