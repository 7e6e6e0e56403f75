/* SPDX-License-Identifier: MIT
 *
 * pairing.c - melding two trees is making the larger root a child of the smaller.
 *
 * Read next   pairing.h for what it is used for.
 */
#include "heap/pairing.h"

#include "base/log.h"

/* Joins two trees whose roots have no siblings; either may be NULL. */
static struct pairing_node *meld(struct pairing_node *a, struct pairing_node *b) {
    assert(a == NULL || a->sibling == NULL);
    assert(b == NULL || b->sibling == NULL);
    if (a == NULL || b == NULL) {
        return a != NULL ? a : b;
    }
    if (b->key < a->key) {
        struct pairing_node *swap = a;
        a = b;
        b = swap;
    }
    b->sibling = a->child;
    b->back = a;
    if (a->child != NULL) {
        a->child->back = b;
    }
    a->child = b;
    return a;
}

/* Melds the children of a removed root in pairs, then the pairs from last to first. */
static struct pairing_node *meld_siblings(struct pairing_node *first) {
    struct pairing_node *pairs = NULL;
    while (first != NULL) {
        struct pairing_node *a = first;
        struct pairing_node *b = a->sibling;
        first = b != NULL ? b->sibling : NULL;
        a->sibling = a->back = NULL;
        if (b != NULL) {
            b->sibling = b->back = NULL;
        }
        struct pairing_node *pair = meld(a, b);
        pair->sibling = pairs;
        pairs = pair;
    }
    struct pairing_node *root = NULL;
    while (pairs != NULL) {
        struct pairing_node *next = pairs->sibling;
        pairs->sibling = NULL;
        root = meld(root, pairs);
        pairs = next;
    }
    return root;
}

void pairing_insert(struct pairing_node **set, struct pairing_node *node, uint64_t key) {
    assert(*set != node);
    node->key = key;
    node->child = node->sibling = node->back = NULL;
    *set = meld(*set, node);
}

void pairing_remove(struct pairing_node **set, struct pairing_node *node) {
    struct pairing_node *children = meld_siblings(node->child);
    if (*set == node) {
        *set = children;
    } else {
        assert(node->back != NULL);
        if (node->back->child == node) {
            node->back->child = node->sibling;
        } else {
            assert(node->back->sibling == node);
            node->back->sibling = node->sibling;
        }
        if (node->sibling != NULL) {
            node->sibling->back = node->back;
        }
        *set = meld(*set, children);
    }
    node->child = node->sibling = node->back = NULL;
    node->key = UINT64_MAX;
}

size_t pairing_verify(const struct pairing_node *set) {
    /* Depth first without recursion: down to the child, along siblings, up over `back`. */
    size_t count = 0;
    const struct pairing_node *node = set;
    while (node != NULL) {
        count++;
        for (const struct pairing_node *child = node->child; child; child = child->sibling) {
            ensure(child->key >= node->key);
        }
        ensure(node->child == NULL || node->child->back == node);
        ensure(node->sibling == NULL || node->sibling->back == node);
        if (node->child != NULL) {
            node = node->child;
            continue;
        }
        while (node != set && node->sibling == NULL) {
            while (node->back->child != node) {
                node = node->back;
            }
            node = node->back;
        }
        node = node == set ? NULL : node->sibling;
    }
    return count;
}
