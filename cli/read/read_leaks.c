/* SPDX-License-Identifier: MIT
 *
 * read_leaks.c - what a leak check found, in the text that control/leaks.h describes.
 *
 * It becomes a profile with the types leak_objects and leak_space, whose label "kind" is definite,
 * indirect or possible.  Where only some allocations are recorded, a stack stands for more than it
 * was seen with, as in every profile; the sums are exact.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "read/read_text.h"

enum { DEPTH_MOST = 512, GROUPS_MOST = 1 << 20, MODULES_MOST = 1 << 16 };
/* The limits of one group and of all: sums of the most groups allowed stay far from overflow. */
static const int64_t group_most = INT64_C(1) << 41, all_most = INT64_C(1) << 60;

static const char first_line[] = "tally-leaks 1\n";

static const char *const sum_names[READ_LEAK_SUMS] = {"definite",  "indirect", "possible",
                                                      "reachable", "ignored",  "suppressed"};

/* A mapping comes after the addresses that lie in it. */
struct reader {
    struct read_leaks *leaks;
    struct text groups; /* the lines of groups and all after them */
    uint32_t group_count;
    bool has_end;
};

static bool is_leaks(const uint8_t *bytes, size_t length) {
    size_t first = sizeof first_line - 1;
    return length >= first && memcmp(bytes, first_line, first) == 0;
}

static bool take_count(struct text *line, int64_t *number) {
    return text_take_blanks(line) && text_take_decimal(line, number) && *number >= 0 &&
           *number <= all_most;
}

static bool take_sum(struct text *line, struct read_leak_sum *sum) {
    return take_count(line, &sum->objects) && take_count(line, &sum->bytes) &&
           take_count(line, &sum->requested);
}

/* "name NUMBER" and "name OBJECTS BYTES REQUESTED"; false for a line that is neither. */
static bool take_head(struct reader *reader, struct text line) {
    struct read_leaks *leaks = reader->leaks;
    struct {
        const char *name;
        int64_t *place;
    } counts[] = {
        {"heap", &leaks->heap},         {"roots", &leaks->roots},
        {"threads", &leaks->threads},   {"unanswered", &leaks->unanswered},
        {"pause_ns", &leaks->pause_ns}, {"total_ns", &leaks->total_ns},
        {"rate", &leaks->rate},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct text rest = line;
        if (text_take(&rest, counts[i].name) && take_count(&rest, counts[i].place)) {
            return text_is_empty(&rest);
        }
    }
    for (size_t i = 0; i < READ_LEAK_SUMS; i++) {
        struct text rest = line;
        if (text_take(&rest, sum_names[i]) && take_sum(&rest, &leaks->sums[i])) {
            return text_is_empty(&rest);
        }
    }
    struct text why = line;
    if (text_take(&why, "why ")) {
        leaks->why = profile_text(leaks->profile, why.at, (size_t)(why.end - why.at));
        return true;
    }
    return false;
}

static bool take_module(struct reader *reader, struct text line) {
    struct profile *profile = reader->leaks->profile;
    struct profile_mapping mapping = {.path = "", .build_id = ""};
    if (!text_take(&line, "module ") || !text_take_hex(&line, &mapping.start) ||
        !text_take_blanks(&line) || !text_take_hex(&line, &mapping.limit) ||
        !text_take_blanks(&line) || !text_take_hex(&line, &mapping.offset) ||
        !text_take_blanks(&line) || mapping.limit < mapping.start ||
        profile->mapping_count >= MODULES_MOST) {
        return false;
    }
    const char *blank = memchr(line.at, ' ', (size_t)(line.end - line.at));
    if (blank == NULL) {
        return false;
    }
    if (*line.at != '-') {
        mapping.build_id = profile_text(profile, line.at, (size_t)(blank - line.at));
    } else {
        mapping.build_id = profile_text(profile, "", 0);
    }
    mapping.path = profile_text(profile, blank + 1, (size_t)(line.end - blank - 1));
    profile_add_mapping(profile, mapping);
    return true;
}

static uint32_t find_mapping(const struct profile *profile, uint64_t address) {
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        if (address >= profile->mappings[i].start && address < profile->mappings[i].limit) {
            return i;
        }
    }
    return PROFILE_NONE;
}

/* The number of objects that a sampled one stands for. */
static double weight_of(const struct read_leaks *leaks, const struct read_leak_sum *sum) {
    if (leaks->rate <= 1 || sum->objects == 0) {
        return 1;
    }
    return 1 / -expm1(-(double)sum->bytes / (double)sum->objects / (double)leaks->rate);
}

static int64_t estimate(int64_t seen, double weight) {
    double all = (double)seen * weight;
    return all < (double)group_most ? llround(all) : group_most;
}

static bool take_addresses(struct profile *profile, struct text line, uint32_t *stack,
                           uint32_t *depth) {
    uint64_t address;
    *depth = 0;
    while (text_take_blanks(&line) && !text_is_empty(&line)) {
        if (*depth == DEPTH_MOST || !text_take_hex(&line, &address)) {
            return false;
        }
        stack[(*depth)++] =
            profile_add_location(profile, address, find_mapping(profile, address), NULL, 0);
    }
    return text_is_empty(&line);
}

static bool take_group(struct reader *reader, struct text line) {
    static uint32_t stack[DEPTH_MOST];
    struct profile *profile = reader->leaks->profile;
    struct read_leak_sum sum;
    int64_t usable;
    uint32_t kind = 0, depth;
    while (kind < READ_LEAK_REACHABLE && !text_take(&line, sum_names[kind])) {
        kind++;
    }
    if (kind == READ_LEAK_REACHABLE || !take_sum(&line, &sum) || sum.objects > group_most ||
        sum.requested > group_most || !take_count(&line, &usable) ||
        !take_addresses(profile, line, stack, &depth)) {
        return false;
    }
    double weight = depth > 0 ? weight_of(reader->leaks, &sum) : 1;
    const int64_t values[] = {estimate(sum.objects, weight), estimate(sum.requested, weight)};
    const struct profile_label labels[] = {
        {profile_text(profile, "kind", 4),
         profile_text(profile, sum_names[kind], strlen(sum_names[kind])), 0, ""},
        {profile_text(profile, "bytes", 5), NULL, usable, profile_text(profile, "bytes", 5)},
    };
    profile_add_sample(profile, stack, depth, values, labels, usable > 0 ? 2 : 1);
    return true;
}

static uint32_t kind_of(const struct profile *profile, uint32_t sample) {
    const struct profile_label *label = &profile->labels[profile->samples[sample].labels];
    uint32_t kind = 0;
    while (strcmp(label->text, sum_names[kind]) != 0) {
        kind++;
    }
    return kind;
}

/*
 * Makes the samples of a kind add up to its sum where only some objects are recorded.  What stacks
 * stand for is taken from the part without one; if that is too little, they share the sum.
 */
static void settle_kind(struct read_leaks *leaks, uint32_t kind) {
    struct profile *profile = leaks->profile;
    const int64_t exact[] = {leaks->sums[kind].objects, leaks->sums[kind].requested};
    for (uint32_t type = 0; type < 2; type++) {
        double with_stack = 0, without = 0;
        for (uint32_t i = 0; i < profile->sample_count; i++) {
            if (kind_of(profile, i) == kind) {
                *(profile->samples[i].depth > 0 ? &with_stack : &without) +=
                    (double)profile_value(profile, i, type);
            }
        }
        double all = (double)exact[type];
        double share = with_stack > all ? all / with_stack : 1;
        double rest = without > 0 && all > with_stack ? (all - with_stack) / without : 0;
        for (uint32_t i = 0; i < profile->sample_count; i++) {
            int64_t *value = &profile->values[(size_t)i * profile->type_count + type];
            if (kind_of(profile, i) == kind) {
                *value = llround((double)*value * (profile->samples[i].depth > 0 ? share : rest));
            }
        }
    }
}

/* Everything but groups, whose lines are counted. */
static bool take_lines(struct reader *reader, struct text text) {
    struct text_lines lines = {text, 0};
    struct text line;
    while (text_next_line(&lines, &line)) {
        if (text_starts_with(&line, "group ")) {
            reader->group_count++;
        } else if (text_starts_with(&line, "end")) {
            reader->has_end = true;
        } else if (text_starts_with(&line, "module ")) {
            if (!take_module(reader, line)) {
                return false;
            }
        } else if (lines.number > 1 && !take_head(reader, line)) {
            return false;
        }
    }
    return reader->group_count <= GROUPS_MOST;
}

static bool take_groups(struct reader *reader, struct text text) {
    struct text_lines lines = {text, 0};
    struct text line;
    while (text_next_line(&lines, &line)) {
        if (text_take(&line, "group ") && !take_group(reader, line)) {
            return false;
        }
    }
    return true;
}

static struct read_leaks *new_leaks(void) {
    struct read_leaks *leaks = must_zeroed(sizeof *leaks);
    struct profile *profile = profile_new();
    leaks->profile = profile;
    leaks->why = "";
    profile_add_type(profile, "leak_objects", "count");
    profile->default_type = profile_add_type(profile, "leak_space", "bytes");
    profile->source = profile_text(profile, "leaks", 5);
    return leaks;
}

struct read_leaks *read_leaks(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]) {
    struct text text = {(const char *)bytes, (const char *)bytes + length};
    if (!is_leaks(bytes, length)) {
        read_damage(why, "it is no result of a leak check");
        return NULL;
    }
    struct reader reader = {.leaks = new_leaks()};
    bool is_done = take_lines(&reader, text) && take_groups(&reader, text);
    if (!is_done || !reader.has_end) {
        read_damage(why, is_done ? "it was cut before its end"
                                 : "a line of it is not one of a leak check");
        read_leaks_free(reader.leaks);
        return NULL;
    }
    for (uint32_t kind = 0; reader.leaks->rate > 1 && kind < READ_LEAK_REACHABLE; kind++) {
        settle_kind(reader.leaks, kind);
    }
    reader.leaks->profile->period = reader.leaks->rate;
    return reader.leaks;
}

static bool is_amount(int64_t number) {
    return number >= 0 && number <= all_most;
}

bool read_leaks_are_sound(const struct read_leaks *leaks) {
    const struct profile *profile = leaks->profile;
    const int64_t counts[] = {leaks->heap,     leaks->roots,    leaks->threads, leaks->unanswered,
                              leaks->pause_ns, leaks->total_ns, leaks->rate};
    bool is_sound = profile->type_count == 2 && profile->sample_count <= GROUPS_MOST &&
                    strcmp(profile->types[0].name, "leak_objects") == 0 &&
                    strcmp(profile->types[1].name, "leak_space") == 0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        is_sound &= is_amount(counts[i]);
    }
    for (size_t i = 0; i < READ_LEAK_SUMS; i++) {
        const struct read_leak_sum *sum = &leaks->sums[i];
        is_sound &= is_amount(sum->objects) && is_amount(sum->bytes) && is_amount(sum->requested);
    }
    uint64_t total = 0; /* of both types, and far from overflow */
    for (size_t i = 0; is_sound && i < (size_t)profile->sample_count * 2; i++) {
        total += (uint64_t)profile->values[i];
        is_sound = is_amount(profile->values[i]) && total <= INT64_MAX;
    }
    return is_sound;
}

void read_leaks_free(struct read_leaks *leaks) {
    if (leaks != NULL) {
        profile_free(leaks->profile);
        free(leaks);
    }
}
