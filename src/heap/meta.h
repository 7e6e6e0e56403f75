/* SPDX-License-Identifier: MIT
 *
 * meta.h - memory for our own descriptors; never from malloc, never beside the program's data.
 */
#pragma once

#include "heap/heap.h"

struct lock;

/* Its lock, for the lock counts. */
struct lock *meta_lock(void);

/* The mappings it comes from.  Takes no lock; one made meanwhile may be missing. */
void meta_walk(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context);

/* Bytes handed out so far; reads take no lock. */
size_t meta_bytes(void);
