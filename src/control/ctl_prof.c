/* SPDX-License-Identifier: MIT
 *
 * ctl_prof.c - prof.*, thread.prof.* and the hooks that a program may set in the profiler.
 *
 * The profiler can be armed at any time.  Before the first time, most of these names answer ENOENT,
 * as jemalloc's do in a process started without prof:true; from then on they behave as in a process
 * started with it.
 *
 * The ending of a name given to prof.dump decides the format.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "control/control.h"
#include "control/ctl.h"
#include "control/events.h"
#include "control/triggers.h"
#include "heap/counts.h"
#include "opt/opt.h"
#include "out/out_file.h"
#include "prof/prof.h"

enum { MOST_LG_SAMPLE = 63 };

int config_prof(struct ctl_call *call) {
    call->value.boolean = true;
    return 0;
}

/* ---------------------------------------------------------------- switches */

int prof_active_leaf(struct ctl_call *call) {
    if (!call->writes) {
        call->value.boolean = prof_is_active();
    } else if (call->value.boolean != prof_is_active()) {
        prof_set_active(call->value.boolean);
        triggers_restart();
    }
    return 0;
}

int prof_active_init_leaf(struct ctl_call *call) {
    if (!call->writes) {
        call->value.boolean = prof_was_armed() && prof_thread_active_init();
        return 0;
    }
    if (!prof_was_armed()) {
        return ENOENT;
    }
    prof_set_thread_active_init(call->value.boolean);
    return 0;
}

int prof_thread_active_leaf(struct ctl_call *call) {
    if (!call->writes) {
        call->value.boolean = prof_was_armed() && prof_thread_is_active();
        return 0;
    }
    if (!prof_was_armed()) {
        return ENOENT;
    }
    return prof_thread_set_active(call->value.boolean) ? 0 : EAGAIN;
}

int prof_gdump_leaf(struct ctl_call *call) {
    if (!call->writes) {
        call->value.boolean = prof_was_armed() && triggers_gdump();
        return 0;
    }
    if (!prof_was_armed()) {
        return ENOENT;
    }
    triggers_set_gdump(call->value.boolean);
    return 0;
}

/* ---------------------------------------------------------------- numbers */

int prof_interval_leaf(struct ctl_call *call) {
    call->value.uint64 = triggers_interval();
    return 0;
}

int prof_lg_sample_leaf(struct ctl_call *call) {
    call->value.size = prof_was_armed() ? prof_lg_sample() : 0;
    return 0;
}

/* ENOENT before the first arming; EPERM for a caller that wants to read; reads the new value, if
 * any. */
static int begin_write(struct ctl_call *call, void *value, size_t size) {
    if (!prof_was_armed()) {
        return ENOENT;
    }
    if (call->oldp != NULL || call->oldlenp != NULL) {
        return EPERM;
    }
    return ctl_take_new(call, value, size);
}

int prof_reset_leaf(struct ctl_call *call) {
    size_t lg_sample = prof_lg_sample();
    int error = begin_write(call, &lg_sample, sizeof(lg_sample));
    if (error == 0) {
        prof_reset((unsigned)min_size(lg_sample, MOST_LG_SAMPLE));
        triggers_restart();
    }
    return error;
}

static int give_class(struct ctl_call *call, size_t usable, bool accumulated) {
    struct prof_class_sum sum;
    if (!prof_was_armed() || !opt.prof_stats || !prof_read_class(usable, accumulated, &sum)) {
        return ENOENT;
    }
    if (call->newp != NULL || call->newlen != 0) {
        return EPERM;
    }
    return ctl_put_old(call, &sum, sizeof(sum));
}

int prof_stats_bin_live_leaf(struct ctl_call *call) {
    return give_class(call, size_classes[call->word[0] + 1].size, false);
}

int prof_stats_bin_accum_leaf(struct ctl_call *call) {
    return give_class(call, size_classes[call->word[0] + 1].size, true);
}

int prof_stats_lextent_live_leaf(struct ctl_call *call) {
    return give_class(call, counts_lextent_size((unsigned)call->word[0]), false);
}

int prof_stats_lextent_accum_leaf(struct ctl_call *call) {
    return give_class(call, counts_lextent_size((unsigned)call->word[0]), true);
}

/* ---------------------------------------------------------------- names of threads */

static bool is_printable(const char *name) {
    for (; *name != '\0'; name++) {
        if ((*name < ' ' && *name != '\t') || (unsigned char)*name > '~') {
            return false;
        }
    }
    return true;
}

static int set_thread_name(struct ctl_call *call) {
    const char *name = NULL;
    if (ctl_take_new(call, &name, sizeof(name)) != 0) {
        return EINVAL;
    }
    if (opt.prof_sys_thread_name) {
        return ENOENT;
    }
    if (name == NULL || !is_printable(name)) {
        return EINVAL;
    }
    return prof_thread_set_name(name) ? 0 : EAGAIN;
}

int prof_thread_name_leaf(struct ctl_call *call) {
    static __thread char name[16]; /* the caller may use the text until it asks again */
    const char *given = name;
    if (!prof_was_armed()) {
        return ENOENT;
    }
    bool reads = call->oldp != NULL && call->oldlenp != NULL;
    if (reads && (call->newp != NULL || call->newlen != 0)) {
        return EPERM;
    }
    if (call->newp != NULL) {
        return set_thread_name(call);
    }
    prof_thread_get_name(name);
    return ctl_put_old(call, &given, sizeof(given));
}

/* ---------------------------------------------------------------- files */

/* Writes jemalloc's text, unless the name asks for another format. */
int prof_dump_leaf(struct ctl_call *call) {
    const char *path = NULL;
    int error = begin_write(call, &path, sizeof(path));
    if (error != 0) {
        return error;
    }
    if (os_facts.secure) {
        return EFAULT;
    }
    error = path == NULL ? dump_automatically('m')
                         : dump_to_given(path, dump_format_by_name(path, DUMP_JEMALLOC), DUMP_NOW);
    return error != 0 ? EFAULT : 0;
}

int prof_prefix_leaf(struct ctl_call *call) {
    const char *prefix = NULL;
    int error = begin_write(call, &prefix, sizeof(prefix));
    if (error != 0) {
        return error;
    }
    return prefix != NULL && out_file_set_prefix(prefix) ? 0 : EFAULT;
}

int prof_log_start_leaf(struct ctl_call *call) {
    const char *path = NULL;
    int error = begin_write(call, &path, sizeof(path));
    if (error != 0) {
        return error;
    }
    return os_facts.secure || events_log_start(path) != 0 ? EFAULT : 0;
}

int prof_log_stop_leaf(struct ctl_call *call) {
    (void)call;
    if (!prof_was_armed()) {
        return ENOENT;
    }
    return events_log_stop() != 0 ? EFAULT : 0;
}

/* ---------------------------------------------------------------- recent samples */

int prof_recent_alloc_max_leaf(struct ctl_call *call) {
    if (!prof_was_armed()) {
        return ENOENT;
    }
    ssize_t old = prof_recent_max();
    ssize_t most = old;
    if (ctl_take_new(call, &most, sizeof(most)) != 0 || most < -1) {
        return EINVAL;
    }
    int error = ctl_put_old(call, &old, sizeof(old));
    if (error == 0 && call->newp != NULL) {
        prof_recent_set_max(most);
    }
    return error;
}

int prof_recent_alloc_dump_leaf(struct ctl_call *call) {
    struct {
        void (*write)(void *opaque, const char *text);
        void *opaque;
    } sink = {NULL, NULL};
    int error = begin_write(call, &sink, sizeof(sink));
    if (error != 0) {
        return error;
    }
    if (call->newp == NULL || sink.write == NULL) {
        return EINVAL;
    }
    return events_write_recent(sink.write, sink.opaque) ? 0 : EAGAIN;
}

/* ---------------------------------------------------------------- hooks */

/* Gives the old hook and takes a new one, if there is one.  A call that does neither is a
 * mistake. */
static int exchange_hook(struct ctl_call *call, void *_Atomic *word) {
    void *old = *word;
    void *hook = old;
    if ((call->oldp == NULL && call->newp == NULL) ||
        ctl_take_new(call, &hook, sizeof(hook)) != 0) {
        return EINVAL;
    }
    int error = ctl_put_old(call, &old, sizeof(old));
    if (error == 0 && call->newp != NULL) {
        *word = hook;
    }
    return error;
}

/* Without a hook our unwinder is given: a program may wrap it, and puts it back. */
int hook_prof_backtrace(struct ctl_call *call) {
    void *_Atomic word = tell_hooks.backtrace;
    if (word == NULL) {
        word = (void *)prof_backtrace;
    }
    int error = exchange_hook(call, &word);
    if (error != 0 || call->newp == NULL) {
        return error;
    }
    if (word == NULL) {
        return EINVAL;
    }
    tell_hooks.backtrace = word == (void *)prof_backtrace ? NULL : (void *)word;
    return 0;
}

int hook_prof_dump(struct ctl_call *call) {
    return exchange_hook(call, &tell_hooks.dumped);
}

int hook_prof_sample(struct ctl_call *call) {
    return exchange_hook(call, &tell_hooks.sample);
}

int hook_prof_sample_free(struct ctl_call *call) {
    return exchange_hook(call, &tell_hooks.sample_free);
}

/* NULL removes the hook; without input nothing changes. */
int hook_safety_check_abort(struct ctl_call *call) {
    if (call->oldp != NULL || call->oldlenp != NULL) {
        return EPERM;
    }
    void (*hook)(const char *text) = NULL;
    int error = ctl_take_new(call, &hook, sizeof(hook));
    if (error == 0 && call->newp != NULL) {
        log_fatal_hook = hook;
    }
    return error;
}
