/* SPDX-License-Identifier: MIT
 *
 * log.c - one line to standard error, without malloc and without a lock.
 *
 * Threads     A line is one write, so lines of several threads do not mix.
 */
#include "base/log.h"

#include "base/fmt.h"
#include "base/os.h"
#include "base/os_shared.h"

static void (*nobody)(void *opaque, const char *text);
static const uint64_t never;
const uint64_t *log_aborts = &never;

void (**log_writer)(void *opaque, const char *text) = &nobody;

static int kept = -1; /* a copy of standard error; -1: none */

void log_keep_error(void) {
    if (!os_facts.must_be_silent && kept < 0) {
        kept = os_copy_high(2);
    }
}

static bool is_error_of_start(int fd) {
    uint64_t device, inode;
    return os_inode_of(fd, &device, &inode) && device == os_facts.error_device &&
           inode == os_facts.error_inode;
}

/* The program may have closed descriptor 2, or have a file of its own there.  The copy may have been closed as
 * well, and its number be another file by now. */
static int descriptor(void) {
    return kept >= 0 && !is_error_of_start(2) && is_error_of_start(kept) ? kept : 2;
}

STARTUP void log_forked(void) {
    if (kept >= 0 && is_error_of_start(kept)) {
        os_close(kept);
    }
    kept = -1;
}

static void write_past_program(const char *text) {
    size_t length = 0;
    while (text[length] != '\0') {
        length++;
    }
    if (!os_facts.must_be_silent) {
        os_write(descriptor(), text, length);
    }
}

void log_write(void *opaque, const char *text) {
    if (*log_writer != NULL) {
        (*log_writer)(opaque, text);
    } else {
        write_past_program(text);
    }
}

enum { LINE_BYTES = 512 };

static void make_line(char line[LINE_BYTES], const char *format, va_list list) {
    size_t length = fmt_text(line, LINE_BYTES, "tally: ");
    length += fmt_text_list(line + length, LINE_BYTES - length - 2, format, list);
    line[length] = '\n';
    line[length + 1] = '\0';
}

static void write_line(const char *format, va_list list) {
    char line[LINE_BYTES];
    make_line(line, format, list);
    log_write(NULL, line);
}

void log_line(const char *format, ...) {
    va_list list;
    va_start(list, format);
    write_line(format, list);
    va_end(list);
}

void log_note(const char *format, ...) {
    char line[LINE_BYTES];
    va_list list;
    if (!is_error_of_start(2)) {
        return;
    }
    va_start(list, format);
    make_line(line, format, list);
    va_end(list);
    write_past_program(line);
}

void log_warning(const char *format, ...) {
    va_list list;
    va_start(list, format);
    write_line(format, list);
    va_end(list);
    if (*log_aborts) {
        os_abort();
    }
}

void (*_Atomic log_fatal_hook)(const char *text);

void fatal(const char *format, ...) {
    va_list list;
    va_start(list, format);
    void (*hook)(const char *text) = log_fatal_hook;
    if (hook != NULL) {
        char line[LINE_BYTES];
        make_line(line, format, list);
        hook(line);
    } else {
        write_line(format, list);
    }
    va_end(list);
    os_abort();
}

void log_internal_error(const char *condition, const char *file, int line) {
    fatal("internal error: '%s' does not hold at %s:%d; this is a bug in tally", condition, file,
          line);
}
