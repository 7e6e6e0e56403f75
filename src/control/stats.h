/* SPDX-License-Identifier: MIT
 *
 * stats.h - what the two shapes of the statistics share: which parts are wanted, how a row of
 * counters.def is read, names, and values of the ctl tree.
 */
#pragma once

#include "control/ctl.h"
#include "control/snapshot.h"
#include "out/json.h"

/* Parts that are printed.  Each has a letter that leaves it out. */
struct stats_parts {
    bool general;   /* g */
    bool merged;    /* m */
    bool destroyed; /* d */
    bool arenas;    /* a */
    bool bins;      /* b */
    bool large;     /* l */
    bool mutexes;   /* x */
    bool extents;   /* e */
    bool hpa;       /* h */
};

/*
 * The beginning of struct arena_counts: all but the rows of classes and locks.  Another thread may
 * refresh the counters, so they are copied before they are used (snapshot_copy), and the whole
 * struct would be too large for the stacks of some threads.
 */
struct stats_head {
#define ARENA(name, type, merge, help) type name;
#include "heap/counters.def"
#undef ARENA
    struct kind_counts small, large;
};

/* The figure of a row of counters.def in its struct. */
union value stats_field(const struct ctl_member *row, const void *counts);
uint64_t stats_number(const struct ctl_member *row, const void *counts);

/* ---------------------------------------------------------------- names */

/* Each list ends with NULL. */
extern const char *const stats_config_names[] HIDDEN;
extern const char *const stats_hpa_names[] HIDDEN;
extern const char *const stats_hpa_slab_names[] HIDDEN;
enum { STATS_HPA_CLASSES = 64 };

/* Leaves of the ctl tree under one node, as they are printed; ends with a leaf without a name. */
struct stats_leaf {
    const char *name;
    enum value_type type;
    const char *title; /* in text, if it differs from the name; NULL if it has no line there */
};
extern const struct stats_leaf stats_prof_leaves[] HIDDEN;
extern const struct stats_leaf stats_background_leaves[] HIDDEN;
extern const struct stats_leaf stats_arenas_leaves[] HIDDEN;

/* Where options may come from: leaves under opt.malloc_conf. */
struct stats_source {
    const char *name;
    const char *title;
    bool is_always_there; /* "" if there is none */
};
extern const struct stats_source stats_sources[] HIDDEN;

/* ---------------------------------------------------------------- values */

/* The value at `node` or `node`.`name`; zero, or no string, if the tree has no such leaf. */
union value stats_ctl(const char *node, const char *name, enum value_type type);

/* An option as it is printed. */
struct stats_option {
    enum value_type type;
    union value value;
    char text[24]; /* what the value points to, if it is made here */
};
void stats_read_option(size_t row, struct stats_option *option);

/* "always", "madvise" or "never", the kernel's setting. */
const char *stats_thp_mode(void);

/* "N/A" for what stands for several arenas. */
const char *stats_dss(unsigned arena);

/* ---------------------------------------------------------------- shapes */

void stats_summary(struct out *out, bool with_classes);

/* The statistics of the whole process, and those of one arena or of several together. */
void stats_text_process(struct out *out, const struct stats_parts *parts);
void stats_text_arena(struct out *out, const struct stats_parts *parts, unsigned arena,
                      const struct arena_counts *counts);
void stats_json_process(struct out *out, const struct stats_parts *parts);
void stats_json_arena(struct out *out, const struct stats_parts *parts, unsigned arena,
                      const struct arena_counts *counts);
