/* SPDX-License-Identifier: MIT
 *
 * pages.c - which chunk a run of units comes from: taking, extending, giving back.
 *
 * The lowest chunk that is partly used and suffices serves (units.c), so that high chunks run
 * empty.  Chunks that hold nothing are runs (runs.c), new ones come from the end of a region
 * (region.c), and what is free but still in memory is known to dirty.c.
 *
 *      chunk    [####] [##.#] [#...] [....] [....]         # used   . free
 *                full   bucket bucket '--- run ---'
 *
 * Purging.  The kernel takes pages back while others take and give units: those it works on are
 * marked as not committed, which keeps them out of buckets, and whoever needs a run of chunks with
 * one of them waits for it.  One thread purges at a time.
 *
 * Threads     Everything below, and in those four files, is guarded by g.lock, except the totals;
 *             g.purging by purge_lock, too.
 * Invariant   A chunk is in the bucket of its largest free block, or in a run, or full.
 * Cost        A take or give is a few hundred instructions; slabs make it rare.
 * Read next   chunk.h; docs/design.md, "Life of a page".
 */
#include "heap/pages.h"

#include "base/attention.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "heap/classmap.h"
#include "heap/counts.h"
#include "heap/dirty.h"
#include "heap/extents.h"
#include "heap/limit.h"
#include "heap/region.h"
#include "heap/runs.h"
#include "heap/units.h"

enum {
    DEBT_BYTES = 4 << 20, /* kept memory worth a thread that gives it back */
    SHARE_UNITS = (1 << 20) / UNIT_BYTES,
    LONGEST_WAIT_MS = 10, /* for a purge of one chunk, some 0.1 ms */
    CHUNKS_PER_LOOK = 16, /* under one lock: some ten microseconds */
};

static struct {
    struct lock lock;
    struct lock purge_lock; /* taken before `lock` */
    struct units_set partly;
    bool is_blocked;       /* the last take failed because of `purging` */
    uint32_t waiters;      /* threads that wait for the end of that, at most */
    _Atomic uint32_t turn; /* how often it came */
    struct chunk *purging; /* the kernel takes units of it; NULL: of none */
    uint64_t used_units;   /* written under the lock, read without */
} g;

void pages_init(void) {
    g.lock = (struct lock)LOCK_OF_RANK(RANK_PAGES);
    g.purge_lock = (struct lock)LOCK_OF_RANK(RANK_PURGE);
    region_init();
}

static void add_used(size_t units) {
    assert(lock_is_mine(&g.lock) && g.used_units + units <= SIZE_MAX / 2);
    count_add(&g.used_units, units);
    uint64_t told = atomic_load_explicit(&attention_page.stats_used, memory_order_relaxed);
    (void)attention_may_move((int64_t)(g.used_units * UNIT_BYTES - told));
}

/* Puts a chunk where its free space says: a bucket, a run, or nowhere when it is full. */
static void settle(struct chunk *chunk) {
    assert(lock_is_mine(&g.lock) && chunk->owner == 0);
    units_settle(&g.partly, chunk, chunk->used == 0 ? -1 : chunk_free_order(chunk));
    if (chunk->used == 0) {
        runs_add(chunk, 1);
    }
}

/* ---------------------------------------------------------------- taking */

/* Does the hard limit allow taking these free units?  Those that are kept count already. */
static bool limit_allows_units(uintptr_t address, size_t units) {
    struct units_range range = {address, units};
    struct units_part part;
    size_t more = 0;
    while (limit_is_hard() && units_next(&range, &part)) {
        more += chunk_count_units(~part.chunk->touched & chunk_units(part.first, part.count));
    }
    return limit_allows(more * UNIT_BYTES);
}

/* The same for units of new chunks, which have to be described. */
static bool limit_allows_new(size_t units) {
    size_t description = sizeof(struct chunk) + CHUNK_UNITS * sizeof(struct span);
    return limit_allows(units * UNIT_BYTES + (units / CHUNK_UNITS + 1) * description);
}

/* Marks units of a chunk outside every bucket; returns whether they read as zeros. */
static bool mark_used(struct chunk *chunk, unsigned first, unsigned count, unsigned head) {
    assert(chunk->run == 0);
    units_mark_used(chunk, first, count, head);
    add_used(count);
    return dirty_reuse(chunk, chunk_units(first, count));
}

/* Does the kernel work on one of the chunks that would be cut out of this run? */
static bool is_being_purged(const struct chunk *run, size_t chunks, size_t alignment_chunks) {
    if (LIKELY(g.purging == NULL)) {
        return false;
    }
    uintptr_t start = align_up(run->base, alignment_chunks * CHUNK_BYTES);
    return g.purging->base >= start && g.purging->base - start < chunks * CHUNK_BYTES;
}

/* Cuts `chunks` chunks out of the free runs, or out of new ones, where `room` more are free behind
 * them.  NULL when memory is short. */
static struct chunk *take_chunks(size_t chunks, size_t room, size_t alignment_chunks,
                                 enum pages_growth growth) {
    assert(chunks >= 1 && alignment_chunks >= 1);
    struct chunk *first = runs_find(chunks + room, alignment_chunks);
    if (growth == PAGES_USED_BEFORE && (first == NULL || first->touched == 0)) {
        return NULL;
    }
    if (first == NULL && growth == PAGES_MAY_GROW &&
        region_grow(chunks + room + alignment_chunks - 1)) {
        first = runs_find(chunks + room, alignment_chunks);
    }
    if (first != NULL && is_being_purged(first, chunks, alignment_chunks)) {
        g.is_blocked = true;
        return NULL;
    }
    return first != NULL ? runs_cut(first, chunks, alignment_chunks) : NULL;
}

static struct span *take_in_chunk(unsigned units, unsigned room, unsigned alignment,
                                  enum pages_growth growth, bool *zeroed) {
    unsigned unit = 0;
    struct chunk *chunk = units_find(&g.partly, units + room, alignment, &unit);
    if (chunk == NULL) {
        chunk = take_chunks(1, 0, 1, growth);
        if (chunk == NULL) {
            return NULL;
        }
    }
    /* A chunk that take_chunks gave was touched somewhere, and that has to do. */
    if (growth == PAGES_USED_BEFORE && chunk->used != 0 &&
        (chunk_units(unit, units) & ~chunk->touched) != 0) {
        return NULL;
    }
    if (!limit_allows_units(chunk->base + (uintptr_t)unit * UNIT_BYTES, units)) {
        settle(chunk);
        return NULL;
    }
    *zeroed = mark_used(chunk, unit, units, unit);
    settle(chunk);
    return chunk_fresh_span(chunk, unit);
}

/* A span of several chunks; the rest of the last one stays free for others. */
static struct span *take_many_chunks(size_t units, size_t room, size_t alignment,
                                     enum pages_growth growth, bool *zeroed) {
    size_t chunks = (units + CHUNK_UNITS - 1) / CHUNK_UNITS;
    size_t alignment_chunks = max_size(alignment / CHUNK_UNITS, 1);
    struct chunk *head = take_chunks(chunks, room / CHUNK_UNITS, alignment_chunks, growth);
    if (head == NULL) {
        return NULL;
    }
    if (!limit_allows_units(head->base, units)) {
        runs_add(head, (uint32_t)chunks);
        return NULL;
    }
    *zeroed = true;
    for (size_t i = 0; i < chunks; i++) {
        struct chunk *chunk = classmap_neighbour(head, (ptrdiff_t)i);
        ensure(chunk != NULL);
        unsigned count = (unsigned)min_size(units - i * CHUNK_UNITS, CHUNK_UNITS);
        *zeroed &= mark_used(chunk, 0, count, 0);
        chunk->continues = i > 0 ? head->base : 0;
        settle(chunk);
    }
    return chunk_fresh_span(head, 0);
}

static struct span *take_once(size_t units, size_t room, size_t alignment, enum pages_growth growth,
                              bool *zeroed) {
    assert(units >= 1 && is_power_of_two(alignment));
    if (growth == PAGES_MAY_GROW && !limit_allows_new(units)) {
        return NULL;
    }
    if (units <= CHUNK_UNITS && alignment <= CHUNK_UNITS) {
        unsigned room_in_chunk = (unsigned)min_size(room, CHUNK_UNITS - units);
        return take_in_chunk((unsigned)units, room_in_chunk, (unsigned)alignment, growth, zeroed);
    }
    return take_many_chunks(units, room, alignment, growth, zeroed);
}

/* After a fork nobody else can be inside; see repair(). */
static void enter(void);
static bool try_to_enter_purge(void);

/* Until the kernel is done with what it works on, which may be long ago: then nobody purges. */
static COLD void wait_for_kernel(void) {
    uint32_t turn = atomic_load_explicit(&g.turn, memory_order_relaxed);
    g.waiters++;
    lock_release(&g.lock);
    if (try_to_enter_purge()) {
        lock_release(&g.purge_lock);
    } else {
        os_wait_ms(&g.turn, turn, LONGEST_WAIT_MS);
    }
    enter();
}

/* A span behind which, at best, `room` units are free.  If the kernel works on them, waits. */
static struct span *take(size_t units, size_t room, size_t alignment, enum pages_growth growth,
                         bool *zeroed) {
    for (;;) {
        g.is_blocked = false;
        struct span *span = take_once(units, room, alignment, growth, zeroed);
        if (LIKELY(span != NULL || !g.is_blocked)) {
            return span;
        }
        wait_for_kernel();
    }
}

/* For calls that change how much the heap holds. */
static void leave(void) {
    assert(lock_is_mine(&g.lock));
    limit_note();
    lock_release(&g.lock);
}

struct span *pages_take(size_t units, size_t alignment, enum pages_growth growth, bool *zeroed) {
    enter();
    struct span *span = take(units, 0, alignment, growth, zeroed);
    leave();
    return span;
}

struct span *pages_take_to_grow(size_t units, enum pages_growth growth, bool *zeroed) {
    enum pages_growth in_chunks = growth < PAGES_IN_CHUNKS ? growth : PAGES_IN_CHUNKS;
    size_t room = os_facts.address_space_limited ? 0 : units / 2;
    enter();
    struct span *span = take(units, room, 1, in_chunks, zeroed);
    if (span == NULL) {
        span = take(units, 0, 1, in_chunks, zeroed);
    }
    if (span == NULL && growth == PAGES_MAY_GROW) {
        span = take(units, room, 1, growth, zeroed);
    }
    if (span == NULL && growth == PAGES_MAY_GROW) {
        span = take(units, 0, 1, growth, zeroed);
    }
    leave();
    return span;
}

/* Where the free ones among `units` units from `address` on end; the units of a chunk count only if
 * all of them are free. */
static uintptr_t find_end_of_free(uintptr_t address, size_t units) {
    struct units_range range = {address, units};
    struct units_part part;
    while (units_next(&range, &part)) {
        const struct chunk *chunk = part.chunk;
        if (chunk == NULL || chunk->owner != 0 ||
            (~chunk_available(chunk) & chunk_units(part.first, part.count)) != 0) {
            break;
        }
        address = range.at;
    }
    return address;
}

/* Are the units free, or can the heap, because it ends there, grow by those that are not? */
static bool make_free(uintptr_t address, size_t units, enum pages_growth growth) {
    assert(lock_is_mine(&g.lock) && address % UNIT_BYTES == 0);
    uintptr_t end = address + units * UNIT_BYTES;
    uintptr_t free_end = find_end_of_free(address, units);
    if (free_end == end) {
        return true;
    }
    size_t chunks = (end - free_end + CHUNK_BYTES - 1) / CHUNK_BYTES;
    return growth == PAGES_MAY_GROW && chunk_unit(free_end) == 0 && limit_allows_new(units) &&
           region_grow_at(free_end, chunks);
}

bool pages_extend(uintptr_t base, size_t units, size_t more, enum pages_growth growth) {
    assert(base % UNIT_BYTES == 0 && units >= 1 && more >= 1);
    uintptr_t end = base + units * UNIT_BYTES;
    enter();
    bool fits = make_free(end, more, growth) && limit_allows_units(end, more);
    struct units_range range = {end, more};
    struct units_part part;
    while (fits && units_next(&range, &part)) {
        if (part.chunk->starts_run) {
            runs_cut(part.chunk, 1, 1);
        }
        mark_used(part.chunk, part.first, part.count, units_continue(&part, base));
        settle(part.chunk);
    }
    leave();
    return fits;
}

unit_map pages_stale_units(const struct units_part *part) {
    enter();
    unit_map stale = part->chunk->touched & chunk_units(part->first, part->count);
    lock_release(&g.lock);
    return stale;
}

/* ---------------------------------------------------------------- giving back */

/* They are marked before they are free: that is what the child of a fork goes by (repair). */
static void mark_touched(struct chunk *chunk, unit_map units, bool zeros) {
    assert(lock_is_mine(&g.lock) && (chunk->used & units) == units);
    chunk->touched = zeros ? chunk->touched & ~units : chunk->touched | units;
}

static void give_back(uintptr_t base, size_t units, bool zeros) {
    struct units_range range = {base, units};
    struct units_part part;
    while (units_next(&range, &part)) {
        unit_map map = chunk_units(part.first, part.count);
        mark_touched(part.chunk, map, zeros);
        units_mark_free(part.chunk, part.first, part.count);
        add_used(-(size_t)part.count);
        if (!zeros) {
            dirty_keep(part.chunk, map);
        }
        settle(part.chunk);
    }
}

/* Asks for a thread that gives memory back: this may be the program's last call. */
static void ask_for_background(void) {
    if (dirty_totals().dirty * UNIT_BYTES > DEBT_BYTES) {
        attention_raise(ATTENTION_BACKGROUND);
    }
}

/* A chunk that holds nothing is in a run and not in a bucket. */
static void set_purging(struct chunk *chunk, struct chunk *purging, unit_map committed) {
    assert(lock_is_mine(&g.purge_lock) && lock_is_mine(&g.lock));
    g.purging = purging;
    chunk->committed = committed;
    if (chunk->used != 0) {
        settle(chunk);
    }
    if (UNLIKELY(purging == NULL && g.waiters > 0)) {
        atomic_fetch_add_explicit(&g.turn, 1, memory_order_relaxed);
        for (; g.waiters > 0; g.waiters--) {
            os_wake(&g.turn);
        }
    }
}

void pages_begin_purge(struct chunk *chunk, unit_map units) {
    assert(g.purging == NULL && (chunk->used & units) == 0);
    set_purging(chunk, chunk, ~units);
    lock_release(&g.lock);
}

void pages_end_purge(struct chunk *chunk) {
    enter();
    assert(g.purging == chunk && (~chunk->committed & chunk->used) == 0);
    set_purging(chunk, NULL, ~(unit_map)0);
}

/* The kernel may have worked on a chunk when the process was forked. */
static COLD void forget_purging(void) {
    enter();
    if (g.purging != NULL) {
        set_purging(g.purging, NULL, ~(unit_map)0);
    }
    lock_release(&g.lock);
}

static void enter_purge(void) {
    if (UNLIKELY(lock_acquire(&g.purge_lock) == LOCK_ABANDONED)) {
        forget_purging();
    }
}

/* The same, unless another thread purges already. */
static bool try_to_enter_purge(void) {
    enum lock_found found;
    if (!lock_try(&g.purge_lock, &found)) {
        return false;
    }
    if (UNLIKELY(found == LOCK_ABANDONED)) {
        forget_purging();
    }
    return true;
}

/* What is due, in pieces; the caller holds no lock. */
static void purge_due(void) {
    enter_purge();
    enter();
    while (dirty_purge_some(g.used_units, DIRTY_PIECE_UNITS)) {
    }
    leave();
    lock_release(&g.purge_lock);
}

/* The same for a call of the program that freed `units` units: twice as much at most, or 1 MiB, so
 * that no call does much more than its share. */
static void purge_share(size_t units) {
    if (!try_to_enter_purge()) {
        return;
    }
    enter();
    size_t before = dirty_totals().purged + dirty_totals().muzzy;
    size_t most = max_size(2 * units, SHARE_UNITS), done = 0;
    while (done < most &&
           dirty_purge_some(g.used_units, min_size(most - done, DIRTY_PIECE_UNITS))) {
        done = dirty_totals().purged + dirty_totals().muzzy - before;
    }
    leave();
    lock_release(&g.purge_lock);
}

/* After a call of the program freed so many units, and something may be due. */
static void give_to_kernel(size_t units) {
    if (dirty_decay_ms[CHUNK_DIRTY] == 0) {
        purge_due();
    } else if (!dirty_has_background) {
        purge_share(units);
    }
}

void pages_give_back(uintptr_t base, size_t units) {
    assert(base % UNIT_BYTES == 0 && units >= 1);
    enter();
    bool looked = dirty_expect(units);
    give_back(base, units, false);
    bool is_exceeded = limit_soft_is_exceeded();
    bool is_due = looked || dirty_is_too_much(g.used_units);
    leave();
    if (UNLIKELY(is_exceeded)) {
        (void)pages_purge_all();
    } else if (is_due) {
        ask_for_background();
        give_to_kernel(units);
    }
}

void pages_give_back_zeros(uintptr_t base, size_t units) {
    enter();
    give_back(base, units, true);
    leave();
}

uint64_t pages_tick(void) {
    enter();
    dirty_look_at_clock();
    lock_release(&g.lock);
    purge_due();
    enter();
    uint64_t wait_ms = dirty_wait_ms();
    leave();
    return wait_ms;
}

/* No more than was there at first: others may be freeing all the time. */
size_t pages_purge_all(void) {
    struct dirty_totals first = dirty_totals();
    size_t units = 0;
    size_t piece;
    enter_purge();
    enter();
    while ((piece = dirty_purge_piece()) > 0 && (units += piece) < first.dirty + first.muzzy) {
    }
    leave();
    lock_release(&g.purge_lock);
    return units * UNIT_BYTES;
}

void pages_shed_reservations(void) {
    enter();
    os_facts.address_space_limited = true;
    region_shed();
    classmap_shrink();
    lock_release(&g.lock);
}

struct pages_totals pages_totals(void) {
    struct dirty_totals dirty = dirty_totals();
    return (struct pages_totals){
        .mapped = region_mapped_units() * UNIT_BYTES,
        .used = count_read(&g.used_units) * UNIT_BYTES,
        .dirty = dirty.dirty * UNIT_BYTES,
        .muzzy = dirty.muzzy * UNIT_BYTES,
        .purged = dirty.purged * UNIT_BYTES,
    };
}

/* ---------------------------------------------------------------- walking, verifying, repairing */

/* The next chunk in the table at or behind a position, which counts units; NULL at the end. */
static struct chunk *next_chunk(size_t *cursor) {
    enum { LEAF_UNITS = LEAF_CHUNKS * CHUNK_UNITS };
    *cursor = max_size(*cursor, (size_t)classmap_first_leaf * LEAF_UNITS);
    while (*cursor / LEAF_UNITS <= classmap_last_leaf) {
        chunk_slot *leaf =
            atomic_load_explicit(&classmap_leaves[*cursor / LEAF_UNITS], memory_order_acquire);
        if (leaf == NULL) {
            *cursor = align_down(*cursor, LEAF_UNITS) + LEAF_UNITS;
            continue;
        }
        struct chunk *chunk =
            atomic_load_explicit(&leaf[*cursor % LEAF_UNITS / CHUNK_UNITS], memory_order_acquire);
        if (chunk != NULL) {
            return chunk;
        }
        *cursor = align_down(*cursor, CHUNK_UNITS) + CHUNK_UNITS;
    }
    return NULL;
}

static void for_each_chunk(void (*visit)(struct chunk *chunk, void *context), void *context) {
    struct chunk *chunk;
    for (size_t cursor = 0; (chunk = next_chunk(&cursor)) != NULL; cursor += CHUNK_UNITS) {
        visit(chunk, context);
    }
}

struct span_visit {
    void (*visit)(struct span *span, void *context);
    void *context;
};

/* The span that starts at this unit, or NULL. */
static struct span *span_at(const struct chunk *chunk, unsigned unit) {
    assert(unit < CHUNK_UNITS);
    struct span *span = &chunk->span[unit];
    bool continues = unit == 0 && chunk->continues != 0;
    bool starts = chunk->first[unit] == unit && !continues;
    /* Acquire: its owner wrote it without our lock. */
    return starts && __atomic_load_n(&span->kind, __ATOMIC_ACQUIRE) != SPAN_NONE ? span : NULL;
}

static void visit_spans(struct chunk *chunk, void *context) {
    struct span_visit *walk = context;
    for (unsigned unit = 0; unit < CHUNK_UNITS; unit++) {
        struct span *span = span_at(chunk, unit);
        if (span != NULL) {
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

/* A walk over free runs; those that reach the end of a chunk may go on in the next. */
struct free_walk {
    void (*visit)(unsigned kind, size_t units, void *context);
    void *context;
    uintptr_t end;             /* of the last chunk */
    size_t units[PAGES_KINDS]; /* of the run that reaches it, by kind */
};

static void end_run(struct free_walk *walk, unsigned kind) {
    if (walk->units[kind] > 0) {
        walk->visit(kind, walk->units[kind], walk->context);
        walk->units[kind] = 0;
    }
}

static void visit_free_units(struct free_walk *walk, unsigned kind, unit_map map) {
    unsigned first = 0;
    unsigned length;
    if (!(map & 1)) {
        end_run(walk, kind);
    }
    while ((length = chunk_next_run(map, &first)) > 0) {
        walk->units[kind] += length;
        first += length;
        if (first < CHUNK_UNITS) {
            end_run(walk, kind);
        }
    }
}

static void visit_free_chunk(struct free_walk *walk, const struct chunk *chunk) {
    bool follows = chunk->base == walk->end;
    unit_map kept = 0;
    for (unsigned kind = 0; kind < PAGES_KINDS; kind++) {
        unit_map clean = ~chunk->used & ~kept;
        unit_map map = kind == PAGES_CLEAN ? clean : dirty_units(kind, chunk);
        kept |= map;
        if (!follows) {
            end_run(walk, kind);
        }
        visit_free_units(walk, kind, map);
    }
    walk->end = chunk->base + CHUNK_BYTES;
}

void pages_walk_free(void (*visit)(unsigned kind, size_t units, void *context), void *context) {
    struct free_walk walk = {.visit = visit, .context = context};
    unsigned looked_at = 0;
    enter();
    const struct chunk *chunk;
    for (size_t cursor = 0; (chunk = next_chunk(&cursor)) != NULL; cursor += CHUNK_UNITS) {
        if (chunk->owner == 0) {
            visit_free_chunk(&walk, chunk);
        }
        if (++looked_at % CHUNKS_PER_LOOK == 0) {
            lock_release(&g.lock);
            enter();
        }
    }
    for (unsigned kind = 0; kind < PAGES_KINDS; kind++) {
        end_run(&walk, kind);
    }
    lock_release(&g.lock);
}

struct lock *pages_counted_lock(void) {
    return &g.lock;
}

bool pages_walk_on(size_t *cursor, bool (*visit)(struct span *span, void *context), void *context) {
    if (next_chunk(cursor) == NULL) {
        return false;
    }
    enter();
    const struct chunk *chunk = next_chunk(cursor); /* Again: a chunk of hooks may be gone. */
    bool more = chunk != NULL;
    for (bool stop = !more; !stop;) {
        struct span *span = span_at(chunk, *cursor % CHUNK_UNITS);
        stop = ++*cursor % CHUNK_UNITS == 0;
        stop |= span != NULL && visit(span, context);
    }
    lock_release(&g.lock);
    return more;
}

void pages_lock(void) {
    enter();
}

void pages_unlock(void) {
    lock_release(&g.lock);
}

bool pages_is_mine(void) {
    return lock_is_mine(&g.lock);
}

struct verify_sums {
    size_t used, kept, mapped, partly, runs;
};

static void verify_chunk(struct chunk *chunk, void *context) {
    struct verify_sums *sums = context;
    if (chunk->owner != 0) {
        return;
    }
    sums->mapped += CHUNK_UNITS;
    sums->used += chunk_count_units(chunk->used);
    sums->kept += dirty_verify_chunk(chunk);
    units_verify_chunk(chunk);
    ensure(chunk->committed == ~(unit_map)0 || chunk == g.purging);
    if (chunk->used != 0) {
        ensure(chunk->bucket == chunk_free_order(chunk) + 1);
        sums->partly += chunk->bucket != 0;
    }
    sums->runs += chunk->starts_run;
    runs_verify_chunk(chunk);
}

void pages_verify(void) {
    struct verify_sums sums = {0};
    enter();
    for_each_chunk(verify_chunk, &sums);
    ensure(units_verify(&g.partly) == sums.partly && runs_verify() == sums.runs);
    struct pages_totals totals = pages_totals();
    ensure(sums.mapped * UNIT_BYTES == totals.mapped && sums.used * UNIT_BYTES == totals.used);
    ensure(sums.kept * UNIT_BYTES == totals.dirty + totals.muzzy);
    lock_release(&g.lock);
}

/* The ground truth of a chunk is `first`; bitmaps, sets and sums are derived again. */
static void repair_chunk(struct chunk *chunk, void *context) {
    (void)context;
    chunk->used = 0;
    for (unsigned unit = 0; unit < CHUNK_UNITS; unit++) {
        chunk->used |= (unit_map)(chunk->first[unit] != UNIT_FREE) << unit;
    }
    if (chunk->owner != 0) {
        extents_repair_chunk(chunk);
        return;
    }
    chunk->committed = ~(unit_map)0;
    chunk->bucket = 0;
    chunk->run = 0;
    chunk->starts_run = 0;
    region_count_again();
    add_used(chunk_count_units(chunk->used));
    dirty_add_again(chunk);
}

static void settle_again(struct chunk *chunk, void *context) {
    (void)context;
    if (chunk->owner == 0) {
        settle(chunk);
    }
}

/*
 * Another thread held the lock when this process was forked, and is gone.  Units it was taking are
 * lost (nobody has seen them), units it was giving back are free or lost; nothing is owned twice.
 * What is touched is marked before it is free, and what is purged after, so it stays true.
 */
static COLD void repair(void) {
    region_reset();
    dirty_reset();
    runs_reset();
    count_set(&g.used_units, 0);
    g.purging = NULL;
    g.partly = (struct units_set){0};
    extents_repair_begin();
    for_each_chunk(repair_chunk, NULL);
    for_each_chunk(settle_again, NULL);
}

static void enter(void) {
    if (UNLIKELY(lock_acquire(&g.lock) == LOCK_ABANDONED)) {
        repair();
    }
}
