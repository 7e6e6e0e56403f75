/* SPDX-License-Identifier: MIT
 *
 * prctl.c - prctl as the program calls it: the system call, and a note when the program is about to
 * confine itself (base/os_confined.h).
 *
 * Threads     Any, also in a signal handler and before the allocator has started.
 * Errors      errno is set as libc does, and otherwise left alone.
 */
#include <errno.h>
#include <stdarg.h>

#include "api/names.h"
#include "base/os_confined.h"

#if TALLY_OVERRIDE

static int program_controls(int option, ...) {
    unsigned long arguments[4];
    va_list list;
    va_start(list, option);
    for (unsigned i = 0; i < 4; i++) {
        arguments[i] = va_arg(list, unsigned long);
    }
    va_end(list);
    long answer = os_prctl_for_program(option, arguments);
    if (answer < 0) {
        errno = (int)-answer;
        return -1;
    }
    return (int)answer;
}

extern __typeof__(program_controls) prctl SAME_AS(program_controls);

#endif
