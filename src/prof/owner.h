/* SPDX-License-Identifier: MIT
 *
 * owner.h - the threads that appear in a profile, by number.
 *
 * A thread gets a number when it is first sampled.  One that has ended keeps its line while it has
 * live samples; after that its past is added to a thread that stands for all ended threads of its
 * name (context.c), and the number is free, but numbers are reused only when there are very many.
 * At most 64 threads stand for others: later names share the one without a name.
 *
 * Threads     Call with the ledger locked (record.h).
 */
#pragma once

#include "base/common.h"

struct owner {
    char name[16];
    uint32_t first_context; /* its contexts, linked; 0: none */
    uint32_t next_free;
    bool has_ended;
    bool is_heir; /* stands for others, and is never released */
};

enum { OWNER_NONE = UINT32_MAX };

/* The number of a new thread; OWNER_NONE without memory. */
uint32_t owner_add(void);

/* The thread that stands for all ended ones of this name; OWNER_NONE without memory. */
uint32_t owner_gone(const char *name);

struct owner *owner_at(uint32_t number);
uint32_t owner_count(void);

/* The thread has ended and has no contexts left. */
void owner_release(uint32_t number);

/* After a holder of the lock has vanished. */
void owner_repair(void);
