/* SPDX-License-Identifier: MIT
 *
 * stash.c - filling and emptying what stash.h describes.
 *
 * Read next   track.c, which uses it.
 */
#include "heap/stash.h"

#include "base/log.h"
#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/slab.h"
#include "heap/verify.h"

bool stash_is_wanted(const struct thread *thread, unsigned c) {
    uint64_t rate = track_rate();
    return rate != 0 && rate <= size_classes[c].size && !bin_heap_is_shrinking() &&
           thread->most[c] != 0 && !(tls.modes & THREAD_PAST_CACHE);
}

/* Release: whoever counts what it holds finds it empty. */
static struct stash *make_stash(struct thread *thread) {
    struct stash *stash = meta_alloc(sizeof(struct stash), CACHE_LINE);
    if (stash != NULL) {
        __atomic_store_n(&thread->stash, stash, __ATOMIC_RELEASE);
    }
    return stash;
}

static unsigned room_of(unsigned c) {
    return (unsigned)min_size(STASH_BYTES / size_classes[c].size, STASH_MOST);
}

void *stash_fill(struct thread *thread, unsigned arena, unsigned c) {
    struct stash *stash = thread->stash != NULL ? thread->stash : make_stash(thread);
    if (stash == NULL || room_of(c) < 2) {
        return NULL;
    }
    void **slots = stash->objects[c];
    stash->room[c] = (uint8_t)room_of(c);
    assert(stash->count[c] == 0 && !(arena & ARENA_APART));
    unsigned got = bin_refill(arena_bin(arena | ARENA_TRACKED, c), slots, stash->room[c] / 2u,
                              PAGES_USED_BEFORE);
    if (got == 0) {
        return NULL;
    }
    stash_set_count(stash, c, got - 1);
    return slots[got - 1];
}

void stash_close(struct thread *thread) {
    if (thread->stash != NULL) {
        __builtin_memset(thread->stash->room, 0, sizeof(thread->stash->room));
    }
}

/* The objects are forgotten first: a fork in between loses them, and none is ever free twice. */
static void give_back(struct stash *stash, unsigned c, unsigned older) {
    void **slots = stash->objects[c];
    unsigned rest = stash->count[c] - older;
    assert(older <= stash->count[c]);
    stash_set_count(stash, c, 0);
    bin_drain(c, slots, older);
    __builtin_memmove(slots, slots + older, rest * sizeof(slots[0]));
    stash_set_count(stash, c, rest);
}

void stash_relieve(struct thread *thread, unsigned c) {
    if (thread->stash != NULL) {
        give_back(thread->stash, c, (thread->stash->count[c] + 1u) / 2);
    }
}

void stash_empty_class(struct thread *thread, unsigned c) {
    if (thread->stash != NULL) {
        thread->stash->room[c] = 0;
        give_back(thread->stash, c, thread->stash->count[c]);
    }
}

void stash_empty(struct thread *thread, unsigned busy_class) {
    for (unsigned c = 1; thread->stash != NULL && c < CLASS_COUNT; c++) {
        if (c != busy_class && stash_count(thread, c) != 0) {
            stash_empty_class(thread, c);
        }
    }
}

static bool may_be_stashed(const struct span *slab, const void *heap) {
    return slab->arena == (((const struct thread *)heap)->arena | ARENA_TRACKED);
}

void stash_verify(const struct thread *thread, struct verify *walk) {
    for (unsigned c = 1; thread->stash != NULL && c < CLASS_COUNT; c++) {
        unsigned count = thread->stash->count[c];
        void *const *objects = thread->stash->objects[c];
        ensure(count <= room_of(c) && thread->stash->room[c] <= room_of(c));
        verify_slots(walk, c, objects, count, may_be_stashed, thread);
        for (unsigned i = 0; i < count; i++) {
            ensure(slab_id(classmap_span((uintptr_t)objects[i]), objects[i]) == 0);
        }
    }
}
