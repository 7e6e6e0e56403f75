/* SPDX-License-Identifier: MIT
 *
 * estimate.c - the variance of sums of objects and bytes, and of clock ticks, row by row.
 */
#include "profile/estimate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/glyph.h"

/* How a type is estimated. */
struct rule {
    bool is_known, has_pair, is_bytes;
    uint32_t space, objects;
    double step;    /* what one sample adds, where it is not known how many objects there are */
    char grain[40]; /* the label, contract/frames.h */
};

static struct rule find_rule(const struct profile *profile, uint32_t type) {
    const char *unit = profile->types[type].unit;
    bool is_time = strcmp(profile->period_type.unit, "nanoseconds") == 0;
    struct rule rule = {.is_bytes = strcmp(unit, "bytes") == 0};
    rule.has_pair = profile_find_pair(profile, type, &rule.space, &rule.objects);
    rule.is_known = rule.has_pair || rule.is_bytes || is_time;
    rule.step = is_time && strcmp(unit, "nanoseconds") != 0 ? 1 : (double)profile->period;
    snprintf(rule.grain, sizeof rule.grain, "%s_grain", profile->types[type].name);
    return rule;
}

bool estimate_is_label(const struct profile_label *label) {
    size_t length = strlen(label->key), end = strlen("_grain");
    return label->text == NULL && length > end && strcmp(label->key + length - end, "_grain") == 0;
}

/* What the writer has found from the samples themselves, in thousandths; negative: nothing. */
static double grain_of(const struct profile *profile, uint32_t index, const struct rule *rule) {
    const struct profile_sample *sample = &profile->samples[index];
    for (uint32_t i = 0; i < sample->label_count; i++) {
        const struct profile_label *label = &profile->labels[sample->labels + i];
        if (label->text == NULL && strcmp(label->key, rule->grain) == 0) {
            return (double)label->number / 1000;
        }
    }
    return -1;
}

static double variance_of_row(const struct profile *profile, uint32_t index,
                              const struct rule *rule, double value) {
    double grain = grain_of(profile, index, rule);
    if (grain >= 0) {
        return value * grain;
    }
    double count = rule->has_pair ? fabs((double)profile_value(profile, index, rule->objects)) : 0;
    double bytes = rule->has_pair ? fabs((double)profile_value(profile, index, rule->space)) : 0;
    if (count > 0 && bytes > 0) {
        double p = -expm1(-bytes / count / (double)profile->period);
        return value * value / count * (1 - p) / p;
    }
    return value * rule->step; /* small objects, ticks of a clock */
}

/* False: nobody knows, or everything was recorded. */
static bool add_rows(const struct profile *profile, uint32_t type, struct interval_facts *facts,
                     double *period) {
    struct rule rule = find_rule(profile, type);
    *facts = (struct interval_facts){0};
    *period = !rule.has_pair || type == rule.space ? rule.step : 0;
    if (profile->period <= 1 || !rule.is_known) {
        return false;
    }
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        double value = fabs((double)profile_value(profile, i, type));
        interval_add(facts, value, variance_of_row(profile, i, &rule, value), *period);
    }
    return true;
}

double estimate_margin(double variance) {
    return 1.96 * sqrt(variance);
}

double estimate_variance(const struct profile *profile, uint32_t type) {
    struct interval_facts facts;
    double period;
    if (add_rows(profile, type, &facts, &period)) {
        return facts.variance;
    }
    /* Nobody knows what made folded stacks. */
    return profile->period <= 1 && strcmp(profile->source, "folded") != 0 ? 0 : -1;
}

struct interval estimate_interval(const struct profile *profile, uint32_t type) {
    struct interval_facts facts;
    double period, total = fabs((double)profile_total(profile, type));
    if (!add_rows(profile, type, &facts, &period)) {
        return (struct interval){total, total};
    }
    if (facts.sum > total) { /* a difference: some rows are negative */
        double half = estimate_margin(facts.variance);
        return (struct interval){total - half, total + half};
    }
    return interval_find(&facts, period);
}

void estimate_print(char text[ESTIMATE_TEXT], struct interval interval, double sum) {
    double below = 100 * (sum - interval.low) / sum, above = 100 * (interval.high - sum) / sum;
    if (above - below < 0.001 * above) {
        snprintf(text, ESTIMATE_TEXT, "%s %.1f %%", glyph(GLYPH_PLUS_MINUS), above);
    } else {
        snprintf(text, ESTIMATE_TEXT, "%s%.0f +%.0f %%", glyph(GLYPH_MINUS), below, above);
    }
}
