/* SPDX-License-Identifier: MIT
 *
 * card.h - the summary of a run on one screen: how much memory, when, and where it was allocated.
 */
#pragma once

#include <stdio.h>

#include "read/read.h"

/* How it looks. */
struct card_style {
    unsigned width; /* columns, at least 60 */
    bool has_color;
};

struct card {
    /* With at least one moment; the last ones, of memory and of time, are symbolized. */
    const struct read_run *run;
    const char *path; /* of the file */
    uint64_t file_bytes;
    const char *end; /* "" or how the program ended, such as "killed by SIGTERM" */
    uint64_t wall_ns;
    unsigned sites_most;
    int64_t children;          /* recordings of other processes of this run, */
    const char *children_path; /* and a pattern for their names */
};

void card_print(FILE *out, const struct card *card, struct card_style style);
