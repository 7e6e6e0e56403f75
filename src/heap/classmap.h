/* SPDX-License-Identifier: MIT
 *
 * classmap.h - from an address to its size class, and to its chunk.
 *
 * The class map holds two bytes per granule of 16 KiB.  The class byte is 4 * class for granules of
 * slabs that are ready for the fast path, 0 for everything else (foreign, large, not yet
 * published); beside it stands the arena the slab belongs to.  It is an array of 4 GiB
 * indexed by bits 14..44 of the address, reserved readable, of which only the parts that describe
 * the heap have memory.  An index of 31 bits cannot leave it, so the fast path may look up any
 * pointer whatever.
 *
 *      pointer   |63 ... 45|44 ......... 14|13 ... 0|
 *                  dropped    index          offset
 *
 * Addresses that agree in bits 14..44 share an entry.  The heap owns at most one of them; for the
 * others the fast path may be fooled once, and the drain that follows compares all bits and stops.
 *
 * Where 4 GiB of addresses cannot be had (an address space limit, valgrind) the mask is 0 and the
 * map is a single entry that is 0: every free takes the slow path, which uses the chunk table only.
 * When a limit comes later, the map becomes the same: the mask turns 0, the first page stays, and
 * so do the parts that describe the heap, for a thread that was about to read one.
 *
 * The chunk table is the exact map: two levels, all bits compared.
 *
 * Threads     Reads take no lock.  A class byte is written by the owner of the slab, with release
 *             order, after the granule is ready and back to 0 before its units are given back.
 */
#pragma once

#include "base/log.h"
#include "heap/chunk.h"

enum {
    ADDRESS_BITS = 48, /* the heap lies below 2^48; x86-64 uses half of that */
    LG_TABLE_LEAF = 30,
    TABLE_LEAVES = 1 << 15,
    LEAF_CHUNKS = 512,
};

typedef _Atomic(struct chunk *) chunk_slot;
extern _Atomic(chunk_slot *) classmap_leaves[TABLE_LEAVES] HIDDEN;
/* All leaves lie in this range: a walk need not look at the tens of thousands of others. */
extern _Atomic uint32_t classmap_first_leaf HIDDEN, classmap_last_leaf HIDDEN;

void classmap_init(bool windowed);

/* True when the class map is not in use and every free must take the slow path. */
bool classmap_is_windowed(void);

/* The memory of the class map. */
void classmap_walk_memory(void (*visit)(uintptr_t start, uintptr_t end, void *context),
                          void *context);

/* Gives the addresses of the class map back, for good; frees take the slow path from now on.  Other
 * threads may be looking up meanwhile.  Call with the page heap locked. */
void classmap_shrink(void);

/* Makes room to describe a chunk at `base`.  False, with nothing changed, without memory or when an
 * address that shares its bytes is in use. */
bool classmap_cover(uintptr_t base);

/* The ranges of addresses that chunks of the heap cover, in order. */
void classmap_walk(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context);

/* Bytes of the table that leads from an address to its chunk. */
size_t classmap_table_bytes(void);

/* Enters a covered chunk; from now on lookups find it. */
void classmap_enter(struct chunk *chunk);

/* Takes a chunk that holds nothing out again.  As the two above, with the page heap locked. */
void classmap_leave(const struct chunk *chunk);

/* The `count` granules from `address` on are ready, or, with class 0, no longer. */
void classmap_publish(uintptr_t address, size_t count, unsigned size_class);

/* They belong to this automatic arena, whether they are ready or not. */
void classmap_set_arena(uintptr_t address, size_t count, unsigned arena);

static inline chunk_slot *classmap_leaf(uintptr_t address) {
    /* Acquire: the leaf is read next. */
    return atomic_load_explicit(&classmap_leaves[address >> LG_TABLE_LEAF & (TABLE_LEAVES - 1)],
                                memory_order_acquire);
}

/* The chunk whose table entry an address shares; the caller knows that there is one, and the high
 * bits are not compared. */
static inline struct chunk *classmap_chunk_sharing(uintptr_t address) {
    assert(classmap_leaf(address) != NULL);
    /* Acquire: the chunk is read next. */
    return atomic_load_explicit(&classmap_leaf(address)[address >> LG_CHUNK & (LEAF_CHUNKS - 1)],
                                memory_order_acquire);
}

/* Where the descriptor of the slab at `base` must be, under the same condition: the object came
 * through the class map or was looked up. */
static inline struct span *classmap_span_sharing(uintptr_t base) {
    return &classmap_chunk_sharing(base)->span[chunk_unit(base)];
}

/* The chunk an address lies in, or NULL when it is not of this heap. */
static inline struct chunk *classmap_chunk(uintptr_t address) {
    if (classmap_leaf(address) == NULL) {
        return NULL;
    }
    struct chunk *chunk = classmap_chunk_sharing(address);
    return chunk != NULL && chunk->base == align_down(address, CHUNK_BYTES) ? chunk : NULL;
}

/* The chunk `distance` chunks behind this one, or NULL. */
static inline struct chunk *classmap_neighbour(const struct chunk *chunk, ptrdiff_t distance) {
    assert(chunk->base % CHUNK_BYTES == 0);
    return classmap_chunk(chunk->base + (uintptr_t)(distance * CHUNK_BYTES));
}

/* The span an address lies in, or NULL when its unit is free or not of this heap.  The first
 * function serves spans that began in an earlier chunk. */
struct span *classmap_continued_span(const struct chunk *chunk);
static inline struct span *classmap_span(uintptr_t address) {
    struct chunk *chunk = classmap_chunk(address);
    unsigned first = chunk != NULL ? chunk->first[chunk_unit(address)] : UNIT_FREE;
    if (UNLIKELY(first == UNIT_FREE)) {
        return NULL;
    }
    return UNLIKELY(first == 0 && chunk->continues != 0) ? classmap_continued_span(chunk)
                                                         : &chunk->span[first];
}
