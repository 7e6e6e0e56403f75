/* SPDX-License-Identifier: MIT
 *
 * pool.h - empty magazines that nobody uses.
 *
 * Threads     All functions may be called from any thread.
 */
#pragma once

#include "heap/magazine.h"

struct verify;

void pool_init(void);

/* An empty magazine, or NULL without memory; and one that is no longer needed. */
struct magazine *pool_take(void);
void pool_put(struct magazine *empty);

/* Gives the memory of magazines back to the kernel, where whole pages of them are empty. */
void pool_purge(void);

/* Checks the pool, as the last part of the heap that has magazines: all ever made were met. */
void pool_verify(struct verify *walk);
