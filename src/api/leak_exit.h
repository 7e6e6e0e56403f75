/* SPDX-License-Identifier: MIT
 *
 * leak_exit.h - the leak check when the process ends.
 *
 * Threads     Outside and with no lock held.
 */
#pragma once

#include "base/common.h"

/* Has it come at the moments that the option asks for.  Once, outside: libc may allocate. */
void leak_exit_init(void);

/* The program's rules, by leak_calls.c. */
void leak_calls_init(void);

/* The program's own code begins: leak_since_main. */
void leak_exit_main_begins(void);
uint64_t leak_exit_since_ns(void);

/* The program's handlers and destructors have run.  What the process is to end with, by leak_exit_end, when
 * everything else is done; 0: as it would. */
int leak_exit_check(void);
enum { LEAK_EXIT_ABORT = 256 };

/* There is no need for it any more; false if there was none before. */
bool leak_exit_cancel(void);

/* Before the check, these are called. */
void leak_exit_add_cleanup(void (*cleanup)(void));
void leak_exit_run_cleanups(void);

/* What the program prints is not lost, then the end without handlers. */
_Noreturn void leak_exit_end(int status);
