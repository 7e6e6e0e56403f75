/* SPDX-License-Identifier: MIT
 *
 * tell.h - how the profiler notifies others, by the marks and hooks of prof.h.
 *
 * Threads     Everything may be read and written by any thread at any time.
 */
#pragma once

#include "base/attention.h"
#include "prof/prof.h"

/* The profiler has counted: estimates of bytes ever allocated and alive.  Any lock may be held. */
static inline void tell_totals(uint64_t allocated, uint64_t live) {
    uint64_t freed = allocated > live ? allocated - live : 0;
    if (UNLIKELY(allocated >= atomic_load_explicit(&tell_marks.allocated, memory_order_relaxed) ||
                 freed >= atomic_load_explicit(&tell_marks.freed, memory_order_relaxed) ||
                 live >= atomic_load_explicit(&tell_marks.live, memory_order_relaxed) ||
                 live < atomic_load_explicit(&tell_marks.live_low, memory_order_relaxed))) {
        attention_raise(ATTENTION_PROFILE);
    }
}

/* A profile was written to this file.  Call inside; the program's function is called outside, so it
 * may allocate. */
void tell_dumped(const char *path);
