/* SPDX-License-Identifier: MIT
 *
 * runs.h - chunks that hold nothing, as runs of neighbours.
 *
 * Threads     Call with the page heap locked.
 */
#pragma once

#include "heap/chunk.h"

/* Turns `length` chunks that hold nothing into a run and joins it with its neighbours. */
void runs_add(struct chunk *first, uint32_t length);

/* First chunk of the shortest run that has `chunks` chunks from an aligned one on, or NULL. */
struct chunk *runs_find(size_t chunks, size_t alignment_chunks);

/* Cuts those chunks out of the run that runs_find gave; the first of them. */
struct chunk *runs_cut(struct chunk *first, size_t chunks, size_t alignment_chunks);

/* Forgets all runs; every free chunk is added again afterwards. */
void runs_reset(void);

/* Checks the sets and one chunk of them; the number of runs. */
size_t runs_verify(void);
void runs_verify_chunk(const struct chunk *chunk);
