/* SPDX-License-Identifier: MIT
 *
 * chunk.h - 2 MiB of the heap as 128 units, and what stands in each run of units.
 *
 *      addresses   |unit 0 |unit 1 |unit 2 |unit 3 |  ...  |unit 127|      2 MiB, aligned
 *      used            1       1       1       0               0
 *      touched         1       0       0       1               0           0: reads as zeros
 *      first           0       1       1      255             255
 *      span[]        slab    large   (unused)
 *                  1 unit   2 units
 *
 * All of this lies in our own memory and none of it in the chunk, so a stray write of the program
 * cannot reach it, and units are naturally aligned.  A run of units with one owner is a span: a
 * slab of small objects, or one large object.  The span of a run is the element of its first unit.
 *
 * Threads     The maps and first change under the page heap's lock; a span belongs to its owner (a
 *             bin's lock, or whoever holds the large object).  Lookups take no lock: they are made
 *             for addresses the caller owns, or end in a refusal.
 * Invariant   used[u] == (first[u] != UNIT_FREE); free and touched means dirty or muzzy; used and
 *             touched means that it did not read as zeros when it was taken.
 */
#pragma once

#include "heap/pairing.h"
#include "heap/size_class.h"

enum {
    CHUNK_UNITS = CHUNK_BYTES / UNIT_BYTES,
    UNIT_FREE = 255, /* in chunk.first */
    /* In span.arena: the memory came from the arena's extent hooks, and nothing of it is cached. */
    ARENA_HOOKED = 1 << 12,
    /* In span.arena of slabs: every object has a number for the layer above, and none is in a
     * magazine. */
    ARENA_TRACKED = 1 << 13,
    ARENA_APART = ARENA_HOOKED | ARENA_TRACKED,
    ARENA_INDEX = ARENA_HOOKED - 1, /* the rest of it */
};

/* One bit per unit. */
typedef unsigned __int128 unit_map;

enum span_kind {
    SPAN_NONE,
    SPAN_SLAB,
    SPAN_LARGE,
    SPAN_SHELVED, /* free, and kept by a thread (shelf.c); only those who walk over spans meet it */
};

/*
 * The owner of a run of units.  For a slab, ncarved == ones(bits) + objects handed out, and bits of
 * objects that are not carved are 0; for objects of 64 bytes and more, refill and drain touch the
 * first 64 bytes only, but for `node` when the slab leaves or joins its bin's set.
 */
struct span {
    uintptr_t base;
    union {
        struct {
            int16_t nout;     /* slab: objects handed out, plus SLAB_APART while not in the set */
            uint16_t ncarved; /* slab: objects whose memory is prepared */
        };
        uint32_t id; /* large: for the layer above; 0: none (track.h) */
    };
    union {
        struct {
            uint16_t arena;     /* the arena it belongs to, plus ARENA_HOOKED and ARENA_TRACKED */
            uint8_t size_class; /* slab */
            uint8_t kind;       /* enum span_kind; written last */
        };
        uint32_t owner; /* all three as one word, for those who do not own it (span_owner) */
    };
    union {
        struct {
            uint32_t uncarved;   /* slab: sheets whose objects are not carved (slab.c) */
            uint8_t sheets_used; /* slab: those from here on never were */
            uint8_t slow_frees;  /* slab: frees that found their granule not published */
            bool is_fresh;       /* slab: what is not carved has no memory behind it */
            uint8_t rest;        /* slab: enum slab_rest */
        };
        struct {
            uint32_t moved_pieces; /* large: parts of it that came from other addresses, at most */
            bool is_reused;        /* large: it was used since its units were taken */
        };
    };
    union {
        size_t bytes;  /* large: usable bytes */
        uint32_t *ids; /* slab with ARENA_TRACKED: one per object, 0 where that is free */
    };
    uint64_t bits[MOST_OBJECTS / 64]; /* slab: 1 = free */
    struct pairing_node node;         /* slab: in its bin, by address */
};

/*
 * Whose it is, asked by somebody who may be late: then the span is made anew meanwhile, for another
 * owner.  One word, so that no answer is put together from two owners.  Acquire: what the owner wrote
 * before it said what the span is.
 */
static inline uint32_t span_owner(const struct span *span) {
    return __atomic_load_n(&span->owner, __ATOMIC_ACQUIRE);
}

/* Does the program, or a bin, have it? */
static inline bool span_is_owned(const struct span *span) {
    uint8_t kind = __atomic_load_n(&span->kind, __ATOMIC_RELAXED);
    return kind == SPAN_SLAB || kind == SPAN_LARGE;
}

/* Chunks with free units that may still have memory behind them stand in queues; see dirty.c. */
struct chunk_links {
    struct chunk *older;
    struct chunk *newer;
    bool is_in;
};

/* The chunks of one queue, in the order in which they joined. */
struct chunk_list {
    struct chunk *oldest;
    struct chunk *newest;
};

/*
 * The spans lie apart from the rest: they are most of what a chunk costs, and a chunk that holds
 * nothing needs none of them, so their pages can be given back.
 */
struct chunk {
    uintptr_t base;
    struct span *span; /* one per unit, in whole pages */
    unit_map used;
    unit_map touched;
    unit_map muzzy;           /* free, and offered to the kernel; a part of touched */
    unit_map early;           /* given back before their time, and not used since */
    unit_map committed;       /* can be used: all of them, but for what extent hooks took */
    struct pairing_node node; /* in a bucket of the page heap, or in its set of free runs */
    uintptr_t continues; /* base of the span from an earlier chunk that unit 0 is part of, or 0 */
    uint32_t run;        /* free chunks: length of the run, in its first and last chunk */
    uint8_t starts_run;  /* `node` is in the set of free runs */
    uint8_t bucket;      /* the bucket `node` is in, plus 1; 0 = none */
    uint8_t small_pages; /* huge pages are kept away from it, unless they are asked for */
    uint16_t owner;      /* 1 + the arena whose hooks gave its memory; 0: the page heap's own */
    struct chunk_links queued[CHUNK_QUEUES];
    uint8_t first[CHUNK_UNITS]; /* unit to first unit of its span, UNIT_FREE for a free unit */
};

static inline unsigned chunk_unit(uintptr_t address) {
    return (unsigned)(address >> LG_UNIT) % CHUNK_UNITS;
}

static inline unit_map chunk_units(unsigned first, unsigned count) {
    assert(first < CHUNK_UNITS && first + count <= CHUNK_UNITS);
    unit_map ones = count >= CHUNK_UNITS ? ~(unit_map)0 : ((unit_map)1 << count) - 1;
    return ones << first;
}

unsigned chunk_count_units(unit_map map);

/* First unit of the lowest run of `count` set bits starting at a multiple of `alignment` (a power
 * of two), or CHUNK_UNITS when there is none. */
unsigned chunk_find_run(unit_map map, unsigned count, unsigned alignment);

/* Largest k such that 2^k naturally aligned units are in the map; -1 when none is. */
int chunk_map_order(unit_map map);

/* Units that can be had. */
static inline unit_map chunk_available(const struct chunk *chunk) {
    return ~chunk->used & chunk->committed;
}

/* chunk_map_order of the available units. */
int chunk_free_order(const struct chunk *chunk);

/* The span that starts at this unit, made new: without an owner, and with kind SPAN_NONE. */
struct span *chunk_fresh_span(struct chunk *chunk, unsigned unit);

/* The next maximal run of set bits at or after `*first`; its length, 0 when there is none. */
unsigned chunk_next_run(unit_map map, unsigned *first);

/* A chunk joins the list of a queue, as the newest, or leaves it. */
void chunk_join(struct chunk_list *list, enum chunk_queue kind, struct chunk *chunk);
void chunk_leave(struct chunk_list *list, enum chunk_queue kind, struct chunk *chunk);
