/* SPDX-License-Identifier: MIT
 *
 * test_pages.c - the page heap against a list of what was taken: no unit twice, zeros where they are
 * promised, free memory found before the heap grows, nothing lost.
 */
#include "heap/pages.h"

#include "base/os.h"
#include "heap/classmap.h"
#include "heap/counts.h"
#include "heap/dirty.h"
#include "heap/heap.h"
#include "opt/opt.h"
#include "unit.h"

/* Time stands still for these tests unless one says otherwise: nothing is purged behind its back. */
static void start(void) {
    start_heap_with("dirty_decay_ms:-1,narenas:1");
}
TEST_SETUP(start);

enum { MOST_SPANS = 200 };

/* What the test holds, each filled with its own mark at both ends of every unit. */
struct held {
    struct span *span;
    size_t units;
    uint64_t mark;
};

static uint64_t *word_of(const struct held *held, size_t unit, bool last) {
    return (uint64_t *)(held->span->base + unit * UNIT_BYTES + (last ? UNIT_BYTES - 8 : 0));
}

static void mark_units(const struct held *held) {
    for (size_t u = 0; u < held->units; u++) {
        *word_of(held, u, false) = held->mark + u;
        *word_of(held, u, true) = ~(held->mark + u);
    }
}

static void check_marks(const struct held *held) {
    for (size_t u = 0; u < held->units; u++) {
        check_eq(*word_of(held, u, false), held->mark + u);
        check_eq(*word_of(held, u, true), ~(held->mark + u));
    }
}

static bool reads_as_zeros(uintptr_t base, size_t bytes) {
    const uint64_t *words = (const uint64_t *)base;
    for (size_t i = 0; i < bytes / 8; i++) {
        if (words[i] != 0) {
            return false;
        }
    }
    return true;
}

/* As an owner does: the kind is set after the take, and reset before units are given back. */
static struct held take(size_t units, size_t alignment, enum pages_growth growth) {
    static _Atomic uint64_t marks;
    bool zeroed = false;
    struct held held = {pages_take(units, alignment, growth, &zeroed), units, ++marks << 32};
    if (held.span != NULL) {
        check_eq(held.span->kind, SPAN_NONE);
        check_eq(held.span->base % (alignment * UNIT_BYTES), 0);
        check(!zeroed || reads_as_zeros(held.span->base, units * UNIT_BYTES));
        held.span->kind = SPAN_LARGE;
        held.span->bytes = units * UNIT_BYTES;
        check_eq(classmap_span(held.span->base), held.span);
        check_eq(classmap_span(held.span->base + units * UNIT_BYTES - 1), held.span);
        mark_units(&held);
    }
    return held;
}

static void give(struct held *held) {
    uintptr_t base = held->span->base;
    check_marks(held);
    held->span->kind = SPAN_NONE;
    pages_give_back(base, held->units);
    check(classmap_span(base) == NULL);
    held->span = NULL;
}

static size_t choose_units(struct random *random) {
    switch (random_below(random, 8)) {
    case 0:
        return random_below(random, CHUNK_UNITS) + 1;
    case 1:
        return CHUNK_UNITS + random_below(random, 3 * CHUNK_UNITS);
    default:
        return (size_t)1 << random_below(random, 5);
    }
}

static size_t choose_alignment(struct random *random) {
    return random_below(random, 4) == 0 ? (size_t)1 << random_below(random, 9) : 1;
}

static size_t units_held(const struct held *held, unsigned count) {
    size_t units = 0;
    for (unsigned i = 0; i < count; i++) {
        units += held[i].span != NULL ? held[i].units : 0;
    }
    return units;
}

static void grow_or_shrink(struct held *held, struct random *random) {
    size_t change = random_below(random, 6) + 1;
    if (random_below(random, 2) == 0 && change < held->units) {
        held->units -= change;
        pages_give_back(held->span->base + held->units * UNIT_BYTES, change);
    } else if (pages_extend(held->span->base, held->units, change, PAGES_IN_CHUNKS)) {
        held->units += change;
        mark_units(held);
    }
    held->span->bytes = held->units * UNIT_BYTES;
    check_eq(classmap_span(held->span->base + held->units * UNIT_BYTES - 1), held->span);
}

TEST(random_takes_and_gives_keep_every_invariant) {
    static struct held held[MOST_SPANS];
    struct random random = random_start(15, 0);
    size_t before = pages_totals().used;
    for (unsigned step = 0; step < 6000 / SLOWER; step++) {
        struct held *one = &held[random_below(&random, MOST_SPANS)];
        if (one->span == NULL) {
            *one = take(choose_units(&random), choose_alignment(&random), PAGES_MAY_GROW);
            check(one->span != NULL);
        } else if (random_below(&random, 3) == 0) {
            grow_or_shrink(one, &random);
        } else {
            give(one);
        }
        if (step % 500 == 0) {
            check_eq(pages_purge_all() % UNIT_BYTES, 0);
            check_eq(pages_totals().dirty, 0);
        }
        pages_verify();
        check_eq(pages_totals().used, before + units_held(held, MOST_SPANS) * UNIT_BYTES);
    }
    for (unsigned i = 0; i < MOST_SPANS; i++) {
        if (held[i].span != NULL) {
            give(&held[i]);
        }
    }
    pages_verify();
    check_eq(pages_totals().used, before);
}

TEST(memory_of_the_kernel_reads_as_zeros_and_reused_memory_says_so) {
    bool zeroed = false;
    struct span *span = pages_take(10, 1, PAGES_MAY_GROW, &zeroed);
    check(span != NULL && zeroed);
    check(reads_as_zeros(span->base, 10 * UNIT_BYTES));
    uintptr_t base = span->base;
    memset((void *)base, 0x5a, 10 * UNIT_BYTES);
    pages_give_back(base, 10);
    pages_verify();
    span = pages_take(10, 1, PAGES_IN_CHUNKS, &zeroed);
    check(span != NULL && span->base == base && !zeroed);
    pages_give_back(base, 10);
    check(pages_purge_all() >= 10 * UNIT_BYTES);
    pages_verify();
    span = pages_take(10, 1, PAGES_MAY_GROW, &zeroed);
    check(span != NULL && span->base == base && zeroed);
    check(reads_as_zeros(base, 10 * UNIT_BYTES));
}

TEST(one_dirty_unit_among_clean_ones_is_told) {
    bool zeroed;
    struct span *span = pages_take(1, 1, PAGES_MAY_GROW, &zeroed);
    uintptr_t base = span->base;
    pages_give_back(base, 1);
    span = pages_take(4, 1, PAGES_MAY_GROW, &zeroed);
    check(span != NULL && span->base == base && !zeroed);
}

/* Free units that were used, beside many that never were. */
static void leave_dirty_units(unsigned count) {
    static struct held used[MOST_SPANS];
    for (unsigned i = 0; i < count; i++) {
        used[i] = take(1, 1, PAGES_MAY_GROW);
    }
    for (unsigned i = 0; i < count; i++) {
        give(&used[i]);
    }
}

static size_t take_as_many_as_there_are(enum pages_growth growth) {
    size_t taken = 0;
    while (take(1, 1, growth).span != NULL) {
        taken++;
        pages_verify();
    }
    return taken;
}

TEST(only_memory_used_before_is_taken_when_no_more_is_allowed) {
    leave_dirty_units(MOST_SPANS);
    struct pages_totals before = pages_totals();
    size_t taken = take_as_many_as_there_are(PAGES_USED_BEFORE);
    check_eq(taken, MOST_SPANS);
    check_eq(before.dirty - pages_totals().dirty, taken * UNIT_BYTES);
    check_eq(pages_totals().mapped, before.mapped);
}

TEST(heap_does_not_grow_when_it_may_not) {
    leave_dirty_units(3);
    struct pages_totals before = pages_totals();
    size_t taken = take_as_many_as_there_are(PAGES_IN_CHUNKS);
    check_eq(taken * UNIT_BYTES, before.mapped - before.used);
    check_eq(pages_totals().mapped, before.mapped);
    check_eq(pages_totals().used, before.mapped);
    check(take(1, 1, PAGES_USED_BEFORE).span == NULL);
    check(take(1, 1, PAGES_MAY_GROW).span != NULL);
    check(pages_totals().mapped > before.mapped);
}

TEST(units_are_used_again_before_the_heap_grows) {
    static struct held held[MOST_SPANS];
    struct random random = random_start(16, 0);
    for (unsigned i = 0; i < MOST_SPANS; i++) {
        held[i] = take(4, 4, PAGES_MAY_GROW);
    }
    size_t mapped = pages_totals().mapped;
    for (unsigned step = 0; step < 3000 / SLOWER; step++) {
        struct held *one = &held[random_below(&random, MOST_SPANS)];
        give(one);
        *one = take(4, 4, PAGES_MAY_GROW);
    }
    pages_verify();
    check_eq(pages_totals().mapped, mapped);
}

/* Free runs of 2 and of 3 chunks are kept together; the longer one must be found all the same. */
TEST(free_run_is_found_beside_a_shorter_one) {
    enum { RUNS = 6 };
    static const size_t chunks[RUNS] = {2, 3, 2, 3, 3, 2};
    struct held runs[RUNS], between[RUNS];
    for (unsigned i = 0; i < RUNS; i++) {
        runs[i] = take(chunks[i] * CHUNK_UNITS, 1, PAGES_MAY_GROW);
        between[i] = take(CHUNK_UNITS, 1, PAGES_MAY_GROW);
    }
    for (unsigned i = 0; i < RUNS; i++) {
        give(&runs[i]);
        pages_verify();
    }
    for (unsigned i = 0; i < 3; i++) {
        check(take(3 * CHUNK_UNITS, 1, PAGES_IN_CHUNKS).span != NULL);
        pages_verify();
    }
    for (unsigned i = 0; i < RUNS; i++) {
        give(&between[i]);
        pages_verify();
    }
}

TEST(neighbouring_free_chunks_join) {
    struct held whole = take(8 * CHUNK_UNITS, 1, PAGES_MAY_GROW);
    give(&whole);
    struct held parts[8];
    for (unsigned i = 0; i < 8; i++) {
        parts[i] = take(CHUNK_UNITS, 1, PAGES_IN_CHUNKS);
        check(parts[i].span != NULL);
    }
    static const unsigned order[8] = {3, 5, 4, 0, 7, 1, 6, 2};
    for (unsigned i = 0; i < 8; i++) {
        give(&parts[order[i]]);
        pages_verify();
    }
    whole = take(8 * CHUNK_UNITS, 1, PAGES_IN_CHUNKS);
    check(whole.span != NULL);
}

TEST(rest_of_the_last_chunk_serves_others) {
    struct held big = take(2 * CHUNK_UNITS + 5, 1, PAGES_MAY_GROW);
    size_t mapped = pages_totals().mapped;
    struct held rest = take(CHUNK_UNITS - 5, 1, PAGES_MAY_GROW);
    check_eq(rest.span->base, big.span->base + (2 * CHUNK_UNITS + 5) * UNIT_BYTES);
    check_eq(pages_totals().mapped, mapped);
    check(!pages_extend(big.span->base, big.units, 1, PAGES_IN_CHUNKS));
    give(&rest);
    check(pages_extend(big.span->base, big.units, CHUNK_UNITS - 5, PAGES_IN_CHUNKS));
    pages_verify();
}

/* The chunks behind the span are free, then partly used, then used. */
TEST(span_grows_over_free_chunks_and_stops_at_used_units) {
    struct held whole = take(8 * CHUNK_UNITS, 1, PAGES_MAY_GROW);
    uintptr_t base = whole.span->base;
    whole.span->bytes = whole.units = 3; /* shrunk to three units, and grown again */
    pages_give_back(base + 3 * UNIT_BYTES, 8 * CHUNK_UNITS - 3);
    pages_verify();
    size_t used = pages_totals().used;
    for (size_t more = 1; whole.units + more <= 8 * CHUNK_UNITS; more = more * 2 + 3) {
        check(pages_extend(base, whole.units, more, PAGES_IN_CHUNKS));
        pages_verify();
        whole.units += more;
        used += more * UNIT_BYTES;
        check_eq(pages_totals().used, used);
        for (size_t unit = 0; unit < whole.units; unit++) {
            check_eq(classmap_span(base + unit * UNIT_BYTES), whole.span);
        }
    }
    size_t rest = 8 * CHUNK_UNITS - whole.units;
    if (rest > 0) {
        check(pages_extend(base, whole.units, rest, PAGES_IN_CHUNKS));
    }
    pages_verify();
    whole.units = 8 * CHUNK_UNITS;
    mark_units(&whole);
    /* Give the middle part back and let somebody else have its last unit. */
    pages_give_back(base + CHUNK_UNITS * UNIT_BYTES, 7 * CHUNK_UNITS);
    whole.units = CHUNK_UNITS;
    struct held other = take(7 * CHUNK_UNITS, 1, PAGES_USED_BEFORE);
    check(other.span != NULL && other.span->base == base + CHUNK_UNITS * UNIT_BYTES);
    check(!pages_extend(base, CHUNK_UNITS, 1, PAGES_IN_CHUNKS));
    give(&other);
    pages_verify();
    give(&whole);
    pages_verify();
}

TEST(alignment_of_several_chunks_is_kept) {
    for (size_t alignment = CHUNK_UNITS; alignment <= 16 * CHUNK_UNITS; alignment *= 2) {
        struct held one = take(1, alignment, PAGES_MAY_GROW);
        struct held many = take(3 * CHUNK_UNITS + 1, alignment, PAGES_MAY_GROW);
        check(one.span != NULL && many.span != NULL);
        pages_verify();
        give(&one);
        give(&many);
        pages_verify();
    }
}

TEST(impossible_request_is_refused_and_nothing_changes) {
    struct pages_totals before = pages_totals();
    bool zeroed;
    check(pages_take((size_t)1 << 33, 1, PAGES_MAY_GROW, &zeroed) == NULL); /* 2^47 bytes */
    pages_verify();
    check_eq(pages_totals().used, before.used);
    check(take(3, 1, PAGES_MAY_GROW).span != NULL);
}

struct walk {
    struct held *held;
    unsigned count;
    unsigned found;
};

static void count_span(struct span *span, void *context) {
    struct walk *walk = context;
    for (unsigned i = 0; i < walk->count; i++) {
        walk->found += walk->held[i].span == span;
    }
}

TEST(walk_visits_each_span_once) {
    struct held held[20];
    struct random random = random_start(17, 0);
    for (unsigned i = 0; i < 20; i++) {
        held[i] = take(choose_units(&random), 1, PAGES_MAY_GROW);
    }
    for (unsigned i = 0; i < 20; i++) {
        struct walk walk = {&held[i], 1, 0};
        pages_walk(count_span, &walk);
        check_eq(walk.found, 1);
    }
    give(&held[3]);
    struct walk walk = {held, 20, 0};
    pages_walk(count_span, &walk);
    check_eq(walk.found, 19);
}

/* How time passes is test_dirty.c's business. */
TEST(freed_memory_goes_at_once_when_the_option_says_so) {
    struct held old = take(CHUNK_UNITS, CHUNK_UNITS, PAGES_MAY_GROW);
    struct held last = take(1, 1, PAGES_MAY_GROW);
    pages_purge_all();
    size_t purged = pages_totals().purged;
    give(&old);
    check_eq(pages_totals().dirty, CHUNK_BYTES);
    check_eq(pages_totals().purged, purged);
    check(pages_tick() != UINT64_MAX);
    dirty_decay_ms[CHUNK_DIRTY] = 0;
    give(&last);
    check_eq(pages_totals().dirty, 0);
    check_eq(pages_totals().purged, purged + CHUNK_BYTES + UNIT_BYTES);
    check_eq(pages_tick(), UINT64_MAX);
    pages_verify();
}

static void *churn(void *argument) {
    static _Atomic unsigned stream;
    struct random random = random_start(18, stream++);
    struct held held[10] = {{0}};
    for (unsigned step = 0; step < *(unsigned *)argument; step++) {
        bool zeroed;
        struct held *one = &held[random_below(&random, 10)];
        if (one->span == NULL) {
            one->units = choose_units(&random);
            one->mark = random_next(&random);
            one->span = pages_take(one->units, 1, PAGES_MAY_GROW, &zeroed);
            check(one->span != NULL);
            one->span->kind = SPAN_LARGE;
            mark_units(one);
        } else {
            check_marks(one);
            one->span->kind = SPAN_NONE;
            pages_give_back(one->span->base, one->units);
            one->span = NULL;
        }
    }
    for (unsigned i = 0; i < 10; i++) {
        if (held[i].span != NULL) {
            check_marks(&held[i]);
            held[i].span->kind = SPAN_NONE;
            pages_give_back(held[i].span->base, held[i].units);
        }
    }
    return NULL;
}

TEST(threads_never_get_the_same_unit) {
    unsigned steps = 1500 / SLOWER;
    size_t before = pages_totals().used;
    run_threads(4, churn, &steps);
    pages_verify();
    check_eq(pages_totals().used, before);
}

TEST(child_of_a_fork_repairs_what_another_thread_left_half_done) {
    unsigned steps = 20000 / SLOWER;
    pthread_t thread[2];
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_create(&thread[i], NULL, churn, &steps) == 0);
    }
    for (unsigned i = 0; i < 100 / SLOWER; i++) {
        check_child({
            pages_verify();
            struct held held = take(choose_units(&(struct random){i}), 1, PAGES_MAY_GROW);
            pages_verify();
            give(&held);
            pages_verify();
        });
    }
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_join(thread[i], NULL) == 0);
    }
    pages_verify();
}

/* Purges what it used and gave back, so that forks and other threads meet a purge. */
static void *purge_again_and_again(void *stop) {
    while (!atomic_load((atomic_bool *)stop)) {
        struct held held = take(4 * CHUNK_UNITS, 1, PAGES_MAY_GROW);
        give(&held);
        pages_purge_all();
    }
    return NULL;
}

TEST(units_that_are_being_purged_are_nobodys) {
    unsigned steps = 1500 / SLOWER;
    size_t before = pages_totals().used;
    atomic_bool stop = false;
    pthread_t thread[2];
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_create(&thread[i], NULL, purge_again_and_again, &stop) == 0);
    }
    run_threads(3, churn, &steps);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_join(thread[i], NULL) == 0);
    }
    pages_verify();
    check_eq(pages_totals().used, before);
    pages_purge_all();
    check_eq(pages_totals().dirty, 0);
}

TEST(child_of_a_fork_knows_what_reads_as_zeros_and_finishes_a_purge) {
    atomic_bool stop = false;
    pthread_t thread;
    struct held held = take(20 * CHUNK_UNITS, 1, PAGES_MAY_GROW);
    give(&held);
    pages_purge_all();
    check(pthread_create(&thread, NULL, purge_again_and_again, &stop) == 0);
    for (unsigned i = 0; i < 100 / SLOWER; i++) {
        check_child({
            pages_verify();
            check(pages_totals().dirty <= 5 * CHUNK_BYTES);
            struct held more = take(16 * CHUNK_UNITS, 1, PAGES_MAY_GROW);
            give(&more);
            pages_purge_all();
            check_eq(pages_totals().dirty, 0);
            pages_verify();
        });
    }
    atomic_store(&stop, true);
    check(pthread_join(thread, NULL) == 0);
}
