/* SPDX-License-Identifier: MIT
 *
 * rust_text.h - what both manglings of Rust need: reading a name and writing a text.
 *
 * Any failure sets `failed`; from then on nothing is read or written, so callers check it only in
 * their loops and at the end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rust {
    const char *name; /* after the prefix: back references count from here */
    size_t at, length;
    char *out;
    size_t used;
    unsigned depth, silent; /* silent: read and do not print */
    uint64_t bound_lifetimes;
    bool failed;
};

struct identifier {
    const char *ascii, *punycode;
    size_t ascii_length, punycode_length;
};

static inline bool is_scalar(uint64_t c) {
    return c < 0xD800 || (c >= 0xE000 && c < 0x110000);
}

static inline bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static inline bool is_lower(char c) {
    return c >= 'a' && c <= 'z';
}

static inline bool is_upper(char c) {
    return c >= 'A' && c <= 'Z';
}

static inline int hex_digit(char c) {
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Output: nothing while `silent`, a failure where it gets too long. */
void rust_put(struct rust *rust, const char *text, size_t length);
void rust_put_text(struct rust *rust, const char *text);
void rust_put_number(struct rust *rust, uint64_t number);
void rust_put_utf8(struct rust *rust, uint32_t c);
void rust_put_identifier(struct rust *rust, struct identifier id);

/* The next character, NUL at the end; rust_next takes it and fails there. */
char rust_peek(const struct rust *rust);
char rust_next(struct rust *rust);
bool rust_eat(struct rust *rust, char c);

/* Numbers to base 62 end in `_`, which alone is 0; an optional one without its tag is 0. */
uint64_t rust_read_base62(struct rust *rust);
uint64_t rust_read_optional_base62(struct rust *rust, char tag);

/* A decimal length, and bytes of that length. */
size_t rust_read_length(struct rust *rust);
const char *rust_read_bytes(struct rust *rust, size_t length);
struct identifier rust_read_identifier(struct rust *rust);

/* The older mangling, after its prefix. */
bool rust_read_legacy(struct rust *rust);
