/* SPDX-License-Identifier: MIT
 *
 * control.h - how the world looks in.
 *
 * Threads     All functions may be called from any thread.  mallctl and its companions are called
 *             inside the allocator (api/life.h) and hold no lock when they return.
 */
#pragma once

#include "base/common.h"
#include "control/numbered.h"
#include "control/triggers.h"

/* mallctl and its companions, with the codes and effects of docs/manual/ctl.md. */
int ctl_by_name(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
int ctl_name_to_mib(const char *name, size_t *mibp, size_t *miblenp);
int ctl_by_mib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp,
               size_t newlen);

/* What the background thread has done so far. */
struct control_background {
    size_t num_threads;
    uint64_t num_runs;
    uint64_t run_interval; /* nanoseconds from one run to the next, on average */
};

/*
 * What lies above and has to be asked or told.  The api fills it at start; a function that is NULL
 * stands for "there is none".
 */
struct control_services {
    /* May the background thread run?  A change is a wish that is noted here and acted upon when the
     * call has left the allocator, since making a thread allocates.  False when it cannot be. */
    bool (*background_is_on)(void);
    bool (*background_set)(bool on);
    void (*background_read)(struct control_background *counts);
};
extern struct control_services control_services HIDDEN;

/*
 * The statistics as text, or as JSON with the letter J: a summary of the heap whose lines add up, then
 * what the letters do not leave out.  `write` gets strings of less than 4 KiB, at least one; it is
 * called outside of the allocator, with no lock held.  NULL stands for log_write and for no letters.
 */
void stats_print(void (*write)(void *opaque, const char *text), void *opaque, const char *letters);
