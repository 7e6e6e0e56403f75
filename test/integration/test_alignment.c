/* SPDX-License-Identifier: MIT
 *
 * test_alignment.c - sizes and alignments at every border: the arithmetic from a request to a
 * size class and back.
 *
 * The borders are not written down here: they are found by asking for one byte more than the
 * usable size of the last block, which names the last size of every class in turn. Each border
 * is then tried with -17 to +17 bytes, so that rounding by a word, by 16 and off-by-one errors
 * all show. A block is always written over its whole usable size: an overlap with a neighbour
 * destroys the neighbour's pattern.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

static const size_t KIB = 1024;
static const size_t MIB = 1024 * 1024;

enum { MARGIN = 17, MOST_BORDERS = 16384 };

static struct {
    size_t border[MOST_BORDERS];
    size_t count;
} g;

static bool aligned_to(const void *p, size_t alignment) {
    return ((uintptr_t)p & (alignment - 1)) == 0;
}

/* One word of a pattern that differs between blocks and between places in a block. */
static uint64_t pattern(uint64_t seed, size_t index) {
    return (seed + index) * 0x9e3779b97f4a7c15u;
}

static void fill(void *p, size_t size, uint64_t seed) {
    uint64_t word;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        word = pattern(seed, i);
        memcpy((char *)p + i, &word, 8);
    }
    word = pattern(seed, i);
    memcpy((char *)p + i, &word, size - i);
}

static void check_filled(const void *p, size_t size, uint64_t seed) {
    uint64_t word;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        memcpy(&word, (const char *)p + i, 8);
        check_eq(word, pattern(seed, i));
    }
    /* The tail is compared bytewise: a realloc may have cut a word. */
    word = pattern(seed, i);
    check(memcmp((const char *)p + i, &word, size - i) == 0);
}

static bool all_zero(const unsigned char *p, size_t size) {
    return size == 0 || (p[0] == 0 && memcmp(p, p + 1, size - 1) == 0);
}

static void find_borders(size_t limit) {
    size_t size = 1;
    g.count = 0;
    while (size < limit && g.count < MOST_BORDERS) {
        void *p = malloc(size);
        check(p != NULL);
        size_t usable = malloc_usable_size(p);
        check(usable >= size);
        free(p);
        g.border[g.count++] = usable;
        size = usable + 1;
    }
    check(g.count > 10);
}

static void check_block(void *p, size_t size, size_t alignment) {
    check(p != NULL);
    check(aligned_to(p, alignment));
    check(malloc_usable_size(p) >= size);
}

/* The same size by every way in; all blocks are alive together. */
static void check_size(size_t size) {
    struct {
        void *p;
        size_t usable;
    } block[4];
    block[0].p = malloc(size);
    block[1].p = calloc(1, size);
    block[2].p = realloc(malloc(size / 2 + 1), size);
    block[3].p = aligned_alloc(32, size);
    check(all_zero(block[1].p, size));
    for (size_t i = 0; i < 4; i++) {
        check_block(block[i].p, size, i == 3 ? 32 : 16);
        block[i].usable = malloc_usable_size(block[i].p);
        fill(block[i].p, block[i].usable, size + i);
    }
    for (size_t i = 0; i < 4; i++) {
        check_eq(malloc_usable_size(block[i].p), block[i].usable);
        check_filled(block[i].p, block[i].usable, size + i);
        free(block[i].p);
    }
}

TEST(every_class_border_serves_17_bytes_around_it) {
    find_borders(40 * KIB);
    for (size_t i = 0; i < g.count; i++) {
        size_t from = g.border[i] > MARGIN ? g.border[i] - MARGIN : 1;
        for (size_t size = from; size <= g.border[i] + MARGIN; size++) {
            check_size(size);
        }
    }
}

TEST(every_border_of_large_blocks_serves_17_bytes_around_it) {
    size_t borders[] = {64 * KIB,           128 * KIB, 256 * KIB,      MIB,
                        2 * MIB - 16 * KIB, 2 * MIB,   2 * MIB + 4096, 3 * MIB,
                        4 * MIB - 4096,     4 * MIB};
    for (size_t i = 0; i < sizeof borders / sizeof *borders; i++) {
        for (size_t size = borders[i] - MARGIN; size <= borders[i] + MARGIN; size++) {
            void *p = malloc(size);
            check_block(p, size, 16);
            size_t usable = malloc_usable_size(p);
            ((volatile char *)p)[0] = 1;
            ((volatile char *)p)[usable - 1] = 1;
            void *q = calloc(size, 1);
            check_block(q, size, 16);
            check(((volatile char *)q)[0] == 0 && ((volatile char *)q)[size - 1] == 0);
            free(p);
            free(q);
        }
    }
}

TEST(a_usable_size_is_a_size_of_its_own_class) {
    find_borders(4 * MIB);
    for (size_t i = 0; i < g.count; i++) {
        void *p = malloc(g.border[i]);
        check_eq(malloc_usable_size(p), g.border[i]);
        free(p);
    }
}

TEST(every_alignment_up_to_1_gib_holds_for_every_kind_of_size) {
    size_t fixed[] = {1, 8, 15, 16, 17, 100, 1000, 5000, 40000};
    for (size_t alignment = 1; alignment <= 1024 * MIB; alignment *= 2) {
        size_t sizes[16];
        size_t count = sizeof fixed / sizeof *fixed;
        memcpy(sizes, fixed, sizeof fixed);
        if (alignment <= 16 * MIB) {
            sizes[count++] = alignment + 1;
            sizes[count++] = alignment;
            sizes[count++] = alignment > 1 ? alignment - 1 : 1;
            sizes[count++] = 3 * MIB;
        }
        for (size_t i = 0; i < count; i++) {
            void *p = memalign(alignment, sizes[i]);
            void *q = aligned_alloc(alignment, sizes[i]);
            check_block(p, sizes[i], alignment > 16 ? alignment : 16);
            check_block(q, sizes[i], alignment > 16 ? alignment : 16);
            fill(p, sizes[i], i);
            fill(q, sizes[i], i + 100);
            check_filled(p, sizes[i], i);
            check_filled(q, sizes[i], i + 100);
            free(p);
            free(q);
        }
    }
}

TEST(many_aligned_blocks_of_one_kind_do_not_overlap) {
    enum { COUNT = 100 };
    size_t sizes[] = {1, 40, 200, 1000, 3000, 20000};
    for (size_t alignment = 16; alignment <= 64 * KIB; alignment *= 2) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *blocks[COUNT];
            for (size_t j = 0; j < COUNT; j++) {
                blocks[j] = aligned_alloc(alignment, sizes[i]);
                check_block(blocks[j], sizes[i], alignment);
                fill(blocks[j],
                     malloc_usable_size(blocks[j]) < 64 * KIB ? malloc_usable_size(blocks[j])
                                                              : sizes[i],
                     j);
            }
            for (size_t j = 0; j < COUNT; j++) {
                check_filled(blocks[j], sizes[i], j);
                free(blocks[j]);
            }
        }
    }
}

TEST(calloc_gives_zeros_where_a_dirty_block_was) {
    enum { COUNT = 50 };
    size_t sizes[] = {1, 16, 100, 1000, 1024, 1025, 5000, 20000, 40000, 200000, 3 * 1024 * 1024};
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t count = sizes[i] > 100000 ? 3 : COUNT;
            void *blocks[COUNT];
            for (size_t j = 0; j < count; j++) {
                blocks[j] = calloc(1, sizes[i]);
                check(all_zero(blocks[j], sizes[i]));
                memset(blocks[j], 0xff, malloc_usable_size(blocks[j]));
            }
            for (size_t j = 0; j < count; j++) {
                free(blocks[j]);
            }
        }
    }
}

/* Every size to every size, so that growing and shrinking in place, moving between classes,
 * between small and large, and between large ones all happen. */
TEST(realloc_keeps_the_contents_from_every_size_to_every_size) {
    static size_t sizes[128];
    size_t count = 0;
    for (size_t size = 1; size <= 4 * MIB; size += size < 32 ? 7 : size / 2) {
        sizes[count++] = size;
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            void *p = malloc(sizes[i]);
            fill(p, sizes[i], i);
            p = realloc(p, sizes[j]);
            check_block(p, sizes[j], 16);
            check_filled(p, sizes[i] < sizes[j] ? sizes[i] : sizes[j], i);
            free(p);
        }
    }
}

TEST(realloc_keeps_the_contents_over_a_long_chain) {
    size_t size = 1;
    char *p = malloc(size);
    fill(p, size, 7);
    for (int direction = 0; direction < 4; direction++) {
        for (int step = 0; step < 300; step++) {
            size_t next = direction % 2 == 0 ? size + size / 16 + 1 : size - size / 17;
            if (next > 8 * MIB || next == 0) {
                break;
            }
            p = realloc(p, next);
            check_block(p, next, 16);
            check_filled(p, size < next ? size : next, 7);
            fill(p, next, 7);
            size = next;
        }
    }
    free(p);
}

TEST(realloc_of_an_aligned_block_keeps_the_contents) {
    for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 2) {
        for (size_t size = 1; size < 100000; size = size * 3 + 1) {
            void *p = aligned_alloc(alignment, size);
            fill(p, size, size);
            p = realloc(p, 2 * size);
            check_block(p, 2 * size, 16);
            check_filled(p, size, size);
            p = realloc(p, size / 2 + 1);
            check_filled(p, size / 2 + 1 < size ? size / 2 + 1 : size, size);
            free(p);
        }
    }
}
