/* SPDX-License-Identifier: MIT
 *
 * track.h - objects that carry a number for the layer above: the profiler's record of them.
 *
 * Which allocations are to carry one is decided here, at random, so that each byte has the same
 * chance 1/rate to be hit; docs/design.md, "Sampling", has the mathematics.
 *
 * Threads     All functions may be called from any thread, inside and with no lock held.
 */
#pragma once

#include "base/attention.h"
#include "heap/bin.h"
#include "heap/thread.h"

/* Has ATTENTION_AGENTS raised if agents have come or gone.  Whoever answers calls
 * track_follow_agents, which says whether there are any now. */
static inline void track_look_for_agents(void) {
    if (UNLIKELY(bin_agents_have_changed())) {
        attention_raise(ATTENTION_AGENTS);
    }
}

/* What a live object carries for the layer above; 0: nothing. */
uint32_t track_id(const struct heap_object *object);

/* A distance that nobody reaches. */
#define TRACK_NEVER (UINT64_C(1) << 62)

/* Counts changes of the rate. */
extern _Atomic uint64_t track_epoch HIDDEN;

/* The rest of the function below: the rate has changed, or what was due has been passed. */
uint64_t track_draw_again(struct thread *thread, unsigned size_class);

/* How many objects of the class may go into A before the next allocation that is due: cache.c.
 * Notices a change of the rate, if `thread` is the caller's. */
static inline uint64_t track_distance(struct thread *thread, unsigned size_class) {
    uint64_t epoch = atomic_load_explicit(&track_epoch, memory_order_acquire);
    uint64_t distance = thread->due[size_class] - thread->filled[size_class];
    bool is_settled = thread->epoch == epoch && distance <= 2 * TRACK_NEVER;
    return LIKELY(is_settled) ? distance : track_draw_again(thread, size_class);
}

/* Makes the generator of random numbers start from here; the heap does at its start. */
void track_seed(uint64_t seed);

/* Frees a tracked small object, whose number the caller has just taken, and reports it. */
void track_free_small(const struct span *slab, unsigned size_class, void *address, uint32_t id);

/* Frees what the program holds of such a slab; as bin_reset_slab otherwise. */
void track_reset_slab(struct bin *bin, struct span *slab, uintptr_t base);

/* Reports a freed object to the layer above, where `id` is not 0. */
void track_tell_freed(uint32_t id, const void *object, size_t usable);
