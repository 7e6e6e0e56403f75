/* SPDX-License-Identifier: MIT
 *
 * noted_samples.h - stands in the place of the profiler, for test_track*.c: every sampled allocation gets a
 * record here.
 *
 * The functions of prof.h that an allocation meets are this file's own (--wrap).  A sampled object of s
 * bytes stands for 1 / (1 - exp(-s / rate)) objects, so with N allocations the number of samples has mean
 * N p and variance N p (1 - p); that is the same as the estimate lying within as many standard deviations
 * of the truth.
 */
#ifndef TALLY_TEST_NOTED_SAMPLES_H
#define TALLY_TEST_NOTED_SAMPLES_H

#include <jemalloc/jemalloc.h>
#include <math.h>
#include <stdio.h>

#include "heap/fast.h"
#include "heap/heap.h"
#include "heap/track.h"
#include "unit.h"

enum { KIB = 1 << 10, MIB = 1 << 20, MOST_RECORDS = 1 << 21 };

/* ---------------------------------------------------------------- in the place of the profiler */

enum state { NO_RECORD, RECORDED, LIVE, FREED, GIVEN_UP };

struct record {
    void *object;
    size_t size, usable;
    _Atomic int state;
};

static struct record records[MOST_RECORDS];
static _Atomic uint32_t last_id;
static _Atomic uint64_t live_samples, freed_samples, refused;
static _Atomic bool refuses; /* every second sample is not recorded */

static void walk_stack(uintptr_t *frame);
void __wrap_prof_init(void);
uint32_t __wrap_prof_record(size_t size, size_t usable, void *frame);
void __wrap_prof_recorded(uint32_t id, const void *object);
void __wrap_prof_unrecord(uint32_t id);

static inline void on_freed(uint32_t id, const void *object, size_t usable) {
    check(id != 0 && id <= last_id);
    struct record *record = &records[id];
    check_eq(record->object, object);
    check_eq(record->usable, usable);
    int expected = LIVE;
    check(atomic_compare_exchange_strong(&record->state, &expected, FREED)); /* once */
    live_samples--;
    freed_samples++;
}

void __wrap_prof_init(void) {
    track_events = (struct track_events){on_freed};
}

uint32_t __wrap_prof_record(size_t size, size_t usable, void *frame) {
    static _Atomic unsigned calls;
    check(tls.inside);
    walk_stack(frame);
    if (refuses && calls++ % 2 == 0) {
        refused++;
        return 0;
    }
    uint32_t id = ++last_id;
    check(id < MOST_RECORDS);
    records[id].size = size;
    records[id].usable = usable;
    records[id].state = RECORDED;
    return id;
}

void __wrap_prof_recorded(uint32_t id, const void *object) {
    check_eq(records[id].state, RECORDED);
    records[id].object = (void *)object;
    records[id].state = LIVE;
    live_samples++;
}

void __wrap_prof_unrecord(uint32_t id) {
    check_eq(records[id].state, RECORDED);
    records[id].state = GIVEN_UP;
}

/* The return addresses of the stack as frame pointers tell them, from the sample outwards.  The test
 * itself may have none, and then its frame is read as it is. */
enum { FRAMES = 12 };
static __thread uintptr_t frames[FRAMES];

static __attribute__((noinline, unused, no_sanitize_address)) void walk_stack(uintptr_t *frame) {
    memset(frames, 0, sizeof frames);
    for (unsigned i = 0; i < FRAMES; i++) {
        frames[i] = frame[1];
        uintptr_t *next = (uintptr_t *)frame[0];
        if (next <= frame || next > frame + 4096 || (uintptr_t)next % sizeof(void *) != 0) {
            break;
        }
        frame = next;
    }
}

static inline uint32_t id_of(void *object) {
    struct heap_object found = heap_look(object);
    check_eq(found.verdict, HEAP_LIVE);
    return track_id(&found);
}

static inline uint64_t samples(void) {
    return last_id + refused;
}

/* ---------------------------------------------------------------- statistics */

static inline double chance(size_t size, uint64_t rate) {
    size_t usable = heap_size_for(size, 1);
    return rate == 1 ? 1 : -expm1(-(double)usable / (double)rate);
}

/* Samples that were seen, and what is expected of as many independent objects. */
struct tally {
    double seen, mean, variance;
};

static inline void expect(struct tally *tally, double objects, size_t size, uint64_t rate) {
    double p = chance(size, rate);
    tally->mean += objects * p;
    tally->variance += objects * p * (1 - p);
}

/* Where hardly any is expected to be missed, or to be hit, numbers are no normal distribution: two more
 * are then allowed.  None where chance has no part in it. */
static inline bool is_within(const struct tally *tally, double sigmas) {
    double rare = tally->variance > 0 && tally->variance < 4 ? 2 : 0;
    return fabs(tally->seen - tally->mean) <= sigmas * sqrt(tally->variance) + rare;
}

static inline void check_within(const struct tally *tally, double sigmas, const char *what,
                                size_t size, uint64_t rate) {
    if (!is_within(tally, sigmas)) {
        printf("%s, %zu bytes, rate %llu: %.0f samples, expected %.1f +- %.1f\n", what, size,
               (unsigned long long)rate, tally->seen, tally->mean, sqrt(tally->variance));
        fflush(stdout);
        check(!"the number of samples is as expected");
    }
}

/* A heap that draws anew from this seed. */
static inline void begin(uint64_t seed, uint64_t rate) {
    track_seed(seed * UINT64_C(0xd1342543de82ef95));
    track_set_rate(rate);
    thread_flush();
}

static const size_t all_sizes[] = {16,   24,   64,    100,   256,   520,   1000,   1024,
                                   1500, 4096, 10000, 20000, 32768, 40000, 100000, MIB};
enum { RATES = 4, SIZES = sizeof all_sizes / sizeof all_sizes[0], MOST_LIVE = 1000 };

/* Most of these threads end before they have a heap; those that get one find that of another. */
struct work {
    uint64_t rate;
    unsigned rounds, length;
};

static _Atomic uint64_t truth[SIZES];

static inline void *work_a_while(void *argument) {
    static _Atomic unsigned stream;
    const struct work *work = argument;
    struct random random = random_start(7, stream++);
    void *held[100] = {NULL};
    uint64_t done[SIZES] = {0};
    for (unsigned i = 0; i < work->length; i++) {
        unsigned s = (unsigned)random_below(&random, 13);
        void **slot = &held[random_below(&random, 100)];
        tally_free(*slot);
        *slot = tally_malloc(all_sizes[s]);
        check(*slot != NULL);
        done[s]++;
        if (random_below(&random, 1000) == 0) {
            thread_mark_inside(true);
            thread_flush();
            thread_mark_inside(false);
        }
    }
    for (unsigned i = 0; i < 100; i++) {
        tally_free(held[i]);
    }
    for (unsigned s = 0; s < SIZES; s++) {
        truth[s] += done[s];
    }
    return NULL;
}

/* With one arena: a thread that has no heap yet takes that of the CPU it runs on. */
static inline void start_exactly(void) {
    start_heap_with("narenas:1");
    track_set_rate(1);
}

#endif
