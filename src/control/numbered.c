/* SPDX-License-Identifier: MIT
 *
 * numbered.c - profiles in numbered files, as gperftools' heap profiler writes them.
 *
 * gperftools overwrites what it finds, and removes files of earlier runs at its start.  Here an
 * existing file belongs to somebody, so its number is skipped.  Numbers continue when profiling is
 * stopped and started again.
 *
 * Threads     The lock guards the prefix alone; it is not held while a file is written.
 */
#include "control/numbered.h"

#include <errno.h>
#include <string.h>

#include "base/fmt.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/os.h"
#include "control/control.h"
#include "opt/opt.h"
#include "out/out_file.h"
#include "prof/prof.h"

enum { SUFFIX_BYTES = 24, MOST_TRIES = 10000 };

static struct {
    _Atomic bool is_running;
    _Atomic uint32_t number;
    _Atomic bool is_child; /* of a fork: the prefix is the parent's */
    struct lock lock;
} g = {.lock = LOCK_OF_RANK(RANK_CTL)};

/* Guarded by the lock.  Not in g, whose initial values would put it into the library's file. */
SPARSE static char prefix[sizeof(opt.prof_prefix)];

static void enter(void) {
    if (UNLIKELY(lock_acquire(&g.lock) == LOCK_ABANDONED)) {
        prefix[0] = '\0'; /* The prefix may be half written. */
    }
}

static void set_prefix(const char *text) {
    enter();
    memcpy(prefix, text, strlen(text) + 1);
    lock_release(&g.lock);
    g.is_child = false;
}

STARTUP void numbered_init(void) {
    if (opt.prof && opt.prof_names == PROF_NAMES_GPERFTOOLS && opt.prof_prefix[0] != '\0') {
        set_prefix(opt.prof_prefix);
        g.is_running = true;
    }
}

STARTUP bool numbered_is_running(void) {
    return g.is_running;
}

bool numbered_start(const char *path) {
    if (os_facts.secure || path == NULL || path[0] == '\0' || strlen(path) >= sizeof(prefix) ||
        g.is_running) {
        return false;
    }
    set_prefix(path);
    prof_reset(0);
    prof_set_active(true);
    g.is_running = true;
    return true;
}

void numbered_stop(void) {
    if (atomic_exchange(&g.is_running, false)) {
        prof_set_active(false);
        prof_reset((unsigned)opt.lg_prof_sample);
    }
}

void numbered_forked(void) {
    g.is_child = true;
}

/* The beginning of all names; returns its length, 0 when there are no names. */
static size_t put_prefix(char *path) {
    enter();
    size_t length = strlen(prefix);
    memcpy(path, prefix, length + 1);
    lock_release(&g.lock);
    if (length > 0 && g.is_child) {
        length += fmt_text(path + length, SUFFIX_BYTES, "_%u", os_process_id());
    }
    return length;
}

void numbered_dump(const char *reason) {
    char path[sizeof(prefix) + 2 * SUFFIX_BYTES + OUT_FILE_TIME_BYTES];
    size_t length = put_prefix(path);
    if (os_facts.secure || length == 0) {
        return;
    }
    int error = -EEXIST;
    for (unsigned i = 0; error == -EEXIST && i < MOST_TRIES; i++) {
        size_t end = length + fmt_text(path + length, SUFFIX_BYTES, ".%04u", ++g.number);
        end += out_file_put_time(path + end, OUT_FILE_TIME_BYTES);
        fmt_text(path + end, SUFFIX_BYTES, ".heap");
        error = dump_to_file(path, DUMP_GPERFTOOLS, DUMP_NOW);
    }
    if (error == 0) {
        log_line("Dumping heap profile to %s (%s)", path, reason);
    } else {
        dump_warn(path, error);
    }
}
