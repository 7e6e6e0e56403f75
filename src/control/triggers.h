/* SPDX-License-Identifier: MIT
 *
 * triggers.h - when a profile is written that nobody asked for by a call.
 *
 * Threads     All functions but triggers_signal are called inside (api/life.h), with no lock held.
 */
#pragma once

#include "base/common.h"

/* After options and profiler, at the start. */
void triggers_init(void);

/* The profiler was switched on or off, or has forgotten everything: what was counted until now does
 * not count. */
void triggers_restart(void);

/* ATTENTION_PROFILE: writes what is due. */
void triggers_attend(void);

/* Looks at clock and memory, and writes what is due.  Returns the milliseconds until the next look,
 * UINT64_MAX when there is nothing to wait for. */
uint64_t triggers_tick(void);

/* Is there anything a thread of our own should wait for?  Does any thread do that now? */
bool triggers_want_thread(void);
void triggers_set_thread(bool waits);

/* The signal came.  May be called from its handler. */
void triggers_signal(void);

/* prof.gdump */
bool triggers_gdump(void);
void triggers_set_gdump(bool on);

/* Bytes from one profile to the next by volume; 0: none. */
uint64_t triggers_interval(void);

/* Is there something to do at the end?  Doing it: true if the process has to fail for its leaks. */
bool triggers_want_exit(void);
bool triggers_exit(void);

/* In the child of a fork. */
void triggers_forked(void);
