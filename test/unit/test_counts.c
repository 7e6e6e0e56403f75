/* SPDX-License-Identifier: MIT
 *
 * test_counts.c - the figures against a model that counts every call, and against one another.
 *
 * The model knows what each thread asked for and what it freed.  Threads take objects from each other,
 * end, and leave their heaps to the next; a child is forked beside threads that hold objects.  At rest
 * the heap's figures, none of which is counted where calls are fast, must be the same numbers.
 */
#include "heap/counts.h"

#include <sys/wait.h>

#include "base/os.h"
#include "heap/arena.h"
#include "heap/cache.h"
#include "heap/classmap.h"
#include "heap/depot.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/thread.h"
#include "unit.h"

#define QUIET "background_thread:false,dirty_decay_ms:-1"

/* ---------------------------------------------------------------- reading */

static struct arena_counts merged, one;
static struct total_counts totals;

static const struct arena_counts *read_all(void) {
    memset(&merged, 0, sizeof merged);
    for (unsigned a = 0; a < arena_limit(); a++) {
        if (counts_read_arena(a, &one)) {
            counts_merge(&merged, &one);
        }
    }
    counts_read_totals(&totals);
    return &merged;
}

static void check_bins(const struct arena_counts *all) {
    struct kind_counts sum = {0};
    for (unsigned i = 0; i < BIN_CLASSES; i++) {
        const struct bin_counts *bin = &all->bins[i];
        check_eq(bin->curregs, bin->nmalloc - bin->ndalloc);
        check(bin->curregs <= bin->curslabs * size_classes[i + 1].total);
        check(bin->nslabs >= bin->curslabs && bin->curslabs >= bin->nonfull_slabs);
        check(bin->nfills <= bin->mutex.num_ops && bin->nflushes <= bin->mutex.num_ops);
        sum.allocated += bin->curregs * size_classes[i + 1].size;
        sum.nmalloc += bin->nmalloc;
        sum.ndalloc += bin->ndalloc;
        sum.nrequests += bin->nrequests;
        sum.nfills += bin->nfills;
        sum.nflushes += bin->nflushes;
    }
    check(memcmp(&sum, &all->small, sizeof sum) == 0);
}

static void check_large(const struct arena_counts *all) {
    uint64_t nmalloc = 0, ndalloc = 0;
    for (unsigned i = 0; i < LEXTENT_CLASSES; i++) {
        const struct lextent_counts *class = &all->lextents[i];
        check_eq(class->curlextents, class->nmalloc - class->ndalloc);
        check_eq(class->nrequests, class->nmalloc);
        nmalloc += class->nmalloc;
        ndalloc += class->ndalloc;
    }
    check_eq(all->large.nmalloc, nmalloc);
    check_eq(all->large.ndalloc, ndalloc);
    check_eq(nmalloc - ndalloc, large_count());
    check_eq(all->large.allocated, large_bytes());
}

static void check_free_runs(const struct arena_counts *all) {
    struct extent_counts sum = {0};
    for (unsigned i = 0; i < EXTENT_CLASSES; i++) {
        const struct extent_counts *class = &all->extents[i];
        check((class->ndirty == 0) == (class->dirty_bytes == 0));
        check(class->dirty_bytes <= class->ndirty * counts_extent_size(i));
        check(class->nretained == 0 || class->retained_bytes > 0);
        sum.dirty_bytes += class->dirty_bytes;
        sum.muzzy_bytes += class->muzzy_bytes;
        sum.retained_bytes += class->retained_bytes;
    }
    check_eq(sum.dirty_bytes, all->pdirty * arena_page_bytes());
    check_eq(sum.muzzy_bytes, all->pmuzzy * arena_page_bytes());
    check_eq(sum.retained_bytes, all->retained);
}

/* Everything that must hold at rest, whatever was done before. */
static void check_sums(void) {
    const struct arena_counts *all = read_all();
    check_bins(all);
    check_large(all);
    check_free_runs(all);
    check_eq(all->small.allocated - all->tcache_bytes + all->large.allocated, totals.allocated);
    check_eq(all->pactive * arena_page_bytes(), totals.active);
    check_eq(totals.active + large_lost_bytes(), pages_totals().used);
    check_eq(all->mapped, totals.mapped);
    check_eq(all->resident, totals.resident);
    check_eq(all->retained, totals.retained);
    check_eq(all->base, totals.metadata);
    check(totals.allocated <= totals.active && totals.active < totals.resident);
    check(totals.metadata_edata + totals.metadata_rtree <= totals.metadata);
    check(totals.metadata_edata > 0 && totals.metadata_rtree > 0);
}

/* ---------------------------------------------------------------- the model */

/* What one thread did; objects travel between threads, so only sums are compared. */
struct model {
    uint64_t requests[CLASS_COUNT];
    uint64_t large;
    uint64_t allocated, freed; /* bytes */
};

static void model_add(struct model *sum, const struct model *more) {
    for (unsigned c = 0; c < CLASS_COUNT; c++) {
        __atomic_fetch_add(&sum->requests[c], more->requests[c], __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&sum->large, more->large, __ATOMIC_RELAXED);
    __atomic_fetch_add(&sum->allocated, more->allocated, __ATOMIC_RELAXED);
    __atomic_fetch_add(&sum->freed, more->freed, __ATOMIC_RELAXED);
}

static void count_alloc(struct model *model, size_t size) {
    if (size <= SMALL_MAX) {
        model->requests[size_class_of(size)]++;
        model->allocated += size_classes[size_class_of(size)].size;
    } else {
        model->large++;
        model->allocated += large_usable_bytes(size);
    }
}

static void count_free(struct model *model, size_t size) {
    model->freed += heap_size_for(size, 1);
}

/* The size stands in the object. */
static void *take_one(struct model *model, size_t size) {
    size_t *object = tally_malloc(size);
    check(object != NULL);
    count_alloc(model, size);
    object[0] = size;
    return object;
}

static void give_one(struct model *model, void *object) {
    if (object != NULL) {
        count_free(model, *(size_t *)object);
        tally_free(object);
    }
}

static size_t any_size(struct random *random) {
    switch (random_below(random, 40)) {
    case 0:
        return 8 + random_below(random, 200000); /* some of them large */
    case 1:
    case 2:
        return 8 + random_below(random, SMALL_MAX - 7);
    default:
        return 8 + random_below(random, 400);
    }
}

enum { SLOTS = 3000 };
static _Atomic(void *) slots[SLOTS]; /* shared by all threads */

/* Fills, empties and exchanges slots. */
static void work(struct model *model, struct random *random, unsigned steps) {
    for (unsigned i = 0; i < steps; i++) {
        _Atomic(void *) *slot = &slots[random_below(random, SLOTS)];
        void *object = random_below(random, 2) ? take_one(model, any_size(random)) : NULL;
        give_one(model, atomic_exchange(slot, object));
    }
}

static void empty_slots(struct model *model) {
    for (unsigned i = 0; i < SLOTS; i++) {
        give_one(model, atomic_exchange(&slots[i], NULL));
    }
}

/* The figures changed from `before` by what the model did. */
static void check_model(const struct arena_counts *before, const struct total_counts *before_totals,
                        const struct model *model) {
    check_sums();
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        check_eq(merged.bins[c - 1].nrequests - before->bins[c - 1].nrequests, model->requests[c]);
    }
    check_eq(merged.large.nmalloc - before->large.nmalloc, model->large);
    check_eq(totals.allocated - before_totals->allocated, model->allocated - model->freed);
}

static void check_thread(const struct model *model, uint64_t allocated, uint64_t freed) {
    check_eq(thread_allocated() - allocated, model->allocated);
    check_eq(thread_deallocated() - freed, model->freed);
}

static struct arena_counts first;
static struct total_counts first_totals;

static void begin(const char *conf) {
    start_heap_with(conf);
    first = *read_all();
    first_totals = totals;
}

/* ---------------------------------------------------------------- one thread */

static void compare_one_thread(const char *conf) {
    struct random random = random_start(4, 1);
    struct model model = {0};
    begin(conf);
    uint64_t allocated = thread_allocated(), freed = thread_deallocated();
    for (unsigned round = 0; round < 60; round++) {
        work(&model, &random, round < 20 ? 5 : 3000 / SLOWER);
        check_model(&first, &first_totals, &model);
        check_thread(&model, allocated, freed);
        if (round % 7 == 0) {
            empty_slots(&model);
        }
        if (round % 11 == 0) {
            heap_trim();
        }
    }
    empty_slots(&model);
    check_model(&first, &first_totals, &model);
    check_thread(&model, allocated, freed);
    heap_verify();
}

TEST(requests_and_bytes_are_those_of_one_thread) {
    compare_one_thread(QUIET);
}

TEST(requests_and_bytes_are_those_of_a_parked_thread) {
    compare_one_thread(QUIET ",all_slow:true");
}

TEST(requests_and_bytes_are_those_of_a_thread_without_room) {
    compare_one_thread(QUIET ",thread_cache_bytes:4096,depot_bytes:0");
}

/* Much memory is given up: caches are left out on the way down. */
TEST(requests_and_bytes_are_right_while_the_heap_shrinks) {
    enum { OBJECTS = SANITIZED ? 200000 : 400000 };
    static void *objects[OBJECTS];
    struct model model = {0};
    begin(QUIET);
    uint64_t allocated = thread_allocated(), freed = thread_deallocated();
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < OBJECTS; i++) {
            objects[i] = take_one(&model, i % 50 == 0 ? 3000 : 16 + i % 300);
        }
        check_model(&first, &first_totals, &model);
        bool shrank = false;
        for (unsigned i = 0; i < OBJECTS; i++) {
            give_one(&model, objects[i]);
            shrank |= bin_heap_is_shrinking();
        }
        check(shrank);
        check_model(&first, &first_totals, &model);
        check_thread(&model, allocated, freed);
    }
}

/* ---------------------------------------------------------------- several threads */

static struct model everybody;
static _Atomic unsigned seeds;

/* A thread begins at zero, whoever had its heap before. */
static void *work_and_end(void *steps) {
    struct random random = random_start(7, seeds++);
    struct model model = {0};
    check_thread(&model, 0, 0);
    for (unsigned i = 0; i < 10; i++) {
        work(&model, &random, (unsigned)(uintptr_t)steps / 10);
        check_thread(&model, 0, 0);
    }
    thread_exit(); /* What comes after the heap is counted as well. */
    work(&model, &random, 20);
    check_thread(&model, 0, 0);
    model_add(&everybody, &model);
    return NULL;
}

static void compare_threads(const char *conf) {
    begin(conf);
    for (unsigned round = 0; round < 12; round++) {
        run_threads(1 + round % 5, work_and_end,
                    (void *)(uintptr_t)(round % 3 == 0 ? 100 : 20000 / SLOWER));
        check_model(&first, &first_totals, &everybody);
        check_eq(merged.nthreads, 0);
        if (round % 4 == 3) {
            thread_flush_left(); /* Heaps are retired. */
            check_model(&first, &first_totals, &everybody);
        }
    }
    empty_slots(&everybody);
    check_model(&first, &first_totals, &everybody);
    heap_verify();
}

TEST(requests_and_bytes_are_those_of_threads_that_end) {
    compare_threads(QUIET);
}

TEST(requests_and_bytes_are_those_of_threads_in_one_arena) {
    compare_threads(QUIET ",narenas:1");
}

TEST(requests_and_bytes_are_those_of_threads_in_many_arenas) {
    compare_threads(QUIET ",narenas:40");
}

/* A heap that is retired, or changes its arena, leaves its figures where they were made. */
TEST(settled_heap_has_served_nobody_and_the_arena_remembers) {
    enum { CLASS = 4 };
    begin(QUIET ",narenas:1");
    run_threads(1, work_and_end, (void *)(uintptr_t)5000);
    thread_flush_left();
    check_eq(arena_get(0)->sums.requests[CLASS], everybody.requests[CLASS]);
    struct random random = random_start(7, 50);
    struct model model = {0};
    uint64_t allocated = thread_allocated(), freed = thread_deallocated();
    work(&model, &random, 5000);
    model_add(&everybody, &model);
    for (unsigned i = 0; i < 2; i++) {
        thread_settle_counts(tls.self);
        check_eq(arena_get(0)->sums.requests[CLASS], everybody.requests[CLASS]);
        check_model(&first, &first_totals, &everybody);
        check_thread(&model, allocated, freed);
    }
}

static struct {
    pthread_barrier_t barrier;
    _Atomic bool stop;
} crew;

static void *work_until_told(void *unused) {
    struct random random = random_start(9, seeds++);
    struct model model = {0};
    (void)unused;
    while (!crew.stop) {
        work(&model, &random, 100);
    }
    model_add(&everybody, &model);
    return NULL;
}

/* Figures read beside working threads may lag, and never fall far behind or run away. */
TEST(reading_beside_working_threads_is_safe) {
    pthread_t threads[3];
    begin(QUIET);
    for (unsigned i = 0; i < 3; i++) {
        check(pthread_create(&threads[i], NULL, work_until_told, NULL) == 0);
    }
    for (unsigned i = 0; i < 300 / SLOWER; i++) {
        const struct arena_counts *all = read_all();
        for (unsigned c = 0; c < BIN_CLASSES; c++) {
            check(all->bins[c].curregs < (size_t)1 << 32);
            check(all->bins[c].nrequests < (uint64_t)1 << 40);
        }
    }
    crew.stop = true;
    for (unsigned i = 0; i < 3; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    check_model(&first, &first_totals, &everybody);
}

/* ---------------------------------------------------------------- fork */

static void *work_and_wait(void *unused) {
    struct random random = random_start(8, seeds++);
    struct model model = {0};
    (void)unused;
    work(&model, &random, 20000 / SLOWER);
    check_thread(&model, 0, 0);
    model_add(&everybody, &model);
    pthread_barrier_wait(&crew.barrier);
    pthread_barrier_wait(&crew.barrier);
    return NULL;
}

static void go_on_in_child(uint64_t allocated, uint64_t freed) {
    struct random random = random_start(8, 100);
    struct model model = {0};
    check_model(&first, &first_totals, &everybody);
    work(&model, &random, 5); /* The child notices what it is; the others' heaps are orphans. */
    model_add(&everybody, &model);
    check_model(&first, &first_totals, &everybody);
    check_eq(merged.nthreads, 1);
    struct model more = {0};
    work(&more, &random, 30000 / SLOWER);
    while (thread_recover_some()) {
    }
    empty_slots(&more);
    model_add(&everybody, &more);
    model_add(&model, &more);
    check_model(&first, &first_totals, &everybody);
    check_thread(&model, allocated, freed);
    check_eq(thread_count(), 1);
    heap_verify();
}

TEST(child_counts_on_where_its_parent_was) {
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    begin(QUIET);
    struct random random = random_start(8, 99);
    struct model model = {0};
    work(&model, &random, 1000);
    model_add(&everybody, &model);
    pthread_barrier_init(&crew.barrier, NULL, THREADS + 1);
    for (unsigned i = 0; i < THREADS; i++) {
        check(pthread_create(&threads[i], NULL, work_and_wait, NULL) == 0);
    }
    pthread_barrier_wait(&crew.barrier);
    check_model(&first, &first_totals, &everybody);
    check_eq(merged.nthreads, THREADS + 1);
    check_child(go_on_in_child(thread_allocated(), thread_deallocated()));
    check_model(&first, &first_totals, &everybody);
    pthread_barrier_wait(&crew.barrier);
    for (unsigned i = 0; i < THREADS; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    check_model(&first, &first_totals, &everybody);
}

/* ---------------------------------------------------------------- bins */

TEST(bin_counts_what_is_taken_and_put_back) {
    enum { CLASS = 9 };
    start_heap_with(QUIET ",narenas:2");
    check(arena_prepare(1));
    struct bin *bin = arena_bin(1, CLASS);
    unsigned total = size_classes[CLASS].total;
    size_t pages = *arena_pactive(1);
    static void *objects[3 * MOST_OBJECTS];
    check_eq(bin_refill(bin, objects, 2 * total + 1, PAGES_MAY_GROW), 2 * total + 1);
    check(counts_read_arena(1, &one));
    const struct bin_counts *counts = &one.bins[CLASS - 1];
    check_eq(counts->nmalloc, 2 * total + 1);
    check_eq(counts->nfills, 1);
    check_eq(counts->nslabs, 3);
    check_eq(counts->curslabs, 3);
    check_eq(counts->nonfull_slabs, 1);
    check_eq(counts->nreslabs, 0);
    check_eq(counts->nrequests, 0);
    bin_drain(CLASS, objects, 1); /* of a full slab; one is not many */
    bin_drain(CLASS, objects + 1, 2 * total);
    check(counts_read_arena(1, &one));
    check_eq(counts->ndalloc, 2 * total + 1);
    check_eq(counts->curregs, 0);
    check_eq(counts->nflushes, 1);
    check_eq(counts->nreslabs, 2);
    check_eq(counts->nslabs, 3);
    check_eq(counts->curslabs, 1);
    check_eq((one.pactive - pages) * arena_page_bytes(), size_classes[CLASS].slab_mask + 1);
    check_eq(one.mapped, one.pactive * arena_page_bytes());
}

/* ---------------------------------------------------------------- large objects */

static size_t live_in_class(size_t size) {
    read_all();
    return merged.lextents[counts_lextent_of(size)].curlextents;
}

TEST(large_object_is_counted_in_the_class_of_its_size_now) {
    enum { SMALLER = 200 << 10, LARGER = 1 << 20 };
    start_heap_with(QUIET);
    uint64_t allocated = thread_allocated(), freed = thread_deallocated();
    void *block = tally_malloc(SMALLER);
    check_eq(live_in_class(SMALLER), 1);
    check_eq(merged.large.allocated, SMALLER);
    block = tally_realloc(block, LARGER);
    check_eq(live_in_class(SMALLER), 0);
    check_eq(live_in_class(LARGER), 1);
    check_eq(merged.large.allocated, LARGER);
    check_sums();
    block = tally_realloc(block, LARGER - 4096); /* in the same class */
    check_eq(live_in_class(LARGER), 1);
    check_eq(merged.lextents[counts_lextent_of(LARGER)].nmalloc, 1);
    check_eq(merged.large.allocated, LARGER - 4096);
    block = tally_realloc(block, SMALLER);
    check_eq(live_in_class(LARGER), 0);
    check_eq(live_in_class(SMALLER), 1);
    check_sums();
    tally_free(block);
    check_eq(live_in_class(SMALLER), 0);
    check_eq(merged.large.allocated, 0);
    check_eq(merged.large.nmalloc, merged.large.ndalloc);
    check_sums();
    /* Every size it had counts once as allocated and once as freed. */
    check_eq(thread_allocated() - allocated, 2 * SMALLER + 2 * LARGER - 4096);
    check_eq(thread_deallocated() - freed, 2 * SMALLER + 2 * LARGER - 4096);
}

TEST(large_object_belongs_to_the_arena_it_was_asked_for) {
    start_heap_with(QUIET ",narenas:3");
    bool zeroed;
    size_t pages = *arena_pactive(2);
    void *block = large_alloc(100000, 1, PAGES_MAY_GROW, &zeroed, 2);
    check(counts_read_arena(2, &one));
    check_eq(one.large.allocated, large_usable_bytes(100000));
    check_eq((one.pactive - pages) * arena_page_bytes(), align_up(100000, UNIT_BYTES));
    struct span *span = classmap_span((uintptr_t)block);
    check_eq(span->arena, 2);
    void *moved = large_move(span, 3 << 20, PAGES_MAY_GROW);
    check(moved != NULL && counts_read_arena(2, &one));
    check_eq(one.large.allocated, 3 << 20);
    check_eq(classmap_span((uintptr_t)moved)->arena, 2);
    check(large_claim(classmap_span((uintptr_t)moved)));
    large_release(classmap_span((uintptr_t)moved));
    check(counts_read_arena(2, &one));
    check_eq(one.large.allocated, 0);
    check_eq(one.pactive, pages);
    check_sums();
}

/* The search that the arithmetic replaces. */
static unsigned find_class(size_t (*size_of)(unsigned), unsigned classes, size_t size) {
    unsigned index = 0;
    while (index + 1 < classes && size_of(index) < size) {
        index++;
    }
    return index;
}

TEST(size_is_counted_in_the_smallest_class_that_holds_it) {
    check_eq(counts_lextent_size(0), 40 << 10);
    check_eq(counts_extent_size(0), 20 << 10);
    for (unsigned i = 0; i < EXTENT_CLASSES; i++) {
        for (int off = -1; off <= 1; off++) {
            size_t large = counts_lextent_size(i % LEXTENT_CLASSES) + (size_t)off;
            check_eq(counts_lextent_of(large),
                     find_class(counts_lextent_size, LEXTENT_CLASSES, large));
            size_t run = counts_extent_size(i) + (size_t)off;
            check_eq(counts_extent_of(run), find_class(counts_extent_size, EXTENT_CLASSES, run));
        }
    }
    check_eq(counts_lextent_of(4096), 0);
    check_eq(counts_extent_of(UNIT_BYTES), 0);
}

/* ---------------------------------------------------------------- free pages */

TEST(free_run_is_told_by_its_size_and_purges_are_counted) {
    enum { RUN = 5 * UNIT_BYTES };
    start_heap_with(QUIET);
    heap_trim();
    void *before = tally_malloc(RUN), *hole = tally_malloc(RUN), *after = tally_malloc(RUN);
    check_eq((char *)after - (char *)before, 2 * RUN);
    memset(hole, 1, RUN);
    read_all();
    struct arena_counts old = merged;
    tally_free(hole);
    check_sums();
    unsigned class = counts_extent_of(RUN);
    check_eq(merged.extents[class].ndirty, old.extents[class].ndirty + 1);
    check_eq(merged.extents[class].dirty_bytes, old.extents[class].dirty_bytes + RUN);
    old = merged;
    heap_trim();
    check_sums();
    check_eq(merged.extents[class].nretained, old.extents[class].nretained + 1);
    check_eq(merged.pdirty, 0);
    check_eq(merged.dirty_purged - old.dirty_purged, old.pdirty);
    check(merged.dirty_npurge > old.dirty_npurge && merged.dirty_nmadvise > old.dirty_nmadvise);
    check_eq(merged.muzzy_npurge + merged.muzzy_nmadvise + merged.muzzy_purged, 0);
    tally_free(before);
    tally_free(after);
    check_sums();
}

/* A run of whole chunks is one run; so many that the walk lets go of the lock in between. */
TEST(free_run_of_many_chunks_is_one_run) {
    enum { CHUNKS = 150 };
    start_heap_with(QUIET);
    void *block = tally_malloc((size_t)CHUNKS * CHUNK_BYTES);
    void *behind = tally_malloc((size_t)CHUNK_BYTES);
    check(block != NULL && behind != NULL);
    read_all();
    struct arena_counts old = merged;
    tally_free(block);
    check_sums();
    unsigned class = counts_extent_of((size_t)CHUNKS * CHUNK_BYTES);
    check_eq(merged.extents[class].ndirty, old.extents[class].ndirty + 1);
    check(merged.extents[class].dirty_bytes >= (size_t)CHUNKS * CHUNK_BYTES);
    tally_free(behind);
}

/* ---------------------------------------------------------------- arenas that are gone, merging */

TEST(counts_of_a_destroyed_arena_stay_and_its_own_start_again) {
    enum { CLASS = 5, TAKEN = 30, PUT = 20 };
    start_heap_with(QUIET ",narenas:2");
    void *objects[TAKEN];
    check(arena_prepare(1));
    check_eq(bin_refill(arena_bin(1, CLASS), objects, TAKEN, PAGES_MAY_GROW), TAKEN);
    cache_count_past_alloc(1, CLASS);
    bin_drain(CLASS, objects, PUT);
    for (unsigned times = 1; times <= 2; times++) {
        counts_note_destroyed(1);
        counts_read_destroyed(&one);
        const struct bin_counts *bin = &one.bins[CLASS - 1];
        check_eq(bin->nmalloc, PUT);
        check_eq(bin->ndalloc, PUT);
        check_eq(bin->nrequests, 1);
        check_eq(bin->curregs + bin->curslabs + one.pactive + one.nthreads, 0);
        check(counts_read_arena(1, &one));
        check_eq(bin->nmalloc, TAKEN - PUT); /* what is still out */
        check_eq(bin->ndalloc, 0);
        check_eq(bin->nrequests, 0);
        check_eq(bin->curslabs, 1);
    }
    check_sums();
    bin_drain(CLASS, objects + PUT, TAKEN - PUT);
    heap_verify();
    check(!counts_read_arena(2, &one));
    check_eq(one.bins[CLASS - 1].nmalloc + one.uptime, 0);
}

TEST(merging_adds_or_takes_the_larger) {
    static struct arena_counts a = {.nthreads = 2, .uptime = 50, .dirty_decay_ms = 10};
    static struct arena_counts b = {.nthreads = 3, .uptime = 40, .dirty_decay_ms = 10};
    a.bins[3].nmalloc = 5;
    b.bins[3].nmalloc = 6;
    a.bins[3].mutex.max_wait_time = 9;
    b.bins[3].mutex.max_wait_time = 8;
    b.mutexes[ARENA_MUTEX_BASE].num_ops = 4;
    a.lextents[7].curlextents = 1;
    b.lextents[7].curlextents = 1;
    b.extents[EXTENT_CLASSES - 1].nmuzzy = 7;
    b.large.nrequests = 11;
    counts_merge(&a, &b);
    check_eq(a.nthreads, 5);
    check_eq(a.uptime, 50);
    check_eq(a.dirty_decay_ms, -1);
    check_eq(a.bins[3].nmalloc, 11);
    check_eq(a.bins[3].mutex.max_wait_time, 9);
    check_eq(a.mutexes[ARENA_MUTEX_BASE].num_ops, 4);
    check_eq(a.lextents[7].curlextents, 2);
    check_eq(a.extents[EXTENT_CLASSES - 1].nmuzzy, 7);
    check_eq(a.large.nrequests, 11);
}

/* ---------------------------------------------------------------- locks */

TEST(mutexes_are_counted_and_can_be_reset) {
    start_heap_with(QUIET);
    tally_free(tally_malloc(100000));
    check(counts_read_arena(0, &one));
    check(one.mutexes[ARENA_MUTEX_EXTENTS_DIRTY].num_ops >= 2);
    check(one.mutexes[ARENA_MUTEX_BASE].num_ops > 0);
    counts_reset_mutexes();
    check(counts_read_arena(0, &one));
    check_eq(one.mutexes[ARENA_MUTEX_BASE].num_ops, 0);
    check_eq(one.mutexes[ARENA_MUTEX_TCACHE_LIST].num_ops, 0);
    for (unsigned i = 0; i < BIN_CLASSES; i++) {
        check_eq(one.bins[i].mutex.num_ops, 0);
    }
}
