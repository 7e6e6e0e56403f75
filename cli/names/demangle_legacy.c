/* SPDX-License-Identifier: MIT
 *
 * demangle_legacy.c - the older mangling of Rust, which looks like that of C++ and ends in a hash.
 *
 *      _ZN 4core 3ptr 17h0123456789abcdefE          core::ptr
 *
 * What C++ cannot have in a name is written between dollar signs.
 */
#include <string.h>

#include "names/rust_text.h"

enum { HASH_DIGITS = 16, DISTINCT_DIGITS_LEAST = 5 };

/* $LT$ and its like; the length of the escape, 0 when there is none. */
static size_t read_escape(const char *text, size_t length, uint32_t *c) {
    static const struct {
        const char *name;
        char c;
    } escapes[] = {{"$SP$", '@'}, {"$BP$", '*'}, {"$RF$", '&'}, {"$LT$", '<'},
                   {"$GT$", '>'}, {"$LP$", '('}, {"$RP$", ')'}, {"$C$", ','}};
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) {
        size_t bytes = strlen(escapes[i].name);
        if (length >= bytes && memcmp(text, escapes[i].name, bytes) == 0) {
            *c = (unsigned char)escapes[i].c;
            return bytes;
        }
    }
    if (length < 4 || text[1] != 'u') {
        return 0;
    }
    uint32_t value = 0;
    size_t i = 2;
    for (; i < length && i < 8 && hex_digit(text[i]) >= 0; i++) {
        value = value << 4 | (unsigned)hex_digit(text[i]);
    }
    *c = value;
    bool is_whole = i > 2 && i < length && text[i] == '$' && is_scalar(value) && value >= 0x20;
    return is_whole ? i + 1 : 0;
}

static void put_legacy(struct rust *rust, const char *text, size_t length) {
    if (length >= 2 && text[0] == '_' && text[1] == '$') {
        text++;
        length--;
    }
    while (length > 0 && !rust->failed) {
        uint32_t c;
        size_t taken = text[0] == '$' ? read_escape(text, length, &c) : 0;
        if (taken > 0) {
            rust_put_utf8(rust, c);
        } else if (length >= 2 && text[0] == '.' && text[1] == '.') {
            rust_put_text(rust, "::");
            taken = 2;
        } else {
            rust_put(rust, text, taken = 1);
        }
        text += taken;
        length -= taken;
    }
}

/* h and 16 digits, enough of them different that no C++ name looks like this by accident. */
static bool is_hash(const char *text, size_t length) {
    if (length != HASH_DIGITS + 1 || text[0] != 'h') {
        return false;
    }
    unsigned seen = 0;
    for (size_t i = 1; i < length; i++) {
        if (hex_digit(text[i]) < 0) {
            return false;
        }
        seen |= 1U << hex_digit(text[i]);
    }
    return __builtin_popcount(seen) >= DISTINCT_DIGITS_LEAST;
}

bool rust_read_legacy(struct rust *rust) {
    bool has_hash = false;
    for (size_t parts = 0; !rust->failed && !rust_eat(rust, 'E'); parts++) {
        if (has_hash) {
            return false;
        }
        size_t length = rust_read_length(rust);
        const char *text = rust_read_bytes(rust, length);
        has_hash = !rust->failed && parts > 0 && is_hash(text, length) && rust_peek(rust) == 'E';
        if (!has_hash) {
            rust_put_text(rust, parts > 0 ? "::" : "");
            put_legacy(rust, text, length);
        }
    }
    return !rust->failed && has_hash && (rust_peek(rust) == '\0' || rust_peek(rust) == '.');
}
