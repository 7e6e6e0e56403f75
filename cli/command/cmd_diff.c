/* SPDX-License-Identifier: MIT
 *
 * cmd_diff.c - `tally diff`: what one profile has more or less than another.
 *
 * Samples of both are selected as in `tally report`, then joined, with twice the types:
 *
 *      type i              new minus base
 *      type i + count      what the base had
 *
 * so that every view can show a change and what it is a change of.  Two runs have the same code at different
 * addresses, so modules are joined by their paths, addresses become places in the module's file, and what
 * has a name is known by that alone.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "args/args.h"
#include "common/cli.h"
#include "names/symbolize.h"
#include "profile/estimate.h"
#include "profile/figure.h"
#include "view/view.h"

enum noise { NOISE_IGNORE, NOISE_FAIL };

static struct {
    bool wants_exit_code;
    unsigned noise;
} g;

static const struct arg_option diff_options[] = {
    {"exit-code", 0, ARG_SWITCH, NULL, NULL, false, &g.wants_exit_code,
     "Exit with 1 when something differs by more than sampling explains; --min says what is too "
     "little to count"},
    {"noise", 0, ARG_CHOICE, "WHAT", "ignore|fail", false, &g.noise,
     "Whether --exit-code passes over (the default) or counts what may be chance"},
    {0}};

/* Addresses become offsets in the files of modules, which are then known by their paths alone; a
 * frame with a name needs no address. */
static void forget_addresses(struct profile *profile) {
    for (uint32_t i = 0; i < profile->location_count; i++) {
        struct profile_location *location = &profile->locations[i];
        if (location->line_count > 0 && args_select.by != BY_ADDRESSES) {
            location->address = 0;
        } else if (location->mapping < profile->mapping_count) {
            const struct profile_mapping *mapping = &profile->mappings[location->mapping];
            location->address -= mapping->start - mapping->offset;
        }
    }
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        profile->mappings[i] = (struct profile_mapping){.limit = UINT64_MAX,
                                                        .path = profile->mappings[i].path,
                                                        .build_id = profile_text(profile, "", 0)};
    }
}

/* The types that both have, in the order of the new profile: which type of each is used. */
static uint32_t match_types(const struct profile *base, const struct profile *new,
                            struct profile_column *of_base, struct profile_column *of_new) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < new->type_count; i++) {
        uint32_t type = profile_find_type(base, new->types[i].name);
        if (type != PROFILE_NONE) {
            of_base[count] = (struct profile_column){type, -1};
            of_new[count++] = (struct profile_column){i, 1};
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        of_base[count + i] = (struct profile_column){of_base[i].type, 1};
        of_new[count + i] = (struct profile_column){of_new[i].type, 0};
    }
    return count;
}

static void add_types(struct profile *to, const struct profile *from,
                      const struct profile_column *columns, uint32_t count) {
    for (uint32_t i = 0; i < 2 * count; i++) {
        const struct profile_type *type = &from->types[columns[i].type];
        char name[256];
        snprintf(name, sizeof name, "%s%s", i < count ? "" : "base ", type->name);
        profile_add_type(to, name, type->unit);
        if (i < count && columns[i].type == from->default_type) {
            to->default_type = i;
        }
    }
}

/* NULL after a sentence.  The default type is that of the new one. */
static struct profile *join(struct profile *base, struct profile *new) {
    const char *metric = new->types[new->default_type].name;
    if (profile_find_type(base, metric) == PROFILE_NONE) {
        complain(EXIT_BAD_INPUT, "only the new profile has %s", safe_text(metric));
        return NULL;
    }
    size_t bytes = 2 * (size_t) new->type_count * sizeof(struct profile_column);
    struct profile_column *of_base = must_alloc(bytes), *of_new = must_alloc(bytes);
    struct profile *joined = profile_new();
    add_types(joined, new, of_new, match_types(base, new, of_base, of_new));
    joined->period = base->period > new->period ? base->period : new->period;
    joined->period_type.name = profile_text(joined, new->period_type.name, SIZE_MAX);
    joined->period_type.unit = profile_text(joined, new->period_type.unit, SIZE_MAX);
    joined->source = profile_text(joined, new->source, SIZE_MAX);
    joined->is_exact_leaf = new->is_exact_leaf;
    forget_addresses(base);
    forget_addresses(new);
    profile_add_columns(joined, new, of_new);
    profile_add_columns(joined, base, of_base);
    profile_merge_equal(joined);
    free(of_base);
    free(of_new);
    return joined;
}

/* One type of the joined profile: what its samples weigh on both sides. */
struct sides {
    struct estimate base, new;
    uint32_t type, columns;
    const struct profile *joined;
};

/* A value of a sample on one side: that of the base, or that and the change. */
static double side_value(const struct sides *sides, uint32_t sample, bool is_new, uint32_t type) {
    return (double)profile_value(sides->joined, sample, type + sides->columns) +
           (is_new ? (double)profile_value(sides->joined, sample, type) : 0);
}

static struct estimate_values side_values(const struct sides *sides, uint32_t sample, bool is_new) {
    const struct estimate *side = is_new ? &sides->new : &sides->base;
    return (struct estimate_values){
        .value = side_value(sides, sample, is_new, sides->type),
        .count = side->has_pair ? side_value(sides, sample, is_new, side->objects) : 0,
        .bytes = side->has_pair ? side_value(sides, sample, is_new, side->space) : 0,
    };
}

/* The variance of a sample on one side.  Where that has none and the other side was recorded whole, nothing
 * but the rate may be the reason: it could have had as much. */
static double side_variance(const struct sides *sides, uint32_t sample, bool is_new) {
    const struct estimate *side = is_new ? &sides->new : &sides->base;
    const struct estimate *other = is_new ? &sides->base : &sides->new;
    struct estimate_values values = side_values(sides, sample, is_new);
    if (values.value == 0 && other->is_exact) {
        values = side_values(sides, sample, !is_new);
    }
    return estimate_row(side, sides->joined, sample, &values);
}

/* Of a type of the joined profile, with the places of its pair there. */
static struct estimate estimate_side(const struct profile *side, const struct profile *joined,
                                     uint32_t type) {
    struct estimate estimate = estimate_of(side, profile_find_type(side, joined->types[type].name));
    estimate.has_pair =
        estimate.has_pair && profile_find_pair(joined, type, &estimate.space, &estimate.objects);
    return estimate;
}

/* The variances, as estimate_all() has them; a change is as uncertain as both sides together. */
static struct interval_facts *estimate_joined(const struct profile *joined,
                                              const struct profile *base,
                                              const struct profile *new) {
    uint32_t types = joined->type_count, columns = types / 2;
    struct interval_facts *facts =
        must_zeroed(((size_t)joined->sample_count * types + 1) * sizeof *facts);
    for (uint32_t type = 0; type < columns; type++) {
        struct sides sides = {estimate_side(base, joined, type), estimate_side(new, joined, type),
                              type, columns, joined};
        for (uint32_t i = 0; i < joined->sample_count; i++) {
            struct interval_facts *row = facts + (size_t)i * types;
            double before = side_variance(&sides, i, false);
            double after = side_variance(&sides, i, true);
            row[type].variance = before < 0 || after < 0 ? -1 : before + after;
            row[columns + type].variance = before;
        }
    }
    return facts;
}

enum change { CHANGE_NONE, CHANGE_FEW, CHANGE_NOISE, CHANGE_SIGNIFICANT };

/* Is a change at least --min of the base, and more than so many standard deviations? */
static enum change judge_sum(const struct view *view, struct view_sum sum, double deviations) {
    if (sum.value == 0 || view_is_small(view, sum.value, 0)) {
        return CHANGE_NONE;
    }
    double noise = deviations * sqrt(fmax(sum.facts.variance, 0));
    return fabs((double)sum.value) > noise ? CHANGE_SIGNIFICANT : CHANGE_NOISE;
}

static uint64_t count_changed(const struct view *view, const struct view_weight *weights) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < view->node_count; i++) {
        count += weights[i].flat.value != 0;
    }
    return count;
}

/* The clearest change, of a function or of all together.  Of many functions some change a lot by
 * chance, so the more there are, the more it takes. */
static enum change find_change(struct view *view) {
    view_index(view);
    struct view_weight *weights = view_weigh(view);
    double deviations = figure_deviations(1 + count_changed(view, weights));
    enum change found = judge_sum(view, view_total(view), deviations);
    for (uint32_t i = 0; i < view->node_count && found < CHANGE_SIGNIFICANT; i++) {
        enum change one = judge_sum(view, weights[i].flat, deviations);
        found = one > found ? one : found;
    }
    free(weights);
    view_release(view);
    return found;
}

/* What --exit-code makes of it, said in a line where there is doubt. */
static int judge(struct view *view, const struct profile *base, const struct profile *new) {
    static const char *const sentences[] = {
        [CHANGE_FEW] = "too few samples to tell a change",
        [CHANGE_NOISE] = "within noise: no change is more than sampling explains (95 % sure)",
        [CHANGE_SIGNIFICANT] = "significant: it has changed by more than sampling explains (95 % "
                               "sure)",
    };
    uint32_t base_type = profile_find_type(base, new->types[new->default_type].name);
    struct figure before = figure_total(base, base_type),
                  after = figure_total(new, new->default_type);
    enum change change = find_change(view);
    if (change == CHANGE_NOISE && figure_is_few(before) && figure_is_few(after)) {
        change = CHANGE_FEW;
    }
    if (change != CHANGE_NONE && (before.kind != FIGURE_EXACT || after.kind != FIGURE_EXACT)) {
        note("%s", sentences[change]);
    }
    bool has_found = g.noise == NOISE_FAIL ? change != CHANGE_NONE : change == CHANGE_SIGNIFICANT;
    return has_found ? EXIT_FOUND : EXIT_DONE;
}

/* Of two selected profiles; view->whole is the base's total before anything was selected. */
static int compare(struct view *view, const struct view_kind *kind, struct profile *base,
                   struct profile *new) {
    struct profile *joined = join(base, new);
    if (joined == NULL) {
        return EXIT_BAD_INPUT;
    }
    view->profile = joined;
    view->type = joined->default_type;
    view->columns = joined->type_count / 2;
    view->base = view->columns + view->type;
    view->whole = view->whole != 0 ? view->whole : profile_total(new, new->default_type);
    view->facts = estimate_joined(joined, base, new);
    int status = view_print(view, kind);
    if (status == EXIT_DONE && g.wants_exit_code) {
        status = judge(view, base, new);
    }
    view_end(view);
    profile_free(joined);
    return status;
}

static int run_diff(int count, char **words) {
    (void)count;
    struct view view = {.select = &args_select, .by = args_select.by, .partner = PROFILE_NONE};
    const struct view_kind *kind = view_choose(&view);
    if (kind == NULL) {
        return EXIT_USAGE;
    }
    if (kind->instead != NULL) {
        return (int)complain(EXIT_USAGE, "%s", kind->instead);
    }
    if (!view_judge_output()) {
        return EXIT_OWN_FAILURE;
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
        status = compare(&view, kind, chosen[0], chosen[1]);
    }
    for (int i = 0; i < 2; i++) {
        profile_free(chosen[i]);
        profile_free(all[i]);
    }
    return status;
}

const struct command command_diff = {
    .name = "diff",
    .summary = "Show what grew and what shrank between two profiles",
    .usage = "[OPTION...] BASE NEW",
    .text = "Compares two profiles, or two moments of one run.  The views are those of `tally "
            "report`; values are NEW minus BASE and percentages are of everything that BASE has.\n"
            "\n"
            "With --exit-code the status is 1 if something has changed significantly: by more than "
            "its 95 % interval, where profiles are sampled.  A line says so, or that a change is "
            "within noise, or that there are too few samples; these are 0, and 1 with "
            "--noise=fail.\n"
            "\n"
            "  tally diff main.tally ci.tally\n"
            "  tally diff --tree run.tally@10s run.tally@end\n"
            "  tally diff --exit-code --min=5% main.tally ci.tally",
    .options = (const struct arg_option *const[]){view_options, diff_options, args_select_options,
                                                  args_symbolize_options, NULL},
    .words = {2, 2},
    .run = run_diff,
};
