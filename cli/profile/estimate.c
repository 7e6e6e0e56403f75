/* SPDX-License-Identifier: MIT
 *
 * estimate.c - the variance of sums of objects and bytes, and of clock ticks, sample by sample.
 */
#include "profile/estimate.h"

#include <math.h>
#include <string.h>

#include "common/cli.h"

struct estimate estimate_of(const struct profile *profile, uint32_t type) {
    struct estimate estimate = {.type = type, .period = (double)profile->period};
    const char *unit = profile->types[type].unit;
    bool is_time = strcmp(profile->period_type.unit, "nanoseconds") == 0;
    estimate.has_pair = profile_find_pair(profile, type, &estimate.space, &estimate.objects);
    if (profile->period <= 1) {
        /* Nobody knows what made folded stacks. */
        estimate.is_unknown = strcmp(profile->source, "folded") == 0;
        estimate.is_exact = !estimate.is_unknown;
        return estimate;
    }
    estimate.is_unknown = !estimate.has_pair && strcmp(unit, "bytes") != 0 && !is_time;
    estimate.step = is_time && strcmp(unit, "nanoseconds") != 0 ? 1 : estimate.period;
    return estimate;
}

double estimate_row(const struct estimate *estimate, double value, double count, double bytes) {
    if (estimate->is_unknown || estimate->is_exact) {
        return estimate->is_unknown ? -1 : 0;
    }
    value = fabs(value);
    count = fabs(count);
    bytes = fabs(bytes);
    if (estimate->has_pair && count > 0 && bytes > 0) {
        double p = -expm1(-bytes / count / estimate->period);
        return value * value / count * (1 - p) / p;
    }
    return value * estimate->step; /* small objects, ticks of a clock */
}

double estimate_sample(const struct estimate *estimate, const struct profile *profile,
                       uint32_t sample) {
    bool has_pair = estimate->has_pair;
    return estimate_row(estimate, (double)profile_value(profile, sample, estimate->type),
                        has_pair ? (double)profile_value(profile, sample, estimate->objects) : 0,
                        has_pair ? (double)profile_value(profile, sample, estimate->space) : 0);
}

double estimate_variance(const struct profile *profile, uint32_t type) {
    struct estimate estimate = estimate_of(profile, type);
    double sum = estimate.is_unknown ? -1 : 0;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        sum += estimate_sample(&estimate, profile, i);
    }
    return sum;
}

double *estimate_all(const struct profile *profile) {
    size_t types = profile->type_count;
    if (types == 0 || estimate_of(profile, 0).is_exact) {
        return NULL;
    }
    double *variances = must_alloc((profile->sample_count * types + 1) * sizeof *variances);
    for (uint32_t type = 0; type < types; type++) {
        struct estimate estimate = estimate_of(profile, type);
        for (uint32_t i = 0; i < profile->sample_count; i++) {
            variances[i * types + type] = estimate_sample(&estimate, profile, i);
        }
    }
    return variances;
}

double estimate_margin(double variance) {
    return 1.96 * sqrt(variance);
}
