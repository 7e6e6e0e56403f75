/* SPDX-License-Identifier: MIT
 *
 * large.h - objects above SMALL_MAX, or aligned beyond what slabs give: each owns whole units.
 *
 * Threads     All functions may be called from any thread; a block's owner is its only user.
 */
#pragma once

#include "heap/counts.h"
#include "heap/pages.h"

/* A block of at least `bytes` bytes at a multiple of `alignment` (a power of two), or NULL.
 * `growth` is as for pages_take; `*zeroed` tells whether it reads as zeros.  With ARENA_HOOKED in
 * `arena` it comes from the extents that arena has. */
void *large_alloc(size_t bytes, size_t alignment, enum pages_growth growth, bool *zeroed,
                  unsigned arena);

/* Units that a block of so many usable bytes has. */
size_t large_units(size_t usable);

/* Could there ever be such a block, with enough memory?  And the most bytes a block can have. */
bool large_is_possible(size_t bytes, size_t alignment);
size_t large_most_bytes(void);

/* Usable bytes of a block of this size. */
size_t large_usable_bytes(size_t bytes);

/* Makes the first `bytes` bytes of a block, which nobody has written to since it was allocated,
 * read as zeros.  Only what may not is written, or given to the kernel. */
void large_zero(const struct span *span, size_t bytes);

/* Frees the block of this span in two steps.  The first makes it nobody's; false if it already was.
 * The second gives its memory back.  Walks over spans do the first under the page heap's lock. */
bool large_claim(struct span *span);
void large_release(struct span *span);

/* The same for a block that counts as freed already (shelf.c); and a claimed block, which counts as
 * freed from now on, becomes one of another arena. */
void large_return(struct span *span);
void large_move_over(struct span *span, unsigned arena);

/* Shrinks or grows in place.  False, with the block unchanged, when it has to move. */
bool large_resize(struct span *span, size_t bytes);

/* Moves the block to a place where it has at least `bytes` bytes, no fewer than it has, and frees
 * the old place.  NULL, with the block unchanged, when memory is short, when it is not the kernel's
 * memory but that of hooks, or when somebody else freed it. */
void *large_move(struct span *span, size_t bytes, enum pages_growth growth);

/* Number of large blocks and their usable bytes; may lag. */
size_t large_count(void);
size_t large_count_in(unsigned arena);
size_t large_bytes(void);
size_t large_bytes_in(unsigned arena);

/* What an arena, which need not exist, and its threads have counted. */
struct large_sums {
    uint64_t nmalloc[LEXTENT_CLASSES], ndalloc[LEXTENT_CLASSES];
    uint64_t bytes; /* of blocks there are */
    uint64_t total; /* of all there ever were */
};
void large_read_sums(unsigned arena, struct large_sums *sums);

/* Bytes of units that are nobody's, because other mappings took their addresses. */
size_t large_lost_bytes(void);
