/* SPDX-License-Identifier: MIT
 *
 * mark.h - which live objects can be reached; the others are lost.
 *
 * Threads     In a copy of the process, or while all other threads are stopped: nothing here takes a lock, and the heap
 *             must not change meanwhile.
 */
#pragma once

#include "base/common.h"

/* What is known about an object.  The order is that of discovery: a state never changes to an earlier one, but
 * MARK_INSIDE may become any. */
enum mark_state {
    MARK_NONE,
    MARK_INSIDE,    /* a root leads to its inside, so far */
    MARK_REACHABLE, /* roots lead to it */
    MARK_IGNORED,   /* only ignored objects do, or it is one */
    MARK_POSSIBLE,  /* roots lead to it by way of an inside */
    MARK_SEEN,      /* lost, and visited once */
    MARK_DEFINITE,  /* lost, and no other that is lost leads to it */
    MARK_INDIRECT,
};

struct mark_options {
    size_t max_offset; /* 0: any */
    size_t step;
    uint64_t deadline_ns;
};

/* False without memory. */
bool mark_begin(const struct mark_options *options);

/* Everything that these addresses hold is a root.  They can be read. */
void mark_root(uintptr_t start, uintptr_t end);

/* The object that has this address, if there is one, is a root, or ignored. */
void mark_object(uintptr_t address);
void mark_ignored(uintptr_t address);

/* Follows everything found so far, in the three orders of discovery; then tells the lost ones apart, unless all
 * are to be definite. */
void mark_follow(void);
void mark_sort_lost(bool all_definite);

/* Calls `visit` for every live object. */
struct mark_live {
    uintptr_t at;
    size_t usable;
    uint32_t id; /* of track.h, without TRACK_IGNORED; 0: none */
    enum mark_state state;
};
void mark_walk(void (*visit)(const struct mark_live *live, void *context), void *context);

/* Calls `visit` for every indirect object, with a definite one that leads to it; once. */
void mark_walk_below(void (*visit)(const struct mark_live *live, const struct mark_live *definite,
                                   void *context),
                     void *context);

/* Has the deadline passed?  Then the result is not complete.  The second looks at the clock. */
bool mark_is_late(void);
bool mark_is_over(void);
