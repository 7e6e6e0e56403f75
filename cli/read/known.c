/* SPDX-License-Identifier: MIT
 *
 * known.c - the figures of a recorded run, each bounded by what was counted.
 */
#include "read/known.h"

#include <math.h>

struct known_moment known_end(const struct read_run *run, const struct profile *profile) {
    uint64_t ignored;
    bool is_end = read_reach(run, &ignored) == NULL;
    return (struct known_moment){run, profile, UINT64_MAX, is_end};
}

const struct read_point *known_highest(const struct known_moment *moment) {
    const struct read_run *run = moment->run;
    const struct read_point *highest = NULL;
    for (uint32_t i = 0; i < run->point_count; i++) {
        const struct read_point *point = &run->points[i];
        if (point->t_ns <= moment->until_ns && (highest == NULL || point->live > highest->live)) {
            highest = point;
        }
    }
    return highest;
}

/* Unknown where samples were lost: sums lack them. */
static struct figure sampled(const struct known_moment *moment, const char *name,
                             const char *instead) {
    uint32_t type = profile_find_type(moment->profile, name);
    type = type == PROFILE_NONE ? profile_find_type(moment->profile, instead) : type;
    struct figure figure = type != PROFILE_NONE
                               ? figure_total(moment->profile, type)
                               : (struct figure){FIGURE_UNKNOWN, 0, 0, INFINITY, 0, false};
    if (moment->run->dropped > 0) {
        figure.kind = FIGURE_UNKNOWN;
        figure.high = INFINITY;
    }
    return figure;
}

struct figure known_peak(const struct known_moment *moment) {
    const struct read_point *highest = known_highest(moment);
    struct figure peak = sampled(moment, "peak_space", "inuse_space");
    return figure_bound(peak, highest != NULL ? (double)highest->live : 0, INFINITY);
}

/* The last point was counted when the program ended. */
struct figure known_live(const struct known_moment *moment) {
    const struct read_run *run = moment->run;
    if (moment->is_end && run->point_count > 0) {
        return figure_exact((double)run->points[run->point_count - 1].live);
    }
    return sampled(moment, "inuse_space", "inuse_space");
}

struct figure known_live_blocks(const struct known_moment *moment) {
    if (moment->is_end && moment->run->has_live_blocks) {
        return figure_exact((double)moment->run->live_blocks);
    }
    return sampled(moment, "inuse_objects", "inuse_objects");
}

struct figure known_allocated(const struct known_moment *moment) {
    return figure_bound(sampled(moment, "alloc_space", "alloc_space"), known_peak(moment).low,
                        INFINITY);
}

struct figure known_allocations(const struct known_moment *moment) {
    return figure_bound(sampled(moment, "alloc_objects", "alloc_objects"),
                        known_live_blocks(moment).low, INFINITY);
}
