/* SPDX-License-Identifier: MIT
 *
 * size_class.h - which size a request is rounded to, and the geometry of each size's slabs.
 *
 *      class        1..16            17..56           57..60    61, 62          none
 *      size      16..256 by 16   8 per doubling   4 per doubl.   24, 32 KiB   whole pages
 *      upto           256             8192           16384         32768      PTRDIFF_MAX
 *      slab          16 KiB      32 .. 256 KiB      256 KiB       256 KiB
 *
 * Is this address the start of an object?  With c = ceil(2^32 / size) and e = c * size - 2^32, the
 * 64-bit product offset * c has the object's index in its high half; its low half is index * e for
 * the start of an object and at least c for anything else.  So one multiplication and one
 * comparison with `limit` decide, and they also refuse the part of a slab behind its last object.
 * test_size_class checks every class and every offset.
 *
 * Invariant   mult, limit and mask are functions of the class alone.
 */
#pragma once

#include "base/bits.h"
#include "base/common.h"

enum {
    CLASS_COUNT = 63,    /* class 0 means "not a small object"; 4 * 62 fits the class map's byte */
    SMALL_MAX = 32768,   /* larger requests own whole pages */
    TABLE_MAX = 1024,    /* requests up to here find their class in a table of bytes */
    SMALLEST = 16,       /* every object is 16-byte aligned and has a second word */
    MOST_OBJECTS = 1024, /* in one slab */
};

struct size_class {
    uint32_t size;      /* bytes of an object */
    uint32_t mult;      /* ceil(2^32 / size) */
    uint32_t limit;     /* low half of offset * mult is below this for object starts only */
    uint32_t slab_mask; /* bytes of a slab - 1; slabs are naturally aligned */
    uint16_t total;     /* objects in a slab */
    uint16_t room_max;  /* objects a thread may keep in its two magazines */
    uint16_t few;       /* fewer than this in a thread's magazines are not worth a slow call */
};

/* Filled by size_class_init, constant afterwards; row 0 is all zero. */
extern struct size_class size_classes[CLASS_COUNT] HIDDEN;

void size_class_init(void);

/* The class of a request of up to SMALL_MAX bytes. */
static inline unsigned size_class_of(size_t size) {
    if (size <= 256) {
        return size == 0 ? 1 : (unsigned)(size + 15) / 16;
    }
    unsigned lg = bits_floor_log2(size - 1);
    if (size <= 8192) {
        return 16 + (lg - 8) * 8 + (unsigned)((size - 1) >> (lg - 3)) - 7;
    }
    if (size <= 16384) {
        return 56 + (unsigned)((size - 1) >> (lg - 2)) - 3;
    }
    return size <= 24576 ? 61 : 62;
}

/* The smallest class that holds `size` bytes at a multiple of `alignment`; 0 if there is none.  The second is
 * the first for more than the usual alignment. */
unsigned size_class_widely_aligned(size_t size, size_t alignment);
static inline unsigned size_class_aligned(size_t size, size_t alignment) {
    if (LIKELY(alignment <= SMALLEST)) {
        return size <= SMALL_MAX ? size_class_of(size) : 0;
    }
    return size_class_widely_aligned(size, alignment);
}

static inline uint32_t size_class_index(const struct size_class *sc, uint32_t offset) {
    return (uint32_t)((uint64_t)offset * sc->mult >> 32);
}

static inline bool size_class_is_start(const struct size_class *sc, uint32_t offset) {
    return offset * sc->mult < sc->limit;
}
