/* SPDX-License-Identifier: MIT
 *
 * figure.h - a number as it may be shown: exact, an estimate with its 95 % interval, or unknown.
 *
 * Every command that shows a number of a profile asks here which of the three it is.  What is known
 * exactly from elsewhere bounds an estimate, and never the other way round.
 */
#pragma once

#include "profile/interval.h"
#include "profile/profile.h"

enum figure_kind { FIGURE_EXACT, FIGURE_ESTIMATE, FIGURE_UNKNOWN };

/* The true value lies between low and high: always where it is exact, in 95 of 100 cases where it is an
 * estimate.  Of an unknown figure only the bounds mean something. */
struct figure {
    enum figure_kind kind;
    double value, low, high;
    double samples; /* that an estimate rests on, about */
    bool is_bound;  /* samples tell less than a bound does, which is the value: "at least" */
};

struct figure figure_exact(double value);

/* A value that was summed up from samples of a profile, and what they have added (estimate.h). */
struct figure figure_of(const struct profile *profile, double value, struct interval_facts facts);

/* One that was computed from such values, such as a difference: it is spread evenly to both sides. */
struct figure figure_even(const struct profile *profile, double value, double variance);

/* The sum of a type over all samples. */
struct figure figure_total(const struct profile *profile, uint32_t type);

/* The same figure, knowing that the true value is at least and at most these. */
struct figure figure_bound(struct figure figure, double least, double most);

/* The larger distance from the value to an end of its interval. */
double figure_margin(struct figure figure);

/* "", " ± 3.9 %", " −67 +138 %" where the sides differ by much, or " ± unknown", to stand behind the value.  The
 * second is " ±3.9%", for columns.  In the ring of cli.h. */
const char *figure_margin_text(struct figure figure);
const char *figure_margin_cell(struct figure figure);

/* "± 3.9 %", or "−67 +138 %" where the sides differ by much: percentages, both of them positive. */
const char *figure_sides(double below, double above, const char *gap);

/* "1.2 GiB ± 1.3 %", "at least 1.2 GiB" or "unknown", with size_text, count_text or another that makes a text of the value. */
const char *figure_text(struct figure figure, const char *(*text)(int64_t value));

/* A finite value as an integer, at the ends of the scale at most. */
int64_t figure_int(double value);

/*
 * What a limit makes of a figure.  A figure is over a limit only if its whole interval is; where a part
 * of it is, that may be noise, and where hardly anything was sampled nobody can tell.
 */
enum figure_verdict { FIGURE_WITHIN, FIGURE_OVER, FIGURE_NOISE, FIGURE_FEW };
enum figure_verdict figure_judge(struct figure figure, double limit);

/* Whether samples are too few to say more than that there is something. */
bool figure_is_few(struct figure figure);

/* Standard deviations that chance alone exceeds, in one of so many comparisons, in 5 of 100 cases. */
double figure_deviations(uint64_t comparisons);
