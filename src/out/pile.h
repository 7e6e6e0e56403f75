/* SPDX-License-Identifier: MIT
 *
 * pile.h - bytes that grow in number, in memory of their own from the kernel.
 *
 * What a dump needs for the time of its making lies in piles and goes back when it is made.  A pile
 * that grows moves: keep offsets, not pointers.
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

/* Makes room for this number of bytes behind `length`; false, with all as it was, without memory. */
bool pile_grow(struct pile *pile, size_t more);

/* Gives the memory back; the pile is empty then. */
void pile_release(struct pile *pile);
