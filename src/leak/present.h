/* SPDX-License-Identifier: MIT
 *
 * present.h - which pages of a range hold anything.
 *
 * A range of many gigabytes may have been touched here and there only, and pages of a file that the program
 * has never written to hold no pointers.  Reading either would cost time and page tables, so the kernel is
 * asked first (/proc/self/pagemap); where it does not answer, everything is taken to be there.
 *
 * Threads     One check at a time.
 */
#pragma once

#include "base/common.h"

/* False without memory.  What is opened is closed again by present_end. */
bool present_begin(void);
void present_end(void);

enum present_which {
    PRESENT_ALL,
    PRESENT_WRITTEN, /* those that the process has written to, and which are its own since */
};

/* Does the kernel answer? */
bool present_is_known(void);

/* Calls `visit` for the parts of the range that have memory behind them. */
void present_walk(uintptr_t start, uintptr_t end, enum present_which which,
                  void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context);
