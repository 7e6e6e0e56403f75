/* SPDX-License-Identifier: MIT
 *
 * read_image.c - what a reader has read, sent from the process that parses to the one that asked.
 *
 * Each put has its take beside it, with the same fields in the same order.
 */
#include "read/read_image.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cli.h"

enum { TEXT_MOST = 1 << 20 };

/* ---------------------------------------------------------------- bytes */

void image_flush(struct image_pipe *pipe) {
    size_t at = 0;
    while (at < pipe->end && !pipe->has_failed) {
        ssize_t n = write(pipe->fd, pipe->bytes + at, pipe->end - at);
        if (n > 0) {
            at += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            pipe->has_failed = true;
        }
    }
    pipe->end = 0;
}

static void put(struct image_pipe *pipe, const void *bytes, size_t length) {
    const uint8_t *from = bytes;
    while (length > 0 && !pipe->has_failed) {
        size_t room = sizeof pipe->bytes - pipe->end;
        size_t part = length < room ? length : room;
        memcpy(pipe->bytes + pipe->end, from, part);
        pipe->end += part;
        from += part;
        length -= part;
        if (pipe->end == sizeof pipe->bytes) {
            image_flush(pipe);
        }
    }
}

/* False: nothing more arrives. */
static bool fill(struct image_pipe *pipe) {
    ssize_t n;
    do {
        n = read(pipe->fd, pipe->bytes, sizeof pipe->bytes);
    } while (n < 0 && errno == EINTR);
    pipe->at = 0;
    pipe->end = n > 0 ? (size_t)n : 0;
    pipe->has_failed |= n <= 0 || (uint64_t)n > pipe->left;
    pipe->left -= pipe->has_failed ? 0 : (uint64_t)n;
    return !pipe->has_failed;
}

/* All of it, or zeros and a pipe that has failed. */
static void take(struct image_pipe *pipe, void *bytes, size_t length) {
    uint8_t *to = bytes;
    size_t missing = length;
    while (missing > 0 && !pipe->has_failed && (pipe->at < pipe->end || fill(pipe))) {
        size_t there = pipe->end - pipe->at;
        size_t part = missing < there ? missing : there;
        memcpy(to, pipe->bytes + pipe->at, part);
        pipe->at += part;
        to += part;
        missing -= part;
    }
    if (missing > 0) {
        memset(bytes, 0, length);
    }
}

void image_put_number(struct image_pipe *pipe, uint64_t number) {
    put(pipe, &number, sizeof number);
}

uint64_t image_take_number(struct image_pipe *pipe) {
    uint64_t number;
    take(pipe, &number, sizeof number);
    return number;
}

/* A number below `limit`; another one fails the pipe. */
static uint32_t take_below(struct image_pipe *pipe, uint64_t limit) {
    uint64_t number = image_take_number(pipe);
    if (number >= limit) {
        pipe->has_failed = true;
    }
    return pipe->has_failed ? 0 : (uint32_t)number;
}

static uint32_t take_count(struct image_pipe *pipe) {
    return take_below(pipe, PROFILE_NONE);
}

static int64_t take_signed(struct image_pipe *pipe) {
    return (int64_t)image_take_number(pipe);
}

static bool take_bool(struct image_pipe *pipe) {
    return take_below(pipe, 2) != 0;
}

void image_put_text(struct image_pipe *pipe, const char *text) {
    size_t length = strnlen(text, TEXT_MOST);
    image_put_number(pipe, length);
    put(pipe, text, length);
}

char *image_take_text(struct image_pipe *pipe) {
    size_t length = take_below(pipe, TEXT_MOST + 1);
    char *text = must_alloc(length + 1);
    take(pipe, text, length);
    text[length] = '\0';
    return text;
}

/* ---------------------------------------------------------------- profiles */

static const char *take_kept(struct image_pipe *pipe, struct profile *profile) {
    char *text = image_take_text(pipe);
    const char *kept = profile_text(profile, text, strlen(text));
    free(text);
    return kept;
}

static void put_type(struct image_pipe *pipe, struct profile_type type) {
    image_put_text(pipe, type.name);
    image_put_text(pipe, type.unit);
}

static struct profile_type take_type(struct image_pipe *pipe, struct profile *profile) {
    const char *name = take_kept(pipe, profile);
    return (struct profile_type){name, take_kept(pipe, profile)};
}

static void put_header(struct image_pipe *pipe, const struct profile *profile) {
    put_type(pipe, profile->period_type);
    image_put_number(pipe, (uint64_t)profile->period);
    image_put_number(pipe, (uint64_t)profile->time_ns);
    image_put_number(pipe, (uint64_t)profile->duration_ns);
    image_put_number(pipe, profile->is_exact_leaf);
    image_put_text(pipe, profile->source);
    image_put_number(pipe, profile->comment_count);
    for (uint32_t i = 0; i < profile->comment_count; i++) {
        image_put_text(pipe, profile->comments[i]);
    }
    image_put_number(pipe, profile->type_count);
    for (uint32_t i = 0; i < profile->type_count; i++) {
        put_type(pipe, profile->types[i]);
    }
    image_put_number(pipe, profile->default_type);
}

static void take_header(struct image_pipe *pipe, struct profile *profile) {
    profile->period_type = take_type(pipe, profile);
    profile->period = take_signed(pipe);
    profile->time_ns = take_signed(pipe);
    profile->duration_ns = take_signed(pipe);
    profile->is_exact_leaf = take_bool(pipe);
    profile->source = take_kept(pipe, profile);
    for (uint32_t left = take_count(pipe); left > 0 && !pipe->has_failed; left--) {
        profile_add_comment(profile, take_kept(pipe, profile));
    }
    for (uint32_t left = take_count(pipe); left > 0 && !pipe->has_failed; left--) {
        struct profile_type type = take_type(pipe, profile);
        profile_add_type(profile, type.name, type.unit);
    }
    profile->default_type = take_below(pipe, profile->type_count > 0 ? profile->type_count : 1);
}

static void put_mappings(struct image_pipe *pipe, const struct profile *profile) {
    image_put_number(pipe, profile->mapping_count);
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        const struct profile_mapping *mapping = &profile->mappings[i];
        image_put_number(pipe, mapping->start);
        image_put_number(pipe, mapping->limit);
        image_put_number(pipe, mapping->offset);
        image_put_text(pipe, mapping->path);
        image_put_text(pipe, mapping->build_id);
        image_put_number(pipe, mapping->has_functions);
    }
}

static void take_mappings(struct image_pipe *pipe, struct profile *profile) {
    for (uint32_t left = take_count(pipe); left > 0 && !pipe->has_failed; left--) {
        struct profile_mapping mapping;
        mapping.start = image_take_number(pipe);
        mapping.limit = image_take_number(pipe);
        mapping.offset = image_take_number(pipe);
        mapping.path = take_kept(pipe, profile);
        mapping.build_id = take_kept(pipe, profile);
        mapping.has_functions = take_bool(pipe);
        profile_add_mapping(profile, mapping);
    }
}

static void put_functions(struct image_pipe *pipe, const struct profile *profile) {
    image_put_number(pipe, profile->function_count);
    for (uint32_t i = 0; i < profile->function_count; i++) {
        const struct profile_function *function = &profile->functions[i];
        image_put_text(pipe, function->name);
        image_put_text(pipe, function->system_name);
        image_put_text(pipe, function->file);
        image_put_number(pipe, function->start_line);
    }
}

/* The sender's numbers become ours: `numbers` grows with what arrives, never with what was announced. */
struct numbers {
    uint32_t *ours;
    uint32_t count, room;
};

static void add_number(struct numbers *numbers, uint32_t ours) {
    numbers->ours =
        must_have_room(numbers->ours, numbers->count, &numbers->room, sizeof *numbers->ours);
    numbers->ours[numbers->count++] = ours;
}

static uint32_t take_ours(struct image_pipe *pipe, const struct numbers *numbers) {
    uint32_t theirs = take_below(pipe, numbers->count);
    return pipe->has_failed ? 0 : numbers->ours[theirs];
}

static void take_functions(struct image_pipe *pipe, struct profile *profile,
                           struct numbers *functions) {
    for (uint32_t left = take_count(pipe); left > 0 && !pipe->has_failed; left--) {
        struct profile_function function;
        function.name = take_kept(pipe, profile);
        function.system_name = take_kept(pipe, profile);
        function.file = take_kept(pipe, profile);
        function.start_line = take_below(pipe, (uint64_t)UINT32_MAX + 1);
        add_number(functions, profile_add_function(profile, function));
    }
}

static void put_locations(struct image_pipe *pipe, const struct profile *profile) {
    image_put_number(pipe, profile->location_count);
    for (uint32_t i = 0; i < profile->location_count; i++) {
        const struct profile_location *location = &profile->locations[i];
        image_put_number(pipe, location->address);
        image_put_number(pipe, location->mapping == PROFILE_NONE ? 0 : location->mapping + 1ULL);
        image_put_number(pipe, location->line_count);
        for (uint32_t j = 0; j < location->line_count; j++) {
            const struct profile_line *line = &profile->lines[location->lines + j];
            image_put_number(pipe, line->function);
            image_put_number(pipe, line->number);
        }
    }
}

static void take_locations(struct image_pipe *pipe, struct profile *profile,
                           const struct numbers *functions, struct numbers *locations) {
    struct profile_line *lines = NULL;
    uint32_t room = 0;
    for (uint32_t left = take_count(pipe); left > 0 && !pipe->has_failed; left--) {
        uint64_t address = image_take_number(pipe);
        uint32_t mapping = take_below(pipe, profile->mapping_count + 1ULL) - 1; /* 0: none */
        uint32_t count = take_count(pipe);
        for (uint32_t i = 0; i < count && !pipe->has_failed; i++) {
            lines = must_have_room(lines, i, &room, sizeof *lines);
            lines[i].function = take_ours(pipe, functions);
            lines[i].number = take_below(pipe, (uint64_t)UINT32_MAX + 1);
        }
        if (!pipe->has_failed) {
            add_number(locations, profile_add_location(profile, address, mapping, lines, count));
        }
    }
    free(lines);
}

static void put_label(struct image_pipe *pipe, const struct profile_label *label) {
    image_put_text(pipe, label->key);
    image_put_number(pipe, label->text != NULL);
    if (label->text != NULL) {
        image_put_text(pipe, label->text);
    }
    image_put_number(pipe, (uint64_t)label->number);
    image_put_text(pipe, label->unit != NULL ? label->unit : "");
}

static struct profile_label take_label(struct image_pipe *pipe, struct profile *profile) {
    struct profile_label label = {.key = take_kept(pipe, profile)};
    if (take_bool(pipe)) {
        label.text = take_kept(pipe, profile);
    }
    label.number = take_signed(pipe);
    label.unit = take_kept(pipe, profile);
    return label;
}

static void put_samples(struct image_pipe *pipe, const struct profile *profile) {
    image_put_number(pipe, profile->sample_count);
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        const struct profile_sample *sample = &profile->samples[i];
        image_put_number(pipe, sample->depth);
        for (uint32_t j = 0; j < sample->depth; j++) {
            image_put_number(pipe, profile->stacks[sample->stack + j]);
        }
        image_put_number(pipe, sample->label_count);
        for (uint32_t j = 0; j < sample->label_count; j++) {
            put_label(pipe, &profile->labels[sample->labels + j]);
        }
        for (uint32_t type = 0; type < profile->type_count; type++) {
            image_put_number(pipe, (uint64_t)profile_value(profile, i, type));
        }
    }
}

/* Room for one sample, used again for the next. */
struct sample_room {
    struct numbers stack;
    struct profile_label *labels;
    uint32_t label_room;
    int64_t *values;
};

static void take_sample(struct image_pipe *pipe, struct profile *profile,
                        const struct numbers *locations, struct sample_room *room) {
    room->stack.count = 0;
    for (uint32_t left = take_count(pipe); left > 0 && !pipe->has_failed; left--) {
        add_number(&room->stack, take_ours(pipe, locations));
    }
    uint32_t label_count = take_count(pipe);
    for (uint32_t i = 0; i < label_count && !pipe->has_failed; i++) {
        room->labels = must_have_room(room->labels, i, &room->label_room, sizeof *room->labels);
        room->labels[i] = take_label(pipe, profile);
    }
    for (uint32_t type = 0; type < profile->type_count; type++) {
        room->values[type] = take_signed(pipe);
    }
    if (!pipe->has_failed) {
        profile_add_sample(profile, room->stack.ours, room->stack.count, room->values, room->labels,
                           label_count);
    }
}

static void take_samples(struct image_pipe *pipe, struct profile *profile,
                         const struct numbers *locations) {
    struct sample_room room = {.values = must_alloc(profile->type_count * sizeof *room.values + 1)};
    for (uint32_t left = take_count(pipe); left > 0 && !pipe->has_failed; left--) {
        take_sample(pipe, profile, locations, &room);
    }
    free(room.stack.ours);
    free(room.labels);
    free(room.values);
}

void image_put_profile(struct image_pipe *pipe, const struct profile *profile) {
    put_header(pipe, profile);
    put_mappings(pipe, profile);
    put_functions(pipe, profile);
    put_locations(pipe, profile);
    put_samples(pipe, profile);
}

struct profile *image_take_profile(struct image_pipe *pipe) {
    struct profile *profile = profile_new();
    struct numbers functions = {0}, locations = {0};
    take_header(pipe, profile);
    take_mappings(pipe, profile);
    take_functions(pipe, profile, &functions);
    take_locations(pipe, profile, &functions, &locations);
    take_samples(pipe, profile, &locations);
    free(functions.ours);
    free(locations.ours);
    if (pipe->has_failed) {
        profile_free(profile);
        return NULL;
    }
    return profile;
}

/* ---------------------------------------------------------------- runs */

/* The plain numbers of a run, each named once for both directions. */
static const size_t run_numbers[] = {
    offsetof(struct read_run, pid),          offsetof(struct read_run, start_wall_ns),
    offsetof(struct read_run, rate),         offsetof(struct read_run, samples),
    offsetof(struct read_run, dropped),      offsetof(struct read_run, cpu_lost),
    offsetof(struct read_run, cpu_left_out), offsetof(struct read_run, lost_bytes),
    offsetof(struct read_run, file_bytes),   offsetof(struct read_run, unknown_frames),
    offsetof(struct read_run, live_blocks),
};
enum { RUN_NUMBERS = sizeof run_numbers / sizeof run_numbers[0] };

static void put_facts(struct image_pipe *pipe, const struct read_run *run) {
    image_put_text(pipe, run->format);
    image_put_text(pipe, run->program);
    image_put_text(pipe, run->arguments);
    image_put_text(pipe, run->host);
    image_put_text(pipe, run->version);
    image_put_number(pipe, run->has_ended);
    image_put_number(pipe, run->lacks_end);
    image_put_number(pipe, run->has_live_blocks);
    image_put_number(pipe, run->has_status);
    image_put_number(pipe, (uint64_t)run->status);
    for (size_t i = 0; i < RUN_NUMBERS; i++) {
        put(pipe, (const char *)run + run_numbers[i], sizeof(uint64_t));
    }
}

static void take_facts(struct image_pipe *pipe, struct read_run *run) {
    char *format = image_take_text(pipe);
    run->format = read_format(format);
    pipe->has_failed |= run->format == NULL;
    free(format);
    run->program = image_take_text(pipe);
    run->arguments = image_take_text(pipe);
    run->host = image_take_text(pipe);
    run->version = image_take_text(pipe);
    run->has_ended = take_bool(pipe);
    run->lacks_end = take_bool(pipe);
    run->has_live_blocks = take_bool(pipe);
    run->has_status = take_bool(pipe);
    run->status = (int)(image_take_number(pipe) & 0xffff);
    for (size_t i = 0; i < RUN_NUMBERS; i++) {
        take(pipe, (char *)run + run_numbers[i], sizeof(uint64_t));
    }
}

static void put_series(struct image_pipe *pipe, const struct read_run *run) {
    image_put_number(pipe, run->point_count);
    put(pipe, run->points, run->point_count * sizeof *run->points);
    image_put_number(pipe, run->note_count);
    for (uint32_t i = 0; i < run->note_count; i++) {
        image_put_number(pipe, run->notes[i].t_ns);
        image_put_text(pipe, run->notes[i].text);
    }
}

static void take_series(struct image_pipe *pipe, struct read_run *run) {
    uint32_t room = 0;
    for (uint32_t left = take_count(pipe); left > 0 && !pipe->has_failed; left--) {
        run->points = must_have_room(run->points, run->point_count, &room, sizeof *run->points);
        take(pipe, &run->points[run->point_count++], sizeof *run->points);
    }
    room = 0;
    for (uint32_t left = take_count(pipe); left > 0 && !pipe->has_failed; left--) {
        run->notes = must_have_room(run->notes, run->note_count, &room, sizeof *run->notes);
        uint64_t t_ns = image_take_number(pipe);
        run->notes[run->note_count++] = (struct read_note){t_ns, image_take_text(pipe)};
    }
}

/* Moments are times; the last one comes with its profile. */
static void put_moments(struct image_pipe *pipe, const struct read_moment *moments,
                        uint32_t count) {
    image_put_number(pipe, count);
    for (uint32_t i = 0; i < count; i++) {
        image_put_number(pipe, moments[i].t_ns);
    }
    if (count > 0) {
        image_put_profile(pipe, moments[count - 1].profile);
    }
}

static struct read_moment *take_moments(struct image_pipe *pipe, uint32_t *count) {
    struct read_moment *moments = NULL;
    uint32_t room = 0;
    for (uint32_t left = take_count(pipe); left > 0 && !pipe->has_failed; left--) {
        moments = must_have_room(moments, *count, &room, sizeof *moments);
        moments[(*count)++] = (struct read_moment){image_take_number(pipe), NULL, NULL};
    }
    if (*count > 0 && !pipe->has_failed) {
        moments[*count - 1].profile = image_take_profile(pipe);
    }
    return moments;
}

/* They begin with plain numbers, any of which may have any value. */
enum { LEAK_NUMBERS = offsetof(struct read_leaks, why) };

static void put_leaks(struct image_pipe *pipe, const struct read_leaks *leaks) {
    image_put_number(pipe, leaks != NULL);
    if (leaks == NULL) {
        return;
    }
    put(pipe, leaks, LEAK_NUMBERS);
    image_put_profile(pipe, leaks->profile);
    image_put_text(pipe, leaks->why);
}

static struct read_leaks *take_leaks(struct image_pipe *pipe) {
    if (!take_bool(pipe)) {
        return NULL;
    }
    struct read_leaks *leaks = must_zeroed(sizeof *leaks);
    take(pipe, leaks, LEAK_NUMBERS);
    leaks->profile = image_take_profile(pipe);
    if (leaks->profile != NULL) {
        leaks->why = take_kept(pipe, leaks->profile);
        pipe->has_failed |= !read_leaks_are_sound(leaks);
    }
    return leaks;
}

void image_put_run(struct image_pipe *pipe, const struct read_run *run) {
    put_facts(pipe, run);
    put_series(pipe, run);
    put_moments(pipe, run->moments, run->moment_count);
    put_moments(pipe, run->cpu, run->cpu_count);
    put_leaks(pipe, run->leaks);
}

struct read_run *image_take_run(struct image_pipe *pipe) {
    struct read_run *run = must_zeroed(sizeof *run);
    take_facts(pipe, run);
    take_series(pipe, run);
    run->moments = take_moments(pipe, &run->moment_count);
    run->cpu = take_moments(pipe, &run->cpu_count);
    run->leaks = take_leaks(pipe);
    if (pipe->has_failed) {
        read_run_free(run);
        return NULL;
    }
    return run;
}
