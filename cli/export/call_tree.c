/* SPDX-License-Identifier: MIT
 *
 * call_tree.c - stacks with a common beginning share its nodes.
 *
 * A node is found by its parent and its frame, in a hash table that is thrown away at the end.  A child is
 * made after its parent, so totals are added up by one walk over the array from its end.
 */
#define _GNU_SOURCE /* qsort_r */
#include "export/call_tree.h"

#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/keys.h"

static void add_node(struct call_tree *tree, uint32_t *room, struct call_node node) {
    tree->nodes = must_have_room(tree->nodes, tree->node_count, room, sizeof(*tree->nodes));
    tree->nodes[tree->node_count++] = node;
}

static void add_stacks(struct call_tree *tree, const struct profile *profile,
                       const struct frame_table *table, uint32_t type) {
    struct keys children = {0}; /* numbers are those of nodes, after the root */
    uint32_t room = 0;
    add_node(tree, &room, (struct call_node){.frame = PROFILE_NONE});
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        int64_t value = profile_value(profile, i, type);
        if (value <= 0) {
            tree->skipped += value < 0;
            continue;
        }
        uint32_t node = 0;
        for (size_t at = table->starts[i + 1]; at > table->starts[i]; at--) {
            uint32_t child = keys_add(&children, node, table->ids[at - 1], 0) + 1;
            if (child == tree->node_count) {
                uint32_t depth = tree->nodes[node].depth + 1;
                add_node(tree, &room,
                         (struct call_node){table->ids[at - 1], node, 0, 0, depth, 0, 0});
            }
            node = child;
        }
        tree->nodes[node].self = profile_sum(tree->nodes[node].self, value);
    }
    keys_free(&children);
}

struct order {
    const struct call_tree *tree;
    const struct frame_table *table;
};

/* By parent, then the lightest first, because lists are built from their end. */
static int compare_nodes(const void *left, const void *right, void *context) {
    const struct order *order = context;
    const struct call_node *a = &order->tree->nodes[*(const uint32_t *)left];
    const struct call_node *b = &order->tree->nodes[*(const uint32_t *)right];
    if (a->parent != b->parent) {
        return a->parent < b->parent ? -1 : 1;
    }
    if (a->total != b->total) {
        return a->total < b->total ? -1 : 1;
    }
    const struct frame *frames = order->table->frames;
    int names = strcmp(frames[b->frame].name, frames[a->frame].name);
    return names != 0 ? names : strcmp(frames[b->frame].file, frames[a->frame].file);
}

static void link_children(struct call_tree *tree, const struct frame_table *table) {
    uint32_t count = tree->node_count - 1;
    uint32_t *nodes = must_alloc((count + (size_t)1) * sizeof(*nodes));
    for (uint32_t i = 0; i < count; i++) {
        nodes[i] = i + 1;
    }
    struct order order = {tree, table};
    qsort_r(nodes, count, sizeof(*nodes), compare_nodes, &order);
    for (uint32_t i = 0; i < count; i++) {
        struct call_node *node = &tree->nodes[nodes[i]];
        node->next = tree->nodes[node->parent].child;
        tree->nodes[node->parent].child = nodes[i];
    }
    free(nodes);
}

struct call_tree *call_tree_new(const struct profile *profile, const struct frame_table *table,
                                uint32_t type) {
    struct call_tree *tree = must_zeroed(sizeof(*tree));
    add_stacks(tree, profile, table, type);
    for (uint32_t i = tree->node_count; i > 0; i--) {
        struct call_node *node = &tree->nodes[i - 1];
        node->total = profile_sum(node->total, node->self);
        if (i > 1) {
            struct call_node *parent = &tree->nodes[node->parent];
            parent->total = profile_sum(parent->total, node->total);
        }
    }
    link_children(tree, table);
    return tree;
}

void call_tree_free(struct call_tree *tree) {
    free(tree->nodes);
    free(tree);
}
