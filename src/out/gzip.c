/* SPDX-License-Identifier: MIT
 *
 * gzip.c - the small part of RFC 1951 and 1952 that makes a profile a third as long.
 *
 * Every piece is one block with the code that the standard fixes, so there is no table to compute
 * or to send.  Repetitions are found by a hash of the next four bytes, which remembers one earlier
 * place, within the piece.  A better search would save another third and cost several times as
 * much; profiles that are kept for long can be compressed again by other tools.
 *
 * Cost        About 10 ns for each byte that comes in.
 */
#include "out/gzip.h"

#include <string.h>

#include "base/hash.h"

enum {
    END_OF_BLOCK = 256,
    LENGTH_LEAST = 4, /* shorter ones are not looked for */
    LENGTH_MOST = 258,
    DISTANCE_MOST = 32768,
};

/* ---------------------------------------------------------------- bits */

static void put_bits(struct gzip *gzip, uint32_t bits, unsigned count) {
    gzip->bits |= (uint64_t)bits << gzip->bits_count;
    gzip->bits_count += count;
    if (gzip->bits_count >= 32) {
        char *to = out_room(gzip->to, 4);
        for (unsigned i = 0; i < 4; i++) {
            to[i] = (char)(gzip->bits >> 8 * i);
        }
        gzip->to->length += 4;
        gzip->bits >>= 32;
        gzip->bits_count -= 32;
    }
}

/* Passes on the bytes that are full, and fills the last. */
static void end_bits(struct gzip *gzip) {
    for (unsigned i = 0; i < gzip->bits_count; i += 8) {
        out_char(gzip->to, (char)(gzip->bits >> i));
    }
    gzip->bits = 0;
    gzip->bits_count = 0;
}

/* Codes are sent from their highest bit on, everything else from its lowest. */
static uint32_t reverse(uint32_t code, unsigned count) {
    uint32_t reversed = 0;
    for (unsigned i = 0; i < count; i++) {
        reversed |= (code >> i & 1) << (count - 1 - i);
    }
    return reversed;
}

/* The fixed code: literal bytes, the end of the block, lengths. */
static void make_codes(struct gzip *gzip) {
    for (uint32_t symbol = 0; symbol < GZIP_SYMBOLS; symbol++) {
        uint32_t code = 0x30 + symbol;
        unsigned count = 8;
        if (symbol >= 280) {
            code = 0xc0 + symbol - 280;
        } else if (symbol >= 256) {
            code = symbol - 256;
            count = 7;
        } else if (symbol >= 144) {
            code = 0x190 + symbol - 144;
            count = 9;
        }
        gzip->codes[symbol] = (uint16_t)reverse(code, count);
        gzip->code_bits[symbol] = (uint8_t)count;
    }
}

static void put_symbol(struct gzip *gzip, uint32_t symbol) {
    put_bits(gzip, gzip->codes[symbol], gzip->code_bits[symbol]);
}

static unsigned highest_bit(uint32_t value) {
    return 31 - (unsigned)__builtin_clz(value);
}

static void put_length(struct gzip *gzip, uint32_t length) {
    uint32_t value = length - 3;
    if (length == LENGTH_MOST) {
        put_symbol(gzip, 285);
    } else if (value < 8) {
        put_symbol(gzip, 257 + value);
    } else {
        unsigned extra = highest_bit(value) - 2;
        put_symbol(gzip, 257 + 4 * extra + (value >> extra));
        put_bits(gzip, value & ((1u << extra) - 1), extra);
    }
}

static void put_distance(struct gzip *gzip, uint32_t distance) {
    uint32_t value = distance - 1;
    if (value < 4) {
        put_bits(gzip, reverse(value, 5), 5);
    } else {
        unsigned extra = highest_bit(value) - 1;
        put_bits(gzip, reverse(2 * extra + (value >> extra), 5), 5);
        put_bits(gzip, value & ((1u << extra) - 1), extra);
    }
}

/* ---------------------------------------------------------------- repetitions */

static uint32_t *head_of(struct gzip *gzip, const char *bytes) {
    uint32_t four;
    memcpy(&four, bytes, sizeof(four));
    return &gzip->heads[hash_place(four, GZIP_HEADS_LG)];
}

static size_t common_length(const char *a, const char *b, size_t most) {
    size_t length = 0;
    while (length < most && a[length] == b[length]) {
        length++;
    }
    return length;
}

/* How many bytes at `at` repeat those at `*before`; 0: too few, or too far back. */
static size_t find_repetition(struct gzip *gzip, const char *bytes, size_t at, size_t length,
                              size_t *before) {
    if (length - at < LENGTH_LEAST) {
        return 0;
    }
    uint32_t *head = head_of(gzip, bytes + at);
    size_t candidate = *head;
    *head = (uint32_t)at + 1;
    if (candidate == 0 || at - (candidate - 1) > DISTANCE_MOST) {
        return 0;
    }
    *before = candidate - 1;
    size_t common = common_length(bytes + *before, bytes + at, min_size(length - at, LENGTH_MOST));
    return common >= LENGTH_LEAST ? common : 0;
}

static void put_block(struct gzip *gzip, const char *bytes, size_t length) {
    memset(gzip->heads, 0, sizeof(gzip->heads));
    put_bits(gzip, 0, 1); /* not the last */
    put_bits(gzip, 1, 2); /* fixed code */
    for (size_t at = 0; at < length;) {
        size_t before = 0;
        size_t common = find_repetition(gzip, bytes, at, length, &before);
        if (common == 0) {
            put_symbol(gzip, (unsigned char)bytes[at]);
            at++;
        } else {
            put_length(gzip, (uint32_t)common);
            put_distance(gzip, (uint32_t)(at - before));
            at += common;
        }
    }
    put_symbol(gzip, END_OF_BLOCK);
}

/* ---------------------------------------------------------------- the file */

void gzip_make_crc_table(uint32_t table[256]) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) {
            value = value & 1 ? 0xedb88320u ^ value >> 1 : value >> 1;
        }
        table[i] = value;
    }
}

uint32_t gzip_crc(const uint32_t table[256], uint32_t crc, const void *bytes, size_t length) {
    const unsigned char *next = bytes;
    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        crc = table[(crc ^ next[i]) & 255] ^ crc >> 8;
    }
    return ~crc;
}

void gzip_begin(struct gzip *gzip, struct out *to) {
    gzip->to = to;
    gzip->crc = 0;
    gzip->length = 0;
    gzip->bits = 0;
    gzip->bits_count = 0;
    gzip_make_crc_table(gzip->crc_table);
    make_codes(gzip);
    /* Mark, deflate, no flags, no time, no hint, Unix. */
    static const unsigned char header[10] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
    out_bytes(to, header, sizeof(header));
}

int gzip_take(void *target, const char *bytes, size_t length) {
    struct gzip *gzip = target;
    gzip->crc = gzip_crc(gzip->crc_table, gzip->crc, bytes, length);
    gzip->length += (uint32_t)length;
    put_block(gzip, bytes, length);
    return gzip->to->error;
}

void gzip_end(struct gzip *gzip) {
    put_bits(gzip, 1, 1); /* the last block */
    put_bits(gzip, 1, 2);
    put_symbol(gzip, END_OF_BLOCK);
    end_bits(gzip);
    put_bits(gzip, gzip->crc, 32);
    put_bits(gzip, gzip->length, 32);
}
