/* SPDX-License-Identifier: MIT
 *
 * wire.c - reads and writes messages of the control socket, and believes nothing.
 *
 * A reader goes once over the bytes, from left to right, and never looks behind their end.  What it has
 * accepted is cut into strings where it stands: a blank or an equals sign becomes the end of what is before
 * it, and decoding makes values only shorter.
 */
#include "contract/wire.h"

#include <string.h>

static const char mark[] = "tally1 ";
enum { MARK_BYTES = sizeof(mark) - 1, MOST_DIGITS = 4, MOST_NAME = 32, NUMBER_BYTES = 24 };

/* ---------------------------------------------------------------- characters */

static bool is_letter(char c) {
    return c >= 'a' && c <= 'z';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_name(char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '.' || c == '-';
}

static bool is_visible(char c) {
    return c > ' ' && c <= '~';
}

static int hex_of(char c) {
    static const char digits[] = "0123456789abcdef";
    char lower = c >= 'A' && c <= 'F' ? (char)(c + ('a' - 'A')) : c;
    const char *found = lower != '\0' ? strchr(digits, lower) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

/* ---------------------------------------------------------------- reading */

/* What is left to read; the last byte, a line feed, is not among it. */
struct rest {
    char *at;
    char *end;
};

static bool read_name(struct rest *rest, const char **name) {
    char *start = rest->at;
    while (rest->at < rest->end && is_name(*rest->at)) {
        rest->at++;
    }
    *name = start;
    return rest->at > start && is_letter(*start) && rest->at - start <= MOST_NAME;
}

/* Decimal, without leading zeros. */
static bool read_number(struct rest *rest, unsigned *number) {
    unsigned digits = 0;
    *number = 0;
    while (rest->at < rest->end && is_digit(*rest->at) && digits <= MOST_DIGITS) {
        *number = *number * 10 + (unsigned)(*rest->at - '0');
        rest->at++;
        digits++;
    }
    return digits > 0 && digits <= MOST_DIGITS && *(rest->at - digits) != '0';
}

static bool skip(struct rest *rest, char c) {
    bool is_there = rest->at < rest->end && *rest->at == c;
    rest->at += is_there;
    return is_there;
}

/* Decodes up to a blank or the end, which is then the end of the string; false for what is not allowed.  There
 * is a byte behind the end. */
static bool read_value(struct rest *rest, const char **value) {
    char *to = rest->at;
    *value = to;
    while (rest->at < rest->end && *rest->at != ' ') {
        char c = *rest->at++;
        if (!is_visible(c)) {
            return false;
        }
        if (c == '%') {
            int high = rest->end - rest->at >= 2 ? hex_of(rest->at[0]) : -1;
            int low = high >= 0 ? hex_of(rest->at[1]) : -1;
            if (low < 0 || (high | low) == 0) {
                return false;
            }
            c = (char)(high << 4 | low);
            rest->at += 2;
        }
        *to++ = c;
    }
    if (rest->at < rest->end) { /* the blank, which may be where the string ends */
        rest->at++;
        if (rest->at == rest->end) {
            return false;
        }
    }
    *to = '\0';
    return true;
}

static bool read_field(struct rest *rest, struct wire_message *message) {
    struct wire_field field;
    if (message->count == WIRE_MOST_FIELDS || !read_name(rest, &field.key)) {
        return false;
    }
    char *equals = rest->at;
    if (!skip(rest, '=') || !read_value(rest, &field.value)) {
        return false;
    }
    *equals = '\0';
    if (wire_find(message, field.key) != NULL) {
        return false;
    }
    message->fields[message->count++] = field;
    return true;
}

/* Behind the verb. */
static bool read_fields(struct rest *rest, struct wire_message *message) {
    if (rest->at == rest->end) {
        *rest->at = '\0';
        return true;
    }
    if (*rest->at != ' ') {
        return false;
    }
    *rest->at++ = '\0';
    do {
        if (!read_field(rest, message)) {
            return false;
        }
    } while (rest->at < rest->end);
    return true;
}

/* The head, up to the blank behind the length. */
static bool read_head(struct rest *rest, char *bytes, size_t length) {
    unsigned told;
    if (length <= MARK_BYTES || length > WIRE_MOST_BYTES || bytes[length - 1] != '\n' ||
        memcmp(bytes, mark, MARK_BYTES) != 0) {
        return false;
    }
    *rest = (struct rest){bytes + MARK_BYTES, bytes + length - 1};
    return read_number(rest, &told) && told == length && skip(rest, ' ');
}

static void clear(struct wire_message *message) {
    *message = (struct wire_message){.verb = "", .text = ""};
}

bool wire_read_request(char *bytes, size_t length, struct wire_message *message) {
    struct rest rest;
    clear(message);
    return read_head(&rest, bytes, length) && read_name(&rest, &message->verb) &&
           read_fields(&rest, message);
}

/* Behind "err". */
static bool read_error(struct rest *rest, struct wire_message *message) {
    if (!skip(rest, ' ') || !read_number(rest, &message->code) || !skip(rest, ' ')) {
        return false;
    }
    message->text = rest->at;
    for (; rest->at < rest->end; rest->at++) {
        if (!is_visible(*rest->at) && *rest->at != ' ') {
            return false;
        }
    }
    *rest->at = '\0';
    return true;
}

bool wire_read_reply(char *bytes, size_t length, struct wire_message *message) {
    struct rest rest;
    clear(message);
    if (!read_head(&rest, bytes, length) || !read_name(&rest, &message->verb)) {
        return false;
    }
    size_t verb_bytes = (size_t)(rest.at - message->verb);
    if (verb_bytes == 3 && memcmp(message->verb, "err", 3) == 0) {
        message->verb = "err";
        return read_error(&rest, message);
    }
    return verb_bytes == 2 && memcmp(message->verb, "ok", 2) == 0 && read_fields(&rest, message);
}

const char *wire_find(const struct wire_message *message, const char *key) {
    for (unsigned i = 0; i < message->count; i++) {
        if (strcmp(message->fields[i].key, key) == 0) {
            return message->fields[i].value;
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------- writing */

/* The length has a place of four digits, which is made as narrow as it has to be at the end. */
static void put(struct wire_writer *writer, char c) {
    if (writer->length + 1 < WIRE_MOST_BYTES) { /* one byte is for the line feed */
        writer->bytes[writer->length++] = c;
    } else {
        writer->is_full = true;
    }
}

static void put_string(struct wire_writer *writer, const char *text) {
    for (; *text != '\0'; text++) {
        put(writer, *text);
    }
}

void wire_begin(struct wire_writer *writer, const char *verb) {
    writer->length = 0;
    writer->is_full = false;
    put_string(writer, mark);
    put_string(writer, "0000 ");
    put_string(writer, verb);
}

void wire_add(struct wire_writer *writer, const char *key, const char *value) {
    static const char digits[] = "0123456789ABCDEF";
    put(writer, ' ');
    put_string(writer, key);
    put(writer, '=');
    for (; *value != '\0'; value++) {
        if (is_visible(*value) && *value != '%') {
            put(writer, *value);
        } else {
            put(writer, '%');
            put(writer, digits[(unsigned char)*value >> 4]);
            put(writer, digits[(unsigned char)*value & 15]);
        }
    }
}

void wire_add_number(struct wire_writer *writer, const char *key, unsigned long long number) {
    char text[NUMBER_BYTES];
    char *at = text + sizeof(text);
    *--at = '\0';
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    wire_add(writer, key, at);
}

size_t wire_end(struct wire_writer *writer) {
    if (writer->is_full) {
        writer->length = 0;
        return 0;
    }
    writer->bytes[writer->length++] = '\n';
    /* Each digit less makes the number smaller by one. */
    size_t digits = writer->length < 10 + 3     ? 1
                    : writer->length < 100 + 2  ? 2
                    : writer->length < 1000 + 1 ? 3
                                                : MOST_DIGITS;
    size_t gap = MOST_DIGITS - digits;
    memmove(writer->bytes + MARK_BYTES, writer->bytes + MARK_BYTES + gap,
            writer->length - MARK_BYTES - gap);
    writer->length -= gap;
    size_t number = writer->length;
    for (size_t i = digits; i > 0; i--) {
        writer->bytes[MARK_BYTES + i - 1] = (char)('0' + number % 10);
        number /= 10;
    }
    return writer->length;
}

size_t wire_error(struct wire_writer *writer, enum wire_code code, const char *text) {
    wire_begin(writer, "err ");
    put(writer, (char)('0' + (int)code));
    put(writer, ' ');
    for (; *text != '\0'; text++) {
        put(writer, is_visible(*text) || *text == ' ' ? *text : '?');
    }
    return wire_end(writer);
}
