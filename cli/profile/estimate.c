/* SPDX-License-Identifier: MIT
 *
 * estimate.c - the variance of sums of objects and bytes, and of clock ticks, sample by sample.
 */
#include "profile/estimate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/cli.h"

struct estimate estimate_of(const struct profile *profile, uint32_t type) {
    struct estimate estimate = {.type = type, .period = (double)profile->period};
    const char *unit = profile->types[type].unit;
    bool is_time = strcmp(profile->period_type.unit, "nanoseconds") == 0;
    bool is_bytes = strcmp(unit, "bytes") == 0;
    estimate.has_pair = profile_find_pair(profile, type, &estimate.space, &estimate.objects);
    snprintf(estimate.grain, sizeof estimate.grain, "%s_grain", profile->types[type].name);
    if (profile->period <= 1) {
        /* Nobody knows what made folded stacks. */
        estimate.is_unknown = strcmp(profile->source, "folded") == 0;
        estimate.is_exact = !estimate.is_unknown;
        return estimate;
    }
    estimate.is_unknown = !estimate.has_pair && !is_bytes && !is_time;
    estimate.step = is_time && strcmp(unit, "nanoseconds") != 0 ? 1 : estimate.period;
    estimate.unseen = is_bytes || !estimate.has_pair ? estimate.step : 0;
    return estimate;
}

bool estimate_is_label(const struct profile_label *label) {
    size_t length = strlen(label->key), end = strlen("_grain");
    return label->text == NULL && length > end && strcmp(label->key + length - end, "_grain") == 0;
}

/* What the writer has found from the samples themselves, in thousandths; negative: nothing. */
static double grain_of(const struct estimate *estimate, const struct profile *profile,
                       uint32_t index) {
    const struct profile_sample *sample = &profile->samples[index];
    for (uint32_t i = 0; i < sample->label_count; i++) {
        const struct profile_label *label = &profile->labels[sample->labels + i];
        if (label->text == NULL && strcmp(label->key, estimate->grain) == 0) {
            return (double)label->number / 1000;
        }
    }
    return -1;
}

double estimate_row(const struct estimate *estimate, const struct profile *profile, uint32_t sample,
                    const struct estimate_values *values) {
    if (estimate->is_unknown || estimate->is_exact) {
        return estimate->is_unknown ? -1 : 0;
    }
    double value = fabs(values->value), count = fabs(values->count), bytes = fabs(values->bytes);
    double grain = grain_of(estimate, profile, sample);
    if (grain >= 0) {
        return value * grain;
    }
    if (estimate->has_pair && count > 0 && bytes > 0) {
        double p = -expm1(-bytes / count / estimate->period);
        return value * value / count * (1 - p) / p;
    }
    return value * estimate->step; /* small objects, ticks of a clock */
}

struct interval_facts estimate_sample(const struct estimate *estimate,
                                      const struct profile *profile, uint32_t sample) {
    bool has_pair = estimate->has_pair;
    struct estimate_values values = {
        .value = (double)profile_value(profile, sample, estimate->type),
        .count = has_pair ? (double)profile_value(profile, sample, estimate->objects) : 0,
        .bytes = has_pair ? (double)profile_value(profile, sample, estimate->space) : 0,
    };
    bool is_counted = has_pair && estimate->type != estimate->space;
    return interval_row(fabs(values.value), estimate_row(estimate, profile, sample, &values),
                        is_counted ? 0 : estimate->step);
}

struct interval_facts estimate_total(const struct profile *profile, uint32_t type) {
    struct estimate estimate = estimate_of(profile, type);
    struct interval_facts sum = {.variance = estimate.is_unknown ? -1 : 0};
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        interval_add(&sum, estimate_sample(&estimate, profile, i));
    }
    return sum;
}

struct interval_facts *estimate_all(const struct profile *profile) {
    size_t types = profile->type_count;
    if (types == 0 || estimate_of(profile, 0).is_exact) {
        return NULL;
    }
    struct interval_facts *all = must_alloc((profile->sample_count * types + 1) * sizeof *all);
    for (uint32_t type = 0; type < types; type++) {
        struct estimate estimate = estimate_of(profile, type);
        for (uint32_t i = 0; i < profile->sample_count; i++) {
            all[i * types + type] = estimate_sample(&estimate, profile, i);
        }
    }
    return all;
}
