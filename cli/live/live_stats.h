/* SPDX-License-Identifier: MIT
 *
 * live_stats.h - one look at a running process, and how it is written down.
 *
 * `tally stats` prints looks; `tally top` shows the same lines on a screen.
 */
#pragma once

#include "live/bridge.h"
#include "live/target.h"

struct look_at_process {
    const struct target *target;
    struct target_page page;
    struct bridge bridge;
    uint64_t now_ns;       /* CLOCK_MONOTONIC, as the page has it */
    uint64_t cgroup_limit; /* 0: none */
};

/* False after a sentence. */
bool live_stats_look(const struct target *target, struct look_at_process *look);

/* Allocations and frees per second since `before`, or since the start when it is NULL. */
struct live_rates {
    bool is_known; /* false: the page is that of `before` */
    double malloc_per_s, free_per_s, bytes_per_s;
};
struct live_rates live_stats_rates(const struct look_at_process *before,
                                   const struct look_at_process *look);

/* The bridge for people: lines without escape sequences. */
void live_stats_print_text(FILE *file, const struct look_at_process *look,
                           const struct look_at_process *before);
void live_stats_print_json(FILE *file, const struct look_at_process *look);
void live_stats_print_prometheus(FILE *file, const struct look_at_process *look);

/* One line of a table, and its heading. */
void live_stats_print_heading(FILE *file);
void live_stats_print_row(FILE *file, const struct look_at_process *look,
                          const struct look_at_process *before);
