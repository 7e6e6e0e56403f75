/* SPDX-License-Identifier: MIT
 *
 * life.h - start, thread exit, fork and process exit.
 */
#pragma once

#include <stdatomic.h>

#include "base/common.h"

/* True once the heap may be used. */
extern _Atomic bool life_is_started HIDDEN;

/* Starts the heap; of several callers one does the work.  Ends the process without memory. */
void life_start(void);

/* Any exported function may be the first call of the process. */
static inline void life_prepare(void) {
    if (UNLIKELY(!atomic_load_explicit(&life_is_started, memory_order_acquire))) {
        life_start();
    }
}

/* Has libc tell us when this thread ends; false when that is not possible yet. */
bool life_register_thread(void);
