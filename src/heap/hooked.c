/* SPDX-License-Identifier: MIT
 *
 * hooked.c - when extent hooks are called: for more memory, and to take back what is free.
 *
 * What has been in the queue of extents.c for the arena's dirty_decay_ms goes: an extent that holds
 * nothing is offered to the dalloc hook, and dirty units are decommitted, purged by force or purged
 * lazily, whichever hook first says yes.
 *
 * Nothing of ours is locked while a hook runs, and the caller counts as outside of the library: a
 * hook may allocate, then from arena 0, past every cache (heap.c, place.c).  What a hook works on
 * is out of reach meanwhile: units are marked as used, an extent is taken out of the list and the
 * chunk table.  A fork at that moment loses them in the child and doubles nothing.
 *
 * Threads     Everything is guarded by the page heap's lock, except the pointer to the hooks and
 *             the sums, which are read without it.
 * Read next   extents.c for what is known of that memory.
 */
#include "heap/hooked.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/extents.h"
#include "heap/large.h"
#include "heap/pages.h"
#include "heap/thread.h"

/* ---------------------------------------------------------------- who calls hooks */

/* From now on the caller may call hooks, which keep parts of the heap out of sight.  False when the
 * arena is being destroyed: the thread that destroys it makes all the calls that are needed. */
static bool begin_calls(struct hooked *h) {
    pages_lock();
    if (h->generation != lock_generation()) {
        h->generation = lock_generation();
        h->callers = 0;
    }
    bool may = !h->is_leaving;
    h->callers += may;
    pages_unlock();
    return may;
}

static void end_calls(struct hooked *h) {
    pages_lock();
    if (h->generation == lock_generation() && --h->callers == 0 && h->is_leaving) {
        os_wake(&h->callers);
    }
    pages_unlock();
}

/* Keeps other threads from calling hooks, and waits for those that do, except inside a hook. */
static void wait_for_callers(struct hooked *h) {
    enum { LONGEST_WAIT_MS = 100 };
    pages_lock();
    h->is_leaving = true;
    pages_unlock();
    /* A handler may fork while we wait, and the callers are not in the child. */
    while (h->generation == lock_generation() && h->callers != 0 && !(tls.modes & THREAD_IN_HOOK)) {
        os_wait_ms(&h->callers, h->callers, LONGEST_WAIT_MS);
    }
}

/* ---------------------------------------------------------------- more memory */

/* Asks the alloc hook for an extent with room for this number of units. */
static bool grow(struct hooked *h, size_t units, size_t alignment) {
    size_t chunks = (units + CHUNK_UNITS - 1) / CHUNK_UNITS;
    size_t align_bytes = max_size(alignment * UNIT_BYTES, CHUNK_BYTES);
    size_t size = chunks * CHUNK_BYTES;
    struct extent_hooks *hooks = hooked_hooks(h);
    bool zero, commit;
    uintptr_t base = hooks_alloc(hooks, h->arena, size, align_bytes, &zero, &commit);
    if (base == 0) {
        return false;
    }
    bool sound =
        base % align_bytes == 0 && base + size > base && (base + size - 1) >> ADDRESS_BITS == 0;
    if (sound && !commit) { /* Committed memory was asked for. */
        struct hooks_range whole = {.base = base, .size = size, .length = size};
        sound = zero = commit = hooks_commit(hooks, h->arena, whole);
    }
    if (sound && extents_add(h, base, chunks, zero)) {
        return true;
    }
    if (!hooks_dalloc(hooks, h->arena, base, size, commit)) {
        hooks_destroy(hooks, h->arena, base, size, commit);
    }
    return false;
}

static struct hooks_range range_of(const struct extent *extent, uintptr_t at, size_t units) {
    return (struct hooks_range){.base = extent->base,
                                .size = extent->chunks * CHUNK_BYTES,
                                .offset = at - extent->base,
                                .length = units * UNIT_BYTES};
}

/* Has the commit hook put memory behind those units of a map that are free and have none. */
static bool commit_in_piece(struct hooked *h, struct piece *piece, unit_map map) {
    unsigned first = 0;
    unsigned run;
    bool done = true;
    while (done &&
           (run = chunk_next_run(map & ~piece->chunk.committed & ~piece->chunk.used, &first)) > 0) {
        uintptr_t at = piece->chunk.base + (uintptr_t)first * UNIT_BYTES;
        extents_mark_busy(h, piece, first, run);
        pages_unlock();
        done = hooks_commit(hooked_hooks(h), h->arena, range_of(piece->extent, at, run));
        pages_lock();
        if (done) {
            piece->chunk.committed |= chunk_units(first, run);
            piece->chunk.touched &= ~chunk_units(first, run);
        }
        extents_mark_free(h, piece, first, run);
        first += run;
    }
    return done;
}

/* Commits some free units of one chunk again; false when that is not what is missing, or the hook
 * refuses.  Others may take them meanwhile: the caller looks again. */
static bool commit_some(struct hooked *h, size_t units, size_t alignment) {
    bool done = false;
    pages_lock();
    uintptr_t at = count_read(&h->decommitted) > 0 ? extents_find(h, units, alignment, false) : 0;
    struct units_range range = {at, at != 0 ? units : 0};
    struct units_part part;
    unit_map map = 0;
    while (map == 0 && units_next(&range, &part)) {
        map = chunk_units(part.first, part.count) & ~part.chunk->committed;
        done = map != 0 && commit_in_piece(h, extents_piece(part.chunk), map);
    }
    pages_unlock();
    return done;
}

/* Units could not be taken.  True when it may succeed now. */
static bool make_room(struct hooked *h, size_t units, size_t alignment) {
    if (!begin_calls(h)) {
        return false;
    }
    bool done = commit_some(h, units, alignment) || grow(h, units, alignment);
    end_calls(h);
    return done;
}

/* ---------------------------------------------------------------- allocating */

void *hooked_alloc_small(unsigned arena, unsigned size_class) {
    struct bin *bin = arena_bin(arena | ARENA_HOOKED, size_class);
    size_t units = (size_classes[size_class].slab_mask + 1) / UNIT_BYTES;
    void *object = NULL;
    while (bin_refill(bin, &object, 1, PAGES_MAY_GROW) == 0) {
        if (!make_room(arena_hooked(arena), units, units)) {
            return NULL;
        }
    }
    return object;
}

void *hooked_alloc_large(unsigned arena, size_t size, size_t alignment, bool *zeroed) {
    void *object;
    while ((object = large_alloc(size, alignment, PAGES_MAY_GROW, zeroed, arena | ARENA_HOOKED)) ==
           NULL) {
        size_t units = (large_usable_bytes(size) + UNIT_BYTES - 1) / UNIT_BYTES;
        if (!large_is_possible(size, alignment) ||
            !make_room(arena_hooked(arena), units, max_size(alignment / UNIT_BYTES, 1))) {
            return NULL;
        }
    }
    return object;
}

/* ---------------------------------------------------------------- giving back */

static bool is_committed(const struct piece *pieces) {
    for (; pieces != NULL; pieces = pieces->next_spare) {
        if (pieces->chunk.committed != ~(unit_map)0) {
            return false;
        }
    }
    return true;
}

/* Changes what is known of free units after a clean-up. */
static void note_cleanup(struct piece *piece, unit_map units, enum hooks_cleanup how) {
    switch (how) {
    case HOOKS_DECOMMITTED:
        piece->chunk.committed &= ~units;
        /* fall through */
    case HOOKS_ZEROS:
        piece->chunk.touched &= ~units;
        break;
    case HOOKS_LAZY:
    case HOOKS_REFUSED: /* Not tried again before the memory has been used. */
        piece->chunk.muzzy |= units & piece->chunk.touched;
        break;
    }
}

/* Offers the hooks an extent that holds nothing and is out of sight.  True when it was returned. */
static bool let_go(struct hooked *h, struct extent *extent, struct piece *hidden, bool for_good) {
    size_t size = extent->chunks * CHUNK_BYTES;
    bool committed = is_committed(hidden);
    struct extent_hooks *hooks = hooked_hooks(h);
    bool gone = hooks_dalloc(hooks, h->arena, extent->base, size, committed);
    if (!gone && for_good) {
        hooks_destroy(hooks, h->arena, extent->base, size, committed);
        gone = true;
    }
    /* One that is not all committed is cleaned up by the piece: its dirty units queue again. */
    bool cleans = !gone && committed;
    struct hooks_range whole = {.base = extent->base, .size = size, .length = size};
    enum hooks_cleanup how = cleans ? hooks_clean_up(hooks, h->arena, whole) : HOOKS_REFUSED;
    pages_lock();
    if (gone) {
        extents_forget(extent, hidden);
    } else {
        for (struct piece *piece = hidden; cleans && piece != NULL; piece = piece->next_spare) {
            note_cleanup(piece, ~(unit_map)0, how);
        }
        extents_take_back(h, extent, hidden);
    }
    pages_unlock();
    return gone;
}

/* Hides an extent that holds nothing; the lock is held before and not after. */
static size_t return_extent(struct hooked *h, struct extent *extent, bool for_good) {
    size_t size = extent->chunks * CHUNK_BYTES;
    struct piece *hidden = extents_hide(h, extent);
    pages_unlock();
    return let_go(h, extent, hidden, for_good) ? size : 0;
}

/* Cleans up the dirty units of a piece, a run at a time; the lock is held before and not after. */
static size_t purge_piece(struct hooked *h, struct piece *piece) {
    size_t bytes = 0;
    unsigned first = 0;
    for (unsigned run; (run = chunk_next_run(extents_dirty(piece), &first)) > 0; first += run) {
        uintptr_t at = piece->chunk.base + (uintptr_t)first * UNIT_BYTES;
        extents_mark_busy(h, piece, first, run);
        pages_unlock();
        enum hooks_cleanup how =
            hooks_clean_up(hooked_hooks(h), h->arena, range_of(piece->extent, at, run));
        pages_lock();
        note_cleanup(piece, chunk_units(first, run), how);
        extents_mark_free(h, piece, first, run);
        bytes += how != HOOKS_REFUSED ? (size_t)run * UNIT_BYTES : 0;
    }
    if (piece->chunk.queued[CHUNK_DIRTY].is_in) {
        extents_leave_queue(h, piece); /* What was freed meanwhile is new. */
    }
    extents_settle(h, piece);
    pages_unlock();
    return bytes;
}

/* Works off what has been in the queue for `age_ms`; bytes that went.  No more than about what was
 * there at first: others may be freeing all the time. */
static size_t work_off(struct hooked *h, uint64_t age_ms) {
    size_t bytes = 0;
    size_t rounds = 0;
    if (!begin_calls(h)) {
        return 0;
    }
    do {
        pages_lock();
        rounds = rounds == 0 ? 2 * count_read(&h->queued) + 1 : rounds - 1;
        struct piece *piece = extents_oldest(h);
        if (piece == NULL || os_now_ms() - piece->freed_ms < age_ms) {
            pages_unlock();
            break;
        }
        extents_leave_queue(h, piece);
        struct extent *extent = piece->extent;
        bytes += extent->used_units == 0 && !extent->retained ? return_extent(h, extent, false)
                                                              : purge_piece(h, piece);
    } while (rounds > 1);
    end_calls(h);
    return bytes;
}

uint64_t hooked_settle(unsigned arena) {
    struct hooked *h = arena_hooked(arena);
    ssize_t decay_ms = arena_decay_ms(arena & ~(unsigned)ARENA_HOOKED, CHUNK_DIRTY);
    if (h == NULL || count_read(&h->queued) == 0 || decay_ms < 0 || tls.modes & THREAD_IN_HOOK) {
        return UINT64_MAX;
    }
    work_off(h, (uint64_t)decay_ms);
    pages_lock();
    const struct piece *next = extents_oldest(h);
    uint64_t waited = next != NULL ? os_now_ms() - next->freed_ms : 0;
    uint64_t wait_ms =
        next != NULL ? (uint64_t)decay_ms - min_size(waited, (size_t)decay_ms) : UINT64_MAX;
    pages_unlock();
    return wait_ms;
}

size_t hooked_purge(unsigned arena) {
    struct hooked *h = arena_hooked(arena);
    return h != NULL && !(tls.modes & THREAD_IN_HOOK) ? work_off(h, 0) : 0;
}

void hooked_destroy(unsigned arena) {
    struct hooked *h = arena_hooked(arena);
    wait_for_callers(h);
    for (;;) {
        pages_lock();
        struct extent *extent = h->extents;
        while (extent != NULL && extent->used_units != 0) {
            extent = extent->next;
        }
        if (extent == NULL) {
            h->is_leaving = false;
            pages_unlock();
            return;
        }
        return_extent(h, extent, true);
    }
}

/* ---------------------------------------------------------------- made and counted */

struct hooked *hooked_create(unsigned arena) {
    struct hooked *h = meta_alloc(sizeof(struct hooked), CACHE_LINE);
    if (h == NULL) {
        return NULL;
    }
    h->arena = arena;
    h->hooks = &hooks_default;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        bin_init(&h->bins[c], c, arena | ARENA_HOOKED);
    }
    extents_begin(h);
    return h;
}

struct bin *hooked_bins(struct hooked *hooked) {
    return hooked->bins;
}

/* Acquire and release: the program wrote the table before it gave it to us. */
struct extent_hooks *hooked_hooks(const struct hooked *hooked) {
    return atomic_load_explicit(&hooked->hooks, memory_order_acquire);
}

void hooked_set_hooks(struct hooked *hooked, struct extent_hooks *hooks) {
    atomic_store_explicit(&hooked->hooks, hooks, memory_order_release);
}

struct hooked_totals hooked_totals(unsigned arena) {
    const struct hooked *h = arena_hooked(arena);
    if (h == NULL) {
        return (struct hooked_totals){0};
    }
    return (struct hooked_totals){
        .mapped = count_read(&h->mapped) * UNIT_BYTES,
        .used = count_read(&h->used) * UNIT_BYTES,
        .dirty = count_read(&h->dirty) * UNIT_BYTES,
        .muzzy = count_read(&h->muzzy) * UNIT_BYTES,
    };
}
