/* SPDX-License-Identifier: MIT
 *
 * escape.c - names as text of other formats.
 */
#include "common/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/cli.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

char *escape_utf8(const char *text) {
    char *copy = must_alloc(strlen(text) * 3 + 1);
    char *end = copy;
    while (*text != '\0') {
        uint32_t code;
        size_t length = cli_character(text, &code);
        const char *from = length > 0 ? text : replacement;
        size_t bytes = length > 0 ? length : 3;
        memcpy(end, from, bytes);
        end += bytes;
        text += length > 0 ? length : 1;
    }
    *end = '\0';
    return copy;
}

const char *escape_shorten(const char *text, size_t characters, char room[ESCAPE_SHORT * 4 + 4]) {
    size_t used = 0, cut = 0, count = 0;
    while (text[used] != '\0') {
        uint32_t code;
        size_t length = cli_character(text + used, &code);
        used += length > 0 ? length : 1;
        count++;
        if (count < characters && count < ESCAPE_SHORT) {
            cut = used;
        } else if (count > characters || count > ESCAPE_SHORT) {
            memcpy(room, text, cut);
            strcpy(room + cut, "\xe2\x80\xa6");
            return room;
        }
    }
    return text;
}

/* What a surrounding page could misread, or what is invisible. */
static bool is_strange(uint32_t code) {
    return cli_is_unseen(code) || code == '<' || code == '>' || code == '&' || code == 0xfffe ||
           code == 0xffff;
}

/* Beyond 16 bits a character is two halves. */
static void put_code(FILE *file, uint32_t code) {
    if (code > 0xffff) {
        fprintf(file, "\\u%04x", 0xd800 + ((code - 0x10000) >> 10));
        code = 0xdc00 + ((code - 0x10000) & 0x3ff);
    }
    fprintf(file, "\\u%04x", code);
}

void escape_json(FILE *file, const char *text) {
    putc('"', file);
    while (*text != '\0') {
        uint32_t code = 0xfffd;
        size_t length = cli_character(text, &code);
        if (length == 0) {
            fputs("\\ufffd", file);
            length = 1;
        } else if (code == '"' || code == '\\') {
            fprintf(file, "\\%c", (char)code);
        } else if (is_strange(code)) {
            put_code(file, code);
        } else {
            fwrite(text, 1, length, file);
        }
        text += length;
    }
    putc('"', file);
}

void escape_xml(FILE *file, const char *text) {
    for (text = safe_text(text); *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '&':
            fputs("&amp;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        case '\'':
            fputs("&#39;", file);
            break;
        default:
            /* U+FFFE and U+FFFF are characters, but XML forbids them. */
            if (memcmp(text, "\xef\xbf", 2) == 0 && (uint8_t)text[2] >= 0xbe) {
                fputs(replacement, file);
                text += 2;
            } else {
                putc(*text, file);
            }
        }
    }
}

/* A backslash begins \N, \l and others, an ampersand an entity. */
void escape_dot(FILE *file, const char *text) {
    for (text = safe_text(text); *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            fprintf(file, "\\%c", *text);
        } else if (*text == '&') {
            fputs("&amp;", file);
        } else {
            putc(*text, file);
        }
    }
}

/* Spreadsheets compute cells that begin with one of these; an apostrophe makes them text. */
void escape_csv(FILE *file, const char *text) {
    text = safe_text(text);
    bool is_formula = text[0] != '\0' && strchr("=+-@", text[0]) != NULL;
    bool is_quoted = strpbrk(text, ",\"; '") != NULL || is_formula;
    if (!is_quoted) {
        fputs(text, file);
        return;
    }
    putc('"', file);
    if (is_formula) {
        putc('\'', file);
    }
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            putc('"', file);
        }
        putc(*text, file);
    }
    putc('"', file);
}

void escape_folded(FILE *file, const char *text) {
    for (text = safe_text(text); *text != '\0'; text++) {
        putc(*text == ';' ? ':' : *text, file);
    }
}

void escape_line(FILE *file, const char *text) {
    fputs(safe_text(text), file);
}

void escape_maps(FILE *file, const char *path) {
    for (; *path != '\0'; path++) {
        if ((uint8_t)*path < 0x20 || *path == '\\' || *path == 0x7f) {
            fprintf(file, "\\%03o", (unsigned)(uint8_t)*path);
        } else {
            putc(*path, file);
        }
    }
}

void escape_shell(FILE *file, const char *text) {
    fputc('\'', file);
    for (; *text != '\0'; text++) {
        fputs(*text == '\'' ? "'\\'" : "", file);
        fputc(*text, file);
    }
    fputc('\'', file);
}
