/* SPDX-License-Identifier: MIT
 *
 * interval.c - quantiles of the gamma distribution by Wilson's and Hilferty's approximation, which is within
 * a percent from half a sample on.
 */
#include "profile/interval.h"

#include <math.h>
#include <stdbool.h>

static const double none_most = 2.512; /* samples: 97.5 % of the gamma distribution of shape 1/2 */

/* The quantile of a distribution with this mean and variance that lies `z` deviations up. */
static double quantile(double mean, double variance, double z) {
    if (variance <= 0) {
        return mean;
    }
    double shape = mean * mean / variance;
    double root = 1 - 1 / (9 * shape) + z / (3 * sqrt(shape));
    return root > 0 ? mean * root * root * root : 0;
}

/* With `more` added to the sum, the variance grows in proportion. */
static double end_of(const struct interval_facts *facts, double more, double z) {
    return quantile(facts->sum + more, facts->variance * (1 + more / facts->sum), z);
}

/* What an object stands for whose kind has this grain, that is variance / sum: w - 1 objects, or s (w - 1)
 * bytes, where w = 1 / p.  With x = s/R the latter is R x / (e^x - 1), which falls from R to 0. */
static double worth_of(double grain, double period) {
    if (period == 0) {
        return grain + 1;
    }
    double share = grain / period;
    if (!(share < 1)) {
        return grain;
    }
    double low = 0, high = 64;
    for (int i = 0; i < 24; i++) { /* to millionths */
        double x = (low + high) / 2;
        if (x / expm1(x) > share) {
            low = x;
        } else {
            high = x;
        }
    }
    return grain + low * period;
}

/* One number says enough where the sides are about the same. */
static struct interval show_alike(struct interval interval, double sum) {
    const double alike = 0.25;
    double below = sum - interval.low, above = interval.high - sum, half = (above + below) / 2;
    return above - below <= alike * above ? (struct interval){sum - half, sum + half} : interval;
}

struct interval_facts interval_row(double sum, double variance, double period) {
    bool has_worth = sum > 0 && variance > 0;
    return (struct interval_facts){sum, variance,
                                   has_worth ? variance * worth_of(variance / sum, period) : 0};
}

void interval_add(struct interval_facts *facts, struct interval_facts more) {
    facts->sum += more.sum;
    facts->variance += more.variance;
    facts->worth += more.worth;
}

struct interval interval_find(const struct interval_facts *facts, double period) {
    if (facts->sum <= 0) {
        return (struct interval){0, period > 0 ? none_most * period : INFINITY};
    }
    if (facts->variance <= 0) {
        return (struct interval){facts->sum, facts->sum};
    }
    double grain = facts->variance / facts->sum;
    /* Where nearly all is seen, little is missing, however large a sample is; but half of one may be. */
    double most = fmax(INTERVAL_DEVIATIONS * sqrt(facts->variance), grain / 2);
    double more = fmin(facts->worth / facts->variance / 2, most);
    return show_alike((struct interval){end_of(facts, grain / 2, -INTERVAL_DEVIATIONS),
                                        end_of(facts, more, INTERVAL_DEVIATIONS)},
                      facts->sum);
}
