/* SPDX-License-Identifier: MIT
 *
 * place.c - allocating from, and freeing to, another place than the caller's own cache and arena.
 *
 *      arena    cache       small objects                          large objects
 *      own      own         as malloc does                         of the caller's arena
 *      any      none        straight from the arena's slabs        of that arena
 *      any      own         the same: the placement is strict      of that arena
 *      any      a number    from that cache, else the slabs        of that arena
 *
 * What an arena has from extent hooks is never cached, whatever the caller asks for.  A hook that
 * allocates is served by arena 0 in place of an arena with hooks.
 *
 * Threads     No lock is held when hooks are called, that of an explicit cache included.
 */
#include "heap/place.h"

#include "base/log.h"
#include "heap/arena.h"
#include "heap/bin.h"
#include "heap/cache.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "heap/hooked.h"
#include "heap/large.h"
#include "heap/limit.h"
#include "heap/shelf.h"
#include "heap/tcaches.h"
#include "heap/thread.h"

static bool calls_hooks(unsigned arena) {
    return UNLIKELY(arena_uses_hooks(arena)) && !(tls.modes & THREAD_IN_HOOK);
}

/* As with small objects, the heap grows only after the caches have been emptied. */
static void *take_large(unsigned arena, size_t size, size_t alignment, bool *zeroed) {
    if (calls_hooks(arena)) {
        return hooked_alloc_large(arena, size, alignment, zeroed);
    }
    if (UNLIKELY(arena_uses_hooks(arena))) {
        arena = 0;
    }
    void *object = alignment <= UNIT_BYTES ? shelf_take(arena, large_usable_bytes(size)) : NULL;
    if (object == NULL) {
        object = large_alloc(size, alignment, PAGES_IN_CHUNKS, zeroed, arena);
    }
    if (UNLIKELY(object == NULL)) {
        cache_make_way(thread_self(), 0);
        object = large_alloc(size, alignment, PAGES_MAY_GROW, zeroed, arena);
    }
    return object;
}

void *place_alloc_large(unsigned arena, size_t size, size_t alignment, bool *zeroed) {
    void *object = take_large(arena, size, alignment, zeroed);
    if (LIKELY(object != NULL)) {
        thread_note_alloc(large_usable_bytes(size));
    }
    return object;
}

/* The object carries the secret. */
static void *take_small(struct place place, unsigned arena, unsigned size_class) {
    void *object;
    if (place.cache >= 0 && !arena_uses_hooks(arena) &&
        tcaches_alloc((unsigned)place.cache, arena, size_class, &object)) {
        thread_note_alloc(object != NULL ? size_classes[size_class].size : 0);
        return object;
    }
    return cache_alloc_from(tls.self, arena, size_class);
}

static void *alloc_once(struct place place, unsigned size_class, size_t size, size_t alignment,
                        bool *zeroed) {
    unsigned arena = place.arena == PLACE_OWN ? thread_arena() : (unsigned)place.arena;
    if (!arena_exists(arena) || !arena_prepare(arena)) {
        return NULL;
    }
    if (size_class == 0) {
        return place_alloc_large(arena, size, alignment, zeroed);
    }
    void *object = take_small(place, arena, size_class);
    if (object != NULL) {
        slab_set_word1(object, 0);
    }
    return object;
}

void *place_alloc(struct place place, size_t size, size_t alignment, bool *zeroed) {
    *zeroed = false;
    alignment = max_size(alignment, 1);
    if (place_is_own(place)) {
        return alignment > SMALLEST ? heap_alloc_aligned(size, alignment)
                                    : heap_alloc(size, zeroed);
    }
    unsigned size_class = size_class_aligned(size, alignment);
    void *object = alloc_once(place, size_class, size, alignment, zeroed);
    if (UNLIKELY(object == NULL) &&
        (place.arena == PLACE_OWN || arena_exists((unsigned)place.arena))) {
        limit_notice_late();
        heap_trim();
        object = alloc_once(place, size_class, size, alignment, zeroed);
    }
    if (object != NULL && tls.modes & THREAD_EXACT) {
        thread_count_alloc(heap_size_for(size, alignment));
    }
    return object;
}

/* Must the object go back by heap_free, and not straight to its slab or a cache? */
static bool needs_the_usual_way(struct place place, const struct heap_object *object) {
    return object->span == NULL || object->size_class == 0 || object->span->arena & ARENA_APART ||
           place.cache == PLACE_OWN;
}

bool place_free(struct place place, const struct heap_object *object) {
    assert(object->verdict == HEAP_LIVE);
    if (needs_the_usual_way(place, object)) {
        return heap_free(object);
    }
    void *address = (void *)object->base;
    slab_set_word1(address, slab_secret);
    thread_note_free(object->size);
    if (place.cache < 0 || !tcaches_free((unsigned)place.cache, object->size_class, address)) {
        bin_drain(object->size_class, &address, 1);
    }
    if (tls.modes & THREAD_EXACT) {
        thread_count_free(object->size);
    }
    return true;
}
