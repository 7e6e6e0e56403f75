/* SPDX-License-Identifier: MIT
 *
 * select_options.c - the options that choose what of a profile is looked at, shared by its readers.
 */
#include "select/select.h"

struct select args_select = {
    .by = BY_OWN, .most_rows = SELECT_OWN_ROWS, .least_share = SELECT_OWN_SHARE, .unit = "auto"};

const struct arg_option args_select_options[] = {
    {"metric", 'm', ARG_TEXT, "METRIC", NULL, false, &args_select.metric,
     "What is counted: inuse_space, inuse_objects, alloc_space, alloc_objects, peak_space, "
     "peak_objects, temp_objects, slack_space, pinned_space, cpu; `tally info` lists those of a profile"},
    {"focus", 0, ARG_TEXT, "RE", NULL, false, &args_select.focus,
     "Only stacks with a frame whose function, file or module matches"},
    {"ignore", 0, ARG_TEXT, "RE", NULL, false, &args_select.ignore,
     "No stacks with a frame that matches"},
    {"hide", 0, ARG_TEXT, "RE", NULL, false, &args_select.hide,
     "Leave out frames that match; what they called moves up to their callers"},
    {"show", 0, ARG_TEXT, "RE", NULL, false, &args_select.show,
     "Leave out frames that do not match"},
    {"show-from", 0, ARG_TEXT, "RE", NULL, false, &args_select.show_from,
     "Leave out everything above the outermost frame that matches"},
    {"module", 0, ARG_TEXT, "RE", NULL, false, &args_select.module,
     "Only stacks with a frame in a program or library that matches"},
    {"file", 0, ARG_TEXT, "RE", NULL, false, &args_select.file,
     "Only stacks with a frame in a source file that matches"},
    {"thread", 0, ARG_TEXT, "RE", NULL, false, &args_select.thread,
     "Only stacks of threads whose name or number matches"},
    {"tag", 0, ARG_TEXT, "KEY=RE", NULL, false, &args_select.tag,
     "Only stacks with a label of this key whose value matches"},
    {"tagroot", 0, ARG_TEXT, "KEY", NULL, false, &args_select.tag_root,
     "Put the value of this label above each stack, as if it had called it"},
    {"tagleaf", 0, ARG_TEXT, "KEY", NULL, false, &args_select.tag_leaf,
     "Put the value of this label below each stack, as if it had been called"},
    {"size", 0, ARG_SIZES, "MIN:MAX", NULL, false, &args_select.size_least,
     "Only blocks of these sizes, such as 64:4K or 1M:"},
    {"lifetime", 0, ARG_TIMES, "MIN:MAX", NULL, false, &args_select.life_least,
     "Only what was freed and had lived for so long, such as :10ms or 1m:; for alloc_space and "
     "alloc_objects"},
    {"at", 0, ARG_TEXT, "TIME", NULL, false, &args_select.at,
     "The moment of a recorded run: a time since its start, peak, or end"},
    {"from", 0, ARG_TEXT, "TIME", NULL, false, &args_select.from,
     "Only what was allocated since this moment of a recorded run"},
    {"to", 0, ARG_TEXT, "TIME", NULL, false, &args_select.to,
     "The moment up to which --from counts; the end of the run unless given"},
    {"by", 0, ARG_CHOICE, "WHAT", "functions|lines|files|addresses|modules", false, &args_select.by,
     "What a row or frame stands for: a function unless given, a line for --sites"},
    {"flat", 0, ARG_OFF, NULL, NULL, false, &args_select.by_cum,
     "Sort by what a function allocated itself; the default"},
    {"cum", 0, ARG_SWITCH, NULL, NULL, false, &args_select.by_cum,
     "Sort by what a function and everything it called allocated"},
    {"rows", 'n', ARG_SMALL, "N", NULL, false, &args_select.most_rows, "At most N rows; 0 for all"},
    {"min", 0, ARG_SHARE, "PCT", NULL, false, &args_select.least_share,
     "Leave out what is below this share of the total, such as 1%"},
    {"no-inlines", 0, ARG_SWITCH, NULL, NULL, false, &args_select.no_inlines,
     "count inlined calls for the function they were inlined into"},
    {"show-internal", 0, ARG_SWITCH, NULL, NULL, false, &args_select.show_internal,
     "Show the frames of allocators too, such as operator new"},
    {"unit", 0, ARG_TEXT, "UNIT", "auto|B|KiB|MiB", false, &args_select.unit,
     "The unit of all sizes except means"},
    {0}};
