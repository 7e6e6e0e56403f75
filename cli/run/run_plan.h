/* SPDX-License-Identifier: MIT
 *
 * run_plan.h - what `tally run` needs of the library: its path, the recording's path, and its keys.
 */
#pragma once

#include <sys/types.h>

#include "args/args.h"
#include "common/cli.h"

enum { RUN_PATH_BYTES = 4096, RUN_CONF_BYTES = 3 * RUN_PATH_BYTES };

/* Samples of CPU time per second: what --cpu alone means, and the most that the library accepts. */
#define RUN_CPU_HZ "100"
#define RUN_NO_CPU UINT64_MAX /* the option was not given */
enum { RUN_CPU_HZ_MOST = 4000 };

/* Is it a valid value of --cpu?  False after a sentence. */
bool run_is_cpu_hz(uint64_t hz);

enum run_report { RUN_REPORT_SUMMARY, RUN_REPORT_NONE };
enum run_control { RUN_CONTROL_WRITE, RUN_CONTROL_READ, RUN_CONTROL_OFF };

/* The options as given; NULL and 0: not given. */
struct run_wishes {
    const char *rate, *output, *children;
    uint64_t every_ns, every_bytes, timeout_ns, depth, cpu_hz;
    struct arg_list dump_at;
    unsigned report;         /* enum run_report */
    unsigned control;        /* enum run_control */
    uint64_t leak_exit_code; /* 0: leaks change nothing */
    bool leaks;
    bool preload_only, wait;
};

struct run_plan {
    const struct run_wishes *wishes;
    enum exit_code failure; /* of the command, where there is no plan */
    char library[RUN_PATH_BYTES];
    char stem[RUN_PATH_BYTES]; /* of the file, without the process id and .tally */
    bool has_process;          /* the process id follows the stem */
    char conf[RUN_CONF_BYTES]; /* our keys */
};

/* False after a sentence. */
bool run_plan_make(struct run_plan *plan, const struct run_wishes *wishes, const char *program);

/* The path of one file of a process: the first, or that of the n-th program it became. */
void run_plan_name(const struct run_plan *plan, pid_t pid, unsigned number,
                   char path[RUN_PATH_BYTES]);
