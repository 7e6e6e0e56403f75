/* SPDX-License-Identifier: MIT
 *
 * track.h - objects that carry a number for the layer above: the profiler's record of them.
 *
 * Which allocations are to carry one is decided here, at random, so that each byte has the same chance
 * 1/rate to be hit; docs/design.md, "Sampling", has the mathematics.
 *
 * Threads     All functions may be called from any thread, inside and with no lock held.
 */
#pragma once

#include <stdatomic.h>

#include "heap/bin.h"
#include "heap/place.h"
#include "heap/thread.h"

/* Mean bytes between samples: 0 samples nothing, 1 everything.  Threads notice at their next slow call;
 * what their magazines hold by then passes unsampled. */
void track_set_rate(uint64_t bytes);
extern _Atomic uint64_t track_present_rate HIDDEN;
static inline uint64_t track_rate(void) {
    return atomic_load_explicit(&track_present_rate, memory_order_relaxed);
}

/* Is anything to be sampled, or is there an agent, come or gone, to be noticed?  The question that costs
 * nothing; it comes before the next. */
static inline bool track_is_on(void) {
    return UNLIKELY((bin_get_unusual() & ~(uint64_t)BIN_SHRINKING) != 0);
}

/* Has ATTENTION_AGENTS raised if agents have come or gone.  Whoever answers calls track_follow_agents,
 * which tells whether there are any now. */
static inline void track_look_for_agents(void) {
    if (UNLIKELY(bin_agents_have_changed())) {
        attention_raise(ATTENTION_AGENTS);
    }
}
bool track_follow_agents(void);

/* A number in [0, 1), each as likely as any other. */
double track_random(void);

/* An allocation, and what follows from that. */
struct track_request {
    struct place place;
    size_t size, alignment; /* the second at least 1 */
    unsigned size_class;    /* 0: large */
};

static inline struct track_request track_request(struct place place, size_t size,
                                                 size_t alignment) {
    alignment = max_size(alignment, 1);
    return (struct track_request){place, size, alignment, size_class_aligned(size, alignment)};
}

/* Usable bytes; 0 when it could never be served. */
size_t track_usable(const struct track_request *request);

/* Is it to be sampled?  If so the distance to the one after it was drawn, whatever the caller does now.
 * Never for memory from extent hooks. */
bool track_is_due(const struct track_request *request);

/* As place_alloc, but the object carries `id`, which is not 0, until it is freed.  NULL also where the
 * usual way might still find memory. */
void *track_alloc(const struct track_request *request, uint32_t id, bool *zeroed);

/*
 * Objects that are no leaks carry TRACK_IGNORED in their number, beside what the layer above has given them.
 * The caller's allocations do while it has said so, but for memory from extent hooks; and a live object that
 * has a place for it can be made to.
 */
void track_ignore_mine(bool is_ignored);

/* In the child of a fork, which has this thread alone. */
void track_ignore_forked(bool is_ignored);
enum track_marked {
    TRACK_CHANGED,
    TRACK_NO_CHANGE, /* it is as wanted already */
    TRACK_NO_PLACE,  /* it is small and not tracked */
};
enum track_marked track_set_ignored(const struct heap_object *object, bool is_ignored);

/* What a live object carries for the layer above; 0: nothing. */
uint32_t track_id(const struct heap_object *object);

/* What the layer above wants to be told; inside, with no lock held.  Set once, before any rate. */
struct track_events {
    /* The object cannot be used any more, and nobody else has its memory yet. */
    void (*freed)(uint32_t id, const void *object, size_t usable);
    /* The object has another size, and perhaps another address than before. */
    void (*resized)(uint32_t id, const void *before, const void *object, size_t old_usable,
                    size_t usable);
};
extern struct track_events track_events HIDDEN;

/* ---------------------------------------------------------------- for the heap alone */

/* A distance that nobody reaches. */
#define TRACK_NEVER (UINT64_C(1) << 62)

/* Counts changes of the rate. */
extern _Atomic uint64_t track_epoch HIDDEN;

/* The rest of the function below: the rate has changed, or what was due has been passed. */
uint64_t track_draw_again(struct thread *thread, unsigned size_class);

/* How many objects of the class may go into A before the next allocation that is due: cache.c.  Notices
 * a change of the rate, if `thread` is the caller's. */
static inline uint64_t track_distance(struct thread *thread, unsigned size_class) {
    uint64_t epoch = atomic_load_explicit(&track_epoch, memory_order_acquire);
    uint64_t distance = thread->due[size_class] - thread->filled[size_class];
    bool is_settled = thread->epoch == epoch && distance <= 2 * TRACK_NEVER;
    return LIKELY(is_settled) ? distance : track_draw_again(thread, size_class);
}

/* Makes the generator of random numbers start from here; the heap does at its start. */
void track_seed(uint64_t seed);

/* Frees a small object of a slab for tracked ones that had this number until the caller took it, and
 * tells. */
void track_free_small(const struct span *slab, unsigned size_class, void *address, uint32_t id);

/* Frees what the program holds of such a slab; as bin_reset_slab otherwise. */
void track_reset_slab(struct bin *bin, struct span *slab, uintptr_t base);

/* Tells, where `id` is not 0. */
void track_tell_freed(uint32_t id, const void *object, size_t usable);
void track_tell_resized(uint32_t id, const void *before, const void *object, size_t old_usable,
                        size_t usable);
