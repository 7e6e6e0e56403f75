/* SPDX-License-Identifier: MIT
 *
 * levels.h - a walk of a thread's own stack, with what is kept of the last one.
 *
 * Threads     A thread's levels are its own.
 */
#pragma once

#include "stack/walk.h"

/* Walks from the function with this frame; the stack is at `stack` after its return.  Afterwards
 * the levels are those of the walk (WALK_ENDED), or nothing is kept: because there are more than
 * `most`, and `cut` has the addresses of the inner `most`, innermost first (WALK_FULL); or because
 * a rule is not known, or is a rare one (WALK_BROKEN). */
struct walk_result levels_renew(struct unwind_thread *thread, uintptr_t frame, uintptr_t stack,
                                uintptr_t *cut, unsigned most);
