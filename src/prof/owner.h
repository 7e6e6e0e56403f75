/* SPDX-License-Identifier: MIT
 *
 * owner.h - the threads that appear in a profile, by number.
 *
 * A number is given to a thread when it is first sampled.  One that has ended keeps its line while it
 * has live samples; after that its past is added to a thread that stands for all of its name that are gone
 * (context.c), and the number is free, but numbers are given again only when there are very many.  Of those
 * that stand for others there are at most 64: later names share the one without a name.
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

/* The number of a new one; OWNER_NONE without memory. */
uint32_t owner_add(void);

/* The one that stands for all of this name that are gone; OWNER_NONE without memory. */
uint32_t owner_gone(const char *name);

struct owner *owner_at(uint32_t number);
uint32_t owner_count(void);

/* It has ended and has no contexts any more. */
void owner_release(uint32_t number);

/* After a holder of the lock has vanished. */
void owner_repair(void);
