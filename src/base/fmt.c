/* SPDX-License-Identifier: MIT
 *
 * fmt.c - the formatter behind messages and statistics.
 *
 * libc's printf family may allocate and takes locks, so nothing of it can be used inside malloc.
 * This is the part of it that messages need, writing into a buffer of fixed size.
 *
 * Threads     No shared state.
 */
#include "base/fmt.h"

struct sink {
    char *buffer;
    size_t capacity;
    size_t length;
};

/* One conversion, as parsed from the format. */
struct spec {
    bool left;
    bool zero;
    unsigned width;
    unsigned longs; /* number of 'l', with 'z' counted as one */
};

static void put(struct sink *sink, char c) {
    if (sink->length + 1 < sink->capacity) {
        sink->buffer[sink->length] = c;
        sink->length++;
    }
}

static void put_padded(struct sink *sink, const struct spec *spec, const char *text, size_t n) {
    size_t padding = spec->width > n ? spec->width - n : 0;
    bool sign_first = spec->zero && n > 0 && text[0] == '-';
    if (sign_first) {
        put(sink, '-');
    }
    for (size_t i = 0; !spec->left && i < padding; i++) {
        put(sink, spec->zero ? '0' : ' ');
    }
    for (size_t i = sign_first; i < n; i++) {
        put(sink, text[i]);
    }
    for (size_t i = 0; spec->left && i < padding; i++) {
        put(sink, ' ');
    }
}

static void put_number(struct sink *sink, const struct spec *spec, uint64_t value, unsigned base,
                       bool negative) {
    char digits[24];
    size_t n = 0;
    do {
        digits[sizeof(digits) - ++n] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    if (negative) {
        digits[sizeof(digits) - ++n] = '-';
    }
    put_padded(sink, spec, digits + sizeof(digits) - n, n);
}

static void put_string(struct sink *sink, const struct spec *spec, const char *text) {
    size_t n = 0;
    while (text[n] != '\0') {
        n++;
    }
    put_padded(sink, spec, text, n);
}

static const char *parse_spec(const char *format, struct spec *spec) {
    *spec = (struct spec){0};
    for (; *format == '-' || *format == '0'; format++) {
        spec->left |= *format == '-';
        spec->zero |= *format == '0';
    }
    for (; *format >= '0' && *format <= '9'; format++) {
        spec->width = spec->width * 10 + (unsigned)(*format - '0');
    }
    for (; *format == 'l' || *format == 'z'; format++) {
        spec->longs++;
    }
    return format;
}

size_t fmt_text_list(char *buffer, size_t capacity, const char *format, va_list list) {
    struct sink sink = {buffer, capacity, 0};
    for (; *format != '\0'; format++) {
        struct spec spec;
        if (*format != '%') {
            put(&sink, *format);
            continue;
        }
        format = parse_spec(format + 1, &spec);
        switch (*format) {
        case 's':
            put_string(&sink, &spec, va_arg(list, const char *));
            break;
        case 'c':
            put(&sink, (char)va_arg(list, int));
            break;
        case 'd': {
            int64_t value = spec.longs > 0 ? va_arg(list, long) : va_arg(list, int);
            put_number(&sink, &spec, value < 0 ? -(uint64_t)value : (uint64_t)value, 10, value < 0);
            break;
        }
        case 'u':
        case 'x': {
            uint64_t value = spec.longs > 0 ? va_arg(list, unsigned long) : va_arg(list, unsigned);
            put_number(&sink, &spec, value, *format == 'x' ? 16 : 10, false);
            break;
        }
        case 'p':
            put(&sink, '0');
            put(&sink, 'x');
            put_number(&sink, &spec, (uintptr_t)va_arg(list, void *), 16, false);
            break;
        case '\0':
            format--;
            break;
        default:
            put(&sink, *format);
        }
    }
    if (capacity > 0) {
        buffer[sink.length] = '\0';
    }
    return sink.length;
}

size_t fmt_text(char *buffer, size_t capacity, const char *format, ...) {
    va_list list;
    va_start(list, format);
    size_t length = fmt_text_list(buffer, capacity, format, list);
    va_end(list);
    return length;
}

static int digit_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

static unsigned suffix_shift(char c) {
    switch (c | 0x20) {
    case 'k':
        return 10;
    case 'm':
        return 20;
    case 'g':
        return 30;
    default:
        return 0;
    }
}

bool fmt_parse_number(const char *text, size_t length, uint64_t *value) {
    unsigned shift = length > 0 ? suffix_shift(text[length - 1]) : 0;
    unsigned base = length > 2 && text[0] == '0' && (text[1] | 0x20) == 'x' ? 16 : 10;
    size_t first = base == 16 ? 2 : 0;
    size_t last = shift > 0 ? length - 1 : length;
    uint64_t sum = 0;
    for (size_t i = first; i < last; i++) {
        int digit = digit_value(text[i]);
        if (digit >= (int)base || __builtin_mul_overflow(sum, base, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)digit, &sum)) {
            return false;
        }
    }
    if (first >= last || (sum << shift) >> shift != sum) {
        return false;
    }
    *value = sum << shift;
    return true;
}

static bool is_continuation(unsigned char byte) {
    return (byte & 0xc0) == 0x80;
}

/* NUL ends every string and is no continuation, so nothing behind the end is read. */
size_t fmt_utf8_length(const char *string) {
    const unsigned char *text = (const unsigned char *)string;
    unsigned char first = text[0];
    size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (length == 1) {
        return 1;
    }
    if (first < 0xc2 || first > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if (!is_continuation(text[i])) {
            return 0;
        }
    }
    bool is_overlong = (first == 0xe0 && text[1] < 0xa0) || (first == 0xf0 && text[1] < 0x90);
    bool is_surrogate = first == 0xed && text[1] >= 0xa0;
    bool is_too_large = first == 0xf4 && text[1] >= 0x90;
    return is_overlong || is_surrogate || is_too_large ? 0 : length;
}
