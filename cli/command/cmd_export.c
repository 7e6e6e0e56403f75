/* SPDX-License-Identifier: MIT
 *
 * cmd_export.c - `tally export`: a profile as a file of another kind.
 *
 * Read, add up, name, select, hide, write.  The first word or the ending of -o says which format.
 * What cannot work (no such format, no graphviz, a picture for a terminal) is reported before
 * anything is read.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args/args.h"
#include "command/commands.h"
#include "common/cli.h"
#include "export/export.h"
#include "names/symbolize.h"
#include "select/select.h"

static struct {
    const char *output;
    bool overwrite;
    bool anonymize;
} g;

static void say_formats(const char *word) {
    char names[512] = "";
    size_t length = 0;
    for (const struct export_format *one = export_formats; one->name != NULL; one++) {
        const char *between = one == export_formats ? "" : one[1].name != NULL ? ", " : " and ";
        length +=
            (size_t)snprintf(names + length, sizeof(names) - length, "%s%s", between, one->name);
    }
    complain(EXIT_USAGE, "'%s' is no format%s; there are %s", safe_text(word),
             g.output != NULL ? ", and the ending of -o tells none" : "", names);
}

/* The format; *first is where profiles begin.  NULL after a sentence. */
static const struct export_format *choose_format(int count, char **words, int *first) {
    const struct export_format *by_ending = g.output != NULL ? export_by_ending(g.output) : NULL;
    const struct export_format *by_name = export_by_name(words[0]);
    *first = 0;
    if (by_name != NULL && (count > 1 || by_ending == NULL)) {
        *first = 1;
        return by_name;
    }
    if (by_ending == NULL) {
        say_formats(words[0]);
    }
    return by_ending;
}

static enum exit_code check_means(const struct export_format *format) {
    if (format->needs_graphviz) {
        char *program = export_find_dot(NULL);
        if (program == NULL) {
            return complain(EXIT_NOT_FOUND,
                            "dot of graphviz is not installed, and it draws the call graph: "
                            "install graphviz, or write the text with `tally export dot`");
        }
        free(program);
    }
    bool is_stdout = g.output == NULL || strcmp(g.output, "-") == 0;
    if (format->is_binary && is_stdout && isatty(STDOUT_FILENO)) {
        return complain(EXIT_USAGE, "%s is nothing for a terminal; give a file with -o",
                        format->name);
    }
    return EXIT_DONE;
}

static enum exit_code write_profile(const struct export_format *format,
                                    const struct profile *profile) {
    struct output output;
    if (!output_open(&output, g.output, g.overwrite)) {
        return EXIT_OWN_FAILURE;
    }
    if (!format->write(profile, &output)) {
        output_discard(&output);
        return format->needs_graphviz ? EXIT_OWN_FAILURE : EXIT_BAD_INPUT;
    }
    return output_close(&output) ? EXIT_DONE : EXIT_OWN_FAILURE;
}

static int run(int count, char **words) {
    int first;
    const struct export_format *format = choose_format(count, words, &first);
    if (format == NULL) {
        return EXIT_USAGE;
    }
    if (first == count) {
        return (int)complain(EXIT_USAGE, "which profile? tally export %s PROFILE...", format->name);
    }
    int status = (int)check_means(format);
    if (status != EXIT_DONE) {
        return status;
    }
    if (!output_judge(g.output, g.overwrite)) {
        return EXIT_OWN_FAILURE;
    }
    struct profile *profile = select_read(words + first, count - first, &status);
    if (profile == NULL) {
        return status;
    }
    struct profile *selected = select_apply(profile, &args_select);
    profile_free(profile);
    if (selected == NULL) {
        return EXIT_USAGE;
    }
    if (g.anonymize) {
        export_anonymize(selected);
    }
    status = (int)write_profile(format, selected);
    profile_free(selected);
    return status;
}

static const struct arg_option own_options[] = {
    {"output", 'o', ARG_TEXT, "FILE", NULL, false, &g.output,
     "Write to this file instead of the standard output"},
    {"overwrite", 0, ARG_SWITCH, NULL, NULL, false, &g.overwrite, "Replace a file that exists"},
    {"anonymize", 0, ARG_SWITCH, NULL, NULL, false, &g.anonymize,
     "Write hashes instead of names, paths, comments and texts of labels"},
    {0},
};
static const struct arg_option *const options[] = {own_options, args_select_options,
                                                   args_symbolize_options, NULL};

#define EXPORT(name, function, endings, is_binary, needs_graphviz, help) "    " help "\n"
const struct command command_export = {
    .name = "export",
    .summary = "Write a profile in a format of other tools",
    .usage = "FORMAT [OPTION...] [-o FILE] PROFILE...",
    .text =
        "Writes profiles, added up, named and selected, in a format of other tools:\n"
        "\n"
#include "export/exports.def"
        "\n"
        "Without FORMAT the ending of FILE chooses it.  Values are estimates, scaled once.  "
        "Formats with a single metric get the one that --metric names, the others get all.  The "
        "call graph leaves out what is below --min and beyond -n, 0.5 % and 80 functions unless "
        "given.\n"
        "\n"
        "    tally export svg -o flames.svg server.4711.tally\n"
        "    tally export -o heap.pb.gz server.4711.tally@peak\n"
        "    tally export folded --metric=alloc_space server.4711.tally | flamegraph.pl >a.svg\n",
    .options = options,
    .words = {1, SIZE_MAX},
    .run = run,
};
