/* SPDX-License-Identifier: MIT
 *
 * stop.h - holds every other thread of the process still, outside of the allocator.
 *
 * Threads     One caller at a time, with no lock of the library's held and all signals blocked.
 */
#pragma once

#include <stdatomic.h>

#include "base/common.h"

enum stop_state {
    STOP_NEW,
    STOP_READY,      /* it exists and takes signals */
    STOP_ASKED,      /* the signal is under way */
    STOP_BUSY,       /* it was in the allocator: ask again */
    STOP_ANSWERING,  /* it tells where it is */
    STOP_HELD,       /* it waits in our handler */
    STOP_UNANSWERED, /* it blocks signals, or sleeps where none reach it: it goes on */
    STOP_GONE,
    STOP_OWN, /* one of the library's (base/own.h), kept from working */
};

struct stop_thread {
    /* Ticket | enum stop_state, in 8 bits: a late handler changes neither. */
    _Atomic uint64_t word;
    uint32_t thread;
    uint32_t tries;
    uint64_t asked_ns; /* or first seen */
    /* Of those that wait: where their stack is in use from, where their registers are, and what libc knows
     * them by; the first 0 where it is not known. */
    uintptr_t sp, frame, frame_end, pointer;
};

static inline enum stop_state stop_state(const struct stop_thread *thread) {
    return (enum stop_state)(atomic_load(&thread->word) & 255);
}

/* Stops them.  False, with all of them running, and a sentence in `why`. */
bool stop_begin(uint64_t deadline_ns, char *why, size_t why_bytes);

/* Why it was false: some were too slow to answer this time, and may be quicker the next. */
bool stop_was_late(void);
void stop_end(void);

/* All but the caller, those that are gone among them. */
unsigned stop_count(void);
const struct stop_thread *stop_at(unsigned index);

/* Where that is kept, which is no root. */
void stop_walk_memory(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context);
