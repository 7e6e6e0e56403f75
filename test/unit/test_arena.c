/* SPDX-License-Identifier: MIT
 *
 * test_arena.c - as many arenas as asked for, each with a bin of its own for every class; arenas that
 * the program makes, uses, resets and destroys.
 */
#include "heap/arena.h"

#include <stdio.h>

#include "base/os.h"
#include "heap/depot.h"
#include "heap/dirty.h"
#include "heap/heap.h"
#include "heap/thread.h"
#include "opt/opt.h"
#include "unit.h"

static void check_bins(unsigned arenas) {
    check_eq(arena_count(), arenas);
    struct bin *last = NULL;
    for (unsigned a = 0; a < arenas; a++) {
        check(arena_exists(a) && arena_prepare(a));
        for (unsigned c = 1; c < CLASS_COUNT; c++) {
            struct bin *bin = arena_bin(a, c);
            check_eq(bin->arena, a);
            check_eq(bin->size_class, c);
            check_eq((uintptr_t)bin % CACHE_LINE, 0);
            check(c == 1 || bin == last + 1);
            last = bin;
        }
        check(arena_choose() < arenas);
    }
}

TEST(default_is_four_arenas_for_each_cpu) {
    start_heap();
    check_bins(os_facts.cpus < 64 ? 4 * os_facts.cpus : 256);
}

TEST(option_sets_the_number_of_arenas) {
    static const unsigned numbers[] = {1, 2, 3, 64, 256};
    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        check_child({
            char conf[40];
            snprintf(conf, sizeof conf, "narenas:%u", numbers[i]);
            start_heap_with(conf);
            check_bins(numbers[i]);
        });
    }
}

TEST(single_arena_is_always_chosen) {
    start_heap_with("narenas:1");
    for (unsigned i = 0; i < 100; i++) {
        check_eq(arena_choose(), 0);
    }
}

/* Everything that can be asked of one, and everything that makes one. */
TEST(automatic_arena_is_made_when_it_is_first_used) {
    start_heap_with("narenas:6");
    unsigned mine = thread_arena();
    unsigned other = (mine + 1) % 6;
    for (unsigned a = 0; a < 6; a++) {
        char name[ARENA_NAME_BYTES], expected[ARENA_NAME_BYTES];
        struct arena_counts counts;
        snprintf(expected, sizeof(expected), "auto_%u", a);
        arena_get_name(a, name);
        check(arena_exists(a) && !arena_is_manual(a) && strcmp(name, expected) == 0);
        check(counts_read_arena(a, &counts));
        check_eq(counts.dirty_decay_ms, arena_default_decay_ms(CHUNK_DIRTY));
        check_eq(arena_decay_ms(a, CHUNK_MUZZY), arena_default_decay_ms(CHUNK_MUZZY));
        check_eq(arena_thread_count(a), 0);
        arena_decay(a);
        arena_purge(a);
        check((arena_get(a) != NULL) == (a == 0 || a == mine));
    }
    heap_verify();
    bool zeroed;
    struct place place = {.arena = (int)other, .cache = PLACE_NO_CACHE};
    void *object = place_alloc(place, 100, 1, &zeroed);
    check(arena_get(other) != NULL);
    check_eq(arena_of(object), other);
    struct heap_object found = heap_look(object);
    check(place_free(place, &found));
    check(thread_set_arena((mine + 2) % 6) && arena_get((mine + 2) % 6) != NULL);
    check(*arena_pactive((mine + 3) % 6) == 0 && arena_get((mine + 3) % 6) != NULL);
    check(arena_set_decay_ms((mine + 4) % 6, CHUNK_DIRTY, 5));
    check_eq(arena_decay_ms((mine + 4) % 6, CHUNK_DIRTY), 5);
    heap_verify();
}

TEST(bins_start_empty) {
    start_heap_with("narenas:7");
    for (unsigned a = 0; a < 7; a++) {
        check(arena_prepare(a));
        for (unsigned c = 1; c < CLASS_COUNT; c++) {
            if (arena_bin(a, c)->nslabs == 0) {
                check_eq(bin_nout(arena_bin(a, c)), 0);
                check(arena_bin(a, c)->slabs == NULL);
            }
            bin_verify(arena_bin(a, c));
        }
    }
}

/* ---------------------------------------------------------------- arenas made by the program */

static void *alloc_in(unsigned arena, size_t size) {
    bool zeroed;
    void *object = place_alloc((struct place){(int)arena, PLACE_NO_CACHE}, size, 1, &zeroed);
    check(object != NULL);
    memset(object, 0x5a, size);
    return object;
}

static void free_uncached(void *object) {
    struct heap_object found = heap_look(object);
    check_eq(found.verdict, HEAP_LIVE);
    check(place_free((struct place){PLACE_OWN, PLACE_NO_CACHE}, &found));
}

static unsigned create(void) {
    int index = arena_create(NULL);
    check(index >= 0);
    return (unsigned)index;
}

TEST(created_arenas_have_indices_behind_the_automatic_ones) {
    start_heap_with("narenas:3");
    check_eq(arena_limit(), 3);
    check(!arena_exists(3) && !arena_exists(4094) && !arena_exists(4095) && !arena_exists(~0u));
    for (unsigned i = 3; i < 10; i++) {
        check_eq(create(), i);
        check(arena_exists(i) && arena_is_manual(i));
        check_eq(arena_limit(), i + 1);
    }
    check(!arena_is_manual(0) && !arena_is_manual(10));
    check_eq(arena_count(), 3);
}

TEST(lowest_index_of_a_destroyed_arena_is_used_again) {
    start_heap_with("narenas:1");
    for (unsigned i = 1; i <= 5; i++) {
        create();
    }
    check(!arena_any_destroyed());
    check(arena_destroy(4) && arena_destroy(2));
    check(arena_any_destroyed());
    check(!arena_exists(2) && !arena_exists(4) && !arena_destroy(2) && !arena_reset(4));
    check_eq(create(), 2);
    check_eq(create(), 4);
    check_eq(create(), 6);
    check_eq(arena_limit(), 7);
}

TEST(indices_come_to_an_end) {
    start_heap_with("narenas:1");
    for (unsigned i = 1; i < ARENA_INDICES; i++) {
        check_eq(arena_create(NULL), i);
    }
    check_eq(arena_create(NULL), -1);
    check(arena_destroy(77));
    check_eq(arena_create(NULL), 77);
    check_eq(arena_create(NULL), -1);
}

TEST(automatic_arenas_are_neither_reset_nor_destroyed) {
    start_heap();
    void *object = alloc_in(0, 100);
    for (unsigned a = 0; a < arena_count(); a++) {
        check(!arena_reset(a) && !arena_destroy(a));
        check(arena_exists(a));
    }
    free_uncached(object);
    heap_verify();
}

TEST(names_are_kept_and_cut) {
    start_heap_with("narenas:2");
    char name[ARENA_NAME_BYTES];
    arena_get_name(1, name);
    check_str(name, "auto_1");
    unsigned a = create();
    arena_get_name(a, name);
    check_str(name, "manual_2");
    arena_set_name(a, "0123456789012345678901234567890123456789");
    arena_get_name(a, name);
    check_str(name, "0123456789012345678901234567890");
    arena_set_name(a, "");
    arena_get_name(a, name);
    check_str(name, "");
    arena_set_name(4000, "nobody");
    arena_get_name(4000, name);
    check_str(name, "");
    check(arena_destroy(a));
    check_eq(create(), a);
    arena_get_name(a, name);
    check_str(name, "manual_2");
}

TEST(decay_times_are_remembered_and_those_of_arena_0_act) {
    start_heap_with("narenas:2,dirty_decay_ms:5000,muzzy_decay_ms:7");
    unsigned a = create();
    check_eq(arena_decay_ms(a, CHUNK_DIRTY), 5000);
    check_eq(arena_decay_ms(a, CHUNK_MUZZY), 7);
    check(arena_set_decay_ms(a, CHUNK_DIRTY, -1));
    check_eq(arena_decay_ms(a, CHUNK_DIRTY), -1);
    check_eq(dirty_decay_ms[CHUNK_DIRTY], 5000);
    check(arena_set_decay_ms(0, CHUNK_DIRTY, 40));
    check_eq(dirty_decay_ms[CHUNK_DIRTY], 40);
    check(arena_set_decay_ms(0, CHUNK_MUZZY, 30));
    check_eq(dirty_decay_ms[CHUNK_MUZZY], 30);
    check(!arena_set_decay_ms(a, CHUNK_DIRTY, -2) && !arena_set_decay_ms(500, CHUNK_DIRTY, 1));
    check_eq(arena_decay_ms(a, CHUNK_DIRTY), -1);
    check(!arena_set_default_decay_ms(CHUNK_DIRTY, -2));
    check(arena_set_default_decay_ms(CHUNK_DIRTY, 123));
    check_eq(arena_decay_ms(create(), CHUNK_DIRTY), 123);
    check_eq(opt.dirty_decay_ms, 5000);
}

TEST(setting_a_decay_time_purges_except_for_never) {
    start_heap_with("dirty_decay_ms:-1");
    unsigned a = create();
    free_uncached(alloc_in(a, 1 << 20));
    check(pages_totals().dirty >= 1 << 20);
    check(arena_set_decay_ms(a, CHUNK_DIRTY, -1));
    check(pages_totals().dirty >= 1 << 20);
    check(arena_set_decay_ms(a, CHUNK_DIRTY, 1000));
    check_eq(pages_totals().dirty, 0);
}

TEST(every_address_has_its_arena) {
    start_heap_with("narenas:2");
    unsigned a = create();
    char *small = alloc_in(a, 100);
    char *large = alloc_in(a, 5 << 20);
    void *other = alloc_in(1, 100);
    check_eq(arena_of(small), a);
    check_eq(arena_of(small + 99), a);
    check_eq(arena_of(large), a);
    check_eq(arena_of(large + (5 << 20) - 1), a);
    check_eq(arena_of(other), 1);
    check_eq(arena_of(&other), -1);
    check_eq(arena_of(NULL), -1);
    free_uncached(large);
    check_eq(arena_of(large), 0); /* free pages are shared */
}

TEST(pages_in_use_are_counted) {
    start_heap();
    unsigned a = create();
    size_t *pages = arena_pactive(a);
    check_eq(*pages, 0);
    void *large = alloc_in(a, 3 * UNIT_BYTES + 1);
    check_eq(*pages, 4 * UNIT_BYTES / os_facts.page_bytes);
    void *small = alloc_in(a, 16);
    check_eq(*pages, 5 * UNIT_BYTES / os_facts.page_bytes);
    struct heap_object found = heap_look(large);
    check(heap_resize(&found, 2 * UNIT_BYTES));
    check_eq(*pages, 3 * UNIT_BYTES / os_facts.page_bytes);
    free_uncached(large);
    free_uncached(small);
    arena_purge(a);
    check_eq(*pages, 0);
}

TEST(moved_block_stays_in_its_arena) {
    start_heap();
    unsigned a = create();
    char *block = alloc_in(a, 1 << 20);
    alloc_in(a, 1 << 20); /* in the way */
    struct heap_object found = heap_look(block);
    char *moved = heap_move(&found, 40 << 20);
    check(moved != NULL);
    check_eq(arena_of(moved), a);
    check_eq(*arena_pactive(a), (41 << 20) / os_facts.page_bytes);
    check(arena_reset(a));
    check_eq(*arena_pactive(a), 0);
    heap_verify();
}

static const size_t sizes[] = {1, 16, 100, 1000, 1024, 5000, 32768, 32769, 100000, 3 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

TEST(reset_frees_what_the_arena_holds_and_nothing_else) {
    start_heap_with("narenas:2");
    unsigned a = create();
    unsigned b = create();
    void *kept[SIZES * 2];
    struct heap_totals before = heap_totals();
    for (unsigned i = 0; i < SIZES; i++) {
        kept[2 * i] = alloc_in(b, sizes[i]);
        kept[2 * i + 1] = alloc_in(0, sizes[i]);
        for (unsigned n = 0; n < 200 && (n < 3 || sizes[i] <= 1024); n++) {
            alloc_in(a, sizes[i]);
        }
    }
    struct heap_totals full = heap_totals();
    check(arena_reset(a));
    heap_verify();
    check_eq(*arena_pactive(a), 0);
    size_t live = heap_totals().live;
    check(live < full.live && live > before.live);
    for (unsigned i = 0; i < SIZES * 2; i++) {
        check_eq(((unsigned char *)kept[i])[sizes[i / 2] - 1], 0x5a);
        free_uncached(kept[i]);
    }
    check_eq(heap_totals().live, before.live);
    for (unsigned i = 0; i < SIZES; i++) {
        alloc_in(a, sizes[i]); /* it works on */
    }
    check(arena_destroy(a));
    heap_verify();
    check_eq(heap_totals().live, before.live);
}

TEST(object_freed_by_a_reset_is_a_double_free_later) {
    start_heap();
    unsigned a = create();
    void *other = alloc_in(a, 100); /* so that the slab is known after the reset */
    slab_set_word1(other, slab_secret);
    void *object = alloc_in(a, 100);
    check(arena_reset(a));
    check_eq(heap_look(object).verdict, HEAP_DOUBLE_FREE);
}

/* It could hand one out later, and a reset would take it away from whoever got it. */
TEST(thread_that_does_not_use_an_arena_caches_nothing_of_it) {
    start_heap_with("narenas:1");
    unsigned a = create();
    for (unsigned i = 0; i < 1000; i++) {
        void *object = alloc_in(a, 16 * (1 + i % 60));
        tally_free(tally_malloc(16 * (1 + i % 60)));
        tally_free(object);
        check_eq(heap_look(object).verdict, HEAP_DOUBLE_FREE);
        check(!thread_any_holds(size_class_of(16 * (1 + i % 60)), object));
    }
}

/* A thread that uses the arena keeps what it frees in its cache. */
TEST(reset_leaves_cached_objects_to_their_caches) {
    start_heap_with("narenas:1");
    unsigned a = create();
    check(thread_set_arena(a));
    enum { COUNT = 40 };
    void *objects[COUNT];
    for (unsigned i = 0; i < 100; i++) {
        tally_free(tally_malloc(200)); /* earns heap and magazines */
    }
    for (unsigned i = 0; i < COUNT; i++) {
        objects[i] = alloc_in(a, 200);
    }
    unsigned c = size_class_of(200);
    for (unsigned i = 0; i < COUNT / 2; i++) {
        tally_free(objects[i]);
    }
    size_t cached = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        cached += thread_any_holds(c, objects[i]);
    }
    check(cached > 0 && cached <= COUNT / 2);
    check(arena_reset(a));
    check_eq(bin_nout(arena_bin(a, c)), thread_count_cached(c));
    heap_verify();
    /* Nobody else gets one of those. */
    for (unsigned i = 0; i < 1000; i++) {
        check(!thread_any_holds(c, alloc_in(a, 200)));
    }
    check(thread_set_arena(0));
    check(arena_destroy(a));
    heap_verify();
    check_eq(bin_nout(arena_bin(a, c)), 0);
    heap_trim();
    check_eq(arena_bin(a, c)->nslabs, 0);
    heap_verify();
}

TEST(next_arena_of_an_index_uses_what_its_predecessor_left) {
    start_heap_with("narenas:1");
    unsigned a = create();
    void *object = alloc_in(a, 64);
    slab_set_word1(object, slab_secret); /* as if in a cache */
    check(arena_destroy(a));
    check_eq(arena_bin(a, size_class_of(64))->nslabs, 1);
    check_eq(create(), a);
    uintptr_t slab = (uintptr_t)object & ~(uintptr_t)size_classes[size_class_of(64)].slab_mask;
    check_eq((uintptr_t)alloc_in(a, 64) & ~(uintptr_t)size_classes[size_class_of(64)].slab_mask,
             slab);
    bin_drain(size_class_of(64), &object, 1);
    check(arena_destroy(a));
    check_eq(arena_bin(a, size_class_of(64))->nslabs, 0);
    heap_verify();
}

TEST(objects_of_manual_arenas_stay_out_of_depots) {
    start_heap_with("narenas:1,thread_cache_bytes:16384");
    unsigned a = create();
    enum { COUNT = 3000 };
    static void *objects[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        objects[i] = i % 3 == 0 ? alloc_in(a, 64) : tally_malloc(64);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        tally_free(objects[i]);
    }
    unsigned c = size_class_of(64);
    check(depot_count(c) > 100);
    for (unsigned i = 0; i < COUNT; i += 3) {
        check(!depot_holds(c, objects[i]));
    }
    thread_flush();
    check_eq(bin_nout(arena_bin(a, c)), 0);
}

/* ---------------------------------------------------------------- threads */

TEST(arena_with_threads_is_not_destroyed) {
    start_heap_with("narenas:2");
    unsigned a = create();
    check_eq(arena_thread_count(a), 0);
    check(thread_set_arena(a));
    check_eq(arena_thread_count(a), 1);
    check_eq(thread_arena(), a);
    check(!arena_destroy(a) && arena_exists(a));
    check(arena_reset(a));
    check(thread_set_arena(1));
    check_eq(arena_thread_count(a), 0);
    check_eq(arena_thread_count(1), 1);
    check(arena_destroy(a));
    check(!thread_set_arena(a) && !thread_set_arena(4094) && !thread_set_arena(100000));
    check_eq(thread_arena(), 1);
}

static unsigned bound_arena;

static void *bind_and_leave(void *argument) {
    (void)argument;
    check(thread_set_arena(bound_arena));
    for (unsigned i = 0; i < 1000; i++) {
        void *object = tally_malloc(1 + i % 2000);
        check_eq(arena_of(object), bound_arena);
        tally_free(object);
    }
    check_eq(arena_of(tally_malloc(1 << 20)), bound_arena);
    return NULL;
}

TEST(thread_bound_to_an_arena_allocates_there_and_its_end_unbinds_it) {
    start_heap_with("narenas:2");
    bound_arena = create();
    for (unsigned i = 0; i < 5; i++) {
        run_threads(2, bind_and_leave, NULL);
        check_eq(arena_thread_count(bound_arena), 0);
    }
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        check_eq(bin_nout(arena_bin(bound_arena, c)), 0); /* nothing is kept in a heap that waits */
    }
    check(arena_destroy(bound_arena));
    heap_verify();
}

TEST(child_of_a_fork_has_no_threads_but_its_own) {
    start_heap_with("narenas:1");
    unsigned a = create();
    check(thread_set_arena(a));
    check(arena_bind(a)); /* as another thread would */
    check_eq(arena_thread_count(a), 2);
    check_child({
        tally_free(tally_malloc(1 << 20));
        check_eq(arena_thread_count(a), 1);
        check(thread_set_arena(0));
        check(arena_destroy(a));
    });
}

TEST(utilization_of_a_slab_and_of_a_large_object) {
    start_heap();
    unsigned a = create();
    void *first = alloc_in(a, 1024);
    void *second = alloc_in(a, 1024);
    const struct size_class *sc = &size_classes[size_class_of(1024)];
    struct bin_use use = bin_query((char *)second + 5);
    check_eq(use.nregs, sc->total);
    check_eq(use.nfree, sc->total - 2);
    check_eq(use.size, sc->slab_mask + 1);
    check_eq(use.bin_nregs, sc->total);
    check_eq(use.bin_nfree, sc->total - 2);
    check_eq(use.slabcur, (uintptr_t)first & ~(uintptr_t)sc->slab_mask);
    void *large = alloc_in(a, 100000);
    use = bin_query(large);
    check(use.nfree == 0 && use.nregs == 1 && use.bin_nregs == 0 && use.slabcur == NULL);
    check_eq(use.size, heap_look(large).size);
    use = bin_query(&use);
    check(use.nregs == 0 && use.size == 0);
}

/* The end of a large block and a slab share a chunk; the slab must not hide whose end that is. */
TEST(end_of_a_block_from_hooks_is_known_beside_a_slab) {
    start_heap();
    static struct extent_hooks wrapped;
    wrapped = *arena_hooks(0);
    int a = arena_create(&wrapped);
    check(a >= 0);
    enum { BLOCK_BYTES = 3 << 20, SMALL = 1024, OBJECTS = 1000 };
    char *block = alloc_in((unsigned)a, BLOCK_BYTES);
    check(block != NULL);
    for (size_t i = 0; i < OBJECTS; i++) {
        check(alloc_in((unsigned)a, SMALL) != NULL);
    }
    struct heap_object end = heap_locate(block + BLOCK_BYTES - 1);
    check(end.span == heap_locate(block).span);
    check_eq(end.span->base, (uintptr_t)block);
}
