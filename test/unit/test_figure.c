/* SPDX-License-Identifier: MIT
 *
 * test_figure.c - what is known of a number: exact, an interval, or nothing, and what a limit makes of it.
 */
#include "profile/figure.h"

#include <math.h>

#include "common/cli.h"
#include "common/glyph.h"
#include "made_profile.h"
#include "read/known.h"
#include "test.h"

/* Of 100 objects of 64 KiB: 6.25 MiB, off by 1.96 * sqrt(100 * (1-p)/p) objects with p = 1 - 1/e. */
static struct profile *sampled(int64_t period) {
    struct profile *profile = make_profile();
    profile->period = period;
    make_sample(profile, "main", (int64_t[]){200, 200 << 16, 100, 100 << 16});
    return profile;
}

TEST(what_was_recorded_whole_is_exact) {
    struct figure figure = figure_total(sampled(1), 3);
    check_eq(figure.kind, FIGURE_EXACT);
    check(figure.low == 100 << 16 && figure.high == 100 << 16);
    check_str(figure_margin_text(figure), "");
    check_str(figure_text(figure, size_text), "6.2 MiB");
}

TEST(what_was_sampled_has_an_interval) {
    struct figure figure = figure_total(sampled(65536), 3);
    check_eq(figure.kind, FIGURE_ESTIMATE);
    check(fabs(figure_margin(figure) / 65536 - 1.96 * sqrt(100 * (1 / (M_E - 1)))) < 0.5);
    check(figure.low < figure.value && figure.value < figure.high);
    check_str(figure_text(figure, size_text), "6.2 MiB ± 15 %");
}

TEST(nobody_knows_how_far_off_a_foreign_sum_is) {
    struct profile *profile = sampled(1);
    profile->source = made_text(profile, "folded");
    struct figure figure = figure_total(profile, 3);
    check_eq(figure.kind, FIGURE_UNKNOWN);
    check_str(figure_margin_text(figure), " ± unknown");
}

TEST(impossible_numbers_are_unknown) {
    struct profile *profile = sampled(65536);
    check_eq(figure_even(profile, 1, NAN).kind, FIGURE_UNKNOWN);
    check_eq(figure_even(profile, 1, INFINITY).kind, FIGURE_UNKNOWN);
    check_eq(figure_int(NAN), 0);
    check_eq(figure_int(INFINITY), INT64_MAX);
    check_eq(figure_int(-INFINITY), INT64_MIN);
}

TEST(nothing_sampled_is_not_nothing) {
    struct profile *profile = make_profile();
    profile->period = 65536;
    struct figure figure = figure_total(profile, 3);
    check(figure.value == 0 && figure.high > 2 * 65536 && figure.high < 3 * 65536);
    check_eq(figure_judge(figure, 0), FIGURE_FEW);
    check_eq(figure_judge(figure, 1 << 20), FIGURE_WITHIN);
    check_eq(figure_total(profile, 2).kind, FIGURE_UNKNOWN);
}

TEST(what_is_known_bounds_what_is_estimated) {
    struct figure figure = figure_total(sampled(65536), 3);
    struct figure least = figure_bound(figure, 6.5 * (1 << 20), INFINITY);
    check(least.value == 6.5 * (1 << 20) && least.low == least.value && least.high == figure.high);
    struct figure most = figure_bound(figure, 0, 6 << 20);
    check(most.value == 6 << 20 && most.high == 6 << 20 && most.low == figure.low);
    struct figure far = figure_bound(figure, 1 << 30, INFINITY);
    check(far.is_bound);
    check_str(figure_text(far, size_text), "at least 1.0 GiB");
}

TEST(only_a_whole_interval_is_over_a_limit) {
    struct figure figure = figure_total(sampled(65536), 3);
    check_eq(figure_judge(figure, 1 << 20), FIGURE_OVER);
    check_eq(figure_judge(figure, 6 << 20), FIGURE_NOISE);
    check_eq(figure_judge(figure, 6.5 * (1 << 20)), FIGURE_NOISE);
    check_eq(figure_judge(figure, 10 << 20), FIGURE_WITHIN);
    struct figure few = figure_total(sampled(INT64_C(1) << 40), 3);
    check_eq(figure_judge(few, 1 << 20), FIGURE_FEW);
    check_eq(figure_judge(few, 0), FIGURE_OVER); /* what was seen was there */
}

/* 5 of 100 for one; 1 - (1 - 0.05)^(1/n), about 0.05 / n, for each of n. */
TEST(the_more_is_compared_the_more_it_takes) {
    check(fabs(figure_deviations(1) - 1.95996) < 1e-4);
    check(fabs(figure_deviations(5) - 2.57583) < 1e-4);
    check(figure_deviations(1000000) > 5 && figure_deviations(1000000) < 6);
}

/* A run of two points that counted more than the samples say. */
static struct read_point points[2] = {{.t_ns = 1, .live = 7 << 20}, {.t_ns = 2, .live = 6 << 20}};

TEST(a_run_is_what_was_counted) {
    struct profile *profile = sampled(65536);
    struct read_run run = {.points = points,
                           .point_count = 2,
                           .has_ended = true,
                           .has_live_blocks = true,
                           .live_blocks = 90};
    struct known_moment end = known_end(&run, profile);
    check_eq(known_live(&end).kind, FIGURE_EXACT);
    check(known_live(&end).value == 6 << 20);
    check(known_live_blocks(&end).value == 90);
    check(known_peak(&end).low >= 7 << 20);
    check(known_allocated(&end).low >= 7 << 20);
    end.until_ns = 0;
    end.is_end = false;
    check_eq(known_live(&end).kind, FIGURE_ESTIMATE);
    check(known_peak(&end).low < 6 << 20);
}

TEST(a_run_that_lost_samples_knows_bounds_only) {
    struct profile *profile = sampled(1);
    struct read_run run = {.points = points, .point_count = 2, .has_ended = true, .dropped = 1};
    struct known_moment end = known_end(&run, profile);
    check_eq(known_peak(&end).kind, FIGURE_UNKNOWN);
    check(known_peak(&end).low == 7 << 20 && isinf(known_peak(&end).high));
    check_str(figure_text(known_allocated(&end), size_text), "at least 12.5 MiB");
}
