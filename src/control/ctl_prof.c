/* SPDX-License-Identifier: MIT
 *
 * ctl_prof.c - prof.*, thread.prof.* and the functions a program may hang into the profiler.
 *
 * Profiling was never armed: reads give what they give then, and what would need samples is not there.
 * Hooks are kept for the profiler and can be read back.
 *
 * Threads     Each hook is one atomic word.
 */
#include <errno.h>

#include "base/log.h"
#include "control/ctl.h"

int config_prof(struct ctl_call *call) {
    call->value.boolean = false; /* The only place that says whether there is a profiler. */
    return 0;
}

int prof_needs_arming(struct ctl_call *call) {
    (void)call;
    return ENOENT;
}

/* A switch that can only be turned once profiling was armed. */
int prof_switch(struct ctl_call *call) {
    if (call->writes) {
        return ENOENT;
    }
    call->value.boolean = false;
    return 0;
}

/* Switching off what is off is no error.  Arming belongs here. */
int prof_active(struct ctl_call *call) {
    if (call->writes) {
        return call->value.boolean ? ENOENT : 0;
    }
    call->value.boolean = false;
    return 0;
}

int prof_number(struct ctl_call *call) {
    call->value.uint64 = 0;
    return 0;
}

/* ---------------------------------------------------------------- hooks */

enum hook { HOOK_BACKTRACE, HOOK_DUMP, HOOK_SAMPLE, HOOK_SAMPLE_FREE, HOOKS };
static void *_Atomic hooks[HOOKS];

/* Who asks for nothing and gives nothing has made a mistake. */
static int exchange_hook(struct ctl_call *call, enum hook which) {
    void *hook = NULL;
    if ((call->oldp == NULL && call->newp == NULL) ||
        ctl_take_new(call, &hook, sizeof(hook)) != 0 ||
        (which == HOOK_BACKTRACE && call->newp != NULL && hook == NULL)) {
        return EINVAL;
    }
    void *old = hooks[which];
    int error = ctl_put_old(call, &old, sizeof(old));
    if (error == 0 && call->newp != NULL) {
        hooks[which] = hook;
    }
    return error;
}

int hook_prof_backtrace(struct ctl_call *call) {
    return exchange_hook(call, HOOK_BACKTRACE);
}

int hook_prof_dump(struct ctl_call *call) {
    return exchange_hook(call, HOOK_DUMP);
}

int hook_prof_sample(struct ctl_call *call) {
    return exchange_hook(call, HOOK_SAMPLE);
}

int hook_prof_sample_free(struct ctl_call *call) {
    return exchange_hook(call, HOOK_SAMPLE_FREE);
}

/* NULL takes the last one away; no input at all changes nothing. */
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
