/* SPDX-License-Identifier: MIT
 *
 * source.h - files of source code that a profile names, for the eyes of whoever reads a report.
 *
 * Paths come from the profile and are hostile: one that names a file of passwords must not bring it into
 * the log of a build.  A file is read
 *
 *      below a folder of --source-path, with ever fewer of the path's leading folders;
 *      below the tree of version control that the current folder is in, or the current folder itself, if
 *      its name ends as sources do and no part of it is hidden;
 *      below the folders where systems keep headers and sources.
 *
 * Links are followed before that is asked, and only regular files count.
 */
#pragma once

#include "args/args.h"

/* A file with its lines, or none. */
struct source {
    char *text;   /* NULL: none */
    char **lines; /* each ended by 0 */
    uint32_t count;
    bool is_refused; /* there is one, in another place */
};

struct source source_read(const struct arg_list *folders, const char *path);
void source_free(struct source *source);
