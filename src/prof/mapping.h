/* SPDX-License-Identifier: MIT
 *
 * mapping.h - what the program maps itself: what prof.h leaves out, for prof.c and tests.
 */
#pragma once

#include "base/common.h"

void mapping_init(void);

/* How many ranges are known, and the bytes in them. */
struct mapping_sum {
    uint32_t ranges;
    size_t bytes;
};
struct mapping_sum mapping_read(void);
