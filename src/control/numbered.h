/* SPDX-License-Identifier: MIT
 *
 * numbered.h - profiles in files called <prefix>.0001.heap and so on, as gperftools' heap profiler
 * writes them.
 *
 * Threads     All functions may be called from any thread, inside (api/life.h) and with no lock held.
 */
#pragma once

#include "base/common.h"

/* After options: running from the start if they say so. */
void numbered_init(void);

/* Records every allocation from now on, what was recorded before is forgotten.  False, with nothing
 * changed, when it is running already, when the prefix is empty or too long, and in set-uid programs. */
bool numbered_start(const char *path);

/* Forgets everything and records no more. */
void numbered_stop(void);
bool numbered_is_running(void);

/* Writes the next file and says so in one line, with the reason.  Existing files are skipped. */
void numbered_dump(const char *reason);

/* Files of a forked child have its process id in their names. */
void numbered_forked(void);
