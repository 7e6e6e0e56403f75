/* SPDX-License-Identifier: MIT
 *
 * prof_read.c - what the profiler has recorded, one copy at a time; no lock is held between calls.
 */
#include <string.h>

#include "base/os.h"
#include "opt/opt.h"
#include "prof/extract.h"
#include "prof/journal.h"
#include "prof/owner.h"
#include "prof/recent.h"
#include "prof/record.h"
#include "prof/sample.h"

/* ---------------------------------------------------------------- sums */

static struct prof_sum sum_of(const struct sums *sums) {
    return (struct prof_sum){
        .objects = sums->objects,
        .bytes = sums->bytes,
        .requested = sums->requested,
        .all_objects = (double)sums->all_objects / WEIGHT_ONE,
        .all_bytes = (double)sums->all_bytes / BYTE_ONE,
        .object_variance = sums->object_variance,
        .byte_variance = sums->byte_variance,
        .all_slack = (double)sums->all_slack / BYTE_ONE,
    };
}

uint32_t prof_context_count(void) {
    record_lock();
    uint32_t count = context_last();
    record_unlock();
    return count;
}

bool prof_read_context(uint32_t index, struct prof_context *context) {
    struct context copy;
    struct context_lives lives;
    if (!record_read_context(index + 1, &copy, &lives)) {
        return false;
    }
    *context = (struct prof_context){
        .stack = copy.stack,
        .thread = copy.owner,
        .size_lg = copy.size_lg,
        .live = sum_of(&copy.live),
        .accumulated = sum_of(&copy.accumulated),
        .peak = sum_of(&copy.peak),
    };
    for (unsigned i = 0; i < LIFETIME_STEPS; i++) {
        context->lives[i] = (struct prof_life){(double)lives.steps[i].objects / WEIGHT_ONE,
                                               (double)lives.steps[i].bytes / BYTE_ONE};
    }
    return true;
}

/* The ledger is copied a few records at a time: no lock may be held while the heap is asked. */
void prof_add_pinned(struct pinned_survey *survey, double *by_context, uint32_t contexts) {
    enum { AT_ONCE = 32 };
    struct record_kept kept[AT_ONCE];
    for (uint32_t next = 1; next != 0;) {
        unsigned count = record_read_kept(&next, kept, AT_ONCE);
        for (unsigned i = 0; i < count; i++) {
            uint32_t context = kept[i].context - 1;
            if (context < contexts) {
                double share = pinned_share(survey, kept[i].place, kept[i].usable);
                by_context[context] += share * ((double)kept[i].weight / WEIGHT_ONE);
            }
        }
    }
}

/* ---------------------------------------------------------------- threads and records */

uint32_t prof_thread_count(void) {
    record_lock();
    uint32_t count = owner_count();
    record_unlock();
    return count;
}

void prof_read_thread(uint32_t thread, char name[16], bool *has_ended) {
    name[0] = '\0';
    *has_ended = true;
    record_lock();
    if (thread < owner_count()) {
        memcpy(name, owner_at(thread)->name, 16);
        *has_ended = owner_at(thread)->has_ended;
    }
    record_unlock();
}

bool prof_peek(uint32_t id, struct prof_live *live) {
    return id != PROF_UNRECORDED && record_peek(id, live);
}

STARTUP void prof_read_totals(struct prof_totals *totals) {
    struct record_totals copy;
    record_read_totals(&copy);
    *totals = (struct prof_totals){
        .live = sum_of(&copy.live),
        .accumulated = sum_of(&copy.accumulated),
        .peak = sum_of(&copy.peak),
        .rate = copy.rate,
        .drops = copy.drops,
    };
}

size_t prof_memory(void) {
    return table_bytes();
}

bool prof_read_class(size_t usable, bool accumulated, struct prof_class_sum *sum) {
    struct record_class copy;
    record_read_class(usable, accumulated, &copy);
    *sum = (struct prof_class_sum){copy.requested, copy.count};
    return opt.prof_stats != 0;
}

/* ---------------------------------------------------------------- recent samples, and the log */

ssize_t prof_recent_max(void) {
    return recent_max();
}

STARTUP void prof_recent_set_max(ssize_t most) {
    record_lock();
    recent_set_max(most);
    while (recent_forget_some()) { /* Let others have the lock in between. */
        record_unlock();
        record_lock();
    }
    record_unlock();
}

uint64_t prof_recent_last(void) {
    record_lock();
    uint64_t last = recent_last();
    record_unlock();
    return last;
}

bool prof_recent_walk(uint64_t *cursor, struct prof_event *event) {
    struct recent copy;
    record_lock();
    bool found = recent_after(*cursor, &copy);
    record_unlock();
    if (found) {
        *cursor = copy.sequence;
        *event = copy.event;
    }
    return found;
}

bool prof_log_start(void) {
    uint64_t now = os_now_ns();
    struct table old = {0};
    record_lock();
    bool done = journal_start(now, &old);
    record_unlock();
    table_clear(&old);
    return done;
}

bool prof_log_stop(void) {
    uint64_t now = os_now_ns();
    record_lock();
    bool done = journal_stop(now);
    record_unlock();
    return done;
}

bool prof_log_is_on(void) {
    return journal_is_on();
}

/* Giving much memory back takes a while, so the lock is released first. */
void prof_log_forget(void) {
    struct table old = {0};
    record_lock();
    journal_forget(&old);
    record_unlock();
    table_clear(&old);
}

uint64_t prof_log_duration(void) {
    uint64_t now = os_now_ns();
    record_lock();
    uint64_t duration = journal_duration(now);
    record_unlock();
    return duration;
}

bool prof_log_read(uint32_t number, struct prof_event *event) {
    record_lock();
    bool found = number < journal_count();
    if (found) {
        *event = *journal_at(number);
    }
    record_unlock();
    return found;
}
