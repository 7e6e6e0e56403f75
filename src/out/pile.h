/* SPDX-License-Identifier: MIT
 *
 * pile.h - a growing array of bytes, in memory of its own from the kernel.
 *
 * What a dump needs while it is made lies in piles and is given back afterwards.  A pile that grows
 * moves: keep offsets, not pointers.
 *
 * Threads     One pile, one thread.
 */
#pragma once

#include "base/common.h"

/* All zeros is an empty pile. */
struct pile {
    char *bytes;
    size_t length;
    size_t capacity;
};

/* Makes room for `more` bytes behind `length`; false, with nothing changed, without memory. */
bool pile_grow(struct pile *pile, size_t more);

/* Gives the memory back; the pile is empty then. */
void pile_release(struct pile *pile);
