/* SPDX-License-Identifier: MIT
 *
 * heap.h - what the layers above may call: allocate, look, free, resize, count, verify.
 *
 * Threads     All functions may be called from any thread and hold no lock when they return.
 */
#pragma once

#include "heap/arena.h"
#include "heap/cache.h"
#include "heap/classmap.h"
#include "heap/counts.h"
#include "heap/depot.h"
#include "heap/dirty.h"
#include "heap/emergency.h"
#include "heap/hooked.h"
#include "heap/limit.h"
#include "heap/magazine.h"
#include "heap/meta.h"
#include "heap/pages.h"
#include "heap/place.h"
#include "heap/slab.h"
#include "heap/tcaches.h"
#include "heap/thread.h"
#include "heap/track.h"

/* What an address that is to be freed, resized or measured turns out to be. */
enum heap_verdict {
    HEAP_LIVE,            /* the start of an object that is handed out */
    HEAP_FOREIGN,         /* not memory of this heap */
    HEAP_FREE_PAGES,      /* memory of this heap that belongs to no object now */
    HEAP_INTERIOR,        /* inside an object */
    HEAP_SLAB_END,        /* behind the last object of a slab */
    HEAP_DOUBLE_FREE,     /* the start of an object that is free */
    HEAP_NEVER_ALLOCATED, /* the start of an object that never was handed out */
};

struct heap_object {
    enum heap_verdict verdict;
    unsigned size_class; /* 0: large */
    uintptr_t base;      /* of the object, where there is one */
    size_t size;         /* usable bytes of the object */
    struct span *span;   /* NULL: a block of the emergency areas */
};

/* Prepares the heap; options and facts have been read.  False without memory. */
bool heap_init(void);

/* An object of at least `size` bytes, or NULL.  `*zeroed` is set only if it reads as zeros. */
void *heap_alloc(size_t size, bool *zeroed);
void *heap_alloc_aligned(size_t size, size_t alignment);

/* Judges an address.  Proves a suspicion of double free, so "double free" is certain. */
struct heap_object heap_look(const void *address);

/* The same without taking a lock, for calls that interrupt the allocator: "live" then only means
 * that an object starts here. */
struct heap_object heap_locate(const void *address);

/*
 * The usual slow calls: a thread with a heap whose magazine ran empty or full.  The first gives
 * NULL without memory; the pointer of the second has passed all checks of the fast path.
 */
static inline void *heap_alloc_cached(unsigned size_class) {
    void *object = cache_alloc_empty(tls.self, size_class);
    if (LIKELY(object != NULL)) {
        slab_set_word1(object, 0);
    }
    return object;
}

static inline void heap_free_cached(unsigned size_class, void *address) {
    slab_set_word1(address, slab_secret);
    cache_free_full(tls.self, size_class, address);
}

/* Frees an object that heap_look found live; false when another thread freed it meanwhile. */
bool heap_free(const struct heap_object *object);

/* Frees a tracked small object without a look.  Nothing is done where it is anything else. */
enum heap_tracked {
    HEAP_NOT_TRACKED,
    HEAP_TRACKED_FREED,
    HEAP_TRACKED_LATE, /* it was free, or never allocated */
};
enum heap_tracked heap_free_tracked(void *address);

/* The same for an object that heap_locate found, without a lock: it is freed at a later call. */
bool heap_free_later(const struct heap_object *object);

/* Usable bytes of a request of this size and alignment; 0 when it could never be served. */
size_t heap_size_for(size_t size, size_t alignment);

/* The largest size that could be served, with enough memory. */
size_t heap_size_most(void);

/* Makes a large object smaller or larger where it stands, or refuses. */
bool heap_resize(const struct heap_object *object, size_t size);

/* Moves a large object to where it has at least `size` bytes, more than it had.  NULL, with the object
 * unchanged, when it cannot: it may still be copied. */
void *heap_move(const struct heap_object *object, size_t size);

/* Calls of realloc with a pointer and size 0. */
extern _Atomic size_t heap_zero_reallocs HIDDEN;

/* What a background thread does now and then: gives back what nobody has needed for a while.
 * Milliseconds after which there is more to do, UINT64_MAX when there is nothing. */
uint64_t heap_tick(void);

/* Gives caches of this thread and of those that vanished in a fork, depots, empty slabs and dirty pages
 * back; bytes that went. */
size_t heap_trim(void);

/* Everything the heap can account for, in bytes unless it says otherwise. */
struct heap_totals {
    size_t live;         /* objects the program holds, at their usable size */
    size_t live_objects; /* number */
    size_t cached;       /* free objects in magazines and depots */
    size_t slab_free;    /* free space in slabs, tails included */
    size_t untouched;    /* of this, pages that were never used and have no memory */
    size_t large_rest;   /* unused ends of the units of large objects */
    size_t dirty;        /* free pages kept for reuse */
    size_t mapped;       /* addresses made usable */
    size_t metadata;     /* our own descriptors */
    size_t large_blocks; /* number */
    size_t large_bytes;
    size_t threads;   /* number of thread heaps */
    size_t reentered; /* number of calls of signal handlers served apart */
};
struct heap_totals heap_totals(void);

/* The same with what all threads have counted read before: that part is the dearer the more there are. */
struct heap_totals heap_totals_with(const struct thread_sums *threads);

/* What was ever allocated, by arenas that exist; to be read together with `threads`. */
struct heap_traffic {
    uint64_t objects;
    uint64_t bytes; /* at usable size */
};
struct heap_traffic heap_traffic(const struct thread_sums *threads);

/* Ranges of addresses in which the heap lies, objects and descriptors, each once.  Takes no lock. */
void heap_walk_ranges(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context);

/* Ranges that are the heap's or hold its notes about objects, and whose words must not be taken for pointers of the
 * program.  Takes no lock. */
void heap_walk_notes(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context);

/* Pages of the shared page heap and of those over extent hooks. */
struct pages_totals heap_pages(void);

/* Checks every invariant of the heap, and ends the process where one is broken.  No other thread of the
 * program may allocate, free or end meanwhile. */
void heap_verify(void);

/* Objects of a class that are handed out or cached, slabs of it, and cached objects. */
void heap_class_counts(unsigned size_class, size_t *nslabs, size_t *nout, size_t *ncached);
