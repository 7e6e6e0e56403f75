/* SPDX-License-Identifier: MIT
 *
 * numbered.h - profiles in files called <prefix>.0001.heap and so on, as gperftools' heap profiler
 * writes them.
 *
 * Threads     All functions may be called from any thread, inside (api/life.h) and with no lock
 *             held.
 */
#pragma once

#include "base/common.h"

/* After options: starts profiling if they say so. */
void numbered_init(void);

/* Files of a forked child have its process id in their names. */
void numbered_forked(void);
