/* SPDX-License-Identifier: MIT
 *
 * reclaim.h - gives whole pages inside slabs back to the kernel.
 *
 * Threads     One caller works at a time.  No bin is locked while the kernel works.
 */
#pragma once

#include <stdatomic.h>

#include "base/common.h"
#include "heap/counts.h"

/* Set while some bin is worth a look. */
extern _Atomic bool reclaim_is_asked HIDDEN;

/* A bin has so much free that pages may be found in its slabs.  Any lock may be held. */
void reclaim_ask(void);

/* What has been free for a while goes, every dirty_decay_ms.  Milliseconds until there is more to
 * do, UINT64_MAX when nobody has asked. */
uint64_t reclaim_tick(void);

/* The same in steps, by those who free, where no background thread ticks.  No bin is locked. */
void reclaim_step(void);
static inline void reclaim_consider_step(void) {
    if (UNLIKELY(atomic_load_explicit(&reclaim_is_asked, memory_order_relaxed)) &&
        !atomic_load_explicit(&dirty_has_background, memory_order_relaxed)) {
        reclaim_step();
    }
}

/* The heap is about to grow: gives back some of what is free, as much as a caller can wait for.
 * Nothing while somebody else is at it. */
void reclaim_some(void);

/* Gives back all of an arena, or of all arenas; bytes. */
enum { RECLAIM_ANY_ARENA = 0xffff };
size_t reclaim_all(unsigned arena);
