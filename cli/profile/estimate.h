/* SPDX-License-Identifier: MIT
 *
 * estimate.h - how certain a sum of sampled values is.
 *
 * An object of s bytes is sampled with probability p = 1 - e^(-s/R), where R is the period, and then stands
 * for 1/p of its kind.  A sample that stands for N objects of mean size s and is worth V adds
 * V^2/N * (1-p)/p  to the variance of a sum.  That is right where all have about that size; recordings of
 * ours say what the samples themselves have added.
 */
#pragma once

#include "profile/interval.h"
#include "profile/profile.h"

/* The variance of the sum of a type; 0 where everything was recorded, negative: unknown. */
double estimate_variance(const struct profile *profile, uint32_t type);

/* Does a label of a sample only serve the functions here? */
bool estimate_is_label(const struct profile_label *label);

/* The 95 % interval of the sum; the sum itself where there is no variance. */
struct interval estimate_interval(const struct profile *profile, uint32_t type);

/* The interval as a share of the sum, which is above 0: "± 3.9 %", or "-38 +62 %" where the sides differ. */
enum { ESTIMATE_TEXT = 64 };
void estimate_print(char text[ESTIMATE_TEXT], struct interval interval, double sum);

/* Half of the 95 % interval of a difference of this variance, in the unit of the sum. */
double estimate_margin(double variance);
