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
 *      apart     explicit caches (tcaches.c), which have no thread and survive a fork
 *      unused    empty ones
 *      every     all of these, in the order in which they were made
 *
 * A program that starts threads again and again finds the heap of the last one ready.  In a forked
 * child the orphans are emptied one class at a time, at slow calls, because each touches pages that
 * parent and child still share, and many a child is about to call exec.
 *
 * Threads     The lists of heaps are guarded by g.lock, but for `every`, which only grows: counting
 *             takes no lock.  Searching and counting read other threads' tops while those threads
 *             run; thread_any_holds says why that is sound.
 * Read next   cache.c, which moves the objects.
 */
#include "heap/thread.h"

#include <stdatomic.h>

#include "base/attention.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_confined.h"
#include "base/os_threads.h"
#include "heap/arena.h"
#include "heap/cache.h"
#include "heap/classmap.h"
#include "heap/stash.h"
#include "heap/track.h"
#include "opt/opt.h"

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
    struct thread *apart;
    struct thread *unused;                      /* linked by next only */
    _Atomic size_t count;                       /* of the heaps in `all` and `orphans` */
    _Atomic(struct thread *) left[MOST_ARENAS]; /* taken and put without the lock */
    _Atomic(struct thread *) every;             /* linked by older */
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
    (void)repair_list(&g.apart);
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
    size_t first = 0; /* in the table, of the sizes that are rounded to those of a class */
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        const struct size_class *sc = &size_classes[c];
        hot->rec[c] = (struct rec){.mult = sc->mult, .limit = sc->limit, .mask = sc->slab_mask};
        size_t end = sc->size / 16 + 1;
        __builtin_memset(hot->tab + first, (int)c * 4, end - first);
        first = end;
    }
    assert(first == sizeof(hot->tab));
    hot->secret = slab_secret;
}

static struct thread *make_heap(void) {
    struct thread *thread = meta_alloc(sizeof(struct thread), CACHE_LINE);
    if (thread == NULL) {
        return NULL;
    }
    fill_hot(&thread->hot);
    thread->claim = (struct lock)LOCK_OF_RANK(RANK_CLAIM);
    thread->older = atomic_load_explicit(&g.every, memory_order_relaxed);
    /* Release: whoever finds the heap finds it whole. */
    while (!atomic_compare_exchange_weak_explicit(&g.every, &thread->older, thread,
                                                  memory_order_release, memory_order_relaxed)) {
    }
    return thread;
}

bool thread_is_empty(const struct thread *thread) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        if (thread->hot.rec[c].take != 0 || stash_count(thread, c) != 0) {
            return false;
        }
    }
    return shelf_is_empty(&thread->shelf);
}

static struct thread *take_heap(void) {
    enter();
    struct thread *thread = g.unused;
    if (thread != NULL) {
        g.unused = thread->next;
    }
    lock_release(&g.lock);
    return thread != NULL ? thread : make_heap();
}

static void push(struct thread **list, struct thread *thread) {
    assert(lock_is_mine(&g.lock) && *list != thread);
    thread->next = *list;
    thread->link = list;
    if (*list != NULL) {
        (*list)->link = &thread->next;
    }
    *list = thread;
}

static void unlink(struct thread *thread) {
    assert(lock_is_mine(&g.lock) && *thread->link == thread);
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

/* Call with the lock held; the heap is empty and its counts are settled. */
static void retire_heap(struct thread *thread) {
    assert(thread_is_empty(thread) && g.count >= 1);
    unlink(thread);
    thread->next = g.unused;
    g.unused = thread;
    g.count--;
}

static void empty_and_retire(struct thread *thread) {
    cache_flush(thread);
    thread_settle_counts(thread);
    enter();
    retire_heap(thread);
    lock_release(&g.lock);
}

/* ---------------------------------------------------------------- bytes of one thread */

/* What went through a heap, in bytes. */
struct traffic {
    uint64_t allocated, deallocated;
};

/* The traffic of a heap that nobody changes meanwhile. */
static struct traffic traffic_of(const struct thread *thread) {
    struct traffic sum = {0};
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        uint64_t filled = thread->filled[c];
        const struct rec *rec = &thread->hot.rec[c];
        uint64_t freed =
            filled - thread->fetched[c] + magazine_give_count(rec->give, thread->cap[c]);
        sum.allocated += (filled - magazine_take_count(rec->take)) * size_classes[c].size;
        sum.deallocated += freed * size_classes[c].size;
    }
    return sum;
}

/* The caller takes over what a heap has counted, or leaves it out of its own sums. */
static void add_traffic(const struct thread *thread) {
    struct traffic traffic = traffic_of(thread);
    tls.allocated += traffic.allocated;
    tls.deallocated += traffic.deallocated;
}

static void subtract_traffic(const struct thread *thread) {
    struct traffic traffic = traffic_of(thread);
    tls.allocated -= traffic.allocated;
    tls.deallocated -= traffic.deallocated;
}

/* ---------------------------------------------------------------- a thread gets its heap */

/* Objects of a class that may be cached where the largest cached object has `bytes` bytes. */
static uint8_t most_of(unsigned size_class, size_t bytes) {
    const struct size_class *sc = &size_classes[size_class];
    return (uint8_t)(sc->size <= bytes ? sc->room_max : 0);
}

/* How much of each class a thread may cache, as the options say. */
static void limit_by_options(struct thread *thread) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        thread->most[c] = most_of(c, opt.tcache_max);
    }
    const char *list = opt.tcache_ncached_max;
    const char *end = list + __builtin_strlen(list);
    struct opt_range range;
    while (UNLIKELY(opt_next_range(&list, end, &range))) {
        for (unsigned c = 1; c < CLASS_COUNT; c++) {
            if (size_classes[c].size >= range.from && size_classes[c - 1].size < range.to) {
                thread->most[c] = (uint8_t)min_size(range.value, 2 * MAGAZINE_MOST);
            }
        }
    }
}

/* No sample is due until the owner, if there is one, draws. */
static void never_sample(struct thread *thread) {
    thread->epoch = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        thread->due[c] = thread->filled[c] + TRACK_NEVER;
    }
}

static void prepare_heap(struct thread *thread, unsigned arena) {
    assert(thread_is_empty(thread) && arena < ARENA_INDICES);
    limit_by_options(thread);
    thread->apart = false;
    thread->is_custom = false;
    thread->exact = (struct thread_exact){0};
    __builtin_memset(thread->room, 0, sizeof(thread->room));
    __builtin_memset(thread->seen, 0, sizeof(thread->seen));
    __atomic_store_n(&thread->arena, (uint16_t)arena, __ATOMIC_RELAXED);
    cache_begin_budget(thread);
    never_sample(thread);
}

static struct thread *new_heap(unsigned arena) {
    struct thread *thread = take_heap();
    if (thread != NULL) {
        prepare_heap(thread, arena);
        list_heap(thread);
    }
    return thread;
}

/* Release: who sees that there is an owner finds it. */
static void set_owner(struct thread *thread, struct tls *owner) {
    thread->owner = owner;
    thread->number = owner != NULL && os_may_ask_kernel() ? os_thread_id() : 0;
    __atomic_store_n(&thread->generation, owner != NULL ? lock_generation() : 0, __ATOMIC_RELEASE);
}

/* Parks the caller, or lets it use the fast paths. */
static void choose_path(void) {
    bool parked = tls.self == NULL || classmap_is_windowed() || opt.all_slow ||
                  tls.modes & (THREAD_UNCACHED | THREAD_HOOKED | THREAD_EXACT | THREAD_IGNORED);
    tls.hot = parked ? (struct hot *)(uintptr_t)&zeros : &tls.self->hot;
    assert(magazine_take_is_empty(zeros.rec[0].take) && (parked || tls.self != NULL));
}

static struct thread *own_heap(struct thread *thread) {
    assert(tls.self == NULL && !tls.dead);
    assert(!thread->apart && !thread->is_custom);
    subtract_traffic(thread); /* of earlier owners */
    thread->sleep = THREAD_AWAKE;
    set_owner(thread, &tls);
    tls.self = thread;
    if (!opt.tcache) {
        tls.modes |= THREAD_UNCACHED;
    }
    choose_path();
    attention_raise(ATTENTION_BACKGROUND); /* to look whether this thread sleeps */
    return thread;
}

/* The heap that was left for this arena, with all it holds, or NULL. */
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
    struct thread *thread = take_left(arena_choose());
    if (thread != NULL) {
        (void)arena_bind(thread->arena);
        return own_heap(thread);
    }
    if (++tls.calls < CALLS_BEFORE_HEAP) {
        return NULL;
    }
    unsigned arena = arena_claim();
    thread = new_heap(arena);
    if (thread == NULL) {
        arena_unbind(arena);
        return NULL;
    }
    return own_heap(thread);
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
    bool may_stay = tls.modes == 0 && !thread->apart && !thread->is_custom;
    (void)lock_acquire(&thread->claim);
    tls.self = NULL;
    add_traffic(thread);
    set_owner(thread, NULL);
    tls.modes &= THREAD_IN_HOOK | THREAD_IGNORED;
    tls.claimed = 0;
    choose_path();
    lock_release(&thread->claim);
    arena_unbind(thread->arena);
    assert(tls.hot == &zeros && thread->generation == 0);
    if (!may_stay) {
        empty_and_retire(thread);
        return;
    }
    /* Release for the next owner of this heap; acquire for the heap taken in exchange. */
    thread = atomic_exchange_explicit(&g.left[thread->arena], thread, memory_order_acq_rel);
    if (thread != NULL) {
        empty_and_retire(thread);
    }
}

/* ---------------------------------------------------------------- a thread sleeps (sleepers.c) */

void thread_park_owner(struct thread *thread) {
    assert(lock_is_mine(&thread->claim) && thread->owner != &tls);
    __atomic_store_n(&thread->owner->claimed, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&thread->owner->hot, (struct hot *)(uintptr_t)&zeros, __ATOMIC_RELAXED);
}

/* Where the lock was abandoned, whoever emptied the heap vanished in a fork that this thread made. */
COLD void thread_wake(void) {
    struct thread *thread = tls.self;
    assert(thread != NULL && tls.inside && thread->owner == &tls);
    (void)lock_acquire(&thread->claim);
    if (thread->sleep == THREAD_EMPTYING) {
        cache_recover(thread);
    }
    thread->sleep = THREAD_AWAKE;
    tls.claimed = 0;
    choose_path();
    lock_release(&thread->claim);
    attention_raise(ATTENTION_BACKGROUND);
}

/* ---------------------------------------------------------------- heaps without a thread */

void thread_flush_left(void) {
    for (unsigned arena = 0; arena < arena_count(); arena++) {
        struct thread *thread = take_left(arena);
        if (thread != NULL) {
            assert(thread->arena == arena && thread->generation == 0);
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
        set_owner(tls.self, &tls);
    }
    for (unsigned arena = 0; arena < arena_count(); arena++) {
        atomic_store_explicit(&g.left[arena], NULL, memory_order_relaxed);
    }
    lock_release(&g.lock);
    arena_forked();
    if (tls.self != NULL) {
        (void)arena_bind(tls.self->arena);
    }
}

/*
 * The tops of a heap are sound wherever its thread was stopped: what is being moved belongs to
 * nobody then, and is lost.  Recovers one class with magazines, of the first orphan.
 */
bool thread_recover_some(void) {
    enter();
    struct thread *orphan = g.orphans;
    unsigned c = 1;
    while (orphan != NULL && c < CLASS_COUNT && orphan->hot.rec[c].take == 0) {
        c++;
    }
    assert(orphan == NULL || orphan->generation != lock_generation());
    if (orphan != NULL && c < CLASS_COUNT) {
        cache_recover_class(orphan, c);
    } else if (orphan != NULL) {
        stash_empty(orphan, 0);
        shelf_empty(orphan);
        thread_settle_counts(orphan);
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

/* The filled slots of a giving magazine, read while its owner may be changing its room: top and
 * room belong together only if the class was not opened in between. */
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
    assert(c >= 1 && c < CLASS_COUNT);
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
    struct thread *const lists[] = {g.all, g.apart, g.orphans};
    for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (struct thread *thread = lists[i]; thread != NULL && !found; thread = thread->next) {
            found = heap_holds(thread, size_class, object);
        }
    }
    lock_release(&g.lock);
    return found;
}

/* ---------------------------------------------------------------- counting */

enum { LOOKS_MOST = 16 };

/* A class of a heap as it was at one moment. */
struct look {
    uint64_t filled, fetched;
    unsigned in_take, in_give;
};

/* False when the owner was moving the class's objects: then A and what was filled into it may not
 * belong together. */
static bool look_once(const struct thread *thread, unsigned c, struct look *look) {
    const struct rec *rec = &thread->hot.rec[c];
    void *const *given;
    uint8_t turn = read_byte(&thread->turn[c]);
    bool was_open = read_top(&rec->give) != 0;
    look->filled = __atomic_load_n(&thread->filled[c], __ATOMIC_ACQUIRE);
    look->fetched = __atomic_load_n(&thread->fetched[c], __ATOMIC_ACQUIRE);
    look->in_give = read_given(thread, c, &given);
    uintptr_t take = read_top(&rec->take);
    look->in_take = magazine_take_count(take);
    bool is_open = read_top(&rec->give) != 0;
    return (take == 0 || (was_open && is_open)) && read_byte(&thread->turn[c]) == turn;
}

/* A class that a fork caught in the middle of a move stays closed, and is taken as it is. */
static struct look look_at(const struct thread *thread, unsigned c) {
    struct look look;
    for (unsigned i = 0; i < LOOKS_MOST && !look_once(thread, c, &look); i++) {
    }
    return look;
}

struct thread *thread_first(void) {
    return atomic_load_explicit(&g.every, memory_order_acquire);
}

size_t thread_count_cached(unsigned size_class) {
    size_t sum = 0;
    for (const struct thread *thread = thread_first(); thread != NULL; thread = thread->older) {
        struct look look = look_at(thread, size_class);
        sum += look.in_take + look.in_give + stash_count(thread, size_class);
    }
    return sum;
}

size_t thread_cached_bytes(void) {
    size_t bytes = 0;
    for (unsigned c = 1; tls.self != NULL && c < CLASS_COUNT; c++) {
        struct look look = look_at(tls.self, c);
        bytes += (look.in_take + look.in_give + stash_count(tls.self, c)) * size_classes[c].size;
    }
    return bytes;
}

static void add_heap(const struct thread *thread, struct thread_sums *sums) {
    sums->threads += __atomic_load_n(&thread->generation, __ATOMIC_RELAXED) == lock_generation();
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        struct look look = look_at(thread, c);
        sums->requests[c] += look.filled - look.in_take;
        sums->cached[c] += look.in_take + look.in_give + stash_count(thread, c);
    }
}

struct thread_sums thread_read_arena(unsigned arena) {
    struct thread_sums sums = {0};
    for (const struct thread *thread = thread_first(); thread != NULL; thread = thread->older) {
        if (arena == THREAD_ALL_ARENAS ||
            __atomic_load_n(&thread->arena, __ATOMIC_RELAXED) == arena) {
            add_heap(thread, &sums);
        }
    }
    return sums;
}

/* The sums become those of a heap that has served nobody yet and holds the same objects.  What is
 * due is drawn anew, since it was relative to the old sums. */
void thread_settle_counts(struct thread *thread) {
    thread->epoch = 0;
    if (thread == tls.self) {
        add_traffic(thread);
    }
    shelf_settle(thread);
    uint64_t *requests = arena_get(thread->arena)->sums.requests;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        struct look look = look_at(thread, c);
        count_set(&thread->filled[c], look.in_take);
        assert(thread != tls.self || look.filled >= look.in_take);
        count_set(&thread->fetched[c], look.in_take + look.in_give);
        if (look.filled != look.in_take) {
            count_add_shared(&requests[c], look.filled - look.in_take);
        }
    }
}

struct lock *thread_list_lock(void) {
    return &g.lock;
}

size_t thread_count(void) {
    return atomic_load_explicit(&g.count, memory_order_relaxed);
}

/* ---------------------------------------------------------------- explicit caches */

struct thread *thread_make_apart(void) {
    struct thread *apart = take_heap();
    if (apart != NULL) {
        prepare_heap(apart, 0);
        apart->apart = true;
        assert(apart->generation != lock_generation());
        enter();
        push(&g.apart, apart);
        lock_release(&g.lock);
    }
    return apart;
}

void thread_end_apart(struct thread *apart) {
    assert(apart->apart && thread_is_empty(apart));
    thread_settle_counts(apart);
    enter();
    unlink(apart);
    apart->next = g.unused;
    g.unused = apart;
    lock_release(&g.lock);
}

/* ---------------------------------------------------------------- what a thread asks for itself */

/* The caller's heap, made at once if need be; NULL without memory, or when the thread is ending. */
static struct thread *demand_heap(void) {
    if (tls.self == NULL) {
        tls.calls = CALLS_BEFORE_HEAP;
    }
    return thread_self();
}

unsigned thread_arena(void) {
    return tls.self != NULL ? tls.self->arena : arena_choose();
}

bool thread_set_arena(unsigned arena) {
    struct thread *thread = arena_exists(arena) ? demand_heap() : NULL;
    if (thread == NULL || !arena_bind(arena)) {
        return false;
    }
    cache_flush(thread);
    thread_settle_counts(thread);
    arena_unbind(thread->arena);
    __atomic_store_n(&thread->arena, (uint16_t)arena, __ATOMIC_RELAXED);
    thread->apart = arena_is_manual(arena);
    assert(thread_is_empty(thread));
    tls.modes &= (uint8_t) ~(THREAD_HOOKED | THREAD_UNSETTLED);
    tls.modes |= arena_uses_hooks(arena) ? THREAD_HOOKED : 0;
    choose_path();
    return true;
}

void thread_note_hooks(void) {
    if (tls.self != NULL && arena_uses_hooks(tls.self->arena)) {
        tls.modes |= THREAD_HOOKED | THREAD_UNSETTLED;
    }
}

COLD void thread_settle_modes(void) {
    if (tls.modes & THREAD_UNSETTLED) {
        assert(tls.self != NULL && tls.modes & THREAD_HOOKED);
        cache_flush(tls.self);
        tls.modes &= (uint8_t)~THREAD_UNSETTLED;
        choose_path();
    } else if (tls.modes & THREAD_HOOKED && !arena_uses_hooks(tls.self->arena)) {
        tls.modes &= (uint8_t)~THREAD_HOOKED;
        choose_path();
    }
}

bool thread_is_cached(void) {
    return tls.self != NULL ? !(tls.modes & THREAD_UNCACHED) : opt.tcache;
}

void thread_set_cached(bool cached) {
    struct thread *thread = demand_heap();
    if (thread == NULL) {
        return;
    }
    if (!cached) {
        cache_flush(thread);
    }
    tls.modes = (uint8_t)(cached ? tls.modes & ~THREAD_UNCACHED : tls.modes | THREAD_UNCACHED);
    choose_path();
}

void thread_set_ignored(bool is_ignored) {
    tls.modes = (uint8_t)(is_ignored ? tls.modes | THREAD_IGNORED : tls.modes & ~THREAD_IGNORED);
    choose_path();
}

size_t thread_cache_max(void) {
    size_t bytes = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        if (thread_class_max(c) != 0) {
            bytes = size_classes[c].size;
        }
    }
    return bytes;
}

/* Classes that become cached again get their usual limit. */
void thread_set_cache_max(size_t bytes) {
    struct thread *thread = demand_heap();
    for (unsigned c = 1; thread != NULL && c < CLASS_COUNT; c++) {
        if ((size_classes[c].size <= bytes) != (thread->most[c] != 0)) {
            thread_set_class_max(c, most_of(c, bytes));
        }
    }
}

unsigned thread_class_max(unsigned size_class) {
    return tls.self != NULL ? tls.self->most[size_class] : most_of(size_class, opt.tcache_max);
}

void thread_set_class_max(unsigned size_class, unsigned objects) {
    assert(size_class >= 1 && size_class < CLASS_COUNT);
    struct thread *thread = demand_heap();
    if (thread != NULL) {
        cache_flush_class(thread, size_class);
        thread->most[size_class] = (uint8_t)min_size(objects, 2 * MAGAZINE_MOST);
        thread->is_custom = true;
    }
}

/* ---------------------------------------------------------------- inside and outside */

bool thread_is_inside(void) {
    return tls.inside;
}

void thread_set_inside(bool is_inside) {
    thread_mark_inside(is_inside);
}

const uint8_t *thread_inside_mark(void) {
    return &tls.inside;
}

/* Libc frees a few things of such a thread when it ends; that must not make it use the heap. */
void thread_enroll(void) {
    tls.registered = 1;
    tls.dead = 1;
}

struct thread_outside thread_go_outside(void) {
    struct thread_outside before = {os_error(), tls.inside};
    thread_mark_inside(false);
    return before;
}

void thread_come_back(struct thread_outside before) {
    thread_mark_inside(before.was_inside);
    os_set_error(before.error);
}

/* ---------------------------------------------------------------- exact counting */

uint64_t thread_allocated(void) {
    return tls.allocated + (tls.self != NULL ? traffic_of(tls.self).allocated : 0);
}

uint64_t thread_deallocated(void) {
    return tls.deallocated + (tls.self != NULL ? traffic_of(tls.self).deallocated : 0);
}

static int64_t sum_fetched(const struct thread *thread) {
    uint64_t bytes = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        bytes += thread->fetched[c] * size_classes[c].size;
    }
    return (int64_t)bytes;
}

COLD void thread_look_at_peak(void) {
    int64_t now = (int64_t)(thread_allocated() - thread_deallocated());
    int64_t most = (int64_t)(tls.allocated - tls.deallocated);
    tls.peak = now > tls.peak ? now : tls.peak;
    if (tls.self != NULL) {
        tls.self->fetched_bytes = sum_fetched(tls.self);
        most += tls.self->fetched_bytes;
    }
    int64_t next = most + THREAD_PEAK_STEP;
    tls.look_at = next > tls.look_at ? next : tls.look_at;
}

static int64_t held(const struct thread_exact *exact) {
    return (int64_t)(exact->allocated - exact->deallocated);
}

/* The program reads the two sums where they stand. */
static void add(uint64_t *sum, size_t bytes) {
    __atomic_store_n(sum, *sum + bytes, __ATOMIC_RELAXED);
}

void thread_count_alloc(size_t bytes) {
    assert(tls.self != NULL && tls.modes & THREAD_EXACT);
    struct thread_exact *exact = &tls.self->exact;
    add(&exact->allocated, bytes);
    int64_t above = held(exact) - exact->base;
    exact->peak = above > exact->peak ? above : exact->peak;
}

void thread_count_free(size_t bytes) {
    assert(tls.self != NULL && tls.modes & THREAD_EXACT);
    add(&tls.self->exact.deallocated, bytes);
}

/* The free comes first, so that no peak has both. */
void thread_count_kept(size_t usable) {
    if (tls.modes & THREAD_EXACT) {
        thread_count_free(usable);
        thread_count_alloc(usable);
    }
}

/* Starts from what was derived, and from the peak that was seen, so far; NULL without a heap. */
static struct thread_exact *count_exactly(void) {
    struct thread *thread = demand_heap();
    if (thread != NULL && !(tls.modes & THREAD_EXACT)) {
        thread->exact = (struct thread_exact){.allocated = thread_allocated(),
                                              .deallocated = thread_deallocated()};
        int64_t now = held(&thread->exact);
        thread->exact.peak = now > tls.peak ? now : tls.peak;
        tls.modes |= THREAD_EXACT;
        choose_path();
    }
    return thread != NULL ? &thread->exact : NULL;
}

uint64_t *thread_allocated_live(void) {
    struct thread_exact *exact = count_exactly();
    return exact != NULL ? &exact->allocated : NULL;
}

uint64_t *thread_deallocated_live(void) {
    struct thread_exact *exact = count_exactly();
    return exact != NULL ? &exact->deallocated : NULL;
}

uint64_t thread_peak(void) {
    const struct thread_exact *exact = count_exactly();
    return exact != NULL ? (uint64_t)exact->peak : 0;
}

void thread_reset_peak(void) {
    struct thread_exact *exact = count_exactly();
    if (exact != NULL) {
        exact->base = held(exact);
        exact->peak = 0;
    }
}

/* ---------------------------------------------------------------- verifying */

static size_t verify_list(struct thread *const *link, enum cache_kind kind, struct verify *walk) {
    size_t count = 0;
    for (; *link != NULL; link = &(*link)->next) {
        ensure((*link)->link == link);
        ensure((*link)->sleep != THREAD_ASLEEP || thread_is_empty(*link));
        if (walk != NULL) {
            cache_verify(*link, kind, walk);
            (void)shelf_verify(*link, walk);
        }
        count++;
    }
    return count;
}

static size_t count_unused(void) {
    size_t count = 0;
    for (const struct thread *thread = g.unused; thread != NULL; thread = thread->next) {
        ensure(thread->generation != lock_generation());
        count++;
    }
    return count;
}

static size_t count_every(void) {
    size_t count = 0;
    for (const struct thread *thread = thread_first(); thread != NULL; thread = thread->older) {
        count++;
    }
    return count;
}

size_t thread_verify(struct verify *walk) {
    enter();
    size_t listed = verify_list(&g.all, CACHE_OF_THREAD, walk);
    listed += verify_list(&g.orphans, CACHE_OF_ORPHAN, walk);
    ensure(listed == g.count);
    size_t apart = verify_list(&g.apart, CACHE_OF_NO_THREAD, NULL);
    listed += apart + count_unused();
    size_t every = count_every();
    ensure(listed == every || (listed < every && lock_is_in_child()));
    for (unsigned arena = 0; arena < arena_count(); arena++) {
        const struct thread *left = g.left[arena];
        ensure(left == NULL || (left->arena == arena && left->generation == 0));
    }
    lock_release(&g.lock);
    return apart;
}
