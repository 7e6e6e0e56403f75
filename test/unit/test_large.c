/* SPDX-License-Identifier: MIT
 *
 * test_large.c - blocks of whole units: sizes, alignment, resizing in place, moving, and who may free.
 */
#include "heap/large.h"

#include <sys/mman.h>

#include "base/os.h"
#include "heap/classmap.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "heap/moved.h"
#include "opt/opt.h"
#include "unit.h"

/* Nothing is given back behind a test's back. */
static void start(void) {
    start_heap_with("dirty_decay_ms:-1");
}
TEST_SETUP(start);

enum { MIB = 1 << 20 };

static struct span *span_of(void *block) {
    return classmap_span((uintptr_t)block);
}

static bool free_span(struct span *span) {
    if (!large_claim(span)) {
        return false;
    }
    large_release(span);
    return true;
}

static void *alloc(size_t bytes, size_t alignment) {
    bool zeroed = false;
    void *block = large_alloc(bytes, alignment, PAGES_MAY_GROW, &zeroed, 0);
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
            check(free_span(span_of(block)));
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
        check(large_alloc(sizes[i], 1, PAGES_MAY_GROW, &zeroed, 0) == NULL);
        heap_verify();
    }
    check(large_alloc(4096, (size_t)1 << 63, PAGES_MAY_GROW, &zeroed, 0) == NULL);
    check_eq(large_count(), count);
    check_eq(pages_totals().used, used);
}

TEST(zeroed_is_said_only_of_zeros) {
    bool zeroed = false;
    for (unsigned round = 0; round < 20 / SLOWER + 1; round++) {
        size_t bytes = 3 * MIB + round * 100000;
        char *block = large_alloc(bytes, 1, PAGES_MAY_GROW, &zeroed, 0);
        check(block != NULL);
        for (size_t i = 0; zeroed && i < bytes; i++) {
            check(block[i] == 0);
        }
        memset(block, 0x5a, bytes);
        check(free_span(span_of(block)));
        if (round % 3 == 0) {
            pages_purge_all();
        }
    }
}

static size_t resident_pages(const char *block, size_t bytes) {
    static unsigned char pages[16 * MIB / 4096];
    check(mincore((void *)(uintptr_t)block, bytes, pages) == 0);
    size_t count = 0;
    for (size_t i = 0; i < bytes / os_facts.page_bytes; i++) {
        count += pages[i] & 1;
    }
    return count;
}

static void check_zeros(const char *block, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        check(block[i] == 0);
    }
}

/* Leaves free memory of which every other 64 KiB were used and the rest reads as zeros. */
static void leave_a_mix(void) {
    enum { BLOCKS = 200, BYTES = 64 << 10 };
    static char *block[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        block[i] = alloc(BYTES, 1);
    }
    for (unsigned i = 1; i < BLOCKS; i += 2) {
        check(free_span(span_of(block[i])));
    }
    pages_purge_all();
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        memset(block[i], 0x5a, BYTES);
        check(free_span(span_of(block[i])));
    }
}

static void check_zeroed_block(size_t bytes, bool by_kernel) {
    bool zeroed = true;
    leave_a_mix();
    char *block = large_alloc(bytes, 1, PAGES_IN_CHUNKS, &zeroed, 0);
    check(block != NULL && !zeroed);
    size_t before = resident_pages(block, bytes);
    check(before > 0 && before < bytes / os_facts.page_bytes);
    large_zero(span_of(block), bytes);
    check_eq(resident_pages(block, bytes), by_kernel ? 0 : before);
    check_zeros(block, bytes);
    check(free_span(span_of(block)));
    heap_verify();
}

TEST(zeros_are_written_only_where_memory_was_used) {
    check_zeroed_block(4 * MIB, false);
    pages_purge_all();
    check_zeroed_block(opt.calloc_madvise_threshold, true);
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
    check(free_span(span_of(block)));
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
    check(free_span(span_of(neighbour)));
    check(large_resize(span_of(block), UNIT_BYTES * 5));
    heap_verify();
}

TEST(second_free_is_told) {
    void *block = alloc(MIB, 1);
    struct span *span = span_of(block);
    size_t count = large_count();
    check(free_span(span));
    check(!free_span(span));
    check(!free_span(span));
    check_eq(large_count(), count - 1);
    heap_verify();
}

/* Regions get larger as the heap grows, so sooner or later one has addresses behind its last chunk. */
TEST(block_grows_over_the_end_of_the_heap) {
    unsigned grown = 0, enough = 10 / SLOWER;
    for (unsigned i = 0; i < 40 && grown < enough; i++) {
        char *block = alloc(2 * MIB, 1);
        mark(block, 2 * MIB, i);
        size_t mapped = pages_totals().mapped;
        bool grows = large_resize(span_of(block), 5 * MIB);
        heap_verify();
        check_eq(span_of(block)->bytes, grows ? 5 * MIB : 2 * MIB);
        check_eq(pages_totals().mapped, mapped + (grows ? 4 * MIB : 0));
        check_mark(block, 2 * MIB, i);
        if (grows) {
            check(pages_totals().dirty == 0);
            mark(block, 5 * MIB, i);
            grown++;
        }
    }
    check_eq(grown, enough);
}

/* ---------------------------------------------------------------- moving */

static bool reads_as_zeros(const char *start, size_t bytes) {
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        if (*(const uint64_t *)(start + at) != 0) {
            return false;
        }
    }
    return true;
}

/* Moves a block to where it has `bytes` bytes, and checks that its contents came along. */
static char *move(char *block, size_t bytes, uint64_t seed) {
    struct span *span = span_of(block);
    size_t old = span->bytes, count = large_count(), sum = large_bytes();
    char *moved = large_move(span, bytes, PAGES_MAY_GROW);
    check(moved != NULL && moved != block);
    check_eq(span_of(moved)->kind, SPAN_LARGE);
    check_eq(span_of(moved)->base, moved);
    check_eq(span_of(moved)->bytes, align_up(bytes, os_facts.page_bytes));
    check(span_of(block) == NULL);
    check_eq(large_count(), count);
    check_eq(large_bytes(), sum + span_of(moved)->bytes - old);
    check_mark(moved, old, seed);
    mark(moved + old, bytes - old, seed + old);
    heap_verify();
    return moved;
}

static char *alloc_marked(size_t bytes, uint64_t seed) {
    char *block = alloc(bytes, 1);
    mark(block, span_of(block)->bytes, seed);
    return block;
}

static void free_block(char *block) {
    check(free_span(span_of(block)));
    heap_verify();
}

TEST(moved_block_keeps_its_contents_and_leaves_zeros_behind) {
    static const size_t sizes[] = {128 << 10, (128 << 10) + 4096, 300000,  MIB,
                                   2 * MIB,   5 * MIB + 4096,     20 * MIB};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i += SANITIZED ? 3 : 1) {
        size_t used = pages_totals().used, dirty = pages_totals().dirty;
        char *block = alloc_marked(sizes[i], i);
        char *moved = move(block, sizes[i] + 3 * 65536, i);
        check_eq(moved_count(), 1);
        check(pages_totals().dirty <= dirty + UNIT_BYTES); /* the last unit may be shared */
        check(reads_as_zeros(block, align_down(sizes[i], os_facts.page_bytes)));
        free_block(moved);
        check_eq(moved_count(), 0);
        check_eq(pages_totals().used, used);
        check(reads_as_zeros(moved, sizes[i]));
        pages_purge_all();
    }
    check_eq(large_lost_bytes(), 0);
}

TEST(small_block_is_copied) {
    char *moved = move(alloc_marked(100 << 10, 1), 200 << 10, 1);
    check_eq(moved_count(), 0);
    free_block(moved);
}

/* Its pages are there already, and the pages left behind are kept for others. */
TEST(used_place_is_copied_to_below_two_mebibytes) {
    char *place = alloc(MIB, 1);
    char *block = alloc_marked(MIB / 2, 3);
    mark(place, MIB, 2);
    free_block(place);
    size_t dirty = pages_totals().dirty;
    char *moved = move(block, MIB, 3);
    check_eq(moved, place);
    check_eq(moved_count(), 0);
    check_eq(pages_totals().dirty, dirty - MIB / 2);
}

/* What was there before is no longer counted, nor seen again. */
TEST(large_block_moves_onto_a_used_place) {
    char *place = alloc(16 * MIB, 1);
    char *block = alloc_marked(8 * MIB, 4);
    memset(place, 0x77, 16 * MIB);
    free_block(place);
    char *moved = move(block, 10 * MIB, 4);
    check_eq(moved, place);
    check_eq(moved_count(), 1);
    check_eq(pages_totals().dirty, 6 * MIB);
    free_block(moved);
    check_eq(pages_totals().dirty, 6 * MIB);
    check(reads_as_zeros(moved, 10 * MIB));
}

TEST(block_of_several_pieces_moves_again_and_again) {
    size_t page = os_facts.page_bytes, bytes = 4 * MIB + page;
    char *block = alloc_marked(bytes, 5);
    for (unsigned i = 0; i < 40 / SLOWER; i++) {
        size_t more = bytes + (i % 3 + 1) * 17 * page;
        if (large_resize(span_of(block), more)) { /* a piece that did not move with the others */
            mark(block + bytes, more - bytes, 5 + bytes);
            bytes = more;
        }
        char *grown = move(block, bytes + (i % 4 + 1) * 15 * page, 5);
        bytes += (i % 4 + 1) * 15 * page;
        check(moved_count() >= 1 && moved_count() <= 40);
        check(reads_as_zeros(block, MIB));
        block = grown;
        check_mark(block, bytes, 5);
    }
    free_block(block);
    check_eq(moved_count(), 0);
    pages_purge_all();
    check_eq(pages_totals().dirty, 0);
}

/* The last unit of a block may hold, behind its end, what somebody else left there. */
TEST(rest_of_the_last_unit_is_not_taken_for_zeros) {
    size_t bytes = 8 * UNIT_BYTES + os_facts.page_bytes;
    char *before = alloc(9 * UNIT_BYTES, 1);
    memset(before, 0x77, 9 * UNIT_BYTES);
    free_block(before);
    char *block = alloc_marked(bytes, 14);
    check_eq(block, before);
    char *other = alloc(2 * MIB - 9 * UNIT_BYTES, 1); /* so that only new chunks are left */
    char *moved = move(block, bytes + MIB, 14);
    check_eq(moved_count(), 1);
    bool zeroed = false;
    char *after = NULL;
    for (unsigned i = 0; i < 500 && after != before; i++) {
        after = large_alloc(9 * UNIT_BYTES, 1, PAGES_MAY_GROW, &zeroed, 0);
    }
    check_eq(after, before);
    check(!zeroed || reads_as_zeros(after, 9 * UNIT_BYTES));
    check(reads_as_zeros(after, bytes));
    check(!reads_as_zeros(after, 9 * UNIT_BYTES)); /* or nothing was tested */
    free_block(moved);
    free_block(other);
}

TEST(moved_block_shrinks_and_its_end_reads_as_zeros) {
    char *block = move(alloc_marked(8 * MIB, 6), 9 * MIB, 6);
    size_t dirty = pages_totals().dirty;
    check(large_resize(span_of(block), 3 * MIB + 5000));
    heap_verify();
    check_mark(block, 3 * MIB + 5000, 6);
    check_eq(pages_totals().dirty, dirty);
    check(reads_as_zeros(block + 3 * MIB + UNIT_BYTES, 5 * MIB));
    check(large_resize(span_of(block), 9 * MIB)); /* and grows again, in two pieces now */
    mark(block + 3 * MIB + 8192, 6 * MIB - 8192, 6 + 3 * MIB + 8192);
    block = move(block, 10 * MIB, 6);
    check_mark(block, 10 * MIB, 6);
    free_block(block);
    check_eq(moved_count(), 0);
}

/* Whole pages only, and enough of them to be worth a system call. */
TEST(shrinking_within_a_unit_gives_pages_back) {
    if (os_facts.page_bytes != 4096) {
        skip("the sizes are those of small pages");
    }
    enum { BLOCKS = 512, LEFT = 3 * 4096 };
    static char *block[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        bool zeroed;
        block[i] = large_alloc(4 * UNIT_BYTES, 1, PAGES_MAY_GROW, &zeroed, 0);
        mark(block[i], 4 * UNIT_BYTES, i);
    }
    size_t before = test_anonymous_bytes();
    if (before == 0) {
        skip("the kernel does not tell the resident size");
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        check(large_resize(span_of(block[i]), 4 * UNIT_BYTES - LEFT));
        check_mark(block[i], 4 * UNIT_BYTES - LEFT, i);
    }
    check(test_anonymous_bytes() <= before - BLOCKS * LEFT * 9 / 10);
    heap_verify();
}

TEST(no_more_ranges_are_moved_than_allowed) {
    static char *block[MOVED_MOST + 50];
    for (unsigned i = 0; i < MOVED_MOST + 50; i++) {
        bool zeroed;
        block[i] = large_alloc(128 << 10, 1, PAGES_MAY_GROW, &zeroed, 0);
        mark(block[i], 128 << 10, i);
    }
    pages_purge_all();
    for (unsigned i = 0; i < MOVED_MOST + 50; i++) {
        block[i] = large_move(span_of(block[i]), 200 << 10, PAGES_MAY_GROW);
        check(block[i] != NULL);
        check(moved_count() <= MOVED_MOST);
    }
    check_eq(moved_count(), MOVED_MOST);
    for (unsigned i = 0; i < MOVED_MOST + 50; i++) {
        check_mark(block[i], 128 << 10, i);
        check(free_span(span_of(block[i])));
    }
    check_eq(moved_count(), 0);
    heap_verify();
}

TEST(block_somebody_freed_does_not_move) {
    struct span *span = span_of(alloc(MIB, 1));
    check(free_span(span));
    size_t used = pages_totals().used;
    check(large_move(span, 2 * MIB, PAGES_MAY_GROW) == NULL);
    check_eq(pages_totals().used, used);
    heap_verify();
}

TEST(impossible_move_leaves_the_block_alone) {
    char *block = alloc_marked(MIB, 11);
    check(large_move(span_of(block), SIZE_MAX, PAGES_MAY_GROW) == NULL);
    check(large_move(span_of(block), (size_t)1 << 45, PAGES_MAY_GROW) == NULL);
    check(large_move(span_of(block), MIB / 2, PAGES_MAY_GROW) == NULL);
    check_mark(block, MIB, 11);
    free_block(block);
}

TEST(child_of_a_fork_uses_and_frees_moved_blocks) {
    char *block = move(alloc_marked(4 * MIB, 12), 5 * MIB, 12);
    check_child({
        check_mark(block, 5 * MIB, 12);
        block = move(block, 7 * MIB, 12);
        check_mark(block, 7 * MIB, 12);
        check_eq(moved_count(), 2);
        free_block(block);
        check_eq(moved_count(), 0);
        check(reads_as_zeros(block, 7 * MIB));
    });
    check_mark(block, 5 * MIB, 12);
    free_block(block);
}

/* ---------------------------------------------------------------- racing frees */

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
        if (free_span(race.span)) {
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
        race.span = span_of(large_alloc(MIB, 1, PAGES_MAY_GROW, &zeroed, 0));
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
