/* SPDX-License-Identifier: MIT
 *
 * cmd_report.c - `tally report`: where memory or time went, as text.
 */
#include <stdint.h>

#include "args/args.h"
#include "common/cli.h"
#include "common/pager.h"
#include "names/symbolize.h"
#include "profile/estimate.h"
#include "view/view.h"

/* The type beside the metric in its pair, if there is one. */
static uint32_t find_partner(const struct profile *profile, uint32_t type) {
    uint32_t space, objects;
    if (!profile_find_pair(profile, type, &space, &objects)) {
        return PROFILE_NONE;
    }
    return type == space ? objects : type == objects ? space : PROFILE_NONE;
}

static int print_view(struct view *view, view_fn run) {
    struct output output;
    pager_begin();
    if (!output_open(&output, view_output_path, false)) {
        return EXIT_OWN_FAILURE;
    }
    view->out = output.file;
    view_print_heading(view);
    if (!run(view)) {
        output_discard(&output);
        return EXIT_USAGE;
    }
    return output_close(&output) ? EXIT_DONE : EXIT_OWN_FAILURE;
}

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
    struct view view = {.select = &args_select, .by = args_select.by, .base = PROFILE_NONE};
    view_fn run = view_choose(&view);
    if (run == NULL) {
        return EXIT_USAGE;
    }
    int status = EXIT_BAD_INPUT;
    struct profile *profile = select_read(words, count, &status);
    if (profile == NULL) {
        return status;
    }
    struct profile *selected = select_apply(profile, &args_select);
    status = EXIT_USAGE;
    if (selected != NULL) {
        view.profile = selected;
        view.type = selected->default_type;
        view.partner = find_partner(selected, view.type);
        view.columns = selected->type_count;
        view.whole = profile_total(profile, view.type);
        view.variance = estimate_variance(selected, view.type);
        if (selected->sample_count == 0 && profile->sample_count > 0) {
            note("no stack was selected");
        }
        struct profile *cpu = run == view_threads ? select_cpu(words, count) : NULL;
        view.cpu = cpu;
        status = print_view(&view, run);
        profile_free(cpu);
    }
    profile_free(selected);
    profile_free(profile);
    return status;
}

const struct command command_report = {
    .name = "report",
    .summary = "Show where memory went: functions, trees, source lines, stacks",
    .usage = "[OPTION...] PROFILE...",
    .text = "Prints a profile as text.  A PROFILE is a file of tally, of pprof, jemalloc or "
            "gperftools, or "
            "of folded stacks, recognised by its content; FILE@TIME and FILE#N name a moment of a "
            "recorded "
            "run, - is the standard input.  Several are added up.\n"
            "\n"
            "flat is what a function allocated itself, cum what it and everything it called did; a "
            "function "
            "that calls itself is counted once.  Percentages are of everything, selected or not.  "
            "Where "
            "only some allocations were seen, the heading says how far off the sum may be: the "
            "true value "
            "lies within in 95 of 100 cases.\n"
            "\n"
            "  tally report server.4711.tally\n"
            "  tally report --tree --focus=handle_request --min=10% server.4711.tally\n"
            "  tally report --list=account_load --source-path=src server.4711.tally\n"
            "  tally report --sites -n 0 heap.pb.gz",
    .options = (const struct arg_option *const[]){view_options, args_select_options,
                                                  args_symbolize_options, NULL},
    .words_least = 1,
    .words_most = SIZE_MAX,
    .run = run_report,
};
