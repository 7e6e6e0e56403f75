/* SPDX-License-Identifier: MIT
 *
 * sample.c - an allocation that is sampled: the stack first, with no lock held, then the object.
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

void *sample_if_due(struct place place, size_t size, size_t alignment, bool *zeroed, void *frame) {
    struct track_request request = track_request(place, size, alignment);
    bool is_due = track_is_due(&request);
    if (UNLIKELY(track_ignores_mine())) {
        void *object = is_due ? record_and_alloc(&request, TRACK_IGNORED, zeroed, frame) : NULL;
        return object != NULL ? object : track_alloc(&request, TRACK_IGNORED, zeroed);
    }
    return is_due ? record_and_alloc(&request, 0, zeroed, frame) : NULL;
}
