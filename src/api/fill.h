/* SPDX-License-Identifier: MIT
 *
 * fill.h - memory filled when it is allocated or freed, for the options junk and zero.
 *
 * Both options park all threads (opt_sources.c), so only slow paths come here, and what is usual
 * costs them one comparison.  The whole usable size is filled.  Calls of signal handlers that
 * interrupt the allocator are served apart and not filled.
 */
#pragma once

#include "opt/opt.h"
#include "heap/heap.h"

void fill_new_bytes(void *object, size_t from, bool *zeroed);
void fill_freed_bytes(const struct heap_object *object);

/* An object that was allocated, or of which the bytes up to `from` were in use before; it may be
 * NULL.  `*zeroed`: does it read as zeros? */
static inline void fill_new(void *object, size_t from, bool *zeroed) {
    if (UNLIKELY((opt.junk | opt.zero) != 0)) {
        fill_new_bytes(object, from, zeroed);
    }
}

/* An object that is about to be freed, if it turned out to be one. */
static inline void fill_freed(const struct heap_object *object) {
    if (UNLIKELY(opt.junk != JUNK_FALSE)) {
        fill_freed_bytes(object);
    }
}
