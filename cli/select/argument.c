/* SPDX-License-Identifier: MIT
 *
 * argument.c - from a word such as app.tally@peak to the file or process and the moment that it means.
 */
#include "select/argument.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cli.h"
#include "live/live_dump.h"
#include "read/known.h"
#include "read/read_worker.h"

/* What follows the file name. */
struct suffix {
    bool is_peak, has_time, has_number;
    uint64_t t_ns, number;
};

/* "@peak", "@end", "@1.5s", "#3"; false: it is none of these. */
static bool parse_suffix(const char *text, struct suffix *suffix) {
    if (text[0] == '#') {
        char *end;
        errno = 0;
        suffix->number = strtoull(text + 1, &end, 10);
        suffix->has_number = true;
        return text[1] >= '0' && text[1] <= '9' && *end == '\0' && errno == 0;
    }
    suffix->is_peak = strcmp(text, "@peak") == 0;
    if (suffix->is_peak || strcmp(text, "@end") == 0) {
        return true;
    }
    suffix->has_time = true;
    return parse_duration(text + 1, &suffix->t_ns);
}

/* The last moment that is not later; the first where all are later. */
static uint32_t moment_at(const struct read_moment *moments, uint32_t count, uint64_t t_ns) {
    uint32_t moment = 0;
    while (moment + 1 < count && moments[moment + 1].t_ns <= t_ns) {
        moment++;
    }
    return moment;
}

/* The profile of the processor's time that was made with the moment, or at the time, that was asked for. */
static bool choose_cpu_moment(const char *path, const struct read_run *run,
                              const struct suffix *suffix, struct read_choice *choice,
                              int *status) {
    if (run->cpu_count == 0) {
        *status = complain(EXIT_BAD_INPUT,
                           "%s: the processor's time was not recorded; `tally run --cpu` does",
                           safe_text(path));
        return false;
    }
    if (suffix->is_peak) {
        *status = complain(EXIT_USAGE, "%s: the processor's time has no peak; use @TIME or #N",
                           safe_text(path));
        return false;
    }
    uint64_t t_ns = suffix->has_time     ? suffix->t_ns
                    : suffix->has_number ? run->moments[choice->moment].t_ns
                                         : UINT64_MAX;
    choice->moment = moment_at(run->cpu, run->cpu_count, t_ns);
    return true;
}

/* False, after a sentence, where the run has no such moment. */
static bool choose_moment(const char *path, const struct read_run *run, const struct suffix *suffix,
                          struct read_choice *choice, int *status) {
    choice->is_peak = suffix->is_peak;
    choice->is_cpu = choice->wants_cpu && strcmp(run->format, "tally") == 0;
    choice->moment = run->moment_count > 0 ? run->moment_count - 1 : PROFILE_NONE;
    if (suffix->has_number && suffix->number - 1 < run->moment_count) {
        choice->moment = (uint32_t)(suffix->number - 1);
    } else if (suffix->has_number) {
        *status = complain(EXIT_BAD_INPUT, "%s: its snapshots are #1 to #%u", safe_text(path),
                           run->moment_count);
        return false;
    } else if (suffix->has_time && run->moment_count > 0) {
        choice->moment = moment_at(run->moments, run->moment_count, suffix->t_ns);
        uint64_t end = run->moments[run->moment_count - 1].t_ns;
        if (suffix->t_ns > end) {
            note("%s ends at %s, which is shown instead of %s", safe_text(path), duration_text(end),
                 duration_text(suffix->t_ns));
        }
    }
    return !choice->is_cpu || choose_cpu_moment(path, run, suffix, choice, status);
}

/* Cuts "app.tally@peak" in two unless that is a file.  To be freed; NULL after a sentence. */
static char *cut_word(const char *word, struct suffix *suffix, int *status) {
    char *path = must_copy(word);
    char *mark = strrchr(path, '@'), *number = strrchr(path, '#');
    mark = mark == NULL || (number != NULL && number > mark) ? number : mark;
    memset(suffix, 0, sizeof *suffix);
    if (mark == NULL || mark == path || access(word, F_OK) == 0) {
        return path;
    }
    if (!parse_suffix(mark, suffix)) {
        *status = complain(EXIT_USAGE, "%s: behind the file name stands @TIME, @peak, @end or #N",
                           safe_text(word));
        free(path);
        return NULL;
    }
    *mark = '\0';
    return path;
}

static struct read_run *read_path(const char *path, const char *format, int *status) {
    char why[READ_WHY_BYTES];
    struct read_run *run = read_confined(path, format, why);
    if (run == NULL) {
        *status = complain(EXIT_BAD_INPUT, "%s: %s", safe_text(path), safe_text(why));
    } else if (run->lost_bytes > 0) {
        warn(cli_salvage ? "%s: %llu bytes of it are damaged and are left out"
                         : "%s: its last %llu bytes are no whole frame and are left out",
             safe_text(path), (unsigned long long)run->lost_bytes);
    }
    return run;
}

/* "pid:TARGET" is a run of one moment, which is now; of its past it knows the peak. */
static struct read_run *read_process(const char *word, struct suffix *suffix, bool wants_cpu,
                                     int *status) {
    if (suffix->has_time || suffix->has_number) {
        *status = complain(EXIT_USAGE, "%s: a running process is looked at now or @peak",
                           safe_text(word));
        return NULL;
    }
    enum live_kind kind = wants_cpu ? LIVE_CPU : suffix->is_peak ? LIVE_PEAK : LIVE_HEAP;
    struct profile *profile = live_dump_argument(word, kind, status);
    suffix->is_peak = false; /* it is what the moment has */
    return profile != NULL ? read_run_of(profile, "pprof") : NULL;
}

struct read_run *read_argument_run(const char *word, struct read_choice *choice, int *status) {
    struct suffix suffix;
    char *path = cut_word(word, &suffix, status);
    if (path == NULL) {
        return NULL;
    }
    struct read_run *run = strncmp(word, "pid:", 4) == 0
                               ? read_process(path, &suffix, choice->wants_cpu, status)
                               : read_path(path, choice->format, status);
    choice->is_given = strcmp(path, word) != 0;
    if (run != NULL && !choose_moment(path, run, &suffix, choice, status)) {
        read_run_free(run);
        run = NULL;
    }
    free(path);
    return run;
}

struct profile *read_chosen(struct read_run *run, const struct read_choice *choice,
                            const char *word, int *status) {
    char why[READ_WHY_BYTES];
    struct profile *profile = NULL;
    if (choice->moment == PROFILE_NONE) {
        read_damage(why, "it has no whole snapshot");
    } else if (choice->is_cpu) {
        profile = read_cpu_moment(run, choice->moment, why);
    } else if (choice->is_peak) {
        profile = read_peak(run);
        read_damage(why, "it does not say what was in use at its peak");
    } else {
        profile = read_moment(run, choice->moment, why);
    }
    if (profile == NULL) {
        *status = complain(EXIT_BAD_INPUT, "%s: %s", safe_text(word), safe_text(why));
    }
    return profile;
}

struct profile *read_argument(const char *word, bool wants_cpu, int *status) {
    struct read_choice choice = {.wants_cpu = wants_cpu};
    struct read_run *run = read_argument_run(word, &choice, status);
    uint64_t reach;
    if (run == NULL) {
        return NULL;
    }
    const char *why = read_reach(run, &reach);
    if (why != NULL && !choice.is_given && run->moment_count > 0) {
        note("%s reaches only until %s: %s", safe_text(word), duration_text(reach), why);
    }
    struct profile *profile = read_chosen(run, &choice, word, status);
    bool is_last = choice.moment + 1 == run->moment_count && !choice.is_cpu && !choice.is_peak;
    if (profile != NULL && is_last) {
        struct known_moment end = known_end(run, profile);
        struct figure live = known_live(&end);
        profile->counted_live = live.kind == FIGURE_EXACT ? figure_int(live.value) : 0;
    }
    if (profile != NULL) { /* it no longer belongs to the run */
        *(choice.is_cpu    ? &run->cpu[choice.moment].profile
          : choice.is_peak ? &run->peak
                           : &run->moments[choice.moment].profile) = NULL;
    }
    read_run_free(run);
    return profile;
}
