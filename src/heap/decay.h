/* SPDX-License-Identifier: MIT
 *
 * decay.h - how many units of free memory may stay at a time t; arithmetic only.
 *
 * Time goes in DECAY_STEPS steps over the decay time.  Units that join at the same step leave
 * along a smooth curve, slowly at first and at last, and are all gone after DECAY_STEPS steps:
 *
 *      stays    1 |*****.
 *                 |      ***                   1 - (6 t^5 - 15 t^4 + 10 t^3)
 *                 |         **
 *                 |           ***
 *               0 |______________*****
 *                 0      1/2        1          t = age / decay time
 *
 * Only memory that nobody needs grows old.  The fewest units kept during a step are those that were
 * not needed in it; what was taken and came back counts as new, and the youngest count as taken
 * first.  So a program that frees and takes the same memory again and again keeps it, and what lies
 * idle beside it goes.
 *
 * The clock may stand still, jump or go back: a jump ages everything by as much, at most to the end
 * of the curve; a step back starts the running step again.
 *
 * Threads     None of its own: the caller locks.
 * Invariant   decay_limit() <= units that were kept at the last decay_advance().
 */
#pragma once

#include "base/common.h"

enum { DECAY_STEPS = 50 };

struct decay {
    uint64_t step_began_ms;
    size_t fewest;              /* units kept at one moment of the running step */
    size_t joined[DECAY_STEPS]; /* units by the age, in steps, at which they are still counted */
};

/* Units were taken for use, and `kept` are left. */
static inline void decay_note_taken(struct decay *decay, size_t kept) {
    decay->fewest = kept < decay->fewest ? kept : decay->fewest;
}

/* The oldest units left otherwise than by the curve, and `kept` remain. */
void decay_note_purged(struct decay *decay, size_t kept);

/* The time is `now_ms`, and `kept` units are kept of all that were freed until now.  True when a
 * step has ended since the last call: the limit has changed. */
bool decay_advance(struct decay *decay, uint64_t now_ms, uint64_t decay_ms, size_t kept);

/* Units that may stay until the next step. */
size_t decay_limit(const struct decay *decay);

/* Milliseconds from `now_ms` to the end of the first step after which `kept` units would be too
 * many; UINT64_MAX when none are kept. */
uint64_t decay_wait_ms(const struct decay *decay, uint64_t now_ms, uint64_t decay_ms, size_t kept);
