/* SPDX-License-Identifier: MIT
 *
 * tcaches.c - caches that belong to no thread.
 *
 * Each is the heap of a thread without the thread, in a list of its own (thread.c), so that
 * searching and counting find what it holds.  It takes nothing from depots: what it hands out was
 * put into it or comes from the arena it was asked for.
 *
 * Threads     One lock per cache, one for the table.  In the child of a fork a cache is as it was;
 *             one whose lock is abandoned is emptied as an orphan is, and goes on.
 */
#include "heap/tcaches.h"

#include <stdatomic.h>

#include "base/lock.h"
#include "base/log.h"
#include "heap/cache.h"
#include "heap/thread.h"

struct tcache {
    struct lock lock;
    struct thread *heap; /* guarded by lock; NULL: destroyed */
};

static struct lock table_lock = LOCK_OF_RANK(RANK_TCACHES);
SPARSE static _Atomic(struct tcache *) caches[TCACHES_MOST];

static struct tcache *find(unsigned id) {
    return id < TCACHES_MOST ? atomic_load_explicit(&caches[id], memory_order_acquire) : NULL;
}

/* Locks a cache and returns its heap; NULL, with nothing locked, when there is none. */
static struct thread *enter(unsigned id) {
    struct tcache *cache = find(id);
    if (cache == NULL) {
        return NULL;
    }
    enum lock_found found = lock_acquire(&cache->lock);
    if (cache->heap == NULL) {
        lock_release(&cache->lock);
        return NULL;
    }
    if (UNLIKELY(found == LOCK_ABANDONED)) {
        cache_recover(cache->heap);
    }
    assert(cache->heap->apart && cache->heap != tls.self);
    return cache->heap;
}

static void leave(unsigned id) {
    assert(lock_is_mine(&find(id)->lock));
    lock_release(&find(id)->lock);
}

/* Call with the table locked: the lowest free number, with a cache behind it that has no heap. */
static int take_number(void) {
    assert(lock_is_mine(&table_lock));
    for (unsigned id = 0; id < TCACHES_MOST; id++) {
        struct tcache *cache = find(id);
        if (cache != NULL && __atomic_load_n(&cache->heap, __ATOMIC_RELAXED) != NULL) {
            continue;
        }
        if (cache == NULL) {
            cache = meta_alloc(sizeof(struct tcache), CACHE_LINE);
            if (cache == NULL) {
                return -1;
            }
            cache->lock = (struct lock)LOCK_OF_RANK(RANK_TCACHE);
            /* Release: whoever finds the cache finds its lock. */
            atomic_store_explicit(&caches[id], cache, memory_order_release);
        }
        return (int)id;
    }
    return -1;
}

static void set_heap(struct tcache *cache, struct thread *heap) {
    assert(lock_is_mine(&cache->lock) && (heap == NULL) != (cache->heap == NULL));
    __atomic_store_n(&cache->heap, heap, __ATOMIC_RELAXED);
}

int tcaches_create(void) {
    (void)lock_acquire(&table_lock);
    int id = take_number();
    struct thread *heap = id >= 0 ? thread_make_apart() : NULL;
    if (heap != NULL) {
        struct tcache *cache = atomic_load_explicit(&caches[id], memory_order_acquire);
        (void)lock_acquire(&cache->lock);
        set_heap(cache, heap);
        lock_release(&cache->lock);
    }
    lock_release(&table_lock);
    return heap != NULL ? id : -1;
}

bool tcaches_exists(unsigned id) {
    const struct tcache *cache = find(id);
    return cache != NULL && __atomic_load_n(&cache->heap, __ATOMIC_RELAXED) != NULL;
}

void tcaches_flush(unsigned id) {
    struct thread *heap = enter(id);
    if (heap != NULL) {
        cache_flush(heap);
        leave(id);
    }
}

void tcaches_flush_all(void) {
    for (unsigned id = 0; id < TCACHES_MOST && find(id) != NULL; id++) {
        tcaches_flush(id);
    }
}

void tcaches_destroy(unsigned id) {
    struct thread *heap = enter(id);
    if (heap != NULL) {
        cache_flush(heap);
        set_heap(atomic_load_explicit(&caches[id], memory_order_relaxed), NULL);
        leave(id);
        thread_end_apart(heap);
    }
}

bool tcaches_alloc(unsigned id, unsigned arena, unsigned size_class, void **object) {
    struct thread *heap = enter(id);
    if (heap == NULL) {
        return false;
    }
    __atomic_store_n(&heap->arena, (uint16_t)arena, __ATOMIC_RELAXED);
    *object = cache_alloc(heap, size_class);
    leave(id);
    return true;
}

bool tcaches_free(unsigned id, unsigned size_class, void *object) {
    struct thread *heap = enter(id);
    if (heap == NULL) {
        return false;
    }
    cache_free(heap, size_class, object);
    leave(id);
    return true;
}

size_t tcaches_verify(struct verify *walk) {
    size_t count = 0;
    for (unsigned id = 0; id < TCACHES_MOST && find(id) != NULL; id++) {
        struct thread *heap = enter(id);
        if (heap != NULL) {
            ensure(heap->apart && heap->generation != lock_generation());
            cache_verify(heap, CACHE_OF_NO_THREAD, walk);
            leave(id);
            count++;
        }
    }
    return count;
}
