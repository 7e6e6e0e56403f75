/* SPDX-License-Identifier: MIT
 *
 * threads.h - the threads of the process, each with its timer.
 *
 * A thread is found when it first allocates, or when /proc shows it, and forgotten when it has ended without
 * having been sampled.  Number 0 stands for those for which there was no room: from some number on they have
 * timers, but no names.
 *
 * A thread that computes without being sampled blocks the signal, or the kernel has no timer for it.  Its clock
 * shows that, and the profile tells how many there are.
 *
 * Threads     Call with the profile locked (cpu.c).
 */
#pragma once

#include "base/common.h"
#include "base/os_timer.h"

/* What timers are like from now on; NULL: there are none. */
struct threads_timing {
    enum os_clock clock; /* OS_CLOCK_THREAD or OS_CLOCK_WALL */
    int signal;
    uint64_t period_ns;
};
void threads_begin(const struct threads_timing *timing);

/* Deletes all timers. */
void threads_end(void);

/* Finds threads that are new, that have gone and, if asked to, that are not sampled. */
void threads_scan(bool asks_who_is_left_out);

/* The number of a thread; it gets one, and a timer if it has none. */
uint32_t threads_add(uint32_t id);

/* The same for one that has just begun, whatever had its id before. */
void threads_join(uint32_t id);

/* Does the kernel give it a timer? */
bool threads_has_timer(uint32_t number);

/* A thread says that it ends; its name. */
void threads_leave(uint32_t id, const char name[16]);

/* There is a sample of it: the number under which it counts. */
uint32_t threads_note(uint32_t number);

/* False for a number that means nobody. */
bool threads_read(uint32_t number, char name[16], uint32_t *id);

/* Threads that compute, or have computed until they ended, and are not sampled. */
uint32_t threads_left_out(void);

/* Forgets all; there are no timers any more (fork, in which what was being changed is not sound), or there were
 * none. */
void threads_forget(bool is_sound);
