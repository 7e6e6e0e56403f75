/* SPDX-License-Identifier: MIT
 *
 * source.h - the source files that a profile names, for readers of a report.
 *
 * Paths come from the profile and are hostile: one that names a password file must not bring it
 * into the log of a build.  A file is read
 *
 *      below a folder of --source-path, with ever fewer of the path's leading folders;
 *      below the tree of version control that the current folder is in, or the current folder itself, if
 *      its name ends as sources do and no part of it is hidden;
 *      below the folders where systems keep headers and sources.
 *
 * Links are resolved before these checks, and only regular files count.
 */
#pragma once

#include "args/args.h"

/* A file with its lines, or none. */
struct source {
    char *text;   /* NULL: none */
    char **lines; /* each ended by 0 */
    uint32_t count;
    bool is_refused; /* the file exists, but in no such place */
};

struct source source_read(const struct arg_list *folders, const char *path);
void source_free(struct source *source);
