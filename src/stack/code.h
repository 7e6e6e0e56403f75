/* SPDX-License-Identifier: MIT
 *
 * code.h - what is code, and the rules of its unwind tables, found without the loader.
 *
 * The loader and libgcc lock, and what they tell may be unloaded in the next moment.  So one thread reads
 * from /proc which ranges are executable and where the tables of each are (code_look, in stack.h), and a
 * signal handler searches those tables by copies that never fault.
 *
 * Threads     No lock, nothing is allocated; for handlers, if these are counted and code_look is told when
 *             there are none.
 */
#pragma once

#include "stack/cfi.h"
#include "stack/stack.h"

/* Copies memory that need not be readable; false if it is not. */
bool code_copy(struct code_room *room, void *to, uintptr_t from, size_t bytes);

/* CFI_NO_TABLE where it is code, but no more is known; CFI_UNKNOWN where it was not when code_look last looked. */
struct cfi_rule code_find(uintptr_t address, struct code_room *room);
