/* SPDX-License-Identifier: MIT
 *
 * frame_table.h - the stacks of a profile as numbers of frames, inlined calls spelt out.
 *
 * A frame is what people call a function: equal names of one file are one frame, however many addresses
 * the profile has for it.  Two stacks that read the same are the same numbers.
 *
 *      sample i     ids[starts[i]] ... ids[starts[i + 1] - 1]      leaf first
 *                   lines[...]                                     where in the file, for each
 */
#pragma once

#include "select/select.h"

struct frame {
    const char *name;   /* as select.by wants it, never empty */
    const char *file;   /* "" where unknown */
    const char *module; /* the path of the mapping, "" where unknown */
    uint32_t line;      /* the first one seen; 0 where unknown */
};

struct frame_table {
    struct frame *frames;
    uint32_t frame_count;
    uint32_t *ids, *lines;
    size_t *starts; /* one more than there are samples */
    struct frame_memory *memory;
};

/* NULL after a sentence where the stacks unfold into too many frames. */
struct frame_table *frame_table_new(const struct profile *profile, enum select_by by);
void frame_table_free(struct frame_table *table);
