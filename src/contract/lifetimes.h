/* SPDX-License-Identifier: MIT
 *
 * lifetimes.h - how long freed objects lived, in steps: what the library counts and the command shows.
 *
 * In profile.proto what was freed is told apart by a label "lifetime" in milliseconds: the bound of the step,
 * which is the shortest time that the objects did not live.  The last step has none; its label is an hour.
 * What has no such label was not freed, or at a time that nobody knows.
 */
#pragma once

#define LIFETIME_LABEL "lifetime"
#define LIFETIME_UNIT "milliseconds"

/* X(bound in milliseconds, text) */
#define LIFETIMES(X)                                                                               \
    X(1, "< 1 ms")                                                                                 \
    X(3, "< 3 ms")                                                                                 \
    X(10, "< 10 ms")                                                                               \
    X(30, "< 30 ms")                                                                               \
    X(100, "< 100 ms")                                                                             \
    X(300, "< 300 ms")                                                                             \
    X(1000, "< 1 s")                                                                               \
    X(3000, "< 3 s")                                                                               \
    X(10000, "< 10 s")                                                                             \
    X(60000, "< 1 min")                                                                            \
    X(600000, "< 10 min")                                                                          \
    X(3600000, "> 10 min")

#define LIFETIME_ONE(bound, text) +1
enum { LIFETIME_STEPS = 0 LIFETIMES(LIFETIME_ONE) };
#undef LIFETIME_ONE
