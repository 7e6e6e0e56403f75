/* SPDX-License-Identifier: MIT
 *
 * ctl_root.c - names at the root of mallctl's tree, config.* and opt.*.
 */
#include <errno.h>
#include <string.h>

#include <tally/tally.h>

#include "opt/opt.h"
#include "control/ctl.h"
#include "control/snapshot.h"

/* Programs read the version to learn which interface they have. */
static const char version_text[] = "5.3.1-0-gtally-" TALLY_VERSION;

int root_version(struct ctl_call *call) {
    call->value.string = version_text;
    return 0;
}

/* Unlike all other names it returns the new value; a wrong length renews nothing. */
int root_epoch(struct ctl_call *call) {
    uint64_t ignored, epoch = snapshot_epoch();
    int error = ctl_take_new(call, &ignored, sizeof(ignored));
    if (error == 0) {
        error = ctl_put_old(call, &epoch, sizeof(epoch));
    }
    if (error != 0 || call->newp == NULL) {
        return error;
    }
    if (!snapshot_refresh()) {
        return EAGAIN;
    }
    epoch = snapshot_epoch();
    return ctl_put_old(call, &epoch, sizeof(epoch));
}

int root_background_thread(struct ctl_call *call) {
    if (control_services.background_is_on == NULL) {
        return ENOENT;
    }
    if (!call->writes) {
        call->value.boolean = control_services.background_is_on();
        return 0;
    }
    return control_services.background_set(call->value.boolean) ? 0 : EFAULT;
}

/* 0 until the program sets it. */
static _Atomic size_t max_background_threads;

int root_max_background_threads(struct ctl_call *call) {
    union value most = {.size = 4};
    ctl_option("max_background_threads", &most);
    if (!call->writes) {
        size_t set = max_background_threads;
        call->value.size = set != 0 ? set : most.size;
        return 0;
    }
    if (call->value.size == 0 || call->value.size > most.size) {
        return EINVAL;
    }
    max_background_threads = call->value.size;
    return 0;
}

/* ---------------------------------------------------------------- config */

static int give_bool(struct ctl_call *call, bool value) {
    call->value.boolean = value;
    return 0;
}

int config_always(struct ctl_call *call) {
    return give_bool(call, true);
}

int config_never(struct ctl_call *call) {
    return give_bool(call, false);
}

int config_debug(struct ctl_call *call) {
    return give_bool(call, DEBUG);
}

int config_opt_safety_checks(struct ctl_call *call) {
    return give_bool(call, CHECKED);
}

int config_malloc_conf(struct ctl_call *call) {
    call->value.string = opt_source_text(OPT_FROM_BUILD);
    return 0;
}

/* ---------------------------------------------------------------- opt */

int opt_leaf_read(struct ctl_call *call) {
    call->value = opt_read(call->member.offset);
    return 0;
}

static int give_source(struct ctl_call *call, const char *text) {
    call->value.string = text;
    return text != NULL ? 0 : ENOENT;
}

int opt_source_symlink(struct ctl_call *call) {
    return give_source(call, opt_source_text(OPT_FROM_LINK));
}

int opt_source_env_var(struct ctl_call *call) {
    return give_source(call, opt_source_text(OPT_FROM_MALLOC_CONF));
}

int opt_source_global_var(struct ctl_call *call) {
    return give_source(call, opt_source_text(OPT_FROM_PROGRAM));
}

int opt_source_global_var_2_conf_harder(struct ctl_call *call) {
    return give_source(call, opt_source_text(OPT_FROM_PROGRAM_HARDER));
}
