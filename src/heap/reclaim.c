/* SPDX-License-Identifier: MIT
 *
 * reclaim.c - which slabs give pages back, and when.
 *
 * An object that is live keeps its slab, but only the pages it lies in need memory.
 *
 *      slab     [##..|....|....|.#..|....]         # out   . free
 *      pages      1    2    3    4    5            2, 3 and 5 go, in two calls
 *
 * Nobody keeps a list of such pages: that would cost every drain.  Instead drain says when a bin
 * has much free (note_drained in bin.c), and a pass looks at the slabs of such bins, chunk by
 * chunk.  By time, a slab gives its pages at the second pass that finds some, if nothing was taken
 * from it in between.  When the heap is about to grow, and when somebody asks, it gives at once.
 * The background thread makes whole passes; where there is none, those who free make them, a chunk
 * at a time.
 *
 * The kernel is called without the bin's lock.  Meanwhile the slab is busy: nothing is taken from
 * it and it does not go back to the page heap, but objects may come home.
 *
 * Threads     g.lock is held during a pass, the kernel's work included; no call of malloc waits
 *             for it.
 * Fork        A child finds the lock abandoned and puts the slab that was busy back into use.
 * Read next   slab.c for what can go; bin.c: bin_begin_purge.
 */
#include "heap/reclaim.h"

#include <stdatomic.h>

#include "base/attention.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "heap/arena.h"
#include "heap/bin.h"
#include "heap/dirty.h"
#include "heap/pages.h"
#include "heap/slab.h"

/* Before the heap grows by a chunk: more than what it grows by, and well below a millisecond. */
enum { SOME_BYTES = 4 << 20, SOME_CHUNKS = 16 };

enum { DRAINS_PER_STEP = 8 };

static struct {
    struct lock lock;
    _Atomic uint32_t steps;
    size_t cursor;    /* where reclaim_some and reclaim_step go on */
    uint64_t next_ms; /* when the next pass by time begins */
    /* The slab that may be busy; for a child of fork. */
    struct bin *bin;
    struct span *slab;
    size_t unit; /* where it begins; as an address it would keep its first object from being lost */
} g = {.lock = LOCK_OF_RANK(RANK_RECLAIM)};

_Atomic bool reclaim_is_asked;

void reclaim_ask(void) {
    if (!atomic_load_explicit(&reclaim_is_asked, memory_order_relaxed)) {
        atomic_store_explicit(&reclaim_is_asked, true, memory_order_relaxed);
        attention_raise(ATTENTION_BACKGROUND);
    }
}

/* The holder vanished in a fork. */
static COLD void repair(void) {
    assert(lock_is_mine(&g.lock));
    if (g.slab != NULL) {
        bin_end_purge(g.bin, g.slab, g.unit * UNIT_BYTES, false);
    }
    g.slab = NULL;
}

static void enter(void) {
    if (UNLIKELY(lock_acquire(&g.lock) == LOCK_ABANDONED)) {
        repair();
    }
}

/* ---------------------------------------------------------------- one slab */

/* One call for each run of neighbours.  False when the kernel refused one. */
static bool purge_runs(uintptr_t base, uint32_t sheets) {
    bool is_done = true;
    while (sheets != 0) {
        unsigned first = bits_lowest(sheets);
        unsigned count = bits_lowest(~((uint64_t)sheets >> first));
        is_done &= os_purge((void *)(base + ((uintptr_t)first << LG_SHEET)),
                            (size_t)count << LG_SHEET) == 0;
        sheets &= (uint32_t)(UINT64_MAX << (first + count));
    }
    return is_done;
}

/* Adds what went to `*bytes`.  False when the kernel refused. */
static bool purge_slab(struct bin *bin, struct span *slab, uintptr_t base, bool is_aged,
                       size_t *bytes) {
    assert(lock_is_mine(&g.lock));
    g.bin = bin;
    g.unit = base / UNIT_BYTES;
    g.slab = slab;
    bool is_done = true;
    uint32_t sheets = bin_begin_purge(bin, slab, base, is_aged);
    if (sheets != 0) {
        is_done = purge_runs(base, sheets);
        bin_end_purge(bin, slab, base, is_done);
        *bytes += is_done ? (size_t)__builtin_popcount(sheets) << LG_SHEET : 0;
    }
    g.slab = NULL;
    return is_done;
}

/* ---------------------------------------------------------------- a pass */

/* Slabs of one chunk, as they were under the page heap's lock. */
struct pass {
    bool is_aged;   /* wait until slabs are idle */
    bool is_asked;  /* only bins that are worth a look */
    unsigned arena; /* or RECLAIM_ANY_ARENA */
    size_t bytes;   /* that went */
    unsigned count;
    struct {
        struct bin *bin;
        struct span *slab;
        uintptr_t base;
    } found[CHUNK_UNITS];
};

static bool collect(struct span *span, void *context) {
    struct pass *pass = context;
    assert(pages_is_mine() && pass->count < CHUNK_UNITS);
    /* The owner may destroy it now: bin_begin_purge asks again. */
    const struct span seen = {.owner = span_owner(span)};
    if (seen.kind != SPAN_SLAB || seen.arena & ARENA_HOOKED ||
        (pass->arena != RECLAIM_ANY_ARENA && (seen.arena & ARENA_INDEX) != pass->arena)) {
        return false;
    }
    struct bin *bin = arena_bin(seen.arena, seen.size_class);
    if (!pass->is_asked || bin_is_worth_a_look(bin)) {
        pass->found[pass->count].bin = bin;
        pass->found[pass->count].slab = span;
        pass->found[pass->count++].base = span->base;
    }
    return false;
}

/* Looks at the chunk at the cursor, and moves it.  False at the end, and when the kernel refuses. */
static bool look_at_chunk(struct pass *pass, size_t *cursor) {
    assert(lock_is_mine(&g.lock));
    pass->count = 0;
    bool goes_on = pages_walk_on(cursor, collect, pass);
    for (unsigned i = 0; i < pass->count && goes_on; i++) {
        goes_on = purge_slab(pass->found[i].bin, pass->found[i].slab, pass->found[i].base,
                             pass->is_aged, &pass->bytes);
    }
    return goes_on;
}

/* A pass begins: does any bin want it?  What comes home from now on is worth passes of its own. */
static bool begin_pass(void) {
    assert(lock_is_mine(&g.lock));
    bool is_wanted = false;
    atomic_store_explicit(&reclaim_is_asked, false, memory_order_relaxed);
    for (unsigned a = 0; a < arena_limit(); a++) {
        for (unsigned set = 0; set < ARENA_SETS; set++) {
            for (unsigned c = 1; c < CLASS_COUNT; c++) {
                struct bin *bin = arena_bin_of_set(a, set, c);
                is_wanted |= bin != NULL && bin_is_worth_a_look(bin) && bin_begin_look(bin);
            }
        }
    }
    if (is_wanted) {
        reclaim_ask();
    }
    return is_wanted;
}

size_t reclaim_all(unsigned arena) {
    struct pass pass = {.arena = arena};
    size_t cursor = 0;
    enter();
    while (look_at_chunk(&pass, &cursor)) {
    }
    lock_release(&g.lock);
    return pass.bytes;
}

static int64_t decay_ms(void) {
    return atomic_load_explicit(&dirty_decay_ms[CHUNK_DIRTY], memory_order_relaxed);
}

static bool try_to_enter(void) {
    enum lock_found found = LOCK_SOUND;
    bool is_in = lock_try(&g.lock, &found);
    if (UNLIKELY(is_in && found == LOCK_ABANDONED)) {
        repair();
    }
    return is_in;
}

/* Looks at the next chunks, up to a number of them and of bytes that go. */
static void go_on(struct pass *pass, unsigned chunks, size_t bytes) {
    bool goes_on = g.cursor != 0 || begin_pass();
    for (unsigned i = 0; i < chunks && pass->bytes < bytes && goes_on; i++) {
        goes_on = look_at_chunk(pass, &g.cursor);
    }
    if (!goes_on) {
        g.cursor = 0;
        g.next_ms = os_now_ms() + max_size((size_t)decay_ms(), 1);
    }
}

void reclaim_some(void) {
    if (atomic_load_explicit(&reclaim_is_asked, memory_order_relaxed) && try_to_enter()) {
        struct pass pass = {.arena = RECLAIM_ANY_ARENA, .is_asked = true};
        go_on(&pass, SOME_CHUNKS, SOME_BYTES);
        lock_release(&g.lock);
    }
}

void reclaim_step(void) {
    uint32_t steps = atomic_fetch_add_explicit(&g.steps, 1, memory_order_relaxed);
    if (steps % DRAINS_PER_STEP != 0 || decay_ms() < 0 || !try_to_enter()) {
        return;
    }
    if (g.cursor != 0 || os_now_ms() >= g.next_ms) {
        struct pass pass = {
            .arena = RECLAIM_ANY_ARENA, .is_asked = true, .is_aged = decay_ms() > 0};
        go_on(&pass, 1, SOME_BYTES);
    }
    lock_release(&g.lock);
}

uint64_t reclaim_tick(void) {
    if (decay_ms() < 0 || !atomic_load_explicit(&reclaim_is_asked, memory_order_relaxed)) {
        return UINT64_MAX;
    }
    uint64_t now_ms = os_now_ms();
    enter();
    if (now_ms >= g.next_ms) {
        struct pass pass = {
            .arena = RECLAIM_ANY_ARENA, .is_asked = true, .is_aged = decay_ms() > 0};
        size_t cursor = 0;
        for (bool goes_on = begin_pass(); goes_on;) {
            goes_on = look_at_chunk(&pass, &cursor);
        }
        g.next_ms = now_ms + max_size((size_t)decay_ms(), 1);
    }
    uint64_t wait_ms = g.next_ms - now_ms;
    lock_release(&g.lock);
    return atomic_load_explicit(&reclaim_is_asked, memory_order_relaxed) ? wait_ms : UINT64_MAX;
}
