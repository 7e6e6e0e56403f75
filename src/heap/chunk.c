/* SPDX-License-Identifier: MIT
 *
 * chunk.c - searching 128 bits, and beginning a span.
 *
 * A run of n set bits is found by and-ing the map with itself shifted: after shifts that sum up to
 * n - 1, a bit is left exactly where a run of n starts.
 *
 * Threads     Pure functions, except those that change a chunk: the page heap's lock guards it.
 */
#include "heap/chunk.h"

#include <string.h>

#include "base/log.h"

static unsigned lowest_unit(unit_map map) {
    uint64_t low = (uint64_t)map;
    uint64_t high = (uint64_t)(map >> 64);
    if (low != 0) {
        return bits_lowest(low);
    }
    return high != 0 ? 64 + bits_lowest(high) : CHUNK_UNITS;
}

unsigned chunk_count_units(unit_map map) {
    return (unsigned)(__builtin_popcountll((uint64_t)map) +
                      __builtin_popcountll((uint64_t)(map >> 64)));
}

/* A bit at every multiple of `alignment`, which is a power of two. */
static unit_map aligned_positions(unsigned alignment) {
    assert(is_power_of_two(alignment));
    static const uint64_t pattern[] = {~UINT64_C(0),
                                       UINT64_C(0x5555555555555555),
                                       UINT64_C(0x1111111111111111),
                                       UINT64_C(0x0101010101010101),
                                       UINT64_C(0x0001000100010001),
                                       UINT64_C(0x0000000100000001),
                                       1};
    if (alignment >= CHUNK_UNITS) {
        return 1;
    }
    uint64_t half = pattern[bits_lowest(alignment)];
    return (unit_map)half << 64 | half;
}

static unit_map run_starts(unit_map map, unsigned count) {
    while (count > 1) {
        unsigned half = count / 2;
        map &= map >> half;
        count -= half;
    }
    return map;
}

unsigned chunk_find_run(unit_map map, unsigned count, unsigned alignment) {
    assert(count >= 1 && count <= CHUNK_UNITS);
    return lowest_unit(run_starts(map, count) & aligned_positions(alignment));
}

int chunk_map_order(unit_map map) {
    unit_map blocks = map; /* a bit at the start of each free block of `size` units */
    int order = -1;
    for (unsigned size = 1; blocks != 0; size *= 2) {
        order++;
        if (size == CHUNK_UNITS) {
            break;
        }
        blocks &= blocks >> size & aligned_positions(size * 2);
    }
    return order;
}

int chunk_free_order(const struct chunk *chunk) {
    return chunk_map_order(chunk_available(chunk));
}

struct span *chunk_fresh_span(struct chunk *chunk, unsigned unit) {
    assert(unit < CHUNK_UNITS && chunk->first[unit] == unit);
    struct span *span = &chunk->span[unit];
    if (unit == 0) {
        chunk->continues = 0;
    }
    span->base = chunk->base + (uintptr_t)unit * UNIT_BYTES;
    span->id = 0;
    __atomic_store_n(&span->owner, 0, __ATOMIC_RELAXED); /* Somebody may look: span_owner. */
    memset(&span->uncarved, 0, offsetof(struct span, bits) - offsetof(struct span, uncarved));
    return span;
}

unsigned chunk_next_run(unit_map map, unsigned *first) {
    if (*first >= CHUNK_UNITS) {
        return 0;
    }
    unsigned start = lowest_unit(map >> *first << *first);
    if (start == CHUNK_UNITS) {
        return 0;
    }
    *first = start;
    unit_map rest = ~map >> start << start;
    assert(start < CHUNK_UNITS);
    return lowest_unit(rest) - start;
}

void chunk_join(struct chunk_list *list, enum chunk_queue kind, struct chunk *chunk) {
    assert(!chunk->queued[kind].is_in);
    chunk->queued[kind] = (struct chunk_links){.older = list->newest, .is_in = true};
    *(list->newest != NULL ? &list->newest->queued[kind].newer : &list->oldest) = chunk;
    list->newest = chunk;
}

void chunk_leave(struct chunk_list *list, enum chunk_queue kind, struct chunk *chunk) {
    struct chunk_links *links = &chunk->queued[kind];
    assert(links->is_in);
    *(links->older != NULL ? &links->older->queued[kind].newer : &list->oldest) = links->newer;
    *(links->newer != NULL ? &links->newer->queued[kind].older : &list->newest) = links->older;
    links->is_in = false;
}
