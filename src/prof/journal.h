/* SPDX-License-Identifier: MIT
 *
 * journal.h - prof_log: sampled objects that were freed while the log was on.
 *
 * Threads     Call with the ledger locked (record.h), except journal_is_on.
 */
#pragma once

#include <stdatomic.h>

#include "base/common.h"
#include "prof/prof.h"

struct context;
struct record_end;

struct table;

/* False when it is on, or off, already.  Starting does the work of journal_forget, too. */
bool journal_start(uint64_t now_ns, struct table *old);
bool journal_stop(uint64_t now_ns);
extern _Atomic bool journal_on HIDDEN;
static inline bool journal_is_on(void) {
    return atomic_load_explicit(&journal_on, memory_order_relaxed);
}

/* Time from start to stop, or until now. */
uint64_t journal_duration(uint64_t now_ns);

void journal_note(uint32_t number, const struct context *context, const struct record_end *end);

/* Events in the order they were noted. */
uint32_t journal_count(void);
struct prof_event *journal_at(uint32_t number);

/* The memory goes to `old`, an empty table, to be given back once the lock is released. */
void journal_forget(struct table *old);
