/* SPDX-License-Identifier: MIT
 *
 * emit.h - text and JSON in pieces, to a function of the program.
 *
 * A piece is put into a small buffer, which goes out when it is full.  The buffer is the caller's, on
 * its stack, so that two who print at once do not mix and nobody needs memory or a lock.
 *
 * Threads     One emit, one thread.  The program is called outside of the allocator: it may allocate,
 *             ask for statistics itself, or fork.
 */
#pragma once

#include "base/value.h"

struct emit {
    void (*write)(void *opaque, const char *text);
    void *opaque;
    size_t length;
    bool comma; /* the next member of this JSON object or array is not its first */
    char buffer[4096];
};

/* What `write` gets are strings shorter than the buffer, none of them empty. */
void emit_begin(struct emit *emit, void (*write)(void *opaque, const char *text), void *opaque);
void emit_end(struct emit *emit);

/* Formats at most 255 characters, by the rules of fmt.h. */
void emit_text(struct emit *emit, const char *format, ...) PRINTF_LIKE(2, 3);

/* A string in quotes, escaped as JSON wants it.  What is not UTF-8 becomes U+FFFD; NULL is "". */
void emit_quoted(struct emit *emit, const char *text);

/* A value by its type: true, -1, "text". */
void emit_value(struct emit *emit, enum value_type type, union value value);

/* ---------------------------------------------------------------- JSON */

/* Members of an object; in an array the key is NULL.  `bracket` is the opening one: { or [. */
void json_open(struct emit *emit, const char *key, char bracket);
void json_close(struct emit *emit, char bracket);
void json_number(struct emit *emit, const char *key, uint64_t number);
void json_string(struct emit *emit, const char *key, const char *text);
void json_value(struct emit *emit, const char *key, enum value_type type, union value value);
