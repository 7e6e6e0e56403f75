/* SPDX-License-Identifier: MIT
 *
 * listener.c - the thread that answers on the control socket.
 *
 * The caller that wants the thread opens the socket, so that there is somebody to tell what goes
 * wrong; the thread only serves.  All signals are blocked in it, and it has no cache.
 */
#define _GNU_SOURCE /* pthread_setname_np */
#include "api/listener.h"

#include <errno.h>
#include <pthread.h>

#include "api/background.h"
#include "api/life.h"
#include "base/log.h"
#include "base/os.h"
#include "base/own.h"
#include "control/control.h"
#include "heap/heap.h"
#include "opt/opt.h"
#include "out/out.h"

static void *run(void *unused) {
    (void)unused;
    thread_enroll();
    pthread_setname_np(pthread_self(), "tally-control");
    own_enroll();
    socket_serve();
    own_leave();
    return NULL;
}

int listener_start(unsigned rights) {
    if (!life_enter()) {
        return -EBUSY;
    }
    int error = socket_open(rights);
    life_leave();
    if (error != 0) {
        return error;
    }
    life_watch_exit();
    if (!background_make_thread(run)) {
        if (life_enter()) {
            socket_stop();
            socket_forked(); /* nobody serves the socket, as in a child */
            stats_page_tell_socket("", 0);
            life_leave();
        }
        return -EAGAIN;
    }
    return 0;
}

STARTUP void listener_start_by_option(void) {
    bool is_wanted = opt.control == CONTROL_READ || opt.control == CONTROL_WRITE;
    if (!is_wanted || !recorder_is_meant()) {
        return;
    }
    int saved = os_error();
    int error = listener_start((unsigned)opt.control);
    /* In a set-uid program, whoever set the option is told nothing. */
    if (error != 0 && error != -EPERM) {
        log_line("no control socket: %s (%d)", out_explain(error), -error);
    } else if (error == -EPERM && !os_facts.secure) {
        log_line("no control socket: its directory is not the user's alone, a filter of system "
                 "calls is there, or the process may not be dumped");
    }
    os_set_error(saved);
}

void listener_stop(void) {
    socket_stop();
}
