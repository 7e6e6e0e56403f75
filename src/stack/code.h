/* SPDX-License-Identifier: MIT
 *
 * code.h - what is code, and the rules of its unwind tables, found without the loader.
 *
 * The loader and libgcc take locks, and what they find may be unloaded the next moment.  So one
 * thread reads from /proc which ranges are executable and where the tables of each are (code_look,
 * in stack.h), and a signal handler searches those tables by copies that never fault.
 *
 * Threads     Takes no lock, allocates nothing.  For handlers, if these are counted so that
 *             code_look can ask whether any run.
 */
#pragma once

#include "stack/cfi.h"
#include "stack/stack.h"

/* Copies memory that need not be readable; false if it is not. */
bool code_copy(struct code_room *room, void *to, uintptr_t from, size_t bytes);

/* CFI_NO_TABLE: code, but no more is known; CFI_UNKNOWN: not code when code_look last looked. */
struct cfi_rule code_find(uintptr_t address, struct code_room *room);
