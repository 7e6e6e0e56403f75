/* SPDX-License-Identifier: MIT
 *
 * read_worker.h - profiles of strangers, read by a process that may die while it does.
 */
#pragma once

#include "read/read.h"

/*
 * What read_run() makes of a file ("-": the standard input), but unpacked and parsed by a child
 * without rights; a NULL format is guessed.  The child lives as long as the run and makes its
 * moments on request.  NULL and a sentence, also where it crashes or takes too long or too much.
 */
struct read_run *read_confined(const char *path, const char *format, char why[READ_WHY_BYTES]);

/* For read.c: the profile of a moment, of memory or of the processor's time, and the end. */
struct profile *read_worker_moment(struct read_worker *worker, bool is_cpu, uint32_t moment,
                                   char why[READ_WHY_BYTES]);
void read_worker_end(struct read_worker *worker);
