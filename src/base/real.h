/* SPDX-License-Identifier: MIT
 *
 * real.h - the two functions of analysis that sampling needs, without libm.
 *
 * libm may be absent from the process, and what is linked into it may change the rounding mode or be
 * replaced.  Both functions are arithmetic on their argument alone; the relative error is below 1e-14.
 */
#pragma once

#include "base/common.h"

/* The natural logarithm of x > 0. */
double real_log(double x);

/* 1 - e^(-x) for x >= 0, exact also where x is tiny. */
double real_one_minus_exp(double x);
