/* SPDX-License-Identifier: MIT
 *
 * keys.h - a number for each triple of numbers, in order of appearance: nodes, edges, children.
 *
 * A table with open addressing that doubles when it is half full.  Whoever writes a file may choose
 * the numbers, so their places depend on the table's address, which is secret.  Start with a zeroed
 * struct.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct keys {
    struct key {
        uint64_t words[3];
        uint32_t id; /* plus one; 0: free */
    } * entries;
    size_t room, count; /* room is 0 or a power of two */
};

/* Spreads the bits of a number. */
uint64_t keys_mix(uint64_t x);

/* The number of the triple; a new one gets the count so far. */
uint32_t keys_add(struct keys *keys, uint64_t a, uint64_t b, uint64_t c);
void keys_free(struct keys *keys);
