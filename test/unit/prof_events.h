/* SPDX-License-Identifier: MIT
 *
 * prof_events.h - events for the profiler, made by hand, for test_prof*.c.
 *
 * prof_record and prof_recorded are called as malloc calls them, track_events.freed as the heap does.  A
 * stack is chosen by the bits of a number: each bit is a level, and its value decides from which of two
 * calls the next level is reached.  The kernel's memory can be refused (--wrap).
 */
#ifndef TALLY_TEST_PROF_EVENTS_H
#define TALLY_TEST_PROF_EVENTS_H

#include <math.h>

#include "prof/extract.h"
#include "heap/fast.h"
#include "prof/prof.h"
#include "prof/record.h"
#include "prof/sample.h"
#include "unit.h"

static _Atomic long maps_left = -1; /* -1: no limit */
static void (*at_next_map)(void);
void *__real_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes) {
    if (maps_left == 0) {
        return NULL;
    }
    if (at_next_map != NULL) {
        void (*call)(void) = at_next_map;
        at_next_map = NULL;
        call();
    }
    maps_left -= maps_left > 0;
    return __real_os_map(bytes);
}

/* ---------------------------------------------------------------- events */

enum { LEVELS = 7, PATTERNS = 1 << LEVELS };

/* As if it were malloc. */
static __attribute__((noinline, unused)) uint32_t record_here(size_t size, size_t usable) {
    uint32_t id = prof_record(size, usable, __builtin_frame_address(0));
    __asm__ volatile("" : "+r"(id));
    return id;
}

static uint32_t record_at_level(unsigned pattern, unsigned level, size_t size, size_t usable);

/* Through a pointer, so that no level is unrolled. */
static uint32_t (*volatile next_level)(unsigned, unsigned, size_t, size_t) = record_at_level;

static inline uint32_t record_at_level(unsigned pattern, unsigned level, size_t size,
                                       size_t usable) {
    uint32_t id;
    if (level == LEVELS) {
        id = record_here(size, usable);
        __asm__ volatile("nop; nop; nop" : "+r"(id));
    } else if (pattern >> level & 1) {
        __asm__ volatile("nop"); /* so that compilers do not make one call of the two */
        id = next_level(pattern, level + 1, size, usable);
        __asm__ volatile("nop" : "+r"(id));
    } else {
        __asm__ volatile("nop; nop");
        id = next_level(pattern, level + 1, size, usable);
        __asm__ volatile("nop; nop" : "+r"(id));
    }
    return id;
}

static char object; /* what records are about does not matter */

static inline uint32_t record(unsigned pattern, size_t size, size_t usable) {
    thread_mark_inside(true);
    uint32_t id = record_at_level(pattern, 0, size, usable);
    if (id != 0) {
        prof_recorded(id, &object);
    }
    thread_mark_inside(false);
    return id;
}

static inline uint32_t stack_of(uint32_t id) {
    return context_at(record_at(id)->context)->stack;
}

static inline void release(uint32_t id, size_t usable) {
    thread_mark_inside(true);
    track_events.freed(id, &object, usable);
    thread_mark_inside(false);
}

static inline void arm(unsigned lg_sample) {
    start_heap();
    prof_reset(lg_sample);
    prof_set_active(true);
}

/* ---------------------------------------------------------------- sums */

static inline void add(struct prof_sum *sum, const struct prof_sum *other) {
    sum->objects += other->objects;
    sum->bytes += other->bytes;
    sum->requested += other->requested;
    sum->all_objects += other->all_objects;
    sum->all_bytes += other->all_bytes;
    sum->all_slack += other->all_slack;
}

static inline void check_same(const struct prof_sum *a, const struct prof_sum *b) {
    check_eq(a->objects, b->objects);
    check_eq(a->bytes, b->bytes);
    check_eq(a->requested, b->requested);
    check(fabs(a->all_objects - b->all_objects) <= 1e-5 * (1 + fabs(b->all_objects)));
    check(fabs(a->all_bytes - b->all_bytes) <= 1e-5 * (1 + fabs(b->all_bytes)));
    check(fabs(a->all_slack - b->all_slack) <= 1e-5 * (1 + fabs(b->all_bytes)));
}

/* The totals are the sums over the contexts. */
static inline struct prof_totals check_totals(void) {
    struct prof_totals totals;
    struct prof_sum live = {0}, accumulated = {0}, peak = {0};
    for (uint32_t i = 0; i < prof_context_count(); i++) {
        struct prof_context context;
        if (prof_read_context(i, &context)) {
            add(&live, &context.live);
            add(&accumulated, &context.accumulated);
            add(&peak, &context.peak);
        }
    }
    prof_read_totals(&totals);
    check_same(&live, &totals.live);
    check_same(&accumulated, &totals.accumulated);
    check_same(&peak, &totals.peak);
    return totals;
}

#endif
