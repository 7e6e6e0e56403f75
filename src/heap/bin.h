/* SPDX-License-Identifier: MIT
 *
 * bin.h - the slabs of one class in one arena.
 */
#pragma once

#include "base/lock.h"
#include "heap/chunk.h"
#include "heap/pages.h"

/* One bin.  bin.c alone changes it; the counts are read without the lock.  Padded so that two bins
 * share no cache line. */
struct bin {
    struct lock lock;
    struct pairing_node *slabs; /* slabs something can be taken from, lowest address first */
    uint64_t nmalloc;           /* objects that left slabs so far, ... */
    uint64_t ndalloc;           /* ... and that came back */
    uint64_t nfills;            /* refills and drains of more than one object */
    uint64_t nflushes;
    uint64_t nmade;    /* slabs made so far */
    uint64_t nreslabs; /* times a full slab could be taken from again */
    uint32_t nslabs;   /* now */
    uint32_t nonfull;  /* of these, in the set */
    uint32_t empty; /* of these, the one no object of which is handed out: its granule; 0: none */
    uint16_t arena;
    uint8_t size_class;
    uint8_t looks; /* for pages to give back that are still worth it (reclaim.c) */
} __attribute__((aligned(CACHE_LINE)));
_Static_assert(sizeof(struct bin) == 2 * CACHE_LINE, "there are many of them");

/* Objects handed out: live, or in a cache.  What came back is read first: it is never more. */
static inline size_t bin_nout(const struct bin *bin) {
    uint64_t ndalloc = __atomic_load_n(&bin->ndalloc, __ATOMIC_ACQUIRE);
    return count_read(&bin->nmalloc) - ndalloc;
}

/* An arena's bins for tracked objects: their slabs have class bytes 0 and a number per object. */
struct tracked_bins {
    struct bin bins[CLASS_COUNT];
    /* Arrays of numbers, all 0, that slabs of the class have left; linked through their first word.
     * Each guarded by the lock of its bin. */
    void *spare_ids[CLASS_COUNT];
};

/* Has a first agent come, or have all left, since the layers above last looked? */
static inline bool bin_agents_have_changed(void) {
    uint64_t word = bin_get_unusual();
    return (word >> BIN_AGENTS_SHIFT != 0) != ((word & BIN_WATCHED) != 0);
}

static inline bool bin_heap_is_shrinking(void) {
    return bin_get_unusual() & BIN_SHRINKING;
}

static inline bool bin_is_sampling(void) {
    return bin_get_unusual() & BIN_SAMPLING;
}

void bin_set_shrinking(bool shrinks);
void bin_set_sampling(bool samples);
void bin_set_watched(bool is_watched);
void bin_set_ignoring(bool is_ignoring);

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

/* The same for those of the objects that belong to arenas made by the program; the others come
 * first in slots[] afterwards, and their number is returned. */
unsigned bin_drain_manual(unsigned size_class, void **slots, unsigned count);

/*
 * Frees every object of a slab that the program holds; those that a cache holds carry the secret
 * and stay out, and keep their slab until they come home.  Nothing happens when `slab` is not, or
 * no longer, the bin's slab at `base`.
 */
void bin_reset_slab(struct bin *bin, struct span *slab, uintptr_t base);

/* Takes the number from an object of a slab for tracked ones, which stays handed out; 0 when
 * somebody else has done so, or when there is no such object. */
uint32_t bin_claim_tracked(struct span *slab, unsigned size_class, const void *object);

/* Changes the mark TRACK_IGNORED in an object's number.  False if it has none, or no change. */
bool bin_set_ignored(struct span *slab, unsigned size_class, const void *object, bool is_ignored);

/* Takes the numbers from up to `most` live objects of a slab; returns how many. */
unsigned bin_claim_live(struct bin *bin, struct span *slab, uintptr_t base, void **objects,
                        uint32_t *ids, unsigned most);

/* What the slab says about the object at `address`, under the bin's lock. */
enum bin_object { BIN_OBJECT_OUT, BIN_OBJECT_FREE, BIN_OBJECT_UNCARVED };
enum bin_object bin_look(struct span *slab, uintptr_t address);

/* The object that the bin would hand out next; 0: it would have to make a slab. */
uintptr_t bin_next(struct bin *bin);

/* Which of the objects `first` to `end` - 1 of the slab at `base` the program may hold: those that
 * are out, and, if they are tracked, have a number.  A bitmap of the whole slab; false if there is
 * no such slab of this class. */
bool bin_copy_out(const struct span *slab, unsigned size_class, uintptr_t base, unsigned first,
                  unsigned end, uint64_t out[MOST_OBJECTS / 64]);

/* Counts a free that found its granule unpublished; carves the granule when there are many. */
void bin_note_slow_free(struct span *slab, uintptr_t address);

/* Gives the empty slab that the bin keeps back to the page heap. */
void bin_trim(struct bin *bin);

/*
 * Pages inside slabs go back in three steps: the first withdraws what can go and returns it as a
 * bitmap of sheets, 0 if that is nothing; the caller makes the kernel take them, without a lock;
 * the last puts the slab back into use.  Nothing happens when `slab` is not, or no longer, the
 * bin's slab at `base`.  With `is_aged` only those slabs give that had something to give at the
 * last call as well, and from which nothing was taken since.
 */
uint32_t bin_begin_purge(struct bin *bin, struct span *slab, uintptr_t base, bool is_aged);
void bin_end_purge(struct bin *bin, struct span *slab, uintptr_t base, bool is_done);

/* A pass begins.  Is the bin worth a look in it? */
bool bin_begin_look(struct bin *bin);

static inline bool bin_is_worth_a_look(const struct bin *bin) {
    return __atomic_load_n(&bin->looks, __ATOMIC_RELAXED) > 0;
}

/* Counts from 0 again: what is handed out and the slabs there are count as just made. */
void bin_restart_counts(struct bin *bin);

/* Checks the bin against its slabs. */
void bin_verify(struct bin *bin);
