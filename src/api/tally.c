/* SPDX-License-Identifier: MIT
 *
 * tally.c - the questions only tally answers; see tally.h.
 */
#include <errno.h>
#include <tally/tally.h>

#include "api/life.h"
#include "api/listener.h"
#include "base/bits.h"
#include "base/os.h"
#include "control/control.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "opt/opt.h"
#include "prof/prof.h"

EXPORT size_t tally_purge(void) {
    if (!life_enter()) {
        return 0;
    }
    size_t bytes = heap_trim();
    life_leave();
    return bytes;
}

EXPORT void tally_totals(struct tally_totals *totals) {
    struct heap_totals t = {0};
    if (life_enter()) {
        t = heap_totals();
        life_leave();
    }
    *totals = (struct tally_totals){
        .live = t.live,
        .cached = t.cached,
        .slab_free = t.slab_free,
        .large_rest = t.large_rest,
        .free_pages_kept = t.dirty,
        .mapped = t.mapped,
        .metadata = t.metadata,
    };
}

EXPORT size_t tally_held(void) {
    return limit_held();
}

/* If the soft limit is already exceeded, the end of the next slow allocation attends to it. */
EXPORT void tally_set_limits(size_t soft, size_t hard) {
    if (life_enter()) {
        limit_set(soft, hard);
        life_leave();
    }
}

EXPORT void tally_on_soft_limit(void (*callback)(size_t held, void *context), void *context) {
    if (life_enter()) {
        limit_on_soft(callback, context);
        life_leave();
    }
}

EXPORT void tally_verify(void) {
    if (life_enter()) {
        heap_verify();
        life_leave();
    }
}

/* ---------------------------------------------------------------- the profiler */

EXPORT int tally_profile_start(size_t rate) {
    if (!life_enter()) {
        return EBUSY;
    }
    prof_start(rate != 0 ? bits_nearest_log2(rate) : (unsigned)opt.lg_prof_sample);
    triggers_restart();
    life_leave_alloc();
    return 0;
}

EXPORT int tally_profile_stop(void) {
    if (!life_enter()) {
        return EBUSY;
    }
    prof_set_active(false);
    triggers_restart();
    life_leave();
    return 0;
}

EXPORT int tally_profile_reset(void) {
    if (!life_enter()) {
        return EBUSY;
    }
    if (prof_was_armed()) {
        prof_reset(prof_lg_sample());
        triggers_restart();
    }
    life_leave();
    return 0;
}

static int dump_profile(const char *path, enum dump_what what) {
    if (!life_enter()) {
        return EBUSY;
    }
    int error;
    if (!prof_was_armed()) {
        error = -ENOENT;
    } else if (os_facts.secure) {
        error = -EPERM;
    } else if (path == NULL) {
        error = what == DUMP_NOW ? dump_automatically('m') : -EINVAL;
    } else {
        error = dump_to_given(path, dump_format_by_name(path, DUMP_PROTO), what);
    }
    life_leave();
    return -error;
}

EXPORT int tally_profile_dump(const char *path) {
    return dump_profile(path, DUMP_NOW);
}

EXPORT int tally_profile_dump_peak(const char *path) {
    return dump_profile(path, DUMP_PEAK);
}

EXPORT int tally_profile_dump_fd(int fd, enum tally_profile_format format) {
    static const enum dump_format formats[] = {
        [TALLY_PROFILE_PROTO] = DUMP_PROTO,
        [TALLY_PROFILE_JEMALLOC] = DUMP_JEMALLOC,
        [TALLY_PROFILE_GPERFTOOLS] = DUMP_GPERFTOOLS,
    };
    if ((unsigned)format >= sizeof(formats) / sizeof(formats[0])) {
        return EINVAL;
    }
    if (!life_enter()) {
        return EBUSY;
    }
    int error = prof_was_armed() ? dump_to_descriptor(fd, formats[format], DUMP_NOW) : -ENOENT;
    life_leave();
    return -error;
}

EXPORT const char *tally_version(void) {
    return TALLY_VERSION;
}

/* ---------------------------------------------------------------- the control socket */

EXPORT int tally_control_start(enum tally_control rights) {
    if (rights != TALLY_CONTROL_READ && rights != TALLY_CONTROL_WRITE) {
        return EINVAL;
    }
    return -listener_start(rights == TALLY_CONTROL_WRITE ? CONTROL_WRITE : CONTROL_READ);
}

EXPORT int tally_control_stop(void) {
    listener_stop();
    return 0;
}
