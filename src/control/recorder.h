/* SPDX-License-Identifier: MIT
 *
 * recorder.h - the run of this process in one file, over time: opt.run_file.
 *
 * Threads     All functions are called inside (api/life.h), with no lock held, unless said
 *             otherwise.
 */
#pragma once

#include "base/common.h"

/* Is the processor's time recorded in the file? */
bool recorder_has_cpu(void);

/* Writes what is due.  Returns the milliseconds until the next look, UINT64_MAX if there is nothing
 * to wait for. */
uint64_t recorder_tick(void);

/* A snapshot out of turn, with a note that says why. */
void recorder_snap(const char *why);

/* A note without a snapshot; false if nothing is recorded, or the note cannot be written. */
bool recorder_note(const char *text);

/* In the child of a fork: the file is the parent's. */
void recorder_forked(void);
