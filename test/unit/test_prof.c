/* SPDX-License-Identifier: MIT
 *
 * test_prof.c - records, contexts, totals and the peak against models that count everything themselves.
 */
#define _GNU_SOURCE
#include <math.h>
#include <sched.h>

#include "base/os.h"
#include "heap/fast.h"
#include "prof/prof.h"
#include "prof/record.h"
#include "prof_events.h"
#include "unit.h"

/* ---------------------------------------------------------------- one thread, everything compared */

enum { MOST_LIVE = 3000, STEPS = 60000 };

struct live {
    uint32_t id;
    unsigned pattern;
    size_t size, usable;
    double weight;
};

struct model {
    unsigned lg_sample;
    struct live live[MOST_LIVE];
    unsigned nlive;
    struct prof_sum by_pattern[PATTERNS], accumulated[PATTERNS], at_peak[PATTERNS];
    uint32_t stacks[PATTERNS]; /* as the profiler numbers them */
    struct prof_sum total, peak;
    uint64_t peak_bytes; /* in the units of the profiler */
    uint64_t total_bytes;
};

static struct model model;

static struct prof_sum sum_of(const struct live *live) {
    return (struct prof_sum){.objects = 1,
                             .bytes = live->usable,
                             .requested = live->size,
                             .all_objects = live->weight,
                             .all_bytes = live->weight * (double)live->usable,
                             .all_slack = live->weight * (double)(live->usable - live->size)};
}

static void subtract(struct prof_sum *sum, const struct prof_sum *other) {
    sum->objects -= other->objects;
    sum->bytes -= other->bytes;
    sum->requested -= other->requested;
    sum->all_objects -= other->all_objects;
    sum->all_bytes -= other->all_bytes;
    sum->all_slack -= other->all_slack;
}

/* What one sample stands for in bytes, rounded as documented: to 65536ths, then to 16ths of a byte. */
static uint64_t bytes_in_16ths(const struct live *live) {
    uint64_t weight = (uint64_t)llround(live->weight * 65536);
    return (uint64_t)llroundl((long double)weight * live->usable / 4096.0L);
}

static void model_adds(const struct live *live) {
    struct prof_sum sum = sum_of(live);
    add(&model.by_pattern[live->pattern], &sum);
    add(&model.accumulated[live->pattern], &sum);
    add(&model.total, &sum);
    model.total_bytes += bytes_in_16ths(live);
    if (model.total_bytes > model.peak_bytes) { /* the brute way: everything is copied */
        model.peak_bytes = model.total_bytes;
        model.peak = model.total;
        memcpy(model.at_peak, model.by_pattern, sizeof(model.at_peak));
    }
}

static void allocate(struct random *random) {
    struct live live = {.pattern = (unsigned)random_below(random, PATTERNS)};
    live.size = 1 + random_below(random, random_below(random, 20) == 0 ? 1 << 20 : 2000);
    live.usable = (live.size + 15) / 16 * 16;
    double rate = ldexp(1, (int)model.lg_sample);
    live.weight = rate == 1 ? 1 : 1 / -expm1(-(double)live.usable / rate);
    live.id = record(live.pattern, live.size, live.usable);
    check(live.id != 0);
    uint32_t stack = stack_of(live.id);
    check(model.stacks[live.pattern] == 0 || model.stacks[live.pattern] == stack);
    model.stacks[live.pattern] = stack;
    model.live[model.nlive++] = live;
    model_adds(&live);
}

static void free_one(struct random *random) {
    unsigned i = (unsigned)random_below(random, model.nlive);
    struct live live = model.live[i];
    model.live[i] = model.live[--model.nlive];
    struct prof_sum sum = sum_of(&live);
    subtract(&model.by_pattern[live.pattern], &sum);
    subtract(&model.total, &sum);
    model.total_bytes -= bytes_in_16ths(&live);
    release(live.id, live.usable);
}

static unsigned pattern_of(uint32_t stack) {
    for (unsigned i = 0; i < PATTERNS; i++) {
        if (model.stacks[i] == stack) {
            return i;
        }
    }
    check(!"a stack that nobody made");
    return 0;
}

/* The mean lies within the power of two. */
static void check_sizes(const struct prof_sum *sum, uint32_t size_lg) {
    check(sum->bytes >> size_lg >= sum->objects);
    check(sum->objects == 0 || (sum->bytes - 1) >> (size_lg + 1) < sum->objects);
}

static void compare_with_model(void) {
    struct prof_totals totals = check_totals();
    check_same(&totals.live, &model.total);
    check_same(&totals.peak, &model.peak);
    struct prof_sum live[PATTERNS] = {0}, accumulated[PATTERNS] = {0}, peak[PATTERNS] = {0};
    uint64_t sizes[PATTERNS] = {0}; /* a bit for each that was seen */
    for (uint32_t i = 0; i < prof_context_count(); i++) {
        struct prof_context context;
        if (prof_read_context(i, &context)) {
            unsigned pattern = pattern_of(context.stack);
            check_eq(context.thread, 0);
            check_sizes(&context.accumulated, context.size_lg);
            check_sizes(&context.live, context.size_lg);
            check_eq(sizes[pattern] >> context.size_lg & 1, 0);
            sizes[pattern] |= UINT64_C(1) << context.size_lg;
            add(&live[pattern], &context.live);
            add(&accumulated[pattern], &context.accumulated);
            add(&peak[pattern], &context.peak);
        }
    }
    for (unsigned i = 0; i < PATTERNS; i++) {
        check_same(&live[i], &model.by_pattern[i]);
        check_same(&accumulated[i], &model.accumulated[i]);
        check_same(&peak[i], &model.at_peak[i]);
    }
}

static void run_model(unsigned lg_sample, uint64_t seed) {
    struct random random = random_start(seed, lg_sample);
    model.lg_sample = lg_sample;
    arm(lg_sample);
    for (unsigned i = 0; i < STEPS / SLOWER; i++) {
        bool grows = i / 4000 % 2 == 0;
        bool allocates = random_below(&random, 10) < (grows ? 6 : 4);
        if ((allocates || model.nlive == 0) && model.nlive < MOST_LIVE) {
            allocate(&random);
        } else {
            free_one(&random);
        }
        if (i % 997 == 0) {
            compare_with_model();
        }
    }
    while (model.nlive > 0) {
        free_one(&random);
    }
    model.total = (struct prof_sum){0};
    memset(model.by_pattern, 0, sizeof(model.by_pattern)); /* but for the rounding of the model */
    compare_with_model();
}

TEST(every_allocation_agrees_with_the_model) {
    run_model(0, 1);
}

TEST(samples_at_a_rate_agree_with_the_model) {
    run_model(12, 2);
}

TEST(samples_at_the_usual_rate_agree_with_the_model) {
    run_model(19, 3);
}

TEST(stacks_read_back_from_the_caller_of_the_event) {
    arm(0);
    uint32_t one = stack_of(record(1, 1, 16));
    uint32_t other = stack_of(record(1 << (LEVELS - 1), 1, 16));
    uintptr_t a[PROF_DEPTH_MOST], b[PROF_DEPTH_MOST];
    unsigned na = prof_read_stack(one, a, PROF_DEPTH_MOST);
    unsigned nb = prof_read_stack(other, b, PROF_DEPTH_MOST);
    check(na > LEVELS && na == nb);
    /* Innermost first: the call of prof_record, then the levels, of which two differ. */
    check_eq(a[0], b[0]);
    check(a[0] - (uintptr_t)record_at_level < 4096);
    check(a[1] != b[1] && a[LEVELS] != b[LEVELS]);
    for (unsigned i = 2; i < LEVELS; i++) {
        check_eq(a[i], b[i]);
    }
}

/* ---------------------------------------------------------------- reset, resize, switches */

TEST(a_reset_forgets_and_what_was_forgotten_can_be_freed) {
    arm(0);
    uint32_t before[500];
    for (unsigned i = 0; i < 500; i++) {
        before[i] = record(i % PATTERNS, 10, 16);
    }
    check_eq(check_totals().live.objects, 500);
    prof_reset(0);
    struct prof_totals totals = check_totals();
    check_eq(totals.live.objects + totals.accumulated.objects + totals.peak.objects, 0);
    uint32_t after = record(3, 20, 32);
    for (unsigned i = 0; i < 500; i++) {
        release(before[i], 16);
    }
    totals = check_totals();
    check_eq(totals.live.objects, 1);
    check_eq(totals.live.bytes, 32);
    release(after, 32);
    totals = check_totals();
    check_eq(totals.live.objects, 0);
    check_eq(totals.accumulated.objects, 1);
    check_eq(totals.peak.bytes, 32);
}

TEST(a_reset_changes_the_rate_of_what_comes) {
    arm(0);
    check_eq(prof_lg_sample(), 0);
    prof_reset(30);
    check_eq(prof_lg_sample(), 30);
    check_eq(track_rate(), UINT64_C(1) << 30);
    record(0, 1000, 1024);
    struct prof_totals totals = check_totals();
    check_eq(totals.rate, UINT64_C(1) << 30);
    check(fabs(totals.live.all_bytes - 0x1p30) < 0x1p11);
    prof_reset(99);
    check_eq(prof_lg_sample(), 63);
}

/* Of the sampled bytes next to nothing is rounding, since the large object is as good as always
 * sampled and the small one rarely. */
TEST(rounding_is_what_each_sample_stands_for) {
    arm(16);
    record(0, 17, 32);
    record(0, 1 << 20, 1 << 20);
    double expected = 15 / -expm1(-32 / 65536.0);
    check(fabs(check_totals().live.all_slack - expected) < 1);
}

/* A sum of v / p has the variance v^2 (1 - p) / p^2 for each sample. */
static double variance_of(double value, double size, double rate) {
    double p = -expm1(-size / rate);
    return value * value * (1 - p) / (p * p);
}

static bool is_near(double value, double wanted) {
    return fabs(value - wanted) <= 1e-3 * wanted;
}

TEST(sums_know_their_variance) {
    const double rate = 0x1p19;
    arm(19);
    uint32_t large = record(0, 1 << 20, 1 << 20);
    uint32_t small = record(0, 4096, 4096);
    struct prof_totals totals = check_totals();
    double of_large = variance_of(0x1p20, 0x1p20, rate), of_small = variance_of(4096, 4096, rate);
    check(is_near(totals.live.byte_variance, of_large + of_small));
    check(is_near(totals.live.object_variance,
                  variance_of(1, 0x1p20, rate) + variance_of(1, 4096, rate)));
    release(small, 4096);
    totals = check_totals();
    check(is_near(totals.live.byte_variance, of_large));
    check(is_near(totals.accumulated.byte_variance, of_large + of_small));
    check(is_near(totals.peak.byte_variance, of_large + of_small));
    release(large, 1 << 20);
    check(check_totals().live.byte_variance == 0);
}

TEST(what_could_not_be_allocated_leaves_no_trace) {
    arm(0);
    for (unsigned i = 0; i < 100; i++) {
        thread_mark_inside(true);
        uint32_t id = record_here(10, 16);
        check(id != 0);
        prof_unrecord(id);
        thread_mark_inside(false);
    }
    struct prof_totals totals = check_totals();
    check_eq(totals.accumulated.objects + totals.peak.objects, 0);
    check_eq(prof_context_count(), 0);
}

TEST(nothing_is_recorded_while_it_is_switched_off) {
    start_heap();
    check(!prof_was_armed() && !prof_is_active());
    check_eq(record(0, 10, 16), 0);
    prof_set_active(true);
    check(prof_was_armed() && prof_is_active());
    check(track_rate() == UINT64_C(1) << 19);
    uint32_t id = record(0, 10, 16);
    check(id != 0);
    check(prof_thread_is_active());
    check(prof_thread_set_active(false));
    check_eq(record(0, 10, 16), 0);
    prof_thread_set_active(true);
    check(record(0, 10, 16) != 0);
    prof_set_active(false);
    check(prof_was_armed() && !prof_is_active());
    check_eq(track_rate(), 0);
    check_eq(record(0, 10, 16), 0);
    release(id, 16); /* still followed */
    check_eq(check_totals().live.objects, 1);
}

static void *ask_if_active(void *answer) {
    *(bool *)answer = prof_thread_is_active();
    return NULL;
}

TEST(new_threads_begin_as_they_are_told) {
    arm(0);
    bool answer = true;
    prof_set_thread_active_init(false);
    run_threads(1, ask_if_active, &answer);
    check(!answer);
    prof_set_thread_active_init(true);
    run_threads(1, ask_if_active, &answer);
    check(answer);
}

/* ---------------------------------------------------------------- live records */

TEST(live_records_are_read_by_their_number) {
    arm(0);
    static uint32_t ids[10000];
    for (unsigned i = 0; i < 10000; i++) {
        ids[i] = record(i % PATTERNS, i + 1, 16 + i);
    }
    for (unsigned i = 0; i < 10000; i += 2) {
        release(ids[i], 16 + i);
    }
    for (unsigned i = 0; i < 10000; i++) {
        struct prof_live live;
        bool lives = prof_peek(ids[i], &live);
        check_eq(lives, i % 2 != 0);
        if (lives) {
            check(live.stack != 0 && live.born_ns > 0 && live.born_ns <= os_now_ns());
            check_eq(live.thread, 0);
            check_eq(live.requested, i + 1);
            check_eq(live.usable, 16 + i);
        }
    }
}

TEST(a_live_object_costs_at_most_60_bytes) {
    if (SANITIZED) {
        skip("a sanitizer's shadow memory is counted, too");
    }
    arm(0);
    enum { OBJECTS = 400000 };
    for (unsigned i = 0; i < 1000; i++) {
        record(i % PATTERNS, 16, 16);
    }
    size_t before = test_anonymous_bytes();
    for (unsigned i = 0; i < OBJECTS; i++) {
        record(i % PATTERNS, 16, 16);
    }
    check(before > 0);
    check(test_anonymous_bytes() - before < OBJECTS * 60);
}

/* ---------------------------------------------------------------- without memory */

TEST(without_memory_samples_are_dropped_and_nothing_else) {
    arm(0);
    static uint32_t ids[6000];
    for (long most = 0; most < 14; most++) {
        maps_left = most;
        struct prof_totals before = check_totals();
        for (unsigned i = 0; i < 6000; i++) {
            ids[i] = record(i % PATTERNS, 10, 16);
        }
        struct prof_totals after = check_totals();
        check_eq(after.live.objects - before.live.objects + after.drops - before.drops, 6000);
        check(most > 0 || after.drops > before.drops);
        for (unsigned i = 0; i < 6000; i++) {
            if (ids[i] != 0) {
                release(ids[i], 16);
            }
        }
        check_eq(check_totals().live.objects, before.live.objects);
        record(1, 10, 16); /* stays, so that the next round needs more */
    }
    maps_left = -1;
    check(record(2, 10, 16) != 0);
}
