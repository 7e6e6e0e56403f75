/* SPDX-License-Identifier: MIT
 *
 * escape.h - names of functions, files and labels as text of other formats.
 *
 * Names are hostile: whoever wrote the profile chose them.  Every name goes through the one
 * function of its format, which has a test for each character that means something to readers of
 * the format.  For people (all but JSON and plain UTF-8) control, bidi and zero-width characters
 * are made visible first, as safe_text does, and long names are cut.
 */
#pragma once

#include <stdio.h>

void escape_json(FILE *file, const char *text);   /* with its quotes */
void escape_xml(FILE *file, const char *text);    /* text, or an attribute in double quotes */
void escape_dot(FILE *file, const char *text);    /* inside double quotes */
void escape_csv(FILE *file, const char *text);    /* a cell, quoted where it must be */
void escape_folded(FILE *file, const char *text); /* a frame: without semicolons */
void escape_line(FILE *file, const char *text);   /* the rest of a line */
void escape_maps(FILE *file, const char *path);   /* as the kernel does in /proc/PID/maps */
void escape_shell(FILE *file, const char *text);  /* unchanged, as a word in single quotes */

/* A copy with U+FFFD for what is not UTF-8.  To be freed. */
char *escape_utf8(const char *text);

/* The first characters of a text, with an ellipsis where it goes on. */
enum { ESCAPE_SHORT = 120 };
const char *escape_shorten(const char *text, size_t characters, char room[ESCAPE_SHORT * 4 + 4]);
