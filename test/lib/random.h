/* SPDX-License-Identifier: MIT
 *
 * random.h - a small generator of random numbers for tests: same seed, same numbers, everywhere.
 *
 * Each thread of a test has a generator of its own, so a run can be repeated from its seed as far
 * as the scheduler allows.
 */
#ifndef TALLY_TEST_RANDOM_H
#define TALLY_TEST_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
};

/* One step of a 64-bit linear congruence, whose low bits are weak, mixed so that all are good. */
static inline uint64_t random_next(struct random *random) {
    random->state = random->state * UINT64_C(0x5851f42d4c957f2d) + UINT64_C(0x14057b7ef767814f);
    uint64_t x = random->state;
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

/* A number in [0, limit). */
static inline uint64_t random_below(struct random *random, uint64_t limit) {
    return random_next(random) % limit;
}

/* Generators of different streams of one seed are unrelated. */
static inline struct random random_start(uint64_t seed, uint64_t stream) {
    struct random random = {seed ^ (stream + 1) * UINT64_C(0x9e3779b97f4a7c15)};
    random_next(&random);
    random_next(&random);
    return random;
}

#endif
