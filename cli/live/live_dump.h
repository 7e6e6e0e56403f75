/* SPDX-License-Identifier: MIT
 *
 * live_dump.h - takes a profile from a running process.
 */
#pragma once

#include "live/request.h"
#include "live/target.h"
#include "names/symbolize.h"
#include "profile/profile.h"

/* LIVE_ALLOCS is LIVE_HEAP as seen by who wants to know what was allocated, whether it lives or not. */
enum live_kind { LIVE_HEAP, LIVE_PEAK, LIVE_ALLOCS, LIVE_CPU };

/* The process writes "pprof", "jemalloc", "gperftools" or "gperftools-cpu" to a regular file. */
enum exit_code live_dump_raw(const struct target *target, enum live_kind kind, const char *format,
                             int fd, struct reply *reply);

/* The same in memory, named from the files that the process sees; EXIT_DONE, or a sentence. */
enum exit_code live_dump_take(const struct target *target, enum live_kind kind,
                              struct profile **profile, struct symbolize_result *names);

/* The profile of "pid:TARGET": what is live, the highest point, or the processor's time.  NULL,
 * with the exit status in *status, after a sentence. */
struct profile *live_dump_argument(const char *word, enum live_kind kind, int *status);
