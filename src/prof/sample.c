/* SPDX-License-Identifier: MIT
 *
 * sample.c - an allocation that is sampled: the stack first, with no lock held, then the object.
 *
 * A resize counts as a free of the old size and an allocation of the new one, whether the object
 * moves or not: it is decided anew, by the chance of the new size, so that what is sampled stands
 * for all objects of its present size.  Where an object is copied that is what happens anyway; a
 * large one that keeps its memory comes here.  A size within the same usable bytes is no resize.
 *
 * Threads     Call inside.  What the stack walk allocates is served apart (heap/emergency.h).
 * Errors      Without a record, or without memory for a tracked object, the allocation is what it
 *             would be without a profiler.  errno stays as it was.
 * Read next   heap/track.c for whose turn it is, prof/prof.h for the record.
 */
#include "prof/sample.h"

#include <errno.h>

#include "prof/usdt.h"

/* `mark` is TRACK_IGNORED or 0. */
static void *record_and_alloc(const struct track_request *request, uint32_t mark, bool *zeroed,
                              void *frame) {
    int saved = errno;
    void *object = NULL;
    size_t usable = track_usable(request);
    uint32_t id = prof_record(request->size, usable, frame);
    if (LIKELY(id != 0)) {
        object = track_alloc(request, id | mark, zeroed);
        if (LIKELY(object != NULL)) {
            prof_recorded(id, object);
            usdt_sampled(object, request->size, usable);
        } else {
            prof_unrecord(id);
        }
    }
    errno = saved;
    return object;
}

/* In this order the peak never has both. */
static void change_records(const struct heap_object *before, uint32_t id, void *object,
                           const struct heap_object *now, size_t size) {
    uint32_t old = track_renumber(now->span, id);
    if (old != 0) {
        track_events.freed(old, (void *)before->base, before->size);
    }
    if (id != 0) {
        prof_recorded(id, object);
        usdt_sampled(object, size, now->size);
    }
}

void sample_resized(const struct heap_object *before, void *object, size_t size, void *frame) {
    struct heap_object now = heap_locate(object);
    if (now.size == before->size && object == (void *)before->base) {
        return;
    }
    int saved = errno;
    bool is_due = track_is_due_again(now.size);
    uint32_t id = is_due ? prof_record(size, now.size, frame) : 0;
    change_records(before, id, object, &now, size);
    errno = saved;
}

void *sample_if_due(struct place place, size_t size, size_t alignment, bool *zeroed, void *frame) {
    struct track_request request = track_request(place, size, alignment);
    bool is_due = track_is_due(&request);
    if (UNLIKELY(track_ignores_mine())) {
        void *object = is_due ? record_and_alloc(&request, TRACK_IGNORED, zeroed, frame) : NULL;
        return object != NULL ? object : track_alloc(&request, TRACK_IGNORED, zeroed);
    }
    return is_due ? record_and_alloc(&request, 0, zeroed, frame) : NULL;
}
