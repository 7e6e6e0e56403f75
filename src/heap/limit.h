/* SPDX-License-Identifier: MIT
 *
 * limit.h - how much the heap may hold: the program's own limits, and a late one of the kernel.
 *
 * What the heap holds is the memory in spans, the free pages it keeps, and its own descriptors.
 * Pages that were given back do not count, although their addresses stay ours.
 *
 * Threads     All functions may be called from any thread.  Unless they say otherwise, they take
 *             no lock and may be called with any held.
 */
#pragma once

#include "heap/heap.h"

/* Takes the limits from the options.  What was needed to start with is not refused. */
void limit_init(void);

/* Is there a hard limit at all?  Spares callers the sum that limit_allows needs. */
bool limit_is_hard(void);

/* May the heap hold this many bytes more? */
bool limit_allows(size_t more);

/* The heap holds more or less than before: raises ATTENTION_SOFT_LIMIT when it has crossed the soft
 * limit.  Whoever attends to it gives back what can be given back and then tells the program. */
void limit_note(void);

/* True from when the heap grows above the soft limit until it is clearly below: meanwhile pages
 * that become free are not kept. */
bool limit_soft_is_exceeded(void);

/* Memory was refused.  If the kernel has limited the address space since the start, gives back what
 * is reserved for later, and the request may be made once more.  Hold no lock. */
void limit_notice_late(void);
