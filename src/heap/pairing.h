/* SPDX-License-Identifier: MIT
 *
 * pairing.h - a set of nodes of which the one with the smallest key is wanted: a heap that melds.
 *
 * Bins keep their slabs this way and the page heap its chunks, by address.  Preferring the lowest
 * is what lets the others run empty and be given back.
 *
 * Threads     Call with the lock that guards the set.
 * Invariant   A node's key is at least its parent's; a node outside every set has key ~0.
 * Cost        To look is constant, to insert and to remove logarithmic, each single call.
 */
#pragma once

#include "base/common.h"

struct pairing_node {
    uint64_t key;
    struct pairing_node *child[2];
    struct pairing_node *back; /* the parent */
};

/* A set is a pointer to its smallest node, NULL when empty. */
void pairing_insert(struct pairing_node **set, struct pairing_node *node, uint64_t key);
void pairing_remove(struct pairing_node **set, struct pairing_node *node);

/* Number of nodes; checks the invariant on the way.  For tests and repair. */
size_t pairing_verify(const struct pairing_node *set);
