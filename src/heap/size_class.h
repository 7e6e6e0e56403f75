/* SPDX-License-Identifier: MIT
 *
 * size_class.h - which size a request is rounded to, and the geometry of each size's slabs.
 *
 *      class        1..16            17..56           57..60    61, 62          none
 *      size      16..256 by 16   8 per doubling   4 per doubl.   24, 32 KiB   whole pages
 *      upto           256             8192           16384         32768      PTRDIFF_MAX
 *      slab          16 KiB      32 .. 128 KiB      128 KiB       128 KiB
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

#include "heap/heap.h"

enum { MOST_OBJECTS = 1024 }; /* in one slab */

void size_class_init(void);

static inline uint32_t size_class_index(const struct size_class *sc, uint32_t offset) {
    return (uint32_t)((uint64_t)offset * sc->mult >> 32);
}

static inline bool size_class_is_start(const struct size_class *sc, uint32_t offset) {
    return offset * sc->mult < sc->limit;
}
