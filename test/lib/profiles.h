/* SPDX-License-Identifier: MIT
 *
 * profiles.h - what the tests of readers need: profiles out of bytes, and looking at them.
 */
#ifndef TALLY_TEST_PROFILES_H
#define TALLY_TEST_PROFILES_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "read/read.h"
#include "test.h"

typedef struct profile *(*read_fn)(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]);

/* The bytes at the end of a block of their own, so that a sanitizer sees who reads behind them. */
static inline uint8_t *exact_copy(const void *bytes, size_t length) {
    uint8_t *copy = malloc(length > 0 ? length : 1);
    check(copy != NULL);
    memcpy(copy, bytes, length);
    return copy;
}

static inline struct profile *profile_of(read_fn read, const void *bytes, size_t length) {
    char why[READ_WHY_BYTES] = "";
    uint8_t *copy = exact_copy(bytes, length);
    struct profile *profile = read(copy, length, why);
    free(copy);
    check_str(why, "");
    check(profile != NULL && profile_verify(profile));
    return profile;
}

static inline struct profile *profile_of_text(read_fn read, const char *text) {
    return profile_of(read, text, strlen(text));
}

/* The reader refuses the bytes, with this sentence. */
static inline void check_refused(read_fn read, const void *bytes, size_t length,
                                 const char *sentence) {
    char why[READ_WHY_BYTES] = "";
    uint8_t *copy = exact_copy(bytes, length);
    check(read(copy, length, why) == NULL);
    free(copy);
    check_str(why, sentence);
}

static inline void check_refused_text(read_fn read, const char *text, const char *sentence) {
    check_refused(read, text, strlen(text), sentence);
}

/* The bytes cut anywhere are a profile or one sentence, and nothing worse. */
static inline void check_every_cut(read_fn read, const void *bytes, size_t length) {
    for (size_t cut = 0; cut < length; cut++) {
        char why[READ_WHY_BYTES] = "";
        uint8_t *copy = exact_copy(bytes, cut);
        struct profile *profile = read(copy, cut, why);
        free(copy);
        check(profile != NULL ? profile_verify(profile) : why[0] != '\0');
        profile_free(profile);
    }
}

/* The same with each byte changed in turn. */
static inline void check_every_change(read_fn read, const void *bytes, size_t length) {
    static const uint8_t changes[] = {0x01, 0x80, 0xff};
    for (size_t i = 0; i < length * sizeof changes; i++) {
        char why[READ_WHY_BYTES] = "";
        uint8_t *copy = exact_copy(bytes, length);
        copy[i / sizeof changes] ^= changes[i % sizeof changes];
        struct profile *profile = read(copy, length, why);
        free(copy);
        check(profile != NULL ? profile_verify(profile) : why[0] != '\0');
        profile_free(profile);
    }
}

static inline int64_t total_of(const struct profile *profile, const char *type) {
    uint32_t index = profile_find_type(profile, type);
    check(index != PROFILE_NONE);
    return profile_total(profile, index);
}

static inline int64_t value_of(const struct profile *profile, uint32_t sample, const char *type) {
    uint32_t index = profile_find_type(profile, type);
    check(index != PROFILE_NONE && sample < profile->sample_count);
    return profile_value(profile, sample, index);
}

/* The stack of a sample as text: "401135 40118b", or names where there are any. */
static inline const char *stack_of(const struct profile *profile, uint32_t sample) {
    static char text[4096];
    check(sample < profile->sample_count);
    const struct profile_sample *one = &profile->samples[sample];
    size_t length = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < one->depth && length < sizeof text - 200; i++) {
        const struct profile_location *location =
            &profile->locations[profile->stacks[one->stack + i]];
        const char *blank = i > 0 ? " " : "";
        if (location->line_count > 0) {
            uint32_t function = profile->lines[location->lines].function;
            length += (size_t)snprintf(text + length, 200, "%s%s", blank,
                                       profile->functions[function].name);
        } else {
            length += (size_t)snprintf(text + length, 200, "%s%" PRIx64, blank, location->address);
        }
    }
    return text;
}

/* The label of a sample as text; "" where it has none. */
static inline const char *label_of(const struct profile *profile, uint32_t sample,
                                   const char *key) {
    static char text[200];
    text[0] = '\0';
    const struct profile_sample *one = &profile->samples[sample];
    for (uint32_t i = 0; i < one->label_count; i++) {
        const struct profile_label *label = &profile->labels[one->labels + i];
        if (strcmp(label->key, key) == 0 && label->text != NULL) {
            snprintf(text, sizeof text, "%s", label->text);
        } else if (strcmp(label->key, key) == 0) {
            snprintf(text, sizeof text, "%" PRId64 " %s", label->number, label->unit);
        }
    }
    return text;
}

/* The module of a frame; "" where it has none. */
static inline const char *module_of(const struct profile *profile, uint32_t sample,
                                    uint32_t frame) {
    const struct profile_sample *one = &profile->samples[sample];
    check(frame < one->depth);
    uint32_t mapping = profile->locations[profile->stacks[one->stack + frame]].mapping;
    return mapping == PROFILE_NONE ? "" : profile->mappings[mapping].path;
}

#endif
