/* SPDX-License-Identifier: MIT
 *
 * roots.h - where a search for reachable objects begins.
 *
 * Threads     As mark.h.
 */
#pragma once

#include "base/common.h"

struct roots_wish {
    bool skip_threads, skip_globals;
    uintptr_t sp;         /* the calling thread's stack is in use from here on */
    uintptr_t alternate;  /* its stack for signal handlers, or 0 */
    size_t number_offset; /* os_thread_number_offset */
};

struct roots_found {
    uint64_t bytes;
    /* A thread that cannot be stopped was in the allocator, and may be out of it next time. */
    bool is_in_motion;
};

/* Names all roots to mark.h.  False, with a sentence in `why`, when they cannot be found. */
bool roots_name(const struct roots_wish *wish, struct roots_found *found, char *why,
                size_t why_bytes);
