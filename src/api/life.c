/* SPDX-License-Identifier: MIT
 *
 * life.c - every start, thread-exit, fork and exit sequence, as plain lists of calls.
 *
 * Any exported function may be the first call of the process, before constructors and before libc
 * is ready, so the start is lazy and asks libc for nothing; a constructor starts us where no call
 * has by then.  What needs libc (the fork handler, the key whose destructor tells us of a thread's
 * end) is asked for after the heap works, because libc may allocate for it.
 *
 * Threads     The start is serialised by a lock.  A thread's end runs in that thread.
 */
#include "api/life.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/os.h"
#include "control/control.h"
#include "heap/heap.h"

_Atomic bool life_is_started;

static struct {
    struct lock lock;
    pthread_key_t key;
    _Atomic bool has_key;
} g = {.lock = {.rank = RANK_START}};

/* Other destructors may still allocate and free: the heap is given up in the second round. */
static void thread_ends(void *rounds) {
    if (rounds == (void *)1 && pthread_setspecific(g.key, (void *)2) == 0) {
        return;
    }
    thread_exit();
}

static void child_begins(void) {
    lock_forked();
}

static void process_ends(void) {
    control_print_stats(2);
}

/* What libc is asked for, once the heap can serve libc's own allocations. */
static void settle_with_libc(void) {
    if (pthread_key_create(&g.key, thread_ends) == 0) {
        atomic_store_explicit(&g.has_key, true, memory_order_release);
    }
    pthread_atfork(NULL, NULL, child_begins);
    if (opt.stats_print) {
        atexit(process_ends);
    }
}

COLD void life_start(void) {
    (void)lock_acquire(&g.lock);
    bool first = !atomic_load_explicit(&life_is_started, memory_order_relaxed);
    if (first) {
        lock_init();
        os_init();
        opt_init();
        if (!heap_init()) {
            fatal("no memory to start with");
        }
        /* Release: whoever sees the flag sees the heap. */
        atomic_store_explicit(&life_is_started, true, memory_order_release);
    }
    lock_release(&g.lock);
    if (first) {
        settle_with_libc();
    }
}

bool life_register_thread(void) {
    return atomic_load_explicit(&g.has_key, memory_order_acquire) &&
           pthread_setspecific(g.key, (void *)1) == 0;
}

#if TALLY_OVERRIDE
/*
 * Usually libc has allocated long before this runs.  Where it has not, starting here keeps the
 * first malloc from coming out of pthread_atfork or atexit, whose locks we would then want too.
 */
__attribute__((constructor(101))) static void start_early(void) {
    life_prepare();
}
#endif
