/* SPDX-License-Identifier: MIT
 *
 * hooked.h - the memory of arenas whose pages come from the program, by jemalloc's extent hooks.
 *
 * Each such arena has a page heap of its own.  Its extents are what the alloc hook gave: whole
 * chunks, never split and never merged; they are purged and committed in parts and returned whole.
 *
 * Threads     State changes under the page heap's lock; hooks are called with no lock of ours held.
 *             Functions that may call hooks say so: their callers hold no lock either.
 */
#pragma once

#include "heap/chunk.h"
#include "heap/hooks.h"

struct hooked;
struct bin;

/* An empty page heap for an arena, with bins; NULL without memory for descriptors. */
struct hooked *hooked_create(unsigned arena);
struct bin *hooked_bins(struct hooked *hooked);

struct extent_hooks *hooked_hooks(const struct hooked *hooked);
void hooked_set_hooks(struct hooked *hooked, struct extent_hooks *hooks);

/* An object, or NULL.  Small ones carry the secret in word 1, as from a bin; they are tracked where
 * `arena` carries ARENA_TRACKED.  These call hooks. */
void *hooked_alloc_small(unsigned arena, unsigned size_class);
void *hooked_alloc_large(unsigned arena, size_t size, size_t alignment, bool *zeroed);

/* Calls hooks: gives back what has been free for the arena's dirty_decay_ms.  Milliseconds until
 * there is more to do, UINT64_MAX when nothing is kept or it is kept for ever. */
uint64_t hooked_settle(unsigned arena);

/* Calls hooks: gives back all that is free.  Bytes that went. */
size_t hooked_purge(unsigned arena);

/* Calls hooks: returns every extent that holds nothing, whether the dalloc hook likes it or not. */
void hooked_destroy(unsigned arena);

/* In bytes; a snapshot that may lag. */
struct hooked_totals {
    size_t mapped; /* extents */
    size_t used;   /* in spans */
    size_t dirty;  /* free, and used since the last purge */
    size_t muzzy;  /* free, and purged lazily or no hook would purge it */
};
struct hooked_totals hooked_totals(unsigned arena);
