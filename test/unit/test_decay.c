/* SPDX-License-Identifier: MIT
 *
 * test_decay.c - the curve and the ages: how many units may stay, when, and what the clock may do.
 */
#include "heap/decay.h"

#include "unit.h"

enum { DECAY_MS = 1000, STEP_MS = DECAY_MS / DECAY_STEPS, DAY_MS = 24 * 3600 * 1000 };

/* What a user does: units come and go, and at the end of each step the excess is purged. */
struct keeper {
    struct decay decay;
    uint64_t now_ms;
    uint64_t decay_ms;
    size_t kept;
};

static struct keeper start(uint64_t decay_ms) {
    return (struct keeper){
        .now_ms = 12345, .decay_ms = decay_ms, .decay = {.step_began_ms = 12345}};
}

static void put(struct keeper *keeper, size_t units) {
    keeper->kept += units;
}

static void take(struct keeper *keeper, size_t units) {
    keeper->kept -= units;
    decay_note_taken(&keeper->decay, keeper->kept);
}

/* Units that are due now. */
static size_t pass(struct keeper *keeper, uint64_t ms) {
    keeper->now_ms += ms;
    size_t before = keeper->kept;
    if (decay_advance(&keeper->decay, keeper->now_ms, keeper->decay_ms, keeper->kept)) {
        size_t limit = decay_limit(&keeper->decay);
        keeper->kept = keeper->kept < limit ? keeper->kept : limit;
    }
    return before - keeper->kept;
}

static double curve(double t) {
    return 1 - t * t * t * (6 * t * t - 15 * t + 10);
}

TEST(units_leave_along_the_curve_and_are_gone_at_its_end) {
    enum { UNITS = 100000 };
    struct keeper keeper = start(DECAY_MS);
    put(&keeper, UNITS);
    for (unsigned step = 1; step <= DECAY_STEPS; step++) {
        pass(&keeper, STEP_MS);
        double expected = UNITS * curve((double)step / DECAY_STEPS);
        check(keeper.kept >= expected - 1 && keeper.kept <= expected + 1);
    }
    check_eq(keeper.kept, 0);
}

TEST(one_unit_stays_for_half_of_the_time) {
    struct keeper keeper = start(DECAY_MS);
    put(&keeper, 1);
    pass(&keeper, DECAY_MS / 2 - STEP_MS);
    check_eq(keeper.kept, 1);
    pass(&keeper, 2 * STEP_MS);
    check_eq(keeper.kept, 0);
}

TEST(what_joins_later_leaves_later) {
    struct keeper keeper = start(DECAY_MS);
    put(&keeper, 1000);
    pass(&keeper, DECAY_MS / 2);
    put(&keeper, 500);
    pass(&keeper, DECAY_MS / 2);
    check(keeper.kept >= 245 && keeper.kept <= 255);
    pass(&keeper, DECAY_MS / 2);
    check_eq(keeper.kept, 0);
}

/* All of it is needed every 40 ms: it never gets old enough for more than a few units to go. */
TEST(what_is_taken_again_and_again_stays) {
    struct keeper keeper = start(DECAY_MS);
    size_t gone = 0;
    for (unsigned round = 0; round < 500; round++) {
        put(&keeper, 4096 - keeper.kept);
        gone += pass(&keeper, STEP_MS);
        gone += pass(&keeper, STEP_MS);
        take(&keeper, keeper.kept);
    }
    check(gone < 4096);
}

TEST(what_lies_idle_beside_it_goes) {
    struct keeper keeper = start(DECAY_MS);
    put(&keeper, 10000);
    for (unsigned round = 0; round < DECAY_STEPS; round++) {
        take(&keeper, 100 < keeper.kept ? 100 : keeper.kept);
        put(&keeper, 100);
        pass(&keeper, STEP_MS);
    }
    check(keeper.kept <= 101);
}

TEST(oldest_units_are_those_that_were_purged_otherwise) {
    struct keeper keeper = start(DECAY_MS);
    put(&keeper, 1000);
    pass(&keeper, DECAY_MS / 2);
    put(&keeper, 1000 - keeper.kept);
    pass(&keeper, STEP_MS);
    keeper.kept = 300;
    decay_note_purged(&keeper.decay, 300);
    check(decay_limit(&keeper.decay) <= 300 && decay_limit(&keeper.decay) >= 298);
    pass(&keeper, DECAY_MS / 4); /* Were they the old ones, most would be gone now. */
    check(keeper.kept > 250);
}

TEST(clock_that_stands_still_lets_nothing_go) {
    struct keeper keeper = start(DECAY_MS);
    put(&keeper, 1000);
    for (unsigned i = 0; i < 1000; i++) {
        check(!decay_advance(&keeper.decay, keeper.now_ms, DECAY_MS, keeper.kept));
    }
    check_eq(pass(&keeper, STEP_MS), 0);
}

TEST(clock_that_goes_back_lets_nothing_go_and_goes_on) {
    struct keeper keeper = start(DECAY_MS);
    put(&keeper, 1000);
    pass(&keeper, DECAY_MS / 4);
    size_t kept = keeper.kept;
    keeper.now_ms -= 10000;
    check_eq(pass(&keeper, 0), 0);
    check_eq(keeper.kept, kept);
    for (unsigned step = 0; step < DECAY_STEPS; step++) {
        pass(&keeper, STEP_MS);
    }
    check_eq(keeper.kept, 0);
}

TEST(clock_that_jumps_ages_what_is_there_and_nothing_that_comes) {
    struct keeper keeper = start(DECAY_MS);
    put(&keeper, 1000);
    check_eq(pass(&keeper, DAY_MS), 1000);
    put(&keeper, 1000);
    check(pass(&keeper, STEP_MS) < 10);
}

TEST(shortest_and_longest_times_work) {
    static const uint64_t times[] = {1, 2, 49, 50, 51, 999, DAY_MS, UINT64_C(1) << 50};
    for (unsigned i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        struct keeper keeper = start(times[i]);
        put(&keeper, (size_t)1 << 33);
        uint64_t wait = decay_wait_ms(&keeper.decay, keeper.now_ms, times[i], keeper.kept);
        check(wait >= 1 && wait <= times[i]);
        pass(&keeper, times[i] / 2);
        check(keeper.kept > 0 || times[i] == 1);
        pass(&keeper, times[i]);
        check_eq(keeper.kept, 0);
    }
}

TEST(time_without_end_does_not_end) {
    struct keeper keeper = start(INT64_MAX);
    put(&keeper, (size_t)1 << 33);
    for (unsigned year = 0; year < 10; year++) {
        check_eq(pass(&keeper, UINT64_C(365) * DAY_MS), 0);
    }
    check(decay_wait_ms(&keeper.decay, keeper.now_ms, INT64_MAX, keeper.kept) > DAY_MS);
}

TEST(wait_ends_when_something_is_due_and_not_much_before) {
    static const size_t amounts[] = {1, 2, 10, 100, 1000, 1000000};
    for (unsigned i = 0; i < sizeof(amounts) / sizeof(amounts[0]); i++) {
        struct keeper keeper = start(DECAY_MS);
        check_eq(decay_wait_ms(&keeper.decay, keeper.now_ms, DECAY_MS, 0), UINT64_MAX);
        put(&keeper, amounts[i]);
        unsigned wakes = 0;
        while (keeper.kept > 0) {
            uint64_t wait = decay_wait_ms(&keeper.decay, keeper.now_ms, DECAY_MS, keeper.kept);
            check(wait >= 1 && wait <= DECAY_MS);
            if (wait > STEP_MS) {
                struct keeper early = keeper;
                check_eq(pass(&early, wait - STEP_MS), 0);
            }
            check(pass(&keeper, wait) > 0);
            wakes++;
        }
        check(wakes <= DECAY_STEPS && wakes <= amounts[i]);
    }
}

TEST(random_use_never_allows_more_than_is_kept) {
    struct random random = random_start(31, 0);
    struct keeper keeper = start(DECAY_MS);
    for (unsigned step = 0; step < 100000 / SLOWER; step++) {
        size_t units = random_below(&random, 5000);
        switch (random_below(&random, 4)) {
        case 0:
            put(&keeper, units);
            break;
        case 1:
            take(&keeper, units < keeper.kept ? units : keeper.kept);
            break;
        case 2:
            keeper.kept -= units < keeper.kept ? units : keeper.kept;
            decay_note_purged(&keeper.decay, keeper.kept);
            check(decay_limit(&keeper.decay) <= keeper.kept);
            break;
        default:
            pass(&keeper, random_below(&random, 3 * STEP_MS));
        }
    }
    pass(&keeper, 2 * DECAY_MS);
    check_eq(keeper.kept, 0);
}
