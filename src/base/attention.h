/* SPDX-License-Identifier: MIT
 *
 * attention.h - one word that every slow call looks at: is there anything out of the ordinary?
 *
 *      0               not started, or this process is the child of a fork that nobody noticed yet
 *      CALM            nothing to do; the usual case costs one load and one comparison
 *      CALM | bits     somebody left work for the end of a slow call (life.c does it)
 *
 * The word lies in a page that the kernel empties in a forked child, together with the generation
 * that all locks carry (lock.h).  So every kind of fork is seen, also those that run no handlers
 * (_Fork, raw clone), at the first lock that is taken or the first call that looks; and vfork,
 * which shares memory with its parent, is rightly not seen as one.
 *
 * Threads     All functions may be called from any thread and from signal handlers.
 */
#pragma once

#include <stdatomic.h>

#include "base/common.h"

enum attention {
    ATTENTION_CALM = 1,
    ATTENTION_FORKED = 2,      /* this process is a child, and its first thread does not know yet */
    ATTENTION_ORPHANS = 4,     /* caches of threads that vanished in a fork are to be recovered */
    ATTENTION_DEFERRED = 8,    /* a signal handler left objects to free */
    ATTENTION_BACKGROUND = 16, /* there is work for the background thread */
    ATTENTION_SOFT_LIMIT = 32, /* the heap has grown over its soft limit */
    ATTENTION_GROWN = 64,      /* heap or threads have become more: is a background thread due? */
    ATTENTION_INTERVAL = 128,  /* statistics are to be printed now and then; stays set */
    ATTENTION_PROFILE = 256,   /* a profile is to be written */
    ATTENTION_CLOCK = 512,     /* one is due at some time, and no thread of ours waits for it */
    ATTENTION_AGENTS = 1024,   /* somebody listens to our probes now, or does not any more */
    ATTENTION_CPU = 4096,      /* a child goes on with a CPU profile; at the end of an allocation */
    ATTENTION_STATS = 2048,    /* the page of counters may be old; stays set while calls are rare */
};

#if defined(__x86_64__)
enum { LARGEST_PAGE = 4 << 10 };
#else
enum { LARGEST_PAGE = 64 << 10 };
#endif

/* One page, so that nothing else is wiped. */
struct attention_page {
    _Atomic uint32_t word;
    _Atomic uint32_t generation; /* of locks, shifted; 0 in a child that has not looked yet */
    /* When ATTENTION_STATS is to be raised, by os_now_ms(), and by how many bytes what is in use may
     * move before it is raised at once; seldom written, unlike what follows. */
    _Alignas(CACHE_LINE) _Atomic uint64_t stats_due_ms;
    _Atomic uint64_t stats_step;
    _Atomic uint64_t stats_used; /* pages in use when the page was renewed, in bytes */
    /* For a user that must find zeros in a child; it does if attention_init returned true. */
    _Alignas(CACHE_LINE) char rest[LARGEST_PAGE - 2 * CACHE_LINE];
};
extern struct attention_page attention_page HIDDEN __attribute__((aligned(LARGEST_PAGE)));

static inline uint32_t attention_get(void) {
    /* Acquire: whoever sees the word of a started process sees its heap. */
    return atomic_load_explicit(&attention_page.word, memory_order_acquire);
}

/* Before the first lock is taken; harmless when repeated. */
void attention_begin(void);

/* Once, at start.  False when forks cannot be seen this way: then attention_forget() must be
 * called in every child. */
bool attention_init(void);
void attention_forget(void);

/* The heap is ready: the process is calm from now on. */
void attention_start(void);

/* Where the word is 0 in a started process: locks of threads that are gone are void from now on, and
 * ATTENTION_FORKED is set.  Returns false when the process has not started. */
bool attention_notice_fork(void);

void attention_raise(enum attention bit);

/* The caller has read the clock: is it time to renew the page of counters? */
static inline void attention_note_time(uint64_t now_ms) {
    if (UNLIKELY(now_ms >=
                 atomic_load_explicit(&attention_page.stats_due_ms, memory_order_relaxed))) {
        attention_raise(ATTENTION_STATS);
    }
}

/* So many bytes more, or fewer where it is negative, are in use than the caller has last told: may they
 * remain untold?  The page of counters must be right when this is the program's last call. */
static inline bool attention_may_move(int64_t bytes) {
    uint64_t moved = bytes < 0 ? -(uint64_t)bytes : (uint64_t)bytes;
    if (LIKELY(moved < atomic_load_explicit(&attention_page.stats_step, memory_order_relaxed))) {
        return true;
    }
    atomic_store_explicit(&attention_page.stats_due_ms, 0, memory_order_relaxed);
    attention_raise(ATTENTION_STATS);
    return false;
}

/* Clears the bits given and returns those of them that were set. */
uint32_t attention_take(uint32_t bits);
