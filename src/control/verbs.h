/* SPDX-License-Identifier: MIT
 *
 * verbs.h - what can be asked for on the control socket.
 *
 * Threads     Called by the thread of the socket only, outside of the allocator and with no lock
 *             held.
 */
#pragma once

#include "contract/wire.h"

/* In the order of the values of the option control. */
enum verbs_right { VERBS_NONE, VERBS_READ, VERBS_WRITE };

struct verbs_request {
    const struct wire_message *message;
    enum verbs_right right; /* of who asks */
    int output;             /* the descriptor that came with the request, or -1; stays open */
};

/* Does what is asked and writes the reply.  Returns the code of an error, which is then the reply,
 * or 0. */
unsigned verbs_answer(const struct verbs_request *request, struct wire_writer *reply);

/* Does this verb need VERBS_WRITE? */
bool verbs_changes(const char *name);
