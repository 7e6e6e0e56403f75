/* SPDX-License-Identifier: MIT
 *
 * hash.h - words and texts as places in tables.
 *
 * A word times an odd number near 2^64 over the golden ratio: every bit of it changes the bits above, so the
 * best ones are on top, and a place is made of these.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HASH_FACTOR UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t hash_word(uint64_t word) {
    return word * HASH_FACTOR;
}

/* A place in a table of 2^lg; or of mask + 1, which is a power of two up to 2^44. */
static inline size_t hash_place(uint64_t word, unsigned lg) {
    return hash_word(word) >> (64 - lg);
}

static inline size_t hash_masked(uint64_t word, size_t mask) {
    return hash_word(word) >> 20 & mask;
}

/* FNV-1a of one text, or of several, each going on where the one before has ended. */
#define HASH_TEXT UINT64_C(0xcbf29ce484222325)
static inline uint64_t hash_text(uint64_t before, const char *text) {
    for (; *text != '\0'; text++) {
        before = (before ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    return before;
}
