/* SPDX-License-Identifier: MIT
 *
 * export_folded.c - a line per stack, root first: what flamegraph.pl, speedscope and others read.
 *
 *      main;handle_request;login 67108864
 */
#include <inttypes.h>
#include <stdlib.h>

#include "args/args.h"
#include "common/escape.h"
#include "export/call_tree.h"
#include "export/export.h"

static void write_path(FILE *file, const struct call_tree *tree, const struct frame_table *table,
                       uint32_t node, uint32_t *path) {
    uint32_t depth = tree->nodes[node].depth;
    for (uint32_t at = node, i = depth; i > 0; at = tree->nodes[at].parent) {
        path[--i] = tree->nodes[at].frame;
    }
    for (uint32_t i = 0; i < depth; i++) {
        if (i > 0) {
            putc(';', file);
        }
        escape_folded(file, table->frames[path[i]].name);
    }
    fprintf(file, " %" PRId64 "\n", tree->nodes[node].self);
}

bool export_folded(const struct profile *profile, struct output *output) {
    struct frame_table *table = frame_table_new(profile, args_select.by);
    if (table == NULL) {
        return false;
    }
    struct call_tree *tree = call_tree_new(profile, table, profile->default_type);
    export_warn_negative(tree->skipped);
    uint32_t deepest = 0;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        deepest = tree->nodes[i].depth > deepest ? tree->nodes[i].depth : deepest;
    }
    uint32_t *path = must_alloc((deepest + (size_t)1) * sizeof(*path));
    if (tree->nodes[0].self > 0) { /* of stacks without a frame */
        fprintf(output->file, "[unknown] %" PRId64 "\n", tree->nodes[0].self);
    }
    for (uint32_t node = call_tree_next(tree, 0); node != 0; node = call_tree_next(tree, node)) {
        if (tree->nodes[node].self > 0) {
            write_path(output->file, tree, table, node, path);
        }
    }
    free(path);
    call_tree_free(tree);
    frame_table_free(table);
    return true;
}
