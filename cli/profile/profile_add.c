/* SPDX-License-Identifier: MIT
 *
 * profile_add.c - one profile added to another, or subtracted: types are matched by name, and every part of
 * the other gets the number that it has here.
 */
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "profile/profile.h"

static int64_t multiply_saturated(int64_t value, int64_t factor) {
    int64_t product;
    if (__builtin_mul_overflow(value, factor, &product)) {
        return (value < 0) == (factor < 0) ? INT64_MAX : INT64_MIN;
    }
    return product;
}

/* Only the types that are marked stay. */
static void keep_types(struct profile *profile, const bool *is_kept) {
    uint32_t kept = 0;
    const char *shown = profile->types[profile->default_type].name;
    for (uint32_t type = 0; type < profile->type_count; type++) {
        if (is_kept[type]) {
            profile->types[kept++] = profile->types[type];
        }
    }
    int64_t *to = profile->values;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        for (uint32_t type = 0; type < profile->type_count; type++) {
            if (is_kept[type]) {
                *to++ = profile_value(profile, i, type);
            }
        }
    }
    profile->type_count = kept;
    uint32_t found = profile_find_type(profile, shown);
    profile->default_type = found != PROFILE_NONE ? found : kept > 0 ? kept - 1 : 0;
}

/* An empty profile becomes what the first one that is added to it is. */
static void adopt(struct profile *profile, const struct profile *other) {
    for (uint32_t type = 0; type < other->type_count; type++) {
        profile_add_type(profile, profile_text(profile, other->types[type].name, SIZE_MAX),
                         profile_text(profile, other->types[type].unit, SIZE_MAX));
    }
    profile->default_type = other->default_type;
    profile->period_type.name = profile_text(profile, other->period_type.name, SIZE_MAX);
    profile->period_type.unit = profile_text(profile, other->period_type.unit, SIZE_MAX);
    profile->period = other->period;
    profile->time_ns = other->time_ns;
    profile->duration_ns = other->duration_ns;
    profile->is_exact_leaf = other->is_exact_leaf;
    profile->source = profile_text(profile, other->source, SIZE_MAX);
}

/* Which column of `other` each type of `profile` is; those without one are dropped, with a warning. */
static void match_types(struct profile *profile, const struct profile *other,
                        struct profile_column *columns, int factor) {
    bool *is_kept = must_alloc((size_t)profile->type_count + 1);
    uint32_t kept = 0;
    for (uint32_t type = 0; type < profile->type_count; type++) {
        uint32_t column = profile_find_type(other, profile->types[type].name);
        is_kept[type] = column != PROFILE_NONE;
        if (is_kept[type]) {
            columns[kept++] = (struct profile_column){column, factor};
        } else {
            warn("only one of the profiles has %s: it is left out",
                 safe_text(profile->types[type].name));
        }
    }
    for (uint32_t column = 0; column < other->type_count; column++) {
        if (profile_find_type(profile, other->types[column].name) == PROFILE_NONE) {
            warn("only one of the profiles has %s: it is left out",
                 safe_text(other->types[column].name));
        }
    }
    if (kept < profile->type_count) {
        keep_types(profile, is_kept);
    }
    free(is_kept);
}

static bool are_equal_mappings(const struct profile_mapping *a, const struct profile_mapping *b) {
    return a->start == b->start && a->limit == b->limit && a->offset == b->offset &&
           a->path == b->path && a->build_id == b->build_id;
}

/* The numbers that parts of `other` have in `profile`. */
struct translation {
    uint32_t *mappings, *functions, *locations;
};

static uint32_t translate_mapping(struct profile *profile, const struct profile_mapping *from) {
    struct profile_mapping mapping = *from;
    mapping.path = profile_text(profile, from->path, SIZE_MAX);
    mapping.build_id = profile_text(profile, from->build_id, SIZE_MAX);
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        if (are_equal_mappings(&profile->mappings[i], &mapping)) {
            profile->mappings[i].has_functions |= mapping.has_functions;
            return i;
        }
    }
    return profile_add_mapping(profile, mapping);
}

static uint32_t translate_function(struct profile *profile, const struct profile_function *from) {
    return profile_add_function(
        profile, (struct profile_function){
                     .name = profile_text(profile, from->name, SIZE_MAX),
                     .system_name = profile_text(profile, from->system_name, SIZE_MAX),
                     .file = profile_text(profile, from->file, SIZE_MAX),
                     .start_line = from->start_line,
                 });
}

static uint32_t translate_location(struct profile *profile, const struct profile *other,
                                   const struct profile_location *from,
                                   const struct translation *to) {
    struct profile_line few[8], *lines = few;
    if (from->line_count > sizeof few / sizeof few[0]) {
        lines = must_alloc(from->line_count * sizeof *lines);
    }
    for (uint32_t i = 0; i < from->line_count; i++) {
        const struct profile_line *line = &other->lines[from->lines + i];
        lines[i] = (struct profile_line){to->functions[line->function], line->number};
    }
    uint32_t mapping = from->mapping == PROFILE_NONE ? PROFILE_NONE : to->mappings[from->mapping];
    uint32_t index = profile_add_location(profile, from->address, mapping, lines, from->line_count);
    if (lines != few) {
        free(lines);
    }
    return index;
}

static struct translation translate_parts(struct profile *profile, const struct profile *other) {
    struct translation to;
    to.mappings = must_alloc(((size_t)other->mapping_count + 1) * sizeof(uint32_t));
    to.functions = must_alloc(((size_t)other->function_count + 1) * sizeof(uint32_t));
    to.locations = must_alloc(((size_t)other->location_count + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < other->mapping_count; i++) {
        to.mappings[i] = translate_mapping(profile, &other->mappings[i]);
    }
    for (uint32_t i = 0; i < other->function_count; i++) {
        to.functions[i] = translate_function(profile, &other->functions[i]);
    }
    for (uint32_t i = 0; i < other->location_count; i++) {
        to.locations[i] = translate_location(profile, other, &other->locations[i], &to);
    }
    return to;
}

static struct profile_label translate_label(struct profile *profile,
                                            const struct profile_label *from) {
    return (struct profile_label){
        .key = profile_text(profile, from->key, SIZE_MAX),
        .text = from->text != NULL ? profile_text(profile, from->text, SIZE_MAX) : NULL,
        .number = from->number,
        .unit = profile_text(profile, from->unit, SIZE_MAX),
    };
}

/* Scratch of the loop over samples. */
struct row {
    uint32_t *stack;
    struct profile_label *labels;
    int64_t *values;
};

static void translate_sample(struct profile *profile, const struct profile *other, uint32_t index,
                             const uint32_t *locations, struct row *row) {
    const struct profile_sample *sample = &other->samples[index];
    row->stack = must_grow(row->stack, ((size_t)sample->depth + 1) * sizeof *row->stack);
    row->labels = must_grow(row->labels, ((size_t)sample->label_count + 1) * sizeof *row->labels);
    for (uint32_t i = 0; i < sample->depth; i++) {
        row->stack[i] = locations[other->stacks[sample->stack + i]];
    }
    for (uint32_t i = 0; i < sample->label_count; i++) {
        row->labels[i] = translate_label(profile, &other->labels[sample->labels + i]);
    }
    profile_add_sample(profile, row->stack, sample->depth, row->values, row->labels,
                       sample->label_count);
}

void profile_add_columns(struct profile *profile, const struct profile *other,
                         const struct profile_column *columns) {
    struct translation to = translate_parts(profile, other);
    struct row row = {.values = must_alloc(((size_t)profile->type_count + 1) * sizeof(int64_t))};
    for (uint32_t i = 0; i < other->sample_count; i++) {
        for (uint32_t type = 0; type < profile->type_count; type++) {
            row.values[type] = multiply_saturated(profile_value(other, i, columns[type].type),
                                                  columns[type].factor);
        }
        translate_sample(profile, other, i, to.locations, &row);
    }
    void *const scratch[] = {to.mappings, to.functions, to.locations,
                             row.stack,   row.labels,   row.values};
    for (size_t i = 0; i < sizeof scratch / sizeof scratch[0]; i++) {
        free(scratch[i]);
    }
}

void profile_add_profile(struct profile *profile, const struct profile *other, int factor) {
    if (profile->type_count == 0 && profile->sample_count == 0) {
        adopt(profile, other);
    }
    struct profile_column *columns =
        must_alloc(((size_t)profile->type_count + 1) * sizeof *columns);
    match_types(profile, other, columns, factor);
    profile_add_columns(profile, other, columns);
    for (uint32_t i = 0; i < other->comment_count; i++) {
        profile_add_comment(profile, profile_text(profile, other->comments[i], SIZE_MAX));
    }
    free(columns);
}
