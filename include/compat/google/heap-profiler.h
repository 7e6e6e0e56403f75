/* SPDX-License-Identifier: MIT
 *
 * google/heap-profiler.h - the old name of gperftools/heap-profiler.h.
 */
#ifndef TALLY_COMPAT_GOOGLE_HEAP_PROFILER_H
#define TALLY_COMPAT_GOOGLE_HEAP_PROFILER_H

#include <gperftools/heap-profiler.h>

#endif
