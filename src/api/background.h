/* SPDX-License-Identifier: MIT
 *
 * background.h - the thread that gives memory back while the program sleeps.
 *
 * Threads     Call outside of the allocator (life.h), without any lock.
 */
#pragma once

#include "base/common.h"

/* Call once the options are read; from then on mallctl may ask and change. */
void background_init(void);

/* Makes the thread if the options, the number of threads and the size of the heap call for it.
 * Only at the end of an allocation. */
void background_consider(void);

/* There is memory to give back. */
void background_wake(void);

/* There is something to do, whatever it is.  May be called from a signal handler. */
void background_ring(void);

/* A thread of the program ended.  When one is left, the background thread ends too. */
void background_thread_ended(void);

/* Makes a thread of the library's own with all signals blocked.  Its stack suffices for writing a
 * profile; it has the usual size where the program's thread-local data, which lies in it, needs
 * more.  False when the thread cannot be made. */
bool background_make_thread(void *(*run)(void *));

/* In the child of a fork the thread does not exist. */
void background_forked(void);
