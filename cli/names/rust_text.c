/* SPDX-License-Identifier: MIT
 *
 * rust_text.c - reading and writing for the demanglers of Rust, with punycode (RFC 3492) for identifiers.
 */
#include "names/rust_text.h"

#include <stdio.h>
#include <string.h>

#include "names/demangle.h"

void rust_put(struct rust *rust, const char *text, size_t length) {
    if (rust->failed || rust->silent > 0) {
        return;
    }
    if (length >= DEMANGLE_OUT_BYTES - rust->used) {
        rust->failed = true;
        return;
    }
    memcpy(rust->out + rust->used, text, length);
    rust->used += length;
}

void rust_put_text(struct rust *rust, const char *text) {
    rust_put(rust, text, strlen(text));
}

void rust_put_number(struct rust *rust, uint64_t number) {
    char text[24];
    rust_put(rust, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)number));
}

void rust_put_utf8(struct rust *rust, uint32_t c) {
    static const uint8_t leads[] = {0, 0xC0, 0xE0, 0xF0};
    unsigned more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; /* bytes after the first */
    char text[4] = {(char)(leads[more] | c >> 6 * more)};
    for (unsigned i = 1; i <= more; i++) {
        text[i] = (char)(0x80 | (c >> 6 * (more - i) & 0x3F));
    }
    rust_put(rust, text, more + 1);
}

char rust_peek(const struct rust *rust) {
    return rust->at < rust->length ? rust->name[rust->at] : '\0';
}

char rust_next(struct rust *rust) {
    if (rust->failed || rust->at >= rust->length) {
        rust->failed = true;
        return '\0';
    }
    return rust->name[rust->at++];
}

bool rust_eat(struct rust *rust, char c) {
    if (rust->failed || rust_peek(rust) != c) {
        return false;
    }
    rust->at++;
    return true;
}

/* Numbers to base 62 end in `_`, which alone is 0. */
uint64_t rust_read_base62(struct rust *rust) {
    if (rust_eat(rust, '_')) {
        return 0;
    }
    uint64_t number = 0;
    while (!rust->failed && !rust_eat(rust, '_')) {
        char c = rust_next(rust);
        unsigned digit = is_digit(c)   ? (unsigned)(c - '0')
                         : is_lower(c) ? (unsigned)(c - 'a') + 10
                         : is_upper(c) ? (unsigned)(c - 'A') + 36
                                       : 62;
        if (digit == 62 || __builtin_mul_overflow(number, 62, &number) ||
            __builtin_add_overflow(number, digit, &number)) {
            rust->failed = true;
        }
    }
    if (__builtin_add_overflow(number, 1, &number)) {
        rust->failed = true;
    }
    return rust->failed ? 0 : number;
}

/* 0 where the tag is missing. */
uint64_t rust_read_optional_base62(struct rust *rust, char tag) {
    if (!rust_eat(rust, tag)) {
        return 0;
    }
    uint64_t number = rust_read_base62(rust);
    if (number == UINT64_MAX) {
        rust->failed = true;
        return 0;
    }
    return number + 1;
}

size_t rust_read_length(struct rust *rust) {
    char c = rust_next(rust);
    if (!is_digit(c)) {
        rust->failed = true;
        return 0;
    }
    size_t number = (size_t)(c - '0');
    while (number != 0 && is_digit(rust_peek(rust))) {
        number = number * 10 + (size_t)(rust_next(rust) - '0');
        if (number > DEMANGLE_IN_MOST) {
            rust->failed = true;
            return 0;
        }
    }
    return number;
}

/* The bytes of an identifier of this length. */
const char *rust_read_bytes(struct rust *rust, size_t length) {
    if (rust->failed || length > rust->length - rust->at) {
        rust->failed = true;
        return "";
    }
    const char *bytes = rust->name + rust->at;
    rust->at += length;
    return bytes;
}

struct identifier rust_read_identifier(struct rust *rust) {
    bool is_punycode = rust_eat(rust, 'u');
    size_t length = rust_read_length(rust);
    rust_eat(rust, '_');
    struct identifier id = {rust_read_bytes(rust, length), NULL, length, 0};
    if (rust->failed) {
        return (struct identifier){"", NULL, 0, 0};
    }
    if (is_punycode) {
        size_t ascii = length;
        while (ascii > 0 && id.ascii[ascii - 1] != '_') {
            ascii--;
        }
        id.punycode = id.ascii + ascii;
        id.punycode_length = length - ascii;
        id.ascii_length = ascii > 0 ? ascii - 1 : 0;
        rust->failed |= id.punycode_length == 0;
    }
    return id;
}

static uint32_t adapt_bias(uint64_t delta, size_t count, bool is_first) {
    delta /= is_first ? 700 : 2;
    delta += delta / count;
    uint32_t k = 0;
    for (; delta > 455; k += 36) {
        delta /= 35;
    }
    return (uint32_t)(k + 36 * delta / (delta + 38));
}

/* One delta of punycode (RFC 3492) from `bytes`; false where it is broken. */
static bool read_delta(struct identifier *id, uint32_t bias, uint64_t *delta) {
    uint64_t weight = 1;
    *delta = 0;
    for (uint32_t k = 36;; k += 36) {
        if (id->punycode_length == 0) {
            return false;
        }
        char c = *id->punycode++;
        id->punycode_length--;
        uint32_t digit = is_lower(c)   ? (uint32_t)(c - 'a')
                         : is_digit(c) ? (uint32_t)(c - '0') + 26
                                       : 36;
        *delta += digit * weight;
        if (digit == 36 || *delta > UINT32_MAX) {
            return false;
        }
        uint32_t threshold = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
        if (digit < threshold) {
            return true;
        }
        weight *= 36 - threshold;
        if (weight > UINT32_MAX) {
            return false;
        }
    }
}

static void put_punycode(struct rust *rust, struct identifier id) {
    uint32_t letters[DEMANGLE_IN_MOST];
    size_t count = 0;
    for (; count < id.ascii_length; count++) {
        letters[count] = (unsigned char)id.ascii[count];
    }
    uint64_t c = 128, i = 0;
    uint32_t bias = 72;
    bool is_first = true;
    while (id.punycode_length > 0) {
        uint64_t delta;
        if (!read_delta(&id, bias, &delta) || count == DEMANGLE_IN_MOST) {
            rust->failed = true;
            return;
        }
        i += delta;
        count++;
        c += i / count;
        i %= count;
        if (!is_scalar(c)) {
            rust->failed = true;
            return;
        }
        memmove(letters + i + 1, letters + i, (count - 1 - i) * sizeof letters[0]);
        letters[i++] = (uint32_t)c;
        bias = adapt_bias(delta, count, is_first);
        is_first = false;
    }
    for (size_t n = 0; n < count; n++) {
        rust_put_utf8(rust, letters[n]);
    }
}

void rust_put_identifier(struct rust *rust, struct identifier id) {
    if (rust->failed || rust->silent > 0) {
        return;
    }
    if (id.punycode != NULL) {
        put_punycode(rust, id);
    } else {
        rust_put(rust, id.ascii, id.ascii_length);
    }
}
