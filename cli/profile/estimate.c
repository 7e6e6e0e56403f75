/* SPDX-License-Identifier: MIT
 *
 * estimate.c - the variance of sums of objects and bytes, and of clock ticks.
 */
#include "profile/estimate.h"

#include <math.h>
#include <string.h>

double estimate_variance(const struct profile *profile, uint32_t type) {
    if (profile->period <= 1) {
        return strcmp(profile->source, "folded") == 0 ? -1 : 0; /* nobody knows what made those */
    }
    double period = (double)profile->period, sum = 0;
    bool is_time = strcmp(profile->period_type.unit, "nanoseconds") == 0;
    uint32_t space, objects;
    bool has_pair = profile_find_pair(profile, type, &space, &objects);
    const char *unit = profile->types[type].unit;
    if (!has_pair && strcmp(unit, "bytes") != 0 && !is_time) {
        return -1;
    }
    /* What one sample adds. */
    double step = is_time && strcmp(unit, "nanoseconds") != 0 ? 1 : period;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        double value = fabs((double)profile_value(profile, i, type));
        double count = has_pair ? fabs((double)profile_value(profile, i, objects)) : 0;
        double bytes = has_pair ? fabs((double)profile_value(profile, i, space)) : 0;
        if (count > 0 && bytes > 0) {
            double p = -expm1(-bytes / count / period);
            sum += value * value / count * (1 - p) / p;
        } else {
            sum += value * step; /* small objects, ticks of a clock */
        }
    }
    return sum;
}

double estimate_margin(double variance) {
    return 1.96 * sqrt(variance);
}
