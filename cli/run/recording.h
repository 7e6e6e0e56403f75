/* SPDX-License-Identifier: MIT
 *
 * recording.h - finds the files that a run leaves.
 */
#pragma once

#include <time.h>

#include "read/read.h"
#include "run/run_plan.h"

struct recording {
    char path[RUN_PATH_BYTES];
    struct read_run *run; /* NULL: it is damaged */
};

/* The file of the last program that the process ran, begun at this time since 1970 or later; files
 * of the programs before it, such as a shell that called exec at once, are removed where they are
 * empty.  False: there is none.  A damaged file leaves a sentence. */
bool recording_find(const struct run_plan *plan, pid_t pid, uint64_t since_ns,
                    struct recording *found, char why[READ_WHY_BYTES]);

/* The recordings of other processes; those of running ones stay as they are. */
struct recording_children {
    char pattern[RUN_PATH_BYTES]; /* of their names */
    time_t since;                 /* older files belong to another run */
    int64_t count;
};
void recording_settle_children(const struct run_plan *plan, pid_t own,
                               struct recording_children *children);
