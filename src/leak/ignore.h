/* SPDX-License-Identifier: MIT
 *
 * ignore.h - what the program has said about leaks: objects that are none, and regions that are roots.
 *
 * The functions that change it are in leak.h.  These read it, in a copy of the process or while all other threads are
 * stopped, and take no lock.
 */
#pragma once

#include "base/common.h"

typedef void ignore_visit(uintptr_t start, uintptr_t end, void *context);

/* Addresses in objects; those with a mark of their own (track.h) are not among them.  An end is the start. */
void ignore_walk_objects(ignore_visit *visit, void *context);
void ignore_walk_roots(ignore_visit *visit, void *context);

/* Where that is kept, which is no root. */
void ignore_walk_memory(ignore_visit *visit, void *context);
