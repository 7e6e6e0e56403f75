/* SPDX-License-Identifier: MIT
 *
 * emit.c - the buffered writer behind the statistics, and the JSON that it can write.
 *
 * Strings are hostile: options come from the environment and names from the program.  So everything
 * in quotes is escaped, in text as well as in JSON, and a reader of either sees one line per line.
 */
#include "control/emit.h"

#include <string.h>

#include "base/fmt.h"
#include "base/log.h"
#include "heap/heap.h"

void emit_begin(struct emit *emit, void (*write)(void *opaque, const char *text), void *opaque) {
    emit->write = write;
    emit->opaque = opaque;
    emit->length = 0;
    emit->comma = false;
}

/* The program may do what it likes in `write`, so for that time we are not inside the allocator. */
void emit_end(struct emit *emit) {
    if (emit->length == 0) {
        return;
    }
    emit->buffer[emit->length] = '\0';
    emit->length = 0;
    struct thread_outside before = thread_go_outside();
    emit->write(emit->opaque, emit->buffer);
    thread_come_back(before);
}

/* A piece stays whole, and with it a character of several bytes. */
static void put(struct emit *emit, const char *piece, size_t length) {
    assert(length < sizeof(emit->buffer));
    if (emit->length + length >= sizeof(emit->buffer)) {
        emit_end(emit);
    }
    memcpy(emit->buffer + emit->length, piece, length);
    emit->length += length;
}

void emit_text(struct emit *emit, const char *format, ...) {
    char text[256];
    va_list list;
    va_start(list, format);
    size_t length = fmt_text_list(text, sizeof(text), format, list);
    va_end(list);
    put(emit, text, length);
}

/* ---------------------------------------------------------------- strings */

void emit_quoted(struct emit *emit, const char *text) {
    put(emit, "\"", 1);
    for (const char *next = text != NULL ? text : ""; *next != '\0';) {
        size_t length = fmt_utf8_length(next);
        if (length == 0) {
            put(emit, "\\ufffd", 6);
            length = 1;
        } else if (*next == '"' || *next == '\\') {
            emit_text(emit, "\\%c", *next);
        } else if (length == 1 && (*next < ' ' || *next == 0x7f)) {
            emit_text(emit, "\\u%04x", (unsigned)*next);
        } else {
            put(emit, next, length);
        }
        next += length;
    }
    put(emit, "\"", 1);
}

/* ---------------------------------------------------------------- values */

void emit_value(struct emit *emit, enum value_type type, union value value) {
    switch (type) {
    case VALUE_BOOL:
        emit_text(emit, value.boolean ? "true" : "false");
        break;
    case VALUE_STRING:
        emit_quoted(emit, value.string);
        break;
    case VALUE_UNSIGNED:
        emit_text(emit, "%u", value.number);
        break;
    case VALUE_UINT32:
        emit_text(emit, "%u", value.uint32);
        break;
    case VALUE_SSIZE:
        emit_text(emit, "%ld", (long)value.ssize);
        break;
    case VALUE_INT64:
        emit_text(emit, "%ld", (long)value.int64);
        break;
    case VALUE_SIZE:
        emit_text(emit, "%zu", value.size);
        break;
    default:
        emit_text(emit, "%lu", (unsigned long)value.uint64);
        break;
    }
}

/* ---------------------------------------------------------------- JSON */

static void json_key(struct emit *emit, const char *key) {
    if (emit->comma) {
        put(emit, ",", 1);
    }
    if (key != NULL) {
        emit_quoted(emit, key);
        put(emit, ":", 1);
    }
    emit->comma = true;
}

void json_open(struct emit *emit, const char *key, char bracket) {
    json_key(emit, key);
    put(emit, &bracket, 1);
    emit->comma = false;
}

void json_close(struct emit *emit, char bracket) {
    put(emit, bracket == '{' ? "}" : "]", 1);
    emit->comma = true;
}

void json_number(struct emit *emit, const char *key, uint64_t number) {
    json_key(emit, key);
    emit_text(emit, "%lu", (unsigned long)number);
}

void json_string(struct emit *emit, const char *key, const char *text) {
    json_key(emit, key);
    emit_quoted(emit, text);
}

void json_value(struct emit *emit, const char *key, enum value_type type, union value value) {
    json_key(emit, key);
    emit_value(emit, type, value);
}
