/* SPDX-License-Identifier: MIT
 *
 * test_bits.c - every function of bits.h against one that looks at a bit at a time.
 */
#include "base/bits.h"

#include "unit.h"

enum { WORDS = 16, BITS = WORDS * 64, ROUNDS = 20000 };

/* The model: one byte per bit. */
static void spread(const uint64_t *map, unsigned char *bytes) {
    for (unsigned i = 0; i < BITS; i++) {
        bytes[i] = (unsigned char)(map[i / 64] >> (i % 64) & 1);
    }
}

static void fill_random(uint64_t *map, struct random *random) {
    uint64_t kind = random_below(random, 4);
    for (unsigned w = 0; w < WORDS; w++) {
        uint64_t word = random_next(random);
        map[w] = kind == 0   ? 0
                 : kind == 1 ? ~UINT64_C(0)
                 : kind == 2 ? word
                             : word & random_next(random);
    }
}

/* A range inside the map, often one that starts or ends at a word. */
static void choose_range(struct random *random, unsigned *first, unsigned *count) {
    *first = (unsigned)random_below(random, BITS);
    *count = (unsigned)random_below(random, BITS - *first + 1);
    if (random_below(random, 3) == 0) {
        *first -= *first % 64;
    }
    if (random_below(random, 3) == 0) {
        *count -= (*first + *count) % 64 < *count ? (*first + *count) % 64 : 0;
    }
}

TEST(lowest_and_floor_log2_agree_with_counting) {
    for (unsigned i = 0; i < 64; i++) {
        uint64_t bit = UINT64_C(1) << i;
        check_eq(bits_lowest(bit), i);
        check_eq(bits_lowest(bit | (UINT64_C(1) << 63)), i);
        check_eq(bits_floor_log2(bit), i);
        check_eq(bits_floor_log2(bit | 1), i);
    }
}

TEST(range_in_word_has_exactly_the_bits_of_the_range) {
    for (unsigned first = 0; first < 200; first++) {
        for (unsigned count = 0; count < 200; count++) {
            for (unsigned w = 0; w < 7; w++) {
                uint64_t expected = 0;
                for (unsigned i = 0; i < 64; i++) {
                    unsigned at = w * 64 + i;
                    expected |= (uint64_t)(at >= first && at < first + count) << i;
                }
                check_eq(bits_range_in_word(w, first, count), expected);
            }
        }
    }
}

TEST(set_clear_and_count_range_touch_the_range_only) {
    struct random random = random_start(1, 0);
    uint64_t map[WORDS];
    unsigned char model[BITS], now[BITS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned first, count, ones = 0;
        fill_random(map, &random);
        choose_range(&random, &first, &count);
        spread(map, model);
        for (unsigned i = first; i < first + count; i++) {
            ones += model[i];
        }
        check_eq(bits_count_range(map, first, count), ones);
        bool set = random_below(&random, 2) == 1;
        if (set) {
            bits_set_range(map, first, count);
        } else {
            bits_clear_range(map, first, count);
        }
        memset(model + first, set, count);
        spread(map, now);
        check(memcmp(model, now, BITS) == 0);
        check_eq(bits_get(map, first), model[first]);
    }
}
