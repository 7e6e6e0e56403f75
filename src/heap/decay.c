/* SPDX-License-Identifier: MIT
 *
 * decay.c - the curve of decay.h in integers, and the ages of what is kept.
 *
 *      age in steps       0     1     2    ...    49
 *      joined           | 7 |  0  |  40 |      |  3 |       units, as many as there were at first
 *      weight             1    .99   .99          .00       the share that may still stay
 *
 * With t = age / N the curve is a fraction with the denominator N^5, so its values are exact.
 */
#include "heap/decay.h"

#include "base/log.h"

enum { N = DECAY_STEPS };

/* The share that stays, in parts of `WHOLE`.  Units fit in 34 bits, so products fit in 64. */
static const uint64_t WHOLE = (uint64_t)N * N * N * N * N;

/* Longer than anybody waits, and products with it do not overflow. */
static const uint64_t LONGEST_MS = UINT64_C(1) << 50;

static uint64_t weight(unsigned age) {
    uint64_t a = age < N ? age : N;
    uint64_t gone = a * a * a * (6 * a * a + 10 * N * N - 15 * a * N);
    assert(gone <= WHOLE);
    return WHOLE - gone;
}

static size_t staying(size_t joined, unsigned age) {
    return (joined * weight(age) + WHOLE / 2) / WHOLE;
}

/* What would be allowed `steps` steps from now, if nothing changes meanwhile. */
static size_t limit_in(const struct decay *decay, unsigned steps) {
    size_t sum = 0;
    for (unsigned age = 0; age + steps < N; age++) {
        sum += decay->joined[age] != 0 ? staying(decay->joined[age], age + steps) : 0;
    }
    return sum;
}

size_t decay_limit(const struct decay *decay) {
    return limit_in(decay, 0);
}

/* Takes away `units` of those that still stay at an age, or all of them; returns how many. */
static size_t take_away(struct decay *decay, unsigned age, size_t units) {
    assert(age < N && units > 0);
    size_t here = staying(decay->joined[age], age);
    if (units >= here) {
        decay->joined[age] = 0;
        return here;
    }
    /* As many as they were at first. */
    size_t all = (units * WHOLE + weight(age) - 1) / weight(age);
    decay->joined[age] -= min_size(all, decay->joined[age]);
    return units;
}

/* Units were taken, the youngest first. */
static void drop_youngest(struct decay *decay, size_t most) {
    size_t sum = decay_limit(decay);
    for (unsigned age = 0; age < N && sum > most; age++) {
        sum -= take_away(decay, age, sum - most);
    }
}

void decay_note_purged(struct decay *decay, size_t kept) {
    decay_note_taken(decay, kept);
    size_t sum = decay_limit(decay);
    for (unsigned age = N; age > 0 && sum > kept; age--) {
        sum -= take_away(decay, age - 1, sum - kept);
    }
}

static void grow_older(struct decay *decay, unsigned steps) {
    for (unsigned age = N; age > 0; age--) {
        decay->joined[age - 1] = age > steps ? decay->joined[age - 1 - steps] : 0;
    }
}

static uint64_t step_start_ms(uint64_t steps, uint64_t decay_ms) {
    assert(steps <= N);
    return steps * min_size(decay_ms, LONGEST_MS) / N;
}

/* Whole steps since the running one began, at most N. */
static unsigned steps_passed(const struct decay *decay, uint64_t now_ms, uint64_t decay_ms) {
    uint64_t elapsed = now_ms - decay->step_began_ms;
    decay_ms = min_size(decay_ms, LONGEST_MS);
    return elapsed >= decay_ms ? N : (unsigned)(elapsed * N / decay_ms);
}

bool decay_advance(struct decay *decay, uint64_t now_ms, uint64_t decay_ms, size_t kept) {
    if (now_ms < decay->step_began_ms) {
        decay->step_began_ms = now_ms;
    }
    unsigned steps = steps_passed(decay, now_ms, decay_ms);
    if (steps == 0) {
        return false;
    }
    decay->step_began_ms =
        steps == N ? now_ms : decay->step_began_ms + step_start_ms(steps, decay_ms);
    drop_youngest(decay, min_size(decay->fewest, kept));
    decay->joined[0] = kept - min_size(decay_limit(decay), kept);
    grow_older(decay, steps);
    decay->fewest = kept;
    assert(decay_limit(decay) <= kept);
    return true;
}

uint64_t decay_wait_ms(const struct decay *decay, uint64_t now_ms, uint64_t decay_ms, size_t kept) {
    if (kept == 0) {
        return UINT64_MAX;
    }
    size_t limit = decay_limit(decay);
    size_t new_units = kept - min_size(limit, kept); /* joined in the running step */
    unsigned few = 0, enough = N;                    /* steps */
    while (enough - few > 1) {
        unsigned middle = (few + enough) / 2;
        bool may_all_stay = limit_in(decay, middle) + staying(new_units, middle) >= kept;
        *(may_all_stay ? &few : &enough) = middle;
    }
    uint64_t due_ms = decay->step_began_ms + step_start_ms(enough, decay_ms) + 1;
    return due_ms > now_ms ? due_ms - now_ms : 1;
}
