/* SPDX-License-Identifier: MIT
 *
 * run_program.h - starts a program under the library, passes signals on to it and waits for its end.
 */
#pragma once

#include "run/run_plan.h"

/* Prints the environment that the program would get; an exit code. */
int run_program_print(const struct run_plan *plan);

/* 0, or the errno of what failed; a process made nevertheless is still to be waited for. */
int run_program_start(const struct run_plan *plan, char **words);

/* How the program ended, as in wait(2). */
int run_program_wait(void);

/* Waits for the processes that the program has left running, until SIGINT or SIGTERM. */
void run_program_wait_for_rest(void);

pid_t run_program_pid(void);    /* -1: no process could be made */
bool run_program_is_late(void); /* --timeout has ended the program */
