/* SPDX-License-Identifier: MIT
 *
 * extract.h - everything the profiler has counted, copied and in order, for the writers of formats.
 *
 *      row      stack a   thread 0   small    live, accumulated     a run of rows is a stack
 *               stack a   thread 0   large
 *               stack a   thread 3   small
 *               stack b   thread 0   small
 *
 * Rows are in the order of the addresses of their stacks, innermost first, then by thread and size.  The
 * profiler goes on while it is read: each row is right by itself, and sums are those of the rows.
 *
 * Threads     One extract, one thread.
 */
#pragma once

#include "contract/lifetimes.h"
#include "out/pile.h"
#include "prof/prof.h"

/* What was freed after about the same time (lifetimes.h), an estimate of all. */
struct prof_life {
    double objects, bytes;
};

/* Sums by stack, thread and size, read one at a time.  Indices are 0 .. prof_context_count() - 1; an
 * unused one reads as false. */
struct prof_context {
    uint32_t stack;
    uint32_t thread;
    uint32_t size_lg; /* of context.h */
    struct prof_sum live, accumulated, peak;
    struct prof_life lives[LIFETIME_STEPS];
};

/* Adds to `by_context`, one element per index above, what live samples of each stand for of the
 * space that pinned_share speaks of.  `survey` is all zeros. */
void prof_add_pinned(struct pinned_survey *survey, double *by_context, uint32_t contexts);

uint32_t prof_context_count(void);
bool prof_read_context(uint32_t index, struct prof_context *context);

/* Threads have numbers 0 .. prof_thread_count() - 1 in the order of their first sample.  An ended
 * thread without live samples is counted as the one thread that stands for all such of its name. */
uint32_t prof_thread_count(void);
void prof_read_thread(uint32_t thread, char name[16], bool *has_ended);

/* The copy. */
struct extract_row {
    uint32_t stack, thread, size_lg;
    uint32_t depth; /* at least 1: a stack that could not be walked has the address 1 */
    uint32_t context;
    size_t first; /* where its addresses begin */
    struct prof_sum live, accumulated, peak;
    struct prof_life lives[LIFETIME_STEPS];
    double pinned; /* bytes; 0 until extract_read_pinned */
};

struct extract_thread {
    char name[16];
    bool has_ended;
    struct prof_sum live, accumulated;
};

/* All zeros is an empty extract. */
struct extract {
    enum dump_what what; /* whether `live` is what lives now or what lived at the peak */
    uint32_t count;      /* of rows */
    uint32_t stacks;     /* of runs of rows */
    uint32_t threads;
    uint64_t rate, drops;
    struct prof_sum live, accumulated; /* of all rows */
    struct pile rows, order, addresses, by_thread;
};

/* 0 or -ENOMEM, with nothing to release. */
int extract_read(struct extract *extract, enum dump_what what);
void extract_release(struct extract *extract);

/* Asks the heap how much free space each row keeps now: 0 or -ENOMEM. */
int extract_read_pinned(struct extract *extract);

/* The row at this place in the order. */
const struct extract_row *extract_row(const struct extract *extract, uint32_t place);
const struct extract_thread *extract_thread(const struct extract *extract, uint32_t thread);

/* The address of a frame as it was found on the stack: where the call returns to. */
uintptr_t extract_address(const struct extract *extract, const struct extract_row *row,
                          uint32_t frame);

/* The end of the run of rows that begins at this place, and their sums; the second: of one thread. */
uint32_t extract_stack(const struct extract *extract, uint32_t place, struct prof_sum *live,
                       struct prof_sum *accumulated);
uint32_t extract_stack_of_thread(const struct extract *extract, uint32_t place,
                                 struct prof_sum *live, struct prof_sum *accumulated);
bool extract_are_together(const struct extract_row *row, const struct extract_row *other);

/* The nearest whole number, for what is written out. */
uint64_t extract_round(double value);
