/* SPDX-License-Identifier: MIT
 *
 * out.c - the buffer between a writer of a format and where its bytes go.
 *
 * A dump is mostly addresses, hundreds of thousands of them, so numbers are made here and not by the
 * general formatter of base/fmt.h, which is several times slower.
 */
#include "out/out.h"

#include <errno.h>
#include <string.h>

#include "base/os.h"

void out_begin(struct out *out, int (*take)(void *target, const char *bytes, size_t length),
               void *target) {
    out->take = take;
    out->target = target;
    out->error = 0;
    out->length = 0;
}

static void flush(struct out *out) {
    if (out->error == 0 && out->length > 0) {
        out->error = out->take(out->target, out->buffer, out->length);
    }
    out->length = 0;
}

int out_end(struct out *out) {
    flush(out);
    return out->error;
}

int out_to_descriptor(void *fd, const char *bytes, size_t length) {
    return os_write_all(*(const int *)fd, bytes, length);
}

int out_to_file(void *fd, const char *bytes, size_t length) {
    int error = os_check_room(*(const int *)fd, length);
    return error != 0 ? error : out_to_descriptor(fd, bytes, length);
}

int out_to_pile(void *target, const char *bytes, size_t length) {
    struct pile *pile = target;
    if (!pile_grow(pile, length)) {
        return -ENOMEM;
    }
    memcpy(pile->bytes + pile->length, bytes, length);
    pile->length += length;
    return 0;
}

void out_bytes(struct out *out, const void *bytes, size_t length) {
    const char *next = bytes;
    while (length > 0) {
        if (out->length == OUT_BYTES) {
            flush(out);
        }
        size_t part = min_size(length, OUT_BYTES - out->length);
        memcpy(out->buffer + out->length, next, part);
        out->length += part;
        next += part;
        length -= part;
    }
}

void out_string(struct out *out, const char *text) {
    out_bytes(out, text, strlen(text));
}

char *out_room(struct out *out, size_t bytes) {
    if (OUT_BYTES - out->length < bytes) {
        flush(out);
    }
    return out->buffer + out->length;
}

void out_char(struct out *out, char c) {
    *out_room(out, 1) = c;
    out->length++;
}

enum { DIGITS = 24 };

void out_decimal(struct out *out, uint64_t number, unsigned width) {
    char digits[DIGITS];
    unsigned count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    while (count < width && count < DIGITS) {
        digits[count++] = ' ';
    }
    char *to = out_room(out, DIGITS);
    for (unsigned i = 0; i < count; i++) {
        to[i] = digits[count - 1 - i];
    }
    out->length += count;
}

void out_hex(struct out *out, uint64_t number, unsigned width) {
    unsigned count = (67 - (unsigned)__builtin_clzll(number | 1)) / 4;
    count = count < width ? (unsigned)min_size(width, DIGITS) : count;
    char *to = out_room(out, DIGITS);
    for (unsigned i = count; i > 0; i--) {
        to[i - 1] = "0123456789abcdef"[number & 15];
        number >>= 4;
    }
    out->length += count;
}
