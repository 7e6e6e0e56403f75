/* SPDX-License-Identifier: MIT
 *
 * view_lifetime.c - how long what was freed lived, for each row: the step that half of it did not outlive.
 */
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "contract/lifetimes.h"
#include "view/view.h"

static const struct {
    int64_t bound_ms;
    const char *text;
} steps[LIFETIME_STEPS] = {
#define STEP(bound, text) {bound, text},
    LIFETIMES(STEP)
#undef STEP
};

/* Objects that were freed after each step. */
struct lives {
    int64_t objects[LIFETIME_STEPS];
};

/* From 1 on; 0: the sample has no such label. */
static unsigned step_of(const struct profile *profile, uint32_t sample) {
    const struct profile_label *label =
        profile_number_label(profile, sample, LIFETIME_LABEL, LIFETIME_UNIT);
    for (unsigned i = 0; label != NULL && i < LIFETIME_STEPS; i++) {
        if (label->number <= steps[i].bound_ms) {
            return i + 1;
        }
    }
    return 0;
}

static uint8_t median_of(const struct lives *lives) {
    int64_t all = 0, so_far = 0;
    for (unsigned i = 0; i < LIFETIME_STEPS; i++) {
        all = profile_sum(all, lives->objects[i]);
    }
    for (unsigned i = 0; i < LIFETIME_STEPS && all > 0; i++) {
        so_far = profile_sum(so_far, lives->objects[i]);
        if (so_far >= all - so_far) {
            return (uint8_t)(i + 1);
        }
    }
    return 0;
}

/* A comparison has no lives: what was freed in between is told by neither side. */
uint8_t *view_lifetime_find(const struct view *view) {
    const struct profile *profile = view->profile;
    uint32_t objects = profile_find_type(profile, "alloc_objects");
    if (view->base != PROFILE_NONE || objects == PROFILE_NONE) {
        return NULL;
    }
    bool is_known = false;
    struct lives *lives = must_zeroed(((size_t)view->node_count + 1) * sizeof *lives);
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        unsigned step = step_of(profile, i);
        int64_t value = profile_value(profile, i, objects);
        if (step != 0 && value > 0 && profile->samples[i].depth > 0) {
            uint32_t leaf = view->first_slot[profile->stacks[profile->samples[i].stack]];
            int64_t *sum = &lives[view->slot_node[leaf]].objects[step - 1];
            *sum = profile_sum(*sum, value);
            is_known = true;
        }
    }
    uint8_t *medians = is_known ? must_zeroed((size_t)view->node_count + 1) : NULL;
    for (uint32_t node = 0; node < view->node_count && is_known; node++) {
        medians[node] = median_of(&lives[node]);
    }
    free(lives);
    return medians;
}

const char *view_lifetime_text(uint8_t step) {
    return step != 0 ? steps[step - 1].text : "";
}
