/* SPDX-License-Identifier: MIT
 *
 * life.h - entering and leaving the allocator; start, thread exit, fork and process exit.
 *
 * Everything but a hit on a fast path happens between life_enter and life_leave.  A call in between
 * by the same thread can only come from a signal handler (or, during the start, from a replaced
 * function of libc).  Such a call interrupts the allocator: it must not touch what the interrupted
 * call is working on, and is served apart (heap/emergency.h).
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

/* The rare parts: start or fork, pending work, a new thread. */
void life_wake(void);
void life_attend(void);
void life_attend_alloc(void);
void life_register_thread(void);

/* False when this thread is already inside. */
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

/* The same for a thread that has just found its heap in `hot`, and so was greeted and is not parked.
 * Whether this is the child of a fork need not be tested: the first lock does it. */
static inline bool life_enter_again(void) {
    if (UNLIKELY(tls.inside)) {
        return false;
    }
    thread_mark_again(true);
    return true;
}

/* `allocated` says that an allocation ends, where a background thread may be made: libc frees under
 * locks that making a thread needs, but never allocates under one. */
static inline void life_leave_again(bool allocated) {
    thread_mark_inside(false);
    if (UNLIKELY(attention_get() != ATTENTION_CALM)) {
        if (allocated) {
            life_attend_alloc();
        } else {
            life_attend();
        }
    }
}

/* Any call but a hit may be the first of its thread.  libc is then asked to announce the thread's
 * end; this is done outside, since libc may allocate for it. */
static inline void life_greet_thread(void) {
    if (UNLIKELY(!tls.registered)) {
        life_register_thread();
    }
}

static inline void life_leave(void) {
    life_leave_again(false);
    life_greet_thread();
}

static inline void life_leave_alloc(void) {
    life_leave_again(true);
    life_greet_thread();
}

/* Starts the library if this is the first call of all.  False when this thread is inside. */
static inline bool life_ready(void) {
    if (!life_enter()) {
        return false;
    }
    life_leave_again(false); /* A thread without a heap need not be greeted. */
    return true;
}

/* Has life_process_ends called at exit, to write profiles and statistics.  Call outside: libc may
 * allocate for it. */
void life_watch_exit(void);
void life_process_ends(void);

/* Number of the program's threads that have used the allocator and not ended; may lag. */
size_t life_thread_count(void);
