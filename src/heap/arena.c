/* SPDX-License-Identifier: MIT
 *
 * arena.c - the arenas by index: automatic ones, made when one is first used, and those that the
 * program makes, resets and destroys.
 *
 * A destroyed arena leaves behind the slabs of which some cache still holds an object.  They
 * stay with the index, whose bins are never unmapped, and serve the next arena that gets it.
 *
 * Reset.  A walk over all spans finds those of the arena, a chunk at a time; others allocate and
 * free meanwhile.  A slab is looked at again under its bin's lock, a large object is claimed under
 * the page heap's.  In a slab an object that is out and does not carry the secret is held by the
 * program and is freed in place; one that carries it is in a cache, and stays out until the cache
 * gives it back.  So nothing is ever owned twice.
 *
 * Threads     One lock for making and destroying arenas, for binding threads to manual ones and for
 *             names.  Indices are published last, with release order; reads take no lock.
 * Read next   extents.c for memory from hooks, bin.c for the bins.
 */
#include "heap/arena.h"

#include <string.h>

#include "base/fmt.h"
#include "base/os.h"
#include "heap/classmap.h"
#include "heap/depot.h"
#include "heap/dirty.h"
#include "heap/emergency.h"
#include "heap/extents.h"
#include "heap/hooked.h"
#include "heap/reclaim.h"
#include "heap/hooks.h"
#include "heap/large.h"
#include "heap/shelf.h"
#include "heap/slab.h"
#include "heap/sleepers.h"
#include "heap/tcaches.h"
#include "heap/track.h"
#include "opt/opt.h"

static struct {
    struct lock lock;
    unsigned count;         /* automatic arenas; constant after the start */
    _Atomic unsigned limit; /* one more than the largest index ever used */
    _Atomic bool any_destroyed;
    _Atomic bool has_set[ARENA_SETS]; /* some arena has bins of this set */
    _Atomic int64_t default_decay_ms[CHUNK_QUEUES];
    _Atomic(struct arena *) arenas[ARENA_INDICES];
} g;

SPARSE _Atomic(struct bin *) arena_bins[ARENA_BIN_SETS];

_Atomic bool arena_has_manual;
_Atomic bool arena_any_hooked;

/* An abandoned lock needs no repair: the next holder can redo what was left half done. */
static void enter(void) {
    (void)lock_acquire(&g.lock);
}

static void leave(void) {
    lock_release(&g.lock);
}

/* ---------------------------------------------------------------- automatic arenas */

static void name_it(char name[ARENA_NAME_BYTES], const char *kind, unsigned index) {
    fmt_text(name, ARENA_NAME_BYTES, "%s_%u", kind, index);
}

/* Begins an arena's own state; its bins may still hold slabs of a predecessor. */
static void begin(struct arena *arena, unsigned index, const char *kind) {
    for (unsigned d = 0; d < CHUNK_QUEUES; d++) {
        arena->decay_ms[d] = g.default_decay_ms[d];
    }
    __atomic_store_n(&arena->sums.born_ms, os_now_ms(), __ATOMIC_RELAXED);
    name_it(arena->name, kind, index);
}

/* The flags beside the index in span.arena, by set of bins. */
static const unsigned set_flags[ARENA_SETS] = {0, ARENA_HOOKED, ARENA_TRACKED, ARENA_APART};

/* Release: whoever finds bins finds them made. */
static void set_bins(unsigned index, enum arena_set set, struct bin *bins) {
    assert(index < ARENA_INDICES && arena_bins[index | set_flags[set]] == NULL);
    atomic_store_explicit(&arena_bins[index | set_flags[set]], bins, memory_order_release);
    atomic_store_explicit(&g.has_set[set], true, memory_order_release);
}

static void publish(struct arena *arena, unsigned index) {
    assert(index < ARENA_INDICES && arena_get(index) == NULL);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        bin_init(&arena->bins[c], c, index);
    }
    set_bins(index, ARENA_SET_USUAL, arena->bins);
    /* Release: whoever finds the arena finds it whole. */
    atomic_store_explicit(&g.arenas[index], arena, memory_order_release);
}

bool arena_init(void) {
    g.lock = (struct lock)LOCK_OF_RANK(RANK_ARENAS);
    g.default_decay_ms[CHUNK_DIRTY] = dirty_decay_ms[CHUNK_DIRTY] = opt.dirty_decay_ms;
    g.default_decay_ms[CHUNK_MUZZY] = dirty_decay_ms[CHUNK_MUZZY] = opt.muzzy_decay_ms;
    unsigned wanted = (unsigned)(opt.narenas != 0 ? opt.narenas : os_facts.cpus);
    g.count = (unsigned)min_size(wanted, MOST_ARENAS);
    g.limit = g.count;
    slab_shared_arenas = g.count;
    return arena_prepare(0);
}

/* Published last: whoever finds it finds it whole. */
static bool make_automatic(unsigned index) {
    assert(lock_is_mine(&g.lock) && index < g.count);
    struct arena *arena = meta_alloc(sizeof(struct arena), CACHE_LINE);
    if (arena == NULL) {
        return false;
    }
    begin(arena, index, "auto");
    arena->state = ARENA_LIVE;
    publish(arena, index);
    return true;
}

bool arena_prepare(unsigned arena) {
    if (LIKELY(arena_get(arena) != NULL)) {
        return true;
    }
    if (arena >= g.count) {
        return false;
    }
    enter();
    bool done = arena_get(arena) != NULL || make_automatic(arena);
    leave();
    return done;
}

unsigned arena_count(void) {
    return g.count;
}

unsigned arena_limit(void) {
    return atomic_load_explicit(&g.limit, memory_order_acquire);
}

struct arena *arena_get(unsigned arena) {
    return arena < ARENA_INDICES ? atomic_load_explicit(&g.arenas[arena], memory_order_acquire)
                                 : NULL;
}

/* As arena_get, where the caller knows that the arena exists. */
static struct arena *known(unsigned arena) {
    assert(arena_get(arena) != NULL);
    return atomic_load_explicit(&g.arenas[arena], memory_order_acquire);
}

/* An automatic arena that was not made yet exists, too: it is empty. */
bool arena_exists(unsigned arena) {
    const struct arena *found = arena_get(arena);
    return arena < g.count ||
           (found != NULL &&
            atomic_load_explicit(&found->state, memory_order_acquire) == ARENA_LIVE);
}

bool arena_is_manual(unsigned arena) {
    return arena >= g.count && arena_exists(arena);
}

/* The lowest of those that fewest threads use. */
unsigned arena_choose(void) {
    unsigned best = 0;
    for (unsigned a = 1; a < g.count && arena_thread_count(best) != 0; a++) {
        best = arena_thread_count(a) < arena_thread_count(best) ? a : best;
    }
    return LIKELY(arena_prepare(best)) ? best : 0;
}

/* Threads that start at once may choose the same: the one that comes second looks again, unless
 * all are in use. */
unsigned arena_claim(void) {
    for (;;) {
        unsigned arena = arena_choose();
        unsigned before =
            atomic_fetch_add_explicit(&known(arena)->threads, 1, memory_order_relaxed);
        if (before == 0 || arena_thread_count(arena_choose()) >= before) {
            return arena;
        }
        arena_unbind(arena);
    }
}

struct bin *arena_bin_of_set(unsigned arena, enum arena_set set, unsigned size_class) {
    assert(arena < ARENA_INDICES && set < ARENA_SETS && size_class < CLASS_COUNT);
    if (!atomic_load_explicit(&g.has_set[set], memory_order_acquire)) {
        return NULL; /* Do not touch pages for nothing. */
    }
    struct bin *bins =
        atomic_load_explicit(&arena_bins[arena | set_flags[set]], memory_order_acquire);
    return bins != NULL ? &bins[size_class] : NULL;
}

struct hooked *arena_hooked(unsigned arena) {
    const struct arena *found = arena_get(arena & ARENA_INDEX);
    return found != NULL ? atomic_load_explicit(&found->hooked, memory_order_acquire) : NULL;
}

bool arena_has_hooks(unsigned arena) {
    const struct arena *found = arena_get(arena);
    return found != NULL && atomic_load_explicit(&found->uses_hooks, memory_order_acquire);
}

/* ---------------------------------------------------------------- threads */

/* Automatic arenas exist for ever; a manual one must not be destroyed between check and count. */
bool arena_bind(unsigned arena) {
    if (arena < g.count) {
        if (UNLIKELY(!arena_prepare(arena))) {
            return false;
        }
        atomic_fetch_add_explicit(&known(arena)->threads, 1, memory_order_relaxed);
        return true;
    }
    enter();
    bool exists = arena_exists(arena);
    if (exists) {
        atomic_fetch_add_explicit(&known(arena)->threads, 1, memory_order_relaxed);
    }
    leave();
    return exists;
}

void arena_unbind(unsigned arena) {
    assert(arena_thread_count(arena) >= 1);
    atomic_fetch_sub_explicit(&known(arena)->threads, 1, memory_order_relaxed);
}

unsigned arena_thread_count(unsigned arena) {
    const struct arena *found = arena_get(arena);
    return found != NULL ? atomic_load_explicit(&found->threads, memory_order_relaxed) : 0;
}

void arena_forked(void) {
    for (unsigned a = 0; a < arena_limit(); a++) {
        if (arena_thread_count(a) != 0) { /* Do not touch pages for nothing. */
            atomic_store_explicit(&known(a)->threads, 0, memory_order_relaxed);
        }
    }
}

/* ---------------------------------------------------------------- made by the program */

/* The lowest index not in use, with its arena described; -1: none is left, or no memory. */
static int take_index(void) {
    assert(lock_is_mine(&g.lock));
    for (unsigned a = g.count; a < ARENA_INDICES; a++) {
        struct arena *arena = arena_get(a);
        if (arena != NULL && arena->state == ARENA_GONE) {
            return (int)a;
        }
        if (arena == NULL) {
            arena = meta_alloc(sizeof(struct arena), CACHE_LINE);
            if (arena == NULL) {
                return -1;
            }
            publish(arena, a);
            return (int)a;
        }
    }
    return -1;
}

/* Gives an arena a page heap for hooks, if it has none; false without memory. */
static bool prepare_hooked(unsigned index) {
    assert(lock_is_mine(&g.lock));
    struct arena *arena = known(index);
    if (arena->hooked != NULL) {
        return true;
    }
    struct hooked *hooked = hooked_create(index);
    if (hooked == NULL) {
        return false;
    }
    set_bins(index, ARENA_SET_HOOKED, hooked_bins(hooked));
    atomic_store_explicit(&arena->hooked, hooked, memory_order_release);
    return true;
}

static bool make_tracked_bins(unsigned index, enum arena_set set) {
    assert(lock_is_mine(&g.lock));
    struct tracked_bins *tracked = meta_alloc(sizeof(struct tracked_bins), CACHE_LINE);
    if (tracked == NULL) {
        return false;
    }
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        bin_init(&tracked->bins[c], c, index | set_flags[set]);
    }
    set_bins(index, set, tracked->bins);
    return true;
}

static bool has_bins(unsigned arena, enum arena_set set) {
    return arena_bin_of_set(arena, set, 0) != NULL;
}

unsigned arena_prepare_tracked(unsigned arena) {
    enum arena_set set = arena_uses_hooks(arena) ? ARENA_SET_HOOKED_TRACKED : ARENA_SET_TRACKED;
    if (LIKELY(has_bins(arena, set))) {
        return arena | set_flags[set];
    }
    bool is_made = arena_prepare(arena);
    enter();
    bool done = has_bins(arena, set) || (is_made && make_tracked_bins(arena, set));
    leave();
    return done ? arena | set_flags[set] : 0;
}

static bool are_own_hooks(const struct extent_hooks *hooks) {
    return hooks != NULL && hooks != &hooks_default;
}

/* Call with the lock held. */
static bool set_hooks(unsigned index, struct extent_hooks *hooks) {
    assert(lock_is_mine(&g.lock));
    struct arena *arena = known(index);
    bool own = are_own_hooks(hooks);
    if (own && !prepare_hooked(index)) {
        return false;
    }
    if (arena->hooked != NULL) {
        hooked_set_hooks(arena->hooked, own ? hooks : &hooks_default);
    }
    if (own) { /* First: where an arena uses hooks, this is set already. */
        atomic_store_explicit(&arena_any_hooked, true, memory_order_release);
    }
    atomic_store_explicit(&arena->uses_hooks, own, memory_order_release);
    return true;
}

size_t arena_page_bytes(void) {
    return min_size(os_facts.page_bytes, UNIT_BYTES);
}

void arena_add_units(unsigned arena, size_t units) {
    size_t pages = units * (UNIT_BYTES / arena_page_bytes());
    __atomic_fetch_add(&arena_get(arena & ARENA_INDEX)->sums.pactive, pages, __ATOMIC_RELAXED);
}

int arena_create(struct extent_hooks *hooks) {
    enter();
    int index = take_index();
    if (index >= 0 && set_hooks((unsigned)index, hooks)) {
        struct arena *arena = known((unsigned)index);
        assert(arena->state == ARENA_GONE && arena->threads == 0);
        begin(arena, (unsigned)index, "manual");
        atomic_store_explicit(&arena_has_manual, true, memory_order_seq_cst);
        g.limit = (unsigned)max_size(g.limit, (size_t)index + 1);
        atomic_store_explicit(&arena->state, ARENA_LIVE, memory_order_release);
    } else {
        index = -1;
    }
    leave();
    return index;
}

struct extent_hooks *arena_hooks(unsigned arena) {
    return arena_uses_hooks(arena) ? hooked_hooks(arena_hooked(arena)) : &hooks_default;
}

bool arena_set_hooks(unsigned arena, struct extent_hooks *hooks) {
    bool is_made = arena_prepare(arena);
    enter();
    bool done = is_made && arena_exists(arena) && set_hooks(arena, hooks);
    leave();
    return done;
}

/* ---------------------------------------------------------------- reset and destroy */

/* The next span of an arena. */
struct search {
    unsigned arena;
    struct span *found; /* a slab, or a large object that was claimed */
    uintptr_t base;
    unsigned bin; /* slab: its arena, flags included */
    unsigned size_class;
};

/* Under the page heap's lock. */
static bool is_wanted(struct span *span, void *context) {
    assert(pages_is_mine());
    struct search *search = context;
    if ((span->arena & ARENA_INDEX) != search->arena) {
        return false;
    }
    /* Read once: the owner of a slab may destroy it meanwhile, without our lock. */
    uint8_t kind = __atomic_load_n(&span->kind, __ATOMIC_ACQUIRE);
    bool large = kind == SPAN_LARGE;
    if ((kind != SPAN_SLAB && !large) || (large && !large_claim(span))) {
        return false;
    }
    *search = (struct search){.arena = search->arena,
                              .found = span,
                              .base = span->base,
                              .bin = span->arena,
                              .size_class = large ? 0 : span->size_class};
    return true;
}

static void release_large(struct span *claimed) {
    assert(__atomic_load_n(&claimed->kind, __ATOMIC_RELAXED) == SPAN_NONE);
    track_tell_freed(claimed->id, (void *)claimed->base, claimed->bytes);
    large_release(claimed);
}

static void reset_slab(const struct search *search) {
    assert(search->size_class >= 1 && search->size_class < CLASS_COUNT);
    struct bin *bin = arena_bin(search->bin, search->size_class);
    if (search->bin & ARENA_TRACKED) {
        track_reset_slab(bin, search->found, search->base);
    } else {
        bin_reset_slab(bin, search->found, search->base);
    }
}

static void free_everything(unsigned arena) {
    struct search search = {.arena = arena};
    size_t cursor = 0;
    while (pages_walk_on(&cursor, is_wanted, &search)) {
        if (search.found != NULL && search.size_class == 0) {
            release_large(search.found);
        } else if (search.found != NULL) {
            reset_slab(&search);
        }
        search.found = NULL;
    }
}

static void trim_bins(unsigned arena) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        for (unsigned set = 0; set < ARENA_SETS; set++) {
            struct bin *bin = arena_bin_of_set(arena, set, c);
            if (bin != NULL) {
                bin_trim(bin);
            }
        }
    }
}

bool arena_reset(unsigned arena) {
    if (!arena_is_manual(arena)) {
        return false;
    }
    tcaches_flush_all();
    free_everything(arena);
    trim_bins(arena);
    (void)hooked_settle(arena);
    return true;
}

/* From now on nobody finds the arena.  False when it must stay. */
static bool begin_to_leave(unsigned arena) {
    enter();
    bool may_leave = arena_is_manual(arena) && arena_thread_count(arena) == 0;
    if (may_leave) {
        atomic_store_explicit(&known(arena)->state, ARENA_LEAVING, memory_order_release);
    }
    leave();
    return may_leave;
}

bool arena_destroy(unsigned arena) {
    if (!begin_to_leave(arena)) {
        return false;
    }
    tcaches_flush_all();
    free_everything(arena);
    trim_bins(arena);
    if (arena_hooked(arena) != NULL) {
        hooked_destroy(arena);
    }
    counts_note_destroyed(arena);
    enter();
    g.any_destroyed = true;
    (void)set_hooks(arena, NULL);
    assert(known(arena)->state == ARENA_LEAVING && known(arena)->threads == 0);
    atomic_store_explicit(&known(arena)->state, ARENA_GONE, memory_order_release);
    leave();
    return true;
}

bool arena_any_destroyed(void) {
    return g.any_destroyed;
}

/* ---------------------------------------------------------------- names and times */

void arena_get_name(unsigned arena, char name[ARENA_NAME_BYTES]) {
    name[0] = '\0';
    if (arena_get(arena) != NULL) {
        enter();
        memcpy(name, known(arena)->name, ARENA_NAME_BYTES);
        leave();
    } else if (arena < g.count) {
        name_it(name, "auto", arena);
    }
}

void arena_set_name(unsigned arena, const char *name) {
    if (arena_prepare(arena)) {
        enter();
        fmt_text(known(arena)->name, ARENA_NAME_BYTES, "%s", name);
        leave();
    }
}

ssize_t arena_decay_ms(unsigned arena, enum chunk_queue which) {
    const struct arena *found = arena_get(arena);
    return found != NULL ? (ssize_t)found->decay_ms[which] : arena_default_decay_ms(which);
}

bool arena_set_decay_ms(unsigned arena, enum chunk_queue which, ssize_t ms) {
    if (ms < -1 || !arena_exists(arena) || !arena_prepare(arena)) {
        return false;
    }
    arena_get(arena)->decay_ms[which] = ms;
    if (arena == 0) {
        dirty_decay_ms[which] = ms;
    }
    if (ms != -1) {
        arena_purge(arena);
    }
    return true;
}

ssize_t arena_default_decay_ms(enum chunk_queue which) {
    return (ssize_t)g.default_decay_ms[which];
}

bool arena_set_default_decay_ms(enum chunk_queue which, ssize_t ms) {
    if (ms < -1) {
        return false;
    }
    g.default_decay_ms[which] = ms;
    return true;
}

/* ---------------------------------------------------------------- giving back */

void arena_decay(unsigned arena) {
    if (arena_exists(arena)) {
        (void)pages_tick();
        (void)hooked_settle(arena);
    }
}

void arena_purge(unsigned arena) {
    if (arena_exists(arena)) {
        sleepers_empty(arena);
        depot_drain_all();
        trim_bins(arena);
        shelf_empty_all();
        (void)reclaim_all(arena);
        (void)hooked_purge(arena);
        (void)pages_purge_all();
    }
}

uint64_t arena_settle_hooked(void) {
    uint64_t wait_ms = UINT64_MAX;
    for (unsigned a = 0; a < arena_limit(); a++) {
        if (arena_hooked(a) != NULL) {
            wait_ms = min_size(wait_ms, hooked_settle(a));
        }
    }
    return wait_ms;
}

size_t arena_purge_hooked(void) {
    size_t bytes = 0;
    for (unsigned a = 0; a < arena_limit(); a++) {
        bytes += arena_hooked(a) != NULL ? hooked_purge(a) : 0;
    }
    return bytes;
}

/* ---------------------------------------------------------------- questions */

int arena_of(const void *address) {
    size_t size;
    const struct chunk *chunk = classmap_chunk((uintptr_t)address);
    if (chunk == NULL) {
        return emergency_look(address, &size) != EMERGENCY_ELSEWHERE ? 0 : -1;
    }
    const struct span *span = classmap_span((uintptr_t)address);
    if (span != NULL && span_is_owned(span)) {
        return span->arena & ARENA_INDEX;
    }
    return chunk->owner != 0 ? chunk->owner - 1 : 0;
}

size_t *arena_pactive(unsigned arena) {
    return arena_prepare(arena) ? &known(arena)->sums.pactive : NULL;
}

uint64_t arena_count_large(unsigned arena, unsigned lextent) {
    struct large_sums sums;
    large_read_sums(arena, &sums);
    return sums.nmalloc[lextent] - min_size(sums.ndalloc[lextent], sums.nmalloc[lextent]);
}

/* ---------------------------------------------------------------- verifying */

/* What the spans of an arena add up to. */
struct span_sums {
    unsigned arena;
    size_t units;
    size_t large_count, large_bytes;
};

static void sum_span(struct span *span, void *context) {
    struct span_sums *sums = context;
    if ((span->arena & ARENA_INDEX) != sums->arena) {
        return;
    }
    bool is_large = span->kind == SPAN_LARGE;
    bool is_slab = span->kind == SPAN_SLAB;
    size_t bytes = is_slab ? (size_t)slab_class(span)->slab_mask + 1 : span->bytes;
    ensure(span->base % UNIT_BYTES == 0 && bytes > 0);
    ensure(classmap_span(span->base + bytes - 1) == span);
    sums->units += (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
    sums->large_count += is_large;
    sums->large_bytes += is_large ? bytes : 0;
}

/* A fork may come between a change and its count. */
static void verify_sums(unsigned arena) {
    const struct arena_sums *sums = &known(arena)->sums;
    struct span_sums found = {.arena = arena};
    pages_walk(sum_span, &found);
    size_t pages = found.units * (UNIT_BYTES / arena_page_bytes());
    ensure(pages == sums->pactive || lock_is_in_child());
    ensure(found.large_bytes == large_bytes_in(arena) || lock_is_in_child());
    ensure(found.large_count == large_count_in(arena) || lock_is_in_child());
}

static void verify_bins(unsigned arena) {
    for (unsigned set = 0; set < ARENA_SETS; set++) {
        for (unsigned c = 1; c < CLASS_COUNT; c++) {
            struct bin *bin = arena_bin_of_set(arena, set, c);
            if (bin != NULL) {
                ensure(bin->size_class == c && bin->arena == (arena | set_flags[set]));
                bin_verify(bin);
            }
        }
    }
}

void arena_verify(void) {
    for (unsigned a = 0; a < arena_limit(); a++) {
        const struct arena *arena = arena_get(a);
        if (arena == NULL) {
            ensure(a < g.count && thread_read_arena(a).threads == 0);
            continue;
        }
        ensure(arena->state <= ARENA_LEAVING);
        ensure(arena->state == ARENA_LIVE || a >= g.count);
        ensure(arena->threads == thread_read_arena(a).threads);
        ensure(arena->threads == 0 || arena->state == ARENA_LIVE);
        ensure(!arena->uses_hooks || (arena->hooked != NULL && arena_any_hooked));
        if (arena->hooked != NULL) {
            extents_verify(arena->hooked);
        }
        verify_bins(a);
        verify_sums(a);
    }
}
