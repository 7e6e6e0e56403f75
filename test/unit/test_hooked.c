/* SPDX-License-Identifier: MIT
 *
 * test_hooked.c - arenas over memory that the program supplies: where objects lie, hooks that refuse, what is
 * given back, resizing.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "extent_supply.h"
#include "heap/arena.h"
#include "heap/bin.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "heap/hooked.h"
#include "heap/hooks.h"
#include "heap/thread.h"
#include "unit.h"

/* ---------------------------------------------------------------- where memory comes from */

TEST(layout_is_that_of_nine_pointers_in_order) {
    check_eq(sizeof(struct extent_hooks), 72);
    check_eq(offsetof(struct extent_hooks, alloc), 0);
    check_eq(offsetof(struct extent_hooks, dalloc), 8);
    check_eq(offsetof(struct extent_hooks, destroy), 16);
    check_eq(offsetof(struct extent_hooks, commit), 24);
    check_eq(offsetof(struct extent_hooks, decommit), 32);
    check_eq(offsetof(struct extent_hooks, purge_lazy), 40);
    check_eq(offsetof(struct extent_hooks, purge_forced), 48);
    check_eq(offsetof(struct extent_hooks, split), 56);
    check_eq(offsetof(struct extent_hooks, merge), 64);
}

TEST(every_object_lies_in_an_extent_of_the_hook) {
    unsigned arena = create_hooked();
    check_eq(arena_hooks(arena), &supply.table);
    for (unsigned i = 0; i < SIZES; i++) {
        for (size_t alignment = 1; alignment <= 8 << 20; alignment *= 8) {
            bool zeroed;
            char *object = alloc_zeroed(arena, sizes[i], alignment, &zeroed);
            check(object != NULL && lies_in_supply(object, sizes[i]));
            check_eq((uintptr_t)object % alignment, 0);
            memset(object, 1, sizes[i]);
        }
    }
    heap_verify();
    check(supply.calls[ALLOC] > 0 && supply.calls[SPLIT] == 0 && supply.calls[MERGE] == 0);
    struct hooked_totals totals = hooked_totals(arena);
    size_t given = 0;
    for (unsigned i = 0; i < supply.count; i++) {
        given += supply.extents[i].size;
    }
    check_eq(totals.mapped, given);
    check(totals.used > 0 && totals.used <= given);
}

TEST(class_bytes_stay_zero_and_nothing_is_cached) {
    unsigned arena = create_hooked();
    for (unsigned i = 0; i < 100; i++) {
        tally_free(tally_malloc(64)); /* a cache is at hand */
    }
    unsigned c = size_class_of(64);
    size_t cached = thread_count_cached(c);
    static void *objects[5000];
    for (unsigned i = 0; i < 5000; i++) {
        objects[i] = alloc_in(arena, 64);
        check_eq(classmap_get((uintptr_t)objects[i]), 0);
    }
    check_eq(bin_nout(arena_bin_of_set(arena, ARENA_SET_HOOKED, c)), 5000);
    check_eq(bin_nout(arena_bin(arena, c)), 0);
    for (unsigned i = 0; i < 5000; i++) {
        tally_free(objects[i]);
    }
    check_eq(bin_nout(arena_bin_of_set(arena, ARENA_SET_HOOKED, c)), 0);
    check_eq(thread_count_cached(c), cached);
    check_eq(heap_look(objects[7]).verdict == HEAP_LIVE, false);
    heap_verify();
}

TEST(free_twice_is_found_at_once) {
    unsigned arena = create_hooked();
    alloc_in(arena, 64);
    void *object = alloc_in(arena, 64);
    tally_free(object);
    check_dies(tally_free(object), "already free", SIGABRT);
}

TEST(explicit_caches_are_passed_by) {
    unsigned arena = create_hooked();
    int id = tcaches_create();
    for (unsigned i = 0; i < 100; i++) {
        bool zeroed;
        void *object = place_alloc((struct place){(int)arena, id}, 64, 1, &zeroed);
        check(lies_in_supply(object, 64));
        struct heap_object found = heap_look(object);
        check(place_free((struct place){PLACE_OWN, id}, &found));
        check(!thread_any_holds(size_class_of(64), object));
    }
}

TEST(zero_flag_is_believed_only_while_it_is_true) {
    unsigned arena = create_hooked();
    bool zeroed;
    check(alloc_zeroed(arena, MIB, 1, &zeroed) != NULL && !zeroed);
    supply.zero = true;
    char *object = alloc_zeroed(arena, 7 * MIB, 1, &zeroed);
    check(object != NULL && zeroed);
    check(object[0] == 0 && object[7 * MIB - 1] == 0);
    memset(object, 1, 7 * MIB);
    tally_free(object);
    check(alloc_zeroed(arena, 7 * MIB, 1, &zeroed) == object && !zeroed);
    tally_free(object);
    supply.refuse = 1 << DALLOC | 1 << DECOMMIT; /* so that it is purged by force, and kept */
    arena_purge(arena);
    check(alloc_zeroed(arena, 7 * MIB, 1, &zeroed) == object && zeroed);
    check(object[0] == 0 && object[7 * MIB - 1] == 0);
}

TEST(memory_that_is_not_committed_is_committed_before_use) {
    unsigned arena = create_hooked();
    supply.uncommitted = true;
    for (unsigned i = 0; i < SIZES; i++) {
        check(alloc_in(arena, sizes[i]) != NULL); /* writes to it */
    }
    check(supply.calls[COMMIT] > 0);
    supply.refuse = 1 << COMMIT;
    check(alloc_in(arena, 50 * MIB) == NULL);
    supply.refuse = 0;
    check(alloc_in(arena, 50 * MIB) != NULL);
    heap_verify();
}

/* ---------------------------------------------------------------- when the alloc hook fails */

TEST(alloc_hook_that_refuses_means_no_memory_for_now) {
    unsigned arena = create_hooked();
    supply.refuse = 1 << ALLOC;
    for (unsigned i = 0; i < SIZES; i++) {
        check(alloc_in(arena, sizes[i]) == NULL);
    }
    check_eq(hooked_totals(arena).mapped, 0);
    supply.refuse = 0;
    for (unsigned i = 0; i < SIZES; i++) {
        check(alloc_in(arena, sizes[i]) != NULL);
    }
}

static void check_refused(unsigned arena, uintptr_t instead) {
    supply.instead = instead;
    unsigned returned = supply.returned;
    size_t mapped = hooked_totals(arena).mapped;
    check(alloc_in(arena, 100) == NULL);
    check(alloc_in(arena, 3 * MIB) == NULL);
    /* Each is tried again after the caches were emptied. */
    check_eq(supply.returned - returned, 4);
    check_eq(hooked_totals(arena).mapped, mapped);
    heap_verify();
    supply.instead = 0;
}

TEST(memory_that_cannot_be_ours_is_given_back) {
    unsigned arena = create_hooked();
    uintptr_t ours = align_down((uintptr_t)tally_malloc(100), CHUNK_BYTES);
    uintptr_t large = align_up((uintptr_t)tally_malloc(20 * MIB), CHUNK_BYTES);
    for (unsigned refuse = 0; refuse < 2; refuse++) {
        supply.refuse = refuse << DALLOC; /* then the destroy hook gets it */
        check_refused(arena, ours);
        check_refused(arena, large);
        check_refused(arena, ((uintptr_t)1 << 40) + 4096);
        check_refused(arena, ((uintptr_t)1 << 40) + CHUNK_BYTES / 2);
        check_refused(arena, (uintptr_t)1 << 50);
        check_refused(arena, -(uintptr_t)CHUNK_BYTES);
    }
    supply.refuse = 0;
    check(alloc_in(arena, 100) != NULL);
}

TEST(same_extent_is_not_taken_twice) {
    unsigned arena = create_hooked();
    void *object = alloc_in(arena, 1900 << 10);
    check_eq(supply.count, 1);
    supply.instead = supply.extents[0].base;
    check(alloc_in(arena, MIB) == NULL);
    check(supply.returned > 0);
    supply.instead = 0;
    check_eq(((char *)object)[MIB], 0x5a);
    check(arena_destroy(arena));
    check_eq(supply.count, 0);
}

/* ---------------------------------------------------------------- giving back */

TEST(decay_of_zero_returns_an_extent_with_its_last_object) {
    unsigned arena = create_hooked();
    check(arena_set_decay_ms(arena, CHUNK_DIRTY, 0));
    void *large = alloc_in(arena, 5 * MIB);
    void *other = alloc_in(arena, 100000);
    check(supply.count > 0);
    tally_free(large);
    tally_free(other);
    check_eq(supply.count, 0);
    check_eq(hooked_totals(arena).mapped, 0);
    void *small = alloc_in(arena, 100);
    tally_free(small);
    arena_purge(arena); /* a bin keeps one empty slab till then */
    check_eq(supply.count, 0);
    check_eq(supply.calls[DALLOC], supply.calls[ALLOC]);
    check_eq(supply.calls[DESTROY], 0);
    heap_verify();
}

TEST(decay_time_is_waited_for) {
    unsigned arena = create_hooked();
    check(arena_set_decay_ms(arena, CHUNK_DIRTY, 5000));
    tally_free(alloc_in(arena, 5 * MIB));
    check_eq(hooked_settle(arena), 5000);
    check(hooked_totals(arena).dirty >= 5 * MIB);
    now_ms += 4999;
    arena_decay(arena);
    check_eq(hooked_settle(arena), 1);
    check_eq(supply.count, 1);
    now_ms += 1;
    (void)heap_tick();
    check_eq(supply.count, 0);
    check_eq(hooked_settle(arena), UINT64_MAX);
}

TEST(memory_that_is_used_again_in_time_stays) {
    unsigned arena = create_hooked();
    check(arena_set_decay_ms(arena, CHUNK_DIRTY, 1000));
    for (unsigned i = 0; i < 100; i++) {
        void *object = alloc_in(arena, 3 * MIB);
        now_ms += 900;
        tally_free(object);
        now_ms += 50;
    }
    check_eq(supply.calls[ALLOC], 1);
    check_eq(supply.calls[DALLOC], 0);
}

TEST(decay_of_never_keeps_until_purged) {
    unsigned arena = create_hooked();
    check(arena_set_decay_ms(arena, CHUNK_DIRTY, -1));
    tally_free(alloc_in(arena, 5 * MIB));
    now_ms += UINT64_C(1) << 40;
    arena_decay(arena);
    check_eq(supply.count, 1);
    arena_purge(arena);
    check_eq(supply.count, 0);
}

TEST(parts_of_an_extent_in_use_are_decommitted_and_committed_again) {
    unsigned arena = create_hooked();
    char *first = alloc_in(arena, 500000);
    char *second = alloc_in(arena, 500000);
    check(alloc_in(arena, 66 * UNIT_BYTES) != NULL); /* the rest of the extent */
    tally_free(first);
    arena_purge(arena);
    check_eq(supply.calls[DECOMMIT], 1);
    check_eq(supply.calls[FORCED] + supply.calls[LAZY] + supply.calls[DALLOC], 0);
    check_eq(hooked_totals(arena).dirty, 0);
    arena_purge(arena);
    check_eq(supply.calls[DECOMMIT], 1);     /* once is enough */
    check(alloc_in(arena, 500000) == first); /* writes to all of it */
    check_eq(supply.calls[COMMIT], 1);
    check_eq(second[499999], 0x5a);
    heap_verify();
}

TEST(cleaning_up_goes_on_to_the_next_hook_when_one_refuses) {
    unsigned arena = create_hooked();
    supply.refuse = 1 << DALLOC | 1 << DECOMMIT | 1 << FORCED | 1 << LAZY;
    tally_free(alloc_in(arena, 3 * MIB));
    arena_purge(arena);
    for (enum hook hook = DECOMMIT; hook <= FORCED; hook++) {
        check_eq(supply.calls[hook], 1);
    }
    check_eq(supply.calls[DALLOC], 1);
    check_eq(supply.count, 1);
    arena_purge(arena);
    check_eq(supply.calls[DALLOC], 1); /* not asked again before it was used */
    supply.refuse = 1 << DALLOC | 1 << DECOMMIT;
    tally_free(alloc_in(arena, 3 * MIB));
    arena_purge(arena);
    check_eq(supply.calls[DALLOC], 2);
    check_eq(supply.calls[FORCED], 2);
    check_eq(supply.calls[LAZY], 1);
    supply.refuse = 0;
    tally_free(alloc_in(arena, 3 * MIB));
    arena_purge(arena);
    check_eq(supply.count, 0);
    check_eq(supply.calls[ALLOC], 1);
}

/* A child for each set; the sanitizers, under which it takes minutes, see every seventh. */
enum { SETS_STEP = SANITIZED ? 7 : 1 };

TEST(any_set_of_refusing_hooks_is_survived_and_leaks_nothing) {
    for (unsigned refuse = 0; refuse < 1 << (FORCED + 1); refuse += SETS_STEP) {
        if (refuse & (1 << ALLOC | 1 << DESTROY)) {
            continue;
        }
        check_child({
            unsigned arena = create_hooked();
            supply.uncommitted = refuse % 3 == 0 && !(refuse & 1 << COMMIT);
            supply.refuse = refuse;
            work(arena, refuse, 400);
            check(arena_destroy(arena)); /* with what is still held */
            check_eq(supply.count, 0);
            check_eq(hooked_totals(arena).mapped, 0);
            heap_verify();
        });
    }
}

TEST(any_set_of_missing_hooks_is_survived) {
    for (unsigned missing = 0; missing < 1 << HOOKS; missing += 2 * SETS_STEP) {
        check_child({
            unsigned arena = create_hooked();
            bool (**const members)(void) = (bool (**)(void))(void *)&supply.table;
            for (enum hook hook = DALLOC; hook < HOOKS; hook++) {
                if (missing >> hook & 1) {
                    members[hook] = NULL;
                }
            }
            work(arena, missing, 100);
            unsigned given = supply.count;
            check(arena_destroy(arena));
            check_eq(supply.count,
                     (missing & (1 << DALLOC)) && (missing & (1 << DESTROY)) ? given : 0);
            check_eq(hooked_totals(arena).mapped, 0);
            heap_verify();
        });
    }
}

TEST(hooks_that_fail_at_random_leak_nothing) {
    unsigned arena = create_hooked();
    struct random random = random_start(5, 5);
    for (unsigned round = 0; round < 60; round++) {
        supply.refuse = (unsigned)random_next(&random) & ~(1u << DESTROY);
        work(arena, round, 100);
        check(arena_reset(arena));
        heap_verify();
    }
    supply.refuse = 0;
    check(arena_destroy(arena));
    check_eq(supply.count, 0);
}

TEST(reset_frees_everything_and_destroy_returns_it) {
    unsigned arena = create_hooked();
    size_t live = heap_totals().live;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < SIZES * 30; i++) {
            check(alloc_in(arena, sizes[i % SIZES]) != NULL);
        }
        check(arena_reset(arena));
        check_eq(hooked_totals(arena).used, 0);
        check_eq(heap_totals().live, live);
        check_eq(*arena_pactive(arena), 0);
        heap_verify();
    }
    check(alloc_in(arena, 100) != NULL);
    check(arena_destroy(arena));
    check_eq(supply.count, 0);
    check_eq(arena_create(NULL), arena); /* the next one has no hooks */
    check_eq(arena_hooks(arena), &hooks_default);
    unsigned calls = supply.calls[ALLOC];
    check(alloc_in(arena, 100) != NULL && alloc_in(arena, 5 * MIB) != NULL);
    check_eq(supply.calls[ALLOC], calls);
}

/* ---------------------------------------------------------------- resizing */

TEST(large_object_grows_within_its_extent_only) {
    unsigned arena = create_hooked();
    char *object = alloc_in(arena, 40000);
    struct heap_object found = heap_look(object);
    check(heap_resize(&found, MIB));
    check(heap_move(&found, 3 * MIB) == NULL);
    found = heap_look(object);
    check(!heap_resize(&found, 3 * MIB)); /* the extent has 2 MiB */
    check_eq(heap_look(object).size, MIB);
    char *behind = alloc_in(arena, 40000);
    check(behind > object && behind < object + 2 * MIB);
    check(!heap_resize(&found, 2 * MIB - 100000));
    check(heap_resize(&found, 50000));
    check_eq(object[39999], 0x5a);
    char *moved = tally_realloc(object, 6 * MIB); /* copied, as malloc would place it */
    check(moved != NULL && moved[39999] == 0x5a);
    check_eq(heap_look(object).verdict, HEAP_FREE_PAGES);
    heap_verify();
}

TEST(object_of_several_chunks_grows_and_shrinks) {
    unsigned arena = create_hooked();
    bool zeroed;
    char *object = alloc_zeroed(arena, 7 * MIB, 1, &zeroed); /* in 8 */
    struct heap_object found = heap_look(object);
    check(heap_resize(&found, 8 * MIB));
    memset(object, 1, 8 * MIB);
    found = heap_look(object);
    check_eq(found.size, 8 * MIB);
    check(heap_resize(&found, 3 * MIB));
    check_eq(hooked_totals(arena).used, 3 * MIB);
    check(alloc_in(arena, 4 * MIB) == object + 4 * MIB);
    found = heap_look(object);
    check(heap_resize(&found, 4 * MIB));
    check(!heap_resize(&found, 4 * MIB + 1));
    check_eq(arena_of(object + 4 * MIB - 1), arena);
    heap_verify();
}

TEST(rest_of_the_last_chunk_of_an_object_serves_others) {
    unsigned arena = create_hooked();
    char *object = alloc_in(arena, 3 * MIB); /* in 4 */
    char *small = alloc_in(arena, 100);
    char *other = alloc_in(arena, 300000);
    check(small >= object + 3 * MIB && small < object + 4 * MIB);
    check(other >= object + 3 * MIB && other < object + 4 * MIB);
    check_eq(heap_look(object + 2 * MIB + 5).verdict, HEAP_INTERIOR);
    check_eq(heap_look(object + 2 * MIB + 5).base, object);
    tally_free(object);
    check_eq(heap_look(object + 2 * MIB + 5).verdict, HEAP_FREE_PAGES);
    check_eq(arena_of(object + 2 * MIB + 5), arena);
    check(other[299999] == 0x5a && small[99] == 0x5a);
    heap_verify();
}

TEST(block_of_the_page_heap_does_not_grow_into_memory_of_hooks) {
    unsigned arena = create_hooked();
    for (unsigned i = 0; i < 40; i++) {
        size_t size = 64 * MIB;
        char *block = tally_malloc(size);
        check(block != NULL);
        void *behind = mmap(block + size, 2 * MIB, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (behind != block + size) {
            continue; /* the heap has it, or another mapping */
        }
        supply.instead = (uintptr_t)behind;
        tally_free(alloc_in(arena, 100000)); /* It is free, and kept for now. */
        struct heap_object found = heap_look(block);
        check(!heap_resize(&found, size + MIB));
        check_eq(arena_of(block + size), arena);
        tally_free(block);
        heap_verify();
        return;
    }
    skip("no address behind a block of the heap could be had");
}
