/* SPDX-License-Identifier: MIT
 *
 * estimate.h - how certain a sum of sampled values is: what each sample adds to its variance.
 *
 * An object of s bytes is sampled with probability p = 1 - e^(-s/R), where R is the period, and then stands
 * for 1/p of its kind.  A sample that stands for N objects of mean size s and is worth V adds
 * V^2/N * (1-p)/p  to the variance of a sum.  That is right where all have about that size; recordings of
 * ours say what the samples themselves have added.
 */
#pragma once

#include "profile/interval.h"
#include "profile/profile.h"

/* How the samples of a type are weighed: what estimate_row needs to know. */
struct estimate {
    uint32_t type, space, objects;
    bool has_pair, is_exact, is_unknown;
    double period, step; /* step: what one sample adds, without a pair */
    double unseen;       /* what lies between two samples; 0: any number of small objects */
    char grain[48];      /* the label that says more, contract/frames.h */
};
struct estimate estimate_of(const struct profile *profile, uint32_t type);

/* What a sample with these values, which stands for `count` objects of `bytes`, adds to the variance of a
 * sum: 0 where everything was recorded, negative where it is unknown. */
struct estimate_values {
    double value, count, bytes;
};
double estimate_row(const struct estimate *estimate, const struct profile *profile, uint32_t sample,
                    const struct estimate_values *values);

/* All that a sample adds to a sum.  The second: of all samples and types, in the order of
 * profile->values; to be freed.  NULL: nothing is uncertain.  The third: added up. */
struct interval_facts estimate_sample(const struct estimate *estimate,
                                      const struct profile *profile, uint32_t sample);
struct interval_facts *estimate_all(const struct profile *profile);
struct interval_facts estimate_total(const struct profile *profile, uint32_t type);

/* Does a label of a sample only serve the functions here? */
bool estimate_is_label(const struct profile_label *label);
