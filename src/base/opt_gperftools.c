/* SPDX-License-Identifier: MIT
 *
 * opt_gperftools.c - the variables of gperftools' heap profiler, turned into options of ours.
 *
 * The name of its files is HEAPPROFILE and whatever keeps the processes of one job apart: a rank that
 * the launcher gives, the first of those below that is there, or the process id.  A process whose name
 * has no process id asks for one in the programs it will start, by a variable it adds to its own
 * environment, since these would write the same files otherwise.
 *
 *      PMIX_RANK=3                         .rank-3
 *      SLURM_JOB_ID=.. SLURM_PROCID=3      .slurmid-3
 *      SLURM_JOB_ID=..                     _<pid>
 *      OMPI_HOME=..                        _<pid>
 *      PMI_RANK=3                          .rank-3
 *      HEAPPROFILE_USE_PID=1               _<pid>, beside any of these
 */
#include "base/opt_gperftools.h"

#include <string.h>

#include "base/fmt.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/opt_sources.h"
#include "base/os.h"

int64_t opt_gperftools_number(const char *text) {
    while (*text == ' ' || (*text >= '\t' && *text <= '\r')) {
        text++;
    }
    bool negative = *text == '-';
    text += negative || *text == '+';
    int64_t number = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *text - '0', &number)) {
            number = INT64_MAX;
        }
    }
    return negative ? -number : number;
}

bool opt_gperftools_switch(const char *text) {
    return text[0] == '\0' || strchr("tTyY1", text[0]) != NULL;
}

/* What a launcher adds to the name; true if that has to be the process id. */
static bool find_rank(char *suffix, size_t capacity) {
    const char *rank = os_environment("PMIX_RANK");
    const char *format = ".rank-%s";
    suffix[0] = '\0';
    if (rank == NULL && os_environment("SLURM_JOB_ID") != NULL) {
        rank = os_environment("SLURM_PROCID");
        format = ".slurmid-%s";
        if (rank == NULL) {
            return true;
        }
    }
    if (rank == NULL && os_environment("OMPI_HOME") != NULL) {
        return true;
    }
    if (rank == NULL) {
        rank = os_environment("PMI_RANK");
    }
    if (rank != NULL) {
        fmt_text(suffix, capacity, format, rank);
    }
    return false;
}

static bool wants_process_id(void) {
    const char *text = os_environment("HEAPPROFILE_USE_PID");
    return text != NULL && opt_gperftools_switch(text);
}

static void turn_on(void) {
    opt.prof = 1;
    opt.prof_accum = 1;
    opt.prof_final = 1;
    opt.lg_prof_sample = 0;
    opt.prof_alloc_interval = GPERFTOOLS_ALLOC_INTERVAL;
    opt.prof_live_step = GPERFTOOLS_LIVE_STEP;
    opt.prof_names = PROF_NAMES_GPERFTOOLS;
}

void opt_gperftools_profile(const char *path) {
    char suffix[64];
    char process[16] = "";
    if (path[0] == '\0') {
        return;
    }
    if (find_rank(suffix, sizeof(suffix)) || wants_process_id()) {
        fmt_text(process, sizeof(process), "_%u", os_process_id());
    }
    size_t length = strlen(path) + strlen(suffix) + strlen(process);
    if (length >= sizeof(opt.prof_prefix)) {
        log_line("HEAPPROFILE is too long and is ignored");
        opt_add_mistake();
        return;
    }
    memset(opt.prof_prefix, 0, sizeof(opt.prof_prefix));
    fmt_text(opt.prof_prefix, sizeof(opt.prof_prefix), "%s%s%s", path, suffix, process);
    turn_on();
    if (process[0] == '\0') {
        os_add_environment("HEAPPROFILE_USE_PID=1");
    }
}
