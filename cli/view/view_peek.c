/* SPDX-License-Identifier: MIT
 *
 * view_peek.c - the callers and callees of functions that match an expression.
 *
 * A call counts once for each stack that has it, however often the stack goes through it, and a function
 * that calls itself is neither its own caller nor its own callee.
 */
#include <math.h>
#include <stdlib.h>

#include "common/cli.h"
#include "common/keys.h"
#include "view/view.h"

/* One call between a matching node and another. */
struct edge {
    uint32_t node, other;
    uint32_t slot; /* of the other one */
    uint32_t seen; /* the last sample, plus one */
    struct view_sum sum;
    bool is_callee; /* the other one */
    bool has_many_lines;
};

struct peek {
    struct view *view;
    bool *is_match; /* of each node */
    struct keys keys;
    struct edge *edges;
    uint32_t room;
    /* The edges of node n are order[first[n]] ... order[first[n + 1] - 1]. */
    uint32_t *order, *first;
};

/* What a frame is called, and its function where it is shown as something else. */
static bool slot_matches(const struct view *view, uint32_t slot, const regex_t *regex,
                         bool is_whole) {
    uint32_t location = view->slot_location[slot], line = slot - view->first_slot[location];
    const enum select_by names[2] = {view->by, BY_FUNCTIONS};
    bool is_match = false;
    for (int i = 0; i < 2 && !is_match; i++) {
        const char *name = select_frame_name(view->profile, location, line, names[i]);
        is_match = select_name_matches(name, view->pattern, regex, is_whole);
    }
    return is_match;
}

static bool find_matches(struct peek *peek) {
    struct view *view = peek->view;
    regex_t regex;
    if (!select_expression(&regex, "peek", view->pattern)) {
        return false;
    }
    bool is_whole = select_is_whole_name(view->profile, view->pattern);
    peek->is_match = must_zeroed((size_t)view->node_count + 1);
    for (uint32_t slot = 0; slot < view->slot_count; slot++) {
        bool *is_match = &peek->is_match[view->slot_node[slot]];
        *is_match = *is_match || slot_matches(view, slot, &regex, is_whole);
    }
    regfree(&regex);
    return true;
}

static void add_edge(struct peek *peek, uint32_t slot, uint32_t other, bool is_callee,
                     uint32_t sample) {
    const uint32_t *nodes = peek->view->slot_node;
    size_t count = peek->keys.count;
    uint32_t id = keys_add(&peek->keys, nodes[slot], nodes[other], is_callee);
    peek->edges = must_have_room(peek->edges, id, &peek->room, sizeof *peek->edges);
    struct edge *edge = &peek->edges[id];
    if (id >= count) {
        *edge = (struct edge){nodes[slot], nodes[other], other, 0, {0}, is_callee, false};
    }
    edge->has_many_lines |= view_line(peek->view, other) != view_line(peek->view, edge->slot);
    if (edge->seen != sample + 1) {
        edge->seen = sample + 1;
        view_add(peek->view, &edge->sum, sample, peek->view->type);
    }
}

static void add_sample(struct peek *peek, uint32_t sample, uint32_t *slots) {
    const uint32_t *nodes = peek->view->slot_node;
    uint32_t count = view_unroll(peek->view, sample, slots);
    for (uint32_t i = 0; i + 1 < count; i++) {
        uint32_t callee = slots[i], caller = slots[i + 1];
        if (nodes[callee] == nodes[caller]) {
            continue;
        }
        if (peek->is_match[nodes[callee]]) {
            add_edge(peek, callee, caller, false, sample);
        }
        if (peek->is_match[nodes[caller]]) {
            add_edge(peek, caller, callee, true, sample);
        }
    }
}

/* Counting sort by node. */
static void arrange(struct peek *peek) {
    size_t nodes = peek->view->node_count, count = peek->keys.count;
    peek->order = must_alloc((count + 1) * sizeof *peek->order);
    peek->first = must_zeroed((nodes + 2) * sizeof *peek->first);
    for (size_t i = 0; i < count; i++) {
        peek->first[peek->edges[i].node + 2]++;
    }
    for (size_t i = 0; i < nodes; i++) {
        peek->first[i + 2] += peek->first[i + 1];
    }
    for (uint32_t i = 0; i < count; i++) { /* moves each first to its place */
        peek->order[peek->first[peek->edges[i].node + 1]++] = i;
    }
}

static void put_row(struct view_grid *grid, const struct view *view, struct view_sum sum,
                    struct view_sum cum) {
    char text[32];
    double percent = cum.value != 0 ? 100 * fabs((double)sum.value / (double)cum.value) : 0;
    snprintf(text, sizeof text, "%.1f%%", percent);
    view_grid_put(grid, "  ");
    view_grid_put(grid, view_figure(view, view->type, sum));
    view_grid_put(grid, text);
}

/* One side of a node: its callers, or itself and its callees. */
static void print_side(const struct peek *peek, uint32_t node, const struct view_weight *weight,
                       bool is_callee) {
    const struct view *view = peek->view;
    size_t most = peek->first[node + 1] - peek->first[node], count = 0;
    struct view_row *rows = must_alloc((most + 1) * sizeof *rows);
    for (uint32_t i = peek->first[node]; i < peek->first[node + 1]; i++) {
        const struct edge *edge = &peek->edges[peek->order[i]];
        if (edge->is_callee == is_callee && edge->sum.value != 0) {
            rows[count++] = (struct view_row){edge->sum.value, 0, view_sort_name(view, edge->slot),
                                              peek->order[i]};
        }
    }
    view_sort(rows, count);
    struct view_grid grid = {.columns = "lrrll"};
    if (is_callee && weight->flat.value != 0) {
        put_row(&grid, view, weight->flat, weight->cum);
        view_grid_put(&grid, "(itself)");
        view_grid_put(&grid, "");
    }
    for (size_t i = 0; i < count; i++) {
        const struct edge *edge = &peek->edges[rows[i].id];
        put_row(&grid, view, edge->sum, weight->cum);
        view_grid_put(&grid, view_name(view, edge->slot));
        view_grid_put(&grid, edge->has_many_lines ? view_place_in(view, edge->slot)
                                                  : view_place(view, edge->slot));
    }
    if (grid.count > 0) {
        fprintf(view->out, "  %s\n", is_callee ? "calls" : "called by");
    }
    view_grid_print(&grid, view->out);
    free(rows);
}

static void print_node(const struct peek *peek, uint32_t node, const struct view_weight *weight) {
    const struct view *view = peek->view;
    const char *place =
        weight->has_many_lines ? view_place_in(view, weight->slot) : view_place(view, weight->slot);
    fprintf(view->out, "\n%s%s%s", view_name(view, weight->slot), place[0] != '\0' ? "  " : "",
            place);
    fprintf(view->out, "   flat %s %s", view_figure(view, view->type, weight->flat),
            view_share(view, weight->flat.value));
    fprintf(view->out, "   cum %s %s\n", view_figure(view, view->type, weight->cum),
            view_share(view, weight->cum.value));
    print_side(peek, node, weight, false);
    print_side(peek, node, weight, true);
}

static void print_nodes(const struct peek *peek) {
    struct view_weight *weights = view_weigh(peek->view);
    size_t count, most = view_most_rows(peek->view, SIZE_MAX), shown = 0;
    struct view_row *rows = view_rows(peek->view, weights, &count);
    for (size_t i = 0; i < count; i++) {
        rows[i].value = weights[rows[i].id].cum.value;
    }
    view_sort(rows, count);
    for (size_t i = 0; i < count && shown < most; i++) {
        if (peek->is_match[rows[i].id]) {
            print_node(peek, rows[i].id, &weights[rows[i].id]);
            shown++;
        }
    }
    if (shown == 0) {
        note("no function matches %s", safe_text(peek->view->pattern));
    }
    free(rows);
    free(weights);
}

bool view_peek(struct view *view) {
    struct peek peek = {.view = view};
    view_index(view);
    bool is_good = find_matches(&peek);
    if (is_good) {
        uint32_t *slots = must_alloc(view->deepest * sizeof *slots);
        for (uint32_t i = 0; i < view->profile->sample_count; i++) {
            add_sample(&peek, i, slots);
        }
        free(slots);
        arrange(&peek);
        print_nodes(&peek);
    }
    free(peek.is_match);
    free(peek.edges);
    free(peek.order);
    free(peek.first);
    keys_free(&peek.keys);
    view_release(view);
    return is_good;
}
