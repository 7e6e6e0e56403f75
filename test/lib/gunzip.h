/* SPDX-License-Identifier: MIT
 *
 * gunzip.h - reads the gzip files that out/gzip.c writes, by the text of RFC 1951 and 1952 and not by
 * that source: blocks with the fixed code, and the check of length and sum at the end.
 *
 * Anything else fails the test.  What other readers make of the files is seen in test/interop.
 */
#ifndef TALLY_TEST_GUNZIP_H
#define TALLY_TEST_GUNZIP_H

#include <string.h>

#include "test.h"

struct gunzip {
    const unsigned char *in;
    size_t in_bytes, at_bit;
    unsigned char *out;
    size_t length, capacity;
};

static inline unsigned gunzip_bit(struct gunzip *g) {
    check(g->at_bit / 8 < g->in_bytes);
    unsigned bit = g->in[g->at_bit / 8] >> g->at_bit % 8 & 1;
    g->at_bit++;
    return bit;
}

static inline unsigned gunzip_bits(struct gunzip *g, unsigned count) {
    unsigned value = 0;
    for (unsigned i = 0; i < count; i++) {
        value |= gunzip_bit(g) << i;
    }
    return value;
}

static inline unsigned gunzip_code(struct gunzip *g, unsigned code, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        code = code << 1 | gunzip_bit(g);
    }
    return code;
}

/* RFC 1951, 3.2.6. */
static inline unsigned gunzip_symbol(struct gunzip *g) {
    unsigned code = gunzip_code(g, 0, 7);
    if (code <= 0x17) {
        return 256 + code;
    }
    code = gunzip_code(g, code, 1);
    if (code >= 0x30 && code <= 0xbf) {
        return code - 0x30;
    }
    if (code >= 0xc0 && code <= 0xc7) {
        return 280 + code - 0xc0;
    }
    return 144 + gunzip_code(g, code, 1) - 0x190;
}

static inline void gunzip_put(struct gunzip *g, unsigned char byte) {
    check(g->length < g->capacity);
    g->out[g->length++] = byte;
}

/* RFC 1951, 3.2.5: what each symbol stands for, and how many bits more follow. */
static inline void gunzip_copy(struct gunzip *g, unsigned symbol) {
    static const unsigned short lengths[29] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                               15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                               67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const unsigned char length_bits[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                  2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const unsigned short distances[30] = {
        1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    static const unsigned char distance_bits[30] = {0, 0, 0,  0,  1,  1,  2,  2,  3,  3,
                                                    4, 4, 5,  5,  6,  6,  7,  7,  8,  8,
                                                    9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
    check(symbol - 257 < 29);
    unsigned length = lengths[symbol - 257] + gunzip_bits(g, length_bits[symbol - 257]);
    unsigned code = gunzip_code(g, 0, 5);
    check(code < 30);
    unsigned distance = distances[code] + gunzip_bits(g, distance_bits[code]);
    check(distance <= g->length);
    for (; length > 0; length--) {
        gunzip_put(g, g->out[g->length - distance]);
    }
}

static inline unsigned gunzip_crc(const unsigned char *bytes, size_t length) {
    unsigned crc = ~0u;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        }
    }
    return ~crc;
}

/* The length of what is inside; fails the test when the file is damaged or has something behind it. */
static inline size_t gunzip(const void *in, size_t in_bytes, void *out, size_t capacity) {
    struct gunzip g = {in, in_bytes, 80, out, 0, capacity};
    check(in_bytes > 18 && memcmp(in, "\x1f\x8b\x08\0", 4) == 0);
    bool last = false;
    while (!last) {
        last = gunzip_bit(&g) == 1;
        check_eq(gunzip_bits(&g, 2), 1);
        for (unsigned symbol; (symbol = gunzip_symbol(&g)) != 256;) {
            if (symbol < 256) {
                gunzip_put(&g, (unsigned char)symbol);
            } else {
                gunzip_copy(&g, symbol);
            }
        }
    }
    g.at_bit = (g.at_bit + 7) / 8 * 8;
    check_eq(gunzip_bits(&g, 32), gunzip_crc(g.out, g.length));
    check_eq(gunzip_bits(&g, 32), (unsigned)g.length);
    check_eq(g.at_bit, 8 * in_bytes);
    return g.length;
}

#endif
