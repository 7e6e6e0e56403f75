/* SPDX-License-Identifier: MIT
 *
 * arena.h - bins under one roof, one arena per CPU the process may use.
 *
 * Threads on different CPUs refill from different arenas, so they rarely meet at a lock, and what
 * one thread allocates in a row does not share cache lines with another's.
 */
#pragma once

#include "heap/bin.h"

struct arena {
    struct bin bins[CLASS_COUNT];
};

enum { MOST_ARENAS = 256 };

/* False when the kernel refuses the memory. */
bool arena_init(void);

unsigned arena_count(void);

/* The arena a thread that runs on this CPU should use. */
unsigned arena_choose(void);

struct bin *arena_bin(unsigned arena, unsigned size_class);
