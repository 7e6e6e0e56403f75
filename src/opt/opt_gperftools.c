/* SPDX-License-Identifier: MIT
 *
 * opt_gperftools.c - the variables of gperftools' profilers, turned into options of ours.
 *
 * Files are called HEAPPROFILE, or CPUPROFILE, plus whatever keeps the processes of one job apart:
 * a rank from the launcher, by the first variable below that is set, or the process id.  A process
 * whose files have no process id in their names adds a variable to its environment that asks for
 * one in the programs it starts, since these would write the same files otherwise.
 *
 *      PMIX_RANK=3                         .rank-3
 *      SLURM_JOB_ID=.. SLURM_PROCID=3      .slurmid-3
 *      SLURM_JOB_ID=..                     _<pid>
 *      OMPI_HOME=..                        _<pid>
 *      PMI_RANK=3                          .rank-3
 *      HEAPPROFILE_USE_PID=1               _<pid>, beside any of these
 */
#include "opt/opt_gperftools.h"

#include <string.h>

#include "base/fmt.h"
#include "base/log.h"
#include "opt/opt.h"
#include "opt/opt_sources.h"
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

static bool wants_process_id(const char *variable) {
    const char *text = os_environment(variable);
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

/* The variables that go together: the name, and whether it has the process id. */
struct names {
    const char *profile, *process, *for_children;
};

/* Completes a name in an option.  False, with nothing changed, if it is too long. */
static bool complete_name(char *option, size_t capacity, const char *path, struct names names) {
    char suffix[64];
    char process[16] = "";
    if (find_rank(suffix, sizeof(suffix)) || wants_process_id(names.process)) {
        fmt_text(process, sizeof(process), "_%u", os_process_id());
    }
    size_t length = strlen(path) + strlen(suffix) + strlen(process);
    if (length >= capacity) {
        log_line("%s is too long and is ignored", names.profile);
        opt_add_mistake();
        return false;
    }
    memset(option, 0, capacity);
    opt_note_text();
    fmt_text(option, capacity, "%s%s%s", path, suffix, process);
    if (process[0] == '\0') {
        os_add_environment(names.for_children);
    }
    return true;
}

void opt_gperftools_profile(const char *path) {
    static const struct names names = {"HEAPPROFILE", "HEAPPROFILE_USE_PID",
                                       "HEAPPROFILE_USE_PID=1"};
    if (path[0] != '\0' && complete_name(opt.prof_prefix, sizeof(opt.prof_prefix), path, names)) {
        turn_on();
    }
}

/* The variables that start something in gperftools. */
static const char *const acting[] = {
    "HEAPPROFILE",
    "HEAPPROFILESIGNAL",
    "HEAPCHECK",
    "CPUPROFILE",
    "CPUPROFILESIGNAL",
    "CPUPROFILE_PER_THREAD_TIMERS",
    "CPUPROFILE_TIMER_SIGNAL",
};
enum { ACTING = sizeof(acting) / sizeof(acting[0]), OTHER_CASE = 'a' ^ 'A' };

static bool is_hidden;

/* Switches the case of the first letter of these names, wherever they occur in the environment as
 * it is now: constructors may have copied it meanwhile. */
static void turn(bool to_hidden) {
    char name[32];
    for (unsigned i = 0; i < ACTING; i++) {
        fmt_text(name, sizeof(name), "%s", acting[i]);
        name[0] ^= to_hidden ? 0 : OTHER_CASE;
        for (const char *value; (value = os_environment(name)) != NULL;) {
            *((char *)(uintptr_t)value - strlen(name) - 1) ^= OTHER_CASE;
        }
    }
}

void opt_gperftools_hide(void) {
    is_hidden = !os_facts.secure;
    if (is_hidden) {
        turn(true);
    }
}

void opt_gperftools_show(void) {
    if (is_hidden) {
        is_hidden = false;
        turn(false);
    }
}

void opt_gperftools_cpu_profile(const char *path) {
    static const struct names names = {"CPUPROFILE", "CPUPROFILE_USE_PID", "CPUPROFILE_USE_PID=1"};
    if (path[0] != '\0') {
        (void)complete_name(opt.cpu_file, sizeof(opt.cpu_file), path, names);
    }
}

uint64_t opt_gperftools_any_base(const char *text) {
    unsigned lg = 0;
    uint64_t number = 0;
    if (text[0] != '0') {
        int64_t decimal = opt_gperftools_number(text);
        return decimal > 0 ? (uint64_t)decimal : 0;
    }
    bool is_hex = (text[1] | 0x20) == 'x';
    lg = is_hex ? 4 : 3;
    for (text += is_hex ? 2 : 1; number < UINT32_MAX; text++) {
        unsigned digit = (unsigned)(*text >= 'a'   ? *text - 'a' + 10
                                    : *text >= 'A' ? *text - 'A' + 10
                                                   : *text - '0');
        if (*text < '0' || digit >> lg != 0) {
            break;
        }
        number = number << lg | digit;
    }
    return number;
}
