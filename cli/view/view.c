/* SPDX-License-Identifier: MIT
 *
 * view.c - what all views share: frames sorted into nodes, sums, headings, columns.
 */
#include "view/view.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/glyph.h"
#include "common/keys.h"
#include "profile/estimate.h"
#include "profile/figure.h"
#include "select/site.h"

void view_begin(struct view *view, const struct profile *selected, const struct profile *all) {
    uint32_t type = selected->default_type, space, objects;
    bool is_pair = profile_find_pair(selected, type, &space, &objects);
    view->profile = selected;
    view->type = type;
    view->partner = is_pair && type == space     ? objects
                    : is_pair && type == objects ? space
                                                 : PROFILE_NONE;
    view->base = PROFILE_NONE;
    view->columns = selected->type_count;
    view->whole = profile_total(all, type);
    bool is_live = strcmp(selected->types[type].name, "inuse_space") == 0;
    view->counted = is_live ? all->counted_live : 0;
    view->facts = estimate_all(selected);
}

void view_end(struct view *view) {
    free(view->facts);
    view->facts = NULL;
}

void view_add(const struct view *view, struct view_sum *sum, uint32_t sample, uint32_t type) {
    if (type == PROFILE_NONE) {
        return;
    }
    sum->value = profile_sum(sum->value, profile_value(view->profile, sample, type));
    if (view->facts != NULL) {
        interval_add(&sum->facts, view->facts[(size_t)sample * view->profile->type_count + type]);
    }
}

struct view_sum view_total(const struct view *view) {
    struct view_sum total = {0};
    for (uint32_t i = 0; i < view->profile->sample_count; i++) {
        view_add(view, &total, i, view->type);
    }
    return total;
}

/* Nodes. */

void view_index(struct view *view) {
    const struct profile *profile = view->profile;
    view->first_slot = must_alloc(((size_t)profile->location_count + 1) * sizeof(uint32_t));
    view->slot_count = 0;
    for (uint32_t i = 0; i < profile->location_count; i++) {
        view->first_slot[i] = view->slot_count;
        view->slot_count += profile_frames(&profile->locations[i]);
    }
    view->slot_location = must_alloc(((size_t)view->slot_count + 1) * sizeof(uint32_t));
    view->slot_node = must_alloc(((size_t)view->slot_count + 1) * sizeof(uint32_t));
    struct keys keys = {0};
    for (uint32_t i = 0; i < profile->location_count; i++) {
        for (uint32_t j = 0; j < profile_frames(&profile->locations[i]); j++) {
            view->slot_location[view->first_slot[i] + j] = i;
            view->slot_node[view->first_slot[i] + j] = site_number(&keys, profile, i, j, view->by);
        }
    }
    view->node_count = (uint32_t)keys.count;
    keys_free(&keys);
    view->deepest = 1;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        uint32_t frames = 0;
        for (uint32_t j = 0; j < profile->samples[i].depth; j++) {
            frames +=
                profile_frames(&profile->locations[profile->stacks[profile->samples[i].stack + j]]);
        }
        view->deepest = frames > view->deepest ? frames : view->deepest;
    }
}

void view_release(struct view *view) {
    free(view->first_slot);
    free(view->slot_location);
    free(view->slot_node);
    view->first_slot = view->slot_location = view->slot_node = NULL;
}

/* Files, modules and addresses often call themselves: equal neighbours are one. */
uint32_t view_unroll(const struct view *view, uint32_t sample, uint32_t *slots) {
    const struct profile_sample *row = &view->profile->samples[sample];
    bool joins = view->by == BY_FILES || view->by == BY_MODULES || view->by == BY_ADDRESSES;
    uint32_t count = 0;
    for (uint32_t i = 0; i < row->depth; i++) {
        uint32_t location = view->profile->stacks[row->stack + i];
        uint32_t slot = view->first_slot[location];
        uint32_t end = slot + profile_frames(&view->profile->locations[location]);
        for (; slot < end; slot++) {
            if (!joins || count == 0 ||
                view->slot_node[slots[count - 1]] != view->slot_node[slot]) {
                slots[count++] = slot;
            }
        }
    }
    return count;
}

uint32_t view_line(const struct view *view, uint32_t slot) {
    const struct profile *profile = view->profile;
    uint32_t location = view->slot_location[slot];
    const struct profile_location *at = &profile->locations[location];
    uint32_t line = slot - view->first_slot[location];
    return line < at->line_count ? profile->lines[at->lines + line].number : 0;
}

/* The own value of each slot, to choose a line for its node. */
struct line_weight {
    int64_t flat, cum;
};

static void choose_lines(const struct view *view, struct view_weight *weights,
                         const struct line_weight *lines) {
    for (uint32_t node = 0; node < view->node_count; node++) {
        weights[node].slot = PROFILE_NONE;
    }
    for (uint32_t slot = 0; slot < view->slot_count; slot++) {
        struct view_weight *weight = &weights[view->slot_node[slot]];
        uint32_t *best = &weight->slot;
        if (*best == PROFILE_NONE) {
            *best = slot;
            continue;
        }
        const struct line_weight *a = &lines[slot], *b = &lines[*best];
        weight->has_many_lines |= weight->flat.value == 0 && a->cum != 0 && b->cum != 0 &&
                                  view_line(view, slot) != view_line(view, *best);
        uint64_t flat = profile_magnitude(a->flat), best_flat = profile_magnitude(b->flat);
        if (flat > best_flat ||
            (flat == best_flat && profile_magnitude(a->cum) > profile_magnitude(b->cum))) {
            *best = slot;
        }
    }
}

/* `seen` says which sample a node was last met in, plus one. */
static void weigh_sample(const struct view *view, uint32_t sample, uint32_t *slots, uint32_t *seen,
                         struct view_weight *weights, struct line_weight *lines) {
    int64_t value = profile_value(view->profile, sample, view->type);
    uint32_t count = view_unroll(view, sample, slots);
    for (uint32_t i = 0; i < count; i++) {
        struct view_weight *weight = &weights[view->slot_node[slots[i]]];
        if (i == 0) {
            view_add(view, &weight->flat, sample, view->type);
            view_add(view, &weight->partner, sample, view->partner);
            view_add(view, &weight->base_flat, sample, view->base);
            lines[slots[i]].flat = profile_sum(lines[slots[i]].flat, value);
        }
        if (seen[view->slot_node[slots[i]]] != sample + 1) {
            seen[view->slot_node[slots[i]]] = sample + 1;
            view_add(view, &weight->cum, sample, view->type);
            view_add(view, &weight->base_cum, sample, view->base);
            lines[slots[i]].cum = profile_sum(lines[slots[i]].cum, value);
        }
    }
}

struct view_weight *view_weigh(const struct view *view) {
    size_t nodes = (size_t)view->node_count + 1;
    struct view_weight *weights = must_zeroed(nodes * sizeof *weights);
    struct line_weight *lines = must_zeroed(((size_t)view->slot_count + 1) * sizeof *lines);
    uint32_t *seen = must_zeroed(nodes * sizeof *seen);
    uint32_t *slots = must_alloc(view->deepest * sizeof *slots);
    for (uint32_t i = 0; i < view->profile->sample_count; i++) {
        weigh_sample(view, i, slots, seen, weights, lines);
    }
    choose_lines(view, weights, lines);
    free(lines);
    free(seen);
    free(slots);
    return weights;
}

/* Rows. */

static int compare_rows(const void *a_row, const void *b_row) {
    const struct view_row *a = a_row, *b = b_row;
    if (profile_magnitude(a->value) != profile_magnitude(b->value)) {
        return profile_magnitude(a->value) > profile_magnitude(b->value) ? -1 : 1;
    }
    if (profile_magnitude(a->second) != profile_magnitude(b->second)) {
        return profile_magnitude(a->second) > profile_magnitude(b->second) ? -1 : 1;
    }
    int order = strcmp(a->name, b->name);
    return order != 0 ? order : (a->id > b->id) - (a->id < b->id);
}

void view_sort(struct view_row *rows, size_t count) {
    if (count > 0) {
        qsort(rows, count, sizeof *rows, compare_rows);
    }
}

/* A text that lives as long as the profile; addresses have none. */
const char *view_sort_name(const struct view *view, uint32_t slot) {
    const struct profile *profile = view->profile;
    uint32_t location = view->slot_location[slot];
    const struct profile_location *at = &profile->locations[location];
    uint32_t line = slot - view->first_slot[location];
    if (view->by == BY_MODULES && at->mapping < profile->mapping_count) {
        return profile->mappings[at->mapping].path;
    }
    if (line >= at->line_count) {
        return "";
    }
    const struct profile_function *function =
        &profile->functions[profile->lines[at->lines + line].function];
    return view->by == BY_FILES ? function->file : function->name;
}

struct view_row *view_rows(const struct view *view, const struct view_weight *weights,
                           size_t *count) {
    struct view_row *rows = must_alloc(((size_t)view->node_count + 1) * sizeof *rows);
    *count = 0;
    for (uint32_t node = 0; node < view->node_count; node++) {
        const struct view_weight *weight = &weights[node];
        int64_t flat = weight->flat.value, cum = weight->cum.value;
        if ((flat == 0 && cum == 0) || view_is_small(view, cum, 0)) {
            continue;
        }
        bool by_cum = view->select->by_cum;
        rows[(*count)++] = (struct view_row){by_cum ? cum : flat, by_cum ? flat : cum,
                                             view_sort_name(view, weight->slot), node};
    }
    view_sort(rows, *count);
    return rows;
}

size_t view_most_rows(const struct view *view, size_t own) {
    uint32_t most = view->select->most_rows;
    return most == SELECT_OWN_ROWS ? own : most == 0 ? SIZE_MAX : most;
}

bool view_is_small(const struct view *view, int64_t value, double own_share) {
    double share = view->select->least_share;
    share = share < 0 ? own_share : share;
    return share > 0 &&
           (double)profile_magnitude(value) < share * (double)profile_magnitude(view->whole);
}

/* Texts. */

const char *view_name(const struct view *view, uint32_t slot) {
    uint32_t location = view->slot_location[slot];
    enum select_by by = view->by == BY_LINES ? BY_FUNCTIONS : view->by;
    const char *name =
        select_frame_name(view->profile, location, slot - view->first_slot[location], by);
    return name[0] != '\0' ? safe_text(name) : "(no name)";
}

static const char *module_place(const struct view *view, const struct profile_location *at) {
    return at->mapping < view->profile->mapping_count
               ? safe_text(base_name(view->profile->mappings[at->mapping].path))
               : "";
}

static const char *place_text(const struct view *view, uint32_t slot, bool with_line) {
    const struct profile *profile = view->profile;
    uint32_t location = view->slot_location[slot];
    const struct profile_location *at = &profile->locations[location];
    uint32_t line = slot - view->first_slot[location];
    if (view->by == BY_FILES || view->by == BY_MODULES) {
        return "";
    }
    if (line >= at->line_count) { /* its name says it */
        return view->by == BY_ADDRESSES ? module_place(view, at) : "";
    }
    const struct profile_line *row = &profile->lines[at->lines + line];
    const struct profile_function *function = &profile->functions[row->function];
    char text[9000];
    snprintf(text, sizeof text, "%.4000s%s%.4000s", view->by == BY_ADDRESSES ? function->name : "",
             view->by == BY_ADDRESSES ? "  " : "", base_name(function->file));
    if (function->file[0] == '\0') {
        return view->by == BY_ADDRESSES ? safe_text(function->name) : module_place(view, at);
    }
    if (row->number != 0 && with_line) {
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, ":%" PRIu32, row->number);
    }
    return safe_text(text);
}

const char *view_place(const struct view *view, uint32_t slot) {
    return place_text(view, slot, true);
}

const char *view_place_in(const struct view *view, uint32_t slot) {
    return place_text(view, slot, false);
}

/* Fixed units have one digit after the point, so that columns compare at a glance. */
static const char *bytes_text(const struct view *view, uint64_t bytes) {
    const char *unit = view->select->unit != NULL ? view->select->unit : "auto";
    int64_t shown = bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes;
    return strcmp(unit, "B") == 0     ? ring_text("%s B", grouped_text(shown))
           : strcmp(unit, "KiB") == 0 ? ring_text("%.1f KiB", (double)bytes / 1024)
           : strcmp(unit, "MiB") == 0 ? ring_text("%.1f MiB", (double)bytes / 1048576)
                                      : size_text(shown);
}

const char *view_value(const struct view *view, uint32_t type, int64_t value) {
    uint64_t size = profile_magnitude(value);
    const char *unit = view->profile->types[type].unit, *body;
    if (strcmp(unit, "bytes") == 0) {
        body = bytes_text(view, size);
    } else if (strcmp(unit, "nanoseconds") == 0) {
        body = duration_text(size);
    } else {
        body = grouped_text(size > INT64_MAX ? INT64_MAX : (int64_t)size);
    }
    const char *sign = value < 0 ? glyph(GLYPH_MINUS) : "";
    if (value > 0 && view->base != PROFILE_NONE) {
        sign = "+";
    }
    return ring_text("%s%s", sign, body);
}

const char *view_share(const struct view *view, int64_t value) {
    double whole = fabs((double)view->whole);
    double percent = whole > 0 ? 100 * (double)value / whole : 0;
    if (fabs(percent) < 0.05) {
        percent = 0; /* not -0.0 */
    }
    return ring_text("%s%.1f%%", percent < 0 ? glyph(GLYPH_MINUS) : "", fabs(percent));
}

/* The text of a value without a sign, as on both sides of a comparison. */
static const char *plain_value(const struct view *view, int64_t value) {
    struct view plain = *view;
    plain.base = PROFILE_NONE;
    return view_value(&plain, view->type, value);
}

/* The sum as a figure: what is known of it. */
static struct figure figure_of_sum(const struct view *view, struct view_sum sum) {
    return view->base != PROFILE_NONE
               ? figure_even(view->profile, (double)sum.value, sum.facts.variance)
               : figure_of(view->profile, (double)sum.value, sum.facts);
}

/* A change is far off by an amount, anything else by a share of itself. */
const char *view_figure(const struct view *view, uint32_t type, struct view_sum sum) {
    const char *text = view_value(view, type, sum.value), *sign = glyph(GLYPH_PLUS_MINUS);
    struct figure figure = figure_of_sum(view, sum);
    if (figure.kind != FIGURE_ESTIMATE || (sum.value == 0 && sum.facts.variance == 0)) {
        return text; /* that it is unknown stands in the heading */
    }
    if (view->base != PROFILE_NONE || sum.value == 0) {
        struct view plain = *view;
        plain.base = PROFILE_NONE;
        int64_t margin = figure_int(figure_margin(figure));
        return ring_text("%s %s%s", text, sign, view_value(&plain, type, margin));
    }
    return ring_text("%s%s", text, figure_margin_cell(figure));
}

/* " ± 3.9 % (sampled, 95 % sure)" */
static const char *margin_text(const struct view *view, struct view_sum sum) {
    bool is_total = view->base == PROFILE_NONE; /* then figure.h knows what nothing means */
    struct figure figure =
        is_total ? figure_total(view->profile, view->type) : figure_of_sum(view, sum);
    if (figure.kind == FIGURE_EXACT) {
        return view->base == PROFILE_NONE ? " (exact)" : "";
    }
    if (figure.kind == FIGURE_UNKNOWN) {
        return figure_margin_text(figure);
    }
    const char *margin = figure_margin_text(figure);
    if (view->base != PROFILE_NONE || sum.value == 0) {
        margin = ring_text(" %s %s", glyph(GLYPH_PLUS_MINUS),
                           plain_value(view, figure_int(figure_margin(figure))));
    }
    const char *counted =
        view->counted > 0 ? ring_text("; %s counted", plain_value(view, view->counted)) : "";
    return ring_text("%s (sampled, 95 %% sure%s)", margin, counted);
}

/* Headings. */

static size_t count_stacks(const struct view *view) {
    struct keys keys = {0};
    for (uint32_t i = 0; i < view->profile->sample_count; i++) {
        const struct profile_sample *sample = &view->profile->samples[i];
        uint64_t hash = sample->depth, other = 0;
        for (uint32_t j = 0; j < sample->depth; j++) {
            hash = keys_mix(hash + view->profile->stacks[sample->stack + j] + 1);
            other = (other ^ view->profile->stacks[sample->stack + j]) * UINT64_C(0x100000001b3);
        }
        if (profile_value(view->profile, i, view->type) != 0) {
            keys_add(&keys, hash, other, sample->depth);
        }
    }
    size_t count = keys.count;
    keys_free(&keys);
    return count;
}

static void print_stacks(const struct view *view) {
    size_t stacks = count_stacks(view);
    fprintf(view->out, "%s%s %s\n", glyph(GLYPH_DOT), grouped_text((int64_t)stacks),
            stacks == 1 ? "stack" : "stacks");
}

/* "50.4 -> 118.2 MiB": the unit once, where it is the same. */
static void print_change(const struct view *view, int64_t before, int64_t after) {
    char left[64], right[64];
    snprintf(left, sizeof left, "%s", plain_value(view, before));
    snprintf(right, sizeof right, "%s", plain_value(view, after));
    char *left_unit = strrchr(left, ' ');
    const char *right_unit = strrchr(right, ' ');
    if (left_unit != NULL && right_unit != NULL && strcmp(left_unit, right_unit) == 0) {
        *left_unit = '\0';
    }
    fprintf(view->out, "%s %s %s", left, glyph(GLYPH_ARROW), right);
}

static void print_percent(const struct view *view, int64_t change, int64_t before) {
    if (before != 0 && change != 0) {
        double percent = 100 * (double)change / fabs((double)before);
        const char *sign = percent < 0 ? glyph(GLYPH_MINUS) : "+";
        fprintf(view->out, ", %s%.0f %%", sign, fabs(percent));
    }
}

static void print_comparison(const struct view *view) {
    struct view_sum sum = view_total(view);
    int64_t change = sum.value;
    int64_t before = profile_total(view->profile, view->base);
    fprintf(view->out, "%s%s%s  ", cli_style(view->out, STYLE_BOLD),
            safe_text(view->profile->types[view->type].name), cli_style(view->out, STYLE_PLAIN));
    print_change(view, before, profile_sum(before, change));
    fprintf(view->out, "  (%s", view_value(view, view->type, change));
    print_percent(view, change, before);
    fprintf(view->out, ")%s", margin_text(view, sum));
    print_stacks(view);
}

void view_print_heading(const struct view *view) {
    if (view->base != PROFILE_NONE) {
        print_comparison(view);
        return;
    }
    struct view_sum total = view_total(view);
    fprintf(view->out, "%s%s %s%s", cli_style(view->out, STYLE_BOLD),
            safe_text(view->profile->types[view->type].name),
            view_value(view, view->type, total.value), cli_style(view->out, STYLE_PLAIN));
    if (total.value != view->whole) {
        fprintf(view->out, " of %s", view_value(view, view->type, view->whole));
    }
    fputs(margin_text(view, total), view->out);
    print_stacks(view);
}

void view_print_more(const struct view *view, size_t count, const char *what) {
    if (count > 0) {
        fprintf(view->out, "  %s %s more %s\n", glyph(GLYPH_MORE), grouped_text((int64_t)count),
                what);
    }
}
