/* SPDX-License-Identifier: MIT
 *
 * large.c - objects that own whole units.
 *
 * A block uses pages up to its size and takes addresses up to a whole unit; the rest of the last
 * unit is never touched, so 36 KiB cost 36 KiB of memory and 48 KiB of addresses.
 *
 *      |<------------- units ------------->|
 *      |<---- bytes (page multiple) --->|..|
 *
 * Threads     The kind of the span changes by compare and swap, so of two racing frees one wins and
 *             the other is told.
 * Invariant   bytes <= units * UNIT_BYTES < bytes + UNIT_BYTES.
 */
#include "heap/large.h"

#include <stdatomic.h>

#include "base/os.h"

static struct {
    _Atomic size_t count;
    _Atomic size_t bytes;
} g;

/* Nothing near the end of the address space: rounding below must not wrap. */
static const size_t most_bytes = (size_t)1 << 46;

static size_t units_for(size_t bytes) {
    return (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
}

size_t large_usable_bytes(size_t bytes) {
    return align_up(max_size(bytes, 1), os_facts.page_bytes);
}

static void account(size_t blocks, size_t bytes) {
    atomic_fetch_add_explicit(&g.count, blocks, memory_order_relaxed);
    atomic_fetch_add_explicit(&g.bytes, bytes, memory_order_relaxed);
}

void *large_alloc(size_t bytes, size_t alignment, enum pages_growth growth, bool *zeroed) {
    if (bytes > most_bytes || alignment > most_bytes / 2) {
        return NULL;
    }
    size_t usable = large_usable_bytes(bytes);
    size_t alignment_units = max_size(alignment / UNIT_BYTES, 1);
    struct span *span = pages_take(units_for(usable), alignment_units, growth, zeroed);
    if (span == NULL) {
        return NULL;
    }
    span->bytes = usable;
    /* Release: whoever gets the pointer and frees it finds the span complete. */
    __atomic_store_n(&span->kind, SPAN_LARGE, __ATOMIC_RELEASE);
    account(1, usable);
    return (void *)span->base;
}

bool large_free(struct span *span) {
    uint8_t expected = SPAN_LARGE;
    if (!__atomic_compare_exchange_n(&span->kind, &expected, SPAN_NONE, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED)) {
        return false;
    }
    account(-(size_t)1, -span->bytes);
    pages_give_back(span->base, units_for(span->bytes));
    return true;
}

bool large_resize(struct span *span, size_t bytes) {
    if (bytes > most_bytes) {
        return false;
    }
    size_t usable = large_usable_bytes(bytes);
    size_t have = units_for(span->bytes);
    size_t want = units_for(usable);
    if (want > have && !pages_extend(span->base, have, want - have)) {
        return false;
    }
    account(0, usable - span->bytes);
    span->bytes = usable;
    if (want < have) {
        pages_give_back(span->base + want * UNIT_BYTES, have - want);
    }
    return true;
}

size_t large_count(void) {
    return atomic_load_explicit(&g.count, memory_order_relaxed);
}

size_t large_bytes(void) {
    return atomic_load_explicit(&g.bytes, memory_order_relaxed);
}
