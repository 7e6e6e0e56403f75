/* SPDX-License-Identifier: MIT
 *
 * gperftools_extension.h - the heap in gperftools' words, for its functions and its text.
 */
#pragma once

#include "base/common.h"

/* In bytes unless said otherwise.  allocated + page_free + central_free + transfer_free +
 * thread_free + unmapped == heap_size. */
struct extension_figures {
    size_t allocated, page_free, central_free, transfer_free, thread_free, unmapped, heap_size;
    size_t metadata;
    size_t committed;    /* of the heap: what is not unmapped */
    size_t physical;     /* the same with metadata */
    size_t slack;        /* page_free + unmapped */
    size_t thread_limit; /* as the variable TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES would say it */
    size_t threads;      /* number */
    size_t spans;        /* number of slabs and large objects */
    size_t purge_times, purge_calls, purged_bytes;
};

/* False, with zeros, in a call that interrupts the allocator. */
bool extension_read(struct extension_figures *figures);
