/* SPDX-License-Identifier: MIT
 *
 * cli.h - for all commands: exit codes, messages, sizes and times as text, output, progress.
 *
 * Results go to stdout or the -o file, everything said about them to stderr.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum exit_code {
    EXIT_NONE = -1, /* not yet; being negative, it makes the enum an int, which main() returns */
    EXIT_DONE = 0,
    EXIT_FOUND = 1, /* leaks, a limit of check, differences */
    EXIT_USAGE = 2,
    EXIT_NO_TARGET = 3,
    EXIT_BAD_INPUT = 4,
    EXIT_REFUSED = 5,
    EXIT_TIMEOUT = 124,
    EXIT_OWN_FAILURE = 125,
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
};

/* How much is said: 0 nothing but results, 1 warnings, 2 as usual, 3 more. */
extern int cli_loudness;
/* Colours on stdout: decided once from --color, NO_COLOR and the terminal. */
extern bool cli_has_color;
/* Global options: a pager may be used; damaged files are read past the damage; the memory, in
 * bytes, that parsers of files may take. */
extern bool cli_has_pager, cli_salvage;
extern uint64_t cli_memory_limit;

/* "tally: " and the sentence, to stderr.  Returns the code, for `return complain(...)`. */
enum exit_code complain(enum exit_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool decline(const char *format, ...) __attribute__((format(printf, 1, 2))); /* gives false */
void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void detail(const char *format, ...) __attribute__((format(printf, 1, 2))); /* with -v */

/* The end of every command: reports how many warnings were left out, and writes what stdio holds.
 * False, after a sentence, where not all of it arrives. */
bool cli_finish(void);
uint64_t cli_now_ns(void); /* CLOCK_MONOTONIC */
void cli_wait_until(uint64_t ns);

/* The beginning of a small file, as text; returns its length, or -1 where it cannot be read. */
int read_small(const char *path, char *text, size_t bytes);

/* All of the bytes; false: there are fewer, or something fails. */
bool read_at(int fd, void *bytes, size_t length, uint64_t offset);
bool write_all(int fd, const void *bytes, size_t length);

/* Memory, never NULL: without it the command ends with EXIT_OWN_FAILURE. */
void *must_alloc(size_t bytes);
void *must_zeroed(size_t bytes);
char *must_copy(const char *text);
void *must_grow(void *memory, size_t bytes);
/* An array of items with room for one more after the `count` in it. */
void *must_have_room(void *array, uint32_t count, uint32_t *room, size_t item_bytes);

/* "1.2 GiB", "64 KiB", "512 B", "-3.0 MiB"; "9.2 M" for counts; "42.3 s", "3 d 4 h".  Texts lie in
 * a ring of static buffers: the last sixteen stay valid. */
const char *size_text(int64_t bytes);
const char *count_text(int64_t count);
const char *grouped_text(int64_t count); /* 8,204,113 */
const char *duration_text(uint64_t ns);
const char *ring_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Names are hostile: control, bidi and zero-width characters become visible escapes, broken UTF-8
 * U+FFFD, and more than 4 KiB is cut.  The same ring. */
const char *safe_text(const char *name);

bool begins_with(const char *text, const char *part);
bool ends_with(const char *text, const char *part); /* and there is something before it */

/* How a text is shown where the output is standard output and may have colours; "" elsewhere. */
enum cli_style { STYLE_PLAIN, STYLE_BOLD, STYLE_GOOD, STYLE_WARN, STYLE_BAD };
const char *cli_style(FILE *out, enum cli_style style);

/* Columns of a terminal: characters, not bytes, and no styles. */
unsigned text_columns(const char *text);

/* The last part of a path; a path as people type it, relative where it is below the current folder. */
const char *base_name(const char *path);
const char *path_from_here(const char *path);

/* The first character of a text in UTF-8; returns its length, 0 at the end or if invalid. */
size_t cli_character(const char *text, uint32_t *code);
/* Control characters, and what moves, hides or reorders text without being seen. */
bool cli_is_unseen(uint32_t code);

/* The safe text in double quotes, as Prometheus wants it; escape.h has JSON. */
void cli_print_quoted(FILE *file, const char *name);

/* "64K", "1.5GiB"; "10ms", "5s", "2m", "1h"; "10%" or "0.1"; "42".  False for anything else. */
bool parse_size(const char *text, uint64_t *bytes);
bool parse_duration(const char *text, uint64_t *ns);
bool parse_share(const char *text, double *share);
bool parse_count(const char *text, uint64_t *count);

/*
 * Where a result goes: stdout for NULL and "-", the descriptor for /dev/fd/N, otherwise a new file of mode 0600 that
 * appears under its name complete or not at all (a temporary name, then a rename that replaces nothing unless
 * `overwrite`).
 */
struct output {
    FILE *file;
    const char *path; /* NULL: stdout */
    char *temporary;
    bool overwrite;
};
bool output_open(struct output *output, const char *path, bool overwrite);
/* Whether it can be opened, with a sentence where not: before the work that gives the result.  Leaves nothing. */
bool output_judge(const char *path, bool overwrite);
/* False, after a sentence, where not all of it arrived. */
bool output_close(struct output *output);
void output_discard(struct output *output);

/* A bar on a terminal's stderr, after half a second, at most ten times a second; erased at the end. */
void progress(const char *what, uint64_t done, uint64_t all);
void progress_end(void);
