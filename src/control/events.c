/* SPDX-License-Identifier: MIT
 *
 * events.c - samples one by one, as jemalloc's JSON.
 *
 * The profiler keeps the samples and dump.h writes them; this file hands them over one at a time.
 *
 * Threads     The lock guards the name of the log's file.
 */
#include "control/events.h"

#include <errno.h>
#include <string.h>
#include <tally/tally.h>

#include "base/lock.h"
#include "out/out_file.h"
#include "prof/prof.h"

enum { PATH_BYTES = 4097 };

static struct {
    struct lock lock;
    bool has_path; /* guarded by lock, as is path_of_log */
} g = {.lock = LOCK_OF_RANK(RANK_CTL)};

/* Not in g, whose initial values would put it into the library's file. */
SPARSE static char path_of_log[PATH_BYTES];

static void enter(void) {
    if (UNLIKELY(lock_acquire(&g.lock) == LOCK_ABANDONED)) {
        g.has_path = false; /* The path may be half written. */
    }
}

/* ---------------------------------------------------------------- the log */

static bool next_logged(void *context, struct prof_event *event) {
    uint32_t *number = context;
    return prof_log_read((*number)++, event);
}

int events_log_start(const char *path) {
    size_t length = path != NULL ? strlen(path) : 0;
    if (length >= PATH_BYTES) {
        return -ENAMETOOLONG;
    }
    int found = path != NULL ? out_file_judge(path) : 0; /* better now than when the log is full */
    if (found < 0) {
        return found;
    }
    if (!prof_log_start()) {
        return -EALREADY;
    }
    enter();
    g.has_path = path != NULL;
    memcpy(path_of_log, path != NULL ? path : "", length + 1);
    lock_release(&g.lock);
    return 0;
}

int events_log_stop(void) {
    char path[PATH_BYTES];
    uint32_t number = 0;
    if (!prof_log_stop()) {
        return -ENOENT;
    }
    enter();
    bool has_path = g.has_path;
    memcpy(path, path_of_log, PATH_BYTES);
    lock_release(&g.lock);
    struct dump_log log = {{next_logged, &number}, prof_log_duration(), TALLY_VERSION};
    int error = dump_log(has_path ? path : NULL, &log);
    prof_log_forget();
    return error;
}

/* ---------------------------------------------------------------- recent samples */

struct recent_walk {
    uint64_t cursor, last;
};

static bool next_recent(void *context, struct prof_event *event) {
    struct recent_walk *walk = context;
    return prof_recent_walk(&walk->cursor, event) && walk->cursor <= walk->last;
}

bool events_write_recent(void (*give)(void *opaque, const char *text), void *opaque) {
    struct recent_walk walk = {0, prof_recent_last()};
    size_t length;
    struct dump_events events = {next_recent, &walk};
    char *text = dump_recent(events, prof_recent_max(), &length);
    if (text == NULL) {
        return false;
    }
    struct thread_outside before = thread_go_outside();
    give(opaque, text);
    thread_come_back(before);
    dump_release(text, length);
    return true;
}
