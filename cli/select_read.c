/* SPDX-License-Identifier: MIT
 *
 * select_read.c - the PROFILE arguments of a command as one profile with names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "read.h"
#include "select.h"
#include "symbolize.h"

/* The word as FILE@TIME. */
static struct profile *read_at(const char *word, const char *time, int *status) {
    if (time == NULL) {
        return read_argument(word, status);
    }
    size_t bytes = strlen(word) + strlen(time) + 2;
    char *text = must_alloc(bytes);
    snprintf(text, bytes, "%s@%s", word, time);
    struct profile *profile = read_argument(text, status);
    free(text);
    return profile;
}

static struct profile *read_word(const char *word, int *status) {
    const char *to = args_select.to != NULL ? args_select.to : args_select.at;
    struct profile *profile = read_at(word, to, status);
    if (profile == NULL || args_select.from == NULL) {
        return profile;
    }
    struct profile *before = read_at(word, args_select.from, status);
    if (before == NULL) {
        profile_free(profile);
        return NULL;
    }
    profile_add_profile(profile, before, -1);
    profile_free(before);
    return profile;
}

struct profile *select_read(char *const *words, int count, int *status) {
    struct profile *all = NULL;
    for (int i = 0; i < count; i++) {
        struct profile *profile = read_word(words[i], status);
        if (profile == NULL) {
            profile_free(all);
            return NULL;
        }
        if (all == NULL) {
            all = profile;
        } else {
            profile_add_profile(all, profile, 1);
            profile_free(profile);
        }
    }
    if (all != NULL) {
        symbolize(all, &args_symbolize);
    }
    return all;
}
