/* SPDX-License-Identifier: MIT
 *
 * growth.h - places whose memory keeps growing although it can be reached: the leak that no search finds.
 */
#pragma once

#include "read/read.h"

struct growth {
    char place[256]; /* "lru_add (cache.c:88)", safe */
    double per_hour; /* bytes */
    int64_t bytes;   /* in use at the end */
};
enum { GROWTH_MOST = 5 };

/* One moment: a profile with names, whose allocators' own frames are hidden, and its time. */
struct growth_moment {
    uint64_t t_ns;
    struct profile *profile; /* of select_apply */
};

/* The fastest first; how many there are. */
unsigned growth_find(const struct growth_moment *moments, unsigned count,
                     struct growth found[GROWTH_MOST]);

/* The same over the snapshots of a run. */
unsigned growth_of_run(struct read_run *run, struct growth found[GROWTH_MOST]);
