/* SPDX-License-Identifier: MIT
 *
 * units.c - finding and marking units, for page heaps of both kinds.
 *
 *      chunk    [####] [##.#] [#...]                # used   . available
 *      bucket     -      0      1                   largest aligned block 1, 2
 *
 * The lowest chunk that suffices serves, so that high chunks run empty.
 *
 * Invariant   used[u] == (first[u] != UNIT_FREE), and first[u] <= u.
 * Cost        A search looks at eight chunks at most.
 * Read next   pages.c and extents.c.
 */
#include "heap/units.h"

#include <string.h>

#include "base/log.h"
#include "heap/pages.h"

static struct chunk *chunk_of_node(struct pairing_node *node) {
    return (struct chunk *)((char *)node - offsetof(struct chunk, node));
}

/* Most changes leave the largest block as it is, and the chunk where it is. */
void units_settle(struct units_set *set, struct chunk *chunk, int order) {
    assert(pages_is_mine() && order < UNITS_BUCKETS && !chunk->starts_run);
    if (chunk->bucket == order + 1) {
        return;
    }
    if (chunk->bucket != 0) {
        pairing_remove(&set->buckets[chunk->bucket - 1], &chunk->node);
    }
    chunk->bucket = (uint8_t)(order + 1);
    if (order >= 0) {
        pairing_insert(&set->buckets[order], &chunk->node, chunk->base);
    }
}

struct chunk *units_find(const struct units_set *set, unsigned count, unsigned alignment,
                         unsigned *unit) {
    assert(pages_is_mine() && is_power_of_two(alignment));
    unsigned block = (unsigned)max_size(count, alignment);
    unsigned exact = block <= 1 ? 0 : bits_floor_log2(block - 1) + 1;
    struct chunk *best = NULL;
    /* One bucket below the exact one may hold the run as well, unaligned. */
    for (unsigned b = exact > 0 ? exact - 1 : 0; b < UNITS_BUCKETS; b++) {
        if (set->buckets[b] == NULL) {
            continue;
        }
        struct chunk *chunk = chunk_of_node(set->buckets[b]);
        if ((best == NULL || chunk->base < best->base) &&
            (b >= exact ||
             chunk_find_run(chunk_available(chunk), count, alignment) < CHUNK_UNITS)) {
            best = chunk;
        }
    }
    if (best != NULL) {
        *unit = chunk_find_run(chunk_available(best), count, alignment);
        ensure(*unit < CHUNK_UNITS);
    }
    return best;
}

void units_mark_used(struct chunk *chunk, unsigned first, unsigned count, unsigned head) {
    unit_map units = chunk_units(first, count);
    assert(pages_is_mine() && count >= 1 && head <= first);
    ensure((chunk->used & units) == 0);
    chunk->used |= units;
    memset(chunk->first + first, (int)head, count);
}

void units_mark_free(struct chunk *chunk, unsigned first, unsigned count) {
    unit_map units = chunk_units(first, count);
    assert(pages_is_mine() && count >= 1);
    ensure((chunk->used & units) == units);
    chunk->used &= ~units;
    for (unsigned unit = first; unit < first + count; unit++) {
        /* Release: the child of a fork that finds it free finds the maps as they were before. */
        __atomic_store_n(&chunk->first[unit], UNIT_FREE, __ATOMIC_RELEASE);
    }
}

unsigned units_continue(const struct units_part *part, uintptr_t base) {
    assert(base < part->chunk->base + (uintptr_t)part->first * UNIT_BYTES);
    if (part->first == 0) {
        part->chunk->continues = base;
        return 0;
    }
    return part->chunk->first[part->first - 1];
}

/* ---------------------------------------------------------------- verifying */

void units_verify_chunk(const struct chunk *chunk) {
    for (unsigned unit = 0; unit < CHUNK_UNITS; unit++) {
        bool used = chunk->used >> unit & 1;
        ensure(used == (chunk->first[unit] != UNIT_FREE));
        ensure(!used || chunk->first[unit] <= unit);
    }
}

size_t units_verify(const struct units_set *set) {
    size_t count = 0;
    for (unsigned b = 0; b < UNITS_BUCKETS; b++) {
        count += pairing_verify(set->buckets[b]);
    }
    return count;
}
