/* SPDX-License-Identifier: MIT
 *
 * slab.h - a run of units cut into equal objects.
 *
 * Threads     Call with the bin that owns the slab locked, but for slab_is_surely_out.
 */
#pragma once

#include "heap/chunk.h"

enum {
    LG_SHEET = 12,
    SHEET_BYTES = 1 << LG_SHEET, /* what is carved at a time: the smallest kernel page */
};

/* On the way to giving pages back (reclaim.c). */
enum slab_rest {
    SLAB_IN_USE,
    SLAB_IDLE, /* had pages to give back at the last look; nothing was taken from it since */
    SLAB_BUSY, /* pages of it are on their way to the kernel: it is apart, whatever it has */
};

void slab_init(uint64_t random);

/* Objects of arenas below this index may be cached by any thread.  Those above belong to arenas
 * that the program made and may reset, or to extent hooks: a thread that did not choose such an
 * arena must not find one of its objects in its cache and hand it out. */
extern unsigned slab_shared_arenas HIDDEN;

static inline bool slab_is_shared(const struct span *slab) {
    return slab->arena < slab_shared_arenas;
}

/* Bytes of all slabs, or of those of a class, that have no memory behind them; for reports, and not
 * exact. */
size_t slab_untouched_bytes(void);
size_t slab_untouched_of(unsigned size_class);

/* Makes a slab of a span fresh from the page heap.  Its `ids` are set where the arena says so. */
void slab_create(struct span *slab, unsigned size_class, unsigned arena);

/* Withdraws the slab from the class map; its units may then be given back. */
void slab_destroy(struct span *slab);

/* Moves up to `count` free objects, lowest address last, to slots[0..]; returns how many. */
unsigned slab_take(struct span *slab, void **slots, unsigned count);

/* The object that would be taken next; the slab is not full. */
uintptr_t slab_next(const struct span *slab);

/* Carves what is missing of the granule `object` lies in, so that its frees become fast. */
void slab_publish_granule(struct span *slab, uintptr_t object);

/* The sheets, as a bitmap, that have memory behind them, or may have, and no object that is out, in
 * whole kernel pages. */
uint32_t slab_sheets_to_purge(const struct span *slab);

/* Those sheets are about to lose their memory: withdraws their objects. */
void slab_uncarve(struct span *slab, uint32_t sheets);

/* Those sheets have lost it, and what else was not carved, if the kernel did not refuse. */
void slab_note_purged(struct span *slab, bool is_done);

/* Makes a slab whole that another thread was changing when this process was forked: what it was
 * moving is lost.  The slab is apart from its bin's set afterwards. */
void slab_repair(struct span *slab);

void slab_verify(const struct span *slab);

static inline const struct size_class *slab_class(const struct span *slab) {
    return &size_classes[slab->size_class];
}

/*
 * A flag in nout.  A slab from which nothing can be taken is apart from its bin's set; counting
 * down then meets both cases drain must act on, apart and empty, with one comparison against 0.
 */
enum { SLAB_APART = INT16_MIN };

static inline unsigned slab_nout(const struct span *slab) {
    return (unsigned)slab->nout & INT16_MAX;
}

static inline bool slab_is_apart(const struct span *slab) {
    return slab->nout < 0;
}

static inline unsigned slab_nfree(const struct span *slab) {
    assert(slab_nout(slab) <= slab->ncarved);
    return slab->ncarved - slab_nout(slab);
}

static inline bool slab_is_empty(const struct span *slab) {
    return slab_nout(slab) == 0;
}

static inline bool slab_is_busy(const struct span *slab) {
    return slab->rest == SLAB_BUSY;
}

static inline unsigned slab_sheet_of(const struct span *slab, unsigned index) {
    assert(index < slab_class(slab)->total);
    return index * slab_class(slab)->size >> LG_SHEET;
}

/* Only then does its bit tell whether an object is free, and word 1 anything at all. */
static inline bool slab_is_carved(const struct span *slab, unsigned index) {
    return !(slab->uncarved >> slab_sheet_of(slab, index) & 1);
}

/* Is the object with the program, or in a cache? */
static inline bool slab_is_out(const struct span *slab, unsigned index) {
    return slab_is_carved(slab, index) && !bits_get(slab->bits, index);
}

/* True when nothing can be taken. */
static inline bool slab_is_full(const struct span *slab) {
    return slab_nout(slab) == slab_class(slab)->total;
}

/*
 * Is an object out beyond doubt?  Asked without the lock; false says nothing.  While the caller owns
 * the object nobody changes what is read here: its bit is 0, and its sheet stays carved.  Other bits
 * of the words may change meanwhile, which the thread sanitizer is told.  Whoever does not own it
 * gets an answer that may be late by a moment, as with the lock.
 */
__attribute__((no_sanitize("thread"))) static inline bool
slab_is_surely_out(const struct span *slab, uint32_t index) {
    const struct span volatile *seen = slab;
    uint32_t sheet = index * size_classes[seen->size_class].size >> LG_SHEET;
    return !(seen->bits[index / 64] >> index % 64 & 1) && !(seen->uncarved >> sheet % 32 & 1) &&
           !(seen->arena & ARENA_TRACKED);
}

/* The number of an object in a slab for tracked ones. */
static inline uint32_t *slab_id_place(const struct span *slab, const void *object) {
    assert(slab->arena & ARENA_TRACKED && slab->ids != NULL);
    uint32_t offset = (uint32_t)((uintptr_t)object - slab->base);
    return &slab->ids[size_class_index(slab_class(slab), offset)];
}

static inline uint32_t slab_id(const struct span *slab, const void *object) {
    return __atomic_load_n(slab_id_place(slab, object), __ATOMIC_RELAXED);
}

static inline void slab_set_id(const struct span *slab, const void *object, uint32_t id) {
    __atomic_store_n(slab_id_place(slab, object), id, __ATOMIC_RELAXED);
}
