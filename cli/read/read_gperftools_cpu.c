/* SPDX-License-Identifier: MIT
 *
 * read_gperftools_cpu.c - CPU profiles of gperftools: words of 4 or 8 bytes in either order.
 *
 *      header    0  3  0  period in microseconds  0
 *      record    count  depth  address ...          innermost first; the first is no return address
 *      trailer   0  1  0
 *      text      /proc/PID/maps
 *
 * A file without its trailer is that of a killed program: its records count as long as they are whole.
 */
#include <stdlib.h>

#include "common/cli.h"
#include "read/read_text.h"

enum { HEADER_WORDS = 5, DEPTH_MOST = 1 << 16 };

struct words {
    const uint8_t *bytes;
    size_t count, at; /* in words */
    unsigned word_bytes;
    bool is_big_endian;
};

static uint64_t word_at(const struct words *words, size_t index) {
    const uint8_t *from = words->bytes + index * words->word_bytes;
    uint64_t value = 0;
    for (unsigned i = 0; i < words->word_bytes; i++) {
        unsigned place = words->is_big_endian ? words->word_bytes - 1 - i : i;
        value |= (uint64_t)from[i] << 8 * place;
    }
    return value;
}

/* The kind of words with which the header makes sense; false: none. */
static bool find_words(struct words *words, const uint8_t *bytes, size_t length) {
    for (unsigned kind = 0; kind < 4; kind++) {
        unsigned word_bytes = kind < 2 ? 8 : 4;
        *words = (struct words){.bytes = bytes,
                                .count = length / word_bytes,
                                .word_bytes = word_bytes,
                                .is_big_endian = kind % 2 == 1};
        if (words->count >= HEADER_WORDS && word_at(words, 0) == 0 && word_at(words, 1) == 3 &&
            word_at(words, 2) <= 1 && word_at(words, 3) > 0 && word_at(words, 4) == 0) {
            words->at = HEADER_WORDS;
            return true;
        }
    }
    return false;
}

bool read_is_gperftools_cpu(const uint8_t *bytes, size_t length) {
    struct words words;
    return find_words(&words, bytes, length);
}

static bool is_trailer(const struct words *words, size_t at) {
    return words->count - at >= 3 && word_at(words, at) == 0 && word_at(words, at + 1) == 1 &&
           word_at(words, at + 2) == 0;
}

/* The depth of the record here, or 0 and a sentence. */
static uint64_t record_depth(const struct words *words, char why[READ_WHY_BYTES]) {
    size_t left = words->count - words->at;
    uint64_t depth = left >= 2 ? word_at(words, words->at + 1) : 0;
    if (left < 2 || depth > left - 2) {
        read_damage(why, "it was cut inside of a sample");
        return 0;
    }
    if (depth == 0 || depth > DEPTH_MOST || word_at(words, words->at) == 0 ||
        word_at(words, words->at) > INT64_MAX) {
        read_damage(why, "the sample at byte %zu makes no sense", words->at * words->word_bytes);
        return 0;
    }
    return depth;
}

/* Where the records end: after the trailer, or at the end of the file. */
static bool find_end(struct words words, size_t *end, char why[READ_WHY_BYTES]) {
    while (words.at < words.count && !is_trailer(&words, words.at)) {
        uint64_t depth = record_depth(&words, why);
        if (depth == 0) {
            return false;
        }
        words.at += 2 + (size_t)depth;
    }
    *end = words.at;
    return true;
}

static void take_record(struct words *words, struct read_stack *stack, int64_t period_ns) {
    int64_t values[2] = {(int64_t)word_at(words, words->at)};
    uint64_t depth = word_at(words, words->at + 1);
    uint64_t leaf = word_at(words, words->at + 2);
    if (__builtin_mul_overflow(values[0], period_ns, &values[1])) {
        values[1] = INT64_MAX;
    }
    stack->depth = 0;
    read_stack_push(stack, leaf);
    for (size_t i = 1; i < depth; i++) {
        uint64_t address = word_at(words, words->at + 2 + i);
        if (i > 1 || address != leaf) { /* some unwinders report the first one twice */
            read_stack_push(stack, address > 0 ? address - 1 : 0);
        }
    }
    profile_add_sample(stack->profile, stack->locations, stack->depth, values, NULL, 0);
    words->at += 2 + (size_t)depth;
}

static void add_types(struct profile *profile, int64_t period_ns) {
    const char *nanoseconds = profile_text(profile, "nanoseconds", 11);
    const char *cpu = profile_text(profile, "cpu", 3);
    profile_add_type(profile, "samples", "count");
    profile->default_type = profile_add_type(profile, cpu, nanoseconds);
    profile->period_type = (struct profile_type){cpu, nanoseconds};
    profile->period = period_ns;
    profile->is_exact_leaf = true;
    profile->source = profile_text(profile, "gperftools-cpu", 14);
}

struct profile *read_gperftools_cpu(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]) {
    struct words words;
    size_t end;
    if (!find_words(&words, bytes, length)) {
        read_damage(why, "the header makes no sense");
        return NULL;
    }
    if (!find_end(words, &end, why)) {
        return NULL;
    }
    bool has_trailer = end < words.count;
    size_t text_at = has_trailer ? (end + 3) * words.word_bytes : length;
    struct text maps_text = {(const char *)bytes + text_at, (const char *)bytes + length};
    uint64_t period = word_at(&words, 3);
    int64_t period_ns = period < INT64_MAX / 1000 ? (int64_t)period * 1000 : INT64_MAX;
    struct profile *profile = profile_new();
    struct read_maps maps;
    add_types(profile, period_ns);
    read_maps_take(&maps, profile, maps_text);
    struct read_stack stack = {.profile = profile, .maps = &maps};
    while (words.at < end) {
        take_record(&words, &stack, period_ns);
    }
    if (!has_trailer) {
        profile_add_comment(profile, "The end of the file is missing.");
    }
    read_maps_free(&maps);
    free(stack.locations);
    return profile;
}
