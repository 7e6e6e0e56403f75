/* SPDX-License-Identifier: MIT
 *
 * mapping.c - the set of ranges that the program has mapped, each with the record of who mapped it.
 *
 *      ranges   ascending, none overlap:   [start, end) record      [start, end) record ...
 *
 * A record has as many bytes as its ranges together.  Unmapping part of a range shrinks it and its
 * record; a hole in the middle leaves two ranges of the same record, which ends with its last byte.
 *
 * A mapping is recorded after the kernel has made it, since its address was not known before.
 * Memory is unmapped with the lock held: the kernel may give the addresses to another thread at
 * once, and that thread must find the old range gone.  A call that we do not see (in a signal
 * handler that interrupts the allocator, or a system call by hand) leaves a range that no longer
 * exists; it goes when something else is mapped at its addresses.
 *
 * At most 65536 ranges are known, about as many as the kernel allows; any more count as drops.
 *
 * Fork.  The child may find the lock held by a thread that it does not have.  A range is valid from
 * the moment its record is stored until the record is 0 again, so the order can be rebuilt; the
 * record that was being changed may keep bytes that are gone.
 *
 * Threads     One lock.  Stacks are walked before it is taken.
 */
#include "prof/mapping.h"

#include <stdatomic.h>
#include <string.h>

#include "base/lock.h"
#include "base/os.h"
#include "opt/opt.h"
#include "prof/prof.h"
#include "prof/record.h"
#include "prof/sample.h"

enum { MOST = 1 << 16 };

struct range {
    uintptr_t start, end;
    uint32_t record; /* 0: unused */
};

_Atomic uint32_t mapping_mode;

static struct {
    struct lock lock;
    struct range *ranges; /* MOST of them, and behind them `order`; NULL: not yet */
    uint32_t *order;      /* numbers of ranges: those in use, ascending, then the others */
    _Atomic uint32_t count;
    uint32_t known; /* ranges ever used; nothing has been written to the others */
} g = {.lock = LOCK_OF_RANK(RANK_MAPPINGS)};

STARTUP void mapping_init(void) {
    uint32_t mode = (opt.prof_mmap ? MAPPING_RECORD : 0u) | (opt.prof_mmap_log ? MAPPING_LOG : 0u);
    if (mode != 0) { /* Do not touch a page for nothing. */
        mapping_mode = mode;
    }
}

/* ---------------------------------------------------------------- the set */

static struct range *range_at(uint32_t place) {
    return &g.ranges[g.order[place]];
}

/* The first range that ends behind this address. */
static uint32_t find(uintptr_t address) {
    uint32_t low = 0;
    uint32_t high = g.count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (range_at(middle)->end > address) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static void put_into_order(uint32_t number) {
    uint32_t place = find(g.ranges[number].start);
    memmove(&g.order[place + 1], &g.order[place], (g.count - place) * sizeof(g.order[0]));
    g.order[place] = number;
    g.count++;
}

static bool has_memory(void) {
    if (g.ranges == NULL) {
        struct range *ranges = os_map(MOST * (sizeof(ranges[0]) + sizeof(g.order[0])));
        if (ranges == NULL) {
            return false;
        }
        g.order = (uint32_t *)(ranges + MOST);
        g.ranges = ranges;
    }
    return true;
}

/* Adds a range that overlaps no other.  False when there are too many. */
static bool insert(uintptr_t start, uintptr_t end, uint32_t record) {
    if (!has_memory() || g.count == MOST) {
        return false;
    }
    if (g.count == g.known) {
        g.order[g.known] = g.known;
        g.known++;
    }
    uint32_t number = g.order[g.count];
    struct range *range = &g.ranges[number];
    range->start = start;
    range->end = end;
    /* Valid from here on, for a child as well. */
    __atomic_store_n(&range->record, record, __ATOMIC_RELEASE);
    put_into_order(number);
    return true;
}

static void erase(uint32_t place) {
    uint32_t number = g.order[place];
    g.count--;
    memmove(&g.order[place], &g.order[place + 1], (g.count - place) * sizeof(g.order[0]));
    g.order[g.count] = number;
    __atomic_store_n(&g.ranges[number].record, 0, __ATOMIC_RELEASE);
}

static COLD void repair(void) {
    uint32_t unused = g.known;
    g.count = 0;
    for (uint32_t number = 0; number < g.known; number++) {
        uint32_t record = g.ranges[number].record;
        if (record != 0 && record_at(record)->generation != RECORD_TAKEN) {
            put_into_order(number);
        } else {
            g.ranges[number].record = 0;
            g.order[--unused] = number;
        }
    }
}

static void enter(void) {
    if (UNLIKELY(lock_acquire(&g.lock) == LOCK_ABANDONED)) {
        repair();
    }
}

/* ---------------------------------------------------------------- what happens to it */

static void take_bytes(uint32_t record, uint64_t bytes) {
    uint64_t had = record_at(record)->usable;
    record_shrink_mapping(record, had - min_size(had, bytes));
}

/* Cuts [low, high) out of the range at this place; returns the place of the next. */
static uint32_t cut(uint32_t place, uintptr_t low, uintptr_t high) {
    struct range *range = range_at(place);
    uint32_t record = range->record;
    uintptr_t end = range->end;
    bool is_gone = low == range->start && high == end;
    if (is_gone) {
        erase(place);
    } else if (low == range->start) {
        range->start = high;
    } else {
        range->end = low;
        if (high < end && !insert(high, end, record)) {
            high = end; /* What lies behind the hole is forgotten. */
            record_note_drop();
        }
    }
    take_bytes(record, high - low);
    return is_gone ? place : place + 1;
}

static void forget(uintptr_t start, uintptr_t end) {
    for (uint32_t place = find(start); place < g.count && range_at(place)->start < end;) {
        const struct range *range = range_at(place);
        place = cut(place, max_size(range->start, start), min_size(range->end, end));
    }
}

/* `id` is a new record of these bytes, or 0. */
static void replace(uintptr_t start, uintptr_t end, uint32_t id) {
    forget(start, end);
    if (id == 0) {
        return;
    }
    if (insert(start, end, id)) {
        prof_recorded_mapping(id);
    } else {
        prof_unrecord(id);
        record_note_drop();
    }
}

/* ---------------------------------------------------------------- calls */

static size_t whole_pages(size_t bytes) {
    return align_up(bytes, os_facts.page_bytes);
}

static bool records(void) {
    return mapping_mode & MAPPING_RECORD;
}

static void add(uintptr_t start, size_t bytes) {
    uint32_t id = prof_record_mapping(bytes);
    if (id != 0 || g.count > 0) {
        enter();
        replace(start, start + bytes, id);
        lock_release(&g.lock);
    }
}

void mapping_added(uintptr_t start, size_t bytes) {
    if (records()) {
        add(start, whole_pages(bytes));
    }
}

intptr_t mapping_unmap(void *start, size_t bytes) {
    if (g.count == 0) {
        return os_unmap(start, bytes);
    }
    enter();
    int error = os_unmap(start, bytes);
    if (error == 0) {
        forget((uintptr_t)start, (uintptr_t)start + whole_pages(bytes));
    }
    lock_release(&g.lock);
    return error;
}

/* Memory that stays where it is and does not grow keeps its record; otherwise it gets a new one. */
intptr_t mapping_remap(const struct os_remap_call *call) {
    size_t bytes = whole_pages(call->bytes);
    size_t old_bytes = whole_pages(call->old_bytes);
    uintptr_t old = (uintptr_t)call->old;
    bool stays = bytes <= old_bytes && !(call->flags & OS_REMAP_HAS_ADDRESS);
    uint32_t id = stays || !records() ? 0 : prof_record_mapping(bytes);
    enter();
    intptr_t answer = os_remap_for_program(call);
    if (os_is_error(answer)) {
        if (id != 0) {
            prof_unrecord(id);
        }
    } else if (stays) {
        forget(old + bytes, old + old_bytes);
    } else {
        if (!(call->flags & OS_REMAP_KEEPS_OLD)) {
            forget(old, old + old_bytes);
        }
        replace((uintptr_t)answer, (uintptr_t)answer + bytes, id);
    }
    lock_release(&g.lock);
    return answer;
}

/* libc keeps the end of the break for itself and takes no lock. */
void *mapping_break(intptr_t increment) {
    void *before = os_break_for_program(increment);
    uintptr_t end = (uintptr_t)before;
    if (before == (void *)-1 || !records()) {
        return before;
    }
    if (increment > 0) {
        add(end, (size_t)increment);
    } else if (increment < 0 && g.count > 0) {
        enter();
        forget(end - (size_t)-increment, end);
        lock_release(&g.lock);
    }
    return before;
}

struct mapping_sum mapping_read(void) {
    struct mapping_sum sum = {0};
    enter();
    sum.ranges = g.count;
    for (uint32_t place = 0; place < g.count; place++) {
        sum.bytes += range_at(place)->end - range_at(place)->start;
    }
    lock_release(&g.lock);
    return sum;
}
