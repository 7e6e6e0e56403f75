/* SPDX-License-Identifier: MIT
 *
 * test_real.c - logarithm and exponential against libm's, in more digits.
 */
#include "base/real.h"

#include <math.h>

#include "unit.h"

static double error_of(double found, long double right) {
    return (double)fabsl(((long double)found - right) / right);
}

TEST(the_logarithm_is_right_over_the_whole_unit_interval) {
    struct random random = random_start(1, 0);
    double worst = 0;
    for (unsigned i = 0; i < 200000; i++) {
        double u = ((double)(random_next(&random) >> 11) + 1) / 9007199254740992.0;
        u = i % 2 == 0 ? u : ldexp(u, -(int)random_below(&random, 60));
        if (u != 1) {
            worst = fmax(worst, error_of(real_log(u), logl((long double)u)));
        }
    }
    check(worst < 1e-13);
    check(real_log(1) == 0);
    check(error_of(real_log(0x1p-53), logl(0x1p-53L)) < 1e-15);
    check(error_of(real_log(1 - 0x1p-53), logl(1 - 0x1p-53L)) < 1e-15);
    check(error_of(real_log(1e300), logl(1e300L)) < 1e-15);
}

TEST(the_exponential_is_right_for_every_rate_and_size) {
    double worst = 0;
    for (int lg_rate = 0; lg_rate <= 63; lg_rate++) {
        for (double size = 16; size < 0x1p47; size *= 1.37) {
            double x = size / ldexp(1, lg_rate);
            worst = fmax(worst, error_of(real_one_minus_exp(x), -expm1l(-(long double)x)));
        }
    }
    check(worst < 1e-14);
    check(real_one_minus_exp(0) == 0);
    check(real_one_minus_exp(1e308) == 1);
}

TEST(pieces_of_the_exponential_meet) {
    for (double x = 0.3; x < 70; x += 0.0007) {
        check(error_of(real_one_minus_exp(x), -expm1l(-(long double)x)) < 1e-14);
    }
}
