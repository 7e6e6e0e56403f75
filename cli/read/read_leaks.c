/* SPDX-License-Identifier: MIT
 *
 * read_leaks.c - what a leak check found, in the text that control/leaks.h describes.
 *
 * It becomes a profile with the types leak_objects and leak_space, whose label "kind" is definite,
 * indirect or possible; and of definite ones, leak_below_objects and leak_below_space: indirect objects that hang
 * on them.  Where only some allocations are recorded, a stack stands for more than it was seen with, as in every
 * profile; the sums are exact, and what stacks do not stand for has a sample without one, so that samples always
 * add up to the sums.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "read/read_text.h"

enum { DEPTH_MOST = 512, GROUPS_MOST = 1 << 20, MODULES_MOST = 1 << 16 };
enum { OBJECTS, SPACE, BELOW_OBJECTS, BELOW_SPACE, TYPES }; /* of the profile */
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
    int64_t *last; /* values of the last group, or NULL */
    double weight; /* its */
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

static void add_sample(struct profile *profile, uint32_t kind, const uint32_t *stack,
                       uint32_t depth, const int64_t values[TYPES], int64_t usable) {
    const struct profile_label labels[] = {
        {profile_text(profile, "kind", 4),
         profile_text(profile, sum_names[kind], strlen(sum_names[kind])), 0, ""},
        {profile_text(profile, "bytes", 5), NULL, usable, profile_text(profile, "bytes", 5)},
    };
    profile_add_sample(profile, stack, depth, values, labels, usable > 0 ? 2 : 1);
}

/* What hangs below the group of the line before. */
static bool take_below(struct reader *reader, struct text line) {
    struct read_leak_sum sum;
    if (reader->last == NULL || !take_sum(&line, &sum) || !text_is_empty(&line) ||
        sum.objects > group_most || sum.requested > group_most) {
        return false;
    }
    reader->last[BELOW_OBJECTS] = estimate(sum.objects, reader->weight);
    reader->last[BELOW_SPACE] = estimate(sum.requested, reader->weight);
    reader->last = NULL;
    return true;
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
    reader->weight = depth > 0 ? weight_of(reader->leaks, &sum) : 1;
    const int64_t values[TYPES] = {estimate(sum.objects, reader->weight),
                                   estimate(sum.requested, reader->weight)};
    add_sample(profile, kind, stack, depth, values, usable);
    size_t at = (size_t)(profile->sample_count - 1) * TYPES;
    reader->last = kind == READ_LEAK_DEFINITE ? &profile->values[at] : NULL;
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

/* Where not everything is recorded, objects without a stack are what those with one do not stand for. */
static bool is_told(const struct read_leaks *leaks, uint32_t kind, uint32_t sample) {
    return kind_of(leaks->profile, sample) == kind &&
           (leaks->rate <= 1 || leaks->profile->samples[sample].depth > 0);
}

/* What all samples of a kind that are told as they are have of each type. */
static void add_told(const struct read_leaks *leaks, uint32_t kind, int64_t told[TYPES]) {
    const struct profile *profile = leaks->profile;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        for (uint32_t type = 0; is_told(leaks, kind, i) && type < TYPES; type++) {
            told[type] += profile_value(profile, i, type);
        }
    }
}

/* Takes shares of samples that are told, and nothing of the others of the kind.  What is lost by rounding goes to
 * the first, if all is to be told. */
static void take_shares(struct read_leaks *leaks, uint32_t kind, uint32_t type, double share,
                        int64_t exact) {
    const struct profile *profile = leaks->profile;
    int64_t *first = NULL;
    int64_t rest = exact;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        int64_t *value = &profile->values[(size_t)i * TYPES + type];
        if (kind_of(profile, i) == kind) {
            bool is_kept = is_told(leaks, kind, i);
            first = is_kept && first == NULL && *value > 0 ? value : first;
            *value = is_kept ? (int64_t)((double)*value * share) : 0;
            rest -= *value;
        }
    }
    if (share != 1 && first != NULL && *first + rest >= 0) {
        *first += rest;
    }
}

/*
 * Objects and their bytes: where stacks stand for all of one, they stand for all of the other, or blocks would be left
 * that have no bytes.
 */
static void settle_pair(struct read_leaks *leaks, uint32_t kind, uint32_t first,
                        const struct read_leak_sum *sum) {
    const int64_t exact[] = {sum->objects, sum->requested};
    int64_t told[TYPES] = {0};
    add_told(leaks, kind, told);
    bool is_all = told[first] > exact[0] || told[first + 1] > exact[1];
    for (uint32_t i = 0; i < 2; i++) {
        double share =
            is_all && told[first + i] > 0 ? (double)exact[i] / (double)told[first + i] : 1;
        take_shares(leaks, kind, first + i, share, exact[i]);
    }
}

/*
 * Makes the samples of a kind add up to its sum, and what hangs below definite ones to the sum of indirect ones.
 * What stacks stand for is taken from the part without one; if that is too little, they share the sum.
 */
static void settle_kind(struct read_leaks *leaks, uint32_t kind) {
    const struct read_leak_sum none = {0};
    const struct read_leak_sum *sum = &leaks->sums[kind];
    const struct read_leak_sum *below =
        kind == READ_LEAK_DEFINITE ? &leaks->sums[READ_LEAK_INDIRECT] : &none;
    const int64_t exact[TYPES] = {sum->objects, sum->requested, below->objects, below->requested};
    int64_t told[TYPES] = {0}, rest[TYPES] = {0};
    settle_pair(leaks, kind, OBJECTS, sum);
    settle_pair(leaks, kind, BELOW_OBJECTS, below);
    add_told(leaks, kind, told);
    bool has_rest = false;
    for (uint32_t type = 0; type < TYPES; type++) {
        rest[type] = exact[type] > told[type] ? exact[type] - told[type] : 0;
        has_rest |= rest[type] > 0;
    }
    if (has_rest) {
        add_sample(leaks->profile, kind, NULL, 0, rest, 0);
    }
}

/* How many sizes are those of the class: of objects that no stack is known of. */
static void count_rounded(struct read_leaks *leaks) {
    const struct profile *profile = leaks->profile;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        bool is_lost = kind_of(profile, i) < READ_LEAK_POSSIBLE;
        leaks->rounded +=
            is_lost && profile->samples[i].depth == 0 ? profile_value(profile, i, 0) : 0;
    }
}

/* Everything but groups, whose lines are counted. */
static bool take_lines(struct reader *reader, struct text text) {
    struct text_lines lines = {text, 0};
    struct text line;
    while (text_next_line(&lines, &line)) {
        if (text_starts_with(&line, "group ")) {
            reader->group_count++;
        } else if (text_starts_with(&line, "below ")) {
            continue;
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
        struct text below = line;
        if (text_take(&line, "group ") ? !take_group(reader, line)
                                       : text_take(&below, "below") && !take_below(reader, below)) {
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
    profile_add_type(profile, "leak_below_objects", "count");
    profile_add_type(profile, "leak_below_space", "bytes");
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
    count_rounded(reader.leaks);
    for (uint32_t kind = 0; kind < READ_LEAK_REACHABLE; kind++) {
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
                              leaks->pause_ns, leaks->total_ns, leaks->rate,    leaks->rounded};
    bool is_sound = profile->type_count == TYPES &&
                    profile->sample_count <= GROUPS_MOST + READ_LEAK_REACHABLE &&
                    strcmp(profile->types[0].name, "leak_objects") == 0 &&
                    strcmp(profile->types[1].name, "leak_space") == 0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        is_sound &= is_amount(counts[i]);
    }
    for (size_t i = 0; i < READ_LEAK_SUMS; i++) {
        const struct read_leak_sum *sum = &leaks->sums[i];
        is_sound &= is_amount(sum->objects) && is_amount(sum->bytes) && is_amount(sum->requested);
    }
    uint64_t total = 0; /* of all types, and far from overflow */
    for (size_t i = 0; is_sound && i < (size_t)profile->sample_count * TYPES; i++) {
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
