/* SPDX-License-Identifier: MIT
 *
 * symbolize.h - names, files and lines for the addresses of a profile.
 */
#pragma once

#include "args/args.h"
#include "profile/profile.h"

struct symbolize_options {
    const char *sysroot;    /* NULL, or a folder under which recorded paths are looked up */
    const char *debug_path; /* NULL, or a folder with separate debug files, before /usr/lib/debug */
    long pid;               /* 0, or a live process whose files are seen through its root */
    bool use_debuginfod;
    bool no_cache;
    bool no_inlines;
    enum symbolize_names { NAMES_SHORT, NAMES_FULL, NAMES_RAW } names;
};

/* What could not be done, for a note to the reader. */
struct symbolize_result {
    uint32_t addresses, named, with_line;
    uint32_t modules, modules_missing, modules_of_other_build;
};

/* Names every location that has no lines yet.  Shows progress on a terminal.  Never fails: what has no
 * name keeps its address. */
struct symbolize_result symbolize(struct profile *profile, const struct symbolize_options *options);

/* The options of every command that shows names: their values go into args_symbolize. */
extern struct symbolize_options args_symbolize;
extern const struct arg_option args_symbolize_options[];
