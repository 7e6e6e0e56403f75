/* SPDX-License-Identifier: MIT
 *
 * fmt.h - text into a caller's buffer: no malloc, no locale, safe in a signal handler.
 */
#pragma once

#include <stdarg.h>

#include "base/common.h"

/*
 * A small printf.  Understands %s, %c, %d, %u, %zu, %lu, %llu, %x, %lx, %p and %%, with a width and
 * '0', '-' flags for numbers and strings.  Always ends the text with NUL and returns its length; a
 * text that does not fit is cut.
 */
size_t fmt_text(char *buffer, size_t capacity, const char *format, ...) PRINTF_LIKE(3, 4);
size_t fmt_text_list(char *buffer, size_t capacity, const char *format, va_list arguments)
    PRINTF_LIKE(3, 0);

/* Reads a decimal or 0x number with an optional k, m or g.  False for what is none or too large. */
bool fmt_parse_number(const char *text, size_t length, uint64_t *value);

/* Bytes of the UTF-8 character that starts here, which may be the end of the string; 0 when none does. */
size_t fmt_utf8_length(const char *string);
