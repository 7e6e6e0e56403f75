/* SPDX-License-Identifier: MIT
 *
 * recent.c - a queue of samples.
 *
 * The record of a live sample knows its entry, so a free finds it at once.  Readers go through the
 * queue entry by entry and release the lock in between; `at` remembers where the last one was.
 */
#include "prof/recent.h"

#include "prof/record.h"
#include "base/table.h"

static struct {
    struct table entries; /* from 1 on */
    uint32_t last;
    uint32_t unused;
    uint32_t oldest, youngest;
    uint64_t sequence;
    uint64_t count;
    uint32_t at; /* the entry that recent_after gave last, or any other */
} g = {.entries.item_bytes = sizeof(struct recent)};

_Atomic int64_t recent_most;

static struct recent *entry_at(uint32_t number) {
    return table_at(&g.entries, number);
}

static void forget_oldest(void) {
    uint32_t number = g.oldest;
    struct recent *entry = entry_at(number);
    if (entry->record != 0) {
        atomic_store_explicit(&record_at(entry->record)->recent, 0, memory_order_relaxed);
    }
    g.oldest = entry->next;
    g.youngest = g.oldest != 0 ? g.youngest : 0;
    entry->sequence = 0;
    entry->next = g.unused;
    g.unused = number;
    g.count--;
}

static bool has_surplus(void) {
    return recent_most >= 0 && g.count > (uint64_t)recent_most;
}

STARTUP bool recent_forget_some(void) {
    enum { AT_ONCE = 64 };
    for (unsigned i = 0; i < AT_ONCE && has_surplus(); i++) {
        forget_oldest();
    }
    return has_surplus();
}

uint64_t recent_last(void) {
    return g.sequence;
}

STARTUP void recent_set_max(ssize_t most) {
    recent_most = most;
}

static uint32_t take_entry(void) {
    uint32_t number = g.unused;
    if (number != 0) {
        g.unused = entry_at(number)->next;
        return number;
    }
    return table_reach(&g.entries, g.last + 1) ? ++g.last : 0;
}

/* Without memory the sample is left out. */
void recent_enter(uint32_t number, struct record *record, uint32_t stack, uint32_t owner) {
    uint32_t at = recent_max() != 0 ? take_entry() : 0;
    atomic_store_explicit(&record->recent, at, memory_order_relaxed);
    if (at == 0) {
        return;
    }
    *entry_at(at) = (struct recent){
        .event =
            {
                .stack = stack,
                .thread = owner,
                .born_ns = record_origin(number)->birth_ns,
                .requested = record_requested(record),
                .usable = record->usable,
            },
        .record = number,
        .sequence = ++g.sequence,
    };
    if (g.youngest != 0) {
        entry_at(g.youngest)->next = at;
    } else {
        g.oldest = at;
    }
    g.youngest = at;
    g.count++;
    (void)recent_forget_some();
}

void recent_leave(struct record *record, const struct record_end *end) {
    uint32_t at = atomic_load_explicit(&record->recent, memory_order_relaxed);
    if (at == 0) {
        return;
    }
    struct prof_event *event = &entry_at(at)->event;
    event->is_freed = true;
    event->end_is_known = end->stack != 0;
    event->freed_ns = end->ns;
    event->freed_stack = end->stack;
    event->freed_thread = end->owner;
    entry_at(at)->record = 0;
    atomic_store_explicit(&record->recent, 0, memory_order_relaxed);
}

bool recent_after(uint64_t sequence, struct recent *copy) {
    uint32_t number = g.oldest;
    if (g.at != 0 && entry_at(g.at)->sequence == sequence && sequence != 0) {
        number = entry_at(g.at)->next;
    } else {
        while (number != 0 && entry_at(number)->sequence <= sequence) {
            number = entry_at(number)->next;
        }
    }
    if (number == 0) {
        return false;
    }
    *copy = *entry_at(number);
    g.at = number;
    return true;
}

/* All entries are lost, and the records forget that they had one. */
void recent_repair(void) {
    for (uint32_t i = 1; i <= g.last; i++) {
        struct recent *entry = entry_at(i);
        if (entry->record != 0) {
            atomic_store_explicit(&record_at(entry->record)->recent, 0, memory_order_relaxed);
        }
        *entry = (struct recent){.next = i > 1 ? i - 1 : 0};
    }
    g.unused = g.last;
    g.oldest = g.youngest = g.at = 0;
    g.count = 0;
}
