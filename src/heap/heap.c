/* SPDX-License-Identifier: MIT
 *
 * heap.c - ties the parts together: small objects through the thread's cache, large ones straight
 * from the page heap, and the one judgement about an address that all of free, realloc and
 * malloc_usable_size share.
 *
 * Read next   cache.c for small objects, large.c for large ones, docs/design.md for the whole way.
 */
#include "heap/heap.h"

#include "base/log.h"
#include "base/os.h"
#include "heap/arena.h"
#include "heap/cache.h"
#include "heap/classmap.h"
#include "heap/depot.h"
#include "heap/emergency.h"
#include "heap/hooked.h"
#include "heap/large.h"
#include "heap/limit.h"
#include "heap/meta.h"
#include "heap/moved.h"
#include "heap/pages.h"
#include "heap/place.h"
#include "heap/pool.h"
#include "heap/reclaim.h"
#include "heap/region.h"
#include "heap/shelf.h"
#include "heap/slab.h"
#include "heap/sleepers.h"
#include "heap/track.h"

_Atomic size_t heap_zero_reallocs;

bool heap_init(void) {
    size_class_init();
    slab_init(os_facts.random);
    track_seed(~os_facts.random);
    pool_init();
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

/* Past the caller's cache: from its arena or, while a hook runs, from one that needs no hooks. */
static void *alloc_small_uncached(unsigned size_class) {
    void *object = cache_alloc_uncached(tls.self, size_class);
    if (object != NULL) {
        slab_set_word1(object, 0);
    }
    return object;
}

/* Whichever thread takes the number of a tracked object frees it. */
enum heap_tracked heap_free_tracked(void *address) {
    if (LIKELY(atomic_load_explicit(&track_epoch, memory_order_relaxed) == 0)) {
        return HEAP_NOT_TRACKED; /* nothing was ever sampled */
    }
    struct span *slab = classmap_span((uintptr_t)address);
    if (slab == NULL || slab->kind != SPAN_SLAB || (slab->arena & ARENA_APART) != ARENA_TRACKED ||
        tls.modes != 0) {
        return HEAP_NOT_TRACKED;
    }
    const struct size_class *sc = slab_class(slab);
    if (UNLIKELY(!size_class_is_start(sc, (uint32_t)((uintptr_t)address - slab->base)))) {
        return HEAP_NOT_TRACKED;
    }
    uint32_t id = bin_claim_tracked(slab, slab->size_class, address);
    if (UNLIKELY(id == 0)) {
        return HEAP_TRACKED_LATE;
    }
    track_free_small(slab, slab->size_class, address, id);
    return HEAP_TRACKED_FREED;
}

/* For a thread with something out of the ordinary (enum thread_mode). */
static COLD void *alloc_in_mode(unsigned size_class, size_t size, size_t alignment, bool *zeroed) {
    thread_settle_modes();
    bool uncached = tls.modes & THREAD_PAST_CACHE;
    if (size_class == 0) {
        return place_alloc_large(thread_arena(), size, alignment, zeroed);
    }
    return uncached ? alloc_small_uncached(size_class) : alloc_small(size_class);
}

static void *alloc_once(unsigned size_class, size_t size, size_t alignment, bool *zeroed) {
    if (UNLIKELY(tls.modes != 0)) {
        return alloc_in_mode(size_class, size, alignment, zeroed);
    }
    return size_class != 0 ? alloc_small(size_class)
                           : place_alloc_large(thread_arena(), size, alignment, zeroed);
}

/* When an arena has just got hooks, the first try of each of its threads only discovers that. */
static COLD void *alloc_again(unsigned size_class, size_t size, size_t alignment, bool *zeroed) {
    void *object = NULL;
    if (tls.modes & THREAD_UNSETTLED) {
        object = alloc_in_mode(size_class, size, alignment, zeroed);
    }
    if (object == NULL) {
        limit_notice_late();
        heap_trim();
        object = alloc_once(size_class, size, alignment, zeroed);
    }
    return object;
}

/* An object of a class, or a large one where the class is 0.  When memory is short, what this
 * thread holds may be just what is missing. */
static void *alloc_any(unsigned size_class, size_t size, size_t alignment, bool *zeroed) {
    *zeroed = false;
    void *object = alloc_once(size_class, size, alignment, zeroed);
    if (UNLIKELY(object == NULL)) {
        object = alloc_again(size_class, size, alignment, zeroed);
    }
    if (UNLIKELY(tls.modes & THREAD_EXACT) && object != NULL) {
        thread_count_alloc(size_class != 0 ? size_classes[size_class].size
                                           : large_usable_bytes(size));
    }
    return object;
}

void *heap_alloc(size_t size, bool *zeroed) {
    return alloc_any(size <= SMALL_MAX ? size_class_of(size) : 0, size, 1, zeroed);
}

void *heap_alloc_aligned(size_t size, size_t alignment) {
    assert(is_power_of_two(alignment));
    bool zeroed;
    return alloc_any(size_class_aligned(size, alignment), size, alignment, &zeroed);
}

void heap_zero_new(void *object, size_t bytes) {
    const struct span *span = classmap_span((uintptr_t)object);
    if (span != NULL && span->kind == SPAN_LARGE) {
        large_zero(span, bytes);
    } else {
        __builtin_memset(object, 0, bytes);
    }
}

/* ---------------------------------------------------------------- judging an address */

/* A free object carries the secret, and by accident a live one may too: only finding it in a cache
 * is proof. */
static bool is_cached(unsigned size_class, const void *address) {
    return thread_any_holds(size_class, address) || depot_holds(size_class, address);
}

/* A small object starts at the address.  False says nothing. */
static inline bool is_surely_live(const struct span *slab, const void *address) {
    uint32_t offset = (uint32_t)((uintptr_t)address - slab->base);
    return slab_word1(address) != slab_secret &&
           slab_is_surely_out(slab, size_class_index(slab_class(slab), offset));
}

static enum heap_verdict judge_start(struct span *slab, const void *address) {
    assert(slab->kind == SPAN_SLAB && slab_class(slab)->size >= SMALLEST);
    if (LIKELY(is_surely_live(slab, address))) {
        return HEAP_LIVE;
    }
    switch (bin_look(slab, (uintptr_t)address)) {
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
    bool is_free = is_cached(slab->size_class, address) ||
                   bin_look(slab, (uintptr_t)address) == BIN_OBJECT_FREE;
    return is_free ? HEAP_DOUBLE_FREE : HEAP_LIVE;
}

static inline struct heap_object locate_in_slab(struct span *slab, const void *address) {
    const struct size_class *sc = slab_class(slab);
    uint32_t offset = (uint32_t)((uintptr_t)address - slab->base);
    uint32_t index = size_class_index(sc, offset);
    struct heap_object object = {
        .verdict = size_class_is_start(sc, offset) ? HEAP_LIVE : HEAP_INTERIOR,
        .size_class = slab->size_class,
        .base = slab->base + (uintptr_t)index * sc->size,
        .size = sc->size,
        .span = slab,
    };
    assert(offset <= sc->slab_mask && object.base <= (uintptr_t)address);
    if (UNLIKELY(index >= sc->total)) {
        object.verdict = HEAP_SLAB_END;
    }
    return object;
}

static inline struct heap_object locate_large(struct span *span, const void *address) {
    assert(span->kind != SPAN_SLAB);
    return (struct heap_object){
        .verdict = span->base == (uintptr_t)address ? HEAP_LIVE : HEAP_INTERIOR,
        .base = span->base,
        .size = span->bytes,
        .span = span,
    };
}

static COLD struct heap_object locate_outside(const void *address) {
    if (classmap_chunk((uintptr_t)address) != NULL) {
        return (struct heap_object){.verdict = HEAP_FREE_PAGES};
    }
    struct heap_object object = {.verdict = HEAP_FOREIGN, .base = (uintptr_t)address};
    switch (emergency_look(address, &object.size)) {
    case EMERGENCY_LIVE:
        object.verdict = HEAP_LIVE;
        break;
    case EMERGENCY_FREE:
        object.verdict = HEAP_DOUBLE_FREE;
        break;
    case EMERGENCY_NOTHING:
        object.verdict = HEAP_FREE_PAGES;
        break;
    case EMERGENCY_ELSEWHERE:
        break;
    }
    return object;
}

/* Inlined, and its result made at once: copies of what was just written in parts are slow. */
static inline __attribute__((always_inline)) struct heap_object locate(const void *address) {
    struct span *span = classmap_span((uintptr_t)address);
    if (UNLIKELY(span == NULL || !span_is_owned(span))) {
        return locate_outside(address);
    }
    return span->kind == SPAN_SLAB ? locate_in_slab(span, address) : locate_large(span, address);
}

struct heap_object heap_locate(const void *address) {
    return locate(address);
}

struct heap_object heap_look(const void *address) {
    struct heap_object object = locate(address);
    if (object.verdict == HEAP_LIVE && object.size_class != 0) {
        object.verdict = judge_start(object.span, address);
    }
    return object;
}

struct heap_found heap_find(const void *address) {
    const struct span *span = classmap_span((uintptr_t)address);
    struct heap_found none = {0, 0};
    if (UNLIKELY(span == NULL)) {
        return none;
    }
    if (span->kind != SPAN_SLAB) {
        bool is_live = span->kind == SPAN_LARGE && span->base == (uintptr_t)address;
        return is_live ? (struct heap_found){span->bytes, 0} : none;
    }
    const struct size_class *sc = slab_class(span);
    bool is_live = size_class_is_start(sc, (uint32_t)((uintptr_t)address - span->base)) &&
                   is_surely_live(span, address);
    return LIKELY(is_live) ? (struct heap_found){sc->size, span->size_class} : none;
}

/* ---------------------------------------------------------------- freeing, resizing */

/* Puts an object straight into its slab. */
static void free_small_uncached(unsigned size_class, void *address) {
    slab_set_word1(address, slab_secret);
    cache_count_past_free(size_class);
    bin_drain(size_class, &address, 1);
}

static void free_small(unsigned size_class, void *address) {
    struct thread *thread = thread_self();
    if (LIKELY(thread != NULL)) {
        slab_set_word1(address, slab_secret);
        cache_free(thread, size_class, address);
    } else {
        free_small_uncached(size_class, address);
    }
}

static bool free_large(struct span *span) {
    if (!large_claim(span)) {
        return false;
    }
    size_t bytes = span->bytes;
    track_tell_freed(span->id, (void *)span->base, bytes);
    if (!shelf_put(span)) {
        large_release(span);
    }
    thread_note_free(bytes);
    return true;
}

bool heap_free_large(void *address) {
    struct span *span = classmap_span((uintptr_t)address);
    bool is_usual = span != NULL && span->base == (uintptr_t)address && tls.modes == 0 &&
                    !(span->arena & ARENA_HOOKED);
    return is_usual && free_large(span);
}

/* The object counts as one that goes past F of its thread. */
static bool free_tracked(const struct heap_object *object) {
    assert(object->span->arena & ARENA_TRACKED);
    void *address = (void *)object->base;
    uint32_t id = bin_claim_tracked(object->span, object->size_class, address);
    if (LIKELY(id != 0)) {
        track_free_small(object->span, object->size_class, address, id);
    }
    return id != 0;
}

/* Tracked objects, and memory from hooks: nothing of that is cached, and what is empty now may be
 * due to go. */
static COLD bool free_apart(const struct heap_object *object) {
    assert(object->span->arena & ARENA_APART);
    unsigned arena = object->span->arena;
    bool done = true;
    if (arena & ARENA_TRACKED) {
        done = free_tracked(object);
    } else if (object->size_class == 0) {
        done = free_large(object->span);
    } else {
        free_small_uncached(object->size_class, (void *)object->base);
    }
    if (arena & ARENA_HOOKED) {
        (void)hooked_settle(arena & ARENA_INDEX);
    }
    return done;
}

/* An object of an arena that the program made is cached only by threads that use this arena. */
static COLD void free_manual(const struct heap_object *object) {
    assert(object->size_class != 0 && !slab_is_shared(object->span));
    const struct thread *thread = tls.self;
    if (thread != NULL && thread->arena == object->span->arena) {
        free_small(object->size_class, (void *)object->base);
    } else {
        free_small_uncached(object->size_class, (void *)object->base);
    }
}

/* Frees an object of the heap, not of the emergency areas. */
static bool free_usually(const struct heap_object *object) {
    if (UNLIKELY(object->span->arena & ARENA_APART)) {
        return free_apart(object);
    }
    if (object->size_class == 0) {
        return free_large(object->span);
    }
    if (UNLIKELY(!slab_is_shared(object->span))) {
        free_manual(object);
        return true;
    }
    if (classmap_get(object->base) == 0 && !classmap_is_windowed()) {
        bin_note_slow_free(object->span, object->base);
    }
    free_small(object->size_class, (void *)object->base);
    return true;
}

/* For a thread with something out of the ordinary. */
static COLD bool free_in_mode(const struct heap_object *object) {
    thread_settle_modes();
    bool uncached = tls.modes & THREAD_PAST_CACHE;
    bool done = true;
    if (uncached && object->size_class != 0 && !(object->span->arena & ARENA_APART)) {
        free_small_uncached(object->size_class, (void *)object->base);
    } else {
        done = free_usually(object);
    }
    if (done && tls.modes & THREAD_EXACT) {
        thread_count_free(object->size);
    }
    return done;
}

bool heap_free(const struct heap_object *object) {
    assert(object->verdict == HEAP_LIVE);
    if (object->span == NULL) {
        return emergency_free((void *)object->base);
    }
    return UNLIKELY(tls.modes != 0) ? free_in_mode(object) : free_usually(object);
}

/*
 * An object that carries the secret is free already, or live and looks like it; proof would need
 * locks.  The object is left alone: a leak at worst, and never owned twice.
 */
bool heap_free_later(const struct heap_object *object) {
    assert(object->verdict == HEAP_LIVE);
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
    return large_is_possible(size, alignment) ? large_usable_bytes(size) : 0;
}

size_t heap_size_most(void) {
    return large_most_bytes();
}

/* A large object of another size counts as a new one, and the old one as freed. */
static void note_resize(const struct heap_object *object, size_t size) {
    thread_note_alloc(large_usable_bytes(size));
    thread_note_free(object->size);
    if (UNLIKELY(tls.modes & THREAD_EXACT)) {
        thread_count_free(object->size);
        thread_count_alloc(large_usable_bytes(size));
    }
}

bool heap_resize(const struct heap_object *object, size_t size) {
    if (object->size_class != 0 || object->span == NULL || !large_resize(object->span, size)) {
        return false;
    }
    if (UNLIKELY(object->span->arena & ARENA_HOOKED)) {
        (void)hooked_settle(object->span->arena);
    }
    note_resize(object, size);
    return true;
}

/* As in place_alloc_large, caches are emptied before the heap grows. */
void *heap_move(const struct heap_object *object, size_t size) {
    if (object->size_class != 0 || object->span == NULL || object->span->arena & ARENA_HOOKED) {
        return NULL;
    }
    void *moved = large_move(object->span, size, PAGES_IN_CHUNKS);
    if (moved == NULL) {
        cache_make_way(thread_self(), 0);
        moved = large_move(object->span, size, PAGES_MAY_GROW);
    }
    if (moved != NULL) {
        note_resize(object, size);
    }
    return moved;
}

/* Every bin there is: those of arenas that were destroyed may still have slabs. */
static void trim_bins(void) {
    for (unsigned a = 0; a < arena_limit(); a++) {
        for (unsigned set = 0; set < ARENA_SETS; set++) {
            struct bin *bins = arena_bin_of_set(a, set, 0);
            for (unsigned c = 1; c < CLASS_COUNT && bins != NULL; c++) {
                bin_trim(&bins[c]);
            }
        }
    }
}

size_t heap_trim(void) {
    while (thread_recover_some()) {
    }
    thread_flush();
    thread_flush_left();
    sleepers_empty(THREAD_ALL_ARENAS);
    shelf_empty_all();
    depot_drain_all();
    pool_purge();
    trim_bins();
    return reclaim_all(RECLAIM_ANY_ARENA) + arena_purge_hooked() + pages_purge_all();
}

/* The slabs that bins keep for the next burst go last, once nothing else is left to give back.  A
 * tick that comes only because threads may sleep by now does not repeat that. */
uint64_t heap_tick(void) {
    static _Atomic bool bins_are_trimmed;
    uint64_t look_ms = sleepers_tick();
    thread_flush_left();
    bool some_wait = depot_tick();
    some_wait |= shelf_tick();
    uint64_t wait_ms = pages_tick();
    if (wait_ms != UINT64_MAX) {
        bins_are_trimmed = false;
    } else if (!bins_are_trimmed) {
        bins_are_trimmed = true;
        pool_purge();
        trim_bins();
        wait_ms = pages_tick();
    }
    wait_ms = min_size(wait_ms, reclaim_tick());
    wait_ms = min_size(min_size(wait_ms, look_ms), arena_settle_hooked());
    return some_wait ? min_size(wait_ms, DEPOT_TICK_MS) : wait_ms;
}

/* ---------------------------------------------------------------- counting */

struct class_sums {
    size_t nslabs, nout;
};

/* Of the classes from `first` to `last`, which lie side by side; all zeros at first. */
static void sum_bins(unsigned first, unsigned last, struct class_sums *sums) {
    for (unsigned a = 0; a < arena_limit(); a++) {
        for (unsigned set = 0; set < ARENA_SETS; set++) {
            const struct bin *bins = arena_bin_of_set(a, set, 0);
            for (unsigned c = first; c <= last && bins != NULL; c++) {
                sums[c - first].nslabs += __atomic_load_n(&bins[c].nslabs, __ATOMIC_RELAXED);
                sums[c - first].nout += bin_nout(&bins[c]);
            }
        }
    }
}

void heap_class_counts(unsigned size_class, size_t *nslabs, size_t *nout, size_t *ncached) {
    struct class_sums sums = {0};
    sum_bins(size_class, size_class, &sums);
    *nslabs = sums.nslabs;
    *nout = sums.nout;
    *ncached = min_size(thread_count_cached(size_class) + depot_count(size_class), *nout);
}

/* Sums over the page heap and those of extent hooks. */
struct pages_totals heap_pages(void) {
    struct pages_totals pages = pages_totals();
    for (unsigned a = 0; a < arena_limit(); a++) {
        struct hooked_totals hooked = hooked_totals(a);
        pages.mapped += hooked.mapped;
        pages.used += hooked.used;
        pages.dirty += hooked.dirty;
        pages.muzzy += hooked.muzzy;
    }
    return pages;
}

struct heap_totals heap_totals(void) {
    struct thread_sums threads = thread_read_arena(THREAD_ALL_ARENAS);
    return heap_totals_with(&threads);
}

static void note_free_space(struct heap_totals *totals, unsigned size_class, size_t bytes) {
    size_t size = size_classes[size_class].size;
    for (unsigned i = 0; i < HEAP_WORST; i++) {
        if (bytes > totals->worst[i].bytes) {
            size_t lesser_size = totals->worst[i].size, lesser_bytes = totals->worst[i].bytes;
            totals->worst[i].size = size;
            totals->worst[i].bytes = bytes;
            size = lesser_size;
            bytes = lesser_bytes;
        }
    }
}

struct heap_totals heap_totals_with(const struct thread_sums *threads) {
    struct pages_totals pages = heap_pages();
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
    struct class_sums sums[CLASS_COUNT] = {{0}};
    sum_bins(0, CLASS_COUNT - 1, sums);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        size_t nslabs = sums[c].nslabs, nout = sums[c].nout;
        size_t ncached = min_size(threads->cached[c] + depot_count(c), nout);
        totals.live_objects += nout - ncached;
        size_t in_slabs = nslabs * (size_classes[c].slab_mask + 1);
        size_t out = nout * size_classes[c].size;
        slab_bytes += in_slabs;
        out_bytes += out;
        note_free_space(&totals, c, in_slabs - min_size(out + slab_untouched_of(c), in_slabs));
        totals.cached += ncached * size_classes[c].size;
    }
    totals.live_objects += totals.large_blocks;
    totals.live = out_bytes - totals.cached + totals.large_bytes;
    totals.slab_free = slab_bytes - min_size(out_bytes, slab_bytes);
    totals.untouched = min_size(slab_untouched_bytes(), totals.slab_free);
    size_t shelved = shelf_bytes();
    size_t large_units = pages.used - min_size(slab_bytes + shelved, pages.used);
    totals.large_rest = large_units - min_size(totals.large_bytes, large_units);
    totals.cached += shelved;
    return totals;
}

static void add_large_traffic(unsigned arena, struct heap_traffic *traffic) {
    struct large_sums sums;
    large_read_sums(arena, &sums);
    for (unsigned i = 0; i < LEXTENT_CLASSES; i++) {
        traffic->objects += sums.nmalloc[i];
    }
    traffic->bytes += sums.total;
}

struct heap_traffic heap_traffic(const struct thread_sums *threads) {
    struct heap_traffic traffic = {0};
    for (unsigned a = 0; a < arena_limit(); a++) {
        if (arena_get(a) != NULL) {
            add_large_traffic(a, &traffic);
        }
    }
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        uint64_t requests = threads->requests[c];
        for (unsigned a = 0; a < arena_limit(); a++) {
            requests += arena_get(a) != NULL ? count_read(&arena_get(a)->sums.requests[c]) : 0;
        }
        traffic.objects += requests;
        traffic.bytes += requests * size_classes[c].size;
    }
    return traffic;
}

void heap_walk_ranges(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context) {
    classmap_walk(visit, context);
    meta_walk(visit, context);
}

void heap_walk_notes(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context) {
    heap_walk_ranges(visit, context);
    classmap_walk_memory(visit, context);
    moved_walk_memory(visit, context);
    region_walk_memory(visit, context);
}
