/* SPDX-License-Identifier: MIT
 *
 * read_text.c - lines, numbers and stacks of text formats.
 */
#define _GNU_SOURCE /* memmem */
#include "read/read_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/cli.h"

bool read_damage(char why[READ_WHY_BYTES], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, READ_WHY_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

struct profile *read_result(struct profile *profile, bool is_good) {
    if (!is_good) {
        profile_free(profile);
    }
    return is_good ? profile : NULL;
}

/* ---------------------------------------------------------------- pieces */

bool text_next_line(struct text_lines *lines, struct text *line) {
    struct text *rest = &lines->rest;
    if (text_is_empty(rest)) {
        return false;
    }
    const char *end = memchr(rest->at, '\n', (size_t)(rest->end - rest->at));
    line->at = rest->at;
    line->end = end != NULL ? end : rest->end;
    rest->at = end != NULL ? end + 1 : rest->end;
    if (line->end > line->at && line->end[-1] == '\r') {
        line->end--;
    }
    lines->number++;
    return true;
}

bool text_starts_with(const struct text *text, const char *word) {
    size_t length = strlen(word);
    return (size_t)(text->end - text->at) >= length && memcmp(text->at, word, length) == 0;
}

bool text_take(struct text *text, const char *word) {
    if (!text_starts_with(text, word)) {
        return false;
    }
    text->at += strlen(word);
    return true;
}

const char *text_find(const struct text *text, const char *word) {
    return text_is_empty(text)
               ? NULL
               : memmem(text->at, (size_t)(text->end - text->at), word, strlen(word));
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

bool text_take_blanks(struct text *text) {
    const char *start = text->at;
    while (!text_is_empty(text) && is_blank(*text->at)) {
        text->at++;
    }
    return text->at > start;
}

void text_trim(struct text *text) {
    text_take_blanks(text);
    while (!text_is_empty(text) && is_blank(text->end[-1])) {
        text->end--;
    }
}

bool text_take_decimal(struct text *text, int64_t *value) {
    const char *at = text->at;
    bool is_negative = at < text->end && *at == '-';
    at += is_negative;
    const char *digits = at;
    int64_t number = 0;
    for (; at < text->end && *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *at - '0', &number)) {
            return false;
        }
    }
    if (at == digits) {
        return false;
    }
    *value = is_negative ? -number : number;
    text->at = at;
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool text_take_hex(struct text *text, uint64_t *value) {
    struct text rest = *text;
    if (!text_take(&rest, "0x")) {
        text_take(&rest, "0X");
    }
    const char *digits = rest.at;
    uint64_t number = 0;
    for (int digit; rest.at < rest.end && (digit = hex_digit(*rest.at)) >= 0; rest.at++) {
        if (number >> 60 != 0) {
            return false;
        }
        number = number << 4 | (uint64_t)digit;
    }
    if (rest.at == digits) {
        return false;
    }
    *value = number;
    *text = rest;
    return true;
}

static bool take_pair(struct text *text, int64_t *objects, int64_t *bytes) {
    if (!text_take_decimal(text, objects) || !text_take(text, ":")) {
        return false;
    }
    text_take_blanks(text);
    return text_take_decimal(text, bytes);
}

bool text_take_counts(struct text *text, struct read_counts *counts) {
    struct text rest = *text;
    text_take_blanks(&rest);
    if (!take_pair(&rest, &counts->objects, &counts->bytes)) {
        return false;
    }
    text_take_blanks(&rest);
    if (!text_take(&rest, "[")) {
        return false;
    }
    text_take_blanks(&rest);
    if (!take_pair(&rest, &counts->all_objects, &counts->all_bytes) || !text_take(&rest, "]")) {
        return false;
    }
    *text = rest;
    return true;
}

/* ---------------------------------------------------------------- estimates */

double read_factor(const struct read_scale *scale, int64_t objects, int64_t bytes) {
    if (objects <= 0 || bytes <= 0 || scale->rate <= 0) {
        return 1;
    }
    double ratio = (double)bytes / (double)objects / scale->rate;
    switch (scale->sampling) {
    case READ_POISSON:
        return 1 / -expm1(-ratio);
    case READ_LINEAR:
        return ratio < 1 ? 1 / ratio : 1;
    default:
        return 1;
    }
}

/* A whole number; what is cut off is carried to the next one. */
static int64_t scale_value(double *carry, int64_t value, double factor) {
    if (factor == 1) {
        return value;
    }
    double estimate = (double)value * factor + *carry;
    double limit = 0x1p62;
    if (estimate >= limit || estimate <= -limit) {
        return estimate > 0 ? (int64_t)limit : -(int64_t)limit;
    }
    *carry = estimate - floor(estimate);
    return (int64_t)floor(estimate);
}

void read_scale_line(struct read_scale *scale, const struct read_counts *counts,
                     int64_t values[HEAP_TYPES]) {
    double live = read_factor(scale, counts->objects, counts->bytes);
    double ever = read_factor(scale, counts->all_objects, counts->all_bytes);
    double *carries = scale->carries;
    values[HEAP_ALLOC_OBJECTS] =
        scale_value(&carries[HEAP_ALLOC_OBJECTS], counts->all_objects, ever);
    values[HEAP_ALLOC_SPACE] = scale_value(&carries[HEAP_ALLOC_SPACE], counts->all_bytes, ever);
    values[HEAP_INUSE_OBJECTS] = scale_value(&carries[HEAP_INUSE_OBJECTS], counts->objects, live);
    values[HEAP_INUSE_SPACE] = scale_value(&carries[HEAP_INUSE_SPACE], counts->bytes, live);
}

/* ---------------------------------------------------------------- stacks */

void read_stack_push(struct read_stack *stack, uint64_t address) {
    stack->locations =
        must_have_room(stack->locations, stack->depth, &stack->room, sizeof *stack->locations);
    stack->locations[stack->depth++] = profile_add_location(
        stack->profile, address, read_maps_find(stack->maps, address), NULL, 0);
}

bool read_stack_take(struct read_stack *stack, struct text addresses) {
    stack->depth = 0;
    text_trim(&addresses);
    while (!text_is_empty(&addresses)) {
        uint64_t address;
        if (!text_take_hex(&addresses, &address) ||
            (!text_take_blanks(&addresses) && !text_is_empty(&addresses))) {
            return false;
        }
        bool is_return = stack->depth > 0 || !stack->maps->leaf_is_call;
        read_stack_push(stack, address - (is_return && address > 0));
    }
    return true;
}

/* ---------------------------------------------------------------- types and labels */

void read_add_heap_types(struct profile *profile, bool has_alloc) {
    if (has_alloc) {
        profile_add_type(profile, "alloc_objects", "count");
        profile_add_type(profile, "alloc_space", "bytes");
    }
    profile_add_type(profile, "inuse_objects", "count");
    profile->default_type = profile_add_type(profile, "inuse_space", "bytes");
    profile->period_type.name = profile_text(profile, "space", SIZE_MAX);
    profile->period_type.unit = profile_text(profile, "bytes", SIZE_MAX);
}

struct profile_label read_size_label(struct profile *profile, const struct read_counts *counts) {
    int64_t size = counts->objects != 0       ? counts->bytes / counts->objects
                   : counts->all_objects != 0 ? counts->all_bytes / counts->all_objects
                                              : 0;
    const char *bytes = profile_text(profile, "bytes", SIZE_MAX);
    return (struct profile_label){.key = bytes, .number = size, .unit = bytes};
}
