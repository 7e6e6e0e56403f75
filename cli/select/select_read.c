/* SPDX-License-Identifier: MIT
 *
 * select_read.c - the PROFILE arguments of a command as one profile with names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args/args.h"
#include "common/cli.h"
#include "names/symbolize.h"
#include "select/argument.h"
#include "select/select.h"

/* The word as FILE@TIME. */
static struct profile *read_moment_of(const char *word, const char *time, bool wants_cpu,
                                      int *status) {
    if (time == NULL) {
        return read_argument(word, wants_cpu, status);
    }
    size_t bytes = strlen(word) + strlen(time) + 2;
    char *text = must_alloc(bytes);
    snprintf(text, bytes, "%s@%s", word, time);
    struct profile *profile = read_argument(text, wants_cpu, status);
    free(text);
    return profile;
}

/* What a leak check found is no moment of a run, but stands in the same file. */
static struct profile *read_leak_profile(const char *word, int *status) {
    struct read_choice choice = {0};
    struct read_run *run = read_argument_run(word, &choice, status);
    struct profile *profile = NULL;
    if (run != NULL && run->leaks != NULL) {
        profile = run->leaks->profile;
        run->leaks->profile = NULL;
    } else if (run != NULL) {
        *status = complain(EXIT_BAD_INPUT,
                           "%s: no leak check is recorded in it; tally run --leaks records one",
                           safe_text(word));
    }
    read_run_free(run);
    return profile;
}

static bool wants_leaks(void) {
    return args_select.metric != NULL && strncmp(args_select.metric, "leak_", 5) == 0;
}

static struct profile *read_word(const char *word, bool wants_cpu, int *status) {
    if (wants_leaks()) {
        return read_leak_profile(word, status);
    }
    const char *to = args_select.to != NULL ? args_select.to : args_select.at;
    struct profile *profile = read_moment_of(word, to, wants_cpu, status);
    if (profile == NULL || args_select.from == NULL) {
        return profile;
    }
    struct profile *before = read_moment_of(word, args_select.from, wants_cpu, status);
    if (before == NULL) {
        profile_free(profile);
        return NULL;
    }
    profile_add_profile(profile, before, -1);
    profile_free(before);
    return profile;
}

/* Adds a profile to the sum so far and frees it, or makes it the sum. */
static void add(struct profile **all, struct profile *profile) {
    if (*all == NULL) {
        *all = profile;
    } else {
        profile_add_profile(*all, profile, 1);
        profile_free(profile);
    }
}

/* A process is not asked: it may not record its time, and would complain. */
static bool has_cpu(const char *word) {
    int status;
    struct read_choice choice = {0};
    struct read_run *run = strncmp(word, "pid:", 4) != 0 && strcmp(word, "-") != 0
                               ? read_argument_run(word, &choice, &status)
                               : NULL;
    bool has = run != NULL && run->cpu_count > 0 && !choice.is_peak;
    read_run_free(run);
    return has;
}

/* Reading the files for their memory has already reported what is wrong with them. */
struct profile *select_read_cpu(char *const *words, int count) {
    struct profile *all = NULL;
    const char *at = args_select.at != NULL ? args_select.at : "";
    int loudness = cli_loudness;
    cli_loudness = 0;
    for (int i = 0; i < count && strcmp(at, "peak") != 0; i++) {
        int status;
        struct profile *profile = has_cpu(words[i]) ? read_word(words[i], true, &status) : NULL;
        if (profile != NULL) {
            add(&all, profile);
        }
    }
    cli_loudness = loudness;
    if (all != NULL) {
        symbolize(all, &args_symbolize);
    }
    return all;
}

struct profile *select_read(char *const *words, int count, int *status) {
    struct profile *all = NULL;
    for (int i = 0; i < count; i++) {
        struct profile *profile = read_word(words[i], read_is_cpu(args_select.metric), status);
        if (profile == NULL) {
            profile_free(all);
            return NULL;
        }
        add(&all, profile);
    }
    if (all != NULL) {
        symbolize(all, &args_symbolize);
    }
    return all;
}
