/* SPDX-License-Identifier: MIT
 *
 * control.h - the front door of control/: how programs and other processes look in.
 *
 * Threads     All functions may be called from any thread.  mallctl and its companions are called
 *             inside the allocator (api/life.h) and hold no lock when they return.
 */
#pragma once

#include "base/common.h"

/* ---------------------------------------------------------------- mallctl */

/* mallctl and its companions, with the codes and effects of docs/manual/ctl.md. */
int ctl_by_name(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
int ctl_name_to_mib(const char *name, size_t *mibp, size_t *miblenp);
int ctl_by_mib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp,
               size_t newlen);

/* ---------------------------------------------------------------- the background thread */

/* What the background thread has done so far. */
struct control_background {
    size_t num_threads;
    uint64_t num_runs;
    uint64_t run_interval; /* nanoseconds from one run to the next, on average */
};

/*
 * What control/ needs of api/, the layer above.  api/ fills this in at the start; NULL stands for a
 * service that does not exist.
 */
struct control_services {
    /* May the background thread run?  A change is noted here and takes effect when the call has
     * left the allocator, since making a thread allocates.  False when the thread cannot be
     * made. */
    bool (*background_is_on)(void);
    bool (*background_set)(bool on);
    void (*background_read)(struct control_background *counts);
};
extern struct control_services control_services HIDDEN;

/* ---------------------------------------------------------------- what others read */

/*
 * The page of counters for other processes (stats_page.h).  Start makes it once the heap works, if
 * `sees_forks` says that a forked child will not see the parent's; if that fails, there is no page.
 * Call inside, with no lock held.
 */
void stats_page_start(bool sees_forks);

/* ATTENTION_STATS: renews the page, if it is time. */
void stats_page_attend(void);

/* The heap has grown: renews the page if it has grown much. */
void stats_page_grown(void);

/* For the background thread: renews the page once a second while anything moves.  Returns how long to wait
 * for the next, and whether nothing has moved since: then a slow call will raise ATTENTION_BACKGROUND. */
uint64_t stats_page_tick(void);
bool stats_page_is_at_rest(void);

/* Renews all of the page now. */
void stats_page_renew(void);

/* In the child of a fork: leaves the parent's page and makes one for the child. */
void stats_page_forked(void);

/* What the page says about the socket: its path, "" for none, and 0, 1 for read or 2 for write. */
void stats_page_tell_socket(const char *path, unsigned rights);

/*
 * The control socket (socket.c): requests by wire.h, answered in a thread of its own.
 *
 * socket_open makes the socket with the rights CONTROL_READ or CONTROL_WRITE, as in the option
 * control.  0, or -errno with nothing left behind: -EPERM where it is forbidden, -EALREADY if there
 * is one.  socket_serve returns when the socket was stopped, or is lost.
 */
int socket_open(unsigned rights);
void socket_serve(void);
bool socket_is_open(void);

/* Ends the service.  The name is removed at once, if it is still this process's. */
void socket_stop(void);

/* In the child of a fork: closes the parent's socket. */
void socket_forked(void);

/*
 * The statistics as text, or as JSON with the letter J: a summary of the heap whose lines add up,
 * then the parts that no letter leaves out.  `write` is called at least once, each time with a
 * string of less than 4 KiB, outside of the allocator and with no lock held.  A `write` of NULL
 * stands for log_write, `letters` of NULL for none.
 */
void stats_print(void (*write)(void *opaque, const char *text), void *opaque, const char *letters);

/* ---------------------------------------------------------------- profiles that no call asks for
 * (triggers.c) */

/* At the start, after options and profiler. */
void triggers_init(void);

/* The profiler was switched on or off, or has forgotten everything: counting starts anew. */
void triggers_restart(void);

/* ATTENTION_PROFILE: writes what is due. */
void triggers_attend(void);

/* Looks at clock and memory, and writes what is due.  Returns the milliseconds until the next look,
 * UINT64_MAX when there is nothing to wait for. */
uint64_t triggers_tick(void);

/* Is there anything for which a background thread is wanted?  Is there a thread that does it
 * now? */
bool triggers_want_thread(void);
void triggers_set_thread(bool waits);

/* The signal of the option prof_signal came.  May be called from its handler. */
void triggers_signal(void);

/* Is there anything to do at exit?  triggers_exit does it; true if the process has to fail because
 * of leaks. */
bool triggers_want_exit(void);
bool triggers_exit(void);

/* In the child of a fork. */
void triggers_forked(void);

/* ---------------------------------------------------------------- files as gperftools writes them
 * (numbered.c) */

/* Forgets what was recorded, and records every allocation from now on.  False, with nothing
 * changed, when it is running already, when the prefix is empty or too long, and in set-uid
 * programs. */
bool numbered_start(const char *path);

/* Forgets everything and records no more. */
void numbered_stop(void);
bool numbered_is_running(void);

/* Writes the next file and says so in one line, with the reason.  Existing files are skipped. */
void numbered_dump(const char *reason);

/* ---------------------------------------------------------------- the run in one file:
 * opt.run_file (recorder.c) */

/* After options and heap, before the profiler: creates the file if this process records itself.
 * True then: the profiler is to be armed. */
bool recorder_init(void);

/* Starts recording the processor's time (opt.run_cpu_hz); later, and outside of the allocator,
 * because it needs a thread.  The second is for a child, at the end of an allocation, once its file
 * exists. */
void recorder_start_cpu(void);
void recorder_start_cpu_in_child(void);

bool recorder_is_on(void);

/* Are the options meant for this process?  Not for descendants of the process that `tally run` has
 * started, except those that record themselves: the others get no socket, no thread and no signal
 * handler. */
bool recorder_is_meant(void);

/* Notes what a leak check found, as leaks_write writes it.  False if nothing is recorded, or the
 * note cannot be written. */
bool recorder_leaks(const char *text, size_t length);

/* The process ends: writes the last snapshot and gives the file its final name. */
void recorder_end(void);
