/* SPDX-License-Identifier: MIT
 *
 * out.c - the buffer between a writer of a format and where its bytes go.
 *
 * A dump is mostly addresses, hundreds of thousands of them, so numbers are formatted here and not
 * by the general formatter of base/fmt.h, which is several times slower.
 */
#include "out/out.h"

#include <errno.h>
#include <string.h>

#include "base/fmt.h"
#include "base/os.h"

void out_begin(struct out *out, struct out_sink sink, char *buffer, size_t capacity) {
    *out = (struct out){.sink = sink, .buffer = buffer, .capacity = capacity};
}

static void flush(struct out *out) {
    if (out->error == 0 && out->length > 0) {
        out->error = out->sink.take(out->sink.target, out->buffer, out->length);
    }
    out->length = 0;
}

int out_end(struct out *out) {
    flush(out);
    return out->error;
}

/* A thread's stack may be too small for the buffer. */
int out_run(struct out_sink sink, int (*fill)(struct out *out, const void *what),
            const void *what) {
    struct out out;
    char *buffer = os_map(OUT_BYTES);
    if (buffer == NULL) {
        return -ENOMEM;
    }
    out_begin(&out, sink, buffer, OUT_BYTES);
    int error = fill(&out, what);
    int written = out_end(&out);
    os_unmap(buffer, OUT_BYTES);
    return written != 0 ? written : error;
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

char *out_room(struct out *out, size_t bytes) {
    if (out->capacity - out->length < bytes) {
        flush(out);
    }
    return out->buffer + out->length;
}

void out_bytes(struct out *out, const void *bytes, size_t length) {
    const char *next = bytes;
    while (length > 0) {
        size_t part = min_size(length, out->capacity);
        memcpy(out_room(out, part), next, part);
        out->length += part;
        next += part;
        length -= part;
    }
}

void out_string(struct out *out, const char *text) {
    out_bytes(out, text, strlen(text));
}

void out_char(struct out *out, char c) {
    *out_room(out, 1) = c;
    out->length++;
}

void out_text(struct out *out, const char *format, ...) {
    enum { ROOM = 256 };
    va_list list;
    va_start(list, format);
    char *to = out_room(out, ROOM);
    out->length += fmt_text_list(to, ROOM, format, list);
    va_end(list);
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

const char *out_explain(int error) {
    switch (-error) {
    case ENOSPC:
    case EDQUOT:
        return "the disk is full";
    case OS_LITTLE_ROOM:
        return "a tenth of the disk is to stay free";
    case EFBIG:
        return "the file would be larger than allowed";
    case EACCES:
    case EPERM:
        return "permission denied";
    case EROFS:
        return "the file system is read-only";
    case ENOENT:
    case ENOTDIR:
        return "there is no such directory";
    case EEXIST:
        return "there is a file of this name";
    case EBADF:
        return "the descriptor is not open for writing";
    case EMFILE:
    case ENFILE:
        return "too many open files";
    case ENOMEM:
        return "no memory";
    case ENAMETOOLONG:
        return "the name is too long";
    default:
        return "error";
    }
}
