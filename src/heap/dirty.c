/* SPDX-License-Identifier: MIT
 *
 * dirty.c - the queue of chunks with dirty units.
 *
 * Freed units stay as they are ("dirty").  Chunks with dirty units stand in a queue; the one that
 * got dirty first is purged when that was dirty_decay_ms ago and somebody gives units back.
 *
 * Threads     Guarded by the page heap's lock, except the sums.
 * Invariant   kept == units that are free and touched, over all chunks; a chunk that has some is in
 *             the queue.
 */
#include "heap/dirty.h"

#include <stdatomic.h>

#include "base/opt.h"
#include "base/os.h"

enum {
    MANY_UNITS = 16, /* a quarter of a MiB, at once or in 16 calls */
    GIVEN_BACK_PER_LOOK = 16,
};

static struct {
    struct chunk *oldest;
    struct chunk *newest;
    uint64_t now_ms;     /* the clock as last read */
    uint32_t given_back; /* calls of dirty_decay */
    /* Written under the lock, read without. */
    _Atomic size_t kept_units;
    _Atomic size_t purged_units;
} g;

bool dirty_has_background;

static void add(_Atomic size_t *sum, size_t value) {
    size_t old = atomic_load_explicit(sum, memory_order_relaxed);
    atomic_store_explicit(sum, old + value, memory_order_relaxed);
}

static unit_map dirty_units(const struct chunk *chunk) {
    return chunk->touched & ~chunk->used;
}

/* ---------------------------------------------------------------- the queue */

static void enqueue(struct chunk *chunk) {
    if (chunk->is_dirty) {
        return;
    }
    chunk->is_dirty = 1;
    chunk->dirty_since_ms = g.now_ms;
    chunk->next_dirty = NULL;
    if (g.newest != NULL) {
        g.newest->next_dirty = chunk;
    } else {
        g.oldest = chunk;
    }
    g.newest = chunk;
}

static struct chunk *dequeue(void) {
    struct chunk *chunk = g.oldest;
    g.oldest = chunk->next_dirty;
    if (g.oldest == NULL) {
        g.newest = NULL;
    }
    chunk->is_dirty = 0;
    return chunk;
}

bool dirty_reuse(struct chunk *chunk, unit_map units) {
    unit_map was_touched = chunk->touched & units;
    chunk->touched |= units;
    add(&g.kept_units, -(size_t)chunk_count_units(was_touched));
    return was_touched == 0;
}

void dirty_keep(struct chunk *chunk, unit_map units) {
    add(&g.kept_units, chunk_count_units(units));
    enqueue(chunk);
}

/* ---------------------------------------------------------------- purging */

/* Purges the whole kernel pages inside [first, first + count) units; only those become clean. */
static size_t purge_run(struct chunk *chunk, unsigned first, unsigned count) {
    uintptr_t start = align_up(chunk->base + (uintptr_t)first * UNIT_BYTES, os_facts.page_bytes);
    uintptr_t end =
        align_down(chunk->base + (uintptr_t)(first + count) * UNIT_BYTES, os_facts.page_bytes);
    if (start >= end || os_purge((void *)start, end - start) != 0) {
        return 0;
    }
    unsigned units = (unsigned)((end - start) / UNIT_BYTES);
    chunk->touched &= ~chunk_units(chunk_unit(start), units);
    return units;
}

static size_t purge_chunk(struct chunk *chunk) {
    unit_map dirty = dirty_units(chunk);
    size_t units = 0;
    unsigned length;
    for (unsigned first = 0; (length = chunk_next_run(dirty, &first)) > 0; first += length) {
        units += purge_run(chunk, first, length);
    }
    if (dirty_units(chunk) != 0) {
        enqueue(chunk); /* The kernel refused: try again later. */
    }
    add(&g.kept_units, -units);
    add(&g.purged_units, units);
    return units;
}

/* Purges the chunks that got dirty at `until_ms` or before, oldest first; units that went.  Chunks
 * the kernel refuses to purge join the queue again, so it ends at the chunk that is last now. */
static size_t purge_until(uint64_t until_ms) {
    size_t purged = 0;
    struct chunk *last = g.newest;
    struct chunk *chunk = NULL;
    while (chunk != last && g.oldest->dirty_since_ms <= until_ms) {
        chunk = dequeue();
        purged += purge_chunk(chunk);
    }
    return purged;
}

/* Reading the clock costs about as much as giving a slab back, so it is read for every sixteenth of
 * those and for all that is larger. */
bool dirty_looks_at_clock(size_t units) {
    g.given_back++;
    if (units < MANY_UNITS && g.given_back % GIVEN_BACK_PER_LOOK != 0) {
        return opt.dirty_decay_ms == 0;
    }
    g.now_ms = os_now_ms();
    return true;
}

void dirty_decay(void) {
    uint64_t age = (uint64_t)opt.dirty_decay_ms;
    if (opt.dirty_decay_ms >= 0 && g.now_ms >= age) {
        purge_until(g.now_ms - age);
    }
}

size_t dirty_purge_all(void) {
    return purge_until(UINT64_MAX);
}

/* ---------------------------------------------------------------- repairing, counting */

void dirty_reset(void) {
    g.oldest = g.newest = NULL;
    g.kept_units = 0;
}

void dirty_add_again(struct chunk *chunk) {
    chunk->touched = ~(unit_map)0;
    chunk->is_dirty = 0;
    dirty_keep(chunk, dirty_units(chunk));
}

struct dirty_totals dirty_totals(void) {
    return (struct dirty_totals){
        .kept = atomic_load_explicit(&g.kept_units, memory_order_relaxed),
        .purged = atomic_load_explicit(&g.purged_units, memory_order_relaxed),
    };
}
