/* SPDX-License-Identifier: MIT
 *
 * record.h - the ledger: one record for each sampled object that lives, and the sums over them.
 *
 *      record  --context-->  context (stack, thread, size)    sums over its records
 *                            totals                           sums over contexts
 *
 * A record is made in three steps, so that the lock is taken once for it:
 *
 *      record_take     a number, with room for what is known so far; from the stash, without a lock
 *      record_enter    the object exists: the sums change
 *      record_leave    the object is freed: the sums change back, the number may be used again
 *
 * Generations.  A reset forgets everything without touching it: records and contexts carry the
 * number of the generation they belong to, and those of another do not count.
 *
 * Threads     One lock guards all of it, and what is in context.h, owner.h, recent.h and journal.h.
 *             It is held for a few hundred nanoseconds; functions here take it unless they say otherwise.
 * Invariant   totals = sum over contexts; a context's live counts = sum over its records.
 */
#pragma once

#include <stdatomic.h>

#include "prof/context.h"

/* What a free needs and no more: a record has not been touched since its object was allocated. */
struct record {
    uint32_t context;        /* 0: none to be had, not counted.  Until it is entered: its stack */
    uint32_t generation;     /* RECORD_UNUSED, RECORD_TAKEN or the one it counts in */
    _Atomic uint32_t recent; /* its entry in recent.c; 0: none */
    int32_t slack;           /* usable bytes minus those asked for */
    uint64_t usable;
    uint64_t weight; /* of the object, in 65536ths; it never changes */
};
_Static_assert(sizeof(struct record) == 32, "two in a cache line");

static inline uint64_t record_requested(const struct record *record) {
    return record->usable - (uint64_t)(int64_t)record->slack;
}

struct prof_live;

enum { RECORD_UNUSED = 0, RECORD_TAKEN = UINT32_MAX };

/* Numbers a thread has for itself, and contexts it has found before.  Zeros at first. */
enum { RECORD_STASH = 16, RECORD_FOUND = 64 };
struct record_stash {
    uint32_t count;
    uint32_t numbers[RECORD_STASH];
    struct {
        uint32_t stack, context; /* the context may be another's by now */
    } found[RECORD_FOUND];
};

/* Takes a number, 0 without memory, or gives it back unentered.  record_take_slowly is for an empty
 * stash. */
uint32_t record_take_slowly(struct record_stash *stash);
static inline uint32_t record_take(struct record_stash *stash) {
    return LIKELY(stash->count != 0) ? stash->numbers[--stash->count] : record_take_slowly(stash);
}
void record_untake(struct record_stash *stash, uint32_t number);

/* A live or taken record. */
extern struct table record_table HIDDEN;
static inline struct record *record_at(uint32_t number) {
    return table_at_sized(&record_table, number, sizeof(struct record));
}

/* The rest of it, apart because a free need not touch most of these. */
struct record_origin {
    uint64_t birth_ns;
    uintptr_t place; /* where to look for the space that its object keeps: pinned_place */
};
extern struct table record_origins HIDDEN;
static inline struct record_origin *record_origin(uint32_t number) {
    return table_at_sized(&record_origins, number, sizeof(struct record_origin));
}

/* The owner's object exists; stack, sizes and time of birth are in the record.  False: not counted,
 * for want of memory. */
bool record_enter(uint32_t number, uint32_t owner, struct record_stash *stash);

/* Who frees an object, where, and when; stack and time may be 0: not known. */
struct record_end {
    uint32_t owner, stack;
    uint64_t ns;
};

/* The object is gone.  The number goes to the stash, or to all threads if that is NULL. */
void record_leave(uint32_t number, struct record_stash *stash, const struct record_end *end);

/* The same for a mapping of the program's.  It is no sample, so it stands for itself, whatever the
 * rate, and is counted neither by class nor by recent.h and journal.h.  It only shrinks; with 0 bytes
 * it is gone. */
bool record_enter_mapping(uint32_t number, uint32_t owner);
void record_shrink_mapping(uint32_t number, uint64_t bytes);

/* Gives the numbers of a stash to all threads. */
void record_empty_stash(struct record_stash *stash);

/* ---------------------------------------------------------------- the whole */

/* Forgets everything recorded; from now on samples have a mean distance of `rate` bytes. */
void record_reset(uint64_t rate);

struct record_totals {
    struct sums live, accumulated, peak;
    uint64_t rate;
    uint64_t drops;
};
void record_read_totals(struct record_totals *totals);

/* One more sample could not be recorded. */
void record_note_drop(void);

/* A copy of a context as it is now, the peak resolved; false: unused. */
bool record_read_context(uint32_t number, struct context *context, struct context_lives *lives);

/* A live record, with no lock taken; false: it does not live. */
bool record_peek(uint32_t number, struct prof_live *live);

/* What of live records says how much space their objects keep, from number `*next` on: returns how
 * many were copied.  `*next` is 1 at first and 0 at the end. */
struct record_kept {
    uint32_t context;
    uint64_t usable, weight;
    uintptr_t place;
};
unsigned record_read_kept(uint32_t *next, struct record_kept *kept, unsigned most);

/* The thread of this number has ended; the second: all but this one have. */
void record_owner_ended(uint32_t owner);
void record_forked(uint32_t survivor);

/* For the other files behind the lock. */
void record_lock(void);
void record_unlock(void);

/* Sums of sampled requests by size class, small ones first, then the large ones of counts.h. */
struct record_class {
    uint64_t requested, count;
};
void record_read_class(size_t usable, bool accumulated, struct record_class *sum);
