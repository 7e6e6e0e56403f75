/* SPDX-License-Identifier: MIT
 *
 * background.h - the thread that gives memory back while the program sleeps.
 *
 * Threads     Call outside of the allocator (life.h), without any lock.
 */
#pragma once

#include "base/common.h"

/* There is memory to give back: starts the thread or wakes it, if the options and the number of
 * threads allow. */
void background_wanted(void);

/* A thread of the program ended; with the last but one the background thread ends too. */
void background_thread_ended(void);

/* In the child of a fork the thread does not exist. */
void background_forked(void);
