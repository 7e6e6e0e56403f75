/* SPDX-License-Identifier: MIT
 *
 * size_class.c - computes the table of size classes.
 *
 * Slabs are powers of two, as small as keeps the unused tail near 2 %, or in pages that are never
 * touched: small slabs are found empty and given back sooner.
 */
#include "heap/size_class.h"

#include "base/log.h"
#include "heap/magazine.h"

enum {
    ROOM_BYTES = 128 << 10,
    ROOM_OBJECTS = 2 * MAGAZINE_MOST,
    FEW_BYTES = 8 << 10,
    FEW_AT_LEAST = 8,
    FEW_AT_MOST = 64,
};

struct size_class size_classes[CLASS_COUNT];

static uint32_t size_of_class(unsigned c) {
    assert(c >= 1 && c < CLASS_COUNT);
    if (c <= 16) {
        return c * 16;
    }
    if (c <= 56) {
        return (9 + (c - 17) % 8) << ((c - 17) / 8 + 5);
    }
    if (c <= 60) {
        return (5 + (c - 57)) << 11;
    }
    return c == 61 ? 24576 : 32768;
}

static uint32_t slab_bytes(uint32_t size) {
    assert(size % SMALLEST == 0 && size <= SMALL_MAX);
    if (size <= 256) {
        return 16 << 10;
    }
    if (size <= 2048) {
        return 32 << 10;
    }
    return size <= 4096 ? 64 << 10 : 128 << 10;
}

static void fill_row(struct size_class *sc, uint32_t size) {
    sc->size = size;
    sc->mult = (uint32_t)(((UINT64_C(1) << 32) + size - 1) / size);
    sc->slab_mask = slab_bytes(size) - 1;
    sc->total = (uint16_t)(slab_bytes(size) / size);
    uint32_t excess = sc->mult * size; /* modulo 2^32 */
    sc->limit = excess == 0 ? 1 : sc->total * excess;
    sc->room_max = (uint16_t)min_size(ROOM_BYTES / size, ROOM_OBJECTS);
    sc->few = (uint16_t)min_size(max_size(FEW_BYTES / size, FEW_AT_LEAST), FEW_AT_MOST);
    assert(sc->total >= 2 && (sc->slab_mask & (sc->slab_mask + 1)) == 0);
    assert(sc->room_max >= 1 && sc->room_max <= UINT8_MAX);
}

void size_class_init(void) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        fill_row(&size_classes[c], size_of_class(c));
        ensure(size_class_of(size_classes[c].size) == c);
        ensure(size_classes[c].total <= MOST_OBJECTS);
    }
}
