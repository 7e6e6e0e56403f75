/* SPDX-License-Identifier: MIT
 *
 * view_options.c - the options that choose a view, and the view they choose; shared by `tally report` and
 * `tally diff`.
 */
#include "common/cli.h"
#include "common/pager.h"
#include "view/view.h"

#define VIEW(option, ...) VIEW_##option,
enum {
#include "view/views.def"
    VIEW_COUNT
};
#undef VIEW

static struct {
    bool is_given[VIEW_COUNT];
    const char *patterns[VIEW_COUNT];
    struct arg_list source_paths;
    const char *output_path;
} g;

#define VIEW(option, function, takes, wants_cpu, instead, help)                                    \
    {#option, function, wants_cpu, instead},
static const struct view_kind kinds[] = {
#include "view/views.def"
};
#undef VIEW

#define SWITCH(option) ARG_SWITCH, NULL, NULL, false, &g.is_given[VIEW_##option]
#define PATTERN(option) ARG_TEXT, "RE", NULL, false, &g.patterns[VIEW_##option]
#define VIEW(option, function, takes, wants_cpu, instead, help) {#option, 0, takes(option), help},
const struct arg_option view_options[] = {
#include "view/views.def"
    {"output", 'o', ARG_TEXT, "OUT", NULL, false, &g.output_path,
     "Write to this file, which must not exist, instead of the standard output"},
    {"source-path", 0, ARG_LIST, "DIR", NULL, false, &g.source_paths,
     "Where --list looks for sources first; may be given more than once"},
    {0}};

/* "--top, --tree or --threads": each view once, without its other names. */
static void complain_of_two(void) {
    char names[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < VIEW_COUNT; i++) {
        const char *between = i == 0 ? "" : i + 1 < VIEW_COUNT ? ", " : " or ";
        if (i == 0 || kinds[i].print != kinds[i - 1].print) {
            length += (size_t)snprintf(names + length, sizeof names - length, "%s--%s", between,
                                       kinds[i].name);
        }
    }
    complain(EXIT_USAGE, "one view at a time: %s", names);
}

const struct view_kind *view_choose(struct view *view) {
    const struct view_kind *kind = NULL;
    regex_t regex;
    for (size_t i = 0; i < VIEW_COUNT; i++) {
        if (!g.is_given[i] && g.patterns[i] == NULL) {
            continue;
        }
        if (kind != NULL && kind->print != kinds[i].print) {
            complain_of_two();
            return NULL;
        }
        kind = &kinds[i];
        view->pattern = g.patterns[i];
    }
    view->source_paths = g.source_paths;
    if (view->pattern != NULL) { /* reported before anything is read or printed */
        if (!select_expression(&regex, kind->name, view->pattern)) {
            return NULL;
        }
        regfree(&regex);
    }
    return kind != NULL ? kind : &kinds[VIEW_top];
}

bool view_judge_output(void) {
    return output_judge(g.output_path, false);
}

int view_print(const struct view *view, const struct view_kind *kind) {
    struct output output;
    struct view shown = *view;
    pager_begin();
    if (!output_open(&output, g.output_path, false)) {
        return EXIT_OWN_FAILURE;
    }
    shown.out = output.file;
    view_print_heading(&shown);
    if (!kind->print(&shown)) {
        output_discard(&output);
        return EXIT_USAGE;
    }
    return output_close(&output) ? EXIT_DONE : EXIT_OWN_FAILURE;
}
