/* SPDX-License-Identifier: MIT
 *
 * reclaim.h - gives whole pages inside slabs back to the kernel.
 *
 * Threads     One caller works at a time.  No bin is locked while the kernel works.
 */
#pragma once

#include "base/common.h"

/* A bin has so much free that pages may be found in its slabs.  Any lock may be held. */
void reclaim_ask(void);

/* What has been free for a while goes, every dirty_decay_ms.  Milliseconds until there is more to
 * do, UINT64_MAX when nobody has asked. */
uint64_t reclaim_tick(void);

/* The heap is about to grow: gives back some of what is free, as much as a caller can wait for.
 * Nothing while somebody else is at it. */
void reclaim_some(void);

/* Gives back all of an arena, or of all arenas; bytes. */
enum { RECLAIM_ANY_ARENA = 0xffff };
size_t reclaim_all(unsigned arena);
