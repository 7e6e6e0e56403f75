/* SPDX-License-Identifier: MIT
 *
 * interval.h - the 95 % interval of a sum of sampled values.
 *
 * Sums of few samples are not spread evenly about the truth: two samples may be one too many, and four may
 * have been missed.  So the interval is that of a gamma distribution, which is exact for counts of small
 * objects, with half a sample added, and is the usual 1.96 standard deviations where there are many.
 */
#pragma once

/* What is known of a sum, made row by row; all zeros at first. */
struct interval_facts {
    double sum, variance; /* negative: the variance is unknown */
    double worth;         /* of a sample, times the variance that it stands for */
};

/* A row of the profile: its sum in bytes, or of objects where `period`, the mean distance of samples in
 * bytes, is 0. */
struct interval_facts interval_row(double sum, double variance, double period);
void interval_add(struct interval_facts *facts, struct interval_facts more);

/* Standard deviations that 95 % of a normal distribution lie within. */
#define INTERVAL_DEVIATIONS 1.96

/* Both ends are as far from the sum where they would be so within a quarter.
 * Where nothing was sampled the upper end follows from the period, and is infinite without one. */
struct interval {
    double low, high;
};
struct interval interval_find(const struct interval_facts *facts, double period);
