/* SPDX-License-Identifier: MIT
 *
 * read_gperftools.c - the heap text of gperftools.
 *
 *      heap profile:      3:     4160 [     5:     5184] @ heapprofile
 *           1:     4096 [     1:     4096] @ 0x00401136 0x0040118c 0x004011b5
 *
 *      MAPPED_LIBRARIES:
 *
 * The word behind the @ of the first line says whether the lines were sampled:
 *
 *      heapprofile, growth, ...       as they are
 *      heap_v2/RATE, heapz_v2/RATE    a mean gap of RATE bytes
 *      heap/PERIOD                    the old way, half of PERIOD on average
 *      nothing                        the old way at 128 KiB, if as much is in use as was ever allocated
 *
 * Addresses are return addresses, the first one too.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "common/cli.h"
#include "read/read_text.h"

enum { OLD_RATE = 128 * 1024 };

struct gperftools {
    struct profile *profile;
    struct read_maps maps;
    struct read_stack stack;
    struct read_scale scale;
    struct text_lines lines;
    struct read_counts header, sum;
    char *why;
};

/* Lines of warnings may come before the first one. */
static struct text skip_warnings(struct text text) {
    while (text_starts_with(&text, "%")) {
        const char *end = text_find(&text, "\n");
        text.at = end != NULL ? end + 1 : text.end;
    }
    return text;
}

bool read_is_gperftools(const uint8_t *bytes, size_t length) {
    struct text text = {(const char *)bytes, (const char *)bytes + length};
    text = skip_warnings(text);
    return text_starts_with(&text, "heap profile:");
}

/* ---------------------------------------------------------------- the first line */

static bool contains(struct text text, const char *word) {
    return text_find(&text, word) != NULL;
}

static bool is_sampled_without_saying(const struct read_counts *counts) {
    return counts->objects == counts->all_objects && counts->bytes == counts->all_bytes;
}

/* "heap_v2/524288" */
static void take_label(struct gperftools *reader, struct text label) {
    struct read_scale *scale = &reader->scale;
    text_trim(&label);
    const char *slash = text_find(&label, "/");
    struct text word = {label.at, slash != NULL ? slash : label.end};
    struct text number = {slash != NULL ? slash + 1 : label.end, label.end};
    int64_t rate = 0;
    text_take_decimal(&number, &rate);
    if (text_is_empty(&word) ? is_sampled_without_saying(&reader->header)
                             : contains(word, "heap") && !contains(word, "heapprofile")) {
        scale->sampling = contains(word, "_v2") ? READ_POISSON : READ_LINEAR;
        scale->rate = scale->sampling == READ_LINEAR ? (double)rate / 2 : (double)rate;
        scale->rate = rate > 0 ? scale->rate : OLD_RATE;
    }
    if (scale->rate <= 1) {
        scale->sampling = READ_EXACT;
    }
    reader->profile->period = scale->sampling == READ_EXACT ? 1 : (int64_t)scale->rate;
}

static bool take_header(struct gperftools *reader) {
    struct text line;
    if (!text_next_line(&reader->lines, &line) || !text_take(&line, "heap profile:") ||
        !text_take_counts(&line, &reader->header)) {
        return read_damage(reader->why, "the first line has no totals");
    }
    text_take_blanks(&line);
    text_take(&line, "@");
    take_label(reader, line);
    return true;
}

/* ---------------------------------------------------------------- samples */

/* Sums that overflow differ from what the first line says. */
static void add_to_sum(struct read_counts *sum, const struct read_counts *counts) {
    sum->objects = (int64_t)((uint64_t)sum->objects + (uint64_t)counts->objects);
    sum->bytes = (int64_t)((uint64_t)sum->bytes + (uint64_t)counts->bytes);
}

static bool take_sample(struct gperftools *reader, struct text line) {
    struct read_counts counts;
    int64_t values[HEAP_TYPES];
    if (!text_take_counts(&line, &counts)) {
        return read_damage(reader->why, "line %" PRIu64 " has no counts", reader->lines.number);
    }
    text_take_blanks(&line);
    if (!text_take(&line, "@") || !read_stack_take(&reader->stack, line)) {
        return read_damage(reader->why, "line %" PRIu64 " has no stack behind its counts",
                           reader->lines.number);
    }
    read_scale_line(&reader->scale, &counts, values);
    struct profile_label label = read_size_label(reader->profile, &counts);
    profile_add_sample(reader->profile, reader->stack.locations, reader->stack.depth, values,
                       &label, 1);
    add_to_sum(&reader->sum, &counts);
    return true;
}

static bool take_lines(struct gperftools *reader, bool has_maps) {
    struct text line;
    if (!take_header(reader)) {
        return false;
    }
    while (text_next_line(&reader->lines, &line)) {
        text_trim(&line);
        if (!text_is_empty(&line) && *line.at != '#' && !take_sample(reader, line)) {
            return false;
        }
    }
    bool is_whole =
        reader->sum.objects == reader->header.objects && reader->sum.bytes == reader->header.bytes;
    if (!is_whole && !has_maps) {
        return read_damage(reader->why,
                           "it was cut: lines that the first one has counted are missing");
    }
    return true;
}

struct profile *read_gperftools(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]) {
    struct text text = {(const char *)bytes, (const char *)bytes + length};
    struct gperftools reader = {.profile = profile_new(), .why = why};
    reader.stack = (struct read_stack){.profile = reader.profile, .maps = &reader.maps};
    reader.profile->source = profile_text(reader.profile, "gperftools", 10);
    text = skip_warnings(text);
    const char *end = text.end;
    struct text maps = text_split_maps(&text);
    read_maps_take(&reader.maps, reader.profile, maps);
    read_add_heap_types(reader.profile, true);
    reader.lines.rest = text;
    bool is_good = take_lines(&reader, text.end != end);
    read_maps_free(&reader.maps);
    free(reader.stack.locations);
    return read_result(reader.profile, is_good);
}
