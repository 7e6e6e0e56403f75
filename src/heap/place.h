/* SPDX-License-Identifier: MIT
 *
 * place.h - allocating from, and freeing to, another place than the caller's own cache and arena.
 */
#pragma once

#include "heap/heap.h"

/* A large object of an arena, or NULL; does not count for THREAD_EXACT. */
void *place_alloc_large(unsigned arena, size_t size, size_t alignment, bool *zeroed);
