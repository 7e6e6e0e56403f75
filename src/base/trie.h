/* SPDX-License-Identifier: MIT
 *
 * trie.h - call stacks as small numbers in a tree of shared beginnings.
 *
 *      0 -- _start -- main --+-- read_all -- grow        a stack is the number of its innermost frame;
 *                            '-- parse                   the way up to 0 gives the others
 *
 * A frame that two stacks share with everything outside of it is stored once.  Numbers are never
 * reused and stay valid as long as the process lives.
 *
 * Threads     All functions take no lock, never wait, and may be called from signal handlers.
 */
#pragma once

#include "base/table.h"

struct trie_index;

/* All zeros, but for the size of a node, is an empty tree. */
struct trie {
    struct table nodes;
    _Atomic uint32_t last;            /* number given to the last node */
    struct trie_index *_Atomic index; /* finds a node by parent and address */
};

#define TRIE_EMPTY                                                                                 \
    { .nodes.item_bytes = 16 }

/* The number of `address` called from `parent`; 0 without memory. */
uint32_t trie_step(struct trie *trie, uint32_t parent, uintptr_t address);

/* What a caller found last: the outermost frames of its stacks seldom change. */
enum { TRIE_PATH = 48 };
struct trie_path {
    uint32_t count;
    uint32_t nodes[TRIE_PATH]; /* outermost first */
    uintptr_t addresses[TRIE_PATH];
};

/* The number of a stack, given innermost first; 0 without memory, and for an empty one. */
uint32_t trie_insert(struct trie *trie, struct trie_path *path, const uintptr_t *addresses,
                     unsigned count);

/* The addresses of a stack, innermost first, at most `most`; returns how many. */
unsigned trie_read(struct trie *trie, uint32_t stack, uintptr_t *addresses, unsigned most);

/* Frames of a stack. */
unsigned trie_depth(struct trie *trie, uint32_t stack);

uint32_t trie_count(struct trie *trie);
