/* SPDX-License-Identifier: MIT
 *
 * cmd_symbolize.c - `tally symbolize`: a copy of a profile with names inside.
 *
 * Such a copy can be read where the programs are not.  Without -o it goes to the standard output, unless
 * that is a terminal.
 */
#include <string.h>
#include <unistd.h>

#include "args/args.h"
#include "common/cli.h"
#include "export/export.h"
#include "names/symbolize.h"
#include "select/argument.h"

static struct {
    const char *output;
    bool overwrite, cache;
    uint64_t pid;
} g = {.cache = true};

static void tell(struct symbolize_result result) {
    note("%u of %u addresses have a name, %u a line; %u of %u files are missing", result.named,
         result.addresses, result.with_line, result.modules_missing, result.modules);
}

static int write_named(struct profile *profile) {
    struct output output;
    if (!output_open(&output, g.output, g.overwrite)) {
        return EXIT_OWN_FAILURE;
    }
    tell(symbolize(profile, &args_symbolize));
    if (!export_pprof(profile, &output)) {
        output_discard(&output);
        return EXIT_OWN_FAILURE;
    }
    return output_close(&output) ? EXIT_DONE : EXIT_OWN_FAILURE;
}

static int run(int count, char **words) {
    (void)count;
    int status = EXIT_DONE;
    bool is_stdout = g.output == NULL || strcmp(g.output, "-") == 0;
    if (is_stdout && isatty(STDOUT_FILENO)) {
        return (int)complain(EXIT_USAGE,
                             "a profile is nothing for a terminal; give a file with -o");
    }
    if (!output_judge(g.output, g.overwrite)) {
        return EXIT_OWN_FAILURE;
    }
    args_symbolize.pid = (long)g.pid;
    args_symbolize.no_cache = !g.cache;
    struct profile *profile = read_argument(words[0], false, &status);
    if (profile == NULL) {
        return status;
    }
    status = write_named(profile);
    profile_free(profile);
    return status;
}

static const struct arg_option options[] = {
    {"output", 'o', ARG_TEXT, "FILE", NULL, false, &g.output,
     "Write to this file, which must not exist"},
    {"overwrite", 0, ARG_SWITCH, NULL, NULL, false, &g.overwrite,
     "Replace the file of -o if it "
     "exists"},
    {"pid", 0, ARG_NUMBER, "PID", NULL, false, &g.pid,
     "See files as this live process does, through its root"},
    {"cache", 0, ARG_SWITCH, NULL, NULL, false, &g.cache,
     "Keep names in a cache and look there first; the default"},
    {0},
};

static const struct arg_option *const tables[] = {options, args_symbolize_options, NULL};

const struct command command_symbolize = {
    .name = "symbolize",
    .summary = "Add names, files and lines to a profile",
    .usage = "[OPTION...] PROFILE",
    .text =
        "Writes a copy of the profile, as profile.proto with gzip, in which addresses have names, "
        "files and lines of functions, including inlined calls.  It can then be read on machines "
        "without the programs and libraries.\n"
        "\n"
        "Files are looked up by the paths in the profile, separate debug files below "
        "/usr/lib/debug.  A file counts only when its build-id is the one in the profile.  "
        "Results are kept in $XDG_CACHE_HOME/tally/sym.  Nothing is fetched from the network "
        "unless --debuginfod is given.\n"
        "\n"
        "    tally symbolize -o named.pb.gz server.4711.tally\n",
    .options = tables,
    .words = {1, 1},
    .run = run,
};
