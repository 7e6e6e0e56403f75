/* SPDX-License-Identifier: MIT
 *
 * call_tree.h - who called whom, from the roots: stacks with a common beginning share its nodes.
 *
 * Node 0 stands for everything.  Children follow their first one by `next`, the heaviest first, so that
 * a walk needs neither recursion nor a stack of its own:
 *
 *      for (uint32_t node = call_tree_next(tree, 0); node != 0; node = call_tree_next(tree, node))
 *
 * visits every node but the root, callers before callees.
 *
 * Invariant   total of a node = its self + the totals of its children.
 */
#pragma once

#include "export/frame_table.h"

struct call_node {
    uint32_t frame;               /* in the table; meaningless for node 0 */
    uint32_t parent, child, next; /* 0: none */
    uint32_t depth;               /* 0 for node 0 */
    int64_t self, total;
};

struct call_tree {
    struct call_node *nodes;
    uint32_t node_count;
    uint32_t skipped; /* samples whose value was below zero */
};

/* Of one type of the profile.  Samples without a value are left out, and so are negative ones. */
struct call_tree *call_tree_new(const struct profile *profile, const struct frame_table *table,
                                uint32_t type);
void call_tree_free(struct call_tree *tree);

/* The node after this one and all below it; 0: none. */
static inline uint32_t call_tree_skip(const struct call_tree *tree, uint32_t node) {
    while (node != 0 && tree->nodes[node].next == 0) {
        node = tree->nodes[node].parent;
    }
    return node == 0 ? 0 : tree->nodes[node].next;
}

static inline uint32_t call_tree_next(const struct call_tree *tree, uint32_t node) {
    return tree->nodes[node].child != 0 ? tree->nodes[node].child : call_tree_skip(tree, node);
}
