/* SPDX-License-Identifier: MIT
 *
 * cfi.h - where a function keeps its return address, as the unwind tables tell.
 *
 * libgcc goes on to the caller without a look whether it can be there.  On a thread's own stack that is
 * sound; a coroutine may begin with anything in the place of a return address.  So where the next step
 * leads is found out here first (unwind.c), from the same tables.
 *
 * Threads     Reads tables of loaded code, as libgcc does; takes no lock, allocates nothing.
 */
#pragma once

#include "base/common.h"

/* The return address is at the value of a register, plus an offset. */
struct cfi_slot {
    unsigned reg;
    int64_t offset;
};

/* For the function that begins at `start`, stopped before the instruction at `address`, by its
 * description (an FDE).  False: it has no return address, or tells in a way that is not read here. */
bool cfi_find_slot(const void *description, uintptr_t start, uintptr_t address,
                   struct cfi_slot *slot);
