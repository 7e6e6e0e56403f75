/* SPDX-License-Identifier: MIT
 *
 * json.c - the one place where strings are escaped and members are separated.
 */
#include "out/json.h"

#include "base/fmt.h"

/* ---------------------------------------------------------------- values */

/* Characters from here on that need no escape: printable ASCII without quotes and backslashes. */
static size_t count_plain(const char *text) {
    size_t count = 0;
    while (text[count] >= ' ' && text[count] < 0x7f && text[count] != '"' && text[count] != '\\') {
        count++;
    }
    return count;
}

/* Puts the character that `text` begins with and returns its bytes.  A character of several bytes
 * stays in one piece, so that every piece is valid text. */
static size_t put_character(struct out *out, const char *text) {
    size_t length = fmt_utf8_length(text);
    if (length == 0) {
        out_string(out, "\\ufffd");
        return 1;
    }
    if (length > 1) {
        out_bytes(out, text, length);
    } else if (*text == '"' || *text == '\\') {
        out_char(out, '\\');
        out_char(out, *text);
    } else {
        out_string(out, "\\u");
        out_hex(out, (unsigned char)*text, 4);
    }
    return length;
}

void json_quote(struct out *out, const char *text) {
    text = text != NULL ? text : "";
    out_char(out, '"');
    while (*text != '\0') {
        size_t plain = count_plain(text);
        out_bytes(out, text, plain);
        text += plain;
        text += *text != '\0' ? put_character(out, text) : 0;
    }
    out_char(out, '"');
}

void json_print(struct out *out, enum value_type type, union value value) {
    switch (type) {
    case VALUE_BOOL:
        out_string(out, value.boolean ? "true" : "false");
        break;
    case VALUE_STRING:
        json_quote(out, value.string);
        break;
    case VALUE_UNSIGNED:
        out_decimal(out, value.number, 0);
        break;
    case VALUE_UINT32:
        out_decimal(out, value.uint32, 0);
        break;
    case VALUE_SSIZE:
        out_text(out, "%ld", (long)value.ssize);
        break;
    case VALUE_INT64:
        out_text(out, "%ld", (long)value.int64);
        break;
    case VALUE_SIZE:
        out_decimal(out, value.size, 0);
        break;
    default:
        out_decimal(out, value.uint64, 0);
        break;
    }
}

/* ---------------------------------------------------------------- members */

static void begin_member(struct out *out, const char *key) {
    if (out->comma) {
        out_char(out, ',');
    }
    if (key != NULL) {
        json_quote(out, key);
        out_char(out, ':');
    }
    out->comma = true;
}

void json_open(struct out *out, const char *key, char bracket) {
    begin_member(out, key);
    out_char(out, bracket);
    out->comma = false;
}

void json_close(struct out *out, char bracket) {
    out_char(out, bracket == '{' ? '}' : ']');
    out->comma = true;
}

void json_number(struct out *out, const char *key, uint64_t number) {
    begin_member(out, key);
    out_decimal(out, number, 0);
}

void json_hex(struct out *out, const char *key, uint64_t number) {
    begin_member(out, key);
    out_string(out, "\"0x");
    out_hex(out, number, 0);
    out_char(out, '"');
}

void json_string(struct out *out, const char *key, const char *text) {
    begin_member(out, key);
    json_quote(out, text);
}

void json_value(struct out *out, const char *key, enum value_type type, union value value) {
    begin_member(out, key);
    json_print(out, type, value);
}
