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
#include <string.h>

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

/* FNV-1a of one text, which starts from HASH_TEXT, or of several, each from what the one before gave. */
#define HASH_TEXT UINT64_C(0xcbf29ce484222325)
static inline uint64_t hash_bytes(uint64_t before, const char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        before = (before ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    }
    return before;
}

static inline uint64_t hash_text(uint64_t before, const char *text) {
    return hash_bytes(before, text, strlen(text));
}
