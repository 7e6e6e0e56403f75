/* SPDX-License-Identifier: MIT
 *
 * recorder.h - the run of this process in one file, over time: opt.run_file.
 *
 * Threads     All functions are called inside (api/life.h), with no lock held, unless they say otherwise.
 */
#pragma once

#include "base/common.h"

/* After options and heap, before the profiler: creates the file, if this process is one that records itself.
 * True then: the profiler is to be armed. */
bool recorder_init(void);

/* Later, outside of the allocator, because it needs a thread: opt.run_cpu_hz. */
void recorder_start_cpu(void);

/* In a child, at the end of an allocation, when its file is there. */
void recorder_start_cpu_in_child(void);

/* Is the processor's time recorded in the file? */
bool recorder_has_cpu(void);

bool recorder_is_on(void);

/* Do the options speak to this process?  Not to descendants of the one that `tally run` has started, but for
 * those that record themselves: they get no socket, no thread and no handler of signals. */
bool recorder_is_meant(void);

/* Writes what is due.  Milliseconds until the next look; UINT64_MAX when there is nothing to wait for. */
uint64_t recorder_tick(void);

/* A snapshot out of turn, with a note that says why. */
void recorder_snap(const char *why);

/* A note alone; false where nothing is recorded, or it cannot be written. */
bool recorder_note(const char *text);

/* The same for what a leak check found, as leaks_write writes it. */
bool recorder_leaks(const char *text, size_t length);

/* The process ends: the last snapshot, and the file gets its name. */
void recorder_end(void);

/* In the child of a fork: the file is its parent's. */
void recorder_forked(void);
