/* SPDX-License-Identifier: MIT
 *
 * life.h - start, thread exit, fork and process exit.
 */
#pragma once

#include "base/common.h"

/* True once the heap may be used. */
extern _Atomic bool life_is_started HIDDEN;

/* Starts the heap; of several callers one does the work.  Ends the process without memory. */
void life_start(void);

/* Has libc tell us when this thread ends; false when that is not possible yet. */
bool life_register_thread(void);
