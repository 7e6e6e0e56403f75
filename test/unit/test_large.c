/* SPDX-License-Identifier: MIT
 *
 * test_large.c - blocks of whole units: sizes, alignment, resizing in place, and who may free.
 */
#include "heap/large.h"

#include "base/os.h"
#include "heap/classmap.h"
#include "heap/heap.h"
#include "unit.h"

TEST_SETUP(start_heap);

enum { MIB = 1 << 20 };

static struct span *span_of(void *block) {
    return classmap_span((uintptr_t)block);
}

static void *alloc(size_t bytes, size_t alignment) {
    bool zeroed = false;
    void *block = large_alloc(bytes, alignment, PAGES_MAY_GROW, &zeroed);
    check(block != NULL);
    check_eq((uintptr_t)block % (alignment > UNIT_BYTES ? alignment : UNIT_BYTES), 0);
    check_eq(span_of(block)->kind, SPAN_LARGE);
    check_eq(span_of(block)->base, block);
    check_eq(span_of(block)->bytes, align_up(bytes != 0 ? bytes : 1, os_facts.page_bytes));
    heap_verify();
    return block;
}

/* Writes and checks a word in every page. */
static void mark(void *block, size_t bytes, uint64_t seed) {
    for (size_t at = 0; at < bytes; at += 4096) {
        *(uint64_t *)((char *)block + at) = seed + at;
    }
}

static void check_mark(void *block, size_t bytes, uint64_t seed) {
    for (size_t at = 0; at < bytes; at += 4096) {
        check_eq(*(uint64_t *)((char *)block + at), seed + at);
    }
}

TEST(blocks_of_all_sizes_and_alignments_are_counted_and_go_back) {
    size_t used = pages_totals().used, count = large_count(), bytes = large_bytes();
    static const size_t sizes[] = {0,     1,   4096,    32769,       36000,
                                   65536, MIB, 2 * MIB, 2 * MIB + 1, 9 * MIB};
    for (size_t alignment = 1; alignment <= 16 * MIB; alignment *= SANITIZED ? 32 : 4) {
        for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            void *block = alloc(sizes[i], alignment);
            mark(block, sizes[i], alignment);
            check_eq(large_count(), count + 1);
            check_eq(large_bytes(), bytes + span_of(block)->bytes);
            check_mark(block, sizes[i], alignment);
            check(large_free(span_of(block)));
            heap_verify();
            check_eq(large_count(), count);
            check_eq(large_bytes(), bytes);
            check_eq(pages_totals().used, used);
        }
    }
}

TEST(impossible_sizes_are_refused_and_nothing_changes) {
    bool zeroed;
    size_t count = large_count(), used = pages_totals().used;
    static const size_t sizes[] = {((size_t)1 << 46) + 1, PTRDIFF_MAX, SIZE_MAX};
    for (unsigned i = 0; i < 3; i++) {
        check(large_alloc(sizes[i], 1, PAGES_MAY_GROW, &zeroed) == NULL);
        heap_verify();
    }
    check(large_alloc(4096, (size_t)1 << 63, PAGES_MAY_GROW, &zeroed) == NULL);
    check_eq(large_count(), count);
    check_eq(pages_totals().used, used);
}

TEST(zeroed_is_said_only_of_zeros) {
    bool zeroed = false;
    for (unsigned round = 0; round < 20 / SLOWER + 1; round++) {
        size_t bytes = 3 * MIB + round * 100000;
        char *block = large_alloc(bytes, 1, PAGES_MAY_GROW, &zeroed);
        check(block != NULL);
        for (size_t i = 0; zeroed && i < bytes; i++) {
            check(block[i] == 0);
        }
        memset(block, 0x5a, bytes);
        check(large_free(span_of(block)));
        if (round % 3 == 0) {
            pages_purge_all();
        }
    }
}

TEST(block_shrinks_in_place_and_gives_its_end_back) {
    size_t used = pages_totals().used;
    void *block = alloc(9 * MIB + 5000, 1);
    mark(block, 9 * MIB, 7);
    for (size_t bytes = 9 * MIB; bytes > 0; bytes = SANITIZED ? bytes / 5 : bytes * 2 / 3) {
        check(large_resize(span_of(block), bytes));
        heap_verify();
        check_eq(span_of(block)->bytes, align_up(bytes, os_facts.page_bytes));
        check_eq(large_bytes(), span_of(block)->bytes);
        check_eq(pages_totals().used - used, align_up(span_of(block)->bytes, UNIT_BYTES));
        check_mark(block, bytes, 7);
    }
    check(large_free(span_of(block)));
    check_eq(pages_totals().used, used);
}

TEST(block_grows_in_place_into_free_units) {
    void *block = alloc(40000, 2 * MIB); /* the first units of a chunk */
    mark(block, 40000, 8);
    size_t bytes = 40000;
    for (; bytes < 2 * MIB - 50000; bytes += 50000) {
        check(large_resize(span_of(block), bytes));
        heap_verify();
        check_eq(span_of(block)->bytes, align_up(bytes, os_facts.page_bytes));
        check_mark(block, 40000, 8);
        memset(block, 0, bytes);
        mark(block, bytes, 8);
    }
    check_eq(large_count(), 1);
    check_mark(block, bytes - 50000, 8);
    check(!large_resize(span_of(block), SIZE_MAX));
    check(!large_resize(span_of(block), PTRDIFF_MAX));
    heap_verify();
}

TEST(block_does_not_grow_over_its_neighbour) {
    char *block = alloc(UNIT_BYTES * 4, 2 * MIB);
    char *neighbour = NULL;
    while (neighbour != block + UNIT_BYTES * 4) {
        neighbour = alloc(UNIT_BYTES, 1);
    }
    memset(neighbour, 0x33, UNIT_BYTES);
    check(!large_resize(span_of(block), UNIT_BYTES * 4 + 1));
    check_eq(span_of(block)->bytes, UNIT_BYTES * 4);
    check(large_free(span_of(neighbour)));
    check(large_resize(span_of(block), UNIT_BYTES * 5));
    heap_verify();
}

TEST(second_free_is_told) {
    void *block = alloc(MIB, 1);
    struct span *span = span_of(block);
    size_t count = large_count();
    check(large_free(span));
    check(!large_free(span));
    check(!large_free(span));
    check_eq(large_count(), count - 1);
    heap_verify();
}

static struct {
    pthread_barrier_t barrier;
    struct span *span;
    _Atomic unsigned freed;
    unsigned rounds;
} race;

static void *free_at_once(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < race.rounds; i++) {
        pthread_barrier_wait(&race.barrier);
        if (large_free(race.span)) {
            race.freed++;
        }
        pthread_barrier_wait(&race.barrier);
    }
    return NULL;
}

TEST(of_two_racing_frees_one_wins) {
    pthread_t threads[2];
    race.rounds = 500 / SLOWER;
    pthread_barrier_init(&race.barrier, NULL, 3);
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_create(&threads[i], NULL, free_at_once, NULL) == 0);
    }
    for (unsigned i = 0; i < race.rounds; i++) {
        bool zeroed;
        race.span = span_of(large_alloc(MIB, 1, PAGES_MAY_GROW, &zeroed));
        pthread_barrier_wait(&race.barrier);
        pthread_barrier_wait(&race.barrier);
        check_eq(race.freed, i + 1);
    }
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    heap_verify();
    check_eq(large_count(), 0);
}
