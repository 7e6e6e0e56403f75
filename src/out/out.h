/* SPDX-License-Identifier: MIT
 *
 * out.h - text and bytes, collected into pieces.
 *
 * A writer of a format puts what it has to say and never looks for errors: the first one is kept,
 * what comes after it is dropped, and out_end() returns it.
 *
 * Threads     One out, one thread.
 */
#pragma once

#include "base/common.h"
#include "out/pile.h"

/* Takes the pieces: 0 or a negative errno. */
struct out_sink {
    int (*take)(void *target, const char *bytes, size_t length);
    void *target;
    bool hides_addresses; /* places are given by module, offset and build id only */
};

struct out {
    struct out_sink sink;
    int error;
    size_t length, capacity;
    char *buffer;
    bool comma; /* of json.h: the next member is not the first of its object or array */
};

/* The usual piece. */
enum { OUT_BYTES = 64 << 10 };

/* The buffer has at least 256 bytes.  What one call puts stays together if it fits into a piece. */
void out_begin(struct out *out, struct out_sink sink, char *buffer, size_t capacity);

/* Passes on what is left.  0, or the first error. */
int out_end(struct out *out);

/* From begin to end, with a buffer from the kernel: the out's error, `fill`'s, or -ENOMEM. */
int out_run(struct out_sink sink, int (*fill)(struct out *out, const void *what), const void *what);

/* Targets: a descriptor, given by its address, and a pile. */
int out_to_descriptor(void *fd, const char *bytes, size_t length);
int out_to_file(void *fd, const char *bytes, size_t length); /* leaves a tenth of the disk free */
int out_to_pile(void *pile, const char *bytes, size_t length);

void out_bytes(struct out *out, const void *bytes, size_t length);
void out_string(struct out *out, const char *text);
void out_char(struct out *out, char c);

/* At most 255 characters, by the rules of base/fmt.h. */
void out_text(struct out *out, const char *format, ...) PRINTF_LIKE(2, 3);

/* Room for this many bytes, at most `capacity`; what is used of it is added to `length`. */
char *out_room(struct out *out, size_t bytes);

/* A number with at least `width` characters, up to 24: filled with blanks, or hexadecimal with
 * zeros and without 0x. */
void out_decimal(struct out *out, uint64_t number, unsigned width);
void out_hex(struct out *out, uint64_t number, unsigned width);

/* What went wrong, in words, where a user can do something about it. */
const char *out_explain(int error);
