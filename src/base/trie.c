/* SPDX-License-Identifier: MIT
 *
 * trie.c - inserting into the tree without a lock.
 *
 * Nodes live in a table; an index finds a node by (parent, address).  The index is an array of node
 * numbers with linear probing.  It only ever gains entries, so a number that was found stays right.
 *
 *      growing   1. map an index of twice the size
 *                2. go through the old one: an empty slot is frozen, a number is entered into the new one
 *                3. put the new one in place of the old one
 *
 * Whoever meets a frozen slot cannot know whether its node is there yet, and grows the index itself: all
 * who do so read the same numbers out of the frozen array, so it does not matter whose copy wins.
 * That also holds in the child of a fork whose other threads were in the middle of it.  Old arrays
 * stay mapped, since a reader may be in one; together they are as large as the present one.
 *
 * Invariant   Two nodes never have the same parent and address.  Slots go from empty to a number or to
 *             frozen, and never change again.
 * Cost        About 5 ns for a step whose node is in the cache.
 */
#include "base/trie.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"

struct node {
    uintptr_t address;
    uint32_t parent;
    uint32_t depth;
};

struct trie_index {
    uint32_t lg;           /* of the number of slots */
    _Atomic uint32_t used; /* slots with a number, about */
    _Atomic uint32_t slots[];
};

enum { SLOT_EMPTY = 0, SMALLEST_LG = 10, LARGEST_LG = 31 };
static const uint32_t SLOT_FROZEN = UINT32_MAX;

static struct node *node_at(struct trie *trie, uint32_t number) {
    return table_at(&trie->nodes, number);
}

static size_t index_bytes(uint32_t lg) {
    return align_up(sizeof(struct trie_index) + (sizeof(uint32_t) << lg), os_facts.page_bytes);
}

static uint32_t hash(uint32_t parent, uintptr_t address, uint32_t lg) {
    uint64_t mixed = hash_word(address ^ (uint64_t)parent << 32);
    return (uint32_t)hash_place(mixed ^ mixed >> 29 ^ parent, lg);
}

/* ---------------------------------------------------------------- growing */

/* Into an index that nobody else knows. */
static void enter_private(struct trie *trie, struct trie_index *index, uint32_t number) {
    const struct node *node = node_at(trie, number);
    uint32_t mask = (UINT32_C(1) << index->lg) - 1;
    uint32_t at = hash(node->parent, node->address, index->lg);
    while (atomic_load_explicit(&index->slots[at], memory_order_relaxed) != SLOT_EMPTY) {
        at = (at + 1) & mask;
    }
    atomic_store_explicit(&index->slots[at], number, memory_order_relaxed);
    uint32_t used = atomic_load_explicit(&index->used, memory_order_relaxed);
    atomic_store_explicit(&index->used, used + 1, memory_order_relaxed);
}

static void freeze_and_copy(struct trie *trie, struct trie_index *old, struct trie_index *index) {
    for (uint64_t i = 0; i < UINT64_C(1) << old->lg; i++) {
        uint32_t number = SLOT_EMPTY;
        /* Acquire, when it is taken already: its node was written before. */
        if (!atomic_compare_exchange_strong_explicit(&old->slots[i], &number, SLOT_FROZEN,
                                                     memory_order_acquire, memory_order_acquire) &&
            number != SLOT_FROZEN) {
            enter_private(trie, index, number);
        }
    }
}

/* Replaces `old`, which may be NULL; false without memory.  True also if somebody else was faster. */
static COLD bool grow(struct trie *trie, struct trie_index *old) {
    uint32_t lg = old != NULL ? old->lg + 1 : SMALLEST_LG;
    if (lg > LARGEST_LG) {
        return false;
    }
    struct trie_index *made = os_map(index_bytes(lg));
    if (made == NULL) {
        return false;
    }
    made->lg = lg;
    if (old != NULL) {
        freeze_and_copy(trie, old, made);
    }
    struct trie_index *expected = old;
    /* Release shows the copy to whoever acquires the pointer. */
    if (!atomic_compare_exchange_strong_explicit(&trie->index, &expected, made,
                                                 memory_order_release, memory_order_relaxed)) {
        os_unmap(made, index_bytes(lg));
    }
    return true;
}

/* An index to insert into, or NULL without memory.  It is half empty; or, when it cannot grow, still
 * has an eighth of its slots, so that a search ends. */
static struct trie_index *usable_index(struct trie *trie) {
    for (;;) {
        struct trie_index *index = atomic_load_explicit(&trie->index, memory_order_acquire);
        uint32_t used =
            index == NULL ? 0 : atomic_load_explicit(&index->used, memory_order_relaxed);
        if (LIKELY(index != NULL && used < UINT32_C(1) << (index->lg - 1))) {
            return index;
        }
        if (!grow(trie, index)) {
            return index != NULL && used < UINT32_C(7) << (index->lg - 3) ? index : NULL;
        }
    }
}

/* ---------------------------------------------------------------- inserting */

/* A node that nobody can find yet; 0 without memory. */
static uint32_t make_node(struct trie *trie, uint32_t parent, uintptr_t address) {
    uint32_t last = atomic_load_explicit(&trie->last, memory_order_relaxed);
    do {
        if (last >= UINT32_MAX - 2 || !table_reach(&trie->nodes, last + 1)) {
            return 0;
        }
        /* Acquire: whoever had this number before and gave it back has written its node. */
    } while (!atomic_compare_exchange_weak_explicit(&trie->last, &last, last + 1,
                                                    memory_order_acquire, memory_order_relaxed));
    *node_at(trie, last + 1) =
        (struct node){.address = address, .parent = parent, .depth = trie_depth(trie, parent) + 1};
    return last + 1;
}

/* Somebody else made the same one.  The number is lost unless it is still the last. */
static void unmake_node(struct trie *trie, uint32_t number) {
    uint32_t expected = number;
    atomic_compare_exchange_strong_explicit(&trie->last, &expected, number - 1,
                                            memory_order_release, memory_order_relaxed);
}

static bool is_node(struct trie *trie, uint32_t number, uint32_t parent, uintptr_t address) {
    const struct node *node = node_at(trie, number);
    return node->address == address && node->parent == parent;
}

/* The number found or entered into the index; SLOT_FROZEN: the index is being replaced; 0: no memory. */
static uint32_t find_or_enter(struct trie *trie, struct trie_index *index, uint32_t parent,
                              uintptr_t address) {
    uint32_t mask = (UINT32_C(1) << index->lg) - 1;
    uint32_t at = hash(parent, address, index->lg);
    uint32_t made = 0;
    for (;;) {
        /* Acquire: its node was written before it was entered. */
        uint32_t number = atomic_load_explicit(&index->slots[at], memory_order_acquire);
        if (number == SLOT_EMPTY) {
            made = made != 0 ? made : make_node(trie, parent, address);
            if (made == 0) {
                return 0;
            }
            if (atomic_compare_exchange_strong_explicit(
                    &index->slots[at], &number, made, memory_order_acq_rel, memory_order_acquire)) {
                atomic_fetch_add_explicit(&index->used, 1, memory_order_relaxed);
                return made;
            }
        }
        if (number == SLOT_FROZEN || is_node(trie, number, parent, address)) {
            if (made != 0) {
                unmake_node(trie, made);
            }
            return number;
        }
        at = (at + 1) & mask;
    }
}

uint32_t trie_step(struct trie *trie, uint32_t parent, uintptr_t address) {
    for (;;) {
        struct trie_index *index = usable_index(trie);
        if (index == NULL) {
            return 0;
        }
        uint32_t number = find_or_enter(trie, index, parent, address);
        if (LIKELY(number != SLOT_FROZEN)) {
            return number;
        }
        if (atomic_load_explicit(&trie->index, memory_order_relaxed) == index &&
            !grow(trie, index)) {
            return 0;
        }
    }
}

uint32_t trie_insert(struct trie *trie, struct trie_path *path, const uintptr_t *addresses,
                     unsigned count) {
    uint32_t node = 0;
    unsigned i = 0;
    unsigned known = count < path->count ? count : path->count;
    while (i < known && path->addresses[i] == addresses[count - 1 - i]) {
        node = path->nodes[i++];
    }
    for (; i < count; i++) {
        uintptr_t address = addresses[count - 1 - i];
        node = trie_step(trie, node, address);
        if (node == 0) {
            return 0;
        }
        if (i < TRIE_PATH) {
            path->addresses[i] = address;
            path->nodes[i] = node;
            path->count = i + 1;
        }
    }
    return node;
}

/* ---------------------------------------------------------------- reading */

unsigned trie_read(struct trie *trie, uint32_t stack, uintptr_t *addresses, unsigned most) {
    unsigned count = 0;
    for (; stack != 0 && count < most; count++) {
        const struct node *node = node_at(trie, stack);
        addresses[count] = node->address;
        stack = node->parent;
    }
    return count;
}

unsigned trie_depth(struct trie *trie, uint32_t stack) {
    return stack != 0 ? node_at(trie, stack)->depth : 0;
}

uint32_t trie_count(struct trie *trie) {
    return atomic_load_explicit(&trie->last, memory_order_relaxed);
}
