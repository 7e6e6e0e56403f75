/* SPDX-License-Identifier: MIT
 *
 * gzip.h - bytes in, a gzip file out.
 *
 * Threads     One gzip, one thread.
 */
#pragma once

#include "out/out.h"

enum { GZIP_HEADS_LG = 13, GZIP_HEADS = 1 << GZIP_HEADS_LG, GZIP_SYMBOLS = 286 };

struct gzip {
    struct out *to;
    uint32_t crc;
    uint32_t length;     /* of what came in, modulo 2^32 */
    uint64_t bits;       /* that do not fill a byte yet, the first in bit 0 */
    unsigned bits_count; /* how many */
    uint32_t crc_table[256];
    uint16_t codes[GZIP_SYMBOLS]; /* of literals and lengths, in the order in which they are sent */
    uint8_t code_bits[GZIP_SYMBOLS];
    uint32_t heads[GZIP_HEADS]; /* where a piece last had four bytes of this hash, plus one */
};

/* The CRC at the end of a gzip file, which other formats use, too: make its table, then add piece
 * by piece, beginning with 0. */
void gzip_make_crc_table(uint32_t table[256]);
uint32_t gzip_crc(const uint32_t table[256], uint32_t crc, const void *bytes, size_t length);

void gzip_begin(struct gzip *gzip, struct out *to);

/* A target for an out: each piece becomes a block. */
int gzip_take(void *gzip, const char *bytes, size_t length);

/* Ends the file; the caller ends `to`. */
void gzip_end(struct gzip *gzip);
