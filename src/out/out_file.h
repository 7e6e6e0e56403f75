/* SPDX-License-Identifier: MIT
 *
 * out_file.h - how files of profiles are created, and what they are called.
 *
 * Threads     All functions may be called from any thread, with no lock held.
 */
#pragma once

#include "out/out.h"

/* The longest prefix, and room for the longest name, with their ends. */
enum { OUT_FILE_PREFIX_BYTES = 4097, OUT_FILE_NAME_BYTES = OUT_FILE_PREFIX_BYTES + 160 };

/* A file being written: it has a temporary name in the directory of its final one. */
struct out_file {
    int fd;
    char temporary[OUT_FILE_NAME_BYTES];
};

/* Creates it; 0 or -errno with nothing left behind. */
int out_file_begin(struct out_file *file, const char *path);

/* The same for a file that may take the place of another, which ends with out_file_replace. */
int out_file_begin_anew(struct out_file *file, const char *path);

/* If `error` is 0 gives the file its name, which must be free for the first function; otherwise
 * removes it.  The first error. */
int out_file_end(struct out_file *file, const char *path, int error);
int out_file_replace(struct out_file *file, const char *path, int error);

/* From begin to end: the first error, -EEXIST when there is a file of this name. */
int out_file_write(const char *path, int (*fill)(struct out *out, const void *what),
                   const void *what);

/*
 * Names that the program gives.  What may be written there besides a new file, see os_open_given: a file that is
 * there is written in place, since others may have it open already; it stays as it was unless there is a profile to
 * write, and is empty when that could not be written completely.
 */
int out_file_write_given(const char *path, int (*fill)(struct out *out, const void *what),
                         const void *what);

/* What that would find, or the error that it would meet; changes nothing. */
enum out_target { OUT_TARGET_NEW, OUT_TARGET_EMPTY, OUT_TARGET_FILLED, OUT_TARGET_STREAM };
int out_file_judge(const char *path);

/* The next automatic name of this kind; false when the prefix is empty. */
bool out_file_name_dump(char *path, char kind);
bool out_file_name_log(char *path);

/* Puts ".20260131T235959Z" at the end of a name, or nothing unless prof_time_in_name; returns its length. */
enum { OUT_FILE_TIME_BYTES = 24 };
size_t out_file_put_time(char *end, size_t capacity);

/* The prefix of automatic names from now on; false when it is too long. */
bool out_file_set_prefix(const char *prefix);
