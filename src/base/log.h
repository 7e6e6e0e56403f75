/* SPDX-License-Identifier: MIT
 *
 * log.h - what the library says, and how it stops.
 *
 * Each message is one line on descriptor 2, starting with "tally: ".  The program's mistake ends in
 * fatal(); our own mistake in assert (debug builds) or ensure (always on, where going on could
 * corrupt the heap).  Neither condition may have side effects.
 */
#pragma once

#include "base/common.h"

/* Where lines go instead of descriptor 2, while it is not NULL: the program's malloc_message. */
extern void (**log_writer)(void *opaque, const char *text) HIDDEN;

/* Many programs close standard error before they exit.  Code that has something to say after that keeps a copy
 * of it early. */
void log_keep_error(void);

/* The child of a fork must not keep a pipe open whose end others wait for. */
void log_forked(void);

/* Text as it is, to log_writer or descriptor 2. */
void log_write(void *opaque, const char *text);

/* Not 0: the process ends after a warning.  The option abort, once there are options. */
extern const uint64_t *log_aborts HIDDEN;

/* One line. */
void log_line(const char *format, ...) PRINTF_LIKE(1, 2);
/* The same past log_writer, for a thread that must not call code of the program.  Nothing is written unless
 * descriptor 2 is what it was at start: a program that has closed it may have a file of its own there. */
void log_note(const char *format, ...) PRINTF_LIKE(1, 2);
void log_warning(const char *format, ...) PRINTF_LIKE(1, 2);
_Noreturn void fatal(const char *format, ...) PRINTF_LIKE(1, 2);
_Noreturn void log_internal_error(const char *condition, const char *file, int line);

/* Called with the line instead of writing it when the process is about to end, if it is not NULL. */
extern void (*_Atomic log_fatal_hook)(const char *text) HIDDEN;

#define ensure(condition)                                                                          \
    do {                                                                                           \
        if (UNLIKELY(!(condition))) {                                                              \
            log_internal_error(#condition, __FILE__, __LINE__);                                    \
        }                                                                                          \
    } while (0)

/* libc's assert allocates in order to print. */
#undef assert
#define assert(condition)                                                                          \
    do {                                                                                           \
        if (DEBUG) {                                                                               \
            ensure(condition);                                                                     \
        }                                                                                          \
    } while (0)
