/* SPDX-License-Identifier: MIT
 *
 * context.h - what one thread allocated by one call stack: sums of the samples.
 *
 * Peak.  When the live total exceeds what it ever was, every context's live counts are its counts at the
 * peak; to say so, only the number of the peak is increased.  A context whose counts are about to
 * change and that has not been saved for this peak saves them first:
 *
 *      counts at the peak = saved, if context.peak_number is the present one, else live
 *
 * Threads     Call with the ledger locked (record.h).
 */
#pragma once

#include "base/common.h"
#include "base/table.h"

/* Samples as they are, and what they stand for.  Weights are kept as integers, so that what is
 * subtracted at the end is exactly what was added. */
struct sums {
    uint64_t objects;
    uint64_t bytes;
    uint64_t requested;
    uint64_t all_objects; /* in 65536ths */
    uint64_t all_bytes;   /* in 16ths */
};
enum { WEIGHT_ONE = 1 << 16, BYTE_ONE = 16 };

static inline void sums_add(struct sums *sum, const struct sums *change) {
    sum->objects += change->objects;
    sum->bytes += change->bytes;
    sum->requested += change->requested;
    sum->all_objects += change->all_objects;
    sum->all_bytes += change->all_bytes;
}

static inline void sums_subtract(struct sums *sum, const struct sums *change) {
    sum->objects -= change->objects;
    sum->bytes -= change->bytes;
    sum->requested -= change->requested;
    sum->all_objects -= change->all_objects;
    sum->all_bytes -= change->all_bytes;
}

struct context {
    uint32_t stack;
    uint32_t owner;
    uint32_t generation; /* 0: unused */
    uint32_t next;       /* in its bucket, or in the list of unused ones; 0: none */
    uint32_t sibling_before, sibling_after;
    uint64_t peak_number;
    struct sums live, accumulated, peak;
    uint64_t temporary; /* objects that lived shortly (record.h), in 65536ths */
};

/* The number of the context of a stack and thread in this generation, with counts of 0 if it is new;
 * 0 without memory. */
uint32_t context_find(uint32_t stack, uint32_t owner, uint32_t generation);

/* A context in use; numbers are 1 .. context_last(). */
extern struct table context_table HIDDEN;
static inline struct context *context_at(uint32_t number) {
    return table_at_sized(&context_table, number, sizeof(struct context));
}
uint32_t context_last(void);

/* Saves the live counts for the present peak, before they change. */
static inline void context_save(struct context *context, uint64_t peak_number) {
    if (context->peak_number != peak_number) {
        context->peak = context->live;
        context->peak_number = peak_number;
    }
}

/* If its thread has ended and it holds nothing, adds its past to the thread that stands for all of its
 * name that are gone, and forgets it. */
void context_retire(uint32_t number, uint64_t peak_number);

/* The next context of an owner after this one, 0 for the first; the last gives 0.  Forgetting the one
 * that was given before is allowed. */
uint32_t context_of_owner(uint32_t owner, uint32_t after);

/* Forgets contexts of generations before, from this number on and a few at a time; the number to go on
 * with, or 0. */
uint32_t context_sweep(uint32_t from, uint32_t generation);

/* After a holder of the lock has vanished: makes all links anew. */
void context_rebuild(void);
