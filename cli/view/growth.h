/* SPDX-License-Identifier: MIT
 *
 * growth.h - places whose memory keeps growing while reachable: the leaks that no search finds.
 */
#pragma once

#include "read/read.h"

struct growth {
    char place[256]; /* "lru_add (cache.c:88)", safe */
    double per_hour; /* bytes */
    int64_t bytes;   /* in use at the end */
};
enum { GROWTH_MOST = 5 };

/* One moment: its time, and a profile with names and without allocators' own frames. */
struct growth_moment {
    uint64_t t_ns;
    struct profile *profile; /* of select_apply */
};

/* The fastest first; returns their number. */
unsigned growth_find(const struct growth_moment *moments, unsigned count,
                     struct growth found[GROWTH_MOST]);

/* The same over the snapshots of a run. */
unsigned growth_of_run(struct read_run *run, struct growth found[GROWTH_MOST]);
