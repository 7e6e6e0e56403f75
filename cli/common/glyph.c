/* SPDX-License-Identifier: MIT
 *
 * glyph.c - the characters of drawings.
 */
#define _GNU_SOURCE /* strcasestr */
#include "common/glyph.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

bool glyph_is_ascii;

bool glyph_locale_is_plain(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0') {
            return strcasestr(value, "utf-8") == NULL && strcasestr(value, "utf8") == NULL;
        }
    }
    return false;
}

const char *glyph(enum glyph which) {
    static const char *const glyphs[2][GLYPHS] = {
        {" \u00b7 ", "\u2026", "\u2192", " \u2190 ", "\u2212", "\u00b1", "\u25a0", "\u2514\u2500 ",
         "\u251c\u2500 ", "\u2502  ", "\u2514", "\u2500"},
        {" - ", "...", "->", " <- ", "-", "+-", "#", "`- ", "|- ", "|  ", "+", "-"},
    };
    return glyphs[glyph_is_ascii][which];
}

const char *glyph_height(unsigned eighths) {
    static const char *const heights[2][9] = {
        {" ", "\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"},
        {" ", ".", ".", ":", ":", "+", "+", "#", "#"},
    };
    return heights[glyph_is_ascii][eighths];
}
