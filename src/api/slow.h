/* SPDX-License-Identifier: MIT
 *
 * slow.h - a call that the fast path does not serve, from its first step to its last.
 *
 * Whatever function the program calls, the steps are the same:
 *
 *      enter     a call that interrupts the allocator is served apart instead    life.h
 *      sample    if it is this allocation's turn                                 prof/sample.h
 *      heap      allocate, look, free or resize                                  heap/heap.h
 *      guard     refuse what is wrong; fill what is new or freed                 guard/guard.h
 *      leave     attend to what was left to do; greet a new thread               life.h
 *
 * The callers, in malloc.c and jemalloc.c, decide what is asked for, and report failure: errno is
 * not set here.  Half of it is inline, so that a caller pays only for what it asks for.
 *
 * Threads     All functions may be called from any thread, and from a signal handler that
 *             interrupts the allocator.  That handler gets memory set apart (heap/emergency.h),
 *             what it frees waits, its objects are not proved to be live, and no resize succeeds.
 */
#pragma once

#include "api/life.h"
#include "guard/guard.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "prof/prof.h"

/* Using an explicit cache that was never made, or is destroyed, ends the process.  Call inside. */
static inline void slow_check_cache(int cache) {
    if (UNLIKELY(cache >= 0 && !tcaches_exists((unsigned)cache))) {
        guard_refuse_cache((unsigned)cache);
    }
}

/* The same as place_alloc, without its call for the caller's own place. */
static inline void *slow_take(size_t size, const struct place_request *request, bool *zeroed) {
    if (UNLIKELY(!place_is_own(request->place))) {
        return place_alloc(request->place, size, request->alignment, zeroed);
    }
    return request->alignment > SMALLEST ? heap_alloc_aligned(size, request->alignment)
                                         : heap_alloc(size, zeroed);
}

/*
 * An object, or NULL without memory.  `*zeroed` says whether it reads as zeros up to its usable
 * size; `request->zero` is left to the caller.  Inlined into its callers, so that the walk of a
 * sample begins one frame further out.
 */
static inline __attribute__((always_inline)) void *
slow_alloc(size_t size, const struct place_request *request, bool *zeroed) {
    sample_keep_frame();
    *zeroed = false;
    if (UNLIKELY(size > PTRDIFF_MAX)) {
        return NULL;
    }
    if (UNLIKELY(!life_enter())) {
        return emergency_alloc(size, max_size(request->alignment, SMALLEST));
    }
    slow_check_cache(request->place.cache);
    void *object = sample_alloc(request->place, size, request->alignment, zeroed);
    if (LIKELY(object == NULL)) {
        object = slow_take(size, request, zeroed);
    }
    fill_new(object, 0, zeroed);
    life_leave_alloc();
    return object;
}

/* What stands at an address.  The second ends the process unless it is a live object. */
static inline struct heap_object slow_look(const void *pointer) {
    if (UNLIKELY(!life_enter())) {
        return heap_locate(pointer);
    }
    struct heap_object object = heap_look(pointer);
    life_leave();
    return object;
}

static inline struct heap_object slow_look_live(const void *pointer, const char *function) {
    struct heap_object object = slow_look(pointer);
    if (UNLIKELY(object.verdict != HEAP_LIVE)) {
        guard_refuse(function, pointer, &object);
    }
    return object;
}

/* An object of at least `size` bytes from the caller's cache; NULL when that has none, and when the
 * allocation is to be sampled.  Defined in malloc.c. */
void *slow_take_cached(size_t size, size_t alignment);

/* Frees an object into a cache (struct place); the arena is the object's own.  Anything but a live
 * object ends the process with a sentence about `function`. */
void slow_free(void *pointer, int cache, const char *function);

/* The same for an object that must be what a request of this size would get. */
void slow_free_sized(void *pointer, size_t size, const struct place_request *request,
                     const char *function);

/* Gives a large object another size in one of these ways; NULL, with nothing changed, when it
 * cannot. */
enum { SLOW_HERE = 1, SLOW_ELSEWHERE = 2 };
void *slow_resize_large(const struct heap_object *object, size_t size, unsigned ways);

/* Is the object large, and would one of this size and alignment be? */
static inline bool slow_stays_large(const struct heap_object *object, size_t size,
                                    size_t alignment) {
    return object->span != NULL && object->size_class == 0 &&
           size_class_aligned(size, alignment) == 0;
}

static inline bool slow_is_aligned(const struct heap_object *object, size_t alignment) {
    return align_down(object->base, alignment) == object->base;
}

/* The object with its new size and its contents, without copying; NULL when it has to be copied.
 * Pages that move are aligned to a unit, not more. */
static inline void *slow_resize(const struct heap_object *object, size_t size,
                                const struct place_request *request) {
    bool is_aligned = slow_is_aligned(object, request->alignment);
    if (slow_stays_large(object, size, request->alignment)) {
        bool may_move = place_is_own(request->place) && request->alignment <= UNIT_BYTES;
        unsigned ways = (is_aligned ? SLOW_HERE : 0) | (may_move ? SLOW_ELSEWHERE : 0);
        return slow_resize_large(object, size, ways);
    }
    bool keeps_class = object->span != NULL && object->size_class != 0 &&
                       object->size_class == size_class_aligned(size, request->alignment);
    if (!keeps_class || !is_aligned) {
        return NULL;
    }
    thread_note_kept(object->size);
    return (void *)object->base;
}
