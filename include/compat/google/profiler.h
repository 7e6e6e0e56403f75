/* SPDX-License-Identifier: MIT
 *
 * google/profiler.h - the old name of gperftools/profiler.h.
 */
#ifndef TALLY_COMPAT_GOOGLE_PROFILER_H
#define TALLY_COMPAT_GOOGLE_PROFILER_H

#include <gperftools/profiler.h>

#endif
