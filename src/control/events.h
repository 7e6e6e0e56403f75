/* SPDX-License-Identifier: MIT
 *
 * events.h - samples one by one, as jemalloc's JSON: the log and the recent ones.
 *
 * Threads     All functions may be called from any thread, inside (api/life.h) and with no lock
 *             held.
 */
#pragma once

#include "base/common.h"

/* Logs samples until the log is stopped, which writes them to this file, or to one with an
 * automatic name if `path` is NULL.  0 or -errno: -EALREADY if there is a log, -ENAMETOOLONG. */
int events_log_start(const char *path);

/* -ENOENT if there is no log; otherwise the log has ended, whatever else is returned. */
int events_log_stop(void);

/* Gives the recent samples to the program's function, as one text.  False without memory. */
bool events_write_recent(void (*give)(void *opaque, const char *text), void *opaque);
