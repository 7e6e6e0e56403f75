/* SPDX-License-Identifier: MIT
 *
 * glyph.h - the characters of drawings: one decision for every command and both streams.
 *
 * UTF-8, unless --ascii was given or the locale names another character set.  A missing locale is
 * no reason to draw badly: containers and cron have none.  Names from files stay as they are.
 */
#pragma once

#include <stdbool.h>

extern bool glyph_is_ascii;

/* Does the locale name a character set other than UTF-8? */
bool glyph_locale_is_plain(void);

enum glyph {
    GLYPH_DOT, /* between two facts, with its blanks */
    GLYPH_MORE,
    GLYPH_ARROW,
    GLYPH_CALLER, /* the other way, with its blanks */
    GLYPH_MINUS,
    GLYPH_PLUS_MINUS,
    GLYPH_BAR,
    GLYPH_CORNER, /* and three more for trees */
    GLYPH_TEE,
    GLYPH_PIPE,
    GLYPH_ORIGIN, /* and the line of a chart */
    GLYPH_AXIS,
    GLYPHS
};
const char *glyph(enum glyph which);

/* A bar of 0 to 8 eighths of a line. */
const char *glyph_height(unsigned eighths);
