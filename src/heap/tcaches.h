/* SPDX-License-Identifier: MIT
 *
 * tcaches.h - caches that belong to no thread, made and used by number.
 *
 * Threads     Each has a lock, so that two threads that use one at the same time do no harm.
 */
#pragma once

#include "heap/heap.h"

enum { TCACHES_MOST = 4094 };

/* Puts back what all of them hold. */
void tcaches_flush_all(void);

/* An object of a class from a cache, or if need be from an arena without hooks, that carries the
 * secret; NULL without memory.  And the way back for such an object.  Both return false when there
 * is no such cache. */
bool tcaches_alloc(unsigned id, unsigned arena, unsigned size_class, void **object);
bool tcaches_free(unsigned id, unsigned size_class, void *object);

/* Checks all of them; how many there are. */
struct verify;
size_t tcaches_verify(struct verify *walk);
