/* SPDX-License-Identifier: MIT
 *
 * test_gzip.c - what goes into a gzip file comes out again, whatever it is.
 */
#include "out/gzip.h"

#include "gunzip.h"
#include "unit.h"

enum { MOST = 1 << 20 };

static unsigned char input[MOST], output[MOST];
static char file[2 * MOST];
static size_t file_bytes;
static struct out plain, packed;
static char plain_bytes[OUT_BYTES], packed_bytes[OUT_BYTES];
static struct gzip gzip;

static int keep(void *target, const char *bytes, size_t length) {
    (void)target;
    check(file_bytes + length <= sizeof(file));
    memcpy(file + file_bytes, bytes, length);
    file_bytes += length;
    return 0;
}

static void begin(int (*take)(void *target, const char *bytes, size_t length)) {
    out_begin(&packed, (struct out_sink){take, NULL, false}, packed_bytes, OUT_BYTES);
    gzip_begin(&gzip, &packed);
    out_begin(&plain, (struct out_sink){gzip_take, &gzip, false}, plain_bytes, OUT_BYTES);
}

static void compress(size_t length) {
    file_bytes = 0;
    begin(keep);
    out_bytes(&plain, input, length);
    check_eq(out_end(&plain), 0);
    gzip_end(&gzip);
    check_eq(out_end(&packed), 0);
}

static void check_round_trip(size_t length) {
    compress(length);
    check_eq(gunzip(file, file_bytes, output, sizeof(output)), length);
    check(memcmp(input, output, length) == 0);
}

TEST(nothing_is_a_file_too) {
    check_round_trip(0);
}

TEST(every_byte_has_a_code) {
    for (int i = 0; i < 256; i++) {
        input[i] = (unsigned char)i;
    }
    check_round_trip(256);
}

/* Every length from the shortest to beyond the longest that has a symbol, at every kind of distance. */
TEST(repetitions_of_all_lengths_and_distances_come_back) {
    static const size_t distances[] = {1,   2,    3,    4,     5,     12,   100,
                                       513, 3000, 8192, 20000, 32768, 33000};
    struct random random = {12345};
    for (size_t d = 0; d < sizeof(distances) / sizeof(*distances); d++) {
        size_t at = 0;
        while (at < distances[d]) {
            input[at++] = (unsigned char)random_next(&random);
        }
        for (size_t length = 1; length < 600 && at + 700 < MOST; length++) {
            for (size_t i = 0; i < length; i++, at++) {
                input[at] = input[at - distances[d]];
            }
            input[at++] = (unsigned char)random_next(&random);
        }
        check_round_trip(at);
    }
}

TEST(what_cannot_be_compressed_grows_by_an_eighth_at_most) {
    struct random random = {99};
    for (size_t i = 0; i < MOST; i++) {
        input[i] = (unsigned char)random_next(&random);
    }
    check_round_trip(MOST);
    check(file_bytes < MOST + MOST / 8);
}

TEST(zeros_become_few) {
    memset(input, 0, MOST);
    check_round_trip(MOST);
    check(file_bytes < MOST / 100);
}

/* Pieces end at 64 KiB. */
TEST(lengths_around_a_piece_come_back) {
    for (size_t i = 0; i < 3 * OUT_BYTES; i++) {
        input[i] = (unsigned char)(i * i >> 7);
    }
    for (size_t length = OUT_BYTES - 2; length <= OUT_BYTES + 2; length++) {
        check_round_trip(length);
        check_round_trip(2 * length);
    }
}

static int refuse(void *target, const char *bytes, size_t length) {
    (void)target;
    (void)bytes;
    (void)length;
    return -28;
}

TEST(an_error_behind_is_told_in_front) {
    begin(refuse);
    struct random random = {7};
    for (size_t i = 0; i < MOST; i++) {
        input[i] = (unsigned char)random_next(&random);
    }
    out_bytes(&plain, input, MOST);
    check_eq(out_end(&plain), -28);
}
