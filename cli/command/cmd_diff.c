/* SPDX-License-Identifier: MIT
 *
 * cmd_diff.c - `tally diff`: what one profile has more or less than another.
 *
 * Both are selected from as `tally report` does, then joined into one profile with twice the types:
 *
 *      type i              new minus base
 *      type i + count      what the base had
 *
 * so that every view can show a change and what it is a change of.  Two runs have the same code at different
 * addresses, so modules are joined by their paths, addresses become places in the module's file, and what
 * has a name is known by that alone.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "args/args.h"
#include "common/cli.h"
#include "common/pager.h"
#include "names/symbolize.h"
#include "profile/estimate.h"
#include "view/view.h"

static bool wants_exit_code;

static const struct arg_option diff_options[] = {
    {"exit-code", 0, ARG_SWITCH, NULL, NULL, false, &wants_exit_code,
     "Exit with 1 when something differs; --min says what is too little to count"},
    {0}};

/* One side on its way into the joined profile. */
struct side {
    const struct profile *from;
    struct profile *to;
    uint32_t *types;     /* of `from`, by type of `to` */
    uint32_t *locations; /* of `to`, by index in `from` */
    bool is_base;
};

static const char *keep(struct profile *profile, const char *text) {
    return text != NULL ? profile_text(profile, text, strlen(text)) : NULL;
}

static uint32_t *copy_functions(const struct side *side) {
    uint32_t count = side->from->function_count;
    uint32_t *functions = must_alloc(((size_t)count + 1) * sizeof *functions);
    for (uint32_t i = 0; i < count; i++) {
        struct profile_function function = side->from->functions[i];
        function.name = keep(side->to, function.name);
        function.system_name = keep(side->to, function.system_name);
        function.file = keep(side->to, function.file);
        functions[i] = profile_add_function(side->to, function);
    }
    return functions;
}

/* The module of this path, whose addresses are places in its file. */
static uint32_t join_mapping(struct profile *to, const struct profile_mapping *from) {
    const char *path = keep(to, from->path);
    for (uint32_t i = 0; i < to->mapping_count; i++) {
        if (to->mappings[i].path == path) {
            return i;
        }
    }
    struct profile_mapping mapping = {.limit = UINT64_MAX,
                                      .path = path,
                                      .build_id = keep(to, from->build_id),
                                      .has_functions = from->has_functions};
    return profile_add_mapping(to, mapping);
}

static uint32_t *join_mappings(const struct side *side) {
    uint32_t count = side->from->mapping_count;
    uint32_t *mappings = must_alloc(((size_t)count + 1) * sizeof *mappings);
    for (uint32_t i = 0; i < count; i++) {
        mappings[i] = join_mapping(side->to, &side->from->mappings[i]);
    }
    return mappings;
}

static uint64_t joined_address(const struct profile *profile,
                               const struct profile_location *location) {
    if (location->line_count > 0 && args_select.by != BY_ADDRESSES) {
        return 0;
    }
    if (location->mapping >= profile->mapping_count) {
        return location->address;
    }
    const struct profile_mapping *mapping = &profile->mappings[location->mapping];
    return location->address - mapping->start + mapping->offset;
}

static void copy_locations(struct side *side) {
    const struct profile *from = side->from;
    uint32_t *functions = copy_functions(side), *mappings = join_mappings(side);
    struct profile_line *lines = NULL;
    side->locations = must_alloc(((size_t)from->location_count + 1) * sizeof *side->locations);
    for (uint32_t i = 0; i < from->location_count; i++) {
        const struct profile_location *location = &from->locations[i];
        lines = must_grow(lines, ((size_t)location->line_count + 1) * sizeof *lines);
        for (uint32_t j = 0; j < location->line_count; j++) {
            lines[j] = from->lines[location->lines + j];
            lines[j].function = functions[lines[j].function];
        }
        uint32_t mapping = location->mapping < from->mapping_count ? mappings[location->mapping]
                                                                   : (uint32_t)PROFILE_NONE;
        side->locations[i] = profile_add_location(side->to, joined_address(from, location), mapping,
                                                  lines, location->line_count);
    }
    free(lines);
    free(functions);
    free(mappings);
}

static struct profile_label *copy_labels(const struct side *side,
                                         const struct profile_sample *sample) {
    struct profile_label *labels = must_alloc(((size_t)sample->label_count + 1) * sizeof *labels);
    for (uint32_t i = 0; i < sample->label_count; i++) {
        labels[i] = side->from->labels[sample->labels + i];
        labels[i].key = keep(side->to, labels[i].key);
        labels[i].text = keep(side->to, labels[i].text);
        labels[i].unit = keep(side->to, labels[i].unit);
    }
    return labels;
}

/* A value below zero, which would otherwise overflow. */
static int64_t negated(int64_t value) {
    return value == INT64_MIN ? INT64_MAX : -value;
}

static void add_side(struct side *side) {
    uint32_t types = side->to->type_count / 2;
    int64_t *values = must_alloc((2 * (size_t)types + 1) * sizeof *values);
    uint32_t *stack = NULL;
    copy_locations(side);
    for (uint32_t i = 0; i < side->from->sample_count; i++) {
        const struct profile_sample *sample = &side->from->samples[i];
        for (uint32_t type = 0; type < types; type++) {
            int64_t value = profile_value(side->from, i, side->types[type]);
            values[type] = side->is_base ? negated(value) : value;
            values[types + type] = side->is_base ? value : 0;
        }
        stack = must_grow(stack, ((size_t)sample->depth + 1) * sizeof *stack);
        for (uint32_t j = 0; j < sample->depth; j++) {
            stack[j] = side->locations[side->from->stacks[sample->stack + j]];
        }
        struct profile_label *labels = copy_labels(side, sample);
        profile_add_sample(side->to, stack, sample->depth, values, labels, sample->label_count);
        free(labels);
    }
    free(stack);
    free(values);
    free(side->locations);
}

/* The types that both have, in the order of the new one. */
static uint32_t match_types(const struct profile *base, const struct profile *new,
                            uint32_t *base_types, uint32_t *new_types) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < new->type_count; i++) {
        base_types[count] = profile_find_type(base, new->types[i].name);
        new_types[count] = i;
        count += base_types[count] != PROFILE_NONE;
    }
    return count;
}

static void add_types(struct profile *to, const struct profile *from, const uint32_t *types,
                      uint32_t count) {
    for (uint32_t i = 0; i < 2 * count; i++) {
        const struct profile_type *type = &from->types[types[i % count]];
        char name[256];
        snprintf(name, sizeof name, "%s%s", i < count ? "" : "base ", type->name);
        profile_add_type(to, keep(to, name), keep(to, type->unit));
    }
}

/* NULL after a sentence.  The default type is that of the new one. */
static struct profile *join(const struct profile *base, const struct profile *new) {
    uint32_t *base_types = must_alloc(((size_t) new->type_count + 1) * sizeof *base_types);
    uint32_t *new_types = must_alloc(((size_t) new->type_count + 1) * sizeof *new_types);
    uint32_t count = match_types(base, new, base_types, new_types);
    struct profile *joined = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (new_types[i] == new->default_type) {
            joined = profile_new();
            add_types(joined, new, new_types, count);
            joined->default_type = i;
        }
    }
    if (joined != NULL) {
        joined->period = base->period > new->period ? base->period : new->period;
        joined->period_type.name = keep(joined, new->period_type.name);
        joined->period_type.unit = keep(joined, new->period_type.unit);
        joined->source = keep(joined, new->source);
        joined->is_exact_leaf = new->is_exact_leaf;
        add_side(&(struct side){.from = new, .to = joined, .types = new_types});
        add_side(&(struct side){.from = base, .to = joined, .types = base_types, .is_base = true});
        profile_merge_equal(joined);
    } else {
        complain(EXIT_BAD_INPUT, "only the new profile has %s",
                 safe_text(new->types[new->default_type].name));
    }
    free(base_types);
    free(new_types);
    return joined;
}

/* Whether a function has more or less than before, --min of the base at least. */
static bool differs(struct view *view) {
    view_index(view);
    struct view_weight *weights = view_weigh(view);
    bool found = false;
    for (uint32_t i = 0; i < view->node_count && !found; i++) {
        found = weights[i].flat != 0 && !view_is_small(view, weights[i].flat, 0);
    }
    free(weights);
    view_release(view);
    return found || (view->node_count == 0 && profile_total(view->profile, view->type) != 0);
}

static double sum_variances(const struct profile *base, const struct profile *new, uint32_t type) {
    uint32_t base_type = profile_find_type(base, new->types[type].name);
    double a = estimate_variance(new, type);
    double b = base_type != PROFILE_NONE ? estimate_variance(base, base_type) : 0;
    return a < 0 || b < 0 ? -1 : a + b;
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
    if (!output_close(&output)) {
        return EXIT_OWN_FAILURE;
    }
    view->by = view->select->by;
    return wants_exit_code && differs(view) ? EXIT_FOUND : EXIT_DONE;
}

/* Of two selected profiles; view->whole is the base's total before anything was selected. */
static int compare(struct view *view, view_fn run, const struct profile *base,
                   const struct profile *new) {
    struct profile *joined = join(base, new);
    if (joined == NULL) {
        return EXIT_BAD_INPUT;
    }
    view->profile = joined;
    view->type = joined->default_type;
    view->columns = joined->type_count / 2;
    view->base = view->columns + view->type;
    view->whole = view->whole != 0 ? view->whole : profile_total(new, new->default_type);
    view->variance = sum_variances(base, new, new->default_type);
    int status = print_view(view, run);
    profile_free(joined);
    return status;
}

static int run_diff(int count, char **words) {
    (void)count;
    struct view view = {.select = &args_select, .by = args_select.by, .partner = PROFILE_NONE};
    view_fn run = view_choose(&view);
    if (run == NULL) {
        return EXIT_USAGE;
    }
    if (run == view_threads) {
        return (int)complain(EXIT_USAGE, "--threads shows one profile; --tagroot=thread compares");
    }
    int status = EXIT_BAD_INPUT;
    struct profile *all[2] = {0}, *chosen[2] = {0};
    for (int i = 0; i < 2; i++) {
        all[i] = select_read(&words[i], 1, &status);
        if (all[i] == NULL) {
            break;
        }
        status = EXIT_USAGE;
        chosen[i] = select_apply(all[i], &args_select);
        if (chosen[i] == NULL) {
            break;
        }
    }
    if (chosen[0] != NULL && chosen[1] != NULL) {
        const char *metric = chosen[1]->types[chosen[1]->default_type].name;
        uint32_t type = profile_find_type(all[0], metric);
        view.whole = type != PROFILE_NONE ? profile_total(all[0], type) : 0;
        status = compare(&view, run, chosen[0], chosen[1]);
    }
    for (int i = 0; i < 2; i++) {
        profile_free(chosen[i]);
        profile_free(all[i]);
    }
    return status;
}

const struct command command_diff = {
    .name = "diff",
    .summary = "Show what grew and what went between two profiles",
    .usage = "[OPTION...] BASE NEW",
    .text = "Compares two profiles, or two moments of one run.  The views are those of `tally "
            "report`; values "
            "are NEW minus BASE and percentages are of everything that BASE has.\n"
            "\n"
            "  tally diff main.tally ci.tally\n"
            "  tally diff --tree run.tally@10s run.tally@end\n"
            "  tally diff --exit-code --min=5% main.tally ci.tally",
    .options = (const struct arg_option *const[]){view_options, diff_options, args_select_options,
                                                  args_symbolize_options, NULL},
    .words_least = 2,
    .words_most = 2,
    .run = run_diff,
};
