/* SPDX-License-Identifier: MIT
 *
 * view.h - the views of a profile as text: what `tally report` and `tally diff` print.
 *
 * A view shows one type of values.  Its frames are grouped into nodes, the rows that `by` asks for.
 *
 *      flat    of samples whose leaf is the node
 *      cum     of samples that have the node anywhere, once each, even when it recurs
 *
 * In a comparison the profile holds new minus base, and `base` is the type with the base's values.
 */
#pragma once

#include <stdio.h>

#include "args/args.h"
#include "profile/interval.h"
#include "select/select.h"

struct view {
    const struct profile *profile; /* what was selected */
    const struct select *select;
    FILE *out;
    uint32_t type;    /* the metric */
    uint32_t partner; /* objects of a type of bytes, bytes of one of objects; or PROFILE_NONE */
    uint32_t base;    /* or PROFILE_NONE: this is no comparison */
    uint32_t columns; /* the number of types, from the first, for people */
    /* Of view_threads: the processor's time, where memory is the metric; or NULL. */
    const struct profile *cpu;
    enum select_by by;
    int64_t counted; /* the true sum of everything, where it is known beside samples; or 0 */
    int64_t whole;   /* what percentages refer to: everything, selected or not */
    struct interval_facts *facts; /* of each sample and type of the profile, see estimate_all */
    const char *pattern;          /* of peek and list */
    struct arg_list source_paths;

    /* Made by view_index.  A slot is a line of a location, or a location without lines. */
    uint32_t *first_slot, *slot_location, *slot_node;
    uint32_t slot_count, node_count;
    uint32_t deepest; /* frames of the longest stack */
};

/* A view, not a comparison, of what was selected from a profile, in its default type. */
void view_begin(struct view *view, const struct profile *selected, const struct profile *all);
void view_end(struct view *view);

/* A sum over samples, and how sure it is. */
struct view_sum {
    int64_t value;
    struct interval_facts facts;
};
void view_add(const struct view *view, struct view_sum *sum, uint32_t sample, uint32_t type);
/* The sum of the metric over all samples. */
struct view_sum view_total(const struct view *view);

/* Sorts the frames into nodes; call it before everything below. */
void view_index(struct view *view);
void view_release(struct view *view);

/* The line that a slot is, 0 where that is not known. */
uint32_t view_line(const struct view *view, uint32_t slot);

/* The slots of a sample, leaf first; room for `deepest` of them.  A sample without a stack has none. */
uint32_t view_unroll(const struct view *view, uint32_t sample, uint32_t *slots);

struct view_weight {
    struct view_sum flat, cum, partner, base_flat, base_cum;
    uint32_t slot;       /* the heaviest line of the node */
    bool has_many_lines; /* it only calls others, and not from this line alone */
};

/* One per node; to be freed. */
struct view_weight *view_weigh(const struct view *view);

/* Something to be sorted: by |value|, then |second|, then name, then id. */
struct view_row {
    int64_t value, second;
    const char *name;
    uint32_t id;
};
void view_sort(struct view_row *rows, size_t count);
const char *view_sort_name(const struct view *view, uint32_t slot);

/* Rows of nodes whose values are not all 0, the heaviest first; to be freed. */
struct view_row *view_rows(const struct view *view, const struct view_weight *weights,
                           size_t *count);

/* The defaults of a view, unless an option says otherwise. */
size_t view_most_rows(const struct view *view, size_t own);
bool view_is_small(const struct view *view, int64_t value, double own_share);

/* Texts, in the ring of cli.h. */
const char *view_name(const struct view *view, uint32_t slot);
const char *view_place(const struct view *view, uint32_t slot); /* "cache.c:88", or "" */
const char *view_place_in(const struct view *view,
                          uint32_t slot); /* "cache.c": where lines are merged */
const char *view_value(const struct view *view, uint32_t type, int64_t value); /* with its unit */
/* The same with how far off it may be, unless it is exact: "64.0 MiB ±6%". */
const char *view_figure(const struct view *view, uint32_t type, struct view_sum sum);
const char *view_share(const struct view *view, int64_t value); /* "54.1%" */

/* The first line of every view. */
void view_print_heading(const struct view *view);
/* "... 412 more", when there are any. */
void view_print_more(const struct view *view, size_t count, const char *what);

/* How long what was freed lived: for each node a step of lifetimes.h, from 1 on, that half of what it
 * allocated itself did not outlive, 0 where nothing was freed; to be freed.  NULL: nobody knows. */
uint8_t *view_lifetime_find(const struct view *view);
const char *view_lifetime_text(uint8_t step); /* "< 10 ms", or "" */

/* Cells in columns, each as wide as its widest; 'r' and 'l' say which side is flush. */
struct view_grid {
    const char *columns;
    bool is_flush; /* without blanks before the first column */
    char **cells;
    uint32_t count, room;
};
void view_grid_put(struct view_grid *grid, const char *text);
void view_grid_print(struct view_grid *grid, FILE *out); /* and empties it */

/* The views, one file each.  False after a sentence. */
#define VIEW(option, function, ...) bool function(struct view *view);
#include "view/views.def"
#undef VIEW

/* A row of views.def. */
struct view_kind {
    const char *name;
    bool (*print)(struct view *view);
    bool wants_cpu;
    const char *instead;
};

/* The options that name a view, and the view they name, --top by default; NULL after a sentence.
 * view_print writes it where -o says and returns an exit code; whether it can is known before anything is read. */
extern const struct arg_option view_options[];
const struct view_kind *view_choose(struct view *view);
bool view_judge_output(void);
int view_print(const struct view *view, const struct view_kind *kind);
