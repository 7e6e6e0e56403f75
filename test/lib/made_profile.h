/* SPDX-License-Identifier: MIT
 *
 * made_profile.h - profiles made by hand for tests of what reads them.
 *
 * A stack is written as folded text, root first: frames parted by ';', calls that were inlined into one
 * location by '+', outermost first.  A frame is "name", "name:line" or "name@file:line"; without a file it
 * lies in "name.c".
 *
 *      make_sample(profile, "main:4;work:10+copy:20;malloc", (int64_t[]){1, 64, 1, 64});
 */
#ifndef TALLY_TEST_MADE_PROFILE_H
#define TALLY_TEST_MADE_PROFILE_H

#include <stdlib.h>
#include <string.h>

#include "profile/profile.h"

enum { MADE_MOST_FRAMES = 256 };

/* A test ends soon, so nobody frees; what is held here is no leak to a sanitizer. */
static inline struct profile *made_keep(struct profile *profile) {
    static struct profile *kept[256];
    static unsigned count;
    return kept[count++ % 256] = profile;
}

static inline const char *made_text(struct profile *profile, const char *text) {
    return profile_text(profile, text, strlen(text));
}

/* The four types of heap profiles, in their usual order; every allocation was seen. */
static inline struct profile *make_profile(void) {
    static const char *const types[][2] = {{"alloc_objects", "count"},
                                           {"alloc_space", "bytes"},
                                           {"inuse_objects", "count"},
                                           {"inuse_space", "bytes"}};
    struct profile *profile = made_keep(profile_new());
    for (size_t i = 0; i < 4; i++) {
        profile_add_type(profile, made_text(profile, types[i][0]), made_text(profile, types[i][1]));
    }
    profile->default_type = 3;
    profile->period = 1;
    profile->period_type.name = made_text(profile, "space");
    profile->period_type.unit = made_text(profile, "bytes");
    profile->source = made_text(profile, "pprof");
    return profile;
}

static inline struct profile_line made_line(struct profile *profile, const char *frame) {
    char name[128], file[160];
    const char *colon = strrchr(frame, ':'), *at = strchr(frame, '@');
    bool has_line = colon != NULL && colon[1] >= '0' && colon[1] <= '9';
    size_t end = has_line ? (size_t)(colon - frame) : strlen(frame);
    size_t name_end = at != NULL ? (size_t)(at - frame) : end;
    snprintf(name, sizeof name, "%.*s", (int)name_end, frame);
    if (at != NULL) {
        snprintf(file, sizeof file, "%.*s", (int)(end - name_end - 1), at + 1);
    } else {
        snprintf(file, sizeof file, "%s.c", name);
    }
    struct profile_function function = {.name = made_text(profile, name),
                                        .system_name = made_text(profile, name),
                                        .file = made_text(profile, file)};
    return (struct profile_line){profile_add_function(profile, function),
                                 has_line ? (uint32_t)strtoul(colon + 1, NULL, 10) : 0};
}

/* A location whose address comes from its text, so that equal texts are one location. */
static inline uint32_t made_location(struct profile *profile, const char *text) {
    struct profile_line lines[16];
    char copy[512], *rest = copy, *frame;
    uint32_t count = 0;
    uint64_t address = 5381;
    for (const char *byte = text; *byte != '\0'; byte++) {
        address = (address * 33 + (unsigned char)*byte) & 0xffffffffff;
    }
    snprintf(copy, sizeof copy, "%s", text);
    while ((frame = strsep(&rest, "+")) != NULL && count < 16) {
        lines[count++] = made_line(profile, frame);
    }
    for (uint32_t i = 0; i < count / 2; i++) { /* innermost first */
        struct profile_line other = lines[i];
        lines[i] = lines[count - 1 - i];
        lines[count - 1 - i] = other;
    }
    uint32_t mapping = profile->mapping_count > 0 ? 0 : (uint32_t)PROFILE_NONE;
    return profile_add_location(profile, address, mapping, lines, count);
}

static inline uint32_t make_labelled(struct profile *profile, const char *stack,
                                     const int64_t *values, const struct profile_label *labels,
                                     uint32_t label_count) {
    uint32_t locations[MADE_MOST_FRAMES], count = 0;
    char copy[4096], *rest = copy, *part;
    snprintf(copy, sizeof copy, "%s", stack);
    while (stack[0] != '\0' && (part = strsep(&rest, ";")) != NULL && count < MADE_MOST_FRAMES) {
        locations[count++] = made_location(profile, part);
    }
    for (uint32_t i = 0; i < count / 2; i++) {
        uint32_t other = locations[i];
        locations[i] = locations[count - 1 - i];
        locations[count - 1 - i] = other;
    }
    return profile_add_sample(profile, locations, count, values, labels, label_count);
}

static inline uint32_t make_sample(struct profile *profile, const char *stack,
                                   const int64_t *values) {
    return make_labelled(profile, stack, values, NULL, 0);
}

/* The stack of a sample as text, root first, names only: "main;work+copy". */
static inline const char *made_stack_text(const struct profile *profile, uint32_t sample) {
    static char text[8192];
    size_t length = 0;
    const struct profile_sample *row = &profile->samples[sample];
    text[0] = '\0';
    for (uint32_t i = row->depth; i-- > 0;) {
        const struct profile_location *at = &profile->locations[profile->stacks[row->stack + i]];
        for (uint32_t j = at->line_count; j-- > 0;) {
            const struct profile_line *line = &profile->lines[at->lines + j];
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
                                       length == 0               ? ""
                                       : j + 1 == at->line_count ? ";"
                                                                 : "+",
                                       profile->functions[line->function].name);
        }
        if (at->line_count == 0) {
            length += (size_t)snprintf(text + length, sizeof text - length, "%s0x%llx",
                                       length == 0 ? "" : ";", (unsigned long long)at->address);
        }
    }
    return text;
}

#endif
