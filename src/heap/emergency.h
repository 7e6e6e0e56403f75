/* SPDX-License-Identifier: MIT
 *
 * emergency.h - memory for a call that interrupts the allocator in its own thread.
 *
 * A signal handler may allocate while the code it interrupted holds locks of ours or is moving
 * objects.  Waiting would never end, so such a call touches none of that: memory comes from areas
 * set apart, and what is freed waits for the end of the interrupted call.  Calls that come while
 * the allocator is being started, from a hooked function, are served in the same way.
 *
 * Threads     All functions take no lock and may be called from signal handlers.
 */
#pragma once

#include "heap/heap.h"

struct verify;

/* What stands at an address. */
enum emergency_verdict {
    EMERGENCY_ELSEWHERE, /* not in an area */
    EMERGENCY_LIVE,
    EMERGENCY_FREE,    /* the start of a block that was freed */
    EMERGENCY_NOTHING, /* in an area, but not the start of a block */
};
enum emergency_verdict emergency_look(const void *address, size_t *size);

/* Frees a live block; false when somebody did so already. */
bool emergency_free(void *block);

/* Blocks handed out so far. */
size_t emergency_count(void);

/* Leaves an object of the heap to be freed at the end of a slow call.  Word 0 becomes a link. */
void emergency_defer(void *object);

/* Checks the areas, and that no object left to be freed is in a cache. */
void emergency_verify(struct verify *walk);
