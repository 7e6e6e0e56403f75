/* SPDX-License-Identifier: MIT
 *
 * classmap.c - reserves the class map and opens it piece by piece as the heap grows.
 *
 * Read next   classmap.h for the layout and the promise to readers.
 */
#include "heap/classmap.h"

#include "base/log.h"
#include "base/os.h"
#include "heap/fast.h"

/* The class map is made writable in pieces that describe 1 GiB, the reach of one table leaf. */
enum {
    PIECE_GRANULES = 1 << (LG_TABLE_LEAF - LG_UNIT),
    PIECE_BYTES = PIECE_GRANULES * sizeof(struct granule),
};
static const uint32_t index_mask = (uint32_t)PIECE_GRANULES * TABLE_LEAVES - 1;
static const size_t map_bytes = (size_t)PIECE_BYTES * TABLE_LEAVES;

/* What the map points to before start, and for ever in window mode: free may be the first call. */
static struct granule nothing;

_Atomic(struct granule *) classmap = &nothing;
_Atomic uint32_t classmap_mask = 0;
SPARSE _Atomic(chunk_slot *) classmap_leaves[TABLE_LEAVES];
_Atomic uint32_t classmap_first_leaf = TABLE_LEAVES;
_Atomic uint32_t classmap_last_leaf = 0;

void classmap_init(bool windowed) {
    void *map = windowed ? NULL : os_reserve_readable(map_bytes);
    if (map != NULL) {
        classmap = map;
        /* Release: whoever sees the mask sees the map. */
        atomic_store_explicit(&classmap_mask, index_mask, memory_order_release);
    }
}

bool classmap_is_windowed(void) {
    return atomic_load_explicit(&classmap_mask, memory_order_relaxed) == 0;
}

void classmap_walk_memory(void (*visit)(uintptr_t start, uintptr_t end, void *context),
                          void *context) {
    uintptr_t start = (uintptr_t)classmap;
    if (!classmap_is_windowed()) { /* else others may be in its place */
        visit(start, start + map_bytes, context);
    }
}

static bool open_piece(uintptr_t base) {
    if (classmap_is_windowed()) {
        return true;
    }
    uint32_t first =
        (uint32_t)(align_down(base, UINT64_C(1) << LG_TABLE_LEAF) >> LG_UNIT) & index_mask;
    return os_commit((void *)&classmap[first], PIECE_BYTES) == 0;
}

static bool piece_is_open(size_t piece) {
    return atomic_load_explicit(&classmap_leaves[piece], memory_order_relaxed) != NULL;
}

/*
 * Pieces that describe the heap stay: a thread that read the mask before may still read the byte of
 * an object that it owns.  Nothing else is looked up, except by a free of what is not ours.
 */
static void unmap_closed_pieces(void) {
    uintptr_t start = (uintptr_t)classmap + os_facts.page_bytes;
    for (size_t piece = 0; piece <= TABLE_LEAVES; piece++) {
        if (piece == TABLE_LEAVES || piece_is_open(piece)) {
            uintptr_t end = (uintptr_t)classmap + piece * PIECE_BYTES;
            if (end > start) {
                os_unmap((void *)start, end - start);
            }
            start = end + PIECE_BYTES;
        }
    }
}

/* A second call would unmap what others may have mapped into the holes since. */
void classmap_shrink(void) {
    if (!classmap_is_windowed()) {
        atomic_store_explicit(&classmap_mask, 0, memory_order_seq_cst);
        assert(nothing.class4 == 0);
        unmap_closed_pieces();
    }
}

/* The first entry of the map must stay 0, since every lookup reads it once the mask is 0. */
static bool uses_first_entry(uintptr_t base) {
    return ((base >> LG_UNIT) & index_mask) == 0;
}

static void widen_leaf_range(uint32_t leaf) {
    if (leaf < classmap_first_leaf) {
        classmap_first_leaf = leaf;
    }
    if (leaf > classmap_last_leaf) {
        classmap_last_leaf = leaf;
    }
}

bool classmap_cover(uintptr_t base) {
    assert(base % CHUNK_BYTES == 0);
    if (base >> ADDRESS_BITS != 0 || uses_first_entry(base)) {
        return false;
    }
    _Atomic(chunk_slot *) *entry = &classmap_leaves[base >> LG_TABLE_LEAF & (TABLE_LEAVES - 1)];
    chunk_slot *leaf = atomic_load_explicit(entry, memory_order_relaxed);
    if (leaf != NULL) {
        return atomic_load_explicit(&leaf[base >> LG_CHUNK & (LEAF_CHUNKS - 1)],
                                    memory_order_relaxed) == NULL;
    }
    if (!open_piece(base)) {
        return false;
    }
    leaf = meta_alloc(LEAF_CHUNKS * sizeof(chunk_slot), CACHE_LINE);
    if (leaf == NULL) {
        return false;
    }
    widen_leaf_range((uint32_t)(entry - classmap_leaves));
    /* Release: readers must find the leaf zeroed, and in the range. */
    atomic_store_explicit(entry, leaf, memory_order_release);
    return true;
}

size_t classmap_table_bytes(void) {
    size_t leaves = 0;
    for (size_t i = classmap_first_leaf; i <= classmap_last_leaf; i++) {
        leaves += piece_is_open(i);
    }
    return leaves * LEAF_CHUNKS * sizeof(chunk_slot);
}

/* Where the chunk of a number in the table begins; 0 when there is none.  Descriptors of hooked
 * arenas are used again: one that describes another chunk by now does not count. */
static uintptr_t base_of_number(size_t number) {
    chunk_slot *leaf =
        atomic_load_explicit(&classmap_leaves[number / LEAF_CHUNKS], memory_order_acquire);
    const struct chunk *chunk =
        leaf != NULL ? atomic_load_explicit(&leaf[number % LEAF_CHUNKS], memory_order_acquire)
                     : NULL;
    uintptr_t base = chunk != NULL ? __atomic_load_n(&chunk->base, __ATOMIC_RELAXED) : 0;
    bool is_other = (base >> LG_CHUNK) % ((size_t)TABLE_LEAVES * LEAF_CHUNKS) != number;
    return is_other ? 0 : base;
}

void classmap_walk(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context) {
    uintptr_t start = 0, end = 0;
    size_t last = ((size_t)classmap_last_leaf + 1) * LEAF_CHUNKS;
    for (size_t i = (size_t)classmap_first_leaf * LEAF_CHUNKS; i < last; i++) {
        uintptr_t base = base_of_number(i);
        if (base == 0) {
            /* A leaf that is missing is skipped as a whole. */
            i |= classmap_leaves[i / LEAF_CHUNKS] == NULL ? LEAF_CHUNKS - 1 : 0;
        } else if (base == end) {
            end += CHUNK_BYTES;
        } else {
            if (end != 0) {
                visit(start, end, context);
            }
            start = base;
            end = start + CHUNK_BYTES;
        }
    }
    if (end != 0) {
        visit(start, end, context);
    }
}

static chunk_slot *slot_of(uintptr_t base) {
    assert(classmap_leaf(base) != NULL);
    chunk_slot *leaf = atomic_load_explicit(
        &classmap_leaves[base >> LG_TABLE_LEAF & (TABLE_LEAVES - 1)], memory_order_relaxed);
    return &leaf[base >> LG_CHUNK & (LEAF_CHUNKS - 1)];
}

void classmap_enter(struct chunk *chunk) {
    assert(atomic_load_explicit(slot_of(chunk->base), memory_order_relaxed) == NULL);
    /* Release: readers must find the chunk initialised. */
    atomic_store_explicit(slot_of(chunk->base), chunk, memory_order_release);
}

void classmap_leave(const struct chunk *chunk) {
    assert(atomic_load_explicit(slot_of(chunk->base), memory_order_relaxed) == chunk);
    atomic_store_explicit(slot_of(chunk->base), NULL, memory_order_release);
}

/* The entry of a granule, or NULL in window mode. */
static struct granule *granule_at(uintptr_t address) {
    assert(address % UNIT_BYTES == 0);
    return classmap_is_windowed() ? NULL : &classmap[(address >> LG_UNIT) & index_mask];
}

void classmap_publish(uintptr_t address, size_t count, unsigned size_class) {
    assert(size_class < CLASS_COUNT);
    struct granule *granule = granule_at(address);
    for (size_t i = 0; granule != NULL && i < count; i++) {
        /* Release: a free that reads the byte must find the granule carved. */
        atomic_store_explicit(&granule[i].class4, (uint8_t)(size_class * 4), memory_order_release);
    }
}

void classmap_set_arena(uintptr_t address, size_t count, unsigned arena) {
    assert(arena <= UINT8_MAX);
    struct granule *granule = granule_at(address);
    for (size_t i = 0; granule != NULL && i < count; i++) {
        atomic_store_explicit(&granule[i].arena, (uint8_t)arena, memory_order_relaxed);
    }
}

struct span *classmap_continued_span(const struct chunk *chunk) {
    assert(chunk->continues != 0 && chunk->continues < chunk->base);
    return classmap_span(chunk->continues);
}
