/* SPDX-License-Identifier: MIT
 *
 * bin.h - the slabs of one class in one arena.
 */
#pragma once

#include "base/lock.h"
#include "heap/chunk.h"
#include "heap/pages.h"

/* One bin.  bin.c alone changes it; nslabs and nout are read without the lock.  Padded so that two
 * bins share no cache line. */
struct bin {
    struct lock lock;
    uint32_t nempty;            /* slabs no object of which is handed out */
    struct pairing_node *slabs; /* slabs something can be taken from, lowest address first */
    size_t nslabs;
    size_t nout; /* objects handed out: live, or in a cache */
    uint16_t arena;
    uint8_t size_class;
} __attribute__((aligned(CACHE_LINE)));

/*
 * The program gives up much of its memory (depot.c finds out).  Bins then keep no empty slab, and
 * caches few objects, since each may be the last of its slab.
 */
extern _Atomic bool bin_heap_shrinks HIDDEN;

static inline bool bin_heap_is_shrinking(void) {
    return atomic_load_explicit(&bin_heap_shrinks, memory_order_relaxed);
}

void bin_init(struct bin *bin, unsigned size_class, unsigned arena);

/* Moves up to `count` objects to slots[0..].  Fewer, perhaps none, when memory is short or when the
 * heap would have to grow and may not. */
unsigned bin_refill(struct bin *bin, void **slots, unsigned count, enum pages_growth growth);

/*
 * Puts objects of one class back where they came from, whatever arena that is.  The caller has
 * forgotten them already.  An object that is free already ends the process: a double free that was
 * not noticed before.
 */
void bin_drain(unsigned size_class, void **slots, unsigned count);

/* What the slab says about the object at `address`, under the bin's lock. */
enum bin_object { BIN_OBJECT_OUT, BIN_OBJECT_FREE, BIN_OBJECT_UNCARVED };
enum bin_object bin_look(struct span *slab, uintptr_t address);

/* Counts a free that found its granule unpublished; carves the granule when there are many. */
void bin_note_slow_free(struct span *slab, uintptr_t address);

/* Gives the empty slab the bin keeps back to the page heap. */
void bin_trim(struct bin *bin);

/* Checks the bin against its slabs. */
void bin_verify(struct bin *bin);
