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

void log_warning(const char *format, ...) PRINTF_LIKE(1, 2);
_Noreturn void fatal(const char *format, ...) PRINTF_LIKE(1, 2);
_Noreturn void log_internal_error(const char *condition, const char *file, int line);

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
