/* SPDX-License-Identifier: MIT
 *
 * control.h - how the world looks in.
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

/* What it has done so far. */
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

/* ---------------------------------------------------------------- what others read */

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

/* ---------------------------------------------------------------- profiles that no call asks for (triggers.c) */

/* After options and profiler, at the start. */
void triggers_init(void);

/* The profiler was switched on or off, or has forgotten everything: what was counted until now does
 * not count. */
void triggers_restart(void);

/* ATTENTION_PROFILE: writes what is due. */
void triggers_attend(void);

/* Looks at clock and memory, and writes what is due.  Returns the milliseconds until the next look,
 * UINT64_MAX when there is nothing to wait for. */
uint64_t triggers_tick(void);

/* Is there anything a thread of our own should wait for?  Does any thread do that now? */
bool triggers_want_thread(void);
void triggers_set_thread(bool waits);

/* The signal came.  May be called from its handler. */
void triggers_signal(void);

/* Is there something to do at the end?  Doing it: true if the process has to fail for its leaks. */
bool triggers_want_exit(void);
bool triggers_exit(void);

/* In the child of a fork. */
void triggers_forked(void);

/* ---------------------------------------------------------------- files as gperftools writes them (numbered.c) */

/* Records every allocation from now on, what was recorded before is forgotten.  False, with nothing
 * changed, when it is running already, when the prefix is empty or too long, and in set-uid programs. */
bool numbered_start(const char *path);

/* Forgets everything and records no more. */
void numbered_stop(void);
bool numbered_is_running(void);

/* Writes the next file and says so in one line, with the reason.  Existing files are skipped. */
void numbered_dump(const char *reason);

/* ---------------------------------------------------------------- the run in one file: opt.run_file (recorder.c) */

/* After options and heap, before the profiler: creates the file, if this process is one that records itself.
 * True then: the profiler is to be armed. */
bool recorder_init(void);

/* Later, outside of the allocator, because it needs a thread: opt.run_cpu_hz.  The second in a child, at the
 * end of an allocation, when its file is there. */
void recorder_start_cpu(void);
void recorder_start_cpu_in_child(void);

bool recorder_is_on(void);

/* Do the options speak to this process?  Not to descendants of the one that `tally run` has started, but for
 * those that record themselves: they get no socket, no thread and no handler of signals. */
bool recorder_is_meant(void);

/* A note of what a leak check found, as leaks_write writes it; false where nothing is recorded, or it cannot
 * be written. */
bool recorder_leaks(const char *text, size_t length);

/* The process ends: the last snapshot, and the file gets its name. */
void recorder_end(void);
