/* SPDX-License-Identifier: MIT
 *
 * slow.c - freeing and resizing for calls that the fast path does not serve; see slow.h.
 */
#include "api/slow.h"

/* Takes no lock, so less is proved, and there is no choice of a cache. */
static COLD void free_interrupting(const struct heap_object *object, void *pointer,
                                   const char *function) {
    if (object->verdict != HEAP_LIVE || !heap_free_later(object)) {
        guard_refuse(function, pointer, object);
    }
}

/* Frees what heap_look found.  For the caller's own cache heap_free saves the call of
 * place_free. */
static inline __attribute__((always_inline)) void
free_found(const struct heap_object *object, void *pointer, int cache, const char *function) {
    fill_freed(object);
    bool is_freed =
        object->verdict == HEAP_LIVE &&
        (LIKELY(cache == PLACE_OWN) ? heap_free(object)
                                    : place_free((struct place){PLACE_OWN, cache}, object));
    if (UNLIKELY(!is_freed)) {
        guard_refuse(function, pointer, object);
    }
}

/* A tracked object that was freed a moment ago may have a new owner by now, and must not be freed
 * however live it looks. */
void slow_free(void *pointer, int cache, const char *function) {
    if (UNLIKELY(!life_enter())) {
        struct heap_object object = heap_locate(pointer);
        free_interrupting(&object, pointer, function);
        return;
    }
    slow_check_cache(cache);
    if (opt.junk == JUNK_FALSE && heap_free_large(pointer)) {
        life_leave();
        return;
    }
    enum heap_tracked tracked =
        opt.junk == JUNK_FALSE ? heap_free_tracked(pointer) : HEAP_NOT_TRACKED;
    if (tracked != HEAP_TRACKED_FREED) {
        struct heap_object object = heap_look(pointer);
        if (UNLIKELY(tracked == HEAP_TRACKED_LATE) && object.verdict == HEAP_LIVE) {
            object.verdict = HEAP_DOUBLE_FREE;
        }
        free_found(&object, pointer, cache, function);
    }
    life_leave();
}

/* A block of the emergency areas has the size that was asked for. */
void slow_free_sized(void *pointer, size_t size, const struct place_request *request,
                     const char *function) {
    bool entered = life_enter();
    struct heap_object object = entered ? heap_look(pointer) : heap_locate(pointer);
    size_t expected = heap_size_for(size, request->alignment);
    if (UNLIKELY(object.verdict == HEAP_LIVE && object.span != NULL && object.size != expected)) {
        guard_refuse_size(function, pointer, &object, size, expected);
    }
    if (UNLIKELY(!entered)) {
        free_interrupting(&object, pointer, function);
        return;
    }
    slow_check_cache(request->place.cache);
    free_found(&object, pointer, request->place.cache, function);
    life_leave();
}

void *slow_resize_large(const struct heap_object *object, size_t size, unsigned ways) {
    if (UNLIKELY(ways == 0 || size > PTRDIFF_MAX || !life_enter())) {
        return NULL;
    }
    void *resized = NULL;
    if (ways & SLOW_HERE && heap_resize(object, size)) {
        resized = (void *)object->base;
    } else if (ways & SLOW_ELSEWHERE) {
        resized = heap_move(object, size);
    }
    if (resized != NULL) {
        sample_resized(object, resized, size, __builtin_frame_address(0));
    }
    bool zeroed = false;
    fill_new(resized, object->size, &zeroed);
    life_leave_alloc();
    return resized;
}
