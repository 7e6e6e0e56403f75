/* SPDX-License-Identifier: MIT
 *
 * export.h - a profile as a file of another kind: one writer each, and the table of them.
 *
 * A writer takes the profile, which has at least one type, as it is: selecting, naming and hiding
 * come before.  Formats of one metric show the profile's default type, the others all types.
 * Frames are spelt as args_select.by says; its most_rows and least_share limit graphs.  A writer
 * returns false after a sentence, with the output in any state.
 *
 * The profile's values are estimates already, so a format whose readers multiply gets a rate at which
 * they multiply by one.
 */
#pragma once

#include "common/cli.h"
#include "profile/profile.h"

/* A row of exports.def. */
struct export_format {
    const char *name, *endings;
    bool (*write)(const struct profile *profile, struct output *output);
    bool is_binary; /* nothing for a terminal */
    bool needs_graphviz;
};

/* Ended by a row without a name. */
extern const struct export_format export_formats[];

/* NULL: there is none. */
const struct export_format *export_by_name(const char *name);
const struct export_format *export_by_ending(const char *path);

/* The writers, one file each; the call graph has three kinds in one. */
#define EXPORT(name, function, ...)                                                                \
    bool function(const struct profile *profile, struct output *output);
#include "export/exports.def"
#undef EXPORT

/* The path of `dot` in the first of the folders, a list ended by NULL, that has it; NULL: none has.
 * To be freed.  Without folders, those where systems put it. */
char *export_find_dot(const char *const *folders);
/* Runs a program as `dot -Tkind`, text in and a picture out. */
bool export_run_dot(const char *program, const char *kind, FILE *text, FILE *picture);

/* A value with its unit, for people.  One of the static texts of cli.h. */
const char *export_value_text(const char *unit, int64_t value);

/* Stacks with a value below zero in any type. */
uint32_t export_count_negative(const struct profile *profile);

/* Says how many stacks a format leaves out because it has no values below zero; silent for none. */
void export_warn_negative(uint32_t negative);

/* Names, paths, comments and texts of labels become short hashes, equal for equal texts; build ids
 * are dropped.  In place. */
void export_anonymize(struct profile *profile);
