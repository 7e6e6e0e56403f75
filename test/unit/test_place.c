/* SPDX-License-Identifier: MIT
 *
 * test_place.c - every combination of arena and cache gives objects of the right arena, size and
 * alignment, and takes them back where it was told to.
 */
#include "heap/place.h"

#include "heap/arena.h"
#include "heap/bin.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "unit.h"

static const size_t sizes[] = {0, 1, 16, 100, 1000, 4096, 32768, 32769, 200000, 3 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void *alloc_at(int arena, int cache, size_t size, size_t alignment) {
    bool zeroed;
    return place_alloc((struct place){arena, cache}, size, alignment, &zeroed);
}

static bool free_to(int cache, void *object) {
    struct heap_object found = heap_look(object);
    check_eq(found.verdict, HEAP_LIVE);
    return place_free((struct place){PLACE_OWN, cache}, &found);
}

static void check_object(void *object, int arena, size_t size, size_t alignment) {
    check(object != NULL);
    check_eq((uintptr_t)object % alignment, 0);
    check_eq((uintptr_t)object % SMALLEST, 0);
    struct heap_object found = heap_look(object);
    check_eq(found.verdict, HEAP_LIVE);
    check_eq(found.size, heap_size_for(size, alignment));
    check(found.size >= size);
    if (arena >= 0) {
        check_eq(arena_of(object), arena);
    }
    memset(object, 0xa5, found.size);
}

TEST(every_place_serves_every_size_and_alignment) {
    start_heap_with("narenas:2");
    int manual = arena_create(NULL);
    int id = tcaches_create();
    const int arenas[] = {PLACE_OWN, 0, 1, manual};
    const int caches[] = {PLACE_OWN, PLACE_NO_CACHE, id};
    size_t before = heap_totals().live;
    for (unsigned i = 0; i < 4 * 3 * SIZES; i++) {
        int arena = arenas[i % 4];
        int cache = caches[i / 4 % 3];
        size_t size = sizes[i / 12];
        for (size_t alignment = 1; alignment <= 8 << 20; alignment *= 4) {
            tcaches_flush((unsigned)id); /* what it holds may be of another arena */
            void *object = alloc_at(arena, cache, size, alignment);
            check_object(object, arena, size, alignment);
            check(free_to(caches[(i + alignment) % 3], object));
        }
    }
    tcaches_flush((unsigned)id);
    thread_flush();
    check_eq(heap_totals().live, before);
    heap_verify();
}

TEST(arena_that_does_not_exist_serves_nobody) {
    start_heap();
    for (unsigned i = 0; i < SIZES; i++) {
        check(alloc_at(3000, PLACE_OWN, sizes[i], 1) == NULL);
        check(alloc_at(4095, PLACE_NO_CACHE, sizes[i], 1) == NULL);
        check(alloc_at(70000, PLACE_NO_CACHE, sizes[i], 1) == NULL);
    }
    int gone = arena_create(NULL);
    check(arena_destroy((unsigned)gone));
    check(alloc_at(gone, PLACE_OWN, 100, 1) == NULL);
}

TEST(impossible_sizes_are_refused) {
    start_heap();
    int arena = arena_create(NULL);
    check(alloc_at(arena, PLACE_NO_CACHE, (size_t)1 << 62, 1) == NULL);
    check(alloc_at(arena, PLACE_NO_CACHE, 100, (size_t)1 << 62) == NULL);
    check(alloc_at(arena, PLACE_OWN, SIZE_MAX / 2, 16) == NULL);
    heap_verify();
}

TEST(object_without_cache_goes_straight_to_its_slab) {
    start_heap_with("narenas:1");
    for (unsigned i = 0; i < 100; i++) {
        tally_free(tally_malloc(100)); /* a cache is at hand, and must not be used */
    }
    int arena = arena_create(NULL);
    unsigned c = size_class_of(100);
    for (unsigned i = 0; i < 1000; i++) {
        void *object = alloc_at(arena, PLACE_OWN, 100, 1);
        check_eq(bin_nout(arena_bin((unsigned)arena, c)), 1);
        check(free_to(PLACE_NO_CACHE, object));
        check_eq(bin_nout(arena_bin((unsigned)arena, c)), 0);
        check_eq(heap_look(object).verdict, HEAP_DOUBLE_FREE);
    }
}

TEST(explicit_cache_hands_out_what_was_put_into_it) {
    start_heap_with("narenas:1");
    int arena = arena_create(NULL);
    int id = tcaches_create();
    void *objects[64];
    for (unsigned i = 0; i < 64; i++) {
        objects[i] = alloc_at(arena, id, 500, 1);
        check_eq(arena_of(objects[i]), arena);
    }
    for (unsigned i = 0; i < 64; i++) {
        check(free_to(id, objects[i]));
    }
    unsigned known = 0;
    for (unsigned i = 0; i < 8; i++) {
        void *object = alloc_at(0, id, 500, 1); /* a hit, although another arena is asked for */
        known += arena_of(object) == arena;
    }
    check(known > 0);
}

TEST(cache_that_does_not_exist_is_none) {
    start_heap_with("narenas:1");
    void *object = alloc_at(0, 4000, 100, 1);
    check(object != NULL);
    check(free_to(4000, object));
    check_eq(heap_look(object).verdict, HEAP_DOUBLE_FREE);
    check_eq(bin_nout(arena_bin(0, size_class_of(100))), 0);
}

TEST(fresh_large_memory_is_known_to_be_zero) {
    start_heap();
    int arena = arena_create(NULL);
    bool zeroed;
    struct place place = {arena, PLACE_NO_CACHE};
    char *object = place_alloc(place, 40 << 20, 1, &zeroed);
    check(zeroed);
    for (size_t i = 0; i < 40 << 20; i += 4096) {
        check_eq(object[i], 0);
        object[i] = 1;
    }
    check(free_to(PLACE_NO_CACHE, object));
    object = place_alloc(place, 40 << 20, 1, &zeroed);
    check(object != NULL && (!zeroed || object[0] == 0));
    object = place_alloc(place, 100, 1, &zeroed);
    check(object != NULL && !zeroed);
}

TEST(of_two_frees_of_a_large_object_one_is_refused) {
    start_heap();
    void *object = alloc_at(arena_create(NULL), PLACE_NO_CACHE, 1 << 20, 1);
    struct heap_object found = heap_look(object);
    check(place_free((struct place){PLACE_OWN, PLACE_NO_CACHE}, &found));
    check(!place_free((struct place){PLACE_OWN, PLACE_NO_CACHE}, &found));
}
