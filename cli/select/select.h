/* SPDX-License-Identifier: MIT
 *
 * select.h - the SELECT options of report, diff and export: which samples, which frames, which metric.
 */
#pragma once

#include <regex.h>

#include "args/args.h"
#include "profile/profile.h"

/* BY_OWN: no option says what a row stands for, so it is a function, or what the view prefers. */
enum select_by { BY_FUNCTIONS, BY_LINES, BY_FILES, BY_ADDRESSES, BY_MODULES, BY_OWN };

/* most_rows and least_share without an option: each view has its own defaults. */
#define SELECT_OWN_ROWS UINT32_MAX
#define SELECT_OWN_SHARE (-1.0)

struct select {
    const char *metric; /* NULL: the profile's default */
    const char *focus, *ignore, *hide, *show, *show_from, *module, *file, *thread;
    const char *tag, *tag_root, *tag_leaf; /* KEY=RE; KEY; KEY */
    uint64_t size_least, size_most;        /* of a sample's mean object; 0: no limit */
    uint64_t life_least, life_most;        /* of what was freed, nanoseconds; 0: no limit */
    enum select_by by;
    bool no_inlines, show_internal;
    bool by_cum;           /* sorted by cumulative instead of flat values */
    uint32_t most_rows;    /* 0: all */
    double least_share;    /* of the total, 0 to 1 */
    const char *unit;      /* "auto", "B", "KiB", "MiB"; NULL is auto */
    const char *at;        /* NULL, or the moment of each file: FILE@TIME */
    const char *from, *to; /* NULL, or what changed between two moments */
};

/*
 * A new profile with only what was selected: samples kept, frames hidden or cut, tags as roots or
 * leaves, frames of allocators' own entry points (operator new, std::allocator...) hidden unless
 * show_internal.  Its types are those of `profile`, its default type is the metric.  NULL after a
 * sentence about a bad expression or a missing metric.
 */
struct profile *select_apply(const struct profile *profile, const struct select *select);

/* What `by` calls a frame: "cache_insert", "cache.c:88", "libfoo.so", "0x4011d2", or "libfoo.so+0x12"
 * where it has no name.  Static. */
const char *select_frame_name(const struct profile *profile, uint32_t location, uint32_t line,
                              enum select_by by);

/* Whether a function only hands out memory: malloc, operator new, std::allocator<T>::allocate. */
bool select_is_allocator(const char *name);

/* An expression of the command line, to be freed by regfree.  False after a sentence. */
bool select_expression(regex_t *regex, const char *option, const char *text);

/* Whether the text of an expression is the whole name of a function, parameters aside: then that
 * function is meant, and not every one whose name contains it. */
bool select_is_whole_name(const struct profile *profile, const char *text);
bool select_name_matches(const char *name, const char *text, const regex_t *regex, bool is_whole);

/* The type that a metric means; PROFILE_NONE after a sentence that lists the metrics. */
uint32_t select_metric(const struct profile *profile, const char *metric);

/* Reads the words as PROFILE arguments at the moments that args_select names, merges them and finds
 * their names: memory or time, as its metric says.  NULL after a sentence, with the exit status. */
struct profile *select_read(char *const *words, int count, int *status);

/* The processor's time in the recorded runs among the words, whatever the metric; NULL where there
 * is none, or after a sentence. */
struct profile *select_read_cpu(char *const *words, int count);

/* The SELECT options, shared by report, diff and export: their values go into args_select. */
extern struct select args_select;
extern const struct arg_option args_select_options[];
