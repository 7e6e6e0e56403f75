/* SPDX-License-Identifier: MIT
 *
 * test_track.c - sampling without a profiler above it: how many are sampled, whatever caches, threads
 * and arenas do meanwhile, and what becomes of the numbers that sampled objects carry.
 *
 * The functions of prof.h that an allocation meets are this file's own (--wrap): every sampled
 * allocation gets a record here.  A sampled object of s bytes stands for 1 / (1 - exp(-s / rate))
 * objects, so with N allocations the number of samples has mean N p and variance N p (1 - p); that
 * is the same as the estimate lying within as many standard deviations of the truth.
 *
 * Where one thread works, the random numbers are given, so that a run can be repeated.  A sum over
 * many seeds must lie within 3 standard deviations, which shows a bias that is too small for one.
 * With several threads the order of draws is the scheduler's, and 5 are allowed.
 */
#include "heap/track.h"

#include <math.h>
#include <stdio.h>

#include <jemalloc/jemalloc.h>

#include "opt/opt.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/stash.h"
#include "unit.h"

enum { KIB = 1 << 10, MIB = 1 << 20, MOST_RECORDS = 1 << 21 };

/* ---------------------------------------------------------------- in the place of the profiler */

enum state { NO_RECORD, RECORDED, LIVE, FREED, GIVEN_UP };

struct record {
    void *object;
    size_t size, usable;
    _Atomic int state;
};

static struct record records[MOST_RECORDS];
static _Atomic uint32_t last_id;
static _Atomic uint64_t live_samples, freed_samples, resized_samples, refused;
static _Atomic bool refuses; /* every second sample is not recorded */

static void walk_stack(uintptr_t *frame);
void __wrap_prof_init(void);
uint32_t __wrap_prof_record(size_t size, size_t usable, void *frame);
void __wrap_prof_recorded(uint32_t id, const void *object);
void __wrap_prof_unrecord(uint32_t id);

static void on_freed(uint32_t id, const void *object, size_t usable) {
    check(id != 0 && id <= last_id);
    struct record *record = &records[id];
    check_eq(record->object, object);
    check_eq(record->usable, usable);
    int expected = LIVE;
    check(atomic_compare_exchange_strong(&record->state, &expected, FREED)); /* once */
    live_samples--;
    freed_samples++;
}

static void on_resized(uint32_t id, const void *before, const void *object, size_t old_usable,
                       size_t usable) {
    struct record *record = &records[id];
    check_eq(record->object, before);
    check_eq(record->state, LIVE);
    check_eq(record->usable, old_usable);
    check(old_usable != usable);
    record->usable = usable;
    record->object = (void *)object;
    resized_samples++;
}

void __wrap_prof_init(void) {
    track_events = (struct track_events){on_freed, on_resized};
}

uint32_t __wrap_prof_record(size_t size, size_t usable, void *frame) {
    static _Atomic unsigned calls;
    check(tls.inside);
    walk_stack(frame);
    if (refuses && calls++ % 2 == 0) {
        refused++;
        return 0;
    }
    uint32_t id = ++last_id;
    check(id < MOST_RECORDS);
    records[id].size = size;
    records[id].usable = usable;
    records[id].state = RECORDED;
    return id;
}

void __wrap_prof_recorded(uint32_t id, const void *object) {
    check_eq(records[id].state, RECORDED);
    records[id].object = (void *)object;
    records[id].state = LIVE;
    live_samples++;
}

void __wrap_prof_unrecord(uint32_t id) {
    check_eq(records[id].state, RECORDED);
    records[id].state = GIVEN_UP;
}

/* The return addresses of the stack as frame pointers tell them, from the sample outwards. */
enum { FRAMES = 12 };
static __thread uintptr_t frames[FRAMES];

static __attribute__((noinline)) void walk_stack(uintptr_t *frame) {
    memset(frames, 0, sizeof frames);
    for (unsigned i = 0; i < FRAMES; i++) {
        frames[i] = frame[1];
        uintptr_t *next = (uintptr_t *)frame[0];
        if (next <= frame || next > frame + 4096 || (uintptr_t)next % sizeof(void *) != 0) {
            break;
        }
        frame = next;
    }
}

static uint32_t id_of(void *object) {
    struct heap_object found = heap_look(object);
    check_eq(found.verdict, HEAP_LIVE);
    return track_id(&found);
}

static uint64_t samples(void) {
    return last_id + refused;
}

/* ---------------------------------------------------------------- statistics */

static double chance(size_t size, uint64_t rate) {
    size_t usable = heap_size_for(size, 1);
    return rate == 1 ? 1 : -expm1(-(double)usable / (double)rate);
}

/* Samples that were seen, and what is expected of as many independent objects. */
struct tally {
    double seen, mean, variance;
};

static void expect(struct tally *tally, double objects, size_t size, uint64_t rate) {
    double p = chance(size, rate);
    tally->mean += objects * p;
    tally->variance += objects * p * (1 - p);
}

/* Where hardly any is expected to be missed, or to be hit, numbers are no normal distribution: two more
 * are then allowed.  None where chance has no part in it. */
static bool is_within(const struct tally *tally, double sigmas) {
    double rare = tally->variance > 0 && tally->variance < 4 ? 2 : 0;
    return fabs(tally->seen - tally->mean) <= sigmas * sqrt(tally->variance) + rare;
}

static void check_within(const struct tally *tally, double sigmas, const char *what, size_t size,
                         uint64_t rate) {
    if (!is_within(tally, sigmas)) {
        printf("%s, %zu bytes, rate %llu: %.0f samples, expected %.1f +- %.1f\n", what, size,
               (unsigned long long)rate, tally->seen, tally->mean, sqrt(tally->variance));
        fflush(stdout);
        check(!"the number of samples is as expected");
    }
}

static void add_tally(struct tally *sum, const struct tally *one) {
    sum->seen += one->seen;
    sum->mean += one->mean;
    sum->variance += one->variance;
}

/* A heap that draws anew from this seed. */
static void begin(uint64_t seed, uint64_t rate) {
    track_seed(seed * UINT64_C(0xd1342543de82ef95));
    track_set_rate(rate);
    thread_flush();
}

static const uint64_t rates[] = {1, 4 * KIB, 64 * KIB, 512 * KIB};
static const size_t all_sizes[] = {16,   24,   64,    100,   256,   520,   1000,   1024,
                                   1500, 4096, 10000, 20000, 32768, 40000, 100000, MIB};
enum { RATES = 4, SIZES = sizeof all_sizes / sizeof all_sizes[0], MOST_LIVE = 1000 };
enum { FIRST_SEED = 2001, SEEDS = 25 };

static unsigned objects_for(size_t size, uint64_t rate) {
    if (rate == 1) {
        return 600;
    }
    return (size <= KIB ? 12000 : size <= 32 * KIB ? 3000 : 600) / SLOWER;
}

/* What a test does between two allocations now and then; NULL: nothing. */
typedef void (*disturbance)(struct random *random);

/*
 * `count` allocations, of which every second, at random, is freed after a while, so that |A| and F come
 * and go; then the live ones.  Adds samples seen among all and among the live.
 */
static void run_one(size_t size, uint64_t rate, uint64_t seed, disturbance disturb,
                    struct tally *all, struct tally *live) {
    static void *held[MOST_LIVE];
    struct random random = random_start(seed, size);
    unsigned count = objects_for(size, rate), nheld = 0;
    size_t most = size > 100 * KIB ? 32 : size > 8 * KIB ? 200 : MOST_LIVE;
    begin(seed, rate);
    uint64_t before = samples(), live_before = live_samples;
    for (unsigned i = 0; i < count; i++) {
        void *object = tally_malloc(size);
        check(object != NULL);
        if (nheld == most || random_below(&random, 2) == 0) {
            unsigned which = (unsigned)random_below(&random, nheld + 1);
            if (which < nheld) {
                tally_free(held[which]);
                held[which] = object;
            } else {
                tally_free(object);
            }
        } else {
            held[nheld++] = object;
        }
        if (disturb != NULL && random_below(&random, 50) == 0) {
            disturb(&random);
        }
    }
    struct tally seen = {.seen = (double)(samples() - before)};
    expect(&seen, count, size, rate);
    add_tally(all, &seen);
    struct tally seen_live = {.seen = (double)(live_samples - live_before)};
    expect(&seen_live, nheld, size, rate);
    add_tally(live, &seen_live);
    check_within(&seen, 5, "one run", size, rate);
    track_set_rate(0);
    while (nheld > 0) {
        tally_free(held[--nheld]);
    }
    check_eq(live_samples, live_before);
}

/* The sum over many seeds. */
struct sums {
    struct tally all, live;
};

static struct sums run_seeds(size_t size, uint64_t rate, disturbance disturb, unsigned first,
                             unsigned count) {
    struct sums sums = {.all = {0}};
    for (unsigned seed = first; seed < first + count; seed++) {
        run_one(size, rate, seed, disturb, &sums.all, &sums.live);
    }
    return sums;
}

/* Of so many cases, one in a few hundred is off by more than 3 though all is well: it is looked at
 * again, with four times as many seeds, in which a bias would show the more. */
static void run_all_sizes(disturbance disturb) {
    for (unsigned i = 0; i < RATES * SIZES; i++) {
        size_t size = all_sizes[i % SIZES];
        uint64_t rate = rates[i / SIZES];
        struct sums sums = run_seeds(size, rate, disturb, FIRST_SEED, SEEDS);
        if (!is_within(&sums.all, 3) || (!refuses && !is_within(&sums.live, 3))) {
            sums = run_seeds(size, rate, disturb, FIRST_SEED + SEEDS, 4 * SEEDS);
        }
        check_within(&sums.all, 3, "allocated", size, rate);
        if (!refuses) {
            check_within(&sums.live, 3, "live", size, rate);
        }
        heap_verify();
    }
}

TEST(samples_of_every_size_and_rate_are_as_many_as_they_should_be) {
    start_heap();
    run_all_sizes(NULL);
}

static void flush(struct random *random) {
    (void)random;
    thread_flush();
}

TEST(what_a_flush_takes_back_is_credited) {
    start_heap();
    run_all_sizes(flush);
}

/* All ways in which objects leave A otherwise than to the program, and calls that count as requests
 * without going through it. */
static void disturb_much(struct random *random) {
    static unsigned arena;
    size_t size = all_sizes[random_below(random, 9)];
    void *object;
    bool zeroed;
    switch (random_below(random, 7)) {
    case 0:
        heap_trim();
        break;
    case 1:
        thread_set_arena(++arena % 2);
        break;
    case 2:
        cache_make_way(tls.self, 0);
        break;
    case 3:
        thread_set_cached(!thread_is_cached());
        break;
    case 4:
        thread_set_class_max(size_class_of(size), (unsigned)random_below(random, 100));
        break;
    default: /* past the cache, of the own arena, and not sampled */
        object = place_alloc((struct place){PLACE_OWN, PLACE_NO_CACHE}, size, 1, &zeroed);
        tally_free(object);
        break;
    }
}

TEST(nothing_that_caches_and_arenas_do_changes_the_number_of_samples) {
    start_heap_with("narenas:2");
    run_all_sizes(disturb_much);
}

/* If what goes past the cache used up the distance of what does not, few of these would be sampled. */
TEST(objects_past_the_cache_are_sampled_on_their_own) {
    start_heap();
    int arena = arena_create(NULL);
    const int flags[] = {0, MALLOCX_TCACHE_NONE, MALLOCX_ARENA((unsigned)arena)};
    enum { SIZE = 64, RATE = 640, COUNT = 200000 / SLOWER };
    struct tally tallies[3] = {{0}};
    begin(5, RATE);
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned which = i % 7 == 0 ? 1 : i % 11 == 0 ? 2 : 0;
        uint64_t before = samples();
        void *object = je_mallocx(SIZE, flags[which]);
        tallies[which].seen += (double)(samples() - before);
        expect(&tallies[which], 1, SIZE, RATE);
        je_dallocx(object, which == 1 ? flags[1] : 0);
    }
    check_within(&tallies[0], 3, "cached", SIZE, RATE);
    check_within(&tallies[1], 3, "past the cache", SIZE, RATE);
    check_within(&tallies[2], 3, "of another arena", SIZE, RATE);
    heap_verify();
}

TEST(explicit_caches_sample_by_chance) {
    start_heap();
    int cache = tcaches_create();
    enum { SIZE = 100, RATE = 2000, COUNT = 100000 / SLOWER };
    void *held[64] = {NULL};
    struct tally tally = {0};
    begin(6, RATE);
    for (unsigned i = 0; i < COUNT; i++) {
        je_sdallocx(held[i % 64], SIZE, held[i % 64] != NULL ? MALLOCX_TCACHE((unsigned)cache) : 0);
        uint64_t before = samples();
        held[i % 64] = je_mallocx(SIZE, MALLOCX_TCACHE((unsigned)cache));
        tally.seen += (double)(samples() - before);
        expect(&tally, 1, SIZE, RATE);
    }
    check_within(&tally, 3, "explicit cache", SIZE, RATE);
    tcaches_destroy((unsigned)cache);
    heap_verify();
}

/* Most of these threads end before they have a heap; those that get one find that of another. */
struct work {
    uint64_t rate;
    unsigned rounds, length;
};

static _Atomic uint64_t truth[SIZES];

static void *work_a_while(void *argument) {
    static _Atomic unsigned stream;
    const struct work *work = argument;
    struct random random = random_start(7, stream++);
    void *held[100] = {NULL};
    uint64_t done[SIZES] = {0};
    for (unsigned i = 0; i < work->length; i++) {
        unsigned s = (unsigned)random_below(&random, 13);
        void **slot = &held[random_below(&random, 100)];
        tally_free(*slot);
        *slot = tally_malloc(all_sizes[s]);
        check(*slot != NULL);
        done[s]++;
        if (random_below(&random, 1000) == 0) {
            thread_mark_inside(true);
            thread_flush();
            thread_mark_inside(false);
        }
    }
    for (unsigned i = 0; i < 100; i++) {
        tally_free(held[i]);
    }
    for (unsigned s = 0; s < SIZES; s++) {
        truth[s] += done[s];
    }
    return NULL;
}

static void run_thread_rounds(struct work work) {
    uint64_t by_size[SIZES] = {0};
    uint32_t first = last_id + 1;
    memset((void *)truth, 0, sizeof truth);
    track_set_rate(work.rate);
    for (unsigned round = 0; round < work.rounds; round++) {
        run_threads(4, work_a_while, &work);
    }
    for (uint32_t id = first; id <= last_id; id++) {
        for (unsigned s = 0; s < SIZES; s++) {
            by_size[s] += records[id].size == all_sizes[s];
        }
    }
    track_set_rate(0);
    for (unsigned s = 0; s < SIZES; s++) {
        struct tally tally = {.seen = (double)by_size[s]};
        expect(&tally, (double)truth[s], all_sizes[s], work.rate);
        check_within(&tally, 5, "threads", all_sizes[s], work.rate);
    }
    check_eq(live_samples, 0);
    heap_verify();
}

TEST(threads_that_come_and_go_sample_as_many_as_they_should) {
    start_heap_with("narenas:2");
    run_thread_rounds((struct work){.rate = 1, .rounds = 5, .length = 4000 / SLOWER});
    run_thread_rounds((struct work){.rate = 4 * KIB, .rounds = 10, .length = 10000 / SLOWER});
    run_thread_rounds((struct work){.rate = 64 * KIB, .rounds = 10, .length = 30000 / SLOWER});
    /* These never get a heap of their own. */
    run_thread_rounds((struct work){.rate = 4 * KIB, .rounds = 200 / SLOWER, .length = 10});
}

static void *work_on_one_size(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < 10; i++) {
        void *object = tally_malloc(1000);
        check(object != NULL);
        tally_free(object);
    }
    return NULL;
}

/* Each thread finds the heap of the last one, filled up to what is due next.  Its first allocation is
 * decided before that, by chance, and must not let what is due pass. */
TEST(heap_that_goes_from_thread_to_thread_loses_no_sample) {
    enum { THREADS = 6000 / SLOWER };
    start_heap_with("narenas:1");
    struct tally tally = {0};
    begin(1, 4 * KIB);
    uint64_t before = samples();
    for (unsigned i = 0; i < THREADS; i++) {
        run_threads(1, work_on_one_size, NULL);
    }
    for (uint32_t id = (uint32_t)before + 1; id <= last_id; id++) {
        tally.seen += records[id].size == 1000;
    }
    expect(&tally, 10.0 * THREADS, 1000, 4 * KIB);
    check_within(&tally, 5, "short threads", 1000, 4 * KIB);
}

TEST(rate_may_change_at_any_time) {
    start_heap();
    enum { SIZE = 200, COUNT = 20000 / SLOWER };
    struct tally tally = {0};
    for (unsigned i = 0; i < 100; i++) {
        uint64_t rate = rates[i % RATES];
        uint64_t before = samples();
        begin(i, rate);
        for (unsigned k = 0; k < COUNT / 10; k++) {
            tally_free(tally_malloc(SIZE));
        }
        tally.seen += (double)(samples() - before);
        expect(&tally, COUNT / 10, SIZE, rate);
        before = samples();
        track_set_rate(0);
        for (unsigned k = 0; k < 1000; k++) {
            tally_free(tally_malloc(SIZE));
        }
        check_eq(samples(), before);
    }
    check_within(&tally, 3, "changing rates", SIZE, 0);
}

TEST(samples_that_are_not_recorded_do_not_change_the_others) {
    start_heap();
    refuses = true;
    run_all_sizes(NULL);
    check(refused > 1000 && last_id > 1000);
}

/* ---------------------------------------------------------------- every allocation */

/* The last record is that of this object; returns it. */
static void *check_recorded(void *object, size_t size) {
    const struct record *record = &records[last_id];
    check_eq(record->object, object);
    check_eq(record->size, size);
    check_eq(record->state, LIVE);
    check_eq(record->usable, tally_usable_size(object));
    check_eq(id_of(object), last_id);
    return object;
}

/* With one arena: a thread that has no heap yet takes that of the CPU it runs on. */
static void start_exactly(void) {
    start_heap_with("narenas:1");
    track_set_rate(1);
}

TEST(rate_1_records_every_allocation_of_every_function) {
    start_exactly();
    static void *objects[64 * SIZES];
    uint32_t ids = 0;
    unsigned count = 0;
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned s = 0; s < SIZES; s++) {
            size_t size = all_sizes[s];
            void *result = NULL;
            objects[count++] = check_recorded(tally_malloc(size), size);
            objects[count++] = check_recorded(tally_calloc(2, size), 2 * size);
            objects[count++] = check_recorded(tally_aligned_alloc(64, size), size);
            objects[count++] = check_recorded(tally_memalign(4096, size), size);
            check_eq(tally_posix_memalign(&result, 32, size), 0);
            objects[count++] = check_recorded(result, size);
            objects[count++] = check_recorded(tally_realloc(NULL, size), size);
            objects[count++] = check_recorded(je_mallocx(size, MALLOCX_TCACHE_NONE), size);
            objects[count++] = check_recorded(je_mallocx(size, MALLOCX_ARENA(0)), size);
            objects[count++] = check_recorded(je_mallocx(size, MALLOCX_ALIGN(128)), size);
            ids += 9;
            check_eq(last_id, ids);
        }
    }
    heap_verify();
    check_eq(live_samples, count);
    while (count > 0) {
        tally_free(objects[--count]);
    }
    check_eq(live_samples, 0);
    check_eq(freed_samples, ids);
    heap_verify();
}

/* As one that has asked before the rate changed. */
TEST(allocation_that_has_not_asked_is_served_and_passes) {
    start_exactly();
    for (unsigned i = 0; i < 100 * SIZES; i++) {
        bool zeroed;
        void *object = heap_alloc(all_sizes[i % SIZES], &zeroed);
        check(object != NULL);
        check_eq(id_of(object), 0);
        tally_free(object);
    }
    check_recorded(tally_malloc(100), 100);
}

TEST(tracked_objects_are_aligned_and_do_not_overlap) {
    start_exactly();
    enum { COUNT = 3000 };
    static unsigned char *objects[COUNT];
    static size_t sizes[COUNT];
    struct random random = random_start(8, 0);
    for (unsigned i = 0; i < 20 * COUNT; i++) {
        unsigned k = (unsigned)random_below(&random, COUNT);
        for (size_t b = 0; objects[k] != NULL && b < sizes[k]; b += 1 + sizes[k] / 16) {
            check_eq(objects[k][b], k % 251);
        }
        tally_free(objects[k]);
        size_t alignment = (size_t)1 << random_below(&random, 13);
        sizes[k] = random_below(&random, random_below(&random, 4) == 0 ? 20000 : 600);
        objects[k] = tally_memalign(alignment, sizes[k]);
        check_eq((uintptr_t)objects[k] % alignment, 0);
        memset(objects[k], (int)(k % 251), sizes[k]);
    }
    heap_verify();
    for (unsigned k = 0; k < COUNT; k++) {
        tally_free(objects[k]);
    }
    check_eq(live_samples, 0);
}

TEST(calloc_clears_what_was_used_before) {
    start_exactly();
    for (unsigned i = 0; i < 10 * SIZES; i++) {
        size_t size = all_sizes[i % SIZES];
        char *object = tally_malloc(size);
        memset(object, 0xff, size);
        tally_free(object);
        object = tally_calloc(1, size);
        for (size_t k = 0; k < size; k++) {
            check_eq(object[k], 0);
        }
        memset(object, 0xff, size);
        tally_free(object);
    }
}

TEST(realloc_keeps_the_number_where_the_object_stays) {
    start_exactly();
    void *object = tally_malloc(100);
    uint32_t id = id_of(object);
    check(tally_realloc(object, 112) == object); /* its class has 112 bytes */
    check_eq(id_of(object), id);
    check_eq(last_id, id);
    void *moved = tally_realloc(object, 1000);
    check_eq(records[id].state, FREED);
    check_eq(id_of(moved), id + 1);
    check_eq(heap_look(object).verdict, HEAP_DOUBLE_FREE);
    tally_free(moved);
    check_eq(live_samples, 0);
}

TEST(large_object_keeps_its_number_when_it_grows_shrinks_and_moves) {
    start_exactly();
    char *object = tally_malloc(3 * MIB);
    uint32_t id = id_of(object);
    object[0] = 7;
    object = tally_realloc(object, 2 * MIB);
    check_eq(resized_samples, 1);
    check_eq(records[id].usable, 2 * MIB);
    object = tally_realloc(object, 2 * MIB + 4096);
    check_eq(resized_samples, 2);
    unsigned moves = 0;
    for (unsigned i = 0; i < 6; i++) {
        void *wall = tally_malloc(64 * KIB); /* so that it cannot grow where it is */
        char *moved = tally_realloc(object, tally_usable_size(object) + 2 * MIB);
        moves += moved != object;
        object = moved;
        check_eq(id_of(object), id);
        check_eq(records[id].object, object);
        check_eq(records[id].usable, tally_usable_size(object));
        check_eq(object[0], 7);
        tally_free(wall);
        heap_verify();
    }
    check(moves > 0);
    tally_free(object);
    check_eq(records[id].state, FREED);
    check_eq(live_samples, 0);
}

TEST(second_free_of_a_tracked_object_dies) {
    start_exactly();
    void *object = tally_malloc(100);
    void *neighbour = tally_malloc(100);
    void *large = tally_malloc(MIB);
    tally_free(object);
    check_dies_exactly(tally_free(object), "tally: free(%p): the 112-byte object is already free",
                       SIGABRT);
    check_dies_exactly(tally_free((char *)neighbour + 16),
                       "tally: free(%p): not the start of an object: 16 bytes into the 112-byte "
                       "object at %p",
                       SIGABRT);
    check_dies_exactly(tally_free_sized(neighbour, 200),
                       "tally: free_sized(%p, 200): wrong size: the object has 112 bytes, one of "
                       "that size would have 208",
                       SIGABRT);
    tally_free(large);
    check_dies(tally_free(large), "this memory of the heap is free", SIGABRT);
    struct heap_object found = heap_look(neighbour);
    check(heap_free(&found));
    check(!heap_free(&found)); /* what the slower of two threads finds */
    tally_free(tally_malloc(100));
    heap_verify();
}

TEST(object_freed_by_a_handler_is_freed_later) {
    start_exactly();
    void *object = tally_malloc(100);
    void *large = tally_malloc(MIB);
    thread_mark_inside(true);
    tally_free(object);
    tally_free(large);
    thread_mark_inside(false);
    check_eq(freed_samples, 0);
    void *next = tally_malloc(50);
    check_eq(freed_samples, 2);
    tally_free(next);
    heap_verify();
}

/* ---------------------------------------------------------------- the way to the caller */

/* One function per call, each the only place in the program its address range belongs to.  The call is
 * not its last act, or it would be a jump. */
#define CALLER(name, call)                                                                         \
    static __attribute__((noinline, used)) void *name(void) {                                      \
        void *object = call;                                                                       \
        __asm__ volatile("" : "+r"(object));                                                       \
        return object;                                                                             \
    }
static inline __attribute__((always_inline)) void *aligned_by_posix(void) {
    void *object = NULL;
    tally_posix_memalign(&object, 64, 100);
    return object;
}
CALLER(calls_malloc, tally_malloc(100))
CALLER(calls_malloc_of_a_middle_size, tally_malloc(5000))
CALLER(calls_malloc_large, tally_malloc(MIB))
CALLER(calls_calloc, tally_calloc(10, 10))
CALLER(calls_calloc_large, tally_calloc(10, MIB))
CALLER(calls_realloc, tally_realloc(NULL, 100))
CALLER(calls_realloc_grow, tally_realloc(tally_malloc(10), 5000))
CALLER(calls_reallocarray, tally_reallocarray(NULL, 10, 10))
CALLER(calls_aligned_alloc, tally_aligned_alloc(64, 100))
CALLER(calls_memalign, tally_memalign(64, 100))
CALLER(calls_valloc, tally_valloc(100))
CALLER(calls_pvalloc, tally_pvalloc(100))
CALLER(calls_posix_memalign, aligned_by_posix())
CALLER(calls_mallocx, je_mallocx(100, 0))
CALLER(calls_mallocx_with_flags, je_mallocx(100, MALLOCX_ZERO))
CALLER(calls_mallocx_elsewhere, je_mallocx(100, MALLOCX_ARENA(0)))
CALLER(calls_rallocx, je_rallocx(tally_malloc(10), 5000, MALLOCX_ZERO))

/* A frame pointer that is missing between the program and the profiler hides exactly the caller. */
TEST(frame_pointers_lead_from_a_sample_to_its_caller) {
    static void *(*const callers[])(void) = {
        calls_malloc,
        calls_malloc_of_a_middle_size,
        calls_malloc_large,
        calls_calloc,
        calls_calloc_large,
        calls_realloc,
        calls_realloc_grow,
        calls_reallocarray,
        calls_aligned_alloc,
        calls_memalign,
        calls_valloc,
        calls_pvalloc,
        calls_posix_memalign,
        calls_mallocx,
        calls_mallocx_with_flags,
        calls_mallocx_elsewhere,
        calls_rallocx,
    };
    start_exactly();
    for (unsigned i = 0; i < sizeof callers / sizeof callers[0]; i++) {
        for (unsigned round = 0; round < 20; round++) { /* with a heap and without */
            tally_free(callers[i]());
            bool found = false;
            for (unsigned k = 0; k < FRAMES; k++) {
                found |= frames[k] - (uintptr_t)callers[i] < 64;
            }
            check(found);
        }
    }
}

/* ---------------------------------------------------------------- counting */

TEST(tracked_objects_count_as_others_do) {
    start_heap_with("narenas:1");
    uint64_t allocated = thread_allocated(), freed = thread_deallocated();
    track_set_rate(1);
    enum { COUNT = 300 };
    void *objects[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        objects[i] = tally_malloc(200);
    }
    unsigned c = size_class_of(200);
    size_t nslabs, nout, ncached;
    heap_class_counts(c, &nslabs, &nout, &ncached);
    check_eq(nout - ncached, COUNT);
    check(nslabs >= COUNT / size_classes[c].total);
    static struct arena_counts counts;
    counts_read_arena(0, &counts);
    check_eq(counts.bins[c - 1].curregs, COUNT + ncached);
    check_eq(counts.bins[c - 1].nrequests, COUNT);
    check_eq(thread_allocated() - allocated, COUNT * 208);
    check_eq(heap_totals().live, COUNT * 208);
    for (unsigned i = 0; i < COUNT; i++) {
        tally_free(objects[i]);
    }
    check_eq(thread_deallocated() - freed, COUNT * 208);
    check_eq(heap_totals().live, 0);
    thread_flush();
    counts_read_arena(0, &counts);
    check_eq(counts.bins[c - 1].ndalloc, counts.bins[c - 1].nmalloc);
    check_eq(counts.bins[c - 1].nrequests, COUNT);
}

TEST(thread_that_counts_exactly_is_sampled_like_others) {
    start_heap();
    const uint64_t *allocated = thread_allocated_live(), *freed = thread_deallocated_live();
    uint64_t before = *allocated, freed_before = *freed;
    track_set_rate(1);
    void *small = tally_malloc(100), *large = tally_malloc(MIB);
    check_eq(*allocated - before, 112 + MIB);
    check(id_of(small) != 0 && id_of(large) != 0);
    large = tally_realloc(large, MIB / 2);
    tally_free(small);
    tally_free(large);
    check_eq(*freed - freed_before, 112 + MIB + MIB / 2);
    struct tally tally = {0};
    begin(9, 1000);
    uint64_t samples_before = samples();
    for (unsigned i = 0; i < 20000; i++) {
        tally_free(tally_malloc(100));
    }
    tally.seen = (double)(samples() - samples_before);
    expect(&tally, 20000, 100, 1000);
    check_within(&tally, 3, "parked", 100, 1000);
}

TEST(numbers_are_kept_in_memory_that_is_used_again) {
    start_exactly();
    enum { COUNT = 5000 };
    static void *objects[COUNT];
    size_t bytes = 0;
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            objects[i] = tally_malloc(16 << i % 6);
        }
        for (unsigned i = 0; i < COUNT; i++) {
            tally_free(objects[i]);
        }
        heap_trim();
        heap_verify();
        bytes = round == 0 ? meta_bytes() : bytes;
        check_eq(meta_bytes(), bytes);
    }
}

TEST(memory_is_told_by_its_bin_and_goes_back) {
    start_exactly();
    void *object = tally_malloc(100);
    struct bin_use use = bin_query(object);
    check_eq(use.nregs, size_classes[size_class_of(100)].total);
    check_eq(use.nregs - use.nfree, 1);
    check_eq(arena_of(object), thread_arena());
    check_eq(classmap_get((uintptr_t)object), 0);
    tally_free(object);
    size_t used = pages_totals().used;
    heap_trim();
    check(pages_totals().used < used);
}

/* Where samples are rare, each class that was ever sampled would keep a slab for nothing. */
TEST(empty_slab_goes_at_once_unless_samples_are_dense) {
    start_exactly();
    unsigned c = size_class_of(100);
    void *dense = tally_malloc(100);
    void *rare = tally_malloc(2000);
    struct bin *bin = arena_bin(thread_arena() | ARENA_TRACKED, c);
    struct bin *other = arena_bin(thread_arena() | ARENA_TRACKED, size_class_of(2000));
    check_eq(bin->nslabs, 1);
    check_eq(other->nslabs, 1);
    tally_free(dense);
    check_eq(bin->nslabs, 1);
    track_set_rate(512 * KIB);
    tally_free(rare);
    check_eq(other->nslabs, 0);
    track_set_rate(0);
    heap_verify();
}

/* ---------------------------------------------------------------- arenas */

TEST(reset_of_an_arena_tells_of_all_its_objects) {
    start_exactly();
    int arena = arena_create(NULL);
    enum { COUNT = 2000 };
    for (unsigned i = 0; i < COUNT; i++) {
        check(je_mallocx(all_sizes[i % SIZES], MALLOCX_ARENA((unsigned)arena)) != NULL);
    }
    void *other = tally_malloc(100);
    check_eq(live_samples, COUNT + 1);
    check(arena_reset((unsigned)arena));
    check_eq(live_samples, 1);
    check_eq(records[id_of(other)].state, LIVE);
    heap_verify();
    void *object = je_mallocx(100, MALLOCX_ARENA((unsigned)arena));
    check(id_of(object) != 0);
    check(arena_destroy((unsigned)arena));
    check_eq(live_samples, 1);
    tally_free(other);
    heap_verify();
}

TEST(thread_bound_to_an_arena_is_sampled_there) {
    start_exactly();
    int arena = arena_create(NULL);
    check(thread_set_arena((unsigned)arena));
    void *small = tally_malloc(100), *large = tally_malloc(MIB);
    check(id_of(small) != 0 && id_of(large) != 0);
    check_eq(arena_of(small), arena);
    check_eq(arena_of(large), arena);
    tally_free(small);
    tally_free(large);
    thread_set_arena(0);
    check(arena_destroy((unsigned)arena));
}

static void *hook_alloc(struct extent_hooks *hooks, void *address, size_t size, size_t alignment,
                        bool *zero, bool *commit, unsigned arena) {
    (void)hooks;
    return hooks_default.alloc(&hooks_default, address, size, alignment, zero, commit, arena);
}

TEST(memory_from_hooks_is_not_sampled) {
    start_exactly();
    static struct extent_hooks hooks = {.alloc = hook_alloc};
    int arena = arena_create(&hooks);
    check(arena >= 0);
    uint64_t before = samples();
    void *small = je_mallocx(100, MALLOCX_ARENA((unsigned)arena));
    void *large = je_mallocx(MIB, MALLOCX_ARENA((unsigned)arena));
    check(small != NULL && large != NULL);
    check(thread_set_arena((unsigned)arena));
    for (unsigned i = 0; i < 1000; i++) {
        void *object = tally_malloc(all_sizes[i % SIZES]);
        check(object != NULL);
        tally_free(object);
    }
    check_eq(samples(), before);
    thread_set_arena(0);
    tally_free(small);
    tally_free(large);
    void *object = tally_malloc(100);
    check_eq(samples(), before + 1);
    tally_free(object);
    heap_verify();
}

TEST(arena_that_gets_hooks_late_is_no_longer_sampled) {
    start_exactly();
    static struct extent_hooks hooks = {.alloc = hook_alloc};
    int arena = arena_create(NULL);
    check(thread_set_arena((unsigned)arena));
    void *before = tally_malloc(100);
    check(id_of(before) != 0);
    check(arena_set_hooks((unsigned)arena, &hooks));
    uint64_t seen = samples();
    for (unsigned i = 0; i < 1000; i++) {
        void *object = tally_malloc(100);
        check(object != NULL);
        tally_free(object);
    }
    check_eq(samples(), seen);
    tally_free(before);
    check_eq(live_samples, 0);
    heap_verify();
}

/* ---------------------------------------------------------------- other conditions */

TEST(window_mode_is_sampled_too) {
    limit_address_space(8ul << 30);
    start_exactly();
    void *objects[500];
    for (unsigned i = 0; i < 500; i++) {
        objects[i] = tally_malloc(all_sizes[i % 10]);
        check_eq(id_of(objects[i]), i + 1);
    }
    heap_verify();
    for (unsigned i = 0; i < 500; i++) {
        tally_free(objects[i]);
    }
    check_eq(live_samples, 0);
    struct tally tally = {0};
    begin(10, 1000);
    for (unsigned i = 0; i < 20000; i++) {
        tally_free(tally_malloc(100));
    }
    tally.seen = (double)samples() - 500;
    expect(&tally, 20000, 100, 1000);
    check_within(&tally, 3, "window mode", 100, 1000);
}

static void *take_some(void *objects) {
    for (unsigned i = 0; i < 200; i++) {
        ((void **)objects)[i] = tally_malloc(all_sizes[i % SIZES]);
    }
    return NULL;
}

static void free_some(void **objects) {
    for (unsigned i = 0; i < 200; i++) {
        tally_free(objects[i]);
    }
    check_eq(live_samples, 0);
    void *object = tally_malloc(100);
    check(id_of(object) != 0);
    tally_free(object);
    for (unsigned i = 0; i < 1000; i++) {
        tally_free(tally_malloc(3000)); /* orphans are recovered */
    }
    heap_verify();
}

TEST(child_of_a_fork_frees_what_its_parent_tracked) {
    start_exactly();
    static void *objects[200];
    run_threads(1, take_some, objects);
    check_child(free_some(objects));
    free_some(objects);
}

static void *leave_half_done(void *bin_to_spoil) {
    struct bin *bin = bin_to_spoil;
    lock_acquire(&bin->lock);
    bin->nmalloc += 7;
    bin->nslabs = 100;
    bin->slabs = NULL;
    return NULL;
}

TEST(abandoned_bin_of_tracked_objects_is_rebuilt) {
    start_heap_with("narenas:1");
    track_set_rate(1);
    void *objects[500];
    for (unsigned i = 0; i < 500; i++) {
        objects[i] = tally_malloc(200);
    }
    run_threads(1, leave_half_done, arena_bin(ARENA_TRACKED, size_class_of(200)));
    pretend_fork();
    for (unsigned i = 0; i < 500; i++) {
        check_eq(id_of(objects[i]), i + 1);
        tally_free(objects[i]);
    }
    check_eq(live_samples, 0);
    heap_verify();
}

static void *churn(void *stop) {
    static _Atomic unsigned stream;
    struct random random = random_start(11, stream++);
    void *held[100] = {NULL};
    while (!*(_Atomic bool *)stop) {
        void **slot = &held[random_below(&random, 100)];
        tally_free(*slot);
        *slot = tally_malloc(all_sizes[random_below(&random, 13)]);
    }
    for (unsigned i = 0; i < 100; i++) {
        tally_free(held[i]);
    }
    return NULL;
}

static void use_each_class(void) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        void *object = tally_malloc(size_classes[c].size);
        check(object != NULL);
        tally_free(object);
    }
    heap_verify();
}

static void fork_beside_busy_threads(uint64_t rate) {
    start_heap_with("narenas:2");
    track_set_rate(rate);
    _Atomic bool stop = false;
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_create(&threads[i], NULL, churn, &stop) == 0);
    }
    for (unsigned i = 0; i < 60 / SLOWER && last_id < MOST_RECORDS / 2; i++) {
        check_child(use_each_class());
    }
    stop = true;
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    check_eq(live_samples, 0);
    heap_verify();
}

TEST(children_forked_beside_busy_threads_have_a_sound_heap) {
    fork_beside_busy_threads(200);
}

static void *change_rates(void *stop) {
    struct random random = random_start(12, 0);
    while (!*(_Atomic bool *)stop && last_id < MOST_RECORDS - 100000) {
        thread_mark_inside(true);
        track_set_rate(random_below(&random, 3) == 0 ? 0 : random_below(&random, 1000));
        thread_mark_inside(false);
        usleep(50);
    }
    track_set_rate(0);
    return NULL;
}

/* An allocation that was told "not yet" just before the rate changed must not fail for it. */
TEST(rate_may_change_beside_busy_threads) {
    start_heap_with("narenas:2");
    _Atomic bool stop = false;
    pthread_t changer;
    struct work work = {.length = 100000 / SLOWER};
    check(pthread_create(&changer, NULL, change_rates, &stop) == 0);
    for (unsigned round = 0; round < 5; round++) {
        run_threads(3, work_a_while, &work);
    }
    stop = true;
    check(pthread_join(changer, NULL) == 0);
    check_eq(live_samples, 0);
    heap_verify();
}

/* ---------------------------------------------------------------- stashes */

static size_t tracked_out(unsigned c) {
    return bin_nout(arena_bin(ARENA_TRACKED, c));
}

TEST(stash_keeps_a_few_until_it_is_flushed) {
    start_exactly();
    enum { COUNT = 300 };
    void *objects[COUNT];
    unsigned c = size_class_of(200);
    for (unsigned i = 0; i < COUNT; i++) {
        objects[i] = tally_malloc(200);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        tally_free(objects[i]);
    }
    unsigned kept = stash_count(tls.self, c);
    check(kept > 0 && kept <= STASH_MOST);
    check_eq(tracked_out(c), kept);
    check_eq(heap_totals().live, 0);
    check_eq(heap_totals().cached, kept * 208);
    check_eq(heap_look(objects[COUNT - 1]).verdict, HEAP_DOUBLE_FREE); /* the last one is there */
    check_eq(heap_free_tracked(objects[COUNT - 1]), HEAP_TRACKED_LATE);
    check_dies(tally_free(objects[COUNT - 1]), "is already free", SIGABRT);
    heap_verify();
    thread_flush();
    check_eq(stash_count(tls.self, c), 0);
    check_eq(tracked_out(c), 0);
    heap_verify();
}

TEST(stash_keeps_nothing_where_few_are_tracked) {
    start_heap_with("narenas:1");
    track_set_rate(4096);
    unsigned c = size_class_of(200);
    for (unsigned i = 0; i < 20000; i++) {
        tally_free(tally_malloc(200));
        check(tls.self == NULL || stash_count(tls.self, c) == 0);
    }
    check(last_id > 0);
}

TEST(stash_is_left_when_sampling_ends) {
    start_exactly();
    enum { COUNT = 100 };
    void *objects[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        objects[i] = tally_malloc(200);
    }
    track_set_rate(0);
    for (unsigned i = 0; i < COUNT; i++) {
        tally_free(objects[i]);
    }
    check_eq(stash_count(tls.self, size_class_of(200)), 0);
    check_eq(tracked_out(size_class_of(200)), 0);
}

TEST(stash_of_a_thread_that_leaves_its_arena_stays_behind) {
    start_exactly();
    void *object = tally_malloc(200);
    for (unsigned i = 0; i < 20; i++) {
        tally_free(tally_malloc(200));
    }
    unsigned c = size_class_of(200);
    check(stash_count(tls.self, c) > 0);
    int manual = arena_create(NULL);
    check(manual > 0 && thread_set_arena((unsigned)manual));
    check_eq(stash_count(tls.self, c), 0);
    tally_free(object); /* of the other arena: straight to its slab */
    check_eq(stash_count(tls.self, c), 0);
    check_eq(tracked_out(c), 0);
    void *kept = tally_malloc(200);
    tally_free(tally_malloc(200));
    check(stash_count(tls.self, c) > 0);
    check(arena_reset((unsigned)manual));
    check_eq(live_samples, 0);
    check_eq(heap_look(kept).verdict == HEAP_LIVE, false);
    heap_verify();
    void *objects[100];
    for (unsigned i = 0; i < 100; i++) { /* what was in the stash, and the rest: none twice */
        objects[i] = tally_malloc(200);
        memset(objects[i], (int)i, 200);
    }
    for (unsigned i = 0; i < 100; i++) {
        check_eq(((unsigned char *)objects[i])[199], i);
        tally_free(objects[i]);
    }
    check_eq(live_samples, 0);
    heap_verify();
}

TEST(stashed_objects_are_handed_out_once_whatever_happens) {
    start_heap_with("narenas:2");
    struct random random = random_start(13, 0);
    enum { SLOTS = 600 };
    static struct {
        uint64_t *object;
        size_t size;
    } slots[SLOTS];
    for (unsigned turn = 0; turn < 200000 / SLOWER; turn++) {
        unsigned i = random_below(&random, SLOTS);
        if (slots[i].object != NULL) {
            check_eq(slots[i].object[0], i);
            check_eq(slots[i].object[slots[i].size / 8 - 1], i);
            tally_free(slots[i].object);
        }
        slots[i].size = 16 + random_below(&random, random_below(&random, 9) == 0 ? 20000 : 300);
        slots[i].object = tally_malloc(slots[i].size);
        slots[i].object[0] = slots[i].object[slots[i].size / 8 - 1] = i;
        if (turn % 1000 == 0) {
            static const uint64_t choices[] = {1, 1, 100, 0};
            track_set_rate(choices[random_below(&random, 4)]);
        } else if (turn % 1777 == 0) {
            thread_flush();
        } else if (turn % 2999 == 0) {
            heap_trim();
            heap_verify();
        }
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        tally_free(slots[i].object);
    }
    thread_flush();
    check_eq(live_samples, 0);
    check_eq(heap_totals().live, 0);
    heap_verify();
}

TEST(children_forked_beside_full_stashes_have_a_sound_heap) {
    fork_beside_busy_threads(1);
}
