/* SPDX-License-Identifier: MIT
 *
 * hooked.c - page heaps over memory that the program supplies.
 *
 *      extent    | chunk | chunk | chunk |        one call of the alloc hook, aligned to a chunk
 *      unit        used, or free: available (committed), decommitted, or dirty (available, touched)
 *
 * Units are found as in pages.c: chunks lie in eight buckets by the largest aligned block that is
 * available in them, and the lowest one serves.  Chunks with dirty units, and those whose extent holds
 * nothing, stand in a queue; after the arena's dirty_decay_ms an extent that holds nothing is offered
 * to the dalloc hook, and dirty units are decommitted, purged by force or purged lazily, whichever
 * hook first says yes.
 *
 * Nothing of ours is locked while a hook runs, and the caller counts as being outside of the library:
 * a hook may allocate, which then comes from arena 0, past every cache (heap.c, place.c).  What a hook
 * works on is out of reach meanwhile: units are marked as used, an extent is taken out of the list and
 * the chunk table.  A fork at that moment loses them in the child and doubles nothing.
 *
 * Threads     Everything is guarded by the page heap's lock, but for the pointer to the hooks and the
 *             sums, which are read without.
 * Invariant   A chunk is in the bucket of its largest available block.  used[u] == (first[u] !=
 *             UNIT_FREE).  What is touched or muzzy is committed.
 * Read next   pages.c, the page heap of everybody else.
 */
#include "heap/hooked.h"

#include <stdatomic.h>
#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/large.h"
#include "heap/pages.h"
#include "heap/thread.h"

enum { BUCKETS = 8 };

/* What one call of the alloc hook gave.  In the list of its heap, in the hands of the thread that
 * calls a hook for it, or a spare. */
struct extent {
    uintptr_t base;
    size_t chunks;
    size_t used_units; /* of all its chunks, those a hook works on included */
    bool retained;     /* new, or the dalloc hook refused it; and nobody used it since */
    bool is_listed;    /* in the list of its heap; then all its chunks are in the chunk table */
    struct extent *next;
};

struct piece {
    struct chunk chunk; /* first: what the chunk table knows */
    unit_map committed;
    struct extent *extent;
    uint64_t freed_ms; /* when it joined the queue */
    struct piece *next_spare;
};

struct hooked {
    struct bin bins[CLASS_COUNT];
    _Atomic(struct extent_hooks *) hooks;
    unsigned arena;
    struct extent *extents;
    struct pairing_node *partly[BUCKETS];
    struct piece *oldest; /* the queue, linked through queued[CHUNK_DIRTY] */
    struct piece *newest;
    _Atomic size_t queued; /* pieces in it; read without the lock */
    /* In units; written under the lock, read without. */
    _Atomic size_t mapped, used, dirty, muzzy;
    _Atomic size_t decommitted;  /* free and not committed */
    _Atomic uint32_t callers;    /* threads that may be calling hooks */
    _Atomic uint32_t generation; /* of their process (lock.h): a fork leaves them behind */
    bool is_leaving;             /* the arena is being destroyed */
    struct hooked *next;         /* all of them, for repair */
};

static struct {
    struct hooked *all;
    struct extent *spare_extents;
    struct piece *spare_pieces;
} g; /* guarded by the page heap's lock */

/* ---------------------------------------------------------------- who calls hooks */

/* From now on the caller may call hooks, which keep parts of the heap out of sight.  False when the
 * arena is being destroyed: the one who does so calls all that is needed. */
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

/* Keeps others from calling hooks, and waits for those that do; a hook itself waits for nobody. */
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

/* ---------------------------------------------------------------- sums, buckets and queue */

static size_t read_sum(const _Atomic size_t *sum) {
    return atomic_load_explicit(sum, memory_order_relaxed);
}

static void add(_Atomic size_t *sum, size_t change) {
    atomic_store_explicit(sum, read_sum(sum) + change, memory_order_relaxed);
}

static struct piece *piece_of(struct chunk *chunk) {
    return (struct piece *)chunk;
}

static struct piece *piece_at(uintptr_t address) {
    return piece_of(classmap_chunk(address));
}

static struct hooked *heap_of(const struct piece *piece) {
    return arena_hooked(piece->chunk.owner - 1u);
}

static unit_map dirty_map(const struct piece *piece) {
    return ~piece->chunk.used & piece->chunk.touched & ~piece->chunk.muzzy;
}

static unit_map available(const struct piece *piece) {
    return ~piece->chunk.used & piece->committed;
}

/* Adds a piece to the sums, or takes it out: called before and after each change. */
static void count(struct hooked *h, const struct piece *piece, int sign) {
    const struct chunk *chunk = &piece->chunk;
    size_t times = (size_t)(ptrdiff_t)sign;
    add(&h->used, times * chunk_count_units(chunk->used));
    add(&h->dirty, times * chunk_count_units(dirty_map(piece)));
    add(&h->muzzy, times * chunk_count_units(chunk->muzzy & ~chunk->used));
    add(&h->decommitted, times * chunk_count_units(~chunk->used & ~piece->committed));
    piece->extent->used_units += times * chunk_count_units(chunk->used);
}

static void leave_bucket(struct hooked *h, struct chunk *chunk) {
    if (chunk->bucket != 0) {
        pairing_remove(&h->partly[chunk->bucket - 1], &chunk->node);
        chunk->bucket = 0;
    }
}

static void join_queue(struct hooked *h, struct piece *piece) {
    struct chunk_links *links = &piece->chunk.queued[CHUNK_DIRTY];
    struct chunk *newest = h->newest != NULL ? &h->newest->chunk : NULL;
    *links = (struct chunk_links){.older = newest, .is_in = true};
    if (newest != NULL) {
        newest->queued[CHUNK_DIRTY].newer = &piece->chunk;
    } else {
        h->oldest = piece;
    }
    h->newest = piece;
    add(&h->queued, 1);
    piece->freed_ms = os_now_ms();
}

static void leave_queue(struct hooked *h, struct piece *piece) {
    struct chunk_links *links = &piece->chunk.queued[CHUNK_DIRTY];
    if (links->older != NULL) {
        links->older->queued[CHUNK_DIRTY].newer = links->newer;
    } else {
        h->oldest = links->newer != NULL ? piece_of(links->newer) : NULL;
    }
    if (links->newer != NULL) {
        links->newer->queued[CHUNK_DIRTY].older = links->older;
    } else {
        h->newest = links->older != NULL ? piece_of(links->older) : NULL;
    }
    links->is_in = false;
    add(&h->queued, -(size_t)1);
}

/* Puts a piece where its units say. */
static void settle_piece(struct hooked *h, struct piece *piece) {
    struct chunk *chunk = &piece->chunk;
    int order = chunk_map_order(available(piece));
    if (chunk->bucket != order + 1) {
        leave_bucket(h, chunk);
        if (order >= 0) {
            chunk->bucket = (uint8_t)(order + 1);
            pairing_insert(&h->partly[order], &chunk->node, chunk->base);
        }
    }
    bool whole = piece->extent->used_units == 0 && !piece->extent->retained;
    bool waits = dirty_map(piece) != 0 || whole;
    if (waits != chunk->queued[CHUNK_DIRTY].is_in) {
        (waits ? join_queue : leave_queue)(h, piece);
    }
}

/* ---------------------------------------------------------------- units */

static unsigned units_in_chunk(uintptr_t address, size_t units) {
    return (unsigned)min_size(units, CHUNK_UNITS - chunk_unit(address));
}

/* Marks free units of one piece as used: `head` is the first unit of their span. */
static void mark_used(struct hooked *h, struct piece *piece, unsigned first, unsigned units,
                      unsigned head) {
    struct chunk *chunk = &piece->chunk;
    unit_map map = chunk_units(first, units);
    ensure((chunk->used & map) == 0);
    count(h, piece, -1);
    chunk->used |= map;
    memset(chunk->first + first, (int)head, units);
    count(h, piece, 1);
    settle_piece(h, piece);
}

/* The same for units that are handed out; tells whether they read as zeros. */
static bool hand_out(struct hooked *h, struct piece *piece, unsigned first, unsigned units,
                     unsigned head) {
    unit_map map = chunk_units(first, units);
    bool zeros = (piece->chunk.touched & map) == 0;
    mark_used(h, piece, first, units, head);
    piece->chunk.touched |= map;
    piece->chunk.muzzy &= ~map;
    piece->extent->retained = false;
    return zeros;
}

static void mark_free(struct hooked *h, struct piece *piece, unsigned first, unsigned units) {
    struct chunk *chunk = &piece->chunk;
    unit_map map = chunk_units(first, units);
    ensure((chunk->used & map) == map);
    count(h, piece, -1);
    chunk->used &= ~map;
    memset(chunk->first + first, UNIT_FREE, units);
    count(h, piece, 1);
    settle_piece(h, piece);
}

/* Units behind each other that one span takes, maybe over several pieces. */
static struct span *mark_span(struct hooked *h, uintptr_t base, size_t units, bool *zeroed) {
    struct piece *head = piece_at(base);
    unsigned unit = chunk_unit(base);
    *zeroed = true;
    for (uintptr_t at = base; units > 0;) {
        unsigned here = units_in_chunk(at, units);
        struct piece *piece = piece_at(at);
        *zeroed &= hand_out(h, piece, chunk_unit(at), here, chunk_unit(at));
        if (at != base) {
            piece->chunk.continues = base;
        }
        at += (uintptr_t)here * UNIT_BYTES;
        units -= here;
    }
    return chunk_fresh_span(&head->chunk, unit);
}

/* The lowest run of available units in one chunk, as an address; 0 when there is none. */
static uintptr_t find_in_chunk(struct hooked *h, unsigned units, unsigned alignment) {
    unsigned block = (unsigned)max_size(units, alignment);
    unsigned exact = block <= 1 ? 0 : bits_floor_log2(block - 1) + 1;
    uintptr_t best = 0;
    for (unsigned b = exact > 0 ? exact - 1 : 0; b < BUCKETS; b++) {
        if (h->partly[b] != NULL) {
            char *node = (char *)h->partly[b];
            struct piece *piece = piece_of((struct chunk *)(node - offsetof(struct chunk, node)));
            unsigned unit = chunk_find_run(available(piece), units, alignment);
            uintptr_t at = piece->chunk.base + (uintptr_t)unit * UNIT_BYTES;
            if (unit < CHUNK_UNITS && (best == 0 || at < best)) {
                best = at;
            }
        }
    }
    return best;
}

/* Are these units of an extent free, and committed if they have to be? */
static bool are_free(const struct extent *extent, uintptr_t at, size_t units, bool committed) {
    if ((at - extent->base) / UNIT_BYTES + units > extent->chunks * CHUNK_UNITS) {
        return false;
    }
    while (units > 0) {
        unsigned here = units_in_chunk(at, units);
        const struct piece *piece = piece_at(at);
        unit_map map = committed ? available(piece) : ~piece->chunk.used;
        unit_map wanted = chunk_units(chunk_unit(at), here);
        if ((map & wanted) != wanted) {
            return false;
        }
        at += (uintptr_t)here * UNIT_BYTES;
        units -= here;
    }
    return true;
}

/* The same for free units that start a chunk, and for units of one chunk in any state; slower, since
 * all extents are looked at. */
static uintptr_t find_in_extents(struct hooked *h, size_t units, size_t alignment, bool committed) {
    bool in_chunk = units <= CHUNK_UNITS && alignment <= CHUNK_UNITS;
    for (struct extent *extent = h->extents; extent != NULL; extent = extent->next) {
        for (size_t i = 0; i < extent->chunks; i++) {
            uintptr_t at = extent->base + i * CHUNK_BYTES;
            if (in_chunk) {
                unsigned unit =
                    chunk_find_run(~piece_at(at)->chunk.used, (unsigned)units, (unsigned)alignment);
                if (unit < CHUNK_UNITS) {
                    return at + (uintptr_t)unit * UNIT_BYTES;
                }
            } else if (at % (alignment * UNIT_BYTES) == 0 &&
                       are_free(extent, at, units, committed)) {
                return at;
            }
        }
    }
    return 0;
}

struct span *hooked_take(unsigned arena, size_t units, size_t alignment, bool *zeroed) {
    struct hooked *h = arena_hooked(arena);
    pages_lock();
    uintptr_t at = units <= CHUNK_UNITS && alignment <= CHUNK_UNITS
                       ? find_in_chunk(h, (unsigned)units, (unsigned)alignment)
                       : find_in_extents(h, units, alignment, true);
    struct span *span = at != 0 ? mark_span(h, at, units, zeroed) : NULL;
    pages_unlock();
    return span;
}

bool hooked_extend(uintptr_t base, size_t units, size_t more) {
    uintptr_t end = base + units * UNIT_BYTES;
    pages_lock();
    struct piece *last = piece_at(end - 1);
    struct hooked *h = heap_of(last);
    bool fits = are_free(last->extent, end, more, true);
    while (fits && more > 0) {
        struct piece *piece = piece_at(end);
        unsigned unit = chunk_unit(end);
        unsigned here = units_in_chunk(end, more);
        (void)hand_out(h, piece, unit, here, unit == 0 ? 0 : piece->chunk.first[unit - 1]);
        if (unit == 0) {
            piece->chunk.continues = base;
        }
        end += (uintptr_t)here * UNIT_BYTES;
        more -= here;
    }
    pages_unlock();
    return fits;
}

void hooked_give_back(uintptr_t base, size_t units) {
    pages_lock();
    while (units > 0) {
        unsigned here = units_in_chunk(base, units);
        struct piece *piece = piece_at(base);
        mark_free(heap_of(piece), piece, chunk_unit(base), here);
        base += (uintptr_t)here * UNIT_BYTES;
        units -= here;
    }
    pages_unlock();
}

/* ---------------------------------------------------------------- extents */

/* Memory for a description, a used one if there is one. */
static struct piece *new_piece(void) {
    struct piece *piece = g.spare_pieces;
    if (piece != NULL) {
        g.spare_pieces = piece->next_spare;
        /* Its spans stay: who looks up an address that is not his may still read them. */
        size_t kept = offsetof(struct piece, chunk.used);
        memset((char *)piece + kept, 0, sizeof(*piece) - kept);
        return piece;
    }
    size_t span_bytes = align_up(CHUNK_UNITS * sizeof(struct span), os_facts.page_bytes);
    struct span *spans = meta_alloc(span_bytes, os_facts.page_bytes);
    piece = spans != NULL ? meta_alloc(sizeof(struct piece), CACHE_LINE) : NULL;
    if (piece != NULL) {
        piece->chunk.span = spans;
    }
    return piece;
}

static struct extent *new_extent(void) {
    struct extent *extent = g.spare_extents;
    if (extent != NULL) {
        g.spare_extents = extent->next;
        *extent = (struct extent){0};
        return extent;
    }
    return meta_alloc(sizeof(struct extent), sizeof(void *));
}

static void link_extent(struct hooked *h, struct extent *extent) {
    extent->next = h->extents;
    h->extents = extent;
    extent->is_listed = true;
    add(&h->mapped, extent->chunks * CHUNK_UNITS);
}

static void unlink_extent(struct hooked *h, struct extent *extent) {
    struct extent **link = &h->extents;
    while (*link != extent) {
        link = &(*link)->next;
    }
    *link = extent->next;
    extent->is_listed = false;
    add(&h->mapped, -(extent->chunks * CHUNK_UNITS));
}

/* Enters a piece at `base` into the chunk table and the sets; false where somebody else is known. */
static bool enter_piece(struct hooked *h, struct piece *piece) {
    if (!classmap_cover(piece->chunk.base)) {
        return false;
    }
    classmap_enter(&piece->chunk);
    count(h, piece, 1);
    settle_piece(h, piece);
    return true;
}

static void remove_piece(struct hooked *h, struct piece *piece) {
    if (piece->chunk.queued[CHUNK_DIRTY].is_in) {
        leave_queue(h, piece);
    }
    leave_bucket(h, &piece->chunk);
    count(h, piece, -1);
    classmap_leave(&piece->chunk);
}

static void spare_piece(struct piece *piece) {
    piece->next_spare = g.spare_pieces;
    g.spare_pieces = piece;
}

static void spare_extent(struct extent *extent) {
    extent->next = g.spare_extents;
    g.spare_extents = extent;
}

/* Takes the first `pieces` pieces of an extent out of sight; they are linked through next_spare. */
static struct piece *hide_pieces(struct hooked *h, const struct extent *extent, size_t pieces) {
    struct piece *hidden = NULL;
    for (size_t i = pieces; i > 0; i--) {
        struct piece *piece = piece_at(extent->base + (i - 1) * CHUNK_BYTES);
        remove_piece(h, piece);
        piece->next_spare = hidden;
        hidden = piece;
    }
    return hidden;
}

static void spare_pieces(struct piece *hidden) {
    while (hidden != NULL) {
        struct piece *next = hidden->next_spare;
        spare_piece(hidden);
        hidden = next;
    }
}

static bool describe_piece(struct hooked *h, struct extent *extent, uintptr_t base, bool zero) {
    struct piece *piece = new_piece();
    if (piece == NULL) {
        return false;
    }
    __atomic_store_n(&piece->chunk.base, base, __ATOMIC_RELAXED); /* classmap_walk reads it */
    piece->chunk.owner = (uint16_t)(h->arena + 1);
    piece->extent = extent;
    piece->committed = ~(unit_map)0;
    piece->chunk.touched = zero ? 0 : ~(unit_map)0;
    piece->chunk.muzzy = piece->chunk.touched; /* Nobody here used it: there is nothing to purge. */
    memset(piece->chunk.first, UNIT_FREE, sizeof(piece->chunk.first));
    if (!enter_piece(h, piece)) {
        spare_piece(piece);
        return false;
    }
    return true;
}

/* Makes an extent of what the alloc hook gave; false, with nothing changed, when it cannot be one of
 * ours: it overlaps what we have, lies too high, or we have no memory to describe it. */
static bool add_extent(struct hooked *h, uintptr_t base, size_t chunks, bool zero) {
    pages_lock();
    struct extent *extent = new_extent();
    size_t done = 0;
    if (extent != NULL) {
        *extent = (struct extent){.base = base, .chunks = chunks, .retained = true};
        while (done < chunks && describe_piece(h, extent, base + done * CHUNK_BYTES, zero)) {
            done++;
        }
        if (done == chunks) {
            link_extent(h, extent);
        } else {
            spare_pieces(hide_pieces(h, extent, done));
            spare_extent(extent);
        }
    }
    pages_unlock();
    return extent != NULL && done == chunks;
}

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
    if (sound && !commit) { /* It was to be. */
        struct hooks_range whole = {.base = base, .size = size, .length = size};
        sound = zero = commit = hooks_commit(hooks, h->arena, whole);
    }
    if (sound && add_extent(h, base, chunks, zero)) {
        return true;
    }
    if (!hooks_dalloc(hooks, h->arena, base, size, commit)) {
        hooks_destroy(hooks, h->arena, base, size, commit);
    }
    return false;
}

/* ---------------------------------------------------------------- commit */

/* A run of units of one chunk on which a hook is to work: nobody else gets them meanwhile, and what
 * they hold is not changed by that.  The lock is held before and after each of these. */
static void mark_busy(struct hooked *h, struct piece *piece, unsigned first, unsigned units) {
    mark_used(h, piece, first, units, first);
    piece->chunk.span[first].kind = SPAN_NONE; /* No walk meets them. */
    if (first == 0) {
        piece->chunk.continues = 0;
    }
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
           (run = chunk_next_run(map & ~piece->committed & ~piece->chunk.used, &first)) > 0) {
        uintptr_t at = piece->chunk.base + (uintptr_t)first * UNIT_BYTES;
        mark_busy(h, piece, first, run);
        pages_unlock();
        done = hooks_commit(hooked_hooks(h), h->arena, range_of(piece->extent, at, run));
        pages_lock();
        if (done) {
            piece->committed |= chunk_units(first, run);
            piece->chunk.touched &= ~chunk_units(first, run);
        }
        mark_free(h, piece, first, run);
        first += run;
    }
    return done;
}

/* Makes some free units available that were decommitted, in one chunk; false when that is not what is
 * missing, or the hook refuses.  Others may come meanwhile: the caller looks again. */
static bool commit_some(struct hooked *h, size_t units, size_t alignment) {
    bool done = false;
    pages_lock();
    uintptr_t at = read_sum(&h->decommitted) > 0 ? find_in_extents(h, units, alignment, false) : 0;
    while (at != 0 && units > 0 && !done) {
        unsigned here = units_in_chunk(at, units);
        struct piece *piece = piece_at(at);
        unit_map map = chunk_units(chunk_unit(at), here) & ~piece->committed;
        if (map != 0) {
            done = commit_in_piece(h, piece, map);
            break;
        }
        at += (uintptr_t)here * UNIT_BYTES;
        units -= here;
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
        if (pieces->committed != ~(unit_map)0) {
            return false;
        }
    }
    return true;
}

/* Changes what is known of free units after a clean-up. */
static void note_cleanup(struct piece *piece, unit_map units, enum hooks_cleanup how) {
    switch (how) {
    case HOOKS_DECOMMITTED:
        piece->committed &= ~units;
        /* fall through */
    case HOOKS_ZEROS:
        piece->chunk.touched &= ~units;
        break;
    case HOOKS_LAZY:
    case HOOKS_REFUSED: /* It is not tried again before somebody used it. */
        piece->chunk.muzzy |= units & piece->chunk.touched;
        break;
    }
}

/* Puts an extent that could not be returned back in its place. */
static void take_back(struct hooked *h, struct extent *extent, struct piece *hidden) {
    for (struct piece *piece = hidden; piece != NULL; piece = piece->next_spare) {
        if (!classmap_cover(piece->chunk.base)) {
            spare_pieces(hidden); /* The hooks refused to take it, and gave it to another arena. */
            spare_extent(extent);
            return;
        }
    }
    extent->retained = true;
    link_extent(h, extent);
    for (struct piece *piece = hidden, *next; piece != NULL; piece = next) {
        next = piece->next_spare;
        (void)enter_piece(h, piece);
    }
}

/* An extent that holds nothing, and is out of sight.  True when it was returned. */
static bool let_go(struct hooked *h, struct extent *extent, struct piece *hidden, bool for_good) {
    size_t size = extent->chunks * CHUNK_BYTES;
    bool committed = is_committed(hidden);
    struct extent_hooks *hooks = hooked_hooks(h);
    bool gone = hooks_dalloc(hooks, h->arena, extent->base, size, committed);
    if (!gone && for_good) {
        hooks_destroy(hooks, h->arena, extent->base, size, committed);
        gone = true;
    }
    /* One that is not all committed is cleaned up by the piece, since its dirty units queue again. */
    bool cleans = !gone && committed;
    struct hooks_range whole = {.base = extent->base, .size = size, .length = size};
    enum hooks_cleanup how = cleans ? hooks_clean_up(hooks, h->arena, whole) : HOOKS_REFUSED;
    pages_lock();
    if (gone) {
        spare_pieces(hidden);
        spare_extent(extent);
    } else {
        for (struct piece *piece = hidden; cleans && piece != NULL; piece = piece->next_spare) {
            note_cleanup(piece, ~(unit_map)0, how);
        }
        take_back(h, extent, hidden);
    }
    pages_unlock();
    return gone;
}

/* Hides an extent that holds nothing; the lock is held before and not after. */
static size_t return_extent(struct hooked *h, struct extent *extent, bool for_good) {
    size_t size = extent->chunks * CHUNK_BYTES;
    struct piece *hidden = hide_pieces(h, extent, extent->chunks);
    unlink_extent(h, extent);
    pages_unlock();
    return let_go(h, extent, hidden, for_good) ? size : 0;
}

/* Cleans up the dirty units of a piece, a run at a time; the lock is held before and not after. */
static size_t purge_piece(struct hooked *h, struct piece *piece) {
    size_t bytes = 0;
    unsigned first = 0;
    for (unsigned run; (run = chunk_next_run(dirty_map(piece), &first)) > 0; first += run) {
        uintptr_t at = piece->chunk.base + (uintptr_t)first * UNIT_BYTES;
        mark_busy(h, piece, first, run);
        pages_unlock();
        enum hooks_cleanup how =
            hooks_clean_up(hooked_hooks(h), h->arena, range_of(piece->extent, at, run));
        pages_lock();
        note_cleanup(piece, chunk_units(first, run), how);
        mark_free(h, piece, first, run);
        bytes += how != HOOKS_REFUSED ? (size_t)run * UNIT_BYTES : 0;
    }
    if (piece->chunk.queued[CHUNK_DIRTY].is_in) {
        leave_queue(h, piece); /* What was freed meanwhile is new. */
    }
    settle_piece(h, piece);
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
        rounds = rounds == 0 ? 2 * read_sum(&h->queued) + 1 : rounds - 1;
        struct piece *piece = h->oldest;
        if (piece == NULL || os_now_ms() - piece->freed_ms < age_ms) {
            pages_unlock();
            break;
        }
        leave_queue(h, piece);
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
    if (h == NULL || read_sum(&h->queued) == 0 || decay_ms < 0 || tls.modes & THREAD_IN_HOOK) {
        return UINT64_MAX;
    }
    work_off(h, (uint64_t)decay_ms);
    pages_lock();
    uint64_t waited = h->oldest != NULL ? os_now_ms() - h->oldest->freed_ms : 0;
    uint64_t wait_ms =
        h->oldest != NULL ? (uint64_t)decay_ms - min_size(waited, (size_t)decay_ms) : UINT64_MAX;
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

/* ---------------------------------------------------------------- made, counted, verified */

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
    pages_lock();
    h->next = g.all;
    g.all = h;
    pages_unlock();
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
        .mapped = read_sum(&h->mapped) * UNIT_BYTES,
        .used = read_sum(&h->used) * UNIT_BYTES,
        .dirty = read_sum(&h->dirty) * UNIT_BYTES,
        .muzzy = read_sum(&h->muzzy) * UNIT_BYTES,
    };
}

static size_t verify_piece(const struct piece *piece) {
    const struct chunk *chunk = &piece->chunk;
    for (unsigned unit = 0; unit < CHUNK_UNITS; unit++) {
        ensure((chunk->used >> unit & 1) == (chunk->first[unit] != UNIT_FREE));
    }
    ensure(chunk->bucket == chunk_map_order(available(piece)) + 1);
    ensure(dirty_map(piece) == 0 || chunk->queued[CHUNK_DIRTY].is_in);
    ensure((chunk->touched & ~piece->committed & ~chunk->used) == 0);
    return chunk_count_units(chunk->used);
}

void hooked_verify(unsigned arena) {
    struct hooked *h = arena_hooked(arena);
    size_t used = 0, mapped = 0, dirty = 0;
    pages_lock();
    for (struct extent *extent = h->extents; extent != NULL; extent = extent->next) {
        size_t in_extent = 0;
        for (size_t i = 0; i < extent->chunks; i++) {
            const struct piece *piece = piece_at(extent->base + i * CHUNK_BYTES);
            ensure(piece != NULL && piece->extent == extent);
            in_extent += verify_piece(piece);
            dirty += chunk_count_units(dirty_map(piece));
        }
        ensure(in_extent == extent->used_units);
        used += in_extent;
        mapped += extent->chunks * CHUNK_UNITS;
    }
    ensure(used == read_sum(&h->used) && mapped == read_sum(&h->mapped));
    ensure(dirty == read_sum(&h->dirty));
    pages_unlock();
}

/* ---------------------------------------------------------------- after a fork */

static bool is_whole(const struct extent *extent) {
    for (size_t i = 0; i < extent->chunks; i++) {
        const struct piece *piece = piece_at(extent->base + i * CHUNK_BYTES);
        if (piece == NULL || piece->extent != extent) {
            return false;
        }
    }
    return true;
}

/* Extents that were being entered or taken out hold nothing; the child loses them. */
static void keep_whole_extents(struct hooked *h) {
    for (struct extent **link = &h->extents; *link != NULL;) {
        struct extent *extent = *link;
        extent->is_listed = is_whole(extent);
        extent->used_units = 0;
        if (extent->is_listed) {
            add(&h->mapped, extent->chunks * CHUNK_UNITS);
            link = &extent->next;
        } else {
            *link = extent->next;
        }
    }
}

void hooked_repair_begin(void) {
    g.spare_extents = NULL;
    g.spare_pieces = NULL;
    for (struct hooked *h = g.all; h != NULL; h = h->next) {
        memset(h->partly, 0, sizeof(h->partly));
        h->oldest = h->newest = NULL;
        h->queued = 0;
        h->mapped = h->used = h->dirty = h->muzzy = h->decommitted = 0;
        keep_whole_extents(h);
    }
}

void hooked_repair_chunk(struct chunk *chunk) {
    struct piece *piece = piece_of(chunk);
    struct hooked *h = heap_of(piece);
    if (!piece->extent->is_listed) {
        classmap_leave(chunk);
        return;
    }
    chunk->bucket = 0;
    chunk->queued[CHUNK_DIRTY].is_in = false;
    count(h, piece, 1);
    settle_piece(h, piece);
}
