/* SPDX-License-Identifier: MIT
 *
 * heap.c - ties the parts together: small objects through the thread's cache, large ones straight
 * from the page heap, and the one judgement about an address that all of free, realloc and
 * malloc_usable_size share.
 *
 * Read next   cache.c for small objects, large.c for large ones, docs/design.md for the whole way.
 */
#include "heap/heap.h"

#include "base/os.h"
#include "heap/arena.h"
#include "heap/cache.h"
#include "heap/depot.h"
#include "heap/emergency.h"
#include "heap/large.h"
#include "heap/meta.h"
#include "heap/pages.h"

bool heap_init(void) {
    size_class_init();
    slab_init(os_facts.random);
    depot_init();
    pages_init();
    thread_init();
    classmap_init(os_facts.address_space_limited);
    if (!arena_init()) {
        return false;
    }
    limit_init();
    return true;
}

/* ---------------------------------------------------------------- allocating */

static void *alloc_small(unsigned size_class) {
    struct thread *thread = thread_self();
    void *object = LIKELY(thread != NULL) ? cache_alloc(thread, size_class)
                                          : cache_alloc_uncached(NULL, size_class);
    if (LIKELY(object != NULL)) {
        slab_set_word1(object, 0);
    }
    return object;
}

/* As with small objects, the heap grows only after the caches have been emptied. */
static void *alloc_large(size_t size, size_t alignment, bool *zeroed) {
    void *object = large_alloc(size, alignment, PAGES_IN_CHUNKS, zeroed);
    if (UNLIKELY(object == NULL)) {
        cache_make_way(thread_self(), 0);
        object = large_alloc(size, alignment, PAGES_MAY_GROW, zeroed);
    }
    return object;
}

/* Of a class, or large where the class is 0.  When memory is short, what this thread holds may be
 * just what is missing. */
static void *alloc_any(unsigned size_class, size_t size, size_t alignment, bool *zeroed) {
    *zeroed = false;
    void *object = size_class != 0 ? alloc_small(size_class) : alloc_large(size, alignment, zeroed);
    if (UNLIKELY(object == NULL)) {
        limit_notice_late();
        heap_trim();
        object = size_class != 0 ? alloc_small(size_class) : alloc_large(size, alignment, zeroed);
    }
    return object;
}

void *heap_alloc(size_t size, bool *zeroed) {
    return alloc_any(size <= SMALL_MAX ? size_class_of(size) : 0, size, 1, zeroed);
}

void *heap_alloc_aligned(size_t size, size_t alignment) {
    bool zeroed;
    return alloc_any(size_class_aligned(size, alignment), size, alignment, &zeroed);
}

/* ---------------------------------------------------------------- judging an address */

/* A free object carries the secret and so may, by accident, a live one: only finding it in a cache
 * is proof. */
static bool is_cached(unsigned size_class, const void *address) {
    return thread_any_holds(size_class, address) || depot_holds(size_class, address);
}

static enum heap_verdict judge_start(struct heap_object *object, const void *address) {
    switch (bin_look(object->span, (uintptr_t)address)) {
    case BIN_OBJECT_FREE:
        return HEAP_DOUBLE_FREE;
    case BIN_OBJECT_UNCARVED:
        return HEAP_NEVER_ALLOCATED;
    case BIN_OBJECT_OUT:
        break;
    }
    if (slab_word1(address) != slab_secret) {
        return HEAP_LIVE;
    }
    /* Asked again, for an object that went from a cache to its slab during the search. */
    bool is_free = is_cached(object->size_class, address) ||
                   bin_look(object->span, (uintptr_t)address) == BIN_OBJECT_FREE;
    return is_free ? HEAP_DOUBLE_FREE : HEAP_LIVE;
}

static void locate_in_slab(struct heap_object *object, const void *address) {
    struct span *slab = object->span;
    const struct size_class *sc = slab_class(slab);
    uint32_t offset = (uint32_t)((uintptr_t)address - slab->base);
    object->size_class = slab->size_class;
    object->size = sc->size;
    uint32_t index = size_class_index(sc, offset);
    object->base = slab->base + (uintptr_t)index * sc->size;
    if (index >= sc->total) {
        object->verdict = HEAP_SLAB_END;
    } else {
        object->verdict = size_class_is_start(sc, offset) ? HEAP_LIVE : HEAP_INTERIOR;
    }
}

static enum heap_verdict judge_outside(struct heap_object *object, const void *address) {
    if (classmap_chunk((uintptr_t)address) != NULL) {
        return HEAP_FREE_PAGES;
    }
    object->span = NULL;
    object->base = (uintptr_t)address;
    switch (emergency_look(address, &object->size)) {
    case EMERGENCY_LIVE:
        return HEAP_LIVE;
    case EMERGENCY_FREE:
        return HEAP_DOUBLE_FREE;
    case EMERGENCY_NOTHING:
        return HEAP_FREE_PAGES;
    case EMERGENCY_ELSEWHERE:
        break;
    }
    return HEAP_FOREIGN;
}

struct heap_object heap_locate(const void *address) {
    struct heap_object object = {0};
    object.span = classmap_span((uintptr_t)address);
    if (object.span == NULL || object.span->kind == SPAN_NONE) {
        object.verdict = judge_outside(&object, address);
    } else if (object.span->kind == SPAN_SLAB) {
        locate_in_slab(&object, address);
    } else {
        object.base = object.span->base;
        object.size = object.span->bytes;
        object.verdict = object.base == (uintptr_t)address ? HEAP_LIVE : HEAP_INTERIOR;
    }
    return object;
}

struct heap_object heap_look(const void *address) {
    struct heap_object object = heap_locate(address);
    if (object.verdict == HEAP_LIVE && object.size_class != 0) {
        object.verdict = judge_start(&object, address);
    }
    return object;
}

/* ---------------------------------------------------------------- freeing, resizing */

static void free_small(unsigned size_class, void *address) {
    slab_set_word1(address, slab_secret);
    struct thread *thread = thread_self();
    if (LIKELY(thread != NULL)) {
        cache_free(thread, size_class, address);
    } else {
        bin_drain(size_class, &address, 1);
    }
}

bool heap_free(const struct heap_object *object) {
    if (object->span == NULL) {
        return emergency_free((void *)object->base);
    }
    if (object->size_class == 0) {
        return large_free(object->span);
    }
    if (classmap_get(object->base) == 0 && !classmap_is_windowed()) {
        bin_note_slow_free(object->span, object->base);
    }
    free_small(object->size_class, (void *)object->base);
    return true;
}

/*
 * An object that carries the secret is free already, or live and looks like it; proof would need
 * locks.  It is left alone: a leak at worst, and never owned twice.
 */
bool heap_free_later(const struct heap_object *object) {
    if (object->span == NULL) {
        return emergency_free((void *)object->base);
    }
    void *address = (void *)object->base;
    if (object->size_class == 0 || slab_word1(address) != slab_secret) {
        if (object->size_class != 0) {
            slab_set_word1(address, slab_secret);
        }
        emergency_defer(address);
    }
    return true;
}

size_t heap_size_for(size_t size, size_t alignment) {
    unsigned size_class = size_class_aligned(size, max_size(alignment, 1));
    if (size_class != 0) {
        return size_classes[size_class].size;
    }
    return large_usable_bytes(size);
}

bool heap_resize(const struct heap_object *object, size_t size) {
    return object->size_class == 0 && object->span != NULL && large_resize(object->span, size);
}

/* As in alloc_large, caches are emptied before the heap grows. */
void *heap_move(const struct heap_object *object, size_t size) {
    if (object->size_class != 0 || object->span == NULL) {
        return NULL;
    }
    void *moved = large_move(object->span, size, PAGES_IN_CHUNKS);
    if (moved == NULL) {
        cache_make_way(thread_self(), 0);
        moved = large_move(object->span, size, PAGES_MAY_GROW);
    }
    return moved;
}

static void trim_bins(void) {
    for (unsigned a = 0; a < arena_count(); a++) {
        for (unsigned c = 1; c < CLASS_COUNT; c++) {
            bin_trim(arena_bin(a, c));
        }
    }
}

size_t heap_trim(void) {
    thread_flush();
    thread_flush_left();
    depot_drain_all();
    trim_bins();
    return pages_purge_all();
}

/* The slabs that bins keep for the next burst go last, when nothing else is left to give back. */
uint64_t heap_tick(void) {
    thread_flush_left();
    bool some_wait = depot_tick();
    uint64_t wait_ms = pages_tick();
    if (wait_ms == UINT64_MAX) {
        trim_bins();
        wait_ms = pages_tick();
    }
    return some_wait ? min_size(wait_ms, DEPOT_TICK_MS) : wait_ms;
}

/* ---------------------------------------------------------------- counting and verifying */

void heap_class_counts(unsigned size_class, size_t *nslabs, size_t *nout, size_t *ncached) {
    *nslabs = 0;
    *nout = 0;
    for (unsigned a = 0; a < arena_count(); a++) {
        struct bin *bin = arena_bin(a, size_class);
        *nslabs += __atomic_load_n(&bin->nslabs, __ATOMIC_RELAXED);
        *nout += __atomic_load_n(&bin->nout, __ATOMIC_RELAXED);
    }
    *ncached = min_size(thread_count_cached(size_class) + depot_count(size_class), *nout);
}

struct heap_totals heap_totals(void) {
    struct pages_totals pages = pages_totals();
    struct heap_totals totals = {
        .dirty = pages.dirty + pages.muzzy,
        .mapped = pages.mapped,
        .metadata = meta_bytes(),
        .large_blocks = large_count(),
        .large_bytes = large_bytes(),
        .threads = thread_count(),
        .reentered = emergency_count(),
    };
    size_t slab_bytes = 0;
    size_t out_bytes = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        size_t nslabs, nout, ncached;
        heap_class_counts(c, &nslabs, &nout, &ncached);
        slab_bytes += nslabs * (size_classes[c].slab_mask + 1);
        out_bytes += nout * size_classes[c].size;
        totals.cached += ncached * size_classes[c].size;
    }
    totals.live = out_bytes - totals.cached + totals.large_bytes;
    totals.slab_free = slab_bytes - min_size(out_bytes, slab_bytes);
    size_t large_units = pages.used - min_size(slab_bytes, pages.used);
    totals.large_rest = large_units - min_size(totals.large_bytes, large_units);
    return totals;
}

void heap_verify(void) {
    pages_verify();
    for (unsigned a = 0; a < arena_count(); a++) {
        for (unsigned c = 1; c < CLASS_COUNT; c++) {
            bin_verify(arena_bin(a, c));
        }
    }
}
