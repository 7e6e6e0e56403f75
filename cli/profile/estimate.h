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

/* The variance of the sum of a type; 0 where everything was recorded, negative: unknown. */
double estimate_variance(const struct profile *profile, uint32_t type);

/* Half of the 95 % interval of a sum of this variance, in the unit of the sum. */
double estimate_margin(double variance);
