/* SPDX-License-Identifier: MIT
 *
 * profile_add.c - one profile added to another, or subtracted: types are matched by name, and every part of
 * the other gets the number that it has here.
 */
#include <stdlib.h>

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

void profile_adopt(struct profile *profile, const struct profile *other) {
    for (uint32_t type = 0; type < other->type_count; type++) {
        profile_add_type(profile, other->types[type].name, other->types[type].unit);
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

uint32_t *profile_copy_mappings(struct profile *profile, const struct profile *other) {
    uint32_t *mappings = must_alloc(((size_t)other->mapping_count + 1) * sizeof *mappings);
    for (uint32_t i = 0; i < other->mapping_count; i++) {
        mappings[i] = translate_mapping(profile, &other->mappings[i]);
    }
    return mappings;
}

uint32_t *profile_copy_functions(struct profile *profile, const struct profile *other) {
    uint32_t *functions = must_alloc(((size_t)other->function_count + 1) * sizeof *functions);
    for (uint32_t i = 0; i < other->function_count; i++) {
        functions[i] = translate_function(profile, &other->functions[i]);
    }
    return functions;
}

struct profile_label *profile_copy_labels(struct profile *profile, const struct profile *other,
                                          const struct profile_sample *sample) {
    struct profile_label *labels = must_alloc(((size_t)sample->label_count + 1) * sizeof *labels);
    for (uint32_t i = 0; i < sample->label_count; i++) {
        const struct profile_label *from = &other->labels[sample->labels + i];
        labels[i] = (struct profile_label){
            .key = profile_text(profile, from->key, SIZE_MAX),
            .text = from->text != NULL ? profile_text(profile, from->text, SIZE_MAX) : NULL,
            .number = from->number,
            .unit = profile_text(profile, from->unit, SIZE_MAX),
        };
    }
    return labels;
}

static uint32_t *copy_locations(struct profile *profile, const struct profile *other) {
    uint32_t *locations = must_alloc(((size_t)other->location_count + 1) * sizeof *locations);
    uint32_t *mappings = profile_copy_mappings(profile, other);
    uint32_t *functions = profile_copy_functions(profile, other);
    struct profile_line *lines = NULL;
    for (uint32_t i = 0; i < other->location_count; i++) {
        const struct profile_location *from = &other->locations[i];
        lines = must_grow(lines, ((size_t)from->line_count + 1) * sizeof *lines);
        for (uint32_t j = 0; j < from->line_count; j++) {
            const struct profile_line *line = &other->lines[from->lines + j];
            lines[j] = (struct profile_line){functions[line->function], line->number};
        }
        uint32_t mapping = from->mapping == PROFILE_NONE ? PROFILE_NONE : mappings[from->mapping];
        locations[i] =
            profile_add_location(profile, from->address, mapping, lines, from->line_count);
    }
    free(lines);
    free(mappings);
    free(functions);
    return locations;
}

void profile_add_columns(struct profile *profile, const struct profile *other,
                         const struct profile_column *columns) {
    uint32_t *locations = copy_locations(profile, other), *stack = NULL;
    int64_t *values = must_alloc(((size_t)profile->type_count + 1) * sizeof *values);
    for (uint32_t i = 0; i < other->sample_count; i++) {
        const struct profile_sample *sample = &other->samples[i];
        for (uint32_t type = 0; type < profile->type_count; type++) {
            values[type] = multiply_saturated(profile_value(other, i, columns[type].type),
                                              columns[type].factor);
        }
        stack = must_grow(stack, ((size_t)sample->depth + 1) * sizeof *stack);
        for (uint32_t j = 0; j < sample->depth; j++) {
            stack[j] = locations[other->stacks[sample->stack + j]];
        }
        struct profile_label *labels = profile_copy_labels(profile, other, sample);
        profile_add_sample(profile, stack, sample->depth, values, labels, sample->label_count);
        free(labels);
    }
    free(locations);
    free(stack);
    free(values);
}

void profile_add_profile(struct profile *profile, const struct profile *other, int factor) {
    profile->counted_live = 0;
    if (profile->type_count == 0 && profile->sample_count == 0) {
        profile_adopt(profile, other);
    }
    struct profile_column *columns =
        must_alloc(((size_t)profile->type_count + 1) * sizeof *columns);
    match_types(profile, other, columns, factor);
    profile_add_columns(profile, other, columns);
    for (uint32_t i = 0; i < other->comment_count; i++) {
        profile_add_comment(profile, other->comments[i]);
    }
    free(columns);
}
