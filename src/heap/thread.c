/* SPDX-License-Identifier: MIT
 *
 * thread.c - heaps of threads: made when earned, listed, given up at exit.
 *
 * A thread's first calls go straight to the bins of its arena, so a thread that holds one block
 * costs no page of ours.  Its heap is made at the 16th slow call.  Heaps are recycled through a
 * list; their memory is never unmapped.
 *
 *      all       heaps of threads, and those in `left`
 *      left[]    one per arena: given up with all it holds, for the next thread of that arena
 *      orphans   heaps of threads that do not exist in this process, which was forked
 *      unused    empty ones
 *
 * A program that starts threads again and again finds the heap of the last one ready.  In a forked
 * child the orphans are emptied one class at a time, at slow calls, because each touches pages that
 * parent and child still share, and many a child is about to call exec.
 *
 * Threads     The list of heaps is guarded by g.lock.  Searching and counting read other threads'
 *             tops while those threads run; thread_any_holds says why that is sound.
 * Read next   cache.c, which moves the objects.
 */
#include "heap/thread.h"

#include <stdatomic.h>

#include "base/attention.h"
#include "base/lock.h"
#include "base/opt.h"
#include "heap/arena.h"
#include "heap/cache.h"
#include "heap/classmap.h"
#include "heap/meta.h"
#include "heap/slab.h"

enum { CALLS_BEFORE_HEAP = 16 };

/* The block of zeros: read only, shared by all threads without a heap. */
static const struct hot zeros;

__thread struct tls tls __attribute__((tls_model("initial-exec"))) = {
    .hot = (struct hot *)(uintptr_t)&zeros,
};

static struct {
    struct lock lock;
    struct thread *all;
    struct thread *orphans;
    struct thread *unused;                      /* linked by next only */
    _Atomic size_t count;                       /* of the heaps in `all` and `orphans` */
    _Atomic(struct thread *) left[MOST_ARENAS]; /* taken and put without the lock */
} g;

static size_t repair_list(struct thread **link) {
    size_t count = 0;
    for (struct thread *thread = *link; thread != NULL; thread = thread->next) {
        thread->link = link;
        link = &thread->next;
        count++;
    }
    return count;
}

/* The forward links are always whole; what is derived from them is derived again. */
static COLD void repair(void) {
    g.count = repair_list(&g.all) + repair_list(&g.orphans);
}

static void enter(void) {
    if (UNLIKELY(lock_acquire(&g.lock) == LOCK_ABANDONED)) {
        repair();
    }
}

void thread_init(void) {
    g.lock = (struct lock)LOCK_OF_RANK(RANK_THREADS);
}

static void fill_hot(struct hot *hot) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        const struct size_class *sc = &size_classes[c];
        hot->rec[c] = (struct rec){.mult = sc->mult, .limit = sc->limit, .mask = sc->slab_mask};
    }
    for (size_t i = 0; i <= TABLE_MAX / 16; i++) {
        hot->tab[i] = (uint8_t)(size_class_of(i * 16) * 4);
    }
    hot->secret = slab_secret;
}

static struct thread *take_heap(void) {
    enter();
    struct thread *thread = g.unused;
    if (thread != NULL) {
        g.unused = thread->next;
    }
    lock_release(&g.lock);
    return thread != NULL ? thread : meta_alloc(sizeof(struct thread), CACHE_LINE);
}

static void push(struct thread **list, struct thread *thread) {
    thread->next = *list;
    thread->link = list;
    if (*list != NULL) {
        (*list)->link = &thread->next;
    }
    *list = thread;
}

static void unlink(struct thread *thread) {
    *thread->link = thread->next;
    if (thread->next != NULL) {
        thread->next->link = thread->link;
    }
}

static void list_heap(struct thread *thread) {
    enter();
    push(&g.all, thread);
    g.count++;
    lock_release(&g.lock);
}

/* Call with the lock held; the heap is empty. */
static void retire_heap(struct thread *thread) {
    unlink(thread);
    thread->next = g.unused;
    g.unused = thread;
    g.count--;
}

static void empty_and_retire(struct thread *thread) {
    cache_flush(thread);
    enter();
    retire_heap(thread);
    lock_release(&g.lock);
}

/* ---------------------------------------------------------------- a thread gets its heap */

static void prepare_heap(struct thread *thread, unsigned arena) {
    fill_hot(&thread->hot);
    __builtin_memset(thread->room, 0, sizeof(thread->room));
    __builtin_memset(thread->cap, 0, sizeof(thread->cap));
    __builtin_memset(thread->seen, 0, sizeof(thread->seen));
    thread->arena = (uint16_t)arena;
    thread->spare_bytes = opt.thread_cache_bytes;
}

static struct thread *own_heap(struct thread *thread) {
    tls.self = thread;
    bool parked = classmap_is_windowed() || opt.all_slow;
    if (!parked) {
        tls.hot = &thread->hot;
    }
    return thread;
}

/* Whole with all it holds, or NULL. */
static struct thread *take_left(unsigned arena) {
    if (atomic_load_explicit(&g.left[arena], memory_order_relaxed) == NULL) {
        return NULL;
    }
    /* Acquire: its last owner wrote it. */
    return atomic_exchange_explicit(&g.left[arena], NULL, memory_order_acquire);
}

static COLD struct thread *earn_heap(void) {
    if (tls.dead || attention_get() & ATTENTION_FORKED) {
        return NULL;
    }
    /* Asks libc, which another library may have replaced by something that allocates. */
    unsigned arena = arena_choose();
    struct thread *thread = take_left(arena);
    if (thread == NULL && ++tls.calls >= CALLS_BEFORE_HEAP) {
        thread = take_heap();
        if (thread != NULL) {
            prepare_heap(thread, arena);
            list_heap(thread);
        }
    }
    return thread != NULL ? own_heap(thread) : NULL;
}

struct thread *thread_self(void) {
    return LIKELY(tls.self != NULL) ? tls.self : earn_heap();
}

void thread_flush(void) {
    if (tls.self != NULL) {
        cache_flush(tls.self);
    }
}

/* ---------------------------------------------------------------- a thread leaves */

void thread_exit(void) {
    struct thread *thread = tls.self;
    tls.dead = 1;
    if (thread == NULL) {
        return;
    }
    tls.hot = (struct hot *)(uintptr_t)&zeros;
    tls.self = NULL;
    /* Release for the one who takes it; acquire for the one we take in exchange. */
    thread = atomic_exchange_explicit(&g.left[thread->arena], thread, memory_order_acq_rel);
    if (thread != NULL) {
        empty_and_retire(thread);
    }
}

void thread_flush_left(void) {
    for (unsigned arena = 0; arena < arena_count(); arena++) {
        struct thread *thread = take_left(arena);
        if (thread != NULL) {
            empty_and_retire(thread);
        }
    }
}

/* ---------------------------------------------------------------- after a fork */

/* Constant work: whole lists change hands, and only one heap besides our own is written to. */
void thread_forked(void) {
    enter();
    if (tls.self != NULL) {
        unlink(tls.self);
    }
    struct thread **end = &g.orphans;
    while (*end != NULL) { /* Empty, unless this child was forked before all were recovered. */
        end = &(*end)->next;
    }
    struct thread *others = g.all;
    g.all = NULL; /* First, so that no heap is ever in both lists. */
    *(struct thread *volatile *)end = others;
    if (others != NULL) {
        others->link = end;
    }
    if (tls.self != NULL) {
        push(&g.all, tls.self);
    }
    for (unsigned arena = 0; arena < arena_count(); arena++) {
        atomic_store_explicit(&g.left[arena], NULL, memory_order_relaxed);
    }
    lock_release(&g.lock);
}

/*
 * The tops of a heap are sound wherever its thread was stopped: what is being moved belongs to
 * nobody then, and is lost.  Of the first orphan, one class that has magazines.
 */
bool thread_recover_some(void) {
    enter();
    struct thread *orphan = g.orphans;
    unsigned c = 1;
    while (orphan != NULL && c < CLASS_COUNT && orphan->hot.rec[c].take == 0) {
        c++;
    }
    if (orphan != NULL && c < CLASS_COUNT) {
        cache_recover_class(orphan, c);
    } else if (orphan != NULL) {
        retire_heap(orphan);
    }
    bool more = g.orphans != NULL;
    lock_release(&g.lock);
    return more;
}

/* ---------------------------------------------------------------- looking into other heaps */

static uintptr_t read_top(const uintptr_t *top) {
    /* Acquire: the slots below the top are read next. */
    return __atomic_load_n(top, __ATOMIC_ACQUIRE);
}

/* The owner fills slots by plain stores and copies meanwhile; an aligned word is read old or new
 * and never torn, and thread_any_holds says why either will do.  The thread sanitizer is told. */
__attribute__((no_sanitize("thread"))) static bool slots_hold(void *const *slots, unsigned count,
                                                              const void *object) {
    for (unsigned i = 0; i < count; i++) {
        if (((void *const volatile *)slots)[i] == object) {
            return true;
        }
    }
    return false;
}

static uint8_t read_byte(const uint8_t *byte) {
    return __atomic_load_n(byte, __ATOMIC_ACQUIRE);
}

/* The filled slots of a giving magazine, read while its owner may be changing its room: top and room
 * belong together only if the class was not opened in between. */
static unsigned read_given(const struct thread *thread, unsigned c, void *const **slots) {
    uint8_t turn = read_byte(&thread->turn[c]);
    uintptr_t give = read_top(&thread->hot.rec[c].give);
    unsigned cap = read_byte(&thread->cap[c]);
    if (give == 0 || cap == 0 || read_byte(&thread->turn[c]) != turn) {
        return 0;
    }
    uintptr_t start = magazine_give_start(magazine_of_give(give), cap);
    *slots = (void *const *)start;
    return give > start ? (unsigned)((give - start) / sizeof(void *)) : 0;
}

static bool heap_holds(const struct thread *thread, unsigned c, const void *object) {
    uintptr_t take = read_top(&thread->hot.rec[c].take);
    if (take != 0 && slots_hold(magazine_of_take(take)->slots, magazine_take_count(take), object)) {
        return true;
    }
    void *const *given = NULL;
    unsigned count = read_given(thread, c, &given);
    return slots_hold(given, count, object);
}

/*
 * The caller owns `object` since before this search, or it would not be freeing it rightly.  A slot
 * below a top that was read after the search began was therefore put there by somebody who freed
 * the object as well.  An object on its way between magazines can be missed, never invented.
 */
bool thread_any_holds(unsigned size_class, const void *object) {
    bool found = false;
    enter();
    for (struct thread *thread = g.all; thread != NULL && !found; thread = thread->next) {
        found = heap_holds(thread, size_class, object);
    }
    for (struct thread *thread = g.orphans; thread != NULL && !found; thread = thread->next) {
        found = heap_holds(thread, size_class, object);
    }
    lock_release(&g.lock);
    return found;
}

static size_t count_in_list(const struct thread *thread, unsigned size_class) {
    size_t sum = 0;
    for (; thread != NULL; thread = thread->next) {
        void *const *given;
        sum += magazine_take_count(read_top(&thread->hot.rec[size_class].take));
        sum += read_given(thread, size_class, &given);
    }
    return sum;
}

size_t thread_count_cached(unsigned size_class) {
    enter();
    size_t sum = count_in_list(g.all, size_class) + count_in_list(g.orphans, size_class);
    lock_release(&g.lock);
    return sum;
}

size_t thread_count(void) {
    return atomic_load_explicit(&g.count, memory_order_relaxed);
}
