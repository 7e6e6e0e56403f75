/* SPDX-License-Identifier: MIT
 *
 * recording.h - finds the files that a run has left.
 */
#pragma once

#include <time.h>

#include "read/read.h"
#include "run/run_plan.h"

struct recording {
    char path[RUN_PATH_BYTES];
    struct read_run *run; /* NULL: it is damaged */
};

/* The file of the program that the process was in the end, begun at this time since 1970 or later; files of
 * those it was before, such as a shell that called exec at once, are removed where nothing is in them.  False:
 * there is none.  A damaged one leaves a sentence. */
bool recording_find(const struct run_plan *plan, pid_t pid, uint64_t since_ns,
                    struct recording *found, char why[READ_WHY_BYTES]);

/* The recordings of other processes, those that still run left as they are. */
struct recording_children {
    char pattern[RUN_PATH_BYTES]; /* of their names */
    time_t since;                 /* older ones are of another run */
    int64_t count;
};
void recording_settle_children(const struct run_plan *plan, pid_t own,
                               struct recording_children *children);
