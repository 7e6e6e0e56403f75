/* SPDX-License-Identifier: MIT
 *
 * context.c - a hash table of contexts that grows by one bucket at a time.
 *
 * The lock is held for every change, so no change may take long: instead of doubling the table at
 * once, each new context splits one bucket, in order (linear hashing).
 *
 *      buckets   0 .. split-1       split .. size-1       size .. size+split-1
 *                were split in two  not yet               the second halves
 *
 * Threads     Call with the ledger locked.
 */
#include "prof/context.h"

#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "prof/owner.h"

enum { FIRST_SIZE = 256, SWEPT_AT_ONCE = 64 };

static struct {
    struct table buckets; /* numbers of contexts */
    uint32_t last;
    uint32_t unused; /* list of contexts */
    uint32_t size;   /* of the table when it was last complete; 0: no table yet */
    uint32_t split;
} g = {.buckets.item_bytes = sizeof(uint32_t)};

struct table context_table = {.item_bytes = sizeof(struct context)}; /* from 1 on */
struct table context_lives_table = {.item_bytes = sizeof(struct context_lives)};

uint32_t context_last(void) {
    return g.last;
}

/* ---------------------------------------------------------------- buckets */

static uint32_t hash(uint32_t stack, uint32_t owner, uint32_t size_lg) {
    uint64_t mixed = hash_word((stack | (uint64_t)owner << 32) ^ (uint64_t)size_lg << 58);
    return (uint32_t)(hash_word(mixed ^ mixed >> 29) >> 32);
}

static uint32_t *bucket_of(uint32_t stack, uint32_t owner, uint32_t size_lg) {
    uint32_t mixed = hash(stack, owner, size_lg);
    uint32_t at = mixed & (g.size - 1);
    if (at < g.split) {
        at = mixed & (2 * g.size - 1);
    }
    return table_at(&g.buckets, at);
}

/* Adds a bucket, which takes its share of an old one.  Without memory, chains get longer. */
static void split_bucket(void) {
    if (g.size > UINT32_MAX / 4 || !table_reach(&g.buckets, g.size + g.split)) {
        return;
    }
    uint32_t *old = table_at(&g.buckets, g.split);
    uint32_t number = *old;
    *old = 0;
    *(uint32_t *)table_at(&g.buckets, g.size + g.split) = 0;
    g.split++;
    while (number != 0) {
        struct context *context = context_at(number);
        uint32_t next = context->next;
        uint32_t *bucket = bucket_of(context->stack, context->owner, context->size_lg);
        context->next = *bucket;
        *bucket = number;
        number = next;
    }
    if (g.split == g.size) {
        g.size *= 2;
        g.split = 0;
    }
}

static bool make_buckets(void) {
    if (g.size == 0 && table_reach(&g.buckets, FIRST_SIZE - 1)) {
        g.size = FIRST_SIZE;
    }
    return g.size != 0;
}

static void link_in_bucket(uint32_t number) {
    struct context *context = context_at(number);
    uint32_t *bucket = bucket_of(context->stack, context->owner, context->size_lg);
    context->next = *bucket;
    *bucket = number;
}

static void unlink_from_bucket(uint32_t number) {
    const struct context *context = context_at(number);
    uint32_t *link = bucket_of(context->stack, context->owner, context->size_lg);
    while (*link != number) {
        ensure(*link != 0);
        link = &context_at(*link)->next;
    }
    *link = context->next;
}

/* ---------------------------------------------------------------- siblings */

static void link_to_owner(uint32_t number) {
    struct context *context = context_at(number);
    struct owner *owner = owner_at(context->owner);
    context->sibling_before = 0;
    context->sibling_after = owner->first_context;
    if (owner->first_context != 0) {
        context_at(owner->first_context)->sibling_before = number;
    }
    owner->first_context = number;
}

static void unlink_from_owner(uint32_t number) {
    const struct context *context = context_at(number);
    struct owner *owner = owner_at(context->owner);
    if (context->sibling_before != 0) {
        context_at(context->sibling_before)->sibling_after = context->sibling_after;
    } else {
        owner->first_context = context->sibling_after;
    }
    if (context->sibling_after != 0) {
        context_at(context->sibling_after)->sibling_before = context->sibling_before;
    }
    if (owner->has_ended && owner->first_context == 0) {
        owner_release(context->owner);
    }
}

uint32_t context_of_owner(uint32_t owner, uint32_t after) {
    return after == 0 ? owner_at(owner)->first_context : context_at(after)->sibling_after;
}

/* ---------------------------------------------------------------- finding and forgetting */

static void begin_anew(uint32_t number, uint32_t generation) {
    struct context *context = context_at(number);
    context->generation = generation;
    context->peak_number = 0;
    context->live = context->accumulated = context->peak = (struct sums){0};
    memset(context_lives(number), 0, sizeof(struct context_lives));
}

static uint32_t take_unused(void) {
    uint32_t number = g.unused;
    if (number != 0) {
        g.unused = context_at(number)->next;
        return number;
    }
    bool has_room =
        table_reach(&context_table, g.last + 1) && table_reach(&context_lives_table, g.last + 1);
    return has_room ? ++g.last : 0;
}

static uint32_t add(uint32_t stack, uint32_t owner, uint32_t size_lg, uint32_t generation) {
    uint32_t number = take_unused();
    if (number == 0) {
        return 0;
    }
    struct context *context = context_at(number);
    context->stack = stack;
    context->owner = owner;
    context->size_lg = size_lg;
    begin_anew(number, generation);
    link_in_bucket(number);
    link_to_owner(number);
    split_bucket();
    return number;
}

uint32_t context_find(uint32_t stack, uint32_t owner, uint32_t size_lg, uint32_t generation) {
    if (UNLIKELY(!make_buckets())) {
        return 0;
    }
    for (uint32_t number = *bucket_of(stack, owner, size_lg); number != 0;) {
        struct context *context = context_at(number);
        if (context->stack == stack && context->owner == owner && context->size_lg == size_lg) {
            if (context->generation != generation) {
                begin_anew(number, generation);
            }
            return number;
        }
        number = context->next;
    }
    return add(stack, owner, size_lg, generation);
}

static void forget(uint32_t number) {
    struct context *context = context_at(number);
    unlink_from_bucket(number);
    unlink_from_owner(number);
    context->generation = 0;
    context->next = g.unused;
    g.unused = number;
}

void context_retire(uint32_t number, uint64_t peak_number) {
    struct context *context = context_at(number);
    if (!owner_at(context->owner)->has_ended || context->live.objects != 0) {
        return;
    }
    uint32_t gone = owner_gone(owner_at(context->owner)->name);
    if (gone == context->owner || gone == OWNER_NONE) {
        return;
    }
    uint32_t heir_number =
        context_find(context->stack, gone, context->size_lg, context->generation);
    if (heir_number == 0) {
        return;
    }
    struct context *heir = context_at(heir_number);
    context_save(context, peak_number);
    context_save(heir, peak_number);
    sums_add(&heir->accumulated, &context->accumulated);
    sums_add(&heir->peak, &context->peak);
    for (unsigned i = 0; i < LIFETIME_STEPS; i++) {
        context_lives(heir_number)->steps[i].objects += context_lives(number)->steps[i].objects;
        context_lives(heir_number)->steps[i].bytes += context_lives(number)->steps[i].bytes;
    }
    forget(number);
}

STARTUP uint32_t context_sweep(uint32_t from, uint32_t generation) {
    uint32_t end = from + SWEPT_AT_ONCE;
    for (uint32_t i = from; i < end; i++) {
        if (i > g.last) {
            return 0;
        }
        uint32_t its = context_at(i)->generation;
        if (its != 0 && its != generation) {
            forget(i);
        }
    }
    return end;
}

void context_rebuild(void) {
    if (g.split == g.size) {
        g.size *= 2;
        g.split = 0;
    }
    for (uint32_t i = 0; i < g.size + g.split; i++) {
        *(uint32_t *)table_at(&g.buckets, i) = 0;
    }
    for (uint32_t i = 0; i < owner_count(); i++) {
        owner_at(i)->first_context = 0;
    }
    g.unused = 0;
    for (uint32_t i = 1; i <= g.last; i++) {
        struct context *context = context_at(i);
        if (context->generation != 0) {
            link_in_bucket(i);
            link_to_owner(i);
        } else {
            context->next = g.unused;
            g.unused = i;
        }
    }
}
