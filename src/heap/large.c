/* SPDX-License-Identifier: MIT
 *
 * large.c - objects that own whole units.
 *
 * A block uses pages up to its size and takes addresses up to a whole unit; the rest of the last
 * unit is never touched, so 36 KiB cost 36 KiB of memory and 48 KiB of addresses.
 *
 *      |<------------- units ------------->|
 *      |<---- bytes (page multiple) --->|..|
 *
 * A block that cannot grow where it stands is not copied: the kernel hangs its pages in at the new
 * place, and the old place is left empty, as if it had never been used.  Such pages are mappings of
 * their own (moved.c), so when they are freed new memory is put in their place, which the kernel
 * joins with the rest of the heap again.
 *
 * Threads     The kind of the span changes by compare and swap, so of two racing frees one wins and
 *             the other learns of it.
 * Invariant   bytes <= units * UNIT_BYTES < bytes + UNIT_BYTES.
 */
#include "heap/large.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "heap/arena.h"
#include "heap/extents.h"
#include "heap/moved.h"
#include "heap/region.h"
#include "heap/shelf.h"
#include "heap/units.h"
#include "opt/opt.h"

enum {
    MOVE_LEAST = 128 << 10, /* below that, copying is as fast, and needs no mapping */
    /* Below that, a block is copied to a place that was used before: its pages are there already,
     * and the place that a move leaves would need new ones.  bench_micro realloc. */
    MOVE_ONTO_USED_LEAST = 2 << 20,
    PURGE_LEAST = 8 << 10, /* at the end of a block that shrinks; less is not worth a system call */
    PIECES_MOST = 16,      /* a block of more pieces has its smaller ones copied when it moves */
};

static struct { _Atomic size_t lost_bytes; } g;

/* Nothing near the end of the address space: rounding below must not wrap. */
static const size_t most_bytes = (size_t)1 << 46;

size_t large_most_bytes(void) {
    return most_bytes;
}

bool large_is_possible(size_t bytes, size_t alignment) {
    return bytes <= most_bytes && alignment <= most_bytes / 2;
}

static size_t units_for(size_t bytes) {
    assert(bytes > 0 && bytes <= most_bytes + UNIT_BYTES);
    return (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
}

size_t large_units(size_t usable) {
    return units_for(usable);
}

size_t large_usable_bytes(size_t bytes) {
    return align_up(max_size(bytes, 1), os_facts.page_bytes);
}

/* A block of `bytes` usable bytes comes or goes. */
static void count_alloc(unsigned arena, size_t bytes) {
    struct arena_sums *sums = &arena_get(arena & ARENA_INDEX)->sums;
    count_add_shared(&sums->lextents[counts_lextent_of(bytes)].nmalloc, 1);
    count_add_shared(&sums->large_bytes, bytes);
    count_add_shared(&sums->large_total, bytes);
    arena_add_units(arena, units_for(bytes));
}

static void count_gone(unsigned arena, size_t bytes) {
    struct arena_sums *sums = &arena_get(arena & ARENA_INDEX)->sums;
    count_add_shared(&sums->lextents[counts_lextent_of(bytes)].ndalloc, 1);
    count_add_shared(&sums->large_bytes, -bytes);
}

static void count_free(unsigned arena, size_t bytes) {
    count_gone(arena, bytes);
    arena_add_units(arena, -units_for(bytes));
}

/* Counts a block of another size in place of the old one. */
static void count_resize(unsigned arena, size_t old_bytes, size_t bytes) {
    if (counts_lextent_of(old_bytes) != counts_lextent_of(bytes)) {
        count_alloc(arena, bytes);
        count_free(arena, old_bytes);
    } else {
        struct arena_sums *sums = &arena_get(arena & ARENA_INDEX)->sums;
        count_add_shared(&sums->large_bytes, bytes - old_bytes);
        count_add_shared(&sums->large_total, bytes > old_bytes ? bytes - old_bytes : 0);
        arena_add_units(arena, units_for(bytes) - units_for(old_bytes));
    }
}

void *large_alloc(size_t bytes, size_t alignment, enum pages_growth growth, bool *zeroed,
                  unsigned arena) {
    assert(is_power_of_two(alignment) && !(arena & ARENA_TRACKED));
    if (!large_is_possible(bytes, alignment)) {
        return NULL;
    }
    size_t usable = large_usable_bytes(bytes);
    size_t units = units_for(usable);
    size_t alignment_units = max_size(alignment / UNIT_BYTES, 1);
    struct span *span = UNLIKELY(arena & ARENA_HOOKED)
                            ? extents_take(arena, units, alignment_units, zeroed)
                            : pages_take(units, alignment_units, growth, zeroed);
    if (span == NULL) {
        return NULL;
    }
    span->bytes = usable;
    __atomic_store_n(&span->arena, (uint16_t)arena, __ATOMIC_RELAXED);
    assert(span->kind == SPAN_NONE && span->base % alignment == 0);
    assert(usable <= units * UNIT_BYTES && units * UNIT_BYTES < usable + UNIT_BYTES);
    /* Release: whoever gets the pointer and frees it finds the span complete. */
    __atomic_store_n(&span->kind, SPAN_LARGE, __ATOMIC_RELEASE);
    count_alloc(arena, usable);
    return (void *)span->base;
}

/* ---------------------------------------------------------------- zeros */

/* Writing zeros costs a third of what the kernel asks for taking pages back, as long as there is
 * memory behind all of them; but it gives memory to pages that have none, and may never need it. */
static void zero_run(void *start, size_t bytes, bool by_kernel) {
    assert(bytes > 0);
    if (!by_kernel || os_purge(start, align_up(bytes, os_facts.page_bytes)) != 0) {
        memset(start, 0, bytes);
    }
}

void large_zero(const struct span *span, size_t bytes) {
    assert(bytes <= span->bytes && span->kind == SPAN_LARGE);
    bool by_kernel = bytes >= opt.calloc_madvise_threshold && !(span->arena & ARENA_HOOKED) &&
                     os_facts.page_bytes <= UNIT_BYTES;
    uintptr_t end = span->base + bytes;
    struct units_range range = {span->base, units_for(max_size(bytes, 1))};
    struct units_part part;
    while (units_next(&range, &part)) {
        unit_map stale =
            span->is_reused ? chunk_units(part.first, part.count) : pages_stale_units(&part);
        unsigned first = 0, length;
        for (; (length = chunk_next_run(stale, &first)) > 0; first += length) {
            uintptr_t start = part.chunk->base + (uintptr_t)first * UNIT_BYTES;
            zero_run((void *)start, min_size((size_t)length * UNIT_BYTES, end - start), by_kernel);
        }
    }
}

/* ---------------------------------------------------------------- giving back */

/* False when somebody else was first, or it is the span of a slab, which is not written to. */
bool large_claim(struct span *span) {
    uint8_t expected = SPAN_LARGE;
    return __atomic_load_n(&span->kind, __ATOMIC_RELAXED) == expected &&
           __atomic_compare_exchange_n(&span->kind, &expected, SPAN_NONE, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

/* The addresses are mapped by others, or may be: nobody gets these units again. */
static COLD void lose(size_t units) {
    atomic_fetch_add_explicit(&g.lost_bytes, units * UNIT_BYTES, memory_order_relaxed);
}

/* Gives back units in which there may be moved pages.  If the kernel refuses to put new memory in
 * their place, they are ordinary dirty units and their ranges stay in the list. */
static void give_back_moved(uintptr_t base, size_t units) {
    assert(base % UNIT_BYTES == 0 && units >= 1);
    uintptr_t end = base + units * UNIT_BYTES;
    uintptr_t piece_end;
    if (!moved_look(base, end, &piece_end) && piece_end == end) {
        pages_give_back(base, units);
        return;
    }
    int error = os_renew((void *)base, end - base);
    if (error != 0 && error != -EADDRNOTAVAIL) {
        pages_give_back(base, units);
        return;
    }
    moved_forget(base, end);
    if (error == 0) {
        region_advise_again(base, end - base);
        pages_give_back_zeros(base, units);
    } else {
        lose(units);
    }
}

static void give_back(const struct span *span, uintptr_t base, size_t units) {
    if (UNLIKELY(span->arena & ARENA_HOOKED)) {
        extents_give_back(base, units);
    } else if (UNLIKELY(span->moved_pieces != 0)) {
        give_back_moved(base, units);
    } else {
        pages_give_back(base, units);
    }
}

void large_release(struct span *span) {
    /* Atomic: whoever frees the block a second time tries to claim it meanwhile. */
    assert(__atomic_load_n(&span->kind, __ATOMIC_RELAXED) == SPAN_NONE);
    count_gone(span->arena, span->bytes);
    large_return(span);
}

void large_return(struct span *span) {
    assert(__atomic_load_n(&span->kind, __ATOMIC_RELAXED) == SPAN_NONE);
    size_t units = units_for(span->bytes);
    arena_add_units(span->arena, -units);
    give_back(span, span->base, units);
}

void large_move_over(struct span *span, unsigned arena) {
    assert(!((span->arena | arena) & ARENA_HOOKED) && span->arena != arena);
    count_free(span->arena, span->bytes);
    arena_add_units(arena, units_for(span->bytes));
    /* Atomic: a pass that looks for slabs (reclaim.c) reads it. */
    __atomic_store_n(&span->arena, (uint16_t)arena, __ATOMIC_RELAXED);
}

/* ---------------------------------------------------------------- resizing in place */

/* The whole pages that a shrinking block leaves in its last unit. */
static void purge_rest(uintptr_t base, size_t old_bytes, size_t bytes) {
    assert(bytes < old_bytes && bytes % os_facts.page_bytes == 0);
    size_t end = min_size(old_bytes, units_for(bytes) * UNIT_BYTES);
    if (end - bytes >= PURGE_LEAST) {
        os_purge((void *)(base + bytes), end - bytes);
    }
}

static bool extend(const struct span *span, size_t units, size_t more) {
    return span->arena & ARENA_HOOKED ? extents_extend(span->base, units, more)
                                      : pages_extend(span->base, units, more, PAGES_MAY_GROW);
}

bool large_resize(struct span *span, size_t bytes) {
    assert(span->kind == SPAN_LARGE);
    if (bytes > most_bytes) {
        return false;
    }
    size_t usable = large_usable_bytes(bytes);
    size_t old = span->bytes;
    size_t have = units_for(old);
    size_t want = units_for(usable);
    if (want > have && !extend(span, have, want - have)) {
        return false;
    }
    count_resize(span->arena, old, usable);
    span->bytes = usable;
    if (usable < old && !(span->arena & ARENA_HOOKED)) {
        purge_rest(span->base, old, usable);
    }
    if (want < have) {
        give_back(span, span->base + want * UNIT_BYTES, have - want);
    }
    return true;
}

/* ---------------------------------------------------------------- moving */

/* A block on its way.  Each mapping it consists of is a piece. */
struct journey {
    uintptr_t from, to;
    size_t bytes;
    size_t done;   /* bytes that have arrived */
    size_t least;  /* smaller pieces are copied */
    size_t moved;  /* pieces that were moved */
    size_t copied; /* pieces that were copied */
};

/* Brings the next piece to its place.  False when that place is lost. */
static bool bring_piece(struct journey *way, size_t bytes) {
    assert(bytes > 0 && way->done + bytes <= way->bytes);
    void *from = (void *)(way->from + way->done);
    void *to = (void *)(way->to + way->done);
    if (bytes >= way->least && moved_add((uintptr_t)to, bytes)) {
        int error = os_move(to, from, bytes);
        if (error == 0) {
            way->moved++;
            way->done += bytes;
            return true;
        }
        moved_forget((uintptr_t)to, (uintptr_t)to + bytes);
        if (error == -EADDRNOTAVAIL) {
            return false;
        }
    }
    memcpy(to, from, bytes);
    way->copied++;
    way->done += bytes;
    return true;
}

/* What has arrived goes back; nothing is left of the destination. */
static COLD void turn_back(struct journey *way) {
    memcpy((void *)way->from, (void *)way->to, way->done);
    moved_forget(way->to, way->to + way->done);
    if (way->done > 0) {
        os_unmap((void *)way->to, way->done);
    }
}

static bool travel(struct journey *way, bool in_pieces) {
    uintptr_t end = way->from + way->bytes;
    while (way->done < way->bytes) {
        uintptr_t at = way->from + way->done;
        uintptr_t piece_end = end;
        if (in_pieces) {
            moved_look(at, end, &piece_end);
        }
        if (!bring_piece(way, piece_end - at)) {
            turn_back(way);
            return false;
        }
    }
    return true;
}

static size_t least_to_move(const struct span *span, bool onto_used) {
    if (onto_used && span->bytes < MOVE_ONTO_USED_LEAST) {
        return SIZE_MAX;
    }
    return span->moved_pieces < PIECES_MOST ? MOVE_LEAST : max_size(MOVE_LEAST, span->bytes / 8);
}

/* Gives back the place the block has left, whose pages are empty if it moved as one piece. */
static void give_back_left(const struct span *span, const struct journey *way) {
    assert(way->done == way->bytes);
    size_t empty = span->moved_pieces == 0 && way->copied == 0 ? way->bytes / UNIT_BYTES : 0;
    size_t units = units_for(way->bytes);
    if (empty > 0) {
        pages_give_back_zeros(way->from, empty);
    }
    if (empty < units) {
        give_back(span, way->from + empty * UNIT_BYTES, units - empty);
    }
}

void *large_move(struct span *span, size_t bytes, enum pages_growth growth) {
    if (bytes > most_bytes || bytes < span->bytes || span->arena & ARENA_HOOKED) {
        return NULL;
    }
    size_t usable = large_usable_bytes(bytes);
    bool zeroed;
    struct span *target = pages_take_to_grow(units_for(usable), growth, &zeroed);
    if (target == NULL) {
        return NULL;
    }
    if (!large_claim(span)) {
        pages_give_back(target->base, units_for(usable));
        return NULL;
    }
    struct journey way = {.from = span->base,
                          .to = target->base,
                          .bytes = span->bytes,
                          .least = least_to_move(span, !zeroed)};
    assert(target != span && way.bytes <= usable);
    if (!travel(&way, span->moved_pieces != 0)) {
        lose(units_for(usable));
        __atomic_store_n(&span->kind, SPAN_LARGE, __ATOMIC_RELEASE);
        return NULL;
    }
    target->bytes = usable;
    __atomic_store_n(&target->arena, span->arena, __ATOMIC_RELAXED);
    target->id = span->id;
    target->moved_pieces = (uint32_t)way.moved;
    __atomic_store_n(&target->kind, SPAN_LARGE, __ATOMIC_RELEASE);
    count_resize(span->arena, way.bytes, usable);
    give_back_left(span, &way);
    return (void *)target->base;
}

/* ---------------------------------------------------------------- counting */

/* The frees are read first, so that few differences are negative. */
void large_read_sums(unsigned arena, struct large_sums *sums) {
    const struct arena *found = arena_get(arena);
    *sums = (struct large_sums){0};
    if (found == NULL) {
        return;
    }
    for (unsigned i = 0; i < LEXTENT_CLASSES; i++) {
        sums->ndalloc[i] = count_read(&found->sums.lextents[i].ndalloc);
        sums->nmalloc[i] = count_read(&found->sums.lextents[i].nmalloc);
    }
    sums->bytes = count_read(&found->sums.large_bytes);
    sums->total = count_read(&found->sums.large_total);
    shelf_add_sums(arena, sums);
}

size_t large_count_in(unsigned arena) {
    struct large_sums sums;
    large_read_sums(arena, &sums);
    size_t count = 0;
    for (unsigned i = 0; i < LEXTENT_CLASSES; i++) {
        count += sums.nmalloc[i] - sums.ndalloc[i];
    }
    return count;
}

size_t large_bytes_in(unsigned arena) {
    struct large_sums sums;
    large_read_sums(arena, &sums);
    return sums.bytes;
}

size_t large_count(void) {
    size_t count = 0;
    for (unsigned a = 0; a < arena_limit(); a++) {
        count += large_count_in(a);
    }
    return count;
}

size_t large_bytes(void) {
    size_t bytes = 0;
    for (unsigned a = 0; a < arena_limit(); a++) {
        bytes += large_bytes_in(a);
    }
    return bytes;
}

size_t large_lost_bytes(void) {
    return atomic_load_explicit(&g.lost_bytes, memory_order_relaxed);
}
