/* SPDX-License-Identifier: MIT
 *
 * listener.h - the thread that answers on the control socket (control/socket.c).
 *
 * Threads     Call outside of the allocator (life.h), without any lock.
 */
#pragma once

#include "base/common.h"

/* Opens the socket with CONTROL_READ or CONTROL_WRITE and makes the thread: 0 or -errno. */
int listener_start(unsigned rights);

/* The same, if the option control says so; a failure is printed as one line. */
void listener_start_by_option(void);

/* Closes the socket and ends the thread; also called when the process ends. */
void listener_stop(void);
