/* SPDX-License-Identifier: MIT
 *
 * heap.h - the front door: everything the layers above may call, except
 *
 *      heap/fast.h     what malloc and free inline
 *      heap/counts.h   how much there is of everything
 *
 * A function is defined in the file it is named after (arena_reset: arena.c); the other headers of
 * this folder are for its own files.
 *
 * Threads     All functions may be called from any thread and hold no lock when they return.
 */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "base/bits.h"
#include "base/common.h"
#include "base/log.h"

struct span;

/* Prepares the heap; options and facts have been read.  False without memory. */
bool heap_init(void);

/* Zeroed memory for our own descriptors; it is never given back.  NULL when the kernel refuses. */
void *meta_alloc(size_t bytes, size_t alignment);

/* ---------------------------------------------------------------- sizes (size_class.h) */

enum {
    CLASS_COUNT = 63,  /* class 0 means "not a small object"; 4 * 62 fits the class map's byte */
    SMALL_MAX = 32768, /* larger requests own whole pages */
    SMALLEST = 16,     /* every object is 16-byte aligned and has a second word */
    LG_UNIT = 14,      /* also the granule of the class map */
    UNIT_BYTES = 1 << LG_UNIT,
    LG_CHUNK = 21,
    CHUNK_BYTES = 1 << LG_CHUNK,
};

struct size_class {
    uint32_t size;      /* bytes of an object */
    uint32_t mult;      /* ceil(2^32 / size) */
    uint32_t limit;     /* low half of offset * mult is below this for object starts only */
    uint32_t slab_mask; /* bytes of a slab - 1; slabs are naturally aligned */
    uint16_t total;     /* objects in a slab */
    uint16_t room_max;  /* objects a thread may keep in its two magazines */
    uint16_t few;       /* what A gets from F at once */
};

/* Constant once the heap is there; row 0 is all zero. */
extern struct size_class size_classes[CLASS_COUNT] HIDDEN;

/* The class of a request of up to SMALL_MAX bytes. */
static inline unsigned size_class_of(size_t size) {
    assert(size <= SMALL_MAX);
    if (size <= 256) {
        return size == 0 ? 1 : (unsigned)(size + 15) / 16;
    }
    unsigned lg = bits_floor_log2(size - 1);
    if (size <= 8192) {
        return 16 + (lg - 8) * 8 + (unsigned)((size - 1) >> (lg - 3)) - 7;
    }
    if (size <= 16384) {
        return 56 + (unsigned)((size - 1) >> (lg - 2)) - 3;
    }
    return size <= 24576 ? 61 : 62;
}

/*
 * The smallest class that holds `size` bytes at a multiple of `alignment`, a power of two; 0 if
 * there is none.  Neighbouring classes differ by a power of two.  Where the alignment divides it,
 * every class will do; where it does not, it is a multiple of it, and so each of its own multiples
 * is a class.  Either way the class of the rounded size is a multiple of the alignment.
 */
static inline unsigned size_class_aligned(size_t size, size_t alignment) {
    if (UNLIKELY(size > SMALL_MAX || alignment > SMALL_MAX / 2)) {
        return 0;
    }
    size = LIKELY(alignment <= SMALLEST) ? size : align_up(max_size(size, 1), alignment);
    return LIKELY(size <= SMALL_MAX) ? size_class_of(size) : 0;
}

/* Usable bytes of a request of this size and alignment; 0 when it could never be served. */
size_t heap_size_for(size_t size, size_t alignment);

/* The largest size that could be served, with enough memory. */
size_t heap_size_most(void);

/* ---------------------------------------------------------------- objects */

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

/* An object of at least `size` bytes, or NULL.  `*zeroed` is set only if it reads as zeros. */
void *heap_alloc(size_t size, bool *zeroed);
void *heap_alloc_aligned(size_t size, size_t alignment);

/* Makes the first `bytes` bytes of a new object, which nobody has written to, read as zeros. */
void heap_zero_new(void *object, size_t bytes);

/* Judges an address.  Proves a suspicion of double free, so "double free" is certain. */
struct heap_object heap_look(const void *address);

/* What is live beyond doubt.  Takes no lock, and may be called at any time.  By value: the answer is
 * in two registers. */
struct heap_found {
    size_t usable;       /* 0: ask heap_look */
    unsigned size_class; /* 0: large */
};
struct heap_found heap_find(const void *address);

/* The same without taking a lock, for calls that interrupt the allocator: "live" then only means
 * that an object starts here. */
struct heap_object heap_locate(const void *address);

/* Frees an object that heap_look found live; false when another thread freed it meanwhile. */
bool heap_free(const struct heap_object *object);

/* Frees a tracked small object without heap_look.  Does nothing where it is anything else. */
enum heap_tracked {
    HEAP_NOT_TRACKED,
    HEAP_TRACKED_FREED,
    HEAP_TRACKED_LATE, /* it was free, or never allocated */
};
enum heap_tracked heap_free_tracked(void *address);

/* The same for a large object, of which nothing is out of the ordinary; false: nothing was done. */
bool heap_free_large(void *address);

/* Makes a large object smaller or larger where it stands, or refuses. */
bool heap_resize(const struct heap_object *object, size_t size);

/* Moves a large object to where it has at least `size` bytes, more than it had.  NULL, with the
 * object unchanged, when it cannot: it may still be copied. */
void *heap_move(const struct heap_object *object, size_t size);

/* Calls of realloc with a pointer and size 0. */
extern _Atomic size_t heap_zero_reallocs HIDDEN;

/* For calls that interrupt the allocator in their own thread.  No lock is taken: memory comes from
 * areas set apart, and the free of what heap_locate found waits for the end of a slow call.  That
 * call takes all waiting objects; they are linked through word 0, NULL at the end. */
void *emergency_alloc(size_t size, size_t alignment);
bool heap_free_later(const struct heap_object *object);
void *emergency_take_deferred(void);

/* ---------------------------------------------------------------- places: the flags of mallocx */

/*
 *      bit 31........20 19...........8  7   6   5....0
 *          arena+1      tcache+2        -  ZERO lg_align       a field of 0: nothing was asked for
 */
enum { PLACE_ZERO = 0x40, PLACE_CACHE_SHIFT = 8, PLACE_CACHE_MASK = 0xfff, PLACE_ARENA_SHIFT = 20 };

enum {
    PLACE_OWN = -1,     /* the caller's cache, or its arena */
    PLACE_NO_CACHE = -2 /* straight from the arena's slabs, straight back to them */
};

struct place {
    int arena; /* PLACE_OWN or an index; an arena that does not exist serves nobody */
    int cache; /* PLACE_OWN, PLACE_NO_CACHE or the number of an explicit cache */
};

static inline bool place_is_own(struct place place) {
    return place.arena == PLACE_OWN && place.cache == PLACE_OWN;
}

/* What flags of mallocx ask for. */
struct place_request {
    size_t alignment;
    bool zero;
    struct place place;
};

/* Inline, since some languages allocate with flags alone.  As an int the number may be negative. */
static inline struct place_request place_parse_flags(int flags) {
    unsigned bits = (unsigned)flags;
    unsigned cache = bits >> PLACE_CACHE_SHIFT & PLACE_CACHE_MASK;
    unsigned arena = bits >> PLACE_ARENA_SHIFT;
    struct place_request request = {
        .alignment = (size_t)1 << (bits & 63),
        .zero = (bits & PLACE_ZERO) != 0,
        .place = {.arena = arena == 0 ? PLACE_OWN : (int)arena - 1, .cache = PLACE_OWN},
    };
    if (cache != 0) {
        request.place.cache = cache == 1 ? PLACE_NO_CACHE : (int)cache - 2;
    }
    return request;
}

/* As heap_alloc and heap_free, from and to another place than the caller's own cache and arena. */
void *place_alloc(struct place place, size_t size, size_t alignment, bool *zeroed);
bool place_free(struct place place, const struct heap_object *object);

/* ---------------------------------------------------------------- explicit caches */

/* The number of a new cache; -1 without memory or when there are too many. */
int tcaches_create(void);
bool tcaches_exists(unsigned id);

/* Puts everything it holds back; destroying makes its number free. */
void tcaches_flush(unsigned id);
void tcaches_destroy(unsigned id);

/* ---------------------------------------------------------------- arenas (arena.h) */

enum { ARENA_INDICES = 4095, ARENA_NAME_BYTES = 32 };

/* Automatic arenas, which threads are spread over: 0 .. arena_count() - 1. */
unsigned arena_count(void);

/* One more than the largest index that was ever in use. */
unsigned arena_limit(void);

/* Is there an arena of this index now?  Was it made by arena_create? */
bool arena_exists(unsigned arena);
bool arena_is_manual(unsigned arena);

/* The arena of the object, slab or free page at an address; -1 when it is not of this heap. */
int arena_of(const void *address);

/*
 * jemalloc's extent_hooks_t, compiled into programs.  All functions that return bool return false
 * for success.  NULL means "never succeeds"; alloc must not be NULL.
 */
struct extent_hooks {
    void *(*alloc)(struct extent_hooks *hooks, void *new_addr, size_t size, size_t alignment,
                   bool *zero, bool *commit, unsigned arena_ind);
    bool (*dalloc)(struct extent_hooks *hooks, void *addr, size_t size, bool committed,
                   unsigned arena_ind);
    void (*destroy)(struct extent_hooks *hooks, void *addr, size_t size, bool committed,
                    unsigned arena_ind);
    bool (*commit)(struct extent_hooks *hooks, void *addr, size_t size, size_t offset,
                   size_t length, unsigned arena_ind);
    bool (*decommit)(struct extent_hooks *hooks, void *addr, size_t size, size_t offset,
                     size_t length, unsigned arena_ind);
    bool (*purge_lazy)(struct extent_hooks *hooks, void *addr, size_t size, size_t offset,
                       size_t length, unsigned arena_ind);
    bool (*purge_forced)(struct extent_hooks *hooks, void *addr, size_t size, size_t offset,
                         size_t length, unsigned arena_ind);
    bool (*split)(struct extent_hooks *hooks, void *addr, size_t size, size_t size_a, size_t size_b,
                  bool committed, unsigned arena_ind);
    bool (*merge)(struct extent_hooks *hooks, void *addr_a, size_t size_a, void *addr_b,
                  size_t size_b, bool committed, unsigned arena_ind);
};

/* The index of a new arena that gets its memory from `hooks`, or, where that is NULL, from the
 * kernel as all others do; -1 without memory or when all indices are taken. */
int arena_create(struct extent_hooks *hooks);

/* Frees every object of a manual arena; false for any other.  Nobody may use them afterwards. */
bool arena_reset(unsigned arena);

/* The same, and its index may be used again.  False if it is not manual, or if threads use it. */
bool arena_destroy(unsigned arena);

/* Was any arena ever destroyed? */
bool arena_any_destroyed(void);

/* The hooks in use; the default ones may be called by others as well.  Setting them affects memory
 * obtained from now on.  False without memory. */
struct extent_hooks *arena_hooks(unsigned arena);
bool arena_set_hooks(unsigned arena, struct extent_hooks *hooks);

/* "auto_0", "manual_7" or what was set, in at most ARENA_NAME_BYTES - 1 characters. */
void arena_get_name(unsigned arena, char name[ARENA_NAME_BYTES]);
void arena_set_name(unsigned arena, const char *name);

/* Free memory that may be resident still: as it was left, or offered to the kernel (dirty.h). */
enum chunk_queue { CHUNK_DIRTY, CHUNK_MUZZY, CHUNK_QUEUES };

/* How long each is kept, in milliseconds as in the options dirty_decay_ms and muzzy_decay_ms.
 * Setting purges at once, except for -1; false for less than that.  Each arena remembers its times;
 * those of arena 0 apply to the pages that arenas share. */
ssize_t arena_decay_ms(unsigned arena, enum chunk_queue which);
bool arena_set_decay_ms(unsigned arena, enum chunk_queue which, ssize_t ms);

/* The times that arenas made from now on begin with. */
ssize_t arena_default_decay_ms(enum chunk_queue which);
bool arena_set_default_decay_ms(enum chunk_queue which, ssize_t ms);

/* Gives back its free pages, those that are due or all; those of the shared page heap likewise. */
void arena_decay(unsigned arena);
void arena_purge(unsigned arena);

/* Live address of the number of pages in use. */
size_t *arena_pactive(unsigned arena);

/* How well the memory around an address is used; the layout of jemalloc's utilization query.  A
 * large object is one region that is not free.  All zeros for what is not of this heap, or free. */
struct bin_use {
    void *slabcur;    /* the slab that serves next, or NULL */
    size_t nfree;     /* objects of the slab that are in it */
    size_t nregs;     /* objects it has room for */
    size_t size;      /* its bytes */
    size_t bin_nfree; /* the same two, over all slabs of the bin */
    size_t bin_nregs;
};
struct bin_use bin_query(const void *address);

/* ---------------------------------------------------------------- threads (thread.h) */

/* Is the caller in the slow half, between life_enter and life_leave?  The second changes that. */
bool thread_is_inside(void);
void thread_set_inside(bool is_inside);

/* The caller's mark for it, not 0 while inside; at the same offset from every thread pointer. */
const uint8_t *thread_inside_mark(void);

/* While a function of the program, or of libc, is called from inside: it may allocate as usual, and
 * its errno stays its own. */
struct thread_outside {
    int error;
    bool was_inside;
};
struct thread_outside thread_go_outside(void);
void thread_come_back(struct thread_outside before);

/* The caller is a thread of the library: it never gets a heap, and its end need not be noticed. */
void thread_enroll(void);

/* Gives up the caller's heap.  The last one given up is kept as it is for a thread to come. */
void thread_exit(void);

/* In the child of a fork, called by the thread that survived: all other heaps are orphans. */
void thread_forked(void);

/* Recovers what some magazines of orphans hold; false when no orphan is left. */
bool thread_recover_some(void);

/* Empties the caller's magazines; bytes of free objects that are in them. */
void thread_flush(void);
size_t thread_cached_bytes(void);

/* The arena the caller allocates from; and a change of it, before which its cache is emptied.
 * False when there is no such arena, or no memory. */
unsigned thread_arena(void);
bool thread_set_arena(unsigned arena);

/* Does the caller keep free objects for itself?  If not, all its calls take the slow path. */
bool thread_is_cached(void);
void thread_set_cached(bool cached);

/* Largest object the caller caches. */
size_t thread_cache_max(void);
void thread_set_cache_max(size_t bytes);

/* Most objects of a class the caller caches; 0: none. */
unsigned thread_class_max(unsigned size_class);
void thread_set_class_max(unsigned size_class, unsigned objects);

/* Bytes, at usable size, that the caller has allocated and freed since it began. */
uint64_t thread_allocated(void);
uint64_t thread_deallocated(void);

/* Addresses of the same as running counters, NULL without memory.  From now on every call of this
 * thread takes the slow path, which keeps them. */
uint64_t *thread_allocated_live(void);
uint64_t *thread_deallocated_live(void);

/* The largest difference of the two since the last reset, or since the thread began; in the time
 * before the first call of any of these to within 64 KiB and what the thread's cache holds. */
uint64_t thread_peak(void);
void thread_reset_peak(void);

/* ---------------------------------------------------------------- memory kept, limits */

/* What a background thread does now and then: gives back what nobody has needed for a while.
 * Milliseconds after which there is more to do, UINT64_MAX when there is nothing. */
uint64_t heap_tick(void);

/* True while a background thread does so.  Without one, the last free may be the last call, so what
 * is kept is bounded by volume as well. */
extern _Atomic bool dirty_has_background HIDDEN;

/* True while the bound by volume lets much stay, because the program frees and takes it again and
 * again: then a program with one thread needs a background thread as well. */
extern _Atomic bool dirty_keeps_much HIDDEN;

/* Gives back caches of this thread and of those that vanished in a fork, depots, empty slabs and
 * dirty pages; bytes that went. */
size_t heap_trim(void);

/* Gives all free pages back; bytes that went. */
size_t pages_purge_all(void);

/* 0 means no limit.  A soft limit that is exceeded already counts as crossed. */
void limit_set(size_t soft, size_t hard);
size_t limit_soft(void);
size_t limit_hard(void);

/* The function to call when the soft limit is crossed; NULL for none.  The slow call that attends
 * to ATTENTION_SOFT_LIMIT calls it, from outside: the program may allocate. */
typedef void limit_callback(size_t held, void *context);
void limit_on_soft(limit_callback *callback, void *context);
void limit_tell_program(void);

/* Bytes the heap holds now; may lag. */
size_t limit_held(void);

/* Raises ATTENTION_PROFILE, once, when more bytes than this are in spans; SIZE_MAX: never. */
void limit_watch_used(size_t bytes);

/* ---------------------------------------------------------------- sampling (track.h) */

/*
 * What is out of the ordinary with the heap, as one word: caches ask for it once per slow call.
 * The upper half belongs to others: the kernel counts there, in 16 bits each, the agents at the
 * probes `alloc` and `free` (prof/usdt.c).  So an agent that attaches to a process without sampling
 * takes the same branch of the next slow call as all that is unusual, and costs nothing before.
 */
enum bin_unusual {
    /* The program gives up much of its memory (depot.c finds out).  Bins then keep no empty slab,
     * and caches few objects, since each may be the last of its slab. */
    BIN_SHRINKING = 1,
    BIN_SAMPLING = 2, /* some allocations are to be tracked */
    BIN_WATCHED = 4,  /* the layers above know of the agents in the upper half */
    BIN_IGNORING = 8, /* a thread is THREAD_IGNORED */
};
enum { BIN_AGENTS_SHIFT = 32, BIN_ALLOC_AGENTS = 4, BIN_FREE_AGENTS = 6 /* offsets in bytes */ };
extern struct bin_unusual_line {
    _Atomic uint64_t word;
    char rest[CACHE_LINE - sizeof(uint64_t)];
} bin_unusual HIDDEN;

static inline uint64_t bin_get_unusual(void) {
    return atomic_load_explicit(&bin_unusual.word, memory_order_relaxed);
}

static inline bool bin_has_agents(void) {
    return bin_get_unusual() >> BIN_AGENTS_SHIFT != 0;
}

/* Mean bytes between samples: 0 samples nothing, 1 everything.  Threads notice at their next slow
 * call; what their magazines hold by then passes unsampled. */
void track_set_rate(uint64_t bytes);
extern _Atomic uint64_t track_present_rate HIDDEN;
static inline uint64_t track_rate(void) {
    return atomic_load_explicit(&track_present_rate, memory_order_relaxed);
}

/* Is anything to be sampled, or is an agent's coming or going to be noticed?  Costs nothing, so it
 * is asked before track_is_due. */
static inline bool track_is_on(void) {
    return UNLIKELY((bin_get_unusual() & ~(uint64_t)BIN_SHRINKING) != 0);
}

/* For the slow call that attends to ATTENTION_AGENTS: are there any agents now? */
bool track_follow_agents(void);

/* A random number in [0, 1), each as likely as any other. */
double track_random(void);

/* An allocation, and the class that follows from it. */
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

/* Is it to be sampled?  If so, the distance to the next sample has been drawn, whatever the caller
 * does now.  Never for what an extent hook allocates. */
bool track_is_due(const struct track_request *request);

/* The same for a large object that has got another size, which is decided anew. */
bool track_is_due_again(size_t usable);

/* Gives a large object another number, 0 for none; returns the one it had.  TRACK_IGNORED stays. */
uint32_t track_renumber(struct span *span, uint32_t id);

/* As place_alloc, but the object carries `id`, which is not 0, until it is freed.  NULL also where
 * the usual way might still find memory. */
void *track_alloc(const struct track_request *request, uint32_t id, bool *zeroed);

/* Callbacks of the layer above, made inside and with no lock held.  Set once, before any rate. */
struct track_events {
    /* The object cannot be used any more, and nobody else has its memory yet. */
    void (*freed)(uint32_t id, const void *object, size_t usable);
};
extern struct track_events track_events HIDDEN;

/* ---------------------------------------------------------------- what objects keep (pinned.c) */

/* An address without the bits that make it one: objects are 16-byte aligned. */
enum { PINNED_OWN_PAGE = 1, PINNED_SHIFT = 3 };

/* Where to look later for the space that a sampled object keeps, which the caller has just
 * allocated or resized: on its own page where most objects of its class are sampled, otherwise on
 * the one it would have been put on.  Not an address, so that no search for leaks follows it; 0:
 * nowhere. */
uintptr_t pinned_find_place(const void *object, unsigned size_class);
static inline uintptr_t pinned_place(const void *object, size_t usable) {
    if (usable > SMALL_MAX) {
        return 0;
    }
    return track_rate() <= usable ? (uintptr_t)object >> PINNED_SHIFT | PINNED_OWN_PAGE
                                  : pinned_find_place(object, size_class_of(usable));
}

/* What was last seen; zeros at first. */
struct pinned_survey {
    struct {
        uintptr_t start;
        size_t live_bytes;
        uint32_t live; /* objects, also those that only reach into it */
    } pages[CLASS_COUNT];
    /* Copies of two neighbouring pieces of the heap; of none where the address is 0. */
    struct {
        uintptr_t address;
        uint64_t words[512];
    } copies[2];
};

/* The object's share, in bytes, of the free space in the pages that cannot be given back because
 * of it: that of each page is divided among the live objects on it.  Objects in caches count as
 * free.  Large objects own their pages alone and keep nothing. */
double pinned_share(struct pinned_survey *survey, uintptr_t place, size_t usable);

/* ---------------------------------------------------------------- leaks */

/* Objects that are no leaks carry a mark in their number, beside what the layer above has put
 * there.  A thread can have all its allocations marked, and can mark a live object that has a
 * place for a number. */
#define TRACK_IGNORED (UINT32_C(1) << 31)
void track_ignore_mine(bool is_ignored);
bool track_ignores_mine(void);

/* In the child of a fork, which has this thread alone. */
void track_ignore_forked(bool is_ignored);
enum track_marked {
    TRACK_CHANGED,
    TRACK_NO_CHANGE, /* it is as wanted already */
    TRACK_NO_PLACE,  /* it is small and not tracked */
};
enum track_marked track_set_ignored(const struct heap_object *object, bool is_ignored);

/* Objects as their slabs know them: handed out to the program, or to a cache.  Nobody else may run
 * meanwhile; no lock is taken. */
struct census_object {
    uintptr_t base;
    size_t usable;
    const struct span *span;
    uint32_t index; /* in its slab */
};

/* The object an address lies in; false: in none. */
bool census_find(uintptr_t address, struct census_object *object);

/* Does the program hold it?  What it carries for the layer above; 0: nothing. */
bool census_is_live(const struct census_object *object);
uint32_t census_id(const struct census_object *object);

/* All objects, and the chunks of CHUNK_BYTES in which they lie. */
void census_walk(void (*visit)(const struct census_object *object, void *context), void *context);
void census_walk_chunks(void (*visit)(uintptr_t base, void *context), void *context);

/* Address ranges of the heap's objects and descriptors, each once.  Takes no lock. */
void heap_walk_ranges(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context);

/* Ranges of the heap and of its notes about objects, whose words must not be taken for pointers of
 * the program.  Takes no lock. */
void heap_walk_notes(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context);

/* ---------------------------------------------------------------- tests */

/* Checks every invariant of the heap, and ends the process where one is broken.  No other thread of
 * the program may allocate, free or end meanwhile. */
void heap_verify(void);
