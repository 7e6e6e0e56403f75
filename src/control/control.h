/* SPDX-License-Identifier: MIT
 *
 * control.h - how the world looks in.
 *
 * Threads     All functions may be called from any thread.  mallctl and its companions are called
 *             inside the allocator (api/life.h) and hold no lock when they return.
 */
#pragma once

#include "base/common.h"
#include "control/numbered.h"
#include "control/recorder.h"
#include "control/triggers.h"

/* mallctl and its companions, with the codes and effects of docs/manual/ctl.md. */
int ctl_by_name(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
int ctl_name_to_mib(const char *name, size_t *mibp, size_t *miblenp);
int ctl_by_mib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp,
               size_t newlen);

/* What the background thread has done so far. */
struct control_background {
    size_t num_threads;
    uint64_t num_runs;
    uint64_t run_interval; /* nanoseconds from one run to the next, on average */
};

/*
 * What lies above and has to be asked or told.  The api fills it at start; a function that is NULL
 * stands for "there is none".
 */
struct control_services {
    /* May the background thread run?  A change is a wish that is noted here and acted upon when the
     * call has left the allocator, since making a thread allocates.  False when it cannot be. */
    bool (*background_is_on)(void);
    bool (*background_set)(bool on);
    void (*background_read)(struct control_background *counts);
};
extern struct control_services control_services HIDDEN;

/*
 * The page of counters for other processes (stats_page.h).  It is made once the heap works, if
 * `sees_forks` says that a child will find it gone; where that fails there is none.  Inside, no lock held.
 */
void stats_page_start(bool sees_forks);

/* ATTENTION_STATS: renews it, if it is time. */
void stats_page_attend(void);

/* The heap has grown: renews it if that is much. */
void stats_page_grown(void);

/* Renews it now, as a whole. */
void stats_page_renew(void);

/* In the child of a fork: leaves the parent's and makes one of its own. */
void stats_page_forked(void);

/* What it tells of the socket: the path, "" for none, and 0, 1 for read or 2 for write. */
void stats_page_tell_socket(const char *path, unsigned rights);

/*
 * The control socket (socket.c): requests by wire.h, answered in a thread of its own.
 *
 * Opening it makes the socket, with the rights of the option control, CONTROL_READ or CONTROL_WRITE; 0, or
 * -errno with nothing left behind: -EPERM where it is forbidden, -EALREADY where there is one.  Serving
 * returns when the socket is to end, or is lost.
 */
int socket_open(unsigned rights);
void socket_serve(void);
bool socket_is_open(void);

/* Has it serve no more.  The name is removed at once, if it is still ours. */
void socket_stop(void);

/* In the child of a fork: closes what is the parent's. */
void socket_forked(void);

/*
 * The statistics as text, or as JSON with the letter J: a summary of the heap whose lines add up, then
 * what the letters do not leave out.  `write` gets strings of less than 4 KiB, at least one; it is
 * called outside of the allocator, with no lock held.  NULL stands for log_write and for no letters.
 */
void stats_print(void (*write)(void *opaque, const char *text), void *opaque, const char *letters);
