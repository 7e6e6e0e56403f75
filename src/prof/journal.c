/* SPDX-License-Identifier: MIT
 *
 * journal.c - a table of events.
 */
#include "prof/journal.h"

#include "prof/record.h"
#include "base/table.h"

static struct {
    struct table events;
    uint32_t count;
    uint64_t started_ns, stopped_ns;
} g = {.events.item_bytes = sizeof(struct prof_event)};

_Atomic bool journal_on;

bool journal_start(uint64_t now_ns, struct table *old) {
    if (journal_on) {
        return false;
    }
    journal_forget(old);
    journal_on = true;
    g.started_ns = now_ns;
    return true;
}

bool journal_stop(uint64_t now_ns) {
    if (!journal_on) {
        return false;
    }
    journal_on = false;
    g.stopped_ns = now_ns;
    return true;
}

uint64_t journal_duration(uint64_t now_ns) {
    return (journal_on ? now_ns : g.stopped_ns) - g.started_ns;
}

/* Without memory the event is left out. */
void journal_note(uint32_t number, const struct context *context, const struct record_end *end) {
    if (!journal_is_on() || g.count == UINT32_MAX || !table_reach(&g.events, g.count)) {
        return;
    }
    const struct record *record = record_at(number);
    *journal_at(g.count++) = (struct prof_event){
        .stack = context->stack,
        .thread = context->owner,
        .freed_stack = end->stack,
        .freed_thread = end->owner,
        .born_ns = record_origin(number)->birth_ns,
        .freed_ns = end->ns,
        .requested = record_requested(record),
        .usable = record->usable,
        .is_freed = true,
        .end_is_known = true,
    };
}

uint32_t journal_count(void) {
    return g.count;
}

struct prof_event *journal_at(uint32_t number) {
    return table_at(&g.events, number);
}

void journal_forget(struct table *old) {
    g.count = 0;
    table_move(&g.events, old);
}
