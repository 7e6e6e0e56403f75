/* SPDX-License-Identifier: MIT
 *
 * shelf.c - large blocks without a lock: what a thread frees it keeps, up to 1 MiB, and takes again.
 *
 *      slot     | block | block |   -   | block | ...          filled by the owner alone
 *      units        4       4       0      16                  the owner's own note, for the search
 *
 * A block on a shelf has the kind SPAN_SHELVED: to everybody else it is free, to the page heap it
 * is in use.  Who empties a slot, by an exchange, has the block: the owner for its next request, or
 * another thread to give it back.  So the memory of threads that sleep can be reached.
 *
 * A shelf holds blocks of its thread's arena only; a block of another one moves over when it is
 * freed.  Nothing is kept from or for arenas that the program made or that have hooks, of sampled
 * blocks or those with moved pages, and while memory is to go back at once.  When a shelf is full,
 * the block behind the last one used leaves.
 *
 * Counts.  Each thread counts what its shelf gave and got; blocks that leave count as free already.
 *
 * Invariant   The units of a block on a shelf are those of its usable bytes (large.c).
 */
#include "heap/shelf.h"

#include "base/attention.h"
#include "base/log.h"
#include "heap/arena.h"
#include "heap/dirty.h"
#include "heap/large.h"
#include "heap/limit.h"
#include "heap/thread.h"
#include "heap/verify.h"
#include "opt/opt.h"

_Static_assert(SHELF_UNITS <= UINT8_MAX, "struct shelf.units");

/* Acquire: whoever put it there wrote the span. */
static struct span *empty_slot(struct shelf *shelf, unsigned i) {
    if (atomic_load_explicit(&shelf->slot[i], memory_order_relaxed) == NULL) {
        return NULL;
    }
    return atomic_exchange_explicit(&shelf->slot[i], NULL, memory_order_acquire);
}

/* Others read the notes, to count. */
static void write_note(struct shelf *shelf, unsigned i, unsigned units) {
    __atomic_store_n(&shelf->units[i], (uint8_t)units, __ATOMIC_RELAXED);
}

/* The owner's note of a slot is no longer true. */
static void clear_note(struct shelf *shelf, unsigned i) {
    assert(shelf->held >= shelf->units[i]);
    shelf->held -= shelf->units[i];
    write_note(shelf, i, 0);
}

static void give_back(struct span *span) {
    assert(__atomic_load_n(&span->kind, __ATOMIC_RELAXED) == SPAN_SHELVED);
    __atomic_store_n(&span->kind, SPAN_NONE, __ATOMIC_RELAXED);
    large_return(span);
}

/* ---------------------------------------------------------------- taking, keeping */

/* The slot with this note, from the one used last on; SHELF_SLOTS: none. */
static unsigned find(const struct shelf *shelf, unsigned units) {
    assert(shelf->last < SHELF_SLOTS);
    if (LIKELY(shelf->units[shelf->last] == units)) {
        return shelf->last;
    }
    unsigned i = 0;
    while (i < SHELF_SLOTS && shelf->units[i] != units) {
        i++;
    }
    return i;
}

void *shelf_take(unsigned arena, size_t usable) {
    struct thread *thread = tls.self;
    bool may_fit = usable - 1 < (size_t)SHELF_UNITS * UNIT_BYTES; /* 0: rounding has wrapped */
    if (thread == NULL || thread->arena != arena || !may_fit) {
        return NULL;
    }
    size_t units = large_units(usable);
    struct shelf *shelf = &thread->shelf;
    struct span *span = NULL;
    for (unsigned i; span == NULL && (i = find(shelf, (unsigned)units)) < SHELF_SLOTS;) {
        clear_note(shelf, i);
        span = empty_slot(shelf, i);
        shelf->last = (uint8_t)i;
    }
    if (span == NULL) {
        return NULL;
    }
    assert(span->arena == arena && large_units(span->bytes) == units);
    span->bytes = usable;
    span->is_reused = true;
    count_add(&shelf->taken[counts_lextent_of(usable)], 1);
    count_add(&shelf->taken_bytes, usable);
    __atomic_store_n(&span->kind, SPAN_LARGE, __ATOMIC_RELEASE);
    return (void *)span->base;
}

/* Is memory of this arena kept at all? */
static bool is_kept(unsigned arena) {
    return arena < arena_count() && !arena_uses_hooks(arena);
}

static bool may_keep(const struct span *span) {
    return span->bytes <= (size_t)SHELF_UNITS * UNIT_BYTES && span->id == 0 &&
           span->moved_pieces == 0 && !(tls.modes & THREAD_PAST_CACHE) &&
           !bin_heap_is_shrinking() && !limit_soft_is_exceeded() &&
           dirty_decay_ms[CHUNK_DIRTY] != 0 && opt.thread_cache_bytes != 0 && is_kept(span->arena);
}

static void drop(struct shelf *shelf, unsigned i) {
    clear_note(shelf, i);
    struct span *span = empty_slot(shelf, i);
    if (span != NULL) {
        give_back(span);
    }
}

/* A free slot, with room for so many units; blocks behind the one used last leave for it. */
static unsigned make_room(struct shelf *shelf, unsigned units) {
    assert(units >= 1 && units <= SHELF_UNITS);
    unsigned slot = find(shelf, 0);
    for (unsigned i = shelf->last; slot == SHELF_SLOTS || shelf->held + units > SHELF_UNITS;) {
        i = (i + 1) % SHELF_SLOTS;
        if (shelf->units[i] != 0) {
            drop(shelf, i);
            slot = i;
        }
    }
    assert(shelf->units[slot] == 0);
    return slot;
}

/* The block leaves the program.  One of another arena becomes one of the owner's. */
static void count_given(struct thread *thread, struct span *span) {
    if (UNLIKELY(span->arena != thread->arena)) {
        large_move_over(span, thread->arena);
        return;
    }
    count_add(&thread->shelf.given[counts_lextent_of(span->bytes)], 1);
    count_add(&thread->shelf.given_bytes, span->bytes);
}

bool shelf_put(struct span *span) {
    assert(__atomic_load_n(&span->kind, __ATOMIC_RELAXED) == SPAN_NONE);
    struct thread *thread = may_keep(span) ? thread_self() : NULL;
    if (thread == NULL || !is_kept(thread->arena)) {
        return false;
    }
    struct shelf *shelf = &thread->shelf;
    unsigned units = (unsigned)large_units(span->bytes);
    unsigned slot = make_room(shelf, units);
    count_given(thread, span);
    __atomic_store_n(&span->kind, SPAN_SHELVED, __ATOMIC_RELAXED);
    write_note(shelf, slot, units);
    shelf->held += (uint16_t)units;
    shelf->last = (uint8_t)slot;
    count_add(&shelf->uses, 1);
    /* Release: who empties the slot finds the span whole. */
    atomic_store_explicit(&shelf->slot[slot], span, memory_order_release);
    if (UNLIKELY(!atomic_load_explicit(&shelf->is_watched, memory_order_relaxed))) {
        atomic_store_explicit(&shelf->is_watched, true, memory_order_relaxed);
        attention_raise(ATTENTION_BACKGROUND);
    }
    return true;
}

/* ---------------------------------------------------------------- giving back */

/* The notes are the owner's: they stay, and lead it to empty slots. */
static void empty(struct shelf *shelf) {
    for (unsigned i = 0; i < SHELF_SLOTS; i++) {
        struct span *span = empty_slot(shelf, i);
        if (span != NULL) {
            give_back(span);
        }
    }
}

/* The caller owns the heap, or its thread is gone.  One that a fork ended may have left notes that
 * do not fit each other, so they are all made anew. */
void shelf_empty(struct thread *thread) {
    struct shelf *shelf = &thread->shelf;
    empty(shelf);
    for (unsigned i = 0; i < SHELF_SLOTS; i++) {
        write_note(shelf, i, 0);
    }
    shelf->held = 0;
}

void shelf_empty_all(void) {
    for (struct thread *thread = thread_first(); thread != NULL; thread = thread->older) {
        empty(&thread->shelf);
    }
}

bool shelf_is_empty(const struct shelf *shelf) {
    for (unsigned i = 0; i < SHELF_SLOTS; i++) {
        if (atomic_load_explicit(&shelf->slot[i], memory_order_relaxed) != NULL) {
            return false;
        }
    }
    return true;
}

/* A block that is put there at this very moment may be missed, until the next one. */
static bool tick(struct shelf *shelf) {
    uint64_t uses = count_read(&shelf->uses);
    if (uses == count_read(&shelf->uses_seen)) {
        atomic_store_explicit(&shelf->is_watched, false, memory_order_relaxed);
        empty(shelf);
        return false;
    }
    count_set(&shelf->uses_seen, uses);
    return true;
}

bool shelf_tick(void) {
    bool some_stay = false;
    for (struct thread *thread = thread_first(); thread != NULL; thread = thread->older) {
        some_stay |= tick(&thread->shelf);
    }
    return some_stay;
}

/* ---------------------------------------------------------------- counting, verifying */

/* By the notes: a block may leave its slot at any moment, and its span then is somebody else's. */
static size_t units_in(const struct shelf *shelf) {
    size_t units = 0;
    for (unsigned i = 0; i < SHELF_SLOTS; i++) {
        if (atomic_load_explicit(&shelf->slot[i], memory_order_relaxed) != NULL) {
            units += __atomic_load_n(&shelf->units[i], __ATOMIC_RELAXED);
        }
    }
    return units;
}

size_t shelf_bytes(void) {
    size_t units = 0;
    for (const struct thread *thread = thread_first(); thread != NULL; thread = thread->older) {
        units += units_in(&thread->shelf);
    }
    return units * UNIT_BYTES;
}

void shelf_add_sums(unsigned arena, struct large_sums *sums) {
    for (const struct thread *thread = thread_first(); thread != NULL; thread = thread->older) {
        if (__atomic_load_n(&thread->arena, __ATOMIC_RELAXED) != arena) {
            continue;
        }
        const struct shelf *shelf = &thread->shelf;
        for (unsigned i = 0; i < SHELF_LEXTENTS; i++) {
            sums->ndalloc[i] += count_read(&shelf->given[i]);
            sums->nmalloc[i] += count_read(&shelf->taken[i]);
        }
        uint64_t given = count_read(&shelf->given_bytes), taken = count_read(&shelf->taken_bytes);
        sums->bytes += taken - given;
        sums->total += taken;
    }
}

static uint64_t restart(uint64_t *count) {
    uint64_t value = count_read(count);
    if (value != 0) {
        count_set(count, 0);
    }
    return value;
}

void shelf_settle(struct thread *thread) {
    struct shelf *shelf = &thread->shelf;
    struct arena_sums *sums = &arena_get(thread->arena)->sums;
    for (unsigned i = 0; i < SHELF_LEXTENTS; i++) {
        count_add_shared(&sums->lextents[i].nmalloc, restart(&shelf->taken[i]));
        count_add_shared(&sums->lextents[i].ndalloc, restart(&shelf->given[i]));
    }
    uint64_t taken = restart(&shelf->taken_bytes);
    count_add_shared(&sums->large_bytes, taken - restart(&shelf->given_bytes));
    count_add_shared(&sums->large_total, taken);
}

size_t shelf_verify(const struct thread *thread, struct verify *walk) {
    const struct shelf *shelf = &thread->shelf;
    size_t count = 0, held = 0;
    for (unsigned i = 0; i < SHELF_SLOTS; i++) {
        const struct span *span = shelf->slot[i];
        held += shelf->units[i];
        if (span != NULL) {
            ensure(span->kind == SPAN_SHELVED && span->arena == thread->arena);
            ensure(large_units(span->bytes) == shelf->units[i] || lock_is_in_child());
            verify_shelved(walk, span);
            count++;
        }
    }
    ensure(held == shelf->held || lock_is_in_child());
    ensure(held <= SHELF_UNITS || lock_is_in_child());
    return count;
}
