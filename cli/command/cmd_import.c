/* SPDX-License-Identifier: MIT
 *
 * cmd_import.c - `tally import`: turns profiles of any known format into profile.proto in gzip.
 *
 * Without -o each file gets an output beside it, which never replaces an existing file.  With -o
 * all of them are added up.
 */
#include <stdlib.h>
#include <string.h>

#include "command/commands.h"
#include "common/cli.h"
#include "export/export.h"
#include "select/argument.h"

/* The first word lets the content decide. */
#define FORMATS "auto|tally|pprof|jemalloc|gperftools|gperftools-cpu|folded"

static struct {
    const char *from;
    const char *output;
    bool overwrite;
} g = {.from = "auto"};

/* To be freed; NULL after a sentence. */
static struct profile *read_word(const char *word, int *status) {
    struct read_choice choice = {.format = strcmp(g.from, "auto") == 0 ? NULL : g.from};
    struct read_run *run = read_argument_run(word, &choice, status);
    struct profile *copy = NULL;
    if (run != NULL) {
        const struct profile *profile = read_chosen(run, &choice, word, status);
        if (profile != NULL) {
            copy = profile_new();
            profile_add_profile(copy, profile, 1);
        }
    }
    read_run_free(run);
    return copy;
}

static int write_profile(const struct profile *profile, const char *path) {
    struct output output;
    if (profile->type_count == 0) {
        return complain(EXIT_BAD_INPUT, "the profiles have no metric in common");
    }
    if (!output_open(&output, path, g.overwrite)) {
        return EXIT_OWN_FAILURE;
    }
    if (!export_pprof(profile, &output)) {
        output_discard(&output);
        return EXIT_OWN_FAILURE;
    }
    if (!output_close(&output)) {
        return EXIT_OWN_FAILURE;
    }
    if (strcmp(path, "-") != 0) {
        note("saved %s", safe_text(path));
    }
    return EXIT_DONE;
}

/* "app.heap.gz" becomes "app.heap.pb.gz".  What comes from standard input goes to standard output. */
static char *output_name(const char *word) {
    static const char ending[] = ".pb.gz";
    char *path = must_alloc(strlen(word) + sizeof ending);
    strcpy(path, word);
    if (strcmp(word, "-") != 0) {
        path[strlen(word) - (ends_with(word, ".gz") ? strlen(".gz") : 0)] = '\0';
        strcat(path, ending);
    }
    return path;
}

static int import_each(int count, char **words) {
    int status = EXIT_DONE;
    for (int i = 0; i < count && status == EXIT_DONE; i++) {
        struct profile *profile = read_word(words[i], &status);
        if (profile != NULL) {
            char *path = output_name(words[i]);
            status = write_profile(profile, path);
            free(path);
        }
        profile_free(profile);
    }
    return status;
}

static int import_together(int count, char **words) {
    int status = EXIT_DONE;
    if (!output_judge(g.output, g.overwrite)) {
        return EXIT_OWN_FAILURE;
    }
    struct profile *all = profile_new();
    for (int i = 0; i < count && status == EXIT_DONE; i++) {
        struct profile *profile = read_word(words[i], &status);
        if (profile != NULL) {
            profile_add_profile(all, profile, 1);
        }
        profile_free(profile);
    }
    if (status == EXIT_DONE) {
        profile_merge_equal(all);
        status = write_profile(all, g.output);
    }
    profile_free(all);
    return status;
}

static int run_import(int count, char **words) {
    return g.output != NULL ? import_together(count, words) : import_each(count, words);
}

static const struct arg_option import_options[] = {
    {"from", 0, ARG_TEXT, "FORMAT", FORMATS, false, &g.from,
     "The format of the files, instead of what their content says"},
    {"output", 'o', ARG_TEXT, "FILE", NULL, false, &g.output,
     "One file for all of them together; - is the standard output"},
    {"overwrite", 0, ARG_SWITCH, NULL, NULL, false, &g.overwrite, "Replace files that exist"},
    {0},
};

const struct command command_import = {
    .name = "import",
    .summary = "Turn profiles of other tools into profile.proto",
    .usage = "[OPTION...] PROFILE...",
    .text = "Reads profiles of tally, pprof, jemalloc, gperftools (heap and CPU) and folded "
            "stacks, and writes profile.proto in gzip, which pprof opens.  Sampled numbers are "
            "scaled once, as the tools they come from would scale them.\n"
            "\n"
            "    tally import jeprof.4711.0.f.heap\n"
            "    tally import -o all.pb.gz server.0001.heap server.0002.heap\n",
    .options = (const struct arg_option *const[]){import_options, NULL},
    .words = {1, SIZE_MAX},
    .run = run_import,
};
