/* SPDX-License-Identifier: MIT
 *
 * verify.h - one walk over all that is cached, which each part of the heap joins by <file>_verify.
 *
 * Threads     The caller of heap_verify only, which keeps the library's own threads from working.
 */
#pragma once

#include "heap/chunk.h"
#include "heap/magazine.h"

struct verify;

/*
 * A cache holds this free object.  It must be the start of an object of a slab of the class, handed
 * out as far as the slab knows, and be met for the first time in this walk.  Returns its slab, so
 * that the caller can say whether it may be cached there.
 */
const struct span *verify_cached(struct verify *walk, unsigned size_class, const void *object);

/* The same for the first `count` of some slots. */
void verify_slots(struct verify *walk, unsigned size_class, void *const *slots, unsigned count,
                  bool (*may_be_here)(const struct span *slab, const void *holder),
                  const void *holder);

/* A shelf holds this block, and no other does. */
void verify_shelved(struct verify *walk, const struct span *span);

/* A magazine is in use or in waiting here, and nowhere else. */
void verify_magazine(struct verify *walk, const struct magazine *magazine);

/* Magazines met so far. */
size_t verify_magazine_count(const struct verify *walk);
