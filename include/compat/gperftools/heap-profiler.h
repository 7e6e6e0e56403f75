/* SPDX-License-Identifier: MIT
 *
 * gperftools/heap-profiler.h - the heap profiler under gperftools' names, served by tally.
 *
 * Every allocation is recorded from HeapProfilerStart to HeapProfilerStop.  Files are called
 * <prefix>.0001.heap and so on, in gperftools' text, and read by pprof.  They are written by
 * HeapProfilerDump, at exit, and now and then as HEAP_PROFILE_ALLOCATION_INTERVAL and its kin say;
 * docs/manual/profiling.md tells more.
 */
#ifndef TALLY_COMPAT_GPERFTOOLS_HEAP_PROFILER_H
#define TALLY_COMPAT_GPERFTOOLS_HEAP_PROFILER_H

#ifdef __cplusplus
extern "C" {
#endif

/* Has no effect while it is running, and in set-uid programs. */
void HeapProfilerStart(const char *prefix);

/* 0 or 1. */
int IsHeapProfilerRunning(void);

/* Forgets what was recorded, and writes nothing. */
void HeapProfilerStop(void);

/* Writes the next file; the reason is told on standard error.  Has no effect unless it is running. */
void HeapProfilerDump(const char *reason);

/* What such a file would contain.  The caller frees it; it is empty unless the profiler is running, and
 * NULL without memory. */
char *GetHeapProfile(void);

#ifdef __cplusplus
}
#endif

#endif
