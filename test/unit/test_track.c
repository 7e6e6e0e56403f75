/* SPDX-License-Identifier: MIT
 *
 * test_track.c - sampling without a profiler above it: what becomes of the numbers that sampled objects
 * carry, from every function that allocates to every way of letting go, and what is counted.
 */
#include <jemalloc/jemalloc.h>
#include <math.h>
#include <stdio.h>

#include "heap/arena.h"
#include "heap/chunk.h"
#include "heap/counts.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "heap/meta.h"
#include "noted_samples.h"
#include "unit.h"

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

TEST(flags_leave_the_size_that_is_asked_for) {
    static const int flags[] = {0,
                                MALLOCX_ZERO,
                                MALLOCX_ALIGN(8),
                                MALLOCX_ALIGN(64),
                                MALLOCX_ALIGN(64) | MALLOCX_ZERO,
                                MALLOCX_TCACHE_NONE};
    static const size_t sizes[] = {1, 100, 5000, 50001};
    start_exactly();
    for (unsigned i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        for (unsigned s = 0; s < 4; s++) {
            void *object = je_mallocx(sizes[s], flags[i]);
            check_eq(records[id_of(object)].size, sizes[s]);
            check_eq(records[id_of(object)].usable, tally_usable_size(object));
            object = je_rallocx(object, 3 * sizes[s] + 200, flags[i]);
            check_eq(records[id_of(object)].size, 3 * sizes[s] + 200);
            tally_free(object);
        }
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

TEST(large_object_is_sampled_anew_when_it_grows_shrinks_and_moves) {
    start_exactly();
    char *object = tally_malloc(3 * MIB);
    uint32_t id = id_of(object);
    object[0] = 7;
    unsigned moves = 0;
    for (unsigned i = 0; i < 8; i++) {
        void *wall = tally_malloc(64 * KIB); /* so that it cannot grow where it is */
        size_t size = i == 0 ? 2 * MIB : tally_usable_size(object) + (i == 1 ? 4096 : 2 * MIB);
        char *resized = tally_realloc(object, size - 5);
        moves += resized != object;
        object = resized;
        check_eq(records[id].state, FREED);
        id = id_of(object);
        check_eq(id, last_id);
        check_eq(records[id].object, object);
        check_eq(records[id].size, size - 5);
        check_eq(records[id].usable, tally_usable_size(object));
        check_eq(object[0], 7);
        tally_free(wall);
        heap_verify();
    }
    check(moves > 0);
    check_eq(tally_realloc(object, tally_usable_size(object)), object);
    check_eq(id_of(object), id); /* the same usable bytes are no resize */
    tally_free(object);
    check_eq(records[id].state, FREED);
    check_eq(live_samples, 0);
}

/* Objects go through these sizes, each step decided by itself. */
static void resize_many(const size_t *sizes, unsigned steps, uint64_t seed) {
    enum { OBJECTS = 200 };
    const uint64_t rate = 512 * KIB;
    void *objects[OBJECTS];
    begin(seed, rate);
    uint64_t all = samples();
    for (unsigned i = 0; i < OBJECTS; i++) {
        objects[i] = tally_malloc(sizes[0]);
    }
    struct tally taken = {.seen = 0};
    expect(&taken, OBJECTS, sizes[0], rate);
    for (unsigned step = 1; step < steps; step++) {
        for (unsigned i = 0; i < OBJECTS; i++) {
            objects[i] = tally_realloc(objects[i], sizes[step]);
        }
        struct tally live = {.seen = (double)live_samples};
        expect(&live, OBJECTS, sizes[step], rate);
        check_within(&live, 4, "live after a resize", sizes[step], rate);
        expect(&taken, OBJECTS, sizes[step], rate);
    }
    taken.seen = (double)(samples() - all);
    check_within(&taken, 4, "taken by all resizes", sizes[0], rate);
    heap_verify();
    for (unsigned i = 0; i < OBJECTS; i++) {
        tally_free(objects[i]);
    }
    check_eq(live_samples, 0);
}

TEST(resized_object_is_sampled_by_the_chance_of_its_new_size) {
    static const size_t growing[] = {10000, 40000, 100000, 300000, MIB, 3 * MIB / 2},
                        shrinking[] = {2 * MIB, MIB, 700000, 200000, 40000, 10000};
    start_heap_with("narenas:1");
    for (unsigned seed = 1; seed <= 5; seed++) {
        resize_many(growing, 6, seed);
        resize_many(shrinking, 6, seed + 5);
    }
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
