/* SPDX-License-Identifier: MIT
 *
 * gperftools.c - the heap profiler under gperftools' names; see include/compat/gperftools.
 *
 * A program may be linked with gperftools as well.  That library calls HeapProfilerDump at exit, by
 * when tally has written the last profile itself.
 *
 * Threads     A call that interrupts the allocator, in a signal handler, does nothing.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <errno.h>
#include <gperftools/heap-profiler.h>
#include <string.h>
#include <tally/tally.h>

#include "api/life.h"
#include "api/names.h"
#include "base/log.h"
#include "base/os.h"
#include "control/control.h"
#include "prof/prof.h"

FOREIGN void HeapProfilerStart(const char *prefix) {
    if (!life_enter()) {
        return;
    }
    bool started = numbered_start(prefix);
    if (started) {
        triggers_restart();
        log_line("Starting tracking the heap");
    } else if (os_facts.secure) {
        log_line("no heap profile is written by a set-uid program");
    }
    life_leave_alloc();
    if (started) {
        int saved = errno;
        life_watch_exit();
        errno = saved;
    }
}

FOREIGN int IsHeapProfilerRunning(void) {
    return numbered_is_running();
}

FOREIGN void HeapProfilerStop(void) {
    if (life_enter()) {
        numbered_stop();
        triggers_restart();
        life_leave();
    }
}

/* Does this code belong to another library that has functions of these names? */
static bool is_of_gperftools(const void *code) {
    Dl_info here, there;
    void *other = dlsym(RTLD_NEXT, "HeapProfilerDump");
    return other != NULL && dladdr(code, &here) != 0 && dladdr(other, &there) != 0 &&
           here.dli_fbase == there.dli_fbase;
}

FOREIGN void HeapProfilerDump(const char *reason) {
    if (!numbered_is_running() || is_of_gperftools(__builtin_return_address(0)) || !life_enter()) {
        return;
    }
    if (numbered_is_running()) {
        numbered_dump(reason != NULL ? reason : "");
    }
    life_leave();
}

/* The profile as text and its length; NULL when there is none. */
static char *make_text(size_t *length) {
    char *text = NULL;
    *length = 0;
    if (life_enter()) {
        if (numbered_is_running()) {
            text = dump_to_memory(DUMP_GPERFTOOLS, DUMP_NOW, length);
        }
        life_leave();
    }
    return text;
}

FOREIGN char *GetHeapProfile(void) {
    size_t length;
    char *text = make_text(&length);
    char *copy = tally_malloc(length + 1);
    if (copy != NULL) {
        if (length > 0) {
            memcpy(copy, text, length);
        }
        copy[length] = '\0';
    }
    if (text != NULL && life_enter()) {
        dump_release(text, length);
        life_leave();
    }
    return copy;
}
