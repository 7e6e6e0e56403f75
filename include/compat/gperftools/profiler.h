/* SPDX-License-Identifier: MIT
 *
 * gperftools/profiler.h - the CPU profiler under gperftools' names, served by tally.
 *
 * Every thread is sampled as it uses the processor, also those started later; nothing needs to be registered.
 * The file is gperftools' binary and read by pprof and by `tally report`.  docs/manual/cpu.md tells more,
 * and what CPUPROFILE and its kin do.
 */
#ifndef TALLY_COMPAT_GPERFTOOLS_PROFILER_H
#define TALLY_COMPAT_GPERFTOOLS_PROFILER_H

#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* To be zeroed before use.  The filter is called in a signal handler for each sample, which is dropped where
 * it returns 0. */
struct ProfilerOptions {
    int (*filter_in_thread)(void *argument);
    void *filter_in_thread_arg;
};

/* Not 0 if profiling has begun; 0 if it was on, or the file cannot be made. */
int ProfilerStart(const char *fname);
int ProfilerStartWithOptions(const char *fname, const struct ProfilerOptions *options);

/* Writes the file, completely, and ends. */
void ProfilerStop(void);

/* Writes what there is so far. */
void ProfilerFlush(void);

/* Without effect, as in gperftools. */
void ProfilerEnable(void);
void ProfilerDisable(void);

/* Not 0 while profiling is on. */
int ProfilingIsEnabledForAllThreads(void);

/* Without effect: threads are found. */
void ProfilerRegisterThread(void);

struct ProfilerState {
    int enabled;
    time_t start_time;
    char profile_name[1024];
    int samples_gathered;
};
void ProfilerGetCurrentState(struct ProfilerState *state);

/* The call stack that a signal has interrupted, innermost first, without the first `skip_count`; to be
 * called in its handler, with the third argument of that.  Returns how many addresses there are. */
int ProfilerGetStackTrace(void **result, int max_depth, int skip_count, const void *context);

#ifdef __cplusplus
}
#endif

#endif
