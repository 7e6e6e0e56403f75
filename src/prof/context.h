/* SPDX-License-Identifier: MIT
 *
 * context.h - what one thread allocated by one call stack in one range of sizes: sums of the samples.
 *
 * Sizes.  A call may make small blocks and large ones, and somebody who looks for the large ones needs to see them.
 * So each power of two has a context of its own; few calls use more than one or two.
 *
 * Peak.  When the live total reaches a new maximum, every context's live counts are its counts at
 * the peak; it is enough to increase the number of the peak.  A context whose counts are about to
 * change saves them first, unless it has done so for this peak:
 *
 *      counts at the peak = saved, if context.peak_number is the present one, else live
 *
 * Threads     Call with the ledger locked (record.h).
 */
#pragma once

#include "base/common.h"
#include "base/table.h"
#include "contract/lifetimes.h"

/* Samples as they are, and what they stand for.  Weights are kept as integers, so that what is
 * subtracted at the end is exactly what was added. */
struct sums {
    uint64_t objects;
    uint64_t bytes;
    uint64_t requested;
    uint64_t all_objects;                  /* in 65536ths */
    uint64_t all_bytes;                    /* in 16ths */
    uint64_t all_slack;                    /* of these, what nobody asked for */
    double object_variance, byte_variance; /* of the first two; rounding leaves traces in them */
};
enum { WEIGHT_ONE = 1 << 16, BYTE_ONE = 16 };

static inline void sums_add(struct sums *sum, const struct sums *change) {
    sum->objects += change->objects;
    sum->bytes += change->bytes;
    sum->requested += change->requested;
    sum->all_objects += change->all_objects;
    sum->all_bytes += change->all_bytes;
    sum->object_variance += change->object_variance;
    sum->byte_variance += change->byte_variance;
    sum->all_slack += change->all_slack;
}

static inline void sums_subtract(struct sums *sum, const struct sums *change) {
    sum->objects -= change->objects;
    sum->bytes -= change->bytes;
    sum->requested -= change->requested;
    sum->all_objects -= change->all_objects;
    sum->all_bytes -= change->all_bytes;
    bool is_empty = sum->objects == 0;
    sum->object_variance = is_empty ? 0 : sum->object_variance - change->object_variance;
    sum->byte_variance = is_empty ? 0 : sum->byte_variance - change->byte_variance;
    sum->all_slack -= change->all_slack;
}

struct context {
    uint32_t stack;
    uint32_t owner;
    uint32_t
        size_lg; /* of its objects' usable bytes when they were entered: the logarithm, rounded down */
    uint32_t generation; /* 0: unused */
    uint32_t next;       /* in its bucket, or in the list of unused ones; 0: none */
    uint32_t sibling_before, sibling_after;
    uint64_t peak_number;
    struct sums live, accumulated, peak;
};

/* The number of the context of a stack, thread and size in this generation, which is made with counts
 * of 0 if there is none; 0 without memory. */
uint32_t context_find(uint32_t stack, uint32_t owner, uint32_t size_lg, uint32_t generation);

/* A context in use; numbers are 1 .. context_last(). */
extern struct table context_table HIDDEN;
static inline struct context *context_at(uint32_t number) {
    return table_at_sized(&context_table, number, sizeof(struct context));
}
uint32_t context_last(void);

/* What a context has freed, by the time it had lived (lifetimes.h), in the units of all_objects and
 * all_bytes.  Apart from the rest, which every sample changes. */
struct context_lives {
    struct {
        uint64_t objects, bytes;
    } steps[LIFETIME_STEPS];
};
extern struct table context_lives_table HIDDEN;
static inline struct context_lives *context_lives(uint32_t number) {
    return table_at_sized(&context_lives_table, number, sizeof(struct context_lives));
}

/* Saves the live counts for the present peak, before they change. */
static inline void context_save(struct context *context, uint64_t peak_number) {
    if (context->peak_number != peak_number) {
        context->peak = context->live;
        context->peak_number = peak_number;
    }
}

/* If the context's thread has ended and the context holds nothing: adds its past to the thread that
 * stands for all ended threads of that name, and forgets it. */
void context_retire(uint32_t number, uint64_t peak_number);

/* The context of an owner that follows `after`; the first if that is 0; 0 at the end.  Contexts
 * returned earlier may be forgotten meanwhile, `after` itself not. */
uint32_t context_of_owner(uint32_t owner, uint32_t after);

/* Forgets some contexts of earlier generations, beginning at this number; returns the number to
 * continue with, or 0. */
uint32_t context_sweep(uint32_t from, uint32_t generation);

/* After a holder of the lock has vanished: rebuilds all links. */
void context_rebuild(void);
