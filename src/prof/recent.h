/* SPDX-License-Identifier: MIT
 *
 * recent.h - the last samples one by one, oldest first: prof_recent.
 *
 * Threads     Call with the ledger locked (record.h), except recent_max.
 */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "base/common.h"
#include "prof/prof.h"

struct record;
struct record_end;

struct recent {
    struct prof_event event;
    uint32_t record;   /* number of the record, while it lives */
    uint32_t next;     /* younger, or unused */
    uint64_t sequence; /* from 1 on; 0: unused */
};

/* How many are kept; -1 all, 0 none. */
extern _Atomic int64_t recent_most HIDDEN;
static inline ssize_t recent_max(void) {
    return (ssize_t)atomic_load_explicit(&recent_most, memory_order_relaxed);
}
void recent_set_max(ssize_t most);

/* Forgets some of those beyond that number; false when there are no more. */
bool recent_forget_some(void);

/* The number of the youngest; 0 when there never was one. */
uint64_t recent_last(void);

void recent_enter(uint32_t number, struct record *record, uint32_t stack, uint32_t owner);
void recent_leave(struct record *record, const struct record_end *end);

/* A copy of the oldest one younger than `sequence`; false when there is none. */
bool recent_after(uint64_t sequence, struct recent *copy);

/* After a holder of the lock has vanished: forgets all. */
void recent_repair(void);
