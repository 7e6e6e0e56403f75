/* SPDX-License-Identifier: MIT
 *
 * os_confined.h - may an unexpected system call end the process?
 *
 * It may behind a filter of system calls that the process cannot get rid of.  A filter that was there
 * at start has let our first calls pass (os_facts.confined).  One that the program installs later
 * must not be asked for by a system call, which may be the one that kills.  Who installs a filter
 * first gives up new privileges, by prctl, which the program finds in this library (api/prctl.c).
 */
#pragma once

#include "base/os.h"

/* A filter is there, or may be. */
bool os_is_confined(void);

/* May calls be made that the program itself may not make?  Yes, unless it confined itself since start. */
static inline bool os_may_ask_kernel(void) {
    return os_facts.confined || !os_is_confined();
}

/* What the kernel says, at start. */
bool os_ask_confined(void);

/* prctl for the program, which may confine itself by it; the kernel's answer. */
long os_prctl_for_program(int option, const unsigned long arguments[4]);
