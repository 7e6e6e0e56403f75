/* SPDX-License-Identifier: MIT
 *
 * witness.h - was a signal sent to us alone, or to everybody in our group?
 *
 * `tally run` passes on what was sent to it.  A signal that timeout(1) or a service manager sends
 * to all processes of a group reaches the program anyway, and some take a second SIGTERM for "at
 * once".  The kernel does not tell the two apart.  So there is a witness: a process of our group
 * that nobody knows and that blocks every signal.  What is pending there was sent to all.
 *
 * Threads     One; witness_has and witness_forget may be called from signal handlers.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>

/* Starts it with all signals blocked; the caller must have blocked them.  Without a witness,
 * nothing is ever pending. */
void witness_start(void);

/* Is the signal pending there, now or within some milliseconds? */
bool witness_has(int number);

/* Forgets what is pending there, a little later: a sender to all may also send to us alone. */
void witness_forget(void);

void witness_end(void);
