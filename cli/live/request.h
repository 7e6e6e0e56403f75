/* SPDX-License-Identifier: MIT
 *
 * request.h - asks a running process for something, over its control socket.
 *
 * The socket is reached through the root directory that the process sees, so it may live in another
 * mount namespace; only the process that was meant may answer.
 */
#pragma once

#include "common/cli.h"
#include "contract/wire.h"
#include "live/target.h"

struct reply {
    char bytes[WIRE_MOST_BYTES];
    struct wire_message message;
};

/*
 * Sends what the writer holds, with a descriptor for the output unless it is -1, and waits for the
 * answer.  Any answer but "ok" becomes a sentence and its exit code, and so does silence, with a
 * sentence of its own for a process that is stopped.
 */
enum exit_code request_send(const struct target *target, struct wire_writer *request, int output,
                            uint64_t wait_ns, struct reply *reply);

/* The number of a field; 0 when it is not there. */
uint64_t request_number(const struct reply *reply, const char *key);
