/* SPDX-License-Identifier: MIT
 *
 * cpus.h - visits every CPU before something is measured.
 *
 * A thread belongs to the arena of the CPU it begins on, and each arena comes to its slabs and its
 * parked heap once.  A test that looks for growth warms them all up first, whichever CPUs the
 * scheduler would have chosen.  Include with _GNU_SOURCE defined.
 */
#ifndef TALLY_TEST_CPUS_H
#define TALLY_TEST_CPUS_H

#include <sched.h>

#include "test.h"

static inline cpu_set_t cpus_allowed(void) {
    cpu_set_t allowed;
    check_eq(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    return allowed;
}

static inline void cpus_use(cpu_set_t allowed) {
    check_eq(sched_setaffinity(0, sizeof allowed, &allowed), 0);
}

/* Keeps this thread, and those it makes, on one CPU: with each turn on the next. */
static inline void cpus_use_one(cpu_set_t allowed, unsigned turn) {
    cpu_set_t one;
    int cpu = 0;
    for (unsigned left = turn % (unsigned)CPU_COUNT(&allowed) + 1; left > 0; cpu++) {
        left -= CPU_ISSET(cpu, &allowed) != 0;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu - 1, &one);
    cpus_use(one);
}

#endif
