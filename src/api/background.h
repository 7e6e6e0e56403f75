/* SPDX-License-Identifier: MIT
 *
 * background.h - the thread that gives memory back while the program sleeps.
 *
 * Threads     Call outside of the allocator (life.h), without any lock.
 */
#pragma once

#include "base/common.h"

/* Options have been read; mallctl may ask and change from now on. */
void background_init(void);

/* Makes the thread, if it is due: options, number of threads, size of the heap.  Only at the end of
 * an allocation. */
void background_consider(void);

/* There is memory to give back. */
void background_wake(void);

/* The same for whatever it may be.  May be called from a signal handler. */
void background_ring(void);

/* A thread of the program ended; with the last but one the background thread ends too. */
void background_thread_ended(void);

/* A thread of ours, with all signals blocked and a stack that suffices for writing a profile, or of the usual
 * size where the program's thread-local data, which lies in it, needs more.  False when it cannot be made. */
bool background_make_thread(void *(*run)(void *));

/* In the child of a fork the thread does not exist. */
void background_forked(void);
