/* SPDX-License-Identifier: MIT
 *
 * test_lifetimes.c - what was freed is told apart by how long it lived, by a clock that the test sets.
 */
#include "contract/lifetimes.h"
#include "heap/heap.h"
#include "heap/track.h"
#include "prof/extract.h"
#include "prof/prof.h"
#include "unit.h"

static uint64_t clock_ns = UINT64_C(5000000000);

uint64_t __wrap_os_now_ns(void);
uint64_t __wrap_os_now_ns(void) {
    return clock_ns;
}

uint64_t __wrap_os_now_ms(void);
uint64_t __wrap_os_now_ms(void) {
    return clock_ns / 1000000;
}

/* At 2 bytes a sample, an object of 112 bytes is sampled always, and stands for itself. */
enum { EVERY = 1 };

static void begin(unsigned lg_sample) {
    start_heap();
    track_seed(7);
    prof_start(lg_sample);
}

/* Sums over all contexts; what lives and what was freed is what was allocated. */
static void read_lives(struct prof_life lives[LIFETIME_STEPS]) {
    struct prof_life all = {0};
    memset(lives, 0, LIFETIME_STEPS * sizeof(*lives));
    for (uint32_t i = 0; i < prof_context_count(); i++) {
        struct prof_context context;
        if (!prof_read_context(i, &context)) {
            continue;
        }
        all.objects += context.accumulated.all_objects - context.live.all_objects;
        all.bytes += context.accumulated.all_bytes - context.live.all_bytes;
        for (unsigned step = 0; step < LIFETIME_STEPS; step++) {
            lives[step].objects += context.lives[step].objects;
            lives[step].bytes += context.lives[step].bytes;
            all.objects -= context.lives[step].objects;
            all.bytes -= context.lives[step].bytes;
        }
    }
    check(all.objects > -1e-3 && all.objects < 1e-3 && all.bytes > -1e-3 && all.bytes < 1e-3);
}

static void live_for(size_t size, uint64_t ms) {
    void *object = tally_malloc(size);
    check(object != NULL);
    clock_ns += ms * 1000000;
    tally_free(object);
}

TEST(a_life_is_counted_in_the_first_step_whose_bound_it_does_not_reach) {
    begin(EVERY);
    static const struct {
        uint64_t ms;
        unsigned step;
    } rows[] = {{0, 0},     {1, 1},     {2, 1},      {3, 2},       {9, 2},       {10, 3},
                {99, 4},    {100, 5},   {999, 6},    {1000, 7},    {2999, 7},    {9999, 8},
                {10000, 9}, {59999, 9}, {60000, 10}, {599999, 10}, {600000, 11}, {86400000, 11}};
    unsigned expected[LIFETIME_STEPS] = {0};
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct prof_life lives[LIFETIME_STEPS];
        live_for(100, rows[i].ms);
        expected[rows[i].step]++;
        read_lives(lives);
        for (unsigned step = 0; step < LIFETIME_STEPS; step++) {
            check_eq((unsigned)lives[step].objects, expected[step]);
            check_eq((unsigned)lives[step].bytes, expected[step] * 112);
        }
    }
}

/* As it may be after births were told by a coarse clock. */
TEST(an_end_before_the_birth_is_a_life_of_nothing) {
    begin(EVERY);
    void *object = tally_malloc(100);
    clock_ns -= 3000000;
    tally_free(object);
    struct prof_life lives[LIFETIME_STEPS];
    read_lives(lives);
    check_eq((unsigned)lives[0].objects, 1);
}

TEST(samples_stand_for_the_lives_of_the_others) {
    begin(12);
    enum { OBJECTS = 100000 / SLOWER };
    for (unsigned i = 0; i < OBJECTS; i++) {
        live_for(1000, i % 4 == 0 ? 20 : 0);
    }
    struct prof_life lives[LIFETIME_STEPS];
    read_lives(lives);
    check(lives[0].objects > 0.72 * OBJECTS && lives[0].objects < 0.78 * OBJECTS);
    check(lives[3].objects > 0.22 * OBJECTS && lives[3].objects < 0.28 * OBJECTS);
}

static void *end_soon(void *unused) {
    live_for(100, 50);
    return unused;
}

TEST(what_threads_have_freed_is_known_when_they_are_gone) {
    begin(EVERY);
    for (unsigned i = 0; i < 3; i++) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, end_soon, NULL) == 0);
        check(pthread_join(thread, NULL) == 0);
    }
    struct prof_life lives[LIFETIME_STEPS];
    read_lives(lives);
    check(lives[4].objects >= 3);
}

TEST(a_reset_forgets_lives) {
    begin(EVERY);
    live_for(100, 5);
    prof_reset(EVERY);
    live_for(100, 20);
    struct prof_life lives[LIFETIME_STEPS];
    read_lives(lives);
    check_eq((unsigned)lives[2].objects, 0);
    check_eq((unsigned)lives[3].objects, 1);
}

/* It would cost too much; a recorded run tells them all the same. */
TEST(where_every_allocation_is_sampled_no_lifetime_is_told) {
    start_heap();
    prof_start(0);
    void *object = tally_malloc(100);
    clock_ns += 5000000;
    tally_free(object);
    for (uint32_t i = 0; i < prof_context_count(); i++) {
        struct prof_context context;
        if (prof_read_context(i, &context)) {
            for (unsigned step = 0; step < LIFETIME_STEPS; step++) {
                check(context.lives[step].objects == 0);
            }
        }
    }
}
