/* SPDX-License-Identifier: MIT
 *
 * region.h - where new chunks come from.
 *
 * Threads     Call with the page heap locked, except region_mapped_units.
 */
#pragma once

#include "heap/chunk.h"

void region_init(void);

/* Adds at least `chunks` free chunks in a row to the runs; false when memory is short. */
bool region_grow(size_t chunks);

/* The same for chunks that start at `address`: false unless that is where the heap ends and the
 * addresses behind it can be had. */
bool region_grow_at(uintptr_t address, size_t chunks);

/* New memory was put in the place of old: gives the kernel the advice that the old one had. */
void region_advise_again(uintptr_t start, size_t bytes);

/* Gives back what is reserved and not in use: the limit of the address space is lower than we
 * thought, and every reserved byte is taken from the program. */
void region_shed(void);

/* Forgets the sum, and the addresses reserved for later: what was known of them may not be whole.
 * Every chunk is counted again afterwards. */
void region_reset(void);
void region_count_again(void);

/* Where addresses of chunks are kept. */
void region_walk_memory(void (*visit)(uintptr_t start, uintptr_t end, void *context),
                        void *context);

/* Units of all chunks; may lag. */
size_t region_mapped_units(void);

/* Bytes that describe the chunks there are. */
size_t region_description_bytes(void);
