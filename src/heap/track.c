/* SPDX-License-Identifier: MIT
 *
 * track.c - which allocations are sampled, and the numbers that sampled objects carry.
 *
 * Each object of s bytes is to be sampled with chance p = 1 - exp(-s / rate), independently of all
 * others.  The number of objects of one size up to and including the next sample is then
 *
 *      gap = floor(-ln(u) * rate / s) + 1, u uniform in (0, 1], since P(gap > k) = exp(-k s / rate)
 *
 * For small objects of a thread's own place it is drawn once per sample:
 *
 *      filled[c]          objects of the class that went into A so far, less those that came back
 *                         unused; so filled - |A| is the number of requests (thread.h)
 *      due[c]             what that number is when the next allocation is to be sampled
 *      due - filled       how many objects may still go into A
 *
 * A refill, or a relief of F, puts no more than that into A.  So A is empty when the number of
 * requests is `due`, and the allocation to be sampled comes to the slow path; no fast path knows of
 * it.  `due` is compared with a count of requests, and nothing but a request changes that: a flush
 * takes objects out of A and as many from `filled`, so that the distance grows by what was not
 * used.  That is all the credit there has to be.  The sampled object itself, and one that is due
 * and not recorded, count as if they had come through A.
 *
 * All other objects are decided one by one: large ones, those of explicit places, those of threads
 * that have no heap.  Such a small object that counts in `filled` moves `due` along (cache.c).
 *
 * A change of the rate is a new epoch: a heap draws all its distances again when its owner comes
 * next.  Geometric distances have no memory, so starting anew in the middle of one is the same.
 *
 * A sampled small object lies in a slab whose class bytes are 0, of a bin that has no others
 * (bin.h), and its number in an array beside the slab.  A free takes the number out, under the
 * bin's lock, so that of two frees one is found to be late: a free object, in its slab or in a
 * stash (stash.h), has no number.
 *
 * Threads     The bin's lock guards the numbers of its objects; all else is a thread's own, or one
 *             word.  Random numbers come from one sequence for all: one is needed once per sample,
 *             which costs a walk of the stack, or where a lock is taken anyway.
 */
#include "heap/track.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/real.h"
#include "heap/arena.h"
#include "heap/cache.h"
#include "heap/classmap.h"
#include "heap/heap.h"
#include "heap/place.h"
#include "heap/slab.h"
#include "heap/stash.h"

struct track_events track_events;
_Atomic uint64_t track_epoch; /* 0: never armed */

static struct {
    _Atomic uint64_t random;
    _Atomic size_t ignoring; /* threads that are THREAD_IGNORED */
} g;

_Atomic uint64_t track_present_rate;

/* ---------------------------------------------------------------- chance */

void track_seed(uint64_t seed) {
    atomic_store_explicit(&g.random, seed, memory_order_relaxed);
}

/* Steps of an odd number, each mixed until all its bits depend on each other. */
static uint64_t next_random(void) {
    uint64_t x = atomic_fetch_add_explicit(&g.random, HASH_FACTOR, memory_order_relaxed);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

double track_random(void) {
    return (double)(next_random() >> 11) * 0x1p-53;
}

/* Objects of `size` bytes up to and including the next sample; all are samples at a rate of 1. */
static __attribute__((noinline)) uint64_t draw_far(size_t size, uint64_t rate) {
    if (rate == 0) {
        return TRACK_NEVER;
    }
    assert(size > 0);
    double gap = -real_log(1 - track_random()) * (double)rate / (double)size;
    return gap < (double)TRACK_NEVER ? (uint64_t)gap + 1 : TRACK_NEVER;
}

static inline uint64_t draw_gap(size_t size) {
    uint64_t rate = track_rate();
    return rate == 1 ? 1 : draw_far(size, rate);
}

/* The same as draw_gap(size) == 1, mostly without a logarithm: u <= -ln(1 - u) <= u / (1 - u). */
static bool is_hit(size_t size) {
    uint64_t rate = track_rate();
    if (rate <= 1) {
        return rate == 1;
    }
    double u = track_random();
    double low = u * (double)rate, bytes = (double)size;
    return low < bytes && (low < bytes * (1 - u) || -real_log(1 - u) * (double)rate < bytes);
}

/* ---------------------------------------------------------------- the rate */

/* The flag follows the rate, even where two threads set it at once. */
static void settle_flag(void) {
    uint64_t rate;
    do {
        rate = atomic_load(&track_present_rate);
        bin_set_sampling(rate != 0);
    } while (atomic_load(&track_present_rate) != rate);
}

/* The epoch changes before the flag: a thread that sees the flag draws. */
void track_set_rate(uint64_t bytes) {
    atomic_store(&track_present_rate, bytes);
    atomic_fetch_add(&track_epoch, 1);
    settle_flag();
}

/* As in settle_flag: both halves of the word may change meanwhile. */
bool track_follow_agents(void) {
    bool has_agents;
    do {
        has_agents = bin_has_agents();
        bin_set_watched(has_agents);
    } while (bin_has_agents() != has_agents);
    return has_agents;
}

/* Objects already in A went in under another rate, and pass unsampled. */
static void draw_due(struct thread *thread, unsigned c) {
    assert(c >= 1 && c < CLASS_COUNT);
    thread->due[c] = thread->filled[c] + draw_gap(size_classes[c].size) - 1;
    assert(thread->due[c] >= thread->filled[c]);
}

static void draw_all(struct thread *thread, uint64_t epoch) {
    thread->epoch = epoch;
    stash_close(thread);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        draw_due(thread, c);
    }
}

/* What is due may have been passed: while nothing was sampled, by an object of extent hooks, or by
 * a call that found it was not due before the rate changed.  An explicit cache never draws. */
COLD uint64_t track_draw_again(struct thread *thread, unsigned c) {
    uint64_t epoch = atomic_load_explicit(&track_epoch, memory_order_acquire);
    if (thread->epoch != epoch && thread == tls.self) {
        draw_all(thread, epoch);
    }
    if (thread->filled[c] > thread->due[c]) {
        draw_due(thread, c);
    }
    return thread->due[c] - thread->filled[c];
}

/* ---------------------------------------------------------------- is it due? */

static unsigned arena_of_place(struct place place) {
    return place.arena == PLACE_OWN ? thread_arena() : (unsigned)place.arena;
}

/* If so, this allocation is the sample, and the next gap begins after it. */
static bool is_distance_over(struct thread *thread, unsigned c) {
    assert(thread == tls.self);
    if (!magazine_take_is_empty(thread->hot.rec[c].take) || track_distance(thread, c) != 0) {
        return false;
    }
    thread->due[c] = thread->filled[c] + draw_gap(size_classes[c].size);
    return true;
}

size_t track_usable(const struct track_request *request) {
    unsigned c = request->size_class;
    return LIKELY(c != 0) ? size_classes[c].size : heap_size_for(request->size, request->alignment);
}

static bool is_next(const struct track_request *request) {
    unsigned c = request->size_class;
    if (LIKELY(c != 0 && tls.self != NULL && place_is_own(request->place))) {
        return is_distance_over(tls.self, c);
    }
    size_t usable = track_usable(request);
    return usable != 0 && is_hit(usable);
}

bool track_is_due_again(size_t usable) {
    assert(usable != 0);
    return bin_is_sampling() && is_hit(usable);
}

/* What a hook allocates is not sampled: it may stand in for the arena's own memory. */
static inline bool is_in_hook(void) {
    return UNLIKELY(tls.modes & THREAD_IN_HOOK);
}

/* The draw comes first in any case: the distance must not be used up by what is not sampled. */
bool track_is_due(const struct track_request *request) {
    if (UNLIKELY(bin_get_unusual() != BIN_SAMPLING)) {
        track_look_for_agents();
    }
    return bin_is_sampling() && is_next(request) && !is_in_hook();
}

/* ---------------------------------------------------------------- objects with a number */

static void *alloc_tracked_small(struct place place, unsigned arena, unsigned c, uint32_t id) {
    arena = arena_prepare_tracked(arena);
    if (arena == 0) {
        return NULL;
    }
    /* A thread whose every allocation is sampled must earn its heap, too.  What it may find in
     * there was filled up to a distance that does not count this object. */
    bool in_turn = place_is_own(place) && tls.self != NULL;
    struct thread *thread = place_is_own(place) ? thread_self() : tls.self;
    void *object = cache_alloc_tracked(thread, arena, c, in_turn);
    if (object != NULL) {
        assert(slab_id(classmap_span((uintptr_t)object), object) == 0);
        slab_set_id(classmap_span((uintptr_t)object), object, id);
        slab_set_word1(object, 0);
    }
    return object;
}

static void *alloc_tracked_large(unsigned arena, size_t size, size_t alignment, uint32_t id,
                                 bool *zeroed) {
    void *object = place_alloc_large(arena, size, alignment, zeroed);
    if (object != NULL) {
        classmap_span((uintptr_t)object)->id = id;
    }
    return object;
}

static __attribute__((noinline)) void *alloc_anywhere(const struct track_request *request,
                                                      uint32_t id, bool *zeroed) {
    unsigned arena = arena_of_place(request->place);
    if (!arena_exists(arena) || is_in_hook() || !arena_prepare(arena)) {
        return NULL;
    }
    unsigned c = request->size_class;
    void *object = c != 0
                       ? alloc_tracked_small(request->place, arena, c, id)
                       : alloc_tracked_large(arena, request->size, request->alignment, id, zeroed);
    if (object != NULL && tls.modes & THREAD_EXACT) {
        thread_count_alloc(track_usable(request));
    }
    return object;
}

/* The caller's stash comes first, where nothing else has to be checked. */
void *track_alloc(const struct track_request *request, uint32_t id, bool *zeroed) {
    assert(id != 0);
    *zeroed = false;
    unsigned c = request->size_class;
    struct thread *thread = tls.self;
    if (UNLIKELY(c == 0 || thread == NULL || tls.modes != 0 || !place_is_own(request->place))) {
        return alloc_anywhere(request, id, zeroed);
    }
    void *object = stash_pop(thread, c);
    if (UNLIKELY(object == NULL)) {
        return alloc_anywhere(request, id, zeroed);
    }
    count_add(&thread->filled[c], 1);
    count_add(&thread->fetched[c], 1);
    uintptr_t base = (uintptr_t)object & ~(uintptr_t)size_classes[c].slab_mask;
    assert(slab_id(classmap_span_sharing(base), object) == 0 && slab_word1(object) == slab_secret);
    slab_set_id(classmap_span_sharing(base), object, id);
    slab_set_word1(object, 0);
    return object;
}

uint32_t track_id(const struct heap_object *object) {
    const struct span *span = object->span;
    if (object->verdict != HEAP_LIVE || span == NULL) {
        return 0;
    }
    if (object->size_class == 0) {
        return span->id & ~TRACK_IGNORED;
    }
    bool is_tracked = span->arena & ARENA_TRACKED;
    return is_tracked ? slab_id(span, (void *)object->base) & ~TRACK_IGNORED : 0;
}

uint32_t track_renumber(struct span *span, uint32_t id) {
    assert(span->kind == SPAN_LARGE && !(id & TRACK_IGNORED));
    uint32_t before = span->id;
    span->id = id | (before & TRACK_IGNORED);
    return before & ~TRACK_IGNORED;
}

/* ---------------------------------------------------------------- objects that are no leaks */

/* The flag follows the number of threads, even where two change it at once. */
static void settle_ignoring(void) {
    size_t threads;
    do {
        threads = atomic_load(&g.ignoring);
        bin_set_ignoring(threads != 0);
    } while (atomic_load(&g.ignoring) != threads);
}

void track_ignore_mine(bool is_ignored) {
    uint64_t never = 0;
    atomic_compare_exchange_strong(&track_epoch, &never, 1); /* There are tracked objects now. */
    atomic_fetch_add(&g.ignoring, is_ignored ? 1 : (size_t)-1);
    settle_ignoring();
    thread_set_ignored(is_ignored);
}

bool track_ignores_mine(void) {
    return tls.modes & THREAD_IGNORED;
}

void track_ignore_forked(bool is_ignored) {
    if (atomic_exchange(&g.ignoring, is_ignored) != is_ignored) {
        settle_ignoring();
    }
}

enum track_marked track_set_ignored(const struct heap_object *object, bool is_ignored) {
    assert(object->verdict == HEAP_LIVE && object->span != NULL);
    struct span *span = object->span;
    if (object->size_class != 0) {
        if (!(span->arena & ARENA_TRACKED)) {
            return TRACK_NO_PLACE;
        }
        bool is_done = bin_set_ignored(span, object->size_class, (void *)object->base, is_ignored);
        return is_done ? TRACK_CHANGED : TRACK_NO_CHANGE;
    }
    uint32_t before = is_ignored ? __atomic_fetch_or(&span->id, TRACK_IGNORED, __ATOMIC_RELAXED)
                                 : __atomic_fetch_and(&span->id, ~TRACK_IGNORED, __ATOMIC_RELAXED);
    return ((before & TRACK_IGNORED) != 0) != is_ignored ? TRACK_CHANGED : TRACK_NO_CHANGE;
}

/* ---------------------------------------------------------------- telling */

void track_tell_freed(uint32_t id, const void *object, size_t usable) {
    if (UNLIKELY((id & ~TRACK_IGNORED) != 0)) {
        track_events.freed(id & ~TRACK_IGNORED, object, usable);
    }
}

void track_free_small(const struct span *slab, unsigned size_class, void *address, uint32_t id) {
    assert(id != 0 && slab_id(slab, address) == 0);
    track_tell_freed(id, address, size_classes[size_class].size);
    slab_set_word1(address, slab_secret);
    cache_free_tracked(slab->arena & ~(unsigned)ARENA_TRACKED, size_class, address);
}

/* A few objects at a time: no lock may be held while they are reported to the layer above. */
void track_reset_slab(struct bin *bin, struct span *slab, uintptr_t base) {
    assert(bin->arena & ARENA_TRACKED);
    enum { BATCH = 32 };
    void *objects[BATCH];
    uint32_t ids[BATCH];
    unsigned count;
    while ((count = bin_claim_live(bin, slab, base, objects, ids, BATCH)) > 0) {
        assert(count <= BATCH);
        for (unsigned i = 0; i < count; i++) {
            track_tell_freed(ids[i], objects[i], size_classes[bin->size_class].size);
            slab_set_word1(objects[i], slab_secret);
        }
        bin_drain(bin->size_class, objects, count);
    }
}
