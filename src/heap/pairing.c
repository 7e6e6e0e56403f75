/* SPDX-License-Identifier: MIT
 *
 * pairing.c - melding two trees: the smaller root stays, and one of its two subtrees, left or right
 * at random, is melded with the other tree.
 *
 *              3                      A walk that turns left or right at random leaves any binary
 *            /   \     + 6            tree of n nodes after log2(n + 1) steps on average, however
 *           5     9                   lopsided it is, and hardly ever after three times as many.
 *          / \                        That bounds a single call, and not only the average of many.
 *         7   8
 *
 * Read next   pairing.h for what it is used for.
 */
#include "heap/pairing.h"

#include "base/hash.h"
#include "base/log.h"

/* Bits that have nothing to do with the shape of the trees. */
static uint64_t toss(const struct pairing_node *a, const struct pairing_node *b) {
    uint64_t mixed = hash_word((uintptr_t)a ^ hash_word((uintptr_t)b));
    return mixed ^ mixed >> 32;
}

/* Puts the meld of two trees, either of which may be NULL, in the place of `*link` under `parent`. */
static void meld(struct pairing_node **link, struct pairing_node *parent, struct pairing_node *a,
                 struct pairing_node *b) {
    uint64_t coins = toss(a, b);
    while (a != NULL && b != NULL) {
        assert(a != b);
        struct pairing_node *root = b->key < a->key ? b : a;
        b = b->key < a->key ? a : b;
        *link = root;
        root->back = parent;
        parent = root;
        link = &root->child[coins & 1];
        a = *link;
        coins = coins >> 1 | coins << 63;
    }
    struct pairing_node *rest = a != NULL ? a : b;
    *link = rest;
    if (rest != NULL) {
        rest->back = parent;
    }
}

void pairing_insert(struct pairing_node **set, struct pairing_node *node, uint64_t key) {
    assert(*set != node);
    *node = (struct pairing_node){.key = key};
    meld(set, NULL, *set, node);
}

void pairing_remove(struct pairing_node **set, struct pairing_node *node) {
    struct pairing_node *parent = node->back;
    assert((parent == NULL) == (*set == node));
    struct pairing_node **link = parent == NULL ? set : &parent->child[parent->child[1] == node];
    assert(*link == node);
    meld(link, parent, node->child[0], node->child[1]);
    *node = (struct pairing_node){.key = UINT64_MAX};
}

/* The node behind this one in the walk that comes to a node before its subtrees; NULL at the end. */
static const struct pairing_node *next_in_walk(const struct pairing_node *node) {
    if (node->child[0] != NULL || node->child[1] != NULL) {
        return node->child[node->child[0] == NULL];
    }
    for (; node->back != NULL; node = node->back) {
        const struct pairing_node *right = node->back->child[1];
        if (right != NULL && right != node) {
            return right;
        }
    }
    return NULL;
}

size_t pairing_verify(const struct pairing_node *set) {
    size_t count = 0;
    ensure(set == NULL || set->back == NULL);
    for (const struct pairing_node *node = set; node != NULL; node = next_in_walk(node)) {
        count++;
        for (unsigned i = 0; i < 2; i++) {
            const struct pairing_node *child = node->child[i];
            ensure(child == NULL || child->key >= node->key);
            ensure(child == NULL || child->back == node);
        }
    }
    return count;
}
