/* SPDX-License-Identifier: MIT
 *
 * witness.h - was a signal sent to us alone, or to everybody in our group?
 *
 * `tally run` passes on what was sent to it.  A signal that timeout(1) or a service manager sends to all
 * processes of a group reaches the program anyway, and some take a second SIGTERM for "at once".  The kernel
 * does not tell the two apart.  So there is a witness: a process of our group that nobody knows and that
 * takes no signal.  What is pending there was sent to everybody.
 *
 * Threads     One; witness_has and witness_forget may be called from signal handlers.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>

/* Starts it with all signals blocked, as they must be by who calls.  Without one, nothing is ever
 * pending. */
void witness_start(void);

/* Is the signal pending there, now or within some milliseconds? */
bool witness_has(int number);

/* What is pending there is forgotten, a little later: who sends to all may send to us as well. */
void witness_forget(void);

void witness_end(void);
