/* SPDX-License-Identifier: MIT
 *
 * tell.h - what the profiler tells others: the layer above that a mark is reached, the program what it has
 * hung into the profiler.
 *
 * A mark is a number of bytes.  Whenever the profiler has counted an event it compares; when a mark is
 * reached it raises ATTENTION_PROFILE, and whoever ends a slow call next attends to it, with nothing
 * held.  So nobody ever waits inside the profiler, and nothing is lost.
 *
 * Threads     Everything may be read and written by any thread at any time.
 */
#pragma once

#include <stdatomic.h>

#include "base/attention.h"

struct tell_marks {
    _Atomic uint64_t allocated; /* so many bytes were ever allocated; UINT64_MAX: nobody waits */
    _Atomic uint64_t freed;
    _Atomic uint64_t live;     /* so many live, or more */
    _Atomic uint64_t live_low; /* fewer live than that; 0: nobody waits */
};
extern struct tell_marks tell_marks HIDDEN;

/* The profiler has counted: estimates of bytes ever allocated and of those alive.  May be called with any
 * lock held. */
static inline void tell_totals(uint64_t allocated, uint64_t live) {
    uint64_t freed = allocated > live ? allocated - live : 0;
    if (UNLIKELY(allocated >= atomic_load_explicit(&tell_marks.allocated, memory_order_relaxed) ||
                 freed >= atomic_load_explicit(&tell_marks.freed, memory_order_relaxed) ||
                 live >= atomic_load_explicit(&tell_marks.live, memory_order_relaxed) ||
                 live < atomic_load_explicit(&tell_marks.live_low, memory_order_relaxed))) {
        attention_raise(ATTENTION_PROFILE);
    }
}

/* Functions of the program, experimental.hooks.*; NULL: none.  They are called outside, so they may
 * allocate; what they allocate is not sampled. */
typedef void tell_backtrace(void **addresses, unsigned *count, unsigned most);
typedef void tell_sample(const void *object, size_t size, void **addresses, unsigned count,
                         size_t usable);
typedef void tell_sample_free(const void *object, size_t usable);
typedef void tell_path(const char *path);
struct tell_hooks {
    void *_Atomic backtrace;   /* tell_backtrace, instead of our unwinder */
    void *_Atomic sample;      /* tell_sample, when an object was sampled */
    void *_Atomic sample_free; /* tell_sample_free */
    void *_Atomic dumped;      /* tell_path, when a profile was written */
};
extern struct tell_hooks tell_hooks HIDDEN;

/* A profile was written to this file.  The caller is inside; the program's function is called outside, so
 * it may allocate. */
void tell_dumped(const char *path);
