/* SPDX-License-Identifier: MIT
 *
 * slab.c - a run of units cut into equal objects.
 *
 * Which objects are free is kept in a bitmap in the slab's descriptor, never inside the objects, so
 * a write after free cannot steer a later allocation.
 *
 *      descriptor    nout | ncarved | bits   1 0 0 1 1 0 1 1 0 0 0 0      1 = free
 *                    uncarved sheets            0      0       1
 *      memory        sheets of 4 KiB      |  0 1 2 3 | 4 5 6 7 | 8 9 ...  n-1 | tail |
 *                                            secret in word 1 of 0, 3, 4, 6, 7
 *
 * Carving.  The fast free looks at word 1 of the object, so an object must carry the secret before
 * its granule's class byte is published; else the free of a never allocated object would pass.  But
 * writing to all objects of a new slab would touch all its pages.  So objects are carved by the
 * sheet they start in, as they are needed; a granule is published when all its sheets are carved.
 * Until then frees in it take the slow path, which asks the bitmap, and at every 64th of those in a
 * slab the rest of the granule is carved.
 *
 * Uncarving.  Sheets without an object that is out can give their memory back.  Their free objects
 * lose the secret with it, so they are as if never carved, and the granule leaves the class map.
 * An object that reaches into the next sheet needs both, so both are carved when it is handed out.
 *
 * Threads     Call with the owning bin locked.
 * Invariant   ncarved - nout == ones(bits); the bits of objects that are not carved are 0.
 *             No part of an object that is out lies in a sheet that is not carved.
 *             Granule k is published exactly when every sheet of it is carved.
 * Cost        Taking scans one word per 64 objects.
 * Read next   bin.c, which keeps the slabs in order; reclaim.c, which gives their pages back.
 */
#include "heap/slab.h"

#include "base/log.h"
#include "base/os.h"
#include "heap/classmap.h"
#include "heap/fast.h"

uint64_t slab_secret;

/* Bit 0 set and the top byte non-canonical: no pointer, no count, no small integer equals it. */
void slab_init(uint64_t random) {
    slab_secret = (random & UINT64_C(0x00ffffffffffffff)) | UINT64_C(0xa500000000000001);
}

/* By class; atomic, since several bins change it at once. */
static _Atomic size_t untouched[CLASS_COUNT];

size_t slab_untouched_of(unsigned size_class) {
    size_t bytes = atomic_load_explicit(&untouched[size_class], memory_order_relaxed);
    return bytes <= SIZE_MAX / 2 ? bytes : 0; /* A fork may have lost part of a change. */
}

size_t slab_untouched_bytes(void) {
    size_t bytes = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        bytes += slab_untouched_of(c);
    }
    return bytes;
}

/* `count` sheets from `first` on, as a bitmap. */
static uint32_t sheets_from(unsigned first, unsigned count) {
    assert(first + count <= 32);
    return (uint32_t)(((UINT64_C(1) << count) - 1) << first);
}

static uint32_t all_sheets(const struct size_class *sc) {
    return sheets_from(0, (sc->slab_mask + 1) >> LG_SHEET);
}

/* Those that hold a part of some object. */
static uint32_t sheets_with_objects(const struct size_class *sc) {
    return sheets_from(0, ((uint32_t)sc->total * sc->size + SHEET_BYTES - 1) >> LG_SHEET);
}

static uint32_t sheets_of_object(const struct size_class *sc, unsigned index) {
    unsigned first = index * sc->size >> LG_SHEET;
    unsigned last = ((index + 1) * sc->size - 1) >> LG_SHEET;
    return sheets_from(first, last - first + 1);
}

/* The first object that starts in this sheet or behind it. */
static unsigned first_start(const struct size_class *sc, unsigned sheet) {
    return (unsigned)min_size((((size_t)sheet << LG_SHEET) + sc->size - 1) / sc->size, sc->total);
}

/* Sheets without memory: for a fresh slab those that are not carved, and the tail. */
static uint32_t sheets_without_memory(const struct span *slab) {
    const struct size_class *sc = &size_classes[slab->size_class];
    return slab->is_fresh ? slab->uncarved | (all_sheets(sc) & ~sheets_with_objects(sc)) : 0;
}

static size_t untouched_in(const struct span *slab) {
    return (size_t)__builtin_popcount(sheets_without_memory(slab)) << LG_SHEET;
}

static void add_untouched(const struct span *slab, size_t bytes) {
    if (bytes != 0) {
        atomic_fetch_add_explicit(&untouched[slab->size_class], bytes, memory_order_relaxed);
    }
}

void slab_create(struct span *slab, unsigned size_class, unsigned arena) {
    assert(size_class >= 1 && size_class < CLASS_COUNT && slab->kind == SPAN_NONE);
    assert(!(arena & ARENA_TRACKED) || slab->ids != NULL);
    slab->nout = SLAB_APART;
    slab->ncarved = 0;
    slab->uncarved = sheets_with_objects(&size_classes[size_class]);
    slab->sheets_used = 0;
    slab->slow_frees = 0;
    slab->rest = SLAB_IN_USE;
    __atomic_store_n(&slab->arena, (uint16_t)arena, __ATOMIC_RELAXED);
    __atomic_store_n(&slab->size_class, (uint8_t)size_class, __ATOMIC_RELAXED);
    add_untouched(slab, untouched_in(slab));
    unsigned words = (size_classes[size_class].total + 63u) / 64;
    __builtin_memset(slab->bits, 0, words * sizeof(uint64_t));
    assert(slab->uncarved != 0 && slab->kind == SPAN_NONE);
    if (slab_is_shared(slab)) {
        classmap_set_arena(slab->base, (size_classes[size_class].slab_mask + 1) / UNIT_BYTES,
                           arena);
    }
    /* Release: a walk over all spans that meets it finds its arena. */
    __atomic_store_n(&slab->kind, SPAN_SLAB, __ATOMIC_RELEASE);
}

unsigned slab_shared_arenas;

/* What the class map says of a granule; nothing where not every thread may cache the objects, so
 * that all frees of them are slow. */
static unsigned granule_class(const struct span *slab, unsigned granule) {
    uint32_t sheets = sheets_from(granule * (UNIT_BYTES >> LG_SHEET), UNIT_BYTES >> LG_SHEET);
    return slab_is_shared(slab) && (slab->uncarved & sheets) == 0 ? slab->size_class : 0;
}

/* Writes the class bytes of the granules that these sheets lie in. */
static void publish(const struct span *slab, uint32_t sheets) {
    for (unsigned g = 0; g <= slab_class(slab)->slab_mask >> LG_UNIT; g++) {
        uint32_t own = sheets_from(g * (UNIT_BYTES >> LG_SHEET), UNIT_BYTES >> LG_SHEET);
        if (sheets & own) {
            classmap_publish(slab->base + (uintptr_t)g * UNIT_BYTES, 1, granule_class(slab, g));
        }
    }
}

void slab_destroy(struct span *slab) {
    assert(slab->kind == SPAN_SLAB && slab_is_empty(slab) && !slab_is_busy(slab));
    add_untouched(slab, -untouched_in(slab));
    classmap_publish(slab->base, (slab_class(slab)->slab_mask + 1) >> LG_UNIT, 0);
    __atomic_store_n(&slab->kind, SPAN_NONE, __ATOMIC_RELAXED);
}

/* Carves the objects that start in these sheets, none of which is carved. */
static void carve(struct span *slab, uint32_t sheets) {
    assert(sheets != 0 && (sheets & ~slab->uncarved) == 0 && !slab_is_busy(slab));
    const struct size_class *sc = slab_class(slab);
    size_t before = untouched_in(slab);
    for (uint32_t left = sheets; left != 0; left &= left - 1) {
        unsigned sheet = bits_lowest(left);
        unsigned first = first_start(sc, sheet), end = first_start(sc, sheet + 1);
        for (unsigned i = first; i < end; i++) {
            slab_set_word1((void *)(slab->base + (uintptr_t)i * sc->size), slab_secret);
        }
        if (first < end) {
            bits_set_range(slab->bits, first, end - first);
        }
        slab->ncarved = (uint16_t)(slab->ncarved + end - first);
    }
    slab->uncarved &= ~sheets;
    unsigned used = bits_floor_log2(sheets) + 1;
    slab->sheets_used = (uint8_t)max_size(slab->sheets_used, used);
    add_untouched(slab, untouched_in(slab) - before);
    publish(slab, sheets);
}

/* The lowest sheet that is not carved and that an object starts in; there is one. */
static unsigned lowest_uncarved(const struct span *slab) {
    const struct size_class *sc = slab_class(slab);
    uint32_t left = slab->uncarved;
    while (first_start(sc, bits_lowest(left)) == first_start(sc, bits_lowest(left) + 1)) {
        left &= left - 1;
        assert(left != 0);
    }
    return bits_lowest(left);
}

static void carve_lowest(struct span *slab) {
    carve(slab, UINT32_C(1) << lowest_uncarved(slab));
}

uintptr_t slab_next(const struct span *slab) {
    const struct size_class *sc = slab_class(slab);
    assert(!slab_is_full(slab));
    unsigned index = 0;
    if (slab_nfree(slab) == 0) {
        index = first_start(sc, lowest_uncarved(slab));
    } else {
        while (slab->bits[index / 64] == 0) {
            index += 64;
        }
        index += bits_lowest(slab->bits[index / 64]);
    }
    return slab->base + (uintptr_t)index * sc->size;
}

void slab_publish_granule(struct span *slab, uintptr_t object) {
    assert(object >= slab->base && object - slab->base <= slab_class(slab)->slab_mask);
    unsigned granule = (unsigned)((object - slab->base) >> LG_UNIT);
    uint32_t sheets =
        slab->uncarved & sheets_from(granule * (UNIT_BYTES >> LG_SHEET), UNIT_BYTES >> LG_SHEET);
    if (sheets != 0 && !slab_is_busy(slab)) {
        carve(slab, sheets);
    }
}

/* ---------------------------------------------------------------- giving pages back */

/* Is all of the sheet free?  An object that only reaches into it may not be carved itself. */
static bool sheet_is_free(const struct span *slab, unsigned sheet) {
    const struct size_class *sc = slab_class(slab);
    unsigned first = first_start(sc, sheet), end = first_start(sc, sheet + 1);
    bool reaches_in = first > 0 && (first - 1) * sc->size + sc->size > sheet << LG_SHEET;
    if (reaches_in && slab_is_out(slab, first - 1)) {
        return false;
    }
    return first == end || bits_count_range(slab->bits, first, end - first) == end - first;
}

uint32_t slab_sheets_to_purge(const struct span *slab) {
    const struct size_class *sc = slab_class(slab);
    uint32_t all = all_sheets(sc);
    uint32_t tail = all & ~sheets_with_objects(sc);
    uint32_t found = slab->uncarved | tail;
    for (uint32_t left = all & ~found; left != 0; left &= left - 1) {
        unsigned sheet = bits_lowest(left);
        found |= sheet_is_free(slab, sheet) ? UINT32_C(1) << sheet : 0;
    }
    uint32_t gone = sheets_without_memory(slab);
    uint32_t sheets = 0;
    unsigned step = (unsigned)max_size(os_facts.page_bytes >> LG_SHEET, 1);
    for (unsigned s = 0; s + step <= 32 && (all >> s & 1) && step <= 16; s += step) {
        uint32_t page = sheets_from(s, step);
        sheets |= (found & page) == page && (gone & page) != page ? page : 0;
    }
    assert((sheets & ~all) == 0);
    return sheets;
}

void slab_uncarve(struct span *slab, uint32_t sheets) {
    assert(slab_is_busy(slab) && sheets != 0);
    const struct size_class *sc = slab_class(slab);
    size_t before = untouched_in(slab);
    sheets &= sheets_with_objects(sc) & ~slab->uncarved;
    slab->uncarved |= sheets; /* First: a fork in between must not make the objects look out. */
    for (uint32_t left = sheets; left != 0; left &= left - 1) {
        unsigned sheet = bits_lowest(left);
        unsigned first = first_start(sc, sheet), end = first_start(sc, sheet + 1);
        assert(bits_count_range(slab->bits, first, end - first) == end - first);
        if (first < end) {
            bits_clear_range(slab->bits, first, end - first);
        }
        slab->ncarved = (uint16_t)(slab->ncarved - (end - first));
    }
    add_untouched(slab, untouched_in(slab) - before);
    publish(slab, sheets);
}

void slab_note_purged(struct span *slab, bool is_done) {
    assert(slab->kind == SPAN_SLAB && slab_is_busy(slab));
    size_t before = untouched_in(slab);
    slab->is_fresh = is_done;
    slab->rest = SLAB_IN_USE;
    add_untouched(slab, untouched_in(slab) - before);
}

/* ---------------------------------------------------------------- taking */

/* Moves all 64 objects of a word; the last slot gets the lowest address. */
static void take_whole_word(uintptr_t first, uintptr_t size, void **slots) {
    for (unsigned i = 0; i < 64; i++) {
        slots[63 - i] = (void *)(first + i * size);
    }
}

/* Takes the `left` lowest free objects of a slab all of which is carved. */
static void take_lowest(struct span *slab, void **slots, unsigned left) {
    const struct size_class *sc = slab_class(slab);
    assert(slab->uncarved == 0 && left <= slab_nfree(slab));
    for (unsigned w = 0; left > 0; w++) {
        uint64_t word = slab->bits[w];
        uintptr_t first = slab->base + (uintptr_t)w * 64 * sc->size;
        if (word == ~UINT64_C(0) && left >= 64) {
            take_whole_word(first, sc->size, slots + left - 64);
            left -= 64;
            word = 0;
        }
        while (word != 0 && left > 0) {
            left--;
            slots[left] = (void *)(first + (uintptr_t)bits_lowest(word) * sc->size);
            word &= word - 1;
        }
        slab->bits[w] = word;
    }
}

/* The same for any slab: carves what the objects reach into, which may set bits further on. */
static void take_lowest_carved(struct span *slab, void **slots, unsigned left) {
    const struct size_class *sc = slab_class(slab);
    assert(left <= slab_nfree(slab) && !slab_is_busy(slab));
    for (unsigned w = 0; left > 0; w++) {
        while (slab->bits[w] != 0 && left > 0) {
            unsigned index = w * 64 + bits_lowest(slab->bits[w]);
            uint32_t missing = slab->uncarved & sheets_of_object(sc, index);
            slab->bits[w] &= slab->bits[w] - 1;
            if (missing != 0) {
                carve(slab, missing);
            }
            slots[--left] = (void *)(slab->base + (uintptr_t)index * sc->size);
        }
    }
}

/*
 * Objects are handed out from the last slot downwards, so the lowest address goes last: a program
 * that allocates in a row gets ascending addresses.  Bits are cleared before anybody can see the
 * pointers, because the caller publishes them.
 */
unsigned slab_take(struct span *slab, void **slots, unsigned count) {
    assert(count >= 1 && slab->kind == SPAN_SLAB);
    while (slab_nfree(slab) < count && slab->ncarved < slab_class(slab)->total) {
        carve_lowest(slab);
    }
    unsigned wanted = (unsigned)min_size(count, slab_nfree(slab));
    if (slab->uncarved == 0) {
        take_lowest(slab, slots, wanted);
    } else {
        take_lowest_carved(slab, slots, wanted);
    }
    slab->nout = (int16_t)(slab->nout + (int)wanted);
    slab->rest = SLAB_IN_USE;
    assert(slab_nout(slab) <= slab->ncarved && slab->ncarved <= slab_class(slab)->total);
    return wanted;
}

/* ---------------------------------------------------------------- repairing, verifying */

/* Objects of these sheets. */
static unsigned count_starts(const struct size_class *sc, uint32_t sheets) {
    unsigned count = 0;
    for (; sheets != 0; sheets &= sheets - 1) {
        unsigned sheet = bits_lowest(sheets);
        count += first_start(sc, sheet + 1) - first_start(sc, sheet);
    }
    return count;
}

/* Whoever gave its pages back does not exist here, and may not have come to the call. */
void slab_repair(struct span *slab) {
    assert(slab->kind == SPAN_SLAB && slab->ncarved <= slab_class(slab)->total);
    const struct size_class *sc = slab_class(slab);
    for (unsigned i = 0; i < sc->total; i++) {
        if (!slab_is_carved(slab, i)) {
            bits_clear_range(slab->bits, i, 1);
        } else if (slab->uncarved & sheets_of_object(sc, i)) {
            bits_set_range(slab->bits, i, 1); /* It was being taken, and nobody got it. */
        }
    }
    slab->ncarved = (uint16_t)(sc->total - count_starts(sc, slab->uncarved));
    unsigned nout = slab->ncarved - bits_count_range(slab->bits, 0, sc->total);
    slab->nout = (int16_t)((int)nout | SLAB_APART);
    slab->is_fresh = slab->is_fresh && !slab_is_busy(slab);
    slab->rest = SLAB_IN_USE;
    publish(slab, UINT32_MAX);
}

/* A free object has no number. */
static void verify_ids(const struct span *slab) {
    for (unsigned i = 0; i < slab_class(slab)->total; i++) {
        ensure(slab_is_out(slab, i) || slab->ids[i] == 0);
    }
}

/* What lies in a sheet that is not carved is free, and has no bit. */
static void verify_uncarved(const struct span *slab) {
    const struct size_class *sc = slab_class(slab);
    ensure((slab->uncarved & ~sheets_with_objects(sc)) == 0);
    ensure(slab->uncarved != 0 || !slab_is_busy(slab));
    ensure(slab->ncarved == sc->total - count_starts(sc, slab->uncarved));
    for (unsigned i = 0; i < sc->total && slab->uncarved != 0; i++) {
        ensure(slab_is_carved(slab, i) || !bits_get(slab->bits, i));
        ensure(!slab_is_out(slab, i) || (slab->uncarved & sheets_of_object(sc, i)) == 0);
    }
}

void slab_verify(const struct span *slab) {
    const struct size_class *sc = slab_class(slab);
    ensure(slab->kind == SPAN_SLAB && slab->size_class > 0 && slab->size_class < CLASS_COUNT);
    ensure((slab->base & sc->slab_mask) == 0 && slab->ncarved <= sc->total);
    ensure(bits_count_range(slab->bits, 0, sc->total) == slab_nfree(slab));
    verify_uncarved(slab);
    for (unsigned g = 0; g <= sc->slab_mask >> LG_UNIT && !classmap_is_windowed(); g++) {
        unsigned byte = classmap_get(slab->base + (uintptr_t)g * UNIT_BYTES);
        ensure(byte == granule_class(slab, g) * 4u);
        ensure(!slab_is_shared(slab) ||
               classmap_arena(slab->base + (uintptr_t)g * UNIT_BYTES) == slab->arena);
    }
    if (slab->arena & ARENA_TRACKED) {
        verify_ids(slab);
    }
}
