/* SPDX-License-Identifier: MIT
 *
 * dump_file.h - how files of profiles come to be, and what they are called.
 *
 * Threads     All functions may be called from any thread, with no lock held.
 */
#pragma once

#include "base/common.h"

/* The longest prefix, and room for the longest name, with their ends. */
enum { FILE_PREFIX_BYTES = 4097, FILE_NAME_BYTES = FILE_PREFIX_BYTES + 160 };

/* A file on the way: it has a temporary name beside the one it shall have. */
struct dump_file {
    int fd;
    char temporary[FILE_NAME_BYTES];
};

/* Creates it; 0 or -errno with nothing left behind. */
int file_begin(struct dump_file *file, const char *path);

/* The same for a file that may take the place of another; then the last of these two ends it. */
int file_begin_anew(struct dump_file *file, const char *path);

/* Gives it its name, which must be free, if `error` is 0; removes it otherwise.  The first error. */
int file_end(struct dump_file *file, const char *path, int error);
int file_replace(struct dump_file *file, const char *path, int error);

/* The next automatic name of this kind; false when the prefix is empty. */
bool file_name_dump(char *path, char kind);
bool file_name_log(char *path);

/* The prefix of automatic names from now on; false when it is too long. */
bool file_set_prefix(const char *prefix);
