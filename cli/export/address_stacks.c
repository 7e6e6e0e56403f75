/* SPDX-License-Identifier: MIT
 *
 * address_stacks.c - stacks of bare addresses, for the old formats.
 */
#define _GNU_SOURCE /* qsort_r */
#include "export/address_stacks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/escape.h"
#include "export/frame_table.h"

static uint32_t find_pair(const struct profile *profile, const char *prefix, int length,
                          const char *what) {
    char name[64];
    snprintf(name, sizeof(name), "%.*s%s", length, prefix, what);
    return profile_find_type(profile, name);
}

bool address_find_types(const struct profile *profile, struct heap_types *types) {
    *types =
        (struct heap_types){PROFILE_NONE, PROFILE_NONE, profile_find_type(profile, "alloc_objects"),
                            profile_find_type(profile, "alloc_space")};
    const char *metric = profile->type_count > 0 ? profile->types[profile->default_type].name : "";
    const char *end = strchr(metric, '_');
    const char *prefixes[] = {metric, "inuse_", ""};
    int lengths[] = {end != NULL && end - metric < 32 ? (int)(end - metric) + 1 : 0, 6, 0};
    for (int i = strncmp(metric, "alloc_", 6) == 0; i < 3; i++) {
        types->objects = find_pair(profile, prefixes[i], lengths[i], "objects");
        types->bytes = find_pair(profile, prefixes[i], lengths[i], "space");
        if (types->objects != PROFILE_NONE && types->bytes != PROFILE_NONE) {
            return true;
        }
    }
    types->objects = types->bytes = PROFILE_NONE;
    if (types->ever_objects != PROFILE_NONE && types->ever_bytes != PROFILE_NONE) {
        return true;
    }
    return decline("this is no profile of a heap: it has no objects with bytes");
}

bool address_are_there(const struct profile *profile, const char *format) {
    for (uint32_t i = 0; i < profile->stack_count; i++) {
        if (profile->locations[profile->stacks[i]].address != 0) {
            return true;
        }
    }
    if (profile->stack_count == 0) {
        return true;
    }
    return decline("this profile has names and no addresses, and %s has no room for names", format);
}

uint32_t address_get(const struct profile *profile, uint32_t sample, uint64_t *addresses) {
    const struct profile_sample *row = &profile->samples[sample];
    uint32_t count = 0;
    for (uint32_t i = 0; i < row->depth; i++) {
        uint64_t address = profile->locations[profile->stacks[row->stack + i]].address;
        if (address != 0) { /* frames that are labels have none */
            addresses[count] = address + (count > 0 && address < UINT64_MAX);
            count++;
        }
    }
    if (count == 0) {
        addresses[count++] = 1;
    }
    return count;
}

static int compare_stacks(const struct profile *profile, uint32_t sample, uint32_t other) {
    const struct profile_sample *a = &profile->samples[sample], *b = &profile->samples[other];
    uint32_t i = 0, k = 0;
    for (;;) {
        uint64_t left = 0, right = 0;
        while (i < a->depth && left == 0) {
            left = profile->locations[profile->stacks[a->stack + i++]].address;
        }
        while (k < b->depth && right == 0) {
            right = profile->locations[profile->stacks[b->stack + k++]].address;
        }
        if (left != right) {
            return left < right ? -1 : 1;
        }
        if (left == 0) {
            return 0;
        }
    }
}

bool address_is_same(const struct profile *profile, uint32_t sample, uint32_t other) {
    return compare_stacks(profile, sample, other) == 0;
}

struct order {
    const struct profile *profile;
    const char *label;
};

static int compare_samples(const void *left, const void *right, void *context) {
    const struct order *order = context;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    int stacks = compare_stacks(order->profile, a, b);
    if (stacks != 0) {
        return stacks;
    }
    int labels = strcmp(profile_label(order->profile, a, order->label),
                        profile_label(order->profile, b, order->label));
    return labels != 0 ? labels : (a > b) - (a < b);
}

uint32_t *address_order(const struct profile *profile, const char *label) {
    uint32_t *samples = must_alloc((profile->sample_count + (size_t)1) * sizeof(*samples));
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        samples[i] = i;
    }
    struct order order = {profile, label};
    qsort_r(samples, profile->sample_count, sizeof(*samples), compare_samples, &order);
    return samples;
}

static int64_t read_value(const struct profile *profile, uint32_t sample, uint32_t type,
                          bool *is_negative) {
    int64_t value = type != PROFILE_NONE ? profile_value(profile, sample, type) : 0;
    *is_negative |= value < 0;
    return value > 0 ? value : 0;
}

void address_add(const struct profile *profile, uint32_t sample, const struct heap_types *types,
                 struct heap_counts *counts, uint32_t *negative) {
    bool is_negative = false;
    struct heap_counts of = {
        read_value(profile, sample, types->objects, &is_negative),
        read_value(profile, sample, types->bytes, &is_negative),
        read_value(profile, sample, types->ever_objects, &is_negative),
        read_value(profile, sample, types->ever_bytes, &is_negative),
    };
    counts->objects = profile_sum(counts->objects, of.objects);
    counts->bytes = profile_sum(counts->bytes, of.bytes);
    counts->ever_objects = profile_sum(counts->ever_objects, of.ever_objects);
    counts->ever_bytes = profile_sum(counts->ever_bytes, of.ever_bytes);
    *negative += is_negative;
}

void address_write_maps(FILE *file, const struct profile *profile) {
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        const struct profile_mapping *mapping = &profile->mappings[i];
        if (mapping->start < mapping->limit && mapping->path[0] != '\0') {
            fprintf(file, "%08" PRIx64 "-%08" PRIx64 " r-xp %08" PRIx64 " 00:00 0 ", mapping->start,
                    mapping->limit, mapping->offset);
            escape_maps(file, mapping->path);
            putc('\n', file);
        }
    }
}
