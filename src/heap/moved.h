/* SPDX-License-Identifier: MIT
 *
 * moved.h - which ranges of the heap hold pages that came from other addresses.
 *
 * Threads     All functions may be called from any thread; a range belongs to the owner of the
 *             block it lies in.
 */
#pragma once

#include "base/common.h"

/* How many ranges may be moved at a time; each costs up to two mappings of the process. */
enum { MOVED_MOST = 512 };

/* Notes a range; false when there are too many already. */
bool moved_add(uintptr_t start, size_t bytes);

/* Forgets what was noted from `start` to `end`.  A range may lose its end, not its start. */
void moved_forget(uintptr_t start, uintptr_t end);

/* True when `at` lies in a moved range.  `*piece_end` is where that changes, or a moved range meets
 * the next, and at most `end`. */
bool moved_look(uintptr_t at, uintptr_t end, uintptr_t *piece_end);

/* The memory of the list. */
void moved_walk_memory(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context);

/* Number of ranges. */
size_t moved_count(void);
