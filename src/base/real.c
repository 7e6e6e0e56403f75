/* SPDX-License-Identifier: MIT
 *
 * real.c - logarithm and exponential by series.
 *
 * Both split off a power of two, so that the series starts from a small number and a fixed number of
 * terms is enough: the first term that is left out is below 1e-17.
 */
#include "base/real.h"

#include <string.h>

static const double LN2 = 0.69314718055994530942;

static uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static double from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

enum { MANTISSA_BITS = 52, EXPONENT_BIAS = 1023 };

/* 2^n for numbers a double can hold without losing digits. */
static double power_of_two(int n) {
    return from_bits((uint64_t)(n + EXPONENT_BIAS) << MANTISSA_BITS);
}

/* x = m * 2^e with m around 1; then log m = 2 (t + t^3/3 + t^5/5 + ...) with t = (m - 1) / (m + 1). */
double real_log(double x) {
    const uint64_t mantissa = (UINT64_C(1) << MANTISSA_BITS) - 1;
    uint64_t bits = bits_of(x);
    int exponent = (int)(bits >> MANTISSA_BITS) - EXPONENT_BIAS;
    double m = from_bits((bits & mantissa) | (uint64_t)EXPONENT_BIAS << MANTISSA_BITS);
    if (m > 1.41421356237309504880) {
        m /= 2;
        exponent++;
    }
    double t = (m - 1) / (m + 1);
    double sum = 0;
    for (int n = 23; n >= 1; n -= 2) {
        sum = sum * t * t + 1.0 / n;
    }
    return exponent * LN2 + 2 * t * sum;
}

/* e^r - 1 for |r| <= 0.4: r + r^2/2! + r^3/3! + ... */
static double small_exp_less_1(double r) {
    double sum = 1;
    for (int n = 16; n >= 2; n--) {
        sum = 1 + sum * r / n;
    }
    return sum * r;
}

double real_one_minus_exp(double x) {
    if (x < 0.4) {
        return -small_exp_less_1(-x);
    }
    if (x > 64) {
        return 1;
    }
    int n = (int)(x / LN2 + 0.5);
    return 1 - (1 + small_exp_less_1(n * LN2 - x)) * power_of_two(-n);
}
