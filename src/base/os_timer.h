/* SPDX-License-Identifier: MIT
 *
 * os_timer.h - timers that run with a thread's processor time, and what a profile tells of threads.
 *
 * A timer belongs to the process and is neither inherited by a child nor kept by exec; the signals of one
 * that is still queued at an exec go with it.  The kernel looks at the clocks of processor time when its own
 * clock ticks (CONFIG_HZ, often 250 times a second): a timer that is faster than that expires several
 * times at once, and one signal says how often.
 *
 * Threads     All functions may be called from any thread; those marked so from signal handlers.
 */
#pragma once

#include "base/os_threads.h"

enum os_clock {
    OS_CLOCK_THREAD, /* processor time of one thread, which gets the signal */
    OS_CLOCK_WALL,   /* the clock; the thread gets the signal */
};

/* What a timer sends, and to whom. */
struct os_timer_target {
    enum os_clock clock;
    uint32_t thread; /* by os_thread_id */
    int signal;
    uint32_t value; /* arrives with the signal */
};

/* A timer that does not run yet; its number, or -errno. */
int os_timer_create(const struct os_timer_target *target);

/* The first expiry comes after `first_ns`, more than 0, and then one every period. */
int os_timer_set(int timer, uint64_t first_ns, uint64_t period_ns);
void os_timer_delete(int timer);

/*
 * The one timer of a process, on the processor time of all threads (SIGPROF) or on the clock (SIGALRM), with a
 * period in nanoseconds; 0 stops it.  One of the running threads gets the signal, on every kernel; that of an
 * os_timer_create timer would go to the first thread before Linux 6.4.  How often it has expired is not told.
 */
int os_timer_of_process(bool is_wall, uint64_t period_ns);

/* The processor time of all threads.  In handlers, too. */
uint64_t os_process_time_ns(void);

/* How many threads the process has; 0 where it cannot be told. */
uint32_t os_count_threads(void);

/* The processor time of another thread; false if it has ended. */
bool os_time_of_thread(uint32_t thread, uint64_t *ns);

/* The path of the working folder; false, with an empty one, if it does not fit or cannot be reached. */
bool os_working_folder(char *path, size_t capacity);

/* The name of another thread; false, with an empty one, if it has ended. */
bool os_name_of_thread(uint32_t thread, char name[16]);

/*
 * Copies bytes of this process from an address that need not be readable; false if it is not.  In handlers,
 * too.  The careful way asks the kernel for nothing that a filter of system calls (os_is_confined) could
 * mind, but memory that another thread unmaps in that moment is not safe to ask for.
 */
bool os_copy(void *to, uintptr_t from, size_t bytes, bool is_careful);
