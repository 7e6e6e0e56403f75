/* SPDX-License-Identifier: MIT
 *
 * gperftools_cpu.c - the CPU profiler under gperftools' names.
 *
 * Threads need not be registered, since they are found.  ProfilerEnable and ProfilerDisable do
 * nothing, as in gperftools.
 *
 * Threads     A call that interrupts the allocator, in a signal handler, does nothing.
 */
#include <errno.h>
#include <gperftools/profiler.h>
#include <string.h>

#include "api/life.h"
#include "api/names.h"
#include "base/log.h"
#include "cpu/cpu.h"

_Static_assert(sizeof(struct ProfilerOptions) == 16 && sizeof(struct ProfilerState) == 1048,
               "programs are compiled with these");

FOREIGN int ProfilerStartWithOptions(const char *name, const struct ProfilerOptions *options) {
    char why[CPU_WHY];
    int saved = errno;
    if (name == NULL || !life_enter()) {
        return 0;
    }
    struct cpu_options wish = cpu_options_of_process(); /* Entering has read the options. */
    if (options != NULL) {
        wish.filter = options->filter_in_thread;
        wish.filter_argument = options->filter_in_thread_arg;
    }
    bool started = cpu_file_start(&wish, name, why);
    life_leave();
    if (started) {
        life_watch_exit();
    } else {
        log_line("no CPU profile: %s: %s", name, why);
    }
    errno = saved;
    return started;
}

FOREIGN int ProfilerStart(const char *name) {
    return ProfilerStartWithOptions(name, NULL);
}

FOREIGN void ProfilerStop(void) {
    if (life_enter()) {
        cpu_file_stop();
        life_leave();
    }
}

FOREIGN void ProfilerFlush(void) {
    if (life_enter()) {
        cpu_file_flush();
        life_leave();
    }
}

FOREIGN void ProfilerEnable(void) {
}

FOREIGN void ProfilerDisable(void) {
}

FOREIGN int ProfilingIsEnabledForAllThreads(void) {
    return cpu_is_on();
}

/* Without this call, a thread that has never allocated is found a little later. */
FOREIGN void ProfilerRegisterThread(void) {
    if (life_enter()) {
        cpu_thread_begins();
        life_leave();
    }
}

FOREIGN void ProfilerGetCurrentState(struct ProfilerState *state) {
    struct cpu_totals totals;
    uint64_t start;
    memset(state, 0, sizeof(*state));
    if (!life_enter()) {
        return;
    }
    if (cpu_file_read(state->profile_name, sizeof(state->profile_name), &start)) {
        cpu_read_totals(&totals);
        state->enabled = 1;
        state->start_time = (time_t)start;
        state->samples_gathered = (int)totals.samples;
    }
    life_leave();
}

FOREIGN int ProfilerGetStackTrace(void **result, int max_depth, int skip_count,
                                  const void *context) {
    if (max_depth <= 0 || skip_count < 0) {
        return 0;
    }
    return (int)cpu_read_stack(context, (uintptr_t *)result, (unsigned)max_depth,
                               (unsigned)skip_count);
}
