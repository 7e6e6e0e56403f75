/* SPDX-License-Identifier: MIT
 *
 * test_pairing.c - the melding heap against an array that is searched from end to end.
 */
#include "heap/pairing.h"

#include "unit.h"

enum { NODES = 300, STEPS = 60000 };

static struct pairing_node nodes[NODES];
static bool inside[NODES];

/* Compares the set with the model: same number, same smallest key, all keys as inserted. */
static void compare(const struct pairing_node *set) {
    size_t count = 0;
    uint64_t smallest = UINT64_MAX;
    for (unsigned i = 0; i < NODES; i++) {
        count += inside[i];
        if (inside[i] && nodes[i].key < smallest) {
            smallest = nodes[i].key;
        }
    }
    check_eq(pairing_verify(set), count);
    check((set == NULL) == (count == 0));
    check(set == NULL || set->key == smallest);
}

static void step(struct pairing_node **set, struct random *random, uint64_t keys, unsigned bias) {
    unsigned i = (unsigned)random_below(random, NODES);
    if (!inside[i] && random_below(random, 10) < bias) {
        uint64_t key = random_below(random, keys);
        pairing_insert(set, &nodes[i], key);
        check_eq(nodes[i].key, key);
        inside[i] = true;
    } else if (inside[i]) {
        pairing_remove(set, &nodes[i]);
        check_eq(nodes[i].key, UINT64_MAX);
        check(nodes[i].child[0] == NULL && nodes[i].child[1] == NULL && nodes[i].back == NULL);
        inside[i] = false;
    }
}

TEST(random_insertions_and_removals_agree_with_the_model) {
    struct random random = random_start(4, 0);
    struct pairing_node *set = NULL;
    for (unsigned i = 0; i < STEPS; i++) {
        unsigned bias = i / 5000 % 2 == 0 ? 10 : 5; /* Fill and shrink in turn. */
        step(&set, &random, UINT64_MAX, bias);
        if (i % 16 == 0) {
            compare(set);
        }
    }
}

TEST(equal_keys_are_kept_apart) {
    struct random random = random_start(5, 0);
    struct pairing_node *set = NULL;
    for (unsigned i = 0; i < STEPS; i++) {
        step(&set, &random, 3, 8);
        if (i % 16 == 0) {
            compare(set);
        }
    }
}

TEST(removing_the_smallest_again_and_again_sorts) {
    struct random random = random_start(6, 0);
    struct pairing_node *set = NULL;
    for (unsigned i = 0; i < NODES; i++) {
        pairing_insert(&set, &nodes[i], random_next(&random));
        inside[i] = true;
    }
    uint64_t last = 0;
    for (unsigned left = NODES; left > 0; left--) {
        check_eq(pairing_verify(set), left);
        check(set->key >= last);
        last = set->key;
        inside[set - nodes] = false;
        pairing_remove(&set, set);
        compare(set);
    }
    check(set == NULL);
}

TEST(ascending_and_descending_insertions_work) {
    for (unsigned descending = 0; descending < 2; descending++) {
        struct pairing_node *set = NULL;
        for (unsigned i = 0; i < NODES; i++) {
            pairing_insert(&set, &nodes[i], descending ? NODES - i : i);
        }
        check_eq(pairing_verify(set), NODES);
        for (unsigned i = 0; i < NODES; i += 2) { /* From the middle, not from the top. */
            pairing_remove(&set, &nodes[NODES - 1 - i]);
        }
        check_eq(pairing_verify(set), NODES / 2);
    }
}

TEST(verify_stops_at_a_broken_order) {
    struct pairing_node *set = NULL;
    for (unsigned i = 0; i < 10; i++) {
        pairing_insert(&set, &nodes[i], 100 + i);
    }
    check_eq(pairing_verify(set), 10);
    nodes[5].key = 1;
    check_dies(pairing_verify(set),
               "tally: internal error: 'child == NULL || child->key >= node->key'", SIGABRT);
}
