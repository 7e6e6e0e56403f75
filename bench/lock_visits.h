/* SPDX-License-Identifier: MIT
 *
 * Which locks are taken, how often, and for how long.  scale.py builds the library with
 * `-include lock_visits.h`: all files then call the functions below by the names of base/lock.h.
 * The table itself is this file included in an empty one, with LOCK_VISITS_TABLE, and linked.
 *
 * A lock's entry is written by whoever holds the lock, so counting needs no lock of its own.  When the
 * process ends, a line per lock goes to the file that LOCK_VISITS names: rank, visits, mean ns, and how
 * many threads share it (1 / sum of the squares of their parts: n equal visitors count n).
 */

#pragma once

#include "base/lock.h"

enum { VISITS_LOCKS = 1 << 14, VISITS_LONGEST = 1 << 20, VISITS_THREADS = 32 };

struct lock_visits {
    _Atomic(const struct lock *) lock;
    uint64_t visits, timed, ticks, since;
    uint64_t by[VISITS_THREADS]; /* visits of each thread, by its number */
};

extern struct lock_visits visits_table[VISITS_LOCKS] __attribute__((visibility("hidden")));
extern _Thread_local unsigned visits_thread __attribute__((visibility("hidden"))); /* 0: none yet */
extern _Atomic unsigned visits_threads __attribute__((visibility("hidden")));

static inline uint64_t visits_ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    uint64_t now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#endif
}

/* The table is never full: there are some hundred locks. */
static inline struct lock_visits *visits_find(const struct lock *lock) {
    for (size_t at = (uintptr_t)lock * 0x9E3779B97F4A7C15u >> 40;; at++) {
        struct lock_visits *entry = &visits_table[at % VISITS_LOCKS];
        const struct lock *found = NULL;
        if (atomic_load_explicit(&entry->lock, memory_order_relaxed) == lock ||
            atomic_compare_exchange_strong(&entry->lock, &found, lock) || found == lock) {
            return entry;
        }
    }
}

static inline enum lock_found visits_acquire(struct lock *lock) {
    enum lock_found found = lock_acquire(lock);
    visits_find(lock)->since = visits_ticks();
    return found;
}

/* What lock_try took has no beginning here.  A holder that lost its CPU says nothing about the
 * lock. */
static inline void visits_release(struct lock *lock) {
    struct lock_visits *entry = visits_find(lock);
    uint64_t ticks = visits_ticks() - entry->since;
    if (visits_thread == 0) {
        visits_thread = atomic_fetch_add(&visits_threads, 1) + 1;
    }
    entry->by[visits_thread % VISITS_THREADS]++;
    entry->visits++;
    if (entry->since != 0 && ticks < VISITS_LONGEST) {
        entry->timed++;
        entry->ticks += ticks;
    }
    entry->since = 0;
    lock_release(lock);
}

#define lock_acquire visits_acquire
#define lock_release visits_release

#ifdef LOCK_VISITS_TABLE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct lock_visits visits_table[VISITS_LOCKS];
_Thread_local unsigned visits_thread;
_Atomic unsigned visits_threads;
static uint64_t start_ticks, start_ns;

static uint64_t clock_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

__attribute__((constructor)) static void visits_begin(void) {
    start_ticks = visits_ticks();
    start_ns = clock_now();
}

__attribute__((destructor)) static void visits_end(void) {
    const char *path = getenv("LOCK_VISITS");
    FILE *file = path == NULL ? NULL : fopen(path, "we");
    double ns_per_tick = (double)(clock_now() - start_ns) / (double)(visits_ticks() - start_ticks);
    for (size_t i = 0; i < VISITS_LOCKS && file != NULL; i++) {
        const struct lock_visits *entry = &visits_table[i];
        const struct lock *lock = atomic_load_explicit(&entry->lock, memory_order_relaxed);
        if (lock != NULL && entry->visits != 0) {
            double mean = entry->timed == 0 ? 0 : (double)entry->ticks / (double)entry->timed;
            double squares = 0, all = (double)entry->visits;
            for (size_t t = 0; t < VISITS_THREADS; t++) {
                squares += (double)entry->by[t] / all * ((double)entry->by[t] / all);
            }
            fprintf(file, "%u %.0f %.1f %.2f\n", lock->rank, all, mean * ns_per_tick, 1 / squares);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}
#endif
