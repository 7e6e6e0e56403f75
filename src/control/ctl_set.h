/* SPDX-License-Identifier: MIT
 *
 * ctl_set.h - names of mallctl that another process sets, by text.
 *
 * Which these are is derived from the rows of ctl.def: all that can be written, but for what is refused
 * there with a reason, and for values that are addresses.
 *
 * Threads     One at a time.
 */
#pragma once

#include "base/common.h"

enum { CTL_SET_OLD_BYTES = 96 };

/* Why the name may not be set from outside, in one sentence; NULL when it may. */
const char *ctl_set_refusal(const char *name);
struct ctl_row;
const char *ctl_set_refusal_of(const struct ctl_row *row);

/*
 * Sets a name that is not refused, and leaves what it was in `old`, empty where that is not told.  In
 * "arena.4096." all arenas are meant, and the old value is that of the first.  NULL, or a sentence about a
 * text that cannot be the value; `*error` is what mallctl says.
 */
const char *ctl_set(const char *name, const char *text, char old[CTL_SET_OLD_BYTES], int *error);
