/* SPDX-License-Identifier: MIT
 *
 * figure.c - decides what is known of a number: its value, its interval, or nothing.
 *
 * Invariant   low <= high; an exact figure has low == value == high, an estimate low <= value <= high.
 */
#include "profile/figure.h"

#include <math.h>

#include "common/cli.h"
#include "common/glyph.h"
#include "profile/estimate.h"

/* Fewer samples than this say no more than that there is something. */
static const double few_samples = 5;

struct figure figure_exact(double value) {
    return (struct figure){FIGURE_EXACT, value, value, value, INFINITY, false};
}

static struct figure unknown(double value) {
    return (struct figure){FIGURE_UNKNOWN, value, -INFINITY, INFINITY, 0, false};
}

struct figure figure_even(const struct profile *profile, double value, double variance) {
    if (!isfinite(variance) || variance < 0) { /* values of strangers may be anything */
        return unknown(value);
    }
    if (profile->period <= 1) {
        return figure_exact(value);
    }
    double half = INTERVAL_DEVIATIONS * sqrt(variance);
    double samples = variance > 0 ? value * value / variance : INFINITY;
    return (struct figure){FIGURE_ESTIMATE, value, value - half, value + half, samples, false};
}

/* Where some samples are negative, the sum is a difference. */
struct figure figure_of(const struct profile *profile, double value, struct interval_facts facts) {
    const double rounding = 1e-9;
    struct figure figure = figure_even(profile, value, facts.variance);
    if (figure.kind == FIGURE_ESTIMATE && value != 0 && facts.sum <= fabs(value) * (1 + rounding)) {
        facts.sum = fabs(value);
        struct interval interval = interval_find(&facts, 0);
        figure.low = value > 0 ? interval.low : -interval.high;
        figure.high = value > 0 ? interval.high : -interval.low;
    }
    return figure;
}

static struct figure nothing_seen(double unseen) {
    double most = interval_find(&(struct interval_facts){0}, unseen).high;
    return isfinite(most) ? (struct figure){FIGURE_ESTIMATE, 0, 0, most, 0, false}
                          : figure_bound(unknown(0), 0, INFINITY);
}

/* A sum is never negative; what was seen was there. */
struct figure figure_total(const struct profile *profile, uint32_t type) {
    double value = (double)profile_total(profile, type);
    struct interval_facts facts = estimate_total(profile, type);
    struct figure figure = figure_of(profile, value, facts);
    if (figure.kind == FIGURE_ESTIMATE && facts.sum == 0) {
        return nothing_seen(estimate_of(profile, type).unseen);
    }
    return value < 0 ? figure : figure_bound(figure, fmin(value, 1), INFINITY);
}

struct figure figure_bound(struct figure figure, double least, double most) {
    figure.is_bound |= figure.kind == FIGURE_ESTIMATE && figure.high < least;
    figure.low = fmin(fmax(figure.low, least), most);
    figure.high = fmin(fmax(figure.high, figure.low), most);
    figure.value = fmin(fmax(figure.value, figure.low), figure.high);
    return figure;
}

double figure_margin(struct figure figure) {
    return fmax(figure.high - figure.value, figure.value - figure.low);
}

const char *figure_sides(double below, double above, const char *gap) {
    double larger = fmax(below, above);
    if (larger < 10 || round(below) == round(above)) {
        return ring_text("%s%s%.*f%s%%", glyph(GLYPH_PLUS_MINUS), gap, larger < 10 ? 1 : 0, larger,
                         gap);
    }
    return ring_text("%s%.0f +%.0f%s%%", glyph(GLYPH_MINUS), below, above, gap);
}

static const char *margin_text(struct figure figure, const char *gap) {
    if (figure.kind == FIGURE_UNKNOWN) {
        return ring_text(" %s%sunknown", glyph(GLYPH_PLUS_MINUS), gap);
    }
    if (figure.kind == FIGURE_EXACT || figure.value == 0) {
        return "";
    }
    double below = 100 * (figure.value - figure.low) / fabs(figure.value);
    double above = 100 * (figure.high - figure.value) / fabs(figure.value);
    return ring_text(" %s", figure_sides(below, above, gap));
}

const char *figure_margin_text(struct figure figure) {
    return margin_text(figure, " ");
}

const char *figure_margin_cell(struct figure figure) {
    return margin_text(figure, "");
}

const char *figure_text(struct figure figure, const char *(*text)(int64_t value)) {
    if (figure.kind == FIGURE_UNKNOWN && figure.low <= 0) {
        return "unknown";
    }
    if (figure.kind == FIGURE_UNKNOWN || figure.is_bound) {
        return ring_text("at least %s", text(figure_int(figure.low)));
    }
    if (figure.kind == FIGURE_ESTIMATE && figure.value == 0) {
        return ring_text("0 %s %s", glyph(GLYPH_PLUS_MINUS), text(figure_int(figure.high)));
    }
    return ring_text("%s%s", text(figure_int(figure.value)), figure_margin_text(figure));
}

int64_t figure_int(double value) {
    return isnan(value)       ? 0
           : value >= 9.2e18  ? INT64_MAX
           : value <= -9.2e18 ? INT64_MIN
                              : (int64_t)value;
}

bool figure_is_few(struct figure figure) {
    return figure.samples < few_samples;
}

enum figure_verdict figure_judge(struct figure figure, double limit) {
    if (figure.low > limit) {
        return FIGURE_OVER;
    }
    if (figure.high <= limit) {
        return FIGURE_WITHIN;
    }
    return figure_is_few(figure) ? FIGURE_FEW : FIGURE_NOISE;
}

/* Each of n may exceed it in 0.05 / n of the cases: a search by halves for that quantile. */
double figure_deviations(uint64_t comparisons) {
    double chance = 0.05 / (double)(comparisons > 0 ? comparisons : 1), low = 0, high = 40;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        bool is_likely = erfc(middle / sqrt(2)) > chance;
        low = is_likely ? middle : low;
        high = is_likely ? high : middle;
    }
    return high;
}
