/* SPDX-License-Identifier: MIT
 *
 * ctl_set.h - names of mallctl that another process sets, by text.
 *
 * The rows of ctl.def say which names these are: all that can be written, except those refused
 * there with a reason and those whose values are addresses.
 *
 * Threads     Call from one thread at a time.
 */
#pragma once

#include "base/common.h"

enum { CTL_SET_OLD_BYTES = 96 };

/* Why the name may not be set from outside, in one sentence; NULL when it may. */
const char *ctl_set_refusal(const char *name);
struct ctl_row;
const char *ctl_set_refusal_of(const struct ctl_row *row);

/*
 * Sets a name that is not refused, and leaves the old value in `old`, empty where it is not known.
 * "arena.4096." means all arenas; the old value is then that of the first.  Returns NULL, or a
 * sentence saying why the text cannot be the value; `*error` is the result of mallctl.
 */
const char *ctl_set(const char *name, const char *text, char old[CTL_SET_OLD_BYTES], int *error);
