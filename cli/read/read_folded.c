/* SPDX-License-Identifier: MIT
 *
 * read_folded.c - folded stacks: "main;handle_request;malloc 4096", outermost first, one stack a line.
 *
 * There are names but no addresses.  What the number counts is unknown: the type is samples/count.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "read/read_text.h"

struct folded {
    struct profile *profile;
    struct read_stack stack; /* outermost first while a line is read */
};

/* Takes the number off the end; a fraction is rounded away.  False: the line does not end in one. */
static bool cut_number(struct text *line, int64_t *value) {
    text_trim(line);
    const char *start = line->end;
    while (start > line->at && start[-1] != ' ' && start[-1] != '\t') {
        start--;
    }
    struct text word = {start, line->end};
    int64_t digit, fraction = 0;
    if (start == line->at || !text_take_decimal(&word, value)) {
        return false;
    }
    if (text_take(&word, ".")) {
        struct text first = {word.at, word.at < word.end ? word.at + 1 : word.end};
        fraction = text_take_decimal(&first, &digit) && digit >= 5;
        while (!text_is_empty(&word) && *word.at >= '0' && *word.at <= '9') {
            word.at++;
        }
    }
    if (!text_is_empty(&word) || (fraction > 0 && *value == INT64_MAX)) {
        return false;
    }
    *value += fraction * (*start == '-' ? -1 : 1);
    line->end = start;
    text_trim(line);
    return !text_is_empty(line);
}

static bool is_skipped(const struct text *line) {
    return text_is_empty(line) || *line->at == '#';
}

bool read_is_folded(const uint8_t *bytes, size_t length) {
    enum { LOOK = 1 << 16 };
    struct text_lines lines = {{(const char *)bytes, (const char *)bytes + length}, 0};
    struct text line;
    if (memchr(bytes, '\0', length < LOOK ? length : LOOK) != NULL) {
        return false;
    }
    while (text_next_line(&lines, &line)) {
        int64_t value;
        text_trim(&line);
        if (!is_skipped(&line)) {
            return cut_number(&line, &value);
        }
    }
    return false;
}

static void push_frame(struct folded *reader, const char *name, size_t length) {
    struct profile *profile = reader->profile;
    struct read_stack *stack = &reader->stack;
    const char *none = profile_text(profile, "", 0);
    const char *text = profile_text(profile, name, length);
    struct profile_line line = {
        profile_add_function(profile, (struct profile_function){text, text, none, 0}), 0};
    stack->locations =
        must_have_room(stack->locations, stack->depth, &stack->room, sizeof *stack->locations);
    stack->locations[stack->depth++] = profile_add_location(profile, 0, PROFILE_NONE, &line, 1);
}

static void take_stack(struct folded *reader, struct text names, int64_t value) {
    struct read_stack *stack = &reader->stack;
    stack->depth = 0;
    for (const char *end; names.at < names.end; names.at = end + 1) {
        end = memchr(names.at, ';', (size_t)(names.end - names.at));
        end = end != NULL ? end : names.end;
        if (end > names.at) {
            push_frame(reader, names.at, (size_t)(end - names.at));
        }
    }
    for (uint32_t i = 0; i < stack->depth / 2; i++) {
        uint32_t other = stack->locations[stack->depth - 1 - i];
        stack->locations[stack->depth - 1 - i] = stack->locations[i];
        stack->locations[i] = other;
    }
    profile_add_sample(reader->profile, stack->locations, stack->depth, &value, NULL, 0);
}

struct profile *read_folded(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]) {
    struct folded reader = {.profile = profile_new()};
    struct text_lines lines = {{(const char *)bytes, (const char *)bytes + length}, 0};
    struct text line;
    bool is_good = true;
    profile_add_type(reader.profile, "samples", "count");
    reader.profile->source = profile_text(reader.profile, "folded", 6);
    while (is_good && text_next_line(&lines, &line)) {
        int64_t value;
        text_trim(&line);
        if (is_skipped(&line)) {
            continue;
        }
        is_good = cut_number(&line, &value);
        if (is_good) {
            take_stack(&reader, line, value);
        }
    }
    free(reader.stack.locations);
    if (!is_good) {
        read_damage(why, "line %" PRIu64 " does not end in a number", lines.number);
    }
    return read_result(reader.profile, is_good);
}
