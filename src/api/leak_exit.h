/* SPDX-License-Identifier: MIT
 *
 * leak_exit.h - the leak check when the process ends.
 *
 * Threads     Call outside, with no lock held.
 */
#pragma once

#include "base/common.h"

/* Registers the check for the moments that the option asks for.  Call once: libc may allocate. */
void leak_exit_init(void);

/* Reads the program's suppressions; in leak_calls.c. */
void leak_calls_init(void);

/* The program's own code begins, for the option leak_since_main. */
void leak_exit_main_begins(void);
uint64_t leak_exit_since_ns(void);

/* The check, after the program's handlers and destructors.  Returns the status to pass to
 * leak_exit_end when everything else is done; 0 leaves the status as it is. */
int leak_exit_check(void);
enum { LEAK_EXIT_ABORT = 256 };

/* Cancels the check; false if there was none to come. */
bool leak_exit_cancel(void);

/* Functions that are called before the check. */
void leak_exit_add_cleanup(void (*cleanup)(void));
void leak_exit_run_cleanups(void);

/* Flushes the program's streams and ends the process without running handlers. */
_Noreturn void leak_exit_end(int status);
