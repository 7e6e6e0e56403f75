/* SPDX-License-Identifier: MIT
 *
 * shelf.h - free large blocks of up to 1 MiB that a thread keeps for its next requests.
 *
 * Threads     The owner puts and takes; anybody may empty any shelf at any time.
 */
#pragma once

#include <stdatomic.h>

#include "heap/chunk.h"

struct large_sums;
struct thread;
struct verify;

enum {
    SHELF_SLOTS = 16,
    SHELF_UNITS = (1 << 20) / UNIT_BYTES, /* of all blocks on a shelf together */
    SHELF_LEXTENTS = 20,                  /* classes in which blocks of up to 1 MiB are counted */
};

struct shelf {
    _Atomic(struct span *) slot[SHELF_SLOTS]; /* filled by the owner, emptied by anybody */
    uint8_t units[SHELF_SLOTS];               /* of what the owner put there; 0: nothing */
    uint8_t last;                             /* the slot used last */
    uint16_t held;                            /* sum of units: what others took is still in it */
    _Atomic bool is_watched;                  /* a tick will look at it */
    /* Blocks that went to the program and came from it, by their classes, and their bytes. */
    uint64_t taken[SHELF_LEXTENTS], given[SHELF_LEXTENTS];
    uint64_t taken_bytes, given_bytes;
    uint64_t uses, uses_seen; /* puts; and how many there were at the last tick */
};

/* A block of the caller's arena of this many usable bytes; NULL: there is none. */
void *shelf_take(unsigned arena, size_t usable);

/* Keeps the block of a span that the caller has claimed (large_claim); false: it cannot. */
bool shelf_put(struct span *span);

/* Gives back the blocks on one shelf, or on all. */
void shelf_empty(struct thread *thread);
void shelf_empty_all(void);

/* Gives back what threads have kept without a free since the last tick; true when some is left. */
bool shelf_tick(void);

/* Bytes of units on all shelves; may lag. */
size_t shelf_bytes(void);

/* Adds what the threads of an arena have counted; and makes it the arena's. */
void shelf_add_sums(unsigned arena, struct large_sums *sums);
void shelf_settle(struct thread *thread);

/* Does it hold nothing? */
bool shelf_is_empty(const struct shelf *shelf);

/* Checks one shelf; the number of blocks on it. */
size_t shelf_verify(const struct thread *thread, struct verify *walk);
