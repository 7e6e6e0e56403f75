/* SPDX-License-Identifier: MIT
 *
 * bits.h - single words and short bitmaps: look, set, clear, count.
 *
 * A bitmap is an array of 64-bit words, bit i in word i / 64.  The free objects of a slab are kept
 * this way.  The 128 units of a chunk are one wide integer instead: see chunk.h.
 *
 * Cost        Everything is linear in the number of words, which is at most 16.
 */
#pragma once

#include "base/common.h"

static inline unsigned bits_lowest(uint64_t word) {
    return (unsigned)__builtin_ctzll(word);
}

static inline unsigned bits_floor_log2(uint64_t value) {
    return 63 - (unsigned)__builtin_clzll(value);
}

/* The logarithm of the power of two next to a number; 0 for 0. */
static inline unsigned bits_nearest_log2(uint64_t value) {
    unsigned lg = 0;
    while (lg < 63 && value > (UINT64_C(3) << lg) / 2) {
        lg++;
    }
    return lg;
}

static inline bool bits_get(const uint64_t *map, unsigned i) {
    return map[i / 64] >> (i % 64) & 1;
}

/* The bits of word `w` that lie inside [first, first + count). */
static inline uint64_t bits_range_in_word(unsigned w, unsigned first, unsigned count) {
    unsigned from = first > w * 64 ? first - w * 64 : 0;
    unsigned to = first + count > w * 64 ? first + count - w * 64 : 0;
    if (from >= 64 || to <= from) {
        return 0;
    }
    uint64_t below_to = to >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << to) - 1;
    return below_to & ~((UINT64_C(1) << from) - 1);
}

static inline void bits_set_range(uint64_t *map, unsigned first, unsigned count) {
    for (unsigned w = first / 64; w * 64 < first + count; w++) {
        map[w] |= bits_range_in_word(w, first, count);
    }
}

static inline void bits_clear_range(uint64_t *map, unsigned first, unsigned count) {
    for (unsigned w = first / 64; w * 64 < first + count; w++) {
        map[w] &= ~bits_range_in_word(w, first, count);
    }
}

static inline unsigned bits_count_range(const uint64_t *map, unsigned first, unsigned count) {
    unsigned sum = 0;
    for (unsigned w = first / 64; w * 64 < first + count; w++) {
        sum += (unsigned)__builtin_popcountll(map[w] & bits_range_in_word(w, first, count));
    }
    return sum;
}
