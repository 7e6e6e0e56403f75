/* SPDX-License-Identifier: MIT
 *
 * ctl_stats.c - stats.*: one figure out of the copy that epoch renews.
 *
 * A family's member knows where its figure lies in the struct, so one function serves each struct.
 */
#include <errno.h>

#include "control/ctl.h"
#include "control/snapshot.h"
#include "heap/counts.h"

/* The figure at the member's place in the struct at `base`; ENOENT without a struct. */
static int give_figure(struct ctl_call *call, const void *base) {
    if (base == NULL) {
        return ENOENT;
    }
    snapshot_copy(&call->value, (const char *)base + call->member.offset,
                  ctl_type_size(call->member.type));
    return 0;
}

static int give_size(struct ctl_call *call, size_t value) {
    call->value.size = value;
    return 0;
}

int stats_zero(struct ctl_call *call) {
    call->value.uint64 = 0;
    return 0;
}

int stats_zero_reallocs(struct ctl_call *call) {
    return give_size(call, heap_zero_reallocs);
}

int stats_background_num_threads(struct ctl_call *call) {
    return give_size(call, snapshot_background().num_threads);
}

int stats_background_num_runs(struct ctl_call *call) {
    call->value.uint64 = snapshot_background().num_runs;
    return 0;
}

int stats_background_run_interval(struct ctl_call *call) {
    call->value.uint64 = snapshot_background().run_interval;
    return 0;
}

int stats_mutexes_reset(struct ctl_call *call) {
    (void)call;
    snapshot_reset_locks();
    return 0;
}

int stats_lock(struct ctl_call *call) {
    return give_figure(call, snapshot_lock((unsigned)call->word[0]));
}

int stats_total(struct ctl_call *call) {
    return give_figure(call, snapshot_totals());
}

int stats_arena_figure(struct ctl_call *call) {
    return give_figure(call, snapshot_arena(call->word[0]));
}

int stats_small(struct ctl_call *call) {
    const struct arena_counts *arena = snapshot_arena(call->word[0]);
    return give_figure(call, arena != NULL ? &arena->small : NULL);
}

int stats_large(struct ctl_call *call) {
    const struct arena_counts *arena = snapshot_arena(call->word[0]);
    return give_figure(call, arena != NULL ? &arena->large : NULL);
}

int stats_bin(struct ctl_call *call) {
    const struct arena_counts *arena = snapshot_arena(call->word[0]);
    return give_figure(call, arena != NULL ? &arena->bins[call->word[1]] : NULL);
}

int stats_bin_lock(struct ctl_call *call) {
    const struct arena_counts *arena = snapshot_arena(call->word[0]);
    return give_figure(call, arena != NULL ? &arena->bins[call->word[1]].mutex : NULL);
}

int stats_lextent(struct ctl_call *call) {
    const struct arena_counts *arena = snapshot_arena(call->word[0]);
    return give_figure(call, arena != NULL ? &arena->lextents[call->word[1]] : NULL);
}

int stats_extent(struct ctl_call *call) {
    const struct arena_counts *arena = snapshot_arena(call->word[0]);
    return give_figure(call, arena != NULL ? &arena->extents[call->word[1]] : NULL);
}

int stats_arena_lock(struct ctl_call *call) {
    const struct arena_counts *arena = snapshot_arena(call->word[0]);
    return give_figure(call, arena != NULL ? &arena->mutexes[call->word[1]] : NULL);
}

int approximate_active(struct ctl_call *call) {
    return give_size(call, pages_totals().used);
}
