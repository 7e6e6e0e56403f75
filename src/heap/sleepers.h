/* SPDX-License-Identifier: MIT
 *
 * sleepers.h - heaps of threads that sleep are emptied by others.
 *
 * Threads     Call inside, and with no lock held.
 */
#pragma once

#include "base/common.h"

/* Empties the heaps whose owners have not used them for a while and sleep now; called again and
 * again, this reaches all of them within two seconds.  Returns how many milliseconds may pass before
 * it is worth while to call again; UINT64_MAX: until a thread wakes or gets a heap
 * (ATTENTION_BACKGROUND). */
uint64_t sleepers_tick(void);

/* Empties the heaps of all threads that sleep now and use this arena, or any (THREAD_ALL_ARENAS). */
void sleepers_empty(unsigned arena);
