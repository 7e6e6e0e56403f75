/* SPDX-License-Identifier: MIT
 *
 * log.c - one line to standard error, without malloc and without a lock.
 *
 * Threads     A line is one write, so lines of several threads do not mix.
 */
#include "base/log.h"

#include "base/fmt.h"
#include "base/os.h"

static void write_line(const char *format, va_list list) {
    if (os_facts.must_be_silent) {
        return;
    }
    char line[512];
    size_t length = fmt_text(line, sizeof(line), "tally: ");
    length += fmt_text_list(line + length, sizeof(line) - length - 1, format, list);
    line[length] = '\n';
    os_write(2, line, length + 1);
}

void log_warning(const char *format, ...) {
    va_list list;
    va_start(list, format);
    write_line(format, list);
    va_end(list);
}

void fatal(const char *format, ...) {
    va_list list;
    va_start(list, format);
    write_line(format, list);
    va_end(list);
    os_abort();
}

void log_internal_error(const char *condition, const char *file, int line) {
    fatal("internal error: '%s' does not hold at %s:%d; this is a bug in tally", condition, file,
          line);
}
