/* SPDX-License-Identifier: MIT
 *
 * mapping.h - what the program maps itself, in the profile: the options prof_mmap and prof_mmap_log.
 *
 * Threads     Call inside (api/life.h), with no lock held.
 */
#pragma once

#include "base/common.h"
#include "base/os.h"

enum mapping_mode {
    MAPPING_RECORD = 1, /* while the profiler is active; ends are noticed always */
    MAPPING_LOG = 2,
};

/* What is to be done; 0 before the options are known. */
extern _Atomic uint32_t mapping_mode HIDDEN;
void mapping_init(void);

/* The program has mapped this, in place of whatever was there. */
void mapping_added(uintptr_t start, size_t bytes);

/* Calls of the kernel and what follows from them; the answers are those of os.h. */
intptr_t mapping_unmap(void *start, size_t bytes);
intptr_t mapping_remap(const struct os_remap_call *call);
void *mapping_break(intptr_t increment);

/* How many ranges are known, and the bytes in them. */
struct mapping_sum {
    uint32_t ranges;
    size_t bytes;
};
struct mapping_sum mapping_read(void);
