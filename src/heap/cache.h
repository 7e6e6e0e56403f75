/* SPDX-License-Identifier: MIT
 *
 * cache.h - one thread's magazines: refill, swap, drain, slow start.
 *
 * Threads     Call with the caller's own heap only.
 */
#pragma once

#include "heap/thread.h"

/* An object of the class, with word 1 as it was (the caller clears it), or NULL without memory. */
void *cache_alloc(struct thread *thread, unsigned size_class);

/* The same past the cache, for a thread without a heap. */
void *cache_alloc_uncached(unsigned arena, unsigned size_class);

/* Keeps a free object that carries the secret. */
void cache_free(struct thread *thread, unsigned size_class, void *object);

/* Gives everything in the magazines back and takes all room away. */
void cache_flush(struct thread *thread);
