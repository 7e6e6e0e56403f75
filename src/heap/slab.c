/* SPDX-License-Identifier: MIT
 *
 * slab.c - a run of units cut into equal objects.
 *
 * Which objects are free is kept in a bitmap in the slab's descriptor, never inside the objects, so
 * a write after free cannot steer a later allocation.
 *
 *      descriptor    nout | ncarved | bits   1 0 0 1 1 0 0 0 ...     1 = free
 *                                            | | | | | '---'-- not carved: 0
 *      memory                             [  0 1 2 3 4 ...     n-1 | tail ]
 *                                            secret in word 1 of 0, 3, 4
 *
 * Carving.  The fast free looks at word 1 of the object, so an object must carry the secret before
 * its granule's class byte is published; else the free of a never allocated object would pass.  But
 * writing to all objects of a new slab would touch all its pages.  So objects are carved a page at
 * a time, as they are needed; a granule is published when all objects that start in it are carved.
 * Until then frees in it take the slow path, which asks the bitmap, and at every 64th of those in a
 * slab the rest of the granule is carved.
 *
 * Threads     Call with the owning bin locked.
 * Invariant   ncarved - nout == ones(bits); bits at and past ncarved are 0.
 *             Granule k is published exactly when every object starting in it is carved.
 * Cost        Taking scans one word per 64 objects.
 * Read next   bin.c, which keeps the slabs in order.
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

/* Atomic, since several bins change it at once. */
static _Atomic size_t untouched;

size_t slab_untouched_bytes(void) {
    size_t bytes = atomic_load_explicit(&untouched, memory_order_relaxed);
    return bytes <= SIZE_MAX / 2 ? bytes : 0; /* A fork may have lost part of a change. */
}

/* Bytes of a fresh slab in pages that nobody has written to. */
static size_t untouched_in(const struct span *slab) {
    const struct size_class *sc = &size_classes[slab->size_class];
    size_t slab_bytes = (size_t)sc->slab_mask + 1;
    size_t carved = align_up((size_t)slab->ncarved * sc->size, os_facts.page_bytes);
    return slab->is_fresh ? slab_bytes - min_size(carved, slab_bytes) : 0;
}

static void add_untouched(size_t bytes) {
    if (bytes != 0) {
        atomic_fetch_add_explicit(&untouched, bytes, memory_order_relaxed);
    }
}

void slab_create(struct span *slab, unsigned size_class, unsigned arena) {
    assert(size_class >= 1 && size_class < CLASS_COUNT && slab->kind == SPAN_NONE);
    assert(!(arena & ARENA_TRACKED) || slab->ids != NULL);
    slab->nout = SLAB_APART;
    slab->ncarved = 0;
    slab->slow_frees = 0;
    __atomic_store_n(&slab->arena, (uint16_t)arena, __ATOMIC_RELAXED);
    __atomic_store_n(&slab->size_class, (uint8_t)size_class, __ATOMIC_RELAXED);
    unsigned words = (size_classes[size_class].total + 63u) / 64;
    __builtin_memset(slab->bits, 0, words * sizeof(uint64_t));
    add_untouched(untouched_in(slab));
    if (slab_is_shared(slab)) {
        classmap_set_arena(slab->base, (size_classes[size_class].slab_mask + 1) / UNIT_BYTES,
                           arena);
    }
    /* Release: a walk over all spans that meets it finds its arena. */
    __atomic_store_n(&slab->kind, SPAN_SLAB, __ATOMIC_RELEASE);
}

unsigned slab_shared_arenas;

/* Number of granules to publish; none where not every thread may cache the objects, so that all
 * frees of them are slow. */
static unsigned granules_ready(const struct span *slab, unsigned ncarved) {
    assert(ncarved <= slab_class(slab)->total);
    if (UNLIKELY(!slab_is_shared(slab))) {
        return 0;
    }
    const struct size_class *sc = slab_class(slab);
    uint32_t bytes = ncarved == sc->total ? sc->slab_mask + 1 : ncarved * sc->size;
    return bytes >> LG_UNIT;
}

void slab_destroy(struct span *slab) {
    assert(slab->kind == SPAN_SLAB && slab_is_empty(slab));
    add_untouched(-untouched_in(slab));
    classmap_publish(slab->base, granules_ready(slab, slab->ncarved), 0);
    __atomic_store_n(&slab->kind, SPAN_NONE, __ATOMIC_RELAXED);
}

/* Carves up to, but not including, object `end`. */
static void carve_to(struct span *slab, unsigned end) {
    assert(end > slab->ncarved && end <= slab_class(slab)->total);
    const struct size_class *sc = slab_class(slab);
    size_t before = untouched_in(slab);
    unsigned ready = granules_ready(slab, slab->ncarved);
    char *object = (char *)slab->base + (size_t)slab->ncarved * sc->size;
    for (unsigned i = slab->ncarved; i < end; i++, object += sc->size) {
        slab_set_word1(object, slab_secret);
    }
    bits_set_range(slab->bits, slab->ncarved, end - slab->ncarved);
    slab->ncarved = (uint16_t)end;
    add_untouched(untouched_in(slab) - before);
    classmap_publish(slab->base + (uintptr_t)ready * UNIT_BYTES, granules_ready(slab, end) - ready,
                     slab->size_class);
}

/* Carves the objects that start in the next kernel page, at least one. */
static void carve_page(struct span *slab) {
    const struct size_class *sc = slab_class(slab);
    size_t carved = (size_t)slab->ncarved * sc->size;
    size_t page_end = align_up(carved + 1, os_facts.page_bytes);
    size_t end = (page_end + sc->size - 1) / sc->size;
    carve_to(slab, (unsigned)min_size(max_size(end, slab->ncarved + 1u), sc->total));
}

void slab_publish_granule(struct span *slab, uintptr_t object) {
    assert(object >= slab->base && object - slab->base <= slab_class(slab)->slab_mask);
    const struct size_class *sc = slab_class(slab);
    size_t granule_end = align_down(object - slab->base, UNIT_BYTES) + UNIT_BYTES;
    size_t end = min_size((granule_end + sc->size - 1) / sc->size, sc->total);
    if (end > slab->ncarved) {
        carve_to(slab, (unsigned)end);
    }
}

/* Moves all 64 objects of a word; the last slot gets the lowest address. */
static void take_whole_word(uintptr_t first, uintptr_t size, void **slots) {
    for (unsigned i = 0; i < 64; i++) {
        slots[63 - i] = (void *)(first + i * size);
    }
}

/*
 * Objects are handed out from the last slot downwards, so the lowest address goes last: a program
 * that allocates in a row gets ascending addresses.  Bits are cleared before anybody can see the
 * pointers, because the caller publishes them.
 */
unsigned slab_take(struct span *slab, void **slots, unsigned count) {
    assert(count >= 1 && slab->kind == SPAN_SLAB);
    const struct size_class *sc = slab_class(slab);
    while (slab_nfree(slab) < count && slab->ncarved < sc->total) {
        carve_page(slab);
    }
    unsigned wanted = (unsigned)min_size(count, slab_nfree(slab));
    unsigned left = wanted;
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
    slab->nout = (int16_t)(slab->nout + (int)wanted);
    assert(slab_nout(slab) <= slab->ncarved && slab->ncarved <= sc->total);
    return wanted;
}

void slab_repair(struct span *slab) {
    assert(slab->kind == SPAN_SLAB && slab->ncarved <= slab_class(slab)->total);
    unsigned total = slab_class(slab)->total;
    if (slab->ncarved < total) {
        bits_clear_range(slab->bits, slab->ncarved, total - slab->ncarved);
    }
    unsigned nout = slab->ncarved - bits_count_range(slab->bits, 0, slab->ncarved);
    slab->nout = (int16_t)((int)nout | SLAB_APART);
    classmap_publish(slab->base, granules_ready(slab, slab->ncarved), slab->size_class);
}

/* A free object has no number. */
static void verify_ids(const struct span *slab) {
    for (unsigned i = 0; i < slab_class(slab)->total; i++) {
        bool is_out = i < slab->ncarved && !bits_get(slab->bits, i);
        ensure(is_out || slab->ids[i] == 0);
    }
}

void slab_verify(const struct span *slab) {
    const struct size_class *sc = slab_class(slab);
    ensure(slab->kind == SPAN_SLAB && slab->size_class > 0 && slab->size_class < CLASS_COUNT);
    ensure((slab->base & sc->slab_mask) == 0 && slab->ncarved <= sc->total);
    ensure(bits_count_range(slab->bits, 0, sc->total) == slab_nfree(slab));
    ensure(bits_count_range(slab->bits, 0, slab->ncarved) == slab_nfree(slab));
    for (unsigned g = 0; g <= sc->slab_mask >> LG_UNIT && !classmap_is_windowed(); g++) {
        unsigned byte = classmap_get(slab->base + (uintptr_t)g * UNIT_BYTES);
        ensure(byte == (g < granules_ready(slab, slab->ncarved) ? slab->size_class * 4u : 0));
        ensure(!slab_is_shared(slab) ||
               classmap_arena(slab->base + (uintptr_t)g * UNIT_BYTES) == slab->arena);
    }
    if (slab->arena & ARENA_TRACKED) {
        verify_ids(slab);
    }
}
