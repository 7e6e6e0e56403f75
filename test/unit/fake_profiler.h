/* SPDX-License-Identifier: MIT
 *
 * fake_profiler.h - a profiler that is switched and asked, and counts what the test says, for tests of what
 * stands above it.  The linker turns calls of the library into the functions here (CMakeLists.txt).
 */
#ifndef TALLY_TEST_FAKE_PROFILER_H
#define TALLY_TEST_FAKE_PROFILER_H

#include <stdbool.h>

static struct {
    bool armed, active;
    unsigned lg_sample, resets;
    double allocated, live; /* bytes */
    char path[256];         /* of the last profile that was written under a name */
    int error;              /* how writing ends */
} profiler = {.lg_sample = 19};

bool __wrap_prof_was_armed(void);
bool __wrap_prof_was_armed(void) {
    return profiler.armed;
}

bool __wrap_prof_is_active(void);
bool __wrap_prof_is_active(void) {
    return profiler.active;
}

void __wrap_prof_set_active(bool active);
void __wrap_prof_set_active(bool active) {
    profiler.active = active;
    profiler.armed |= active;
}

unsigned __wrap_prof_lg_sample(void);
unsigned __wrap_prof_lg_sample(void) {
    return profiler.lg_sample;
}

void __wrap_prof_reset(unsigned lg_sample);
void __wrap_prof_reset(unsigned lg_sample) {
    profiler.lg_sample = lg_sample;
    profiler.allocated = profiler.live = 0;
    profiler.resets++;
}

#endif
