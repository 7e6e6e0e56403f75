/* SPDX-License-Identifier: MIT
 *
 * cache.h - one thread's magazines: refill, relieve, room, slow start.
 *
 * Threads     Call with the caller's own heap, or with one that has no thread.
 */
#pragma once

#include "heap/thread.h"

struct verify;

/* An object of the class, with word 1 as it was (the caller clears it), or NULL without memory. */
void *cache_alloc(struct thread *thread, unsigned size_class);

/* The same past the cache; `thread` may be NULL.  May call hooks of the thread's arena. */
void *cache_alloc_uncached(struct thread *thread, unsigned size_class);

/* The same from the slabs of a given arena. */
void *cache_alloc_from(struct thread *thread, unsigned arena, unsigned size_class);

/* The same from slabs for tracked objects: `arena` is what arena_prepare_tracked returned.
 * `in_turn`: the distance between samples counts the object. */
void *cache_alloc_tracked(struct thread *thread, unsigned arena, unsigned size_class, bool in_turn);

/* The program has freed such an object; it carries the secret and no number.  `arena` is without
 * ARENA_TRACKED. */
void cache_free_tracked(unsigned arena, unsigned size_class, void *object);

/* An object goes from a bin to the program, or from the program to a bin, past every heap. */
void cache_count_past_alloc(unsigned arena, unsigned size_class);
void cache_count_past_free(unsigned size_class);

/* Puts back into slabs what the thread (which may be NULL) caches of classes other than
 * `busy_class` and what waits in depots, so that memory is found before the heap grows. */
void cache_make_way(struct thread *thread, unsigned busy_class);

/* Keeps a free object that carries the secret. */
void cache_free(struct thread *thread, unsigned size_class, void *object);

/* An empty heap begins with a small budget. */
void cache_begin_budget(struct thread *thread);

/* Gives everything in the magazines back, takes all room away and makes the budget small. */
void cache_flush(struct thread *thread);

/* The same for one class. */
void cache_flush_class(struct thread *thread, unsigned size_class);

/* The same for one class of a thread that vanished in a fork, wherever it was at that moment. */
void cache_recover_class(struct thread *gone, unsigned size_class);

/* The same for all classes, of a cache that stays in use. */
void cache_recover(struct thread *gone);

/* Checks one heap, which nobody uses meanwhile. */
enum cache_kind {
    CACHE_OF_THREAD,   /* also one that waits for the next thread */
    CACHE_OF_ORPHAN,   /* its thread vanished in a fork, wherever it was */
    CACHE_OF_NO_THREAD /* explicit: holds what was put into it, of any arena without hooks */
};
void cache_verify(const struct thread *thread, enum cache_kind kind, struct verify *walk);
