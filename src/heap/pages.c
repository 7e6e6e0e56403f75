/* SPDX-License-Identifier: MIT
 *
 * pages.c - which chunk a run of units comes from, and when memory goes back to the kernel.
 *
 *      region     | chunk | chunk | chunk | chunk | ..reserved.. |      grows at the frontier
 *                   full   partly   free    free  ^
 *                          used     '--run--'     frontier
 *
 * Chunks that are partly used lie in eight buckets by the largest naturally aligned block that is
 * free in them, each bucket ordered by address: the lowest chunk that suffices serves, and high
 * chunks run empty.  Free chunks are kept as runs of neighbours, by length; the first and the last
 * chunk of a run know its length, so neighbours join in constant time.  New chunks are cut from the
 * frontier of a reserved region; regions are placed one behind the other so that the kernel sees
 * one mapping.
 *
 * Freed units stay as they are ("dirty").  Chunks with dirty units stand in a queue; the one that
 * got dirty first is purged when that was dirty_decay_ms ago and somebody gives units back.
 *
 * Threads     Everything below is guarded by g.lock, except the totals.
 * Invariant   dirty == units that are free and touched, over all chunks.
 *             A free chunk belongs to exactly one run, and runs that touch are joined.
 * Cost        A take or give is a few hundred instructions; slabs make it rare.
 * Read next   chunk.h; docs/design.md, "Life of a page".
 */
#include "heap/pages.h"

#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/os.h"
#include "heap/classmap.h"
#include "heap/meta.h"

enum {
    MANY_UNITS = 16, /* a quarter of a MiB, at once or in 16 calls */
    GIVEN_BACK_PER_LOOK = 16,
    BUCKETS = 8,                   /* largest aligned free block 1, 2, 4 ... 128 units */
    EXACT_RUNS = 32,               /* runs of 1 .. 32 chunks have a set each ... */
    RUN_BUCKETS = EXACT_RUNS + 21, /* ... longer ones one per doubling, to all 2^25 chunks */
    REGION_CHUNKS_MOST = 32,       /* reserve at most 64 MiB ahead */
    LONGEST_RUN = (1 << 16) - 1,   /* longer ones rank alike; in chunks */
};

static struct {
    struct lock lock;
    struct pairing_node *partly[BUCKETS];
    struct pairing_node *runs[RUN_BUCKETS];
    struct chunk *oldest_dirty;
    struct chunk *newest_dirty;
    uintptr_t frontier; /* next chunk to commit */
    uintptr_t region_end;
    size_t region_chunks; /* how many chunks the next region should have */
    uint64_t now_ms;      /* the clock as last read */
    uint32_t given_back;  /* calls of pages_give_back */
    /* Written under the lock, read without. */
    _Atomic size_t mapped_units;
    _Atomic size_t used_units;
    _Atomic size_t dirty_units;
    _Atomic size_t purged_units;
} g;

void pages_init(void) {
    g.lock.rank = RANK_PAGES;
    g.region_chunks = 1;
}

static void add(_Atomic size_t *sum, size_t value) {
    /* Only the holder of the lock writes, so a load and a store suffice. */
    size_t old = atomic_load_explicit(sum, memory_order_relaxed);
    atomic_store_explicit(sum, old + value, memory_order_relaxed);
}

static size_t get(_Atomic size_t *sum) {
    return atomic_load_explicit(sum, memory_order_relaxed);
}

static struct chunk *chunk_of_node(struct pairing_node *node) {
    return (struct chunk *)((char *)node - offsetof(struct chunk, node));
}

/* ---------------------------------------------------------------- runs of free chunks */

static struct chunk *neighbour(const struct chunk *chunk, ptrdiff_t distance) {
    return classmap_chunk(chunk->base + (uintptr_t)(distance * CHUNK_BYTES));
}

static unsigned run_bucket(size_t length) {
    return (unsigned)(length <= EXACT_RUNS ? length - 1 : EXACT_RUNS + bits_floor_log2(length) - 5);
}

static void insert_run(struct chunk *first, uint32_t length) {
    neighbour(first, (ptrdiff_t)length - 1)->run = length;
    first->run = length;
    first->starts_run = 1;
    /* Longest first: if any run of a bucket is long enough, its first one is. */
    uint64_t rank = LONGEST_RUN - min_size(length, LONGEST_RUN);
    pairing_insert(&g.runs[run_bucket(length)], &first->node, rank << ADDRESS_BITS | first->base);
}

static void remove_run(struct chunk *first) {
    assert(first->starts_run && first->run > 0);
    pairing_remove(&g.runs[run_bucket(first->run)], &first->node);
    first->starts_run = 0;
    neighbour(first, (ptrdiff_t)first->run - 1)->run = 0;
    first->run = 0;
}

/* A run is found from a neighbour: its first and its last chunk know the length. */
static struct chunk *run_before(const struct chunk *chunk) {
    struct chunk *last = neighbour(chunk, -1);
    if (last == NULL || last->used != 0 || last->run == 0) {
        return NULL;
    }
    return neighbour(last, 1 - (ptrdiff_t)last->run);
}

static struct chunk *run_after(const struct chunk *chunk) {
    struct chunk *first = neighbour(chunk, 1);
    return first != NULL && first->used == 0 && first->run != 0 ? first : NULL;
}

/* Turns chunks that hold nothing into a run and joins it with its neighbours. */
static void free_chunks(struct chunk *first, uint32_t length) {
    struct chunk *after = run_after(neighbour(first, (ptrdiff_t)length - 1));
    if (after != NULL) {
        length += after->run;
        remove_run(after);
    }
    struct chunk *before = run_before(first);
    if (before != NULL) {
        length += before->run;
        remove_run(before);
        first = before;
    }
    insert_run(first, length);
}

/* ---------------------------------------------------------------- growing */

/* Gives the addresses behind the frontier back; they may be terabytes nobody will get. */
static void drop_frontier(void) {
    if (g.region_end > g.frontier) {
        os_unmap((void *)g.frontier, g.region_end - g.frontier);
        g.region_end = g.frontier;
    }
}

/* Reserves a region of at least `chunks` chunks, aligned, right behind the last one if possible. */
static bool reserve_region(size_t chunks) {
    size_t bytes = chunks * CHUNK_BYTES;
    uintptr_t start = (uintptr_t)os_reserve((void *)g.region_end, bytes);
    if (start % CHUNK_BYTES != 0) {
        os_unmap((void *)start, bytes);
        start = 0;
        uintptr_t wide = (uintptr_t)os_reserve(NULL, bytes + CHUNK_BYTES);
        if (wide != 0) {
            start = align_up(wide, CHUNK_BYTES);
            if (start > wide) {
                os_unmap((void *)wide, start - wide);
            }
            if (start < wide + CHUNK_BYTES) {
                os_unmap((void *)(start + bytes), wide + CHUNK_BYTES - start);
            }
        }
    }
    if (start == 0) {
        return false;
    }
    if (start != g.region_end) {
        drop_frontier();
        g.frontier = start;
    }
    g.region_end = start + bytes;
    return true;
}

static bool ensure_frontier(size_t chunks) {
    if ((g.region_end - g.frontier) / CHUNK_BYTES >= chunks) {
        return true;
    }
    if (reserve_region(max_size(chunks, g.region_chunks))) {
        size_t doubled = min_size(g.region_chunks * 2, REGION_CHUNKS_MOST);
        g.region_chunks = os_facts.address_space_limited ? 1 : doubled;
    } else if (!reserve_region(chunks)) {
        return false;
    }
    return (g.region_end - g.frontier) / CHUNK_BYTES >= chunks;
}

/* Describes the chunk at the frontier, whose memory is committed.  NULL, with the frontier where it
 * was, without memory or where the address cannot be described. */
static struct chunk *describe_chunk(void) {
    if (!classmap_cover(g.frontier)) {
        return NULL;
    }
    struct chunk *chunk = meta_alloc(sizeof(struct chunk), CACHE_LINE);
    if (chunk == NULL) {
        return NULL;
    }
    chunk->base = g.frontier;
    memset(chunk->first, UNIT_FREE, sizeof(chunk->first));
    g.frontier += CHUNK_BYTES;
    add(&g.mapped_units, CHUNK_UNITS);
    classmap_enter(chunk);
    return chunk;
}

/*
 * Adds `chunks` free chunks in a row.  They are committed in one call, so that the kernel can
 * refuse what it will never have.  What was described before a failure stays as free chunks.
 */
static bool grow(size_t chunks) {
    if (!ensure_frontier(chunks)) {
        return false;
    }
    if (os_commit((void *)g.frontier, chunks * CHUNK_BYTES) != 0) {
        drop_frontier();
        return false;
    }
    for (size_t i = 0; i < chunks; i++) {
        struct chunk *chunk = describe_chunk();
        if (chunk == NULL) {
            drop_frontier();
            return false;
        }
        free_chunks(chunk, 1);
    }
    return true;
}

/* ---------------------------------------------------------------- buckets of partly used chunks */

static unit_map dirty_units(const struct chunk *chunk) {
    return chunk->touched & ~chunk->used;
}

static void leave_bucket(struct chunk *chunk) {
    if (chunk->bucket != 0) {
        pairing_remove(&g.partly[chunk->bucket - 1], &chunk->node);
        chunk->bucket = 0;
    }
}

/* Puts a chunk where its free space says: a bucket, a run, or nowhere when it is full.  Most changes
 * leave the largest free block as it is, and the chunk where it is. */
static void settle(struct chunk *chunk) {
    int order = chunk->used == 0 ? -1 : chunk_free_order(chunk);
    if (chunk->bucket != order + 1) {
        leave_bucket(chunk);
        if (order >= 0) {
            chunk->bucket = (uint8_t)(order + 1);
            pairing_insert(&g.partly[order], &chunk->node, chunk->base);
        }
    }
    if (chunk->used == 0) {
        free_chunks(chunk, 1);
    }
}

static void enqueue_dirty(struct chunk *chunk) {
    if (chunk->is_dirty) {
        return;
    }
    chunk->is_dirty = 1;
    chunk->dirty_since_ms = g.now_ms;
    chunk->next_dirty = NULL;
    if (g.newest_dirty != NULL) {
        g.newest_dirty->next_dirty = chunk;
    } else {
        g.oldest_dirty = chunk;
    }
    g.newest_dirty = chunk;
}

/* ---------------------------------------------------------------- taking */

/* Marks units of a chunk outside every bucket; tells whether they read as zeros. */
static bool mark_used(struct chunk *chunk, unsigned first, unsigned count, unsigned head) {
    unit_map units = chunk_units(first, count);
    assert((chunk->used & units) == 0);
    unit_map was_touched = chunk->touched & units;
    chunk->used |= units;
    chunk->touched |= units;
    memset(chunk->first + first, (int)head, count);
    add(&g.used_units, count);
    add(&g.dirty_units, -(size_t)chunk_count_units(was_touched));
    return was_touched == 0;
}

static struct span *fresh_span(struct chunk *chunk, unsigned unit) {
    struct span *span = &chunk->span[unit];
    memset(span, 0, offsetof(struct span, bits));
    span->base = chunk->base + (uintptr_t)unit * UNIT_BYTES;
    return span;
}

/* The lowest chunk with `count` free units in a row, or NULL, among the first of each bucket. */
static struct chunk *find_partly(unsigned count, unsigned alignment) {
    unsigned block = (unsigned)max_size(count, alignment);
    unsigned exact = block <= 1 ? 0 : bits_floor_log2(block - 1) + 1;
    struct chunk *best = NULL;
    /* One bucket below the exact one may hold the run as well, unaligned. */
    for (unsigned bucket = exact > 0 ? exact - 1 : 0; bucket < BUCKETS; bucket++) {
        if (g.partly[bucket] == NULL) {
            continue;
        }
        struct chunk *chunk = chunk_of_node(g.partly[bucket]);
        if ((best == NULL || chunk->base < best->base) &&
            (bucket >= exact || chunk_find_run(~chunk->used, count, alignment) < CHUNK_UNITS)) {
            best = chunk;
        }
    }
    return best;
}

/* First chunk of the shortest free run that has `chunks` chunks from an aligned one on, or NULL. */
static struct chunk *find_run(size_t chunks, size_t alignment_chunks) {
    size_t wanted = chunks + alignment_chunks - 1;
    for (unsigned b = run_bucket(wanted); b < RUN_BUCKETS; b++) {
        if (g.runs[b] != NULL && chunk_of_node(g.runs[b])->run >= wanted) {
            return chunk_of_node(g.runs[b]);
        }
    }
    return NULL;
}

/* Cuts `chunks` chunks out of the free runs, or out of new ones.  NULL when memory is short. */
static struct chunk *take_chunks(size_t chunks, size_t alignment_chunks, enum pages_growth growth) {
    struct chunk *first = find_run(chunks, alignment_chunks);
    if (growth == PAGES_USED_BEFORE && (first == NULL || first->touched == 0)) {
        return NULL;
    }
    if (first == NULL && growth == PAGES_MAY_GROW && grow(chunks + alignment_chunks - 1)) {
        first = find_run(chunks, alignment_chunks);
    }
    if (first == NULL) {
        return NULL;
    }
    uint32_t length = first->run;
    remove_run(first);
    uintptr_t aligned = align_up(first->base, alignment_chunks * CHUNK_BYTES);
    uint32_t before = (uint32_t)((aligned - first->base) / CHUNK_BYTES);
    struct chunk *taken = classmap_chunk(aligned);
    if (before > 0) {
        insert_run(first, before);
    }
    if (length > before + chunks) {
        insert_run(neighbour(taken, (ptrdiff_t)chunks), length - before - (uint32_t)chunks);
    }
    return taken;
}

static struct span *take_in_chunk(unsigned units, unsigned alignment, enum pages_growth growth,
                                  bool *zeroed) {
    struct chunk *chunk = find_partly(units, alignment);
    if (chunk == NULL) {
        chunk = take_chunks(1, 1, growth);
        if (chunk == NULL) {
            return NULL;
        }
    }
    unsigned unit = chunk_find_run(~chunk->used, units, alignment);
    ensure(unit < CHUNK_UNITS);
    /* A chunk that take_chunks gave was touched somewhere, and that has to do. */
    if (growth == PAGES_USED_BEFORE && chunk->used != 0 &&
        (chunk_units(unit, units) & ~chunk->touched) != 0) {
        return NULL;
    }
    *zeroed = mark_used(chunk, unit, units, unit);
    settle(chunk);
    return fresh_span(chunk, unit);
}

/* A span of several chunks; the rest of the last one stays free for others. */
static struct span *take_many_chunks(size_t units, size_t alignment, enum pages_growth growth,
                                     bool *zeroed) {
    size_t chunks = (units + CHUNK_UNITS - 1) / CHUNK_UNITS;
    struct chunk *head = take_chunks(chunks, max_size(alignment / CHUNK_UNITS, 1), growth);
    if (head == NULL) {
        return NULL;
    }
    *zeroed = true;
    for (size_t i = 0; i < chunks; i++) {
        struct chunk *chunk = neighbour(head, (ptrdiff_t)i);
        ensure(chunk != NULL);
        unsigned count = (unsigned)min_size(units - i * CHUNK_UNITS, CHUNK_UNITS);
        *zeroed &= mark_used(chunk, 0, count, 0);
        struct span *span = fresh_span(chunk, 0);
        if (i > 0) {
            span->base = head->base;
            span->kind = SPAN_CONTINUED;
        }
        settle(chunk);
    }
    return &head->span[0];
}

/* After a fork nobody else can be inside; see repair(). */
static void enter(void);

struct span *pages_take(size_t units, size_t alignment, enum pages_growth growth, bool *zeroed) {
    enter();
    struct span *span;
    if (units <= CHUNK_UNITS && alignment <= CHUNK_UNITS) {
        span = take_in_chunk((unsigned)units, (unsigned)alignment, growth, zeroed);
    } else {
        span = take_many_chunks(units, alignment, growth, zeroed);
    }
    lock_release(&g.lock);
    return span;
}

/* How much of `units` units from `address` on lies in the chunk of `address`. */
static unsigned units_in_chunk(uintptr_t address, size_t units) {
    return (unsigned)min_size(units, CHUNK_UNITS - chunk_unit(address));
}

static bool are_free(uintptr_t address, size_t units) {
    while (units > 0) {
        struct chunk *chunk = classmap_chunk(address);
        unsigned count = units_in_chunk(address, units);
        if (chunk == NULL || (chunk->used & chunk_units(chunk_unit(address), count)) != 0) {
            return false;
        }
        address += (uintptr_t)count * UNIT_BYTES;
        units -= count;
    }
    return true;
}

/* Takes a chunk out of the set it waits in.  A free one must be the first of its run. */
static void leave_set(struct chunk *chunk) {
    if (chunk->starts_run) {
        uint32_t length = chunk->run;
        remove_run(chunk);
        if (length > 1) {
            insert_run(neighbour(chunk, 1), length - 1);
        }
    }
}

bool pages_extend(uintptr_t base, size_t units, size_t more) {
    uintptr_t end = base + units * UNIT_BYTES;
    enter();
    bool fits = are_free(end, more);
    while (fits && more > 0) {
        struct chunk *chunk = classmap_chunk(end);
        unsigned unit = chunk_unit(end);
        unsigned count = units_in_chunk(end, more);
        leave_set(chunk);
        if (unit == 0) {
            *fresh_span(chunk, 0) = (struct span){.base = base, .kind = SPAN_CONTINUED};
        }
        mark_used(chunk, unit, count, unit == 0 ? 0 : chunk->first[unit - 1]);
        settle(chunk);
        end += (uintptr_t)count * UNIT_BYTES;
        more -= count;
    }
    lock_release(&g.lock);
    return fits;
}

/* ---------------------------------------------------------------- giving back */

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
        enqueue_dirty(chunk); /* The kernel refused: try again later. */
    }
    add(&g.dirty_units, -units);
    add(&g.purged_units, units);
    return units;
}

static struct chunk *dequeue_dirty(void) {
    struct chunk *chunk = g.oldest_dirty;
    g.oldest_dirty = chunk->next_dirty;
    if (g.oldest_dirty == NULL) {
        g.newest_dirty = NULL;
    }
    chunk->is_dirty = 0;
    return chunk;
}

/* Purges the chunks that got dirty at `until_ms` or before, oldest first; units that went.  Chunks
 * the kernel refuses to purge join the queue again, so it ends at the chunk that is last now. */
static size_t purge_until(uint64_t until_ms) {
    size_t purged = 0;
    struct chunk *last = g.newest_dirty;
    struct chunk *chunk = NULL;
    while (chunk != last && g.oldest_dirty->dirty_since_ms <= until_ms) {
        chunk = dequeue_dirty();
        purged += purge_chunk(chunk);
    }
    return purged;
}

/* Gives back what nobody has asked for in dirty_decay_ms. */
static void decay(void) {
    uint64_t age = (uint64_t)opt.dirty_decay_ms;
    if (opt.dirty_decay_ms >= 0 && g.now_ms >= age) {
        purge_until(g.now_ms - age);
    }
}

/* Reading the clock costs about as much as giving a slab back, so it is read for every sixteenth of
 * those and for all that is larger. */
static bool clock_was_read(size_t units) {
    g.given_back++;
    if (units < MANY_UNITS && g.given_back % GIVEN_BACK_PER_LOOK != 0) {
        return false;
    }
    g.now_ms = os_now_ms();
    return true;
}

static void give_back_in_chunk(struct chunk *chunk, unsigned first, unsigned count) {
    unit_map units = chunk_units(first, count);
    ensure((chunk->used & units) == units);
    chunk->used &= ~units;
    memset(chunk->first + first, UNIT_FREE, count);
    add(&g.used_units, -(size_t)count);
    add(&g.dirty_units, count);
    enqueue_dirty(chunk);
    settle(chunk);
}

void pages_give_back(uintptr_t base, size_t units) {
    enter();
    bool tick = clock_was_read(units) || opt.dirty_decay_ms == 0;
    while (units > 0) {
        unsigned count = units_in_chunk(base, units);
        give_back_in_chunk(classmap_chunk(base), chunk_unit(base), count);
        base += (uintptr_t)count * UNIT_BYTES;
        units -= count;
    }
    if (tick) {
        decay();
    }
    lock_release(&g.lock);
}

size_t pages_purge_all(void) {
    enter();
    size_t units = purge_until(UINT64_MAX);
    lock_release(&g.lock);
    return units * UNIT_BYTES;
}

struct pages_totals pages_totals(void) {
    return (struct pages_totals){
        .mapped = get(&g.mapped_units) * UNIT_BYTES,
        .used = get(&g.used_units) * UNIT_BYTES,
        .dirty = get(&g.dirty_units) * UNIT_BYTES,
        .purged = get(&g.purged_units) * UNIT_BYTES,
    };
}

/* ---------------------------------------------------------------- walking, verifying, repairing */

static void for_each_chunk(void (*visit)(struct chunk *chunk, void *context), void *context) {
    for (size_t i = 0; i < TABLE_LEAVES; i++) {
        chunk_slot *leaf = atomic_load_explicit(&classmap_leaves[i], memory_order_acquire);
        for (size_t k = 0; leaf != NULL && k < LEAF_CHUNKS; k++) {
            struct chunk *chunk = atomic_load_explicit(&leaf[k], memory_order_acquire);
            if (chunk != NULL) {
                visit(chunk, context);
            }
        }
    }
}

struct span_visit {
    void (*visit)(struct span *span, void *context);
    void *context;
};

static void visit_spans(struct chunk *chunk, void *context) {
    struct span_visit *walk = context;
    for (unsigned unit = 0; unit < CHUNK_UNITS; unit++) {
        struct span *span = &chunk->span[unit];
        if (chunk->first[unit] == unit && span->kind != SPAN_NONE && span->kind != SPAN_CONTINUED) {
            walk->visit(span, walk->context);
        }
    }
}

void pages_walk(void (*visit)(struct span *span, void *context), void *context) {
    struct span_visit walk = {visit, context};
    enter();
    for_each_chunk(visit_spans, &walk);
    lock_release(&g.lock);
}

struct verify_sums {
    size_t used, dirty, mapped, partly, runs;
};

static void verify_chunk(struct chunk *chunk, void *context) {
    struct verify_sums *sums = context;
    sums->mapped += CHUNK_UNITS;
    sums->used += chunk_count_units(chunk->used);
    sums->dirty += chunk_count_units(dirty_units(chunk));
    ensure(dirty_units(chunk) == 0 || chunk->is_dirty);
    for (unsigned unit = 0; unit < CHUNK_UNITS; unit++) {
        bool used = chunk->used >> unit & 1;
        ensure(used == (chunk->first[unit] != UNIT_FREE));
        ensure(!used || chunk->first[unit] <= unit);
    }
    if (chunk->used != 0) {
        ensure(chunk->bucket == chunk_free_order(chunk) + 1);
        sums->partly += chunk->bucket != 0;
    } else if (chunk->starts_run) {
        sums->runs++;
        ensure(neighbour(chunk, (ptrdiff_t)chunk->run - 1)->run == chunk->run);
        ensure(run_before(chunk) == NULL);
    }
}

void pages_verify(void) {
    struct verify_sums sums = {0};
    enter();
    for_each_chunk(verify_chunk, &sums);
    size_t partly = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        partly += pairing_verify(g.partly[i]);
    }
    size_t runs = 0;
    for (unsigned i = 0; i < RUN_BUCKETS; i++) {
        runs += pairing_verify(g.runs[i]);
    }
    ensure(partly == sums.partly && runs == sums.runs);
    ensure(sums.mapped == get(&g.mapped_units));
    ensure(sums.used == get(&g.used_units) && sums.dirty == get(&g.dirty_units));
    lock_release(&g.lock);
}

/* The ground truth of a chunk is `first`; bitmaps, sets and sums are derived again. */
static void repair_chunk(struct chunk *chunk, void *context) {
    (void)context;
    chunk->used = 0;
    for (unsigned unit = 0; unit < CHUNK_UNITS; unit++) {
        chunk->used |= (unit_map)(chunk->first[unit] != UNIT_FREE) << unit;
    }
    chunk->touched = ~(unit_map)0;
    chunk->bucket = 0;
    chunk->run = 0;
    chunk->starts_run = 0;
    chunk->is_dirty = 0;
    add(&g.mapped_units, CHUNK_UNITS);
    add(&g.used_units, chunk_count_units(chunk->used));
    add(&g.dirty_units, chunk_count_units(dirty_units(chunk)));
    enqueue_dirty(chunk);
}

static void settle_again(struct chunk *chunk, void *context) {
    (void)context;
    settle(chunk);
}

/*
 * Another thread held the lock when this process was forked, and is gone.  Units it was taking are
 * lost (nobody has seen them), units it was giving back are free or lost; nothing is owned twice.
 */
static COLD void repair(void) {
    g.oldest_dirty = g.newest_dirty = NULL;
    g.frontier = g.region_end = 0; /* The two may not belong together; the addresses are lost. */
    g.mapped_units = g.used_units = g.dirty_units = 0;
    memset(g.partly, 0, sizeof(g.partly));
    memset(g.runs, 0, sizeof(g.runs));
    for_each_chunk(repair_chunk, NULL);
    for_each_chunk(settle_again, NULL);
}

static void enter(void) {
    if (UNLIKELY(lock_acquire(&g.lock) == LOCK_ABANDONED)) {
        repair();
    }
}
