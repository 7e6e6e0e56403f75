/* SPDX-License-Identifier: MIT
 *
 * site.c - groups samples by their innermost frames.
 *
 * Texts of a profile are shared when they are equal, so keys are made of their addresses.
 */
#include "select/site.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"

static uint64_t key_of(const void *text) {
    return (uint64_t)(uintptr_t)text;
}

/* Where an address lies in its module's file, so that runs at other addresses compare. */
static uint64_t address_in_file(const struct profile *profile, const struct profile_location *at) {
    const struct profile_mapping *mapping = &profile->mappings[at->mapping];
    return at->address - mapping->start + mapping->offset;
}

uint32_t site_number(struct keys *keys, const struct profile *profile, uint32_t location,
                     uint32_t line, enum select_by by) {
    const struct profile_location *at = &profile->locations[location];
    bool has_line = line < at->line_count, has_module = at->mapping < profile->mapping_count;
    const char *module = has_module ? profile->mappings[at->mapping].path : NULL;
    if (by == BY_MODULES && has_module) {
        return keys_add(keys, key_of(module), 2, 0);
    }
    if (by == BY_FILES && !has_line) {
        return keys_add(keys, 0, 4, 0);
    }
    if (!has_line || (by == BY_ADDRESSES && at->address != 0)) {
        return keys_add(keys, key_of(module), 1,
                        has_module ? address_in_file(profile, at) : at->address);
    }
    const struct profile_line *row = &profile->lines[at->lines + line];
    const struct profile_function *function = &profile->functions[row->function];
    if (by == BY_FILES) {
        return keys_add(keys, function->file[0] != '\0' ? key_of(function->file) : 0, 4, 0);
    }
    /* A function without module, such as a tag, is its own module. */
    return keys_add(keys, key_of(function->name), key_of(function->file) | UINT64_C(1) << 63,
                    by == BY_LINES ? row->number : 0);
}

void site_text(const struct profile *profile, uint32_t location, uint32_t line,
               char text[SITE_TEXT_BYTES]) {
    const struct profile_location *at = &profile->locations[location];
    if (line < at->line_count) {
        const struct profile_line *row = &profile->lines[at->lines + line];
        const struct profile_function *function = &profile->functions[row->function];
        if (row->number > 0 && function->file[0] != '\0') {
            snprintf(text, SITE_TEXT_BYTES, "%.150s (%.80s:%u)", safe_text(function->name),
                     safe_text(base_name(function->file)), row->number);
        } else {
            snprintf(text, SITE_TEXT_BYTES, "%.200s", safe_text(function->name));
        }
    } else if (at->mapping < profile->mapping_count) {
        snprintf(text, SITE_TEXT_BYTES, "%.150s+0x%" PRIx64,
                 safe_text(base_name(profile->mappings[at->mapping].path)),
                 address_in_file(profile, at));
    } else {
        snprintf(text, SITE_TEXT_BYTES, "0x%" PRIx64, at->address);
    }
}

/* A sample and what it weighs. */
struct weight {
    uint64_t size;
    uint32_t sample;
};

static int compare_weights(const void *a, const void *b) {
    const struct weight *left = a, *right = b;
    return left->size != right->size
               ? (left->size < right->size) - (left->size > right->size)
               : (left->sample > right->sample) - (left->sample < right->sample);
}

/* Samples that have a stack, the heaviest first; to be freed. */
static struct weight *weigh_samples(const struct profile *profile, uint32_t type, uint32_t *count) {
    struct weight *weights = must_alloc(((size_t)profile->sample_count + 1) * sizeof *weights);
    *count = 0;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        if (profile->samples[i].depth > 0) {
            weights[(*count)++] =
                (struct weight){profile_magnitude(profile_value(profile, i, type)), i};
        }
    }
    qsort(weights, *count, sizeof *weights, compare_weights);
    return weights;
}

/* By value, then by the first type, then by name; values lie in order of appearance. */
static int compare_sites(const void *a, const void *b) {
    const struct site *left = a, *right = b;
    if (profile_magnitude(left->value) != profile_magnitude(right->value)) {
        return profile_magnitude(left->value) > profile_magnitude(right->value) ? -1 : 1;
    }
    if (profile_magnitude(left->values[0]) != profile_magnitude(right->values[0])) {
        return profile_magnitude(left->values[0]) > profile_magnitude(right->values[0]) ? -1 : 1;
    }
    int order = strcmp(left->name, right->name);
    return order != 0 ? order : (left->values > right->values) - (left->values < right->values);
}

static struct site new_site(const struct profile *profile, uint32_t sample, const char *label) {
    uint32_t location = profile->stacks[profile->samples[sample].stack];
    const struct profile_location *at = &profile->locations[location];
    const char *name =
        at->line_count > 0 ? profile->functions[profile->lines[at->lines].function].name : "";
    return (struct site){.location = location, .sample = sample, .name = name, .label = label};
}

/* Drops sites without a value and sorts the rest. */
static void settle(struct sites *sites, uint32_t columns) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < sites->count; i++) {
        bool is_empty = true;
        for (uint32_t type = 0; type < columns; type++) {
            is_empty &= sites->rows[i].values[type] == 0;
        }
        if (!is_empty) {
            sites->rows[kept++] = sites->rows[i];
        }
    }
    sites->count = kept;
    qsort(sites->rows, kept, sizeof *sites->rows, compare_sites);
}

void sites_collect(struct sites *sites, const struct profile *profile, uint32_t type,
                   enum select_by by, const char *label, const struct interval_facts *facts) {
    static const char no_label[] = "";
    struct keys frames = {0}, keys = {0};
    uint32_t count, columns = profile->type_count;
    struct weight *weights = weigh_samples(profile, type, &count);
    size_t room = (size_t)count * columns + 1;
    *sites = (struct sites){.rows = must_alloc(((size_t)count + 1) * sizeof *sites->rows),
                            .values = must_zeroed(room * sizeof *sites->values),
                            .facts = facts != NULL ? must_zeroed(room * sizeof *facts) : NULL};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t sample = weights[i].sample;
        const char *text = label != NULL ? profile_label(profile, sample, label) : no_label;
        struct site site = new_site(profile, sample, text);
        uint32_t frame = site_number(&frames, profile, site.location, 0, by);
        uint32_t number = keys_add(&keys, frame, key_of(text), 0);
        int64_t *values = sites->values + (size_t)number * columns;
        for (uint32_t j = 0; j < columns; j++) {
            values[j] = profile_sum(values[j], profile_value(profile, sample, j));
        }
        struct interval_facts *sums =
            facts != NULL ? sites->facts + (size_t)number * columns : NULL;
        for (uint32_t j = 0; sums != NULL && j < columns; j++) {
            interval_add(&sums[j], facts[(size_t)sample * columns + j]);
        }
        if (number == sites->count) { /* its heaviest sample comes first */
            sites->rows[sites->count++] = site;
        }
        sites->rows[number].values = values;
        sites->rows[number].facts = sums;
        sites->rows[number].value = values[type];
    }
    settle(sites, columns);
    keys_free(&frames);
    keys_free(&keys);
    free(weights);
}

void sites_free(struct sites *sites) {
    free(sites->rows);
    free(sites->values);
    free(sites->facts);
    *sites = (struct sites){0};
}
