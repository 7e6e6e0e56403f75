/* SPDX-License-Identifier: MIT
 *
 * stash.h - a few free tracked objects of each class that a thread keeps, where most are tracked.
 *
 * Tracked objects are never in magazines (track.h).  Where samples are few it does not matter that
 * each comes from its bin and goes back there alone; where every object is tracked, that is most of
 * the cost of an allocation.  So a thread then takes several at a time.  Objects in a stash are
 * like those in a magazine: handed out as far as their slab knows, with the secret in word 1.  None
 * has a number, which is how a second free of one is noticed.
 *
 * Threads     The owner only, except stash_count, and a stash whose owner vanished in a fork: an
 *             object is counted after it was put in, and no longer before it is taken out.
 */
#pragma once

#include "base/log.h"
#include "heap/bin.h"
#include "heap/thread.h"

struct verify;

enum { STASH_MOST = 32, STASH_BYTES = 16 << 10 };

struct stash {
    uint8_t count[CLASS_COUNT];
    uint8_t room[CLASS_COUNT]; /* objects it is open for; 0: the class is not wanted now */
    void *objects[CLASS_COUNT][STASH_MOST];
};

static inline unsigned stash_count(const struct thread *thread, unsigned size_class) {
    const struct stash *stash = __atomic_load_n(&thread->stash, __ATOMIC_ACQUIRE);
    return stash != NULL ? __atomic_load_n(&stash->count[size_class], __ATOMIC_RELAXED) : 0;
}

/* Release: what was put in is there before it is counted. */
static inline void stash_set_count(struct stash *stash, unsigned size_class, unsigned count) {
    assert(count <= STASH_MOST);
    __atomic_store_n(&stash->count[size_class], (uint8_t)count, __ATOMIC_RELEASE);
}

/* The object that was put in last; NULL: there is none. */
static inline void *stash_pop(struct thread *thread, unsigned size_class) {
    struct stash *stash = thread->stash;
    unsigned count = stash != NULL ? stash->count[size_class] : 0;
    if (count == 0) {
        return NULL;
    }
    stash_set_count(stash, size_class, count - 1);
    return stash->objects[size_class][count - 1];
}

/* False when there is no room, and while the heap shrinks. */
static inline bool stash_push(struct thread *thread, unsigned size_class, void *object) {
    struct stash *stash = thread->stash;
    if (stash == NULL || stash->count[size_class] >= stash->room[size_class] ||
        bin_heap_is_shrinking()) {
        return false;
    }
    unsigned count = stash->count[size_class];
    stash->objects[size_class][count] = object;
    stash_set_count(stash, size_class, count + 1);
    return true;
}

/* May the caller, whose heap this is, keep tracked objects of this class?  Only where most of them
 * are tracked, so that they will be asked for, and while the heap does not shrink. */
bool stash_is_wanted(const struct thread *thread, unsigned size_class);

/* Fills the stash from the arena's tracked bin and returns one object more; NULL without memory. */
void *stash_fill(struct thread *thread, unsigned arena, unsigned size_class);

/* The rate has changed: nothing is put in until it is filled again. */
void stash_close(struct thread *thread);

/* Gives back the older half of a class; or all of one, or of all but one (0: all), closing them. */
void stash_relieve(struct thread *thread, unsigned size_class);
void stash_empty_class(struct thread *thread, unsigned size_class);
void stash_empty(struct thread *thread, unsigned busy_class);

void stash_verify(const struct thread *thread, struct verify *walk);
