/* SPDX-License-Identifier: MIT
 *
 * extents.c - finding and marking units in extents; describing extents.
 *
 * Units are found as in pages.c, by units.c.  Extents are never split and never merged, so a run
 * over several chunks is looked for in one extent after the other: there are few.
 *
 * Invariant   A chunk is in the bucket of its largest available block.  What is touched or muzzy is
 *             committed.  A chunk with dirty units is in the queue, and so is one whose extent
 *             holds nothing, unless that is retained.
 * Read next   hooked.c, which calls hooks; pages.c, the page heap of everybody else.
 */
#include "heap/extents.h"

#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/pages.h"

static struct {
    struct hooked *all;
    struct extent *spare_extents;
    struct piece *spare_pieces;
} g; /* guarded by the page heap's lock */

/* ---------------------------------------------------------------- sums, buckets and queue */

static struct piece *piece_at(uintptr_t address) {
    return extents_piece(classmap_chunk(address));
}

static struct hooked *heap_of(const struct piece *piece) {
    return arena_hooked(piece->chunk.owner - 1u);
}

/* Adds a piece to the sums, or takes it out: called before and after each change. */
static void count(struct hooked *h, const struct piece *piece, int sign) {
    const struct chunk *chunk = &piece->chunk;
    size_t times = (size_t)(ptrdiff_t)sign;
    count_add(&h->used, times * chunk_count_units(chunk->used));
    count_add(&h->dirty, times * chunk_count_units(extents_dirty(piece)));
    count_add(&h->muzzy, times * chunk_count_units(chunk->muzzy & ~chunk->used));
    count_add(&h->decommitted, times * chunk_count_units(~chunk->used & ~chunk->committed));
    piece->extent->used_units += times * chunk_count_units(chunk->used);
}

static void join_queue(struct hooked *h, struct piece *piece) {
    chunk_join(&h->queue, CHUNK_DIRTY, &piece->chunk);
    count_add(&h->queued, 1);
    piece->freed_ms = os_now_ms();
}

struct piece *extents_oldest(const struct hooked *h) {
    return extents_piece(h->queue.oldest);
}

void extents_leave_queue(struct hooked *h, struct piece *piece) {
    chunk_leave(&h->queue, CHUNK_DIRTY, &piece->chunk);
    count_add(&h->queued, -(size_t)1);
}

void extents_settle(struct hooked *h, struct piece *piece) {
    struct chunk *chunk = &piece->chunk;
    units_settle(&h->partly, chunk, chunk_free_order(chunk));
    bool whole = piece->extent->used_units == 0 && !piece->extent->retained;
    bool waits = extents_dirty(piece) != 0 || whole;
    if (waits != chunk->queued[CHUNK_DIRTY].is_in) {
        (waits ? join_queue : extents_leave_queue)(h, piece);
    }
}

/* ---------------------------------------------------------------- units */

/* Marks free units of one piece as used: `head` is the first unit of their span. */
static void mark_used(struct hooked *h, struct piece *piece, unsigned first, unsigned units,
                      unsigned head) {
    count(h, piece, -1);
    units_mark_used(&piece->chunk, first, units, head);
    count(h, piece, 1);
    extents_settle(h, piece);
}

/* The same for units that are handed out; returns whether they read as zeros. */
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

void extents_mark_free(struct hooked *h, struct piece *piece, unsigned first, unsigned units) {
    count(h, piece, -1);
    units_mark_free(&piece->chunk, first, units);
    count(h, piece, 1);
    extents_settle(h, piece);
}

void extents_mark_busy(struct hooked *h, struct piece *piece, unsigned first, unsigned units) {
    mark_used(h, piece, first, units, first);
    piece->chunk.span[first].kind = SPAN_NONE; /* No walk meets them. */
    if (first == 0) {
        piece->chunk.continues = 0;
    }
}

/* Marks consecutive units as one span, maybe over several pieces. */
static struct span *mark_span(struct hooked *h, uintptr_t base, size_t units, bool *zeroed) {
    struct units_range range = {base, units};
    struct units_part part;
    *zeroed = true;
    while (units_next(&range, &part)) {
        *zeroed &= hand_out(h, extents_piece(part.chunk), part.first, part.count, part.first);
        if (part.chunk->base > base) {
            part.chunk->continues = base;
        }
    }
    return chunk_fresh_span(classmap_chunk(base), chunk_unit(base));
}

/* The lowest run of available units in one chunk, as an address; 0 when there is none. */
static uintptr_t find_in_chunk(struct hooked *h, unsigned units, unsigned alignment) {
    unsigned unit;
    const struct chunk *chunk = units_find(&h->partly, units, alignment, &unit);
    return chunk != NULL ? chunk->base + (uintptr_t)unit * UNIT_BYTES : 0;
}

/* Are these units of an extent free, and committed if they have to be? */
static bool are_free(const struct extent *extent, uintptr_t at, size_t units, bool committed) {
    if ((at - extent->base) / UNIT_BYTES + units > extent->chunks * CHUNK_UNITS) {
        return false;
    }
    struct units_range range = {at, units};
    struct units_part part;
    while (units_next(&range, &part)) {
        unit_map map = committed ? chunk_available(part.chunk) : ~part.chunk->used;
        unit_map wanted = chunk_units(part.first, part.count);
        if ((map & wanted) != wanted) {
            return false;
        }
    }
    return true;
}

uintptr_t extents_find(struct hooked *h, size_t units, size_t alignment, bool committed) {
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

struct span *extents_take(unsigned arena, size_t units, size_t alignment, bool *zeroed) {
    struct hooked *h = arena_hooked(arena);
    pages_lock();
    uintptr_t at = units <= CHUNK_UNITS && alignment <= CHUNK_UNITS
                       ? find_in_chunk(h, (unsigned)units, (unsigned)alignment)
                       : extents_find(h, units, alignment, true);
    struct span *span = at != 0 ? mark_span(h, at, units, zeroed) : NULL;
    pages_unlock();
    return span;
}

bool extents_extend(uintptr_t base, size_t units, size_t more) {
    uintptr_t end = base + units * UNIT_BYTES;
    pages_lock();
    struct piece *last = piece_at(end - 1);
    struct hooked *h = heap_of(last);
    bool fits = are_free(last->extent, end, more, true);
    struct units_range range = {end, more};
    struct units_part part;
    while (fits && units_next(&range, &part)) {
        unsigned head = units_continue(&part, base);
        (void)hand_out(h, extents_piece(part.chunk), part.first, part.count, head);
    }
    pages_unlock();
    return fits;
}

void extents_give_back(uintptr_t base, size_t units) {
    struct units_range range = {base, units};
    struct units_part part;
    pages_lock();
    while (units_next(&range, &part)) {
        struct piece *piece = extents_piece(part.chunk);
        extents_mark_free(heap_of(piece), piece, part.first, part.count);
    }
    pages_unlock();
}

/* ---------------------------------------------------------------- extents */

/* Memory for a description: a used one if there is any. */
static struct piece *new_piece(void) {
    struct piece *piece = g.spare_pieces;
    if (piece != NULL) {
        g.spare_pieces = piece->next_spare;
        /* Its spans stay: a lookup of an address not owned by its caller may still read them. */
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
    count_add(&h->mapped, extent->chunks * CHUNK_UNITS);
}

static void unlink_extent(struct hooked *h, struct extent *extent) {
    struct extent **link = &h->extents;
    while (*link != extent) {
        link = &(*link)->next;
    }
    *link = extent->next;
    extent->is_listed = false;
    count_add(&h->mapped, -(extent->chunks * CHUNK_UNITS));
}

/* Enters a piece at `base` into the chunk table and the sets; false where that is not possible. */
static bool enter_piece(struct hooked *h, struct piece *piece) {
    if (!classmap_cover(piece->chunk.base)) {
        return false;
    }
    classmap_enter(&piece->chunk);
    count(h, piece, 1);
    extents_settle(h, piece);
    return true;
}

static void remove_piece(struct hooked *h, struct piece *piece) {
    if (piece->chunk.queued[CHUNK_DIRTY].is_in) {
        extents_leave_queue(h, piece);
    }
    units_settle(&h->partly, &piece->chunk, -1);
    count(h, piece, -1);
    classmap_leave(&piece->chunk);
}

static void spare_piece(struct piece *piece) {
    piece->next_spare = g.spare_pieces;
    g.spare_pieces = piece;
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

void extents_forget(struct extent *extent, struct piece *hidden) {
    spare_pieces(hidden);
    extent->next = g.spare_extents;
    g.spare_extents = extent;
}

struct piece *extents_hide(struct hooked *h, struct extent *extent) {
    assert(extent->used_units == 0);
    struct piece *hidden = hide_pieces(h, extent, extent->chunks);
    unlink_extent(h, extent);
    return hidden;
}

static bool describe_piece(struct hooked *h, struct extent *extent, uintptr_t base, bool zero) {
    struct piece *piece = new_piece();
    if (piece == NULL) {
        return false;
    }
    __atomic_store_n(&piece->chunk.base, base, __ATOMIC_RELAXED); /* classmap_walk reads it */
    piece->chunk.owner = (uint16_t)(h->arena + 1);
    piece->extent = extent;
    piece->chunk.committed = ~(unit_map)0;
    piece->chunk.touched = zero ? 0 : ~(unit_map)0;
    piece->chunk.muzzy = piece->chunk.touched; /* Nobody here used it: there is nothing to purge. */
    memset(piece->chunk.first, UNIT_FREE, sizeof(piece->chunk.first));
    if (!enter_piece(h, piece)) {
        spare_piece(piece);
        return false;
    }
    return true;
}

bool extents_add(struct hooked *h, uintptr_t base, size_t chunks, bool zero) {
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
            extents_forget(extent, hide_pieces(h, extent, done));
        }
    }
    pages_unlock();
    return extent != NULL && done == chunks;
}

void extents_take_back(struct hooked *h, struct extent *extent, struct piece *hidden) {
    for (struct piece *piece = hidden; piece != NULL; piece = piece->next_spare) {
        if (!classmap_cover(piece->chunk.base)) {
            extents_forget(extent, hidden); /* The hooks kept it, and gave it to another arena. */
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

/* ---------------------------------------------------------------- made and verified */

void extents_begin(struct hooked *h) {
    pages_lock();
    h->next = g.all;
    g.all = h;
    pages_unlock();
}

static size_t verify_piece(const struct piece *piece) {
    const struct chunk *chunk = &piece->chunk;
    units_verify_chunk(chunk);
    ensure(chunk->bucket == chunk_free_order(chunk) + 1);
    ensure(extents_dirty(piece) == 0 || chunk->queued[CHUNK_DIRTY].is_in);
    ensure((chunk->touched & ~piece->chunk.committed & ~chunk->used) == 0);
    return chunk_count_units(chunk->used);
}

void extents_verify(struct hooked *h) {
    size_t used = 0, mapped = 0, dirty = 0;
    pages_lock();
    for (struct extent *extent = h->extents; extent != NULL; extent = extent->next) {
        size_t in_extent = 0;
        for (size_t i = 0; i < extent->chunks; i++) {
            const struct piece *piece = piece_at(extent->base + i * CHUNK_BYTES);
            ensure(piece != NULL && piece->extent == extent);
            in_extent += verify_piece(piece);
            dirty += chunk_count_units(extents_dirty(piece));
        }
        ensure(in_extent == extent->used_units);
        used += in_extent;
        mapped += extent->chunks * CHUNK_UNITS;
    }
    ensure(used == count_read(&h->used) && mapped == count_read(&h->mapped));
    ensure(dirty == count_read(&h->dirty));
    (void)units_verify(&h->partly);
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
            count_add(&h->mapped, extent->chunks * CHUNK_UNITS);
            link = &extent->next;
        } else {
            *link = extent->next;
        }
    }
}

void extents_repair_begin(void) {
    g.spare_extents = NULL;
    g.spare_pieces = NULL;
    for (struct hooked *h = g.all; h != NULL; h = h->next) {
        h->partly = (struct units_set){0};
        h->queue = (struct chunk_list){0};
        uint64_t *sums[] = {&h->queued, &h->mapped, &h->used,
                            &h->dirty,  &h->muzzy,  &h->decommitted};
        for (unsigned i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
            count_set(sums[i], 0);
        }
        keep_whole_extents(h);
    }
}

void extents_repair_chunk(struct chunk *chunk) {
    struct piece *piece = extents_piece(chunk);
    struct hooked *h = heap_of(piece);
    if (!piece->extent->is_listed) {
        classmap_leave(chunk);
        return;
    }
    chunk->bucket = 0;
    chunk->queued[CHUNK_DIRTY].is_in = false;
    count(h, piece, 1);
    extents_settle(h, piece);
}
