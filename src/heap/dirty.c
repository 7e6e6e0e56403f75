/* SPDX-License-Identifier: MIT
 *
 * dirty.c - two queues of chunks, with dirty and with muzzy units, and what leaves them when.
 *
 * By time.  Each queue has its decay (decay.h).  At the end of a step, what may no longer stay is
 * due, and is purged from the oldest chunks, from their high end.
 *
 * By volume.  Without a background thread the last free may be the last call.  So dirty units
 * above BASE_UNITS or 1/16 of the heap are purged at once, "early".  A program that frees and takes
 * tens of MiB again and again would pay for that each time.  Therefore each unit that was purged
 * early and is needed again within the decay time is a regret and allows a few units more:
 *
 *      bound      = max(BASE_UNITS, used / 16) + allowance
 *      allowance += regrets * REGRET_WEIGHT, until the bound is BOUND_GROWTH times that of the
 *                   last early purge
 *      allowance  = the most that was taken again of what was kept, but between half and all of
 *                   the old one: after each decay time
 *
 * So a saw-tooth pays for its first few teeth, and keeps the allowance while it is used; a program
 * that has calmed down loses it by halves.  From MUCH_UNITS on it needs a background thread: when the
 * program sleeps, nobody else takes what the allowance lets stay.
 *
 * A purge that the kernel refuses (locked memory, too many mappings) is tried again after a second.
 *
 * Threads     Guarded by the page heap's lock, except the sums.  Who purges holds the lock for that
 *             as well, and lets go of the page heap's while the kernel works (pages.h).
 * Invariant   The sum of a queue == its units over all chunks; a chunk that has some is in it.
 */
#include "heap/dirty.h"

#include <string.h>

#include "base/attention.h"
#include "base/count.h"
#include "base/log.h"
#include "base/os.h"
#include "heap/counts.h"
#include "heap/decay.h"
#include "heap/pages.h"

enum {
    MANY_UNITS = 16, /* a quarter of a MiB, at once or in 16 calls */
    GIVEN_BACK_PER_LOOK = 16,
    PIECE_UNITS = DIRTY_PIECE_UNITS,
    BASE_UNITS = (4 << 20) / UNIT_BYTES, /* kept whatever the size of the heap */
    HEAP_SHARE = 16,
    REGRET_WEIGHT = 4, /* learn quickly; what is too much fades */
    BOUND_GROWTH = 4,
    MUCH_UNITS = (32 << 20) / UNIT_BYTES,
    REFUSALS_MOST = 4096, /* chunks that are tried in vain, in a row of purges */
    REFUSED_WAIT_MS = 1000,
    NEVER_MS = 3600 * 1000, /* long enough */
};

/* Why units are purged. */
enum cause {
    CAUSE_TIME,   /* dirty ones become muzzy, if there is a time for that */
    CAUSE_VOLUME, /* early: remembered, in case it is regretted */
    CAUSE_WISH,   /* somebody asked for it */
};

struct queue {
    struct chunk_list chunks;
    struct decay decay;
    size_t due;     /* units that may no longer stay */
    uint64_t units; /* written under the lock, read without */
};

static struct {
    struct queue queue[CHUNK_QUEUES];
    uint64_t now_ms;     /* the clock as last read */
    uint64_t refused_ms; /* when the kernel refused to purge; 0: it did not */
    uint32_t given_back; /* calls of dirty_expect */
    /* The bound by volume, in units. */
    size_t allowance;
    uint64_t early_ms;     /* the last early purge */
    size_t allowance_most; /* what it may grow to until the next */
    uint64_t period_ms;    /* start of the running decay time */
    size_t highest;        /* dirty units since then */
    size_t taken_again;    /* most that was taken of them */
    uint64_t purged_units;
    struct dirty_purges purges[CHUNK_QUEUES]; /* written under the lock, read without */
} g;

_Atomic bool dirty_has_background;
_Atomic bool dirty_keeps_much;
_Atomic int64_t dirty_decay_ms[CHUNK_QUEUES];

static int64_t decay_ms(enum chunk_queue kind) {
    return atomic_load_explicit(&dirty_decay_ms[kind], memory_order_relaxed);
}

unit_map dirty_units(enum chunk_queue kind, const struct chunk *chunk) {
    return kind == CHUNK_DIRTY ? chunk->touched & ~chunk->used & ~chunk->muzzy : chunk->muzzy;
}

/* ---------------------------------------------------------------- the queues */

static void join(enum chunk_queue kind, struct chunk *chunk) {
    assert(pages_is_mine() && chunk->owner == 0);
    chunk_join(&g.queue[kind].chunks, kind, chunk);
}

static void leave(enum chunk_queue kind, struct chunk *chunk) {
    assert(pages_is_mine());
    chunk_leave(&g.queue[kind].chunks, kind, chunk);
}

/* After units of the kind came or went. */
static void settle(enum chunk_queue kind, struct chunk *chunk) {
    bool has_some = dirty_units(kind, chunk) != 0;
    if (has_some != chunk->queued[kind].is_in) {
        (has_some ? join : leave)(kind, chunk);
    }
}

static void take_from(enum chunk_queue kind, struct chunk *chunk, unit_map units) {
    assert(chunk_count_units(units) <= count_read(&g.queue[kind].units));
    struct queue *queue = &g.queue[kind];
    count_add(&queue->units, -(size_t)chunk_count_units(units));
    decay_note_taken(&queue->decay, count_read(&queue->units));
    settle(kind, chunk);
}

static void set_allowance(size_t units) {
    assert(pages_is_mine());
    bool is_much = units >= MUCH_UNITS;
    g.allowance = units;
    if (is_much != dirty_keeps_much) {
        dirty_keeps_much = is_much;
        attention_raise(ATTENTION_GROWN); /* The end of this allocation may start a thread. */
    }
}

/* Units that were purged early are needed after all: allow more to stay. */
static void note_regret(struct chunk *chunk, unit_map units) {
    unit_map early = chunk->early & units;
    chunk->early &= ~units;
    if (early != 0 && g.now_ms - g.early_ms < (uint64_t)decay_ms(CHUNK_DIRTY)) {
        size_t more = g.allowance + (size_t)REGRET_WEIGHT * chunk_count_units(early);
        set_allowance(max_size(g.allowance, min_size(more, g.allowance_most)));
    }
}

bool dirty_reuse(struct chunk *chunk, unit_map units) {
    assert((chunk->used & units) == units);
    unit_map was_touched = chunk->touched & units;
    unit_map was_muzzy = chunk->muzzy & units;
    chunk->muzzy &= ~units;
    if (was_touched != was_muzzy) {
        take_from(CHUNK_DIRTY, chunk, was_touched & ~was_muzzy);
        size_t kept = count_read(&g.queue[CHUNK_DIRTY].units);
        g.taken_again = max_size(g.taken_again, g.highest - min_size(kept, g.highest));
    }
    if (was_muzzy != 0) {
        take_from(CHUNK_MUZZY, chunk, was_muzzy);
    }
    if (chunk->early != 0) {
        note_regret(chunk, units);
    }
    return was_touched == 0;
}

void dirty_keep(struct chunk *chunk, unit_map units) {
    struct queue *queue = &g.queue[CHUNK_DIRTY];
    count_add(&queue->units, chunk_count_units(units));
    assert((units & chunk->used) == 0 && (units & ~chunk->touched) == 0);
    g.highest = max_size(g.highest, count_read(&queue->units));
    settle(CHUNK_DIRTY, chunk);
}

/* ---------------------------------------------------------------- time */

/* Advances the decay; when a step has ended, what exceeds its limit is due. */
static void advance(enum chunk_queue kind) {
    struct queue *queue = &g.queue[kind];
    size_t kept = count_read(&queue->units);
    if (decay_ms(kind) > 0 &&
        decay_advance(&queue->decay, g.now_ms, (uint64_t)decay_ms(kind), kept)) {
        queue->due = kept - min_size(decay_limit(&queue->decay), kept);
    }
}

/* The allowance falls to what was taken again lately, but by no more than half. */
static void fade_allowance(void) {
    if (g.now_ms - g.period_ms < (uint64_t)decay_ms(CHUNK_DIRTY)) {
        return;
    }
    set_allowance(min_size(g.allowance, max_size(g.allowance / 2, g.taken_again)));
    g.period_ms = g.now_ms;
    g.highest = count_read(&g.queue[CHUNK_DIRTY].units);
    g.taken_again = 0;
}

void dirty_look_at_clock(void) {
    assert(pages_is_mine());
    g.now_ms = os_now_ms();
    attention_note_time(g.now_ms);
    advance(CHUNK_DIRTY);
    advance(CHUNK_MUZZY);
    fade_allowance();
}

/* Reading the clock costs about as much as giving a slab back, so it is read at every sixteenth
 * small call and at every larger one. */
bool dirty_expect(size_t units) {
    g.given_back++;
    if (units < MANY_UNITS && g.given_back % GIVEN_BACK_PER_LOOK != 0) {
        return false;
    }
    dirty_look_at_clock();
    return true;
}

/* ---------------------------------------------------------------- purging */

/* The length of the highest run of set bits, cut to its last `most`; its start in `*first`. */
static unsigned highest_run(unit_map map, size_t most, unsigned *first) {
    unsigned end = CHUNK_UNITS;
    while (end > 0 && !(map >> (end - 1) & 1)) {
        end--;
    }
    unsigned start = end;
    while (start > 0 && end - start < most && map >> (start - 1) & 1) {
        start--;
    }
    *first = start;
    return end - start;
}

/* A chunk without memory needs no spans: those of free units are not looked at, and zeros are as
 * good, since they mean SPAN_NONE. */
static void purge_spans(struct chunk *chunk) {
    size_t bytes = align_up(CHUNK_UNITS * sizeof(struct span), os_facts.page_bytes);
    (void)os_purge(chunk->span, bytes);
}

/* Without the lock: nobody takes these units meanwhile.  Those around them may come and go. */
static bool call_kernel(struct chunk *chunk, unit_map units, void *start, size_t bytes,
                        bool lazily) {
    bool is_last = chunk->used == 0 && (chunk->touched & ~units) == 0;
    pages_begin_purge(chunk, units);
    bool done = (lazily ? os_purge_lazily : os_purge)(start, bytes) == 0;
    if (done && is_last && !lazily) {
        purge_spans(chunk);
    }
    pages_end_purge(chunk);
    return done;
}

/* Purges the whole kernel pages inside [first, first + count) units; only those units change. */
static unit_map purge_run(enum chunk_queue kind, struct chunk *chunk, unsigned first,
                          unsigned count, bool lazily) {
    uintptr_t start = align_up(chunk->base + (uintptr_t)first * UNIT_BYTES, os_facts.page_bytes);
    uintptr_t end =
        align_down(chunk->base + (uintptr_t)(first + count) * UNIT_BYTES, os_facts.page_bytes);
    if (start >= end) {
        return 0;
    }
    unit_map units = chunk_units(chunk_unit(start), (unsigned)((end - start) / UNIT_BYTES));
    assert((units & chunk->used) == 0 && (units & ~chunk->touched) == 0);
    count_add(&g.purges[kind].calls, 1);
    if (!call_kernel(chunk, units, (void *)start, end - start, lazily)) {
        return 0;
    }
    assert((units & chunk->used) == 0 && (units & ~chunk->touched) == 0);
    chunk->muzzy = lazily ? chunk->muzzy | units : chunk->muzzy & ~units;
    chunk->touched = lazily ? chunk->touched : chunk->touched & ~units;
    return units;
}

/* Moves sums and queues after units of a chunk left the kind. */
static void account_purged(enum chunk_queue kind, struct chunk *chunk, unit_map units) {
    size_t count = chunk_count_units(units);
    count_add(&g.queue[kind].units, -count);
    assert((units & chunk->used) == 0 && count_read(&g.queue[kind].units) <= SIZE_MAX / 2);
    g.queue[kind].due -= min_size(g.queue[kind].due, count);
    if (units & chunk->muzzy) {
        count_add(&g.queue[CHUNK_MUZZY].units, count);
        settle(CHUNK_MUZZY, chunk);
    } else {
        count_add(&g.purged_units, count);
    }
    if (kind == CHUNK_DIRTY) {
        g.highest -= min_size(g.highest, count);
    }
    settle(kind, chunk);
}

/* Purges up to `most` units of one kind in a chunk; how many went. */
static size_t purge_chunk(enum chunk_queue kind, struct chunk *chunk, size_t most,
                          enum cause cause) {
    bool lazily = kind == CHUNK_DIRTY && cause == CAUSE_TIME && decay_ms(CHUNK_MUZZY) != 0;
    unit_map seen = 0;
    size_t tried = 0, purged = 0;
    unsigned first, length;
    while (tried < most &&
           (length = highest_run(dirty_units(kind, chunk) & ~seen, most - tried, &first)) > 0) {
        unit_map gone = purge_run(kind, chunk, first, length, lazily);
        chunk->early |= cause == CAUSE_VOLUME ? gone : 0;
        account_purged(kind, chunk, gone);
        seen |= chunk_units(first, length);
        tried += length;
        purged += chunk_count_units(gone);
    }
    return purged;
}

/* Purges up to `most` units, oldest first; how many went.  A chunk of which some stay goes to the
 * end of the queue.  The first of which none went is met again when all others had their turn;
 * since others free and take meanwhile, it may not be, and few more are tried then. */
static size_t purge(enum chunk_queue kind, size_t most, enum cause cause) {
    struct queue *queue = &g.queue[kind];
    const struct chunk *refused = NULL;
    size_t purged = 0;
    struct chunk *chunk;
    for (unsigned refusals = 0; purged < most && refusals < REFUSALS_MOST &&
                                (chunk = queue->chunks.oldest) != NULL && chunk != refused;) {
        assert(chunk->queued[kind].is_in);
        size_t went = purge_chunk(kind, chunk, most - purged, cause);
        purged += went;
        refused = went == 0 && refused == NULL ? chunk : refused;
        refusals += went == 0;
        if (purged < most && chunk->queued[kind].is_in) {
            leave(kind, chunk);
            join(kind, chunk);
        }
    }
    decay_note_purged(&queue->decay, count_read(&queue->units));
    count_add(&g.purges[kind].times, purged > 0);
    count_add(&g.purges[kind].units, purged);
    return purged;
}

static bool has_background(void) {
    return atomic_load_explicit(&dirty_has_background, memory_order_relaxed);
}

static size_t bound(size_t used) {
    return max_size(BASE_UNITS, used / HEAP_SHARE) + g.allowance;
}

/* Dirty units that are too many for a heap of `used` units.  Some more are purged with them, so
 * that purges do not come one unit at a time. */
static size_t excess(size_t used) {
    size_t kept = count_read(&g.queue[CHUNK_DIRTY].units);
    if (decay_ms(CHUNK_DIRTY) == 0) {
        return kept;
    }
    if (kept <= bound(used) || decay_ms(CHUNK_DIRTY) < 0 || has_background()) {
        return 0;
    }
    return kept - bound(used) + BASE_UNITS / 8;
}

bool dirty_is_too_much(size_t used) {
    return excess(used) > 0;
}

static size_t due(enum chunk_queue kind) {
    size_t kept = count_read(&g.queue[kind].units);
    return decay_ms(kind) == 0 ? kept : min_size(g.queue[kind].due, kept);
}

static bool waits_after_refusal(void) {
    return g.refused_ms != 0 && g.now_ms - g.refused_ms < REFUSED_WAIT_MS;
}

/* False when nothing went: the kernel refuses, or no whole kernel page is free. */
static bool purge_piece(enum chunk_queue kind, size_t units, enum cause cause) {
    assert(units > 0);
    bool some_went = purge(kind, units, cause) > 0;
    g.refused_ms = some_went ? 0 : max_size(g.now_ms, 1);
    return some_went;
}

bool dirty_purge_some(size_t used, size_t most) {
    size_t dirty = due(CHUNK_DIRTY);
    size_t muzzy = due(CHUNK_MUZZY);
    size_t early = excess(used);
    if ((dirty | muzzy | early) == 0 || waits_after_refusal()) {
        return false;
    }
    if (early > dirty) {
        g.early_ms = g.now_ms;
        g.allowance_most = g.allowance + (BOUND_GROWTH - 1) * bound(used);
        return purge_piece(CHUNK_DIRTY, min_size(early, most), CAUSE_VOLUME);
    }
    if (dirty > 0) {
        return purge_piece(CHUNK_DIRTY, min_size(dirty, most), CAUSE_TIME);
    }
    return purge_piece(CHUNK_MUZZY, min_size(muzzy, most), CAUSE_TIME);
}

size_t dirty_purge_piece(void) {
    size_t before = count_read(&g.purged_units);
    if (purge(CHUNK_DIRTY, PIECE_UNITS, CAUSE_WISH) == 0) {
        purge(CHUNK_MUZZY, PIECE_UNITS, CAUSE_WISH);
    }
    return count_read(&g.purged_units) - before;
}

static uint64_t wait_ms(enum chunk_queue kind) {
    const struct queue *queue = &g.queue[kind];
    size_t kept = count_read(&queue->units);
    if (kept == 0) {
        return UINT64_MAX;
    }
    if (decay_ms(kind) < 0) {
        return NEVER_MS;
    }
    return decay_wait_ms(&queue->decay, g.now_ms, (uint64_t)decay_ms(kind), kept);
}

uint64_t dirty_wait_ms(void) {
    uint64_t wait = min_size(wait_ms(CHUNK_DIRTY), wait_ms(CHUNK_MUZZY));
    if (dirty_keeps_much && decay_ms(CHUNK_DIRTY) > 0) {
        wait = min_size(wait, (uint64_t)decay_ms(CHUNK_DIRTY)); /* The allowance is to fade. */
    }
    return waits_after_refusal() ? max_size(wait, REFUSED_WAIT_MS) : wait;
}

/* ---------------------------------------------------------------- repairing, checking, counting */

void dirty_reset(void) {
    assert(pages_is_mine());
    for (unsigned kind = 0; kind < CHUNK_QUEUES; kind++) {
        g.queue[kind] = (struct queue){0};
    }
}

void dirty_add_again(struct chunk *chunk) {
    chunk->muzzy = 0;
    chunk->early = 0;
    memset(chunk->queued, 0, sizeof(chunk->queued));
    dirty_keep(chunk, dirty_units(CHUNK_DIRTY, chunk));
}

size_t dirty_verify_chunk(const struct chunk *chunk) {
    ensure((chunk->muzzy & ~chunk->touched) == 0 && (chunk->muzzy & chunk->used) == 0);
    size_t kept = 0;
    for (unsigned kind = 0; kind < CHUNK_QUEUES; kind++) {
        ensure((dirty_units(kind, chunk) != 0) == chunk->queued[kind].is_in);
        kept += chunk_count_units(dirty_units(kind, chunk));
    }
    return kept;
}

struct dirty_totals dirty_totals(void) {
    return (struct dirty_totals){
        .dirty = count_read(&g.queue[CHUNK_DIRTY].units),
        .muzzy = count_read(&g.queue[CHUNK_MUZZY].units),
        .purged = count_read(&g.purged_units),
    };
}

struct dirty_purges dirty_purges(enum chunk_queue kind) {
    const struct dirty_purges *purges = &g.purges[kind];
    return (struct dirty_purges){
        .times = count_read(&purges->times),
        .calls = count_read(&purges->calls),
        .units = count_read(&purges->units),
    };
}
