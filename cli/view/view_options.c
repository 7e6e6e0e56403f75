/* SPDX-License-Identifier: MIT
 *
 * view_options.c - the options that choose a view, shared by `tally report` and `tally diff`.
 */
#define _GNU_SOURCE /* strcasestr */
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "view/view.h"

static struct {
    bool wants_top, wants_text, wants_tree, wants_traces, wants_sites, wants_threads;
    const char *peek, *list;
    struct arg_list source_paths;
} g;
const char *view_output_path;

const struct arg_option view_options[] = {
    {"top", 0, ARG_SWITCH, NULL, NULL, false, &g.wants_top,
     "A table of functions, the heaviest first; this is the view unless you name another"},
    {"text", 0, ARG_SWITCH, NULL, NULL, false, &g.wants_text, "The same as --top"},
    {"tree", 0, ARG_SWITCH, NULL, NULL, false, &g.wants_tree,
     "Who called whom, from the roots, with bars for what each allocated itself"},
    {"peek", 0, ARG_TEXT, "RE", NULL, false, &g.peek,
     "The callers and callees of functions that match"},
    {"list", 0, ARG_TEXT, "RE", NULL, false, &g.list,
     "The source lines of functions that match, with what each line allocated"},
    {"traces", 0, ARG_SWITCH, NULL, NULL, false, &g.wants_traces,
     "Whole stacks, the heaviest first, with their labels"},
    {"sites", 0, ARG_SWITCH, NULL, NULL, false, &g.wants_sites,
     "One row for each line that allocates, with all metrics side by side"},
    {"threads", 0, ARG_SWITCH, NULL, NULL, false, &g.wants_threads,
     "One row for each name of a thread: its time on the processor, if that was recorded, and what "
     "it "
     "allocated"},
    {"output", 'o', ARG_TEXT, "OUT", NULL, false, &view_output_path,
     "Write to this file, which must not exist, instead of the standard output"},
    {"source-path", 0, ARG_LIST, "DIR", NULL, false, &g.source_paths,
     "Where --list looks for sources first; may be given many times"},
    {0}};

/* Said before anything is read or printed. */
static bool is_pattern_good(const char *pattern) {
    regex_t regex;
    if (pattern == NULL) {
        return true;
    }
    if (!select_expression(&regex, g.peek != NULL ? "peek" : "list", pattern)) {
        return false;
    }
    regfree(&regex);
    return true;
}

view_fn view_choose(struct view *view) {
    const struct {
        bool is_wanted;
        view_fn run;
        const char *pattern;
    } rows[] = {
        {g.wants_top || g.wants_text, view_top, NULL}, {g.wants_tree, view_tree, NULL},
        {g.peek != NULL, view_peek, g.peek},           {g.list != NULL, view_list, g.list},
        {g.wants_traces, view_traces, NULL},           {g.wants_sites, view_sites, NULL},
        {g.wants_threads, view_threads, NULL},
    };
    view_fn run = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].is_wanted && run != NULL) {
            complain(EXIT_USAGE, "one view at a time: --top, --tree, --peek, --list, --traces, "
                                 "--sites or --threads");
            return NULL;
        }
        if (rows[i].is_wanted) {
            run = rows[i].run;
            view->pattern = rows[i].pattern;
        }
    }
    view->source_paths = g.source_paths;
    if (!is_pattern_good(view->pattern)) {
        return NULL;
    }
    return run != NULL ? run : view_top;
}
