/* SPDX-License-Identifier: MIT
 *
 * record.c - entering, leaving and summing up.
 *
 * Weights.  An object of s bytes is sampled with probability p = 1 - e^(-s/R), so it stands for 1/p
 * objects.  The weight is computed when the object is entered and kept with the record: another
 * rate does not change how likely it was to be sampled.  A resize is a free and an allocation: it
 * is decided anew, and what is sampled then has a record of its own (sample.c).
 *
 * Variance.  A sum over samples of values v / p estimates that of v over all objects, and the sum
 * of v^2 (1 - p) / p^2 over the same samples estimates its variance; with the weight w = 1 / p that
 * is v^2 w (w - 1).
 *
 * Fork.  The child may find the lock held by a thread that it does not have.  Then the records are
 * the truth: links are rebuilt and the live sums counted again.
 *
 * Read next   context.c for peaks and contexts.
 */
#include "prof/record.h"

#include <string.h>

#include "base/bits.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/real.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "opt/opt.h"
#include "prof/journal.h"
#include "prof/owner.h"
#include "prof/recent.h"
#include "prof/sample.h"
#include "prof/tell.h"

enum { CLASSES = CLASS_COUNT + LEXTENT_CLASSES, WEIGHTS_LG = 8 };

/* Weights computed before. */
struct weight {
    uint64_t usable, rate, weight;
};

/* Not part of g: what has initial values takes up space in the library's file, too. */
SPARSE static struct weight weights[1 << WEIGHTS_LG];
SPARSE static struct record_class classes[2][CLASSES]; /* live, accumulated */

static struct {
    struct lock lock;
    uint32_t last;
    struct table unused; /* numbers that nobody uses; there is always room for all */
    uint32_t nunused;
    uint32_t generation;
    uint64_t rate;
    uint64_t peak_number;
    struct sums live, accumulated, peak;
    _Atomic uint64_t drops;
} g = {.lock = LOCK_OF_RANK(RANK_PROF),
       .unused.item_bytes = sizeof(uint32_t),
       .generation = 1,
       .rate = 1};

struct table record_origins = {.item_bytes = sizeof(struct record_origin)};
struct table record_table = {.item_bytes = sizeof(struct record)}; /* from 1 on */

/* ---------------------------------------------------------------- sums */

static uint64_t compute_weight(uint64_t usable, uint64_t rate) {
    enum { SURE = 12 }; /* 1 / (1 - e^-12) is 1 in 65536ths */
    if (usable / rate >= SURE) {
        return WEIGHT_ONE;
    }
    double weight = WEIGHT_ONE / real_one_minus_exp((double)usable / (double)rate);
    /* What a sample stands for is bounded, or sums would overflow. */
    const double most = (double)(UINT64_C(1) << 60);
    assert(weight >= WEIGHT_ONE);
    return (uint64_t)((weight < most ? weight : most) + 0.5);
}

static inline uint64_t weight_of(uint64_t usable) {
    if (g.rate <= 1) {
        return WEIGHT_ONE;
    }
    struct weight *known = &weights[hash_place(usable, WEIGHTS_LG)];
    if (known->usable != usable || known->rate != g.rate) {
        *known = (struct weight){usable, g.rate, compute_weight(usable, g.rate)};
    }
    return known->weight;
}

/* usable * weight, rounded. */
static inline uint64_t weighted_bytes(uint64_t usable, uint64_t weight) {
    enum { UNIT = WEIGHT_ONE / BYTE_ONE };
    if (weight == WEIGHT_ONE) {
        return usable * BYTE_ONE;
    }
    return (uint64_t)(((unsigned __int128)usable * weight + UNIT / 2) / UNIT);
}

static inline struct sums sums_of_record(const struct record *record) {
    struct sums sums = {
        .objects = 1,
        .bytes = record->usable,
        .requested = record_requested(record),
        .all_objects = record->weight,
        .all_bytes = weighted_bytes(record->usable, record->weight),
        .all_slack = weighted_bytes((uint64_t)record->slack, record->weight),
    };
    if (record->weight != WEIGHT_ONE) {
        double weight = (double)record->weight / WEIGHT_ONE, bytes = (double)record->usable;
        sums.object_variance = weight * (weight - 1);
        sums.byte_variance = bytes * bytes * sums.object_variance;
    }
    return sums;
}

static void note_peak(void) {
    assert(lock_is_mine(&g.lock));
    if (g.live.all_bytes > g.peak.all_bytes) {
        g.peak = g.live;
        g.peak_number++;
    }
}

static inline void tell(void) {
    tell_totals(g.accumulated.all_bytes / BYTE_ONE, g.live.all_bytes / BYTE_ONE);
}

/* The live counts of a context change: by an object that is new, or (subtract_live) is gone. */
static inline void add_live(struct context *context, const struct sums *change) {
    assert(lock_is_mine(&g.lock) && context->generation == g.generation);
    context_save(context, g.peak_number);
    sums_add(&context->live, change);
    sums_add(&g.live, change);
    note_peak();
    tell();
}

static inline void subtract_live(struct context *context, const struct sums *change) {
    assert(change->objects <= context->live.objects && change->bytes <= context->live.bytes);
    assert(change->objects <= g.live.objects && change->all_bytes <= g.live.all_bytes);
    context_save(context, g.peak_number);
    sums_subtract(&context->live, change);
    sums_subtract(&g.live, change);
    tell();
}

static void accumulate(struct context *context, const struct sums *change) {
    sums_add(&context->accumulated, change);
    sums_add(&g.accumulated, change);
}

/* ---------------------------------------------------------------- classes */

static unsigned class_index(size_t usable) {
    return usable <= SMALL_MAX ? size_class_of(usable) : CLASS_COUNT + counts_lextent_of(usable);
}

static inline void count_class(const struct record *record, bool is_new) {
    if (!opt.prof_stats) {
        return;
    }
    unsigned index = class_index(record->usable);
    struct record_class *live = &classes[0][index];
    uint64_t requested = record_requested(record);
    live->requested += is_new ? requested : -requested;
    live->count += is_new ? 1 : -UINT64_C(1);
    if (is_new) {
        classes[1][index].requested += requested;
        classes[1][index].count++;
    }
}

void record_read_class(size_t usable, bool accumulated, struct record_class *sum) {
    record_lock();
    *sum = classes[accumulated ? 1 : 0][class_index(usable)];
    record_unlock();
}

/* ---------------------------------------------------------------- the lock */

static uint32_t *unused_at(uint32_t place) {
    assert(place < g.last);
    return table_at_sized(&g.unused, place, sizeof(uint32_t));
}

static inline void put_back(uint32_t number) {
    assert(lock_is_mine(&g.lock) && number >= 1 && number <= g.last);
    assert(g.nunused < g.last);
    record_at(number)->generation = RECORD_UNUSED;
    *unused_at(g.nunused++) = number;
}

/* Numbers that a vanished thread had taken are lost, and so are those in its stash. */
static COLD void repair(void) {
    owner_repair();
    recent_repair();
    g.nunused = 0;
    g.live = g.accumulated = (struct sums){0};
    for (uint32_t i = 1; i <= context_last(); i++) {
        struct context *context = context_at(i);
        if (context->generation == g.generation) {
            context_save(context, g.peak_number);
            sums_add(&g.accumulated, &context->accumulated);
        }
        context->live = (struct sums){0};
    }
    context_rebuild();
    for (uint32_t i = 1; i <= g.last; i++) {
        struct record *record = record_at(i);
        if (record->generation == RECORD_UNUSED) {
            put_back(i);
        } else if (record->generation == g.generation && record->context != 0) {
            struct sums counts = sums_of_record(record);
            sums_add(&context_at(record->context)->live, &counts);
            sums_add(&g.live, &counts);
        }
    }
    note_peak();
}

static inline void enter(void) {
    if (UNLIKELY(lock_acquire(&g.lock) == LOCK_ABANDONED)) {
        repair();
    }
}

STARTUP void record_lock(void) {
    enter();
}

STARTUP void record_unlock(void) {
    lock_release(&g.lock);
}

/* ---------------------------------------------------------------- numbers */

/* A number that was used before, or a new one; 0 without memory. */
static uint32_t take_number(void) {
    assert(lock_is_mine(&g.lock));
    if (LIKELY(g.nunused > 0)) {
        return *unused_at(--g.nunused);
    }
    bool has_room = g.last < PROF_UNRECORDED - 1 && table_reach(&record_table, g.last + 1) &&
                    table_reach(&record_origins, g.last + 1) && table_reach(&g.unused, g.last);
    return has_room ? ++g.last : 0;
}

/* Reads nothing from the records, which may not have been touched for a long time. */
uint32_t record_take_slowly(struct record_stash *stash) {
    record_lock();
    while (stash->count < RECORD_STASH / 2) {
        uint32_t number = take_number();
        if (number == 0) {
            break;
        }
        assert(number <= g.last);
        record_at(number)->generation = RECORD_TAKEN;
        stash->numbers[stash->count++] = number;
    }
    record_unlock();
    return stash->count > 0 ? stash->numbers[--stash->count] : 0;
}

void record_untake(struct record_stash *stash, uint32_t number) {
    assert(record_at(number)->generation == RECORD_TAKEN);
    if (stash->count < RECORD_STASH) {
        stash->numbers[stash->count++] = number;
        return;
    }
    record_lock();
    put_back(number);
    record_unlock();
}

void record_empty_stash(struct record_stash *stash) {
    record_lock();
    while (stash->count > 0) {
        put_back(stash->numbers[--stash->count]);
    }
    record_unlock();
}

/* ---------------------------------------------------------------- events */

/* False: not counted, for want of memory for its context. */
static inline bool count(struct record *record, struct context *context, uint32_t number,
                         uint64_t weight) {
    record->context = number;
    record->generation = g.generation;
    record->weight = weight;
    if (UNLIKELY(number == 0)) {
        return false;
    }
    struct sums counts = sums_of_record(record);
    accumulate(context, &counts);
    add_live(context, &counts);
    return true;
}

/* Like context_find, which is called only if the stash does not have it; NULL, and the number 0,
 * without memory. */
static inline struct context *find_context(struct record_stash *stash, uint32_t stack,
                                           uint32_t owner, uint32_t size_lg, uint32_t *number) {
    unsigned at = (stack + size_lg) % RECORD_FOUND;
    if (LIKELY(stash->found[at].stack == stack)) {
        *number = stash->found[at].context;
        struct context *context = context_at(*number);
        if (LIKELY(context->stack == stack && context->owner == owner &&
                   context->size_lg == size_lg && context->generation == g.generation)) {
            return context;
        }
    }
    *number = context_find(stack, owner, size_lg, g.generation);
    stash->found[at].stack = *number != 0 ? stack : 0;
    stash->found[at].context = *number;
    return *number != 0 ? context_at(*number) : NULL;
}

bool record_enter(uint32_t number, uint32_t owner, struct record_stash *stash) {
    struct record *record = record_at(number);
    enter();
    assert(record->generation == RECORD_TAKEN && number <= g.last);
    uint32_t at;
    uint32_t stack = record->context;
    uint32_t size_lg = bits_floor_log2(record->usable);
    struct context *context = find_context(stash, stack, owner, size_lg, &at);
    bool is_counted = count(record, context, at, weight_of(record->usable));
    count_class(record, true);
    if (UNLIKELY(recent_max() != 0)) {
        recent_enter(number, record, stack, owner);
    } else {
        atomic_store_explicit(&record->recent, 0, memory_order_relaxed);
    }
    lock_release(&g.lock);
    if (!is_counted) {
        record_note_drop();
    }
    return is_counted;
}

/* Time is used and not the allocations in between, because the answer must not depend on the rate. */
static inline void count_life(struct context_lives *lives, const struct sums *counts, uint64_t ns) {
#define BOUND(bound, text) bound *UINT64_C(1000000),
    static const uint64_t bounds_ns[LIFETIME_STEPS] = {LIFETIMES(BOUND)};
#undef BOUND
    unsigned step = 0;
    while (step < LIFETIME_STEPS - 1 && ns >= bounds_ns[step]) {
        step++;
    }
    lives->steps[step].objects += counts->all_objects;
    lives->steps[step].bytes += counts->all_bytes;
}

/* Subtracts a record's counts, if they still count, and notes its end unless `end` is NULL. */
static inline __attribute__((always_inline)) void uncount(uint32_t number, struct record *record,
                                                          const struct record_end *end) {
    if (record->generation != g.generation || record->context == 0) {
        return;
    }
    struct sums counts = sums_of_record(record);
    struct context *context = context_at(record->context);
    if (UNLIKELY(journal_is_on()) && end != NULL) {
        journal_note(number, context, end);
    }
    assert(context->generation == g.generation && context->live.objects >= 1);
    if (end != NULL && end->ns != 0) {
        count_life(context_lives(record->context), &counts,
                   end->ns - min_size(record_origin(number)->birth_ns, end->ns));
    }
    subtract_live(context, &counts);
    if (UNLIKELY(context->live.objects == 0)) {
        context_retire(record->context, g.peak_number);
    }
}

void record_leave(uint32_t number, struct record_stash *stash, const struct record_end *end) {
    struct record *record = record_at(number);
    enter();
    assert(record->generation != RECORD_TAKEN && record->generation != RECORD_UNUSED);
    if (UNLIKELY(atomic_load_explicit(&record->recent, memory_order_relaxed) != 0)) {
        recent_leave(record, end);
    }
    uncount(number, record, end);
    count_class(record, false);
    if (stash != NULL && stash->count < RECORD_STASH) {
        record->generation = RECORD_TAKEN;
        stash->numbers[stash->count++] = number;
    } else {
        put_back(number);
    }
    lock_release(&g.lock);
}

bool record_enter_mapping(uint32_t number, uint32_t owner) {
    record_lock();
    struct record *record = record_at(number);
    uint32_t size_lg = bits_floor_log2(record->usable);
    uint32_t at = context_find(record->context, owner, size_lg, g.generation);
    bool is_counted = count(record, at != 0 ? context_at(at) : NULL, at, WEIGHT_ONE);
    record_unlock();
    if (!is_counted) {
        record_note_drop();
    }
    return is_counted;
}

static void shrink(struct record *record, uint64_t bytes) {
    struct sums before = sums_of_record(record);
    assert(bytes <= record->usable && record->slack == 0);
    record->usable = bytes;
    if (record->generation == g.generation && record->context != 0) {
        struct sums after = sums_of_record(record);
        sums_subtract(&before, &after);
        before.objects = before.all_objects = 0; /* it lives */
        subtract_live(context_at(record->context), &before);
    }
}

void record_shrink_mapping(uint32_t number, uint64_t bytes) {
    struct record *record = record_at(number);
    record_lock();
    if (bytes != 0) {
        shrink(record, bytes);
    } else {
        uncount(number, record, NULL);
        put_back(number);
    }
    record_unlock();
}

void record_note_drop(void) {
    atomic_fetch_add_explicit(&g.drops, 1, memory_order_relaxed);
}

/* ---------------------------------------------------------------- the whole */

STARTUP void record_reset(uint64_t rate) {
    record_lock();
    g.generation++;
    if (g.generation == RECORD_TAKEN) {
        g.generation = 1;
    }
    g.rate = rate;
    g.live = g.accumulated = g.peak = (struct sums){0};
    g.peak_number++;
    uint32_t generation = g.generation;
    record_unlock();
    for (uint32_t next = 1; next != 0;) {
        record_lock();
        next = g.generation == generation ? context_sweep(next, generation) : 0;
        record_unlock();
    }
}

STARTUP void record_read_totals(struct record_totals *totals) {
    record_lock();
    *totals = (struct record_totals){
        .live = g.live, .accumulated = g.accumulated, .peak = g.peak, .rate = g.rate};
    record_unlock();
    totals->drops = atomic_load_explicit(&g.drops, memory_order_relaxed);
}

bool record_read_context(uint32_t number, struct context *context, struct context_lives *lives) {
    record_lock();
    bool is_used = number <= context_last() && context_at(number)->generation == g.generation;
    if (is_used) {
        *context = *context_at(number);
        *lives = *context_lives(number);
        context_save(context, g.peak_number); /* in the copy */
    }
    record_unlock();
    return is_used;
}

bool record_peek(uint32_t number, struct prof_live *live) {
    if (number == 0 || number > g.last) {
        return false;
    }
    const struct record *record = record_at(number);
    if (record->generation != g.generation || record->context == 0) {
        return false;
    }
    const struct context *context = context_at(record->context);
    *live = (struct prof_live){
        .stack = context->stack,
        .thread = context->owner,
        .requested = record_requested(record),
        .usable = record->usable,
        .born_ns = record_origin(number)->birth_ns,
    };
    return true;
}

/* Looks at no more numbers than it may copy, so that the lock is held for a moment. */
unsigned record_read_kept(uint32_t *next, struct record_kept *kept, unsigned most) {
    unsigned count = 0;
    record_lock();
    uint32_t end = (uint32_t)min_size(*next + (size_t)most, (size_t)g.last + 1);
    for (uint32_t i = *next; i < end; i++) {
        const struct record *record = record_at(i);
        if (record->generation == g.generation && record->context != 0) {
            uintptr_t place = __atomic_load_n(&record_origin(i)->place, __ATOMIC_RELAXED);
            kept[count++] =
                (struct record_kept){record->context, record->usable, record->weight, place};
        }
    }
    *next = end <= g.last ? end : 0;
    record_unlock();
    return count;
}

/* ---------------------------------------------------------------- threads that end */

/* Lets others have the lock for a moment.  A free meanwhile may retire the next context: then start
 * again with the first. */
static uint32_t pause_before(uint32_t number, uint32_t owner) {
    record_unlock();
    record_lock();
    const struct context *context = context_at(number);
    bool is_there = context->generation != 0 && context->owner == owner;
    return is_there ? number : context_of_owner(owner, 0);
}

void record_owner_ended(uint32_t owner) {
    enum { AT_ONCE = 64 };
    record_lock();
    owner_at(owner)->has_ended = true;
    if (owner_at(owner)->first_context == 0) {
        owner_release(owner);
    }
    for (uint32_t number = context_of_owner(owner, 0), seen = 0; number != 0; seen++) {
        uint32_t next = context_of_owner(owner, number);
        context_retire(number, g.peak_number);
        bool pauses = next != 0 && seen % AT_ONCE == AT_ONCE - 1;
        number = pauses ? pause_before(next, owner) : next;
    }
    record_unlock();
}

STARTUP void record_forked(uint32_t survivor) {
    record_lock();
    for (uint32_t i = 0; i < owner_count(); i++) {
        owner_at(i)->has_ended |= i != survivor;
    }
    record_unlock();
}
