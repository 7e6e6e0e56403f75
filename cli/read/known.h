/* SPDX-License-Identifier: MIT
 *
 * known.h - the figures of a recorded run: what the library counted bounds what it sampled.
 *
 * The points of a run's series hold what the heap had out, counted and not sampled.  The profiler
 * knows who had it, and what happened between two points, as an estimate.
 */
#pragma once

#include "profile/figure.h"
#include "read/read.h"

/* A moment of a run, and its profile. */
struct known_moment {
    const struct read_run *run;
    const struct profile *profile;
    uint64_t until_ns; /* counts that came later are not looked at */
    bool is_end;       /* of the program: nothing came later */
};

/* The last moment of a run. */
struct known_moment known_end(const struct read_run *run, const struct profile *profile);

/* Bytes that were held when most was held, and those and the blocks that are held at the moment. */
struct figure known_peak(const struct known_moment *moment);
struct figure known_live(const struct known_moment *moment);
struct figure known_live_blocks(const struct known_moment *moment);
/* Bytes and blocks that were ever allocated. */
struct figure known_allocated(const struct known_moment *moment);
struct figure known_allocations(const struct known_moment *moment);

/* The highest point of the series up to the moment; NULL: there is none. */
const struct read_point *known_highest(const struct known_moment *moment);
