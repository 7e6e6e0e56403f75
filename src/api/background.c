/* SPDX-License-Identifier: MIT
 *
 * background.c - one thread that ticks while there is memory to give back or the program calls, and else
 * sleeps.
 *
 *      none --a heap of size, and the program has threads--> awake <--bell--> asleep
 *       ^------------------ one thread of the program is left ------------------'
 *
 * A program that has one thread does not get a second one from us, unless it wants profiles at
 * times or at a signal (control/triggers.h), or frees and takes tens of MiB again and again: that
 * would make libc lock where it need not, and unshare and setns fail.  Its debt is bounded by volume
 * instead (heap/dirty.c).  The thread is
 * made at the end of an allocation, where nothing is held.  It cannot be made when memory is freed,
 * which would be the time for it: libc frees thread-local data under the lock of its stack cache,
 * and making a thread takes that lock.  So it comes with the first mebibytes of heap.  All signals
 * are blocked in it, so none meant for the program ends there.
 *
 * mallctl's background_thread overrides the option.  Switched on, the thread is made when that call
 * has left the allocator, whatever the size of the heap; switched off, the call waits until it is
 * gone.
 *
 * Where a thread cannot be made, or privileges are restricted for good (a sandbox that may forbid
 * threads), memory is given back by the program's own calls alone.
 *
 * Threads     state changes by compare and swap.
 */
#define _GNU_SOURCE /* pthread_attr_setsigmask_np, pthread_setname_np */
#include "api/background.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "api/life.h"
#include "base/os.h"
#include "base/os_confined.h"
#include "base/own.h"
#include "control/control.h"
#include "cpu/cpu.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "opt/opt.h"

/* The stack suffices for writing a profile, beside some of the program's thread-local data. */
enum { STACK_BYTES = 256 << 10, RETRY_MS = 60000, LONG_WAIT_MS = 1000, HEAP_BYTES = 16 << 20 };
enum { STOP_WAIT_MS = 100, STOP_WAITS = 100, NS_PER_MS = 1000000 };

enum state { NONE, STARTING, AWAKE, ASLEEP };

static struct {
    _Atomic uint32_t state;
    _Atomic uint32_t bell; /* rung to wake the thread */
    _Atomic uint64_t not_before_ms;
    _Atomic uint32_t mode; /* the option, or what mallctl has made of it */
    _Atomic bool is_asked; /* switched on by mallctl: do not wait for a large heap */
    _Atomic uint64_t runs;
    _Atomic uint64_t first_run_ms;
    _Atomic uint64_t last_run_ms;
} g;

static bool is_wanted(void) {
    return g.mode == BACKGROUND_THREAD_TRUE ||
           (g.mode == BACKGROUND_THREAD_AUTO &&
            (life_thread_count() > 1 || triggers_want_thread() || dirty_keeps_much));
}

static void ring(void) {
    atomic_fetch_add_explicit(&g.bell, 1, memory_order_release);
    os_wake(&g.bell);
}

static void count_run(void) {
    g.last_run_ms = os_now_ms();
    if (g.runs++ == 0) {
        g.first_run_ms = g.last_run_ms;
    }
}

static uint64_t tick(void) {
    count_run();
    own_begin();
    thread_mark_inside(true);
    uint64_t wait_ms = heap_tick();
    wait_ms = min_size(wait_ms, triggers_tick());
    wait_ms = min_size(wait_ms, stats_page_tick());
    thread_mark_inside(false);
    own_end();
    return wait_ms;
}

static void sleep_until_rung(uint32_t seen, uint64_t most_ms) {
    size_t dirty = pages_totals().dirty;
    atomic_exchange(&g.state, ASLEEP);
    /* Somebody gave pages back, or called, and saw this thread awake. */
    if (pages_totals().dirty > dirty || !stats_page_is_at_rest()) {
        most_ms = 1;
    }
    if (most_ms == UINT64_MAX) {
        os_wait(&g.bell, seen);
    } else {
        os_wait_ms(&g.bell, seen, most_ms);
    }
    atomic_exchange(&g.state, AWAKE);
}

static void *run(void *unused) {
    (void)unused;
    thread_enroll();
    if (!os_is_confined()) { /* It may have become so since the thread was asked for. */
        pthread_setname_np(pthread_self(), "tally");
    }
    own_enroll();
    dirty_has_background = true;
    triggers_set_thread(true);
    for (;;) {
        /* Read before the question: a thread that ends after it rings the bell. */
        uint32_t seen = atomic_load(&g.bell);
        if (!is_wanted()) {
            break;
        }
        uint64_t wait_ms = tick();
        if (wait_ms > LONG_WAIT_MS) {
            sleep_until_rung(seen, wait_ms);
        } else {
            os_wait_ms(&g.bell, seen, wait_ms);
        }
    }
    dirty_has_background = false;
    triggers_set_thread(false);
    own_begin();
    thread_mark_inside(true);
    pages_purge_all();
    thread_mark_inside(false);
    own_end();
    own_leave();
    atomic_store(&g.state, NONE);
    os_wake(&g.state); /* for whoever switched it off */
    if (is_wanted()) { /* A thread was made meanwhile, and saw that this one was there. */
        attention_raise(ATTENTION_GROWN);
    }
    return NULL;
}

static bool create(void *(*body)(void *), size_t stack_bytes) {
    pthread_attr_t attributes;
    sigset_t all;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    sigfillset(&all);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool made = (stack_bytes == 0 || pthread_attr_setstacksize(&attributes, stack_bytes) == 0) &&
                pthread_attr_setsigmask_np(&attributes, &all) == 0 &&
                pthread_create(&thread, &attributes, body, NULL) == 0;
    pthread_attr_destroy(&attributes);
    return made;
}

/*
 * What libc allocates for the thread must survive arena.<i>.reset and arena.<i>.destroy, and must
 * not come from extent hooks: while the caller makes the thread, it does not use an arena that the
 * program made.
 */
static unsigned leave_arena(void) {
    unsigned own = thread_arena();
    if (arena_is_manual(own)) {
        thread_mark_inside(true);
        thread_set_arena(0);
        thread_mark_inside(false);
    }
    return own;
}

static void return_to_arena(unsigned own) {
    if (own != thread_arena()) {
        thread_mark_inside(true);
        thread_set_arena(own);
        thread_mark_inside(false);
    }
}

bool background_make_thread(void *(*body)(void *)) {
    unsigned own = leave_arena();
    /* A program with much thread-local data needs more than a modest stack. */
    bool made = create(body, STACK_BYTES) || create(body, 0);
    return_to_arena(own);
    return made;
}

static bool may_make_thread(void) {
    return !os_facts.no_new_privileges && !os_is_confined();
}

static void start(void) {
    uint32_t none = NONE;
    if (os_now_ms() < g.not_before_ms || !may_make_thread() ||
        !atomic_compare_exchange_strong(&g.state, &none, STARTING)) {
        return;
    }
    if (background_make_thread(run)) {
        uint32_t starting = STARTING;
        atomic_compare_exchange_strong(&g.state, &starting, AWAKE);
    } else {
        g.not_before_ms = os_now_ms() + RETRY_MS;
        atomic_store(&g.state, NONE);
    }
}

void background_consider(void) {
    bool is_due = g.is_asked || pages_totals().mapped >= HEAP_BYTES || triggers_want_thread();
    if (atomic_load(&g.state) == NONE && is_due && is_wanted()) {
        int saved = errno; /* An allocation that succeeds leaves it alone. */
        start();
        errno = saved;
    }
}

void background_wake(void) {
    if (atomic_load(&g.state) == ASLEEP) {
        ring();
    }
}

void background_ring(void) {
    if (atomic_load(&g.state) != NONE) {
        ring();
    }
}

void background_thread_ended(void) {
    if (atomic_load(&g.state) != NONE && !is_wanted()) {
        ring();
    }
}

STARTUP void background_forked(void) {
    g.state = NONE;
    g.bell = 0;
    dirty_has_background = false;
}

/* ---------------------------------------------------------------- mallctl */

static bool is_on(void) {
    return g.mode != BACKGROUND_THREAD_FALSE;
}

static void stop(void) {
    ring();
    uint32_t state;
    for (unsigned i = 0; (state = atomic_load(&g.state)) != NONE && i < STOP_WAITS; i++) {
        os_wait_ms(&g.state, state, STOP_WAIT_MS);
    }
}

static bool set(bool on) {
    if (on && !may_make_thread()) {
        return false;
    }
    g.is_asked = on;
    g.mode = on ? BACKGROUND_THREAD_TRUE : BACKGROUND_THREAD_FALSE;
    if (on) {
        g.not_before_ms = 0;
        attention_raise(ATTENTION_GROWN);
    } else {
        stop();
    }
    return true;
}

static void give_counts(struct control_background *counts) {
    uint64_t runs = g.runs;
    counts->num_threads = atomic_load(&g.state) != NONE;
    counts->num_runs = runs;
    if (runs > 1) {
        counts->run_interval = (g.last_run_ms - g.first_run_ms) * NS_PER_MS / (runs - 1);
    }
}

STARTUP void background_init(void) {
    g.mode = (uint32_t)opt.background_thread;
    control_services.background_is_on = is_on;
    control_services.background_set = set;
    control_services.background_read = give_counts;
    cpu_services.make_thread = background_make_thread;
}
