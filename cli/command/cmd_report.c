/* SPDX-License-Identifier: MIT
 *
 * cmd_report.c - `tally report`: where memory or time went, as text.
 */
#include <stdint.h>

#include "args/args.h"
#include "common/cli.h"
#include "names/symbolize.h"
#include "view/view.h"

/* The processor's time beside a profile of memory, selected in the same way; NULL where there is none. */
static struct profile *select_cpu(char **words, int count) {
    struct select select = args_select;
    select.metric = "cpu";
    struct profile *all = args_select.metric == NULL ? select_read_cpu(words, count) : NULL;
    struct profile *selected = all != NULL ? select_apply(all, &select) : NULL;
    profile_free(all);
    return selected;
}

static int run_report(int count, char **words) {
    struct view view = {.select = &args_select, .by = args_select.by};
    const struct view_kind *kind = view_choose(&view);
    if (kind == NULL) {
        return EXIT_USAGE;
    }
    if (!view_judge_output()) {
        return EXIT_OWN_FAILURE;
    }
    int status = EXIT_BAD_INPUT;
    struct profile *profile = select_read(words, count, &status);
    if (profile == NULL) {
        return status;
    }
    struct profile *selected = select_apply(profile, &args_select), *cpu = NULL;
    status = EXIT_USAGE;
    if (selected != NULL) {
        if (selected->sample_count == 0 && profile->sample_count > 0) {
            note("no stack was selected");
        }
        view_begin(&view, selected, profile);
        view.cpu = cpu = kind->wants_cpu ? select_cpu(words, count) : NULL;
        status = view_print(&view, kind);
        view_end(&view);
    }
    profile_free(cpu);
    profile_free(selected);
    profile_free(profile);
    return status;
}

const struct command command_report = {
    .name = "report",
    .summary = "Show where memory went: functions, trees, source lines, stacks",
    .usage = "[OPTION...] PROFILE...",
    .text = "Prints a profile as text.  A PROFILE is a file of tally, of pprof, jemalloc or "
            "gperftools, or of folded stacks, recognised by its content; FILE@TIME and FILE#N "
            "name a moment of a recorded run, - is the standard input.  Several are added up.\n"
            "\n"
            "flat is what a function allocated itself, cum what it and everything it called did; "
            "a function that calls itself is counted once.  Percentages are of everything, "
            "selected or not.  Where only some allocations were seen, the heading says how far "
            "off the sum may be: the true value lies within that range in 95 of 100 cases.\n"
            "\n"
            "  tally report server.4711.tally\n"
            "  tally report --tree --focus=handle_request --min=10% server.4711.tally\n"
            "  tally report --list=account_load --source-path=src server.4711.tally\n"
            "  tally report --sites -n 0 heap.pb.gz",
    .options = (const struct arg_option *const[]){view_options, args_select_options,
                                                  args_symbolize_options, NULL},
    .words = {1, SIZE_MAX},
    .run = run_report,
};
