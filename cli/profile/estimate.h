/* SPDX-License-Identifier: MIT
 *
 * estimate.h - how certain a sum of sampled values is: the one home of the 95 % interval.
 *
 * An object of s bytes is sampled with probability p = 1 - e^(-s/R), where R is the period, and then stands
 * for 1/p of its kind.  A sample that stands for N objects of mean size s and is worth V adds
 * V^2/N * (1-p)/p  to the variance of a sum.
 */
#pragma once

#include "profile/profile.h"

/* How the samples of a type are weighed: what estimate_row needs to know. */
struct estimate {
    uint32_t type, space, objects;
    bool has_pair, is_exact, is_unknown;
    double period, step; /* step: what one sample adds, without a pair */
};
struct estimate estimate_of(const struct profile *profile, uint32_t type);

/* What a sample of this value, which stands for `count` objects of `bytes`, adds to the variance of a sum:
 * 0 where everything was recorded, negative where it is unknown. */
double estimate_row(const struct estimate *estimate, double value, double count, double bytes);
double estimate_sample(const struct estimate *estimate, const struct profile *profile,
                       uint32_t sample);

/* The same for all samples and types, in the order of profile->values; to be freed.  NULL: all are 0. */
double *estimate_all(const struct profile *profile);

/* The variance of the sum of a type; 0 where everything was recorded, negative: unknown. */
double estimate_variance(const struct profile *profile, uint32_t type);

/* Half of the 95 % interval of a sum of this variance, in the unit of the sum. */
double estimate_margin(double variance);
