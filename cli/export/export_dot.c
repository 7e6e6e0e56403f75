/* SPDX-License-Identifier: MIT
 *
 * export_dot.c - the call graph for graphviz: functions as boxes, calls as arrows.
 *
 * A box shows the function's own value and that with all it calls; the size of its text follows the
 * first, its colour the second.  Arrows are as thick as what flows through them.  Functions below
 * --min (0.5 %) and beyond the first -n (80) are left out; a dotted arrow leads past them.
 */
#define _GNU_SOURCE /* qsort_r */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "args/args.h"
#include "common/escape.h"
#include "common/keys.h"
#include "export/export.h"
#include "export/frame_table.h"
#include "select/select.h"

enum { NODES_MOST = 80 };
static const double node_share = 0.005, edge_share = 0.001;

struct node {
    int64_t flat, cum;
    uint32_t last_sample;
    bool is_shown;
};

struct edge {
    uint32_t caller, callee, last_sample;
    int64_t value;
    bool is_direct; /* some stack has nothing in between */
};

struct graph {
    const struct profile *profile;
    const struct frame_table *table;
    const char *unit;
    int64_t total;
    struct node *nodes; /* one per frame */
    uint32_t shown;
    struct edge *edges;
    uint32_t edge_count, edge_room;
    struct keys known; /* edges */
};

static int64_t value_of(const struct graph *graph, uint32_t sample) {
    int64_t value = profile_value(graph->profile, sample, graph->profile->default_type);
    return value > 0 ? value : 0;
}

static double share_of(const struct graph *graph, int64_t value) {
    return graph->total > 0 ? (double)value / (double)graph->total : 0;
}

static void add_nodes(struct graph *graph) {
    const struct frame_table *table = graph->table;
    uint32_t negative = 0;
    for (uint32_t sample = 0; sample < graph->profile->sample_count; sample++) {
        int64_t value = value_of(graph, sample);
        size_t start = table->starts[sample], end = table->starts[sample + 1];
        graph->total = profile_sum(graph->total, value);
        negative += profile_value(graph->profile, sample, graph->profile->default_type) < 0;
        for (size_t at = start; at < end; at++) {
            struct node *node = &graph->nodes[table->ids[at]];
            if (at == start) {
                node->flat = profile_sum(node->flat, value);
            }
            if (node->last_sample != sample) {
                node->cum = profile_sum(node->cum, value);
                node->last_sample = sample;
            }
        }
    }
    export_warn_negative(negative);
}

static int compare_nodes(const void *left, const void *right, void *context) {
    const struct graph *graph = context;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const struct node *one = &graph->nodes[a], *other = &graph->nodes[b];
    if (one->cum != other->cum) {
        return one->cum > other->cum ? -1 : 1;
    }
    if (one->flat != other->flat) {
        return one->flat > other->flat ? -1 : 1;
    }
    return strcmp(graph->table->frames[a].name, graph->table->frames[b].name);
}

static void choose_nodes(struct graph *graph) {
    uint32_t count = graph->table->frame_count;
    uint32_t most = args_select.most_rows == SELECT_OWN_ROWS ? NODES_MOST : args_select.most_rows;
    double least = args_select.least_share < 0 ? node_share : args_select.least_share;
    uint32_t *order = must_alloc((count + (size_t)1) * sizeof(*order));
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    qsort_r(order, count, sizeof(*order), compare_nodes, graph);
    for (uint32_t i = 0; i < count && (most == 0 || i < most); i++) {
        struct node *node = &graph->nodes[order[i]];
        node->is_shown = node->cum > 0 && share_of(graph, node->cum) >= least;
        graph->shown += node->is_shown;
    }
    free(order);
}

static struct edge *find_edge(struct graph *graph, uint32_t caller, uint32_t callee) {
    uint32_t index = keys_add(&graph->known, caller, callee, 0);
    if (index == graph->edge_count) {
        graph->edges = must_have_room(graph->edges, index, &graph->edge_room, sizeof *graph->edges);
        graph->edges[graph->edge_count++] =
            (struct edge){.caller = caller, .callee = callee, .last_sample = PROFILE_NONE};
    }
    return &graph->edges[index];
}

static void add_edges(struct graph *graph, uint32_t sample) {
    const struct frame_table *table = graph->table;
    uint32_t caller = PROFILE_NONE;
    bool is_direct = true;
    for (size_t at = table->starts[sample + 1]; at > table->starts[sample]; at--) {
        uint32_t callee = table->ids[at - 1];
        if (!graph->nodes[callee].is_shown) {
            is_direct = false;
            continue;
        }
        if (caller != PROFILE_NONE) {
            struct edge *edge = find_edge(graph, caller, callee);
            edge->is_direct |= is_direct;
            if (edge->last_sample != sample) {
                edge->value = profile_sum(edge->value, value_of(graph, sample));
                edge->last_sample = sample;
            }
        }
        caller = callee;
        is_direct = true;
    }
}

static void write_legend(FILE *file, const struct graph *graph) {
    const struct profile_type *type = &graph->profile->types[graph->profile->default_type];
    fputs("legend [shape=box, style=filled, fillcolor=\"#f8f8f8\", fontsize=14, label=\"", file);
    escape_dot(file, type->name);
    fprintf(file, "\\ltotal %s", export_value_text(graph->unit, graph->total));
    fprintf(file, " = %" PRId64 " ", graph->total);
    escape_dot(file, graph->unit);
    fprintf(file, "\\l%u of %u functions\\l\"];\n", graph->shown, graph->table->frame_count);
}

/* From white to a soft red. */
static void write_color(FILE *file, double share) {
    int fade = (int)(110 * sqrt(share < 0 ? 0 : share > 1 ? 1 : share));
    fprintf(file, "#%02x%02x%02x", 255, 250 - fade, 245 - fade);
}

static void write_value(FILE *file, const struct graph *graph, int64_t value) {
    fprintf(file, "%s (%.1f%%)", export_value_text(graph->unit, value),
            share_of(graph, value) * 100);
}

static void write_node(FILE *file, const struct graph *graph, uint32_t id) {
    const struct node *node = &graph->nodes[id];
    const struct frame *frame = &graph->table->frames[id];
    char room[ESCAPE_SHORT * 4 + 4];
    fprintf(file, "N%u [shape=box, style=filled, fontsize=%d, fillcolor=\"", id,
            9 + (int)(23 * sqrt(share_of(graph, node->flat))));
    write_color(file, share_of(graph, node->cum));
    fputs("\", label=\"", file);
    escape_dot(file, escape_shorten(safe_text(frame->name), 100, room));
    fputs("\\n", file);
    write_value(file, graph, node->flat);
    if (node->cum != node->flat) {
        fputs("\\nof ", file);
        write_value(file, graph, node->cum);
    }
    fputs("\", tooltip=\"", file);
    escape_dot(file, frame->name);
    fputs("\\n", file);
    escape_dot(file, frame->file[0] != '\0' ? frame->file : frame->module);
    fprintf(file, "\\nflat %" PRId64 " cum %" PRId64 "\"];\n", node->flat, node->cum);
}

static void write_edge(FILE *file, const struct graph *graph, const struct edge *edge) {
    double share = share_of(graph, edge->value);
    if (share < edge_share) {
        return;
    }
    fprintf(file, "N%u -> N%u [weight=%d, penwidth=%.2f, label=\" ", edge->caller, edge->callee,
            1 + (int)(share * 100), 1 + 5 * share);
    fputs(export_value_text(graph->unit, edge->value), file);
    fprintf(file, "\", tooltip=\"%" PRId64 "\"%s];\n", edge->value,
            edge->is_direct ? "" : ", style=dotted");
}

static void write_graph(FILE *file, const struct graph *graph) {
    fputs("digraph tally {\n"
          "graph [rankdir=TB];\n"
          "node [fontname=\"Helvetica\", color=\"#606060\"];\n"
          "edge [fontname=\"Helvetica\", fontsize=10, color=\"#606060\"];\n",
          file);
    write_legend(file, graph);
    for (uint32_t i = 0; i < graph->table->frame_count; i++) {
        if (graph->nodes[i].is_shown) {
            write_node(file, graph, i);
        }
    }
    for (uint32_t i = 0; i < graph->edge_count; i++) {
        write_edge(file, graph, &graph->edges[i]);
    }
    fputs("}\n", file);
}

bool export_dot(const struct profile *profile, struct output *output) {
    struct frame_table *table = frame_table_new(profile, args_select.by);
    if (table == NULL) {
        return false;
    }
    struct graph graph = {
        .profile = profile, .table = table, .unit = profile->types[profile->default_type].unit};
    size_t bytes = (table->frame_count + (size_t)1) * sizeof(*graph.nodes);
    graph.nodes = must_alloc(bytes);
    for (uint32_t i = 0; i < table->frame_count; i++) {
        graph.nodes[i] = (struct node){.last_sample = PROFILE_NONE};
    }
    add_nodes(&graph);
    choose_nodes(&graph);
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        if (value_of(&graph, i) > 0) {
            add_edges(&graph, i);
        }
    }
    write_graph(output->file, &graph);
    free(graph.nodes);
    free(graph.edges);
    keys_free(&graph.known);
    frame_table_free(table);
    return true;
}
