/* SPDX-License-Identifier: MIT
 *
 * test_realloc_large.c - realloc of large blocks, as a program sees it: contents are kept, growing
 * needs no second copy of the memory, shrinking gives memory back, what was left reads as zeros from
 * calloc, and the number of mappings stays bounded and comes down again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "random.h"
#include "test.h"

TEST_SETUP(require_tally);

enum { KIB = 1 << 10, MIB = 1 << 20, MOVED_MOST = 512 };

/* Reads a file of /proc into a static buffer, without malloc. */
static const char *read_file(const char *path) {
    static char text[1 << 20];
    size_t length = 0;
    ssize_t got;
    int fd = open(path, O_RDONLY);
    check(fd >= 0);
    while ((got = read(fd, text + length, sizeof text - 1 - length)) > 0) {
        length += (size_t)got;
    }
    close(fd);
    text[length] = '\0';
    return text;
}

static size_t count_mappings(void) {
    size_t lines = 0;
    for (const char *at = read_file("/proc/self/maps"); *at != '\0'; at++) {
        lines += *at == '\n';
    }
    return lines;
}

/* The kernel refuses to drop pages that are locked.  If it does not, the block is zeros now. */
static bool is_locked(void *block) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = ((uintptr_t)block + page - 1) / page * page;
    return madvise((void *)start, page, MADV_DONTNEED) != 0 && errno == EINVAL;
}

/* ---------------------------------------------------------------- blocks and their contents */

struct block {
    unsigned char *start;
    size_t size;
    uint64_t seed;
};

static void mark(const struct block *block, size_t from) {
    for (size_t at = (from + 1023) / 1024 * 1024; at + 8 <= block->size; at += 1024) {
        *(uint64_t *)(block->start + at) = block->seed + at;
    }
}

static void check_mark(const struct block *block) {
    for (size_t at = 0; at + 8 <= block->size; at += 1024) {
        check_eq(*(uint64_t *)(block->start + at), block->seed + at);
    }
}

static struct block make(size_t size, uint64_t seed) {
    struct block block = {malloc(size), size, seed << 40};
    check(block.start != NULL);
    mark(&block, 0);
    return block;
}

/* True when the block has another address now. */
static bool resize(struct block *block, size_t size) {
    unsigned char *resized = realloc(block->start, size);
    check(resized != NULL);
    check(malloc_usable_size(resized) >= size);
    bool elsewhere = resized != block->start;
    size_t old = block->size;
    block->start = resized;
    block->size = size < old ? size : old;
    check_mark(block);
    block->size = size;
    if (size > old) {
        /* The last mark of the old size may have been cut off. */
        mark(block, old > 1024 ? old - 1024 : 0);
    }
    return elsewhere;
}

/* Blocks that stand in the way of one that wants to grow. */
struct wall {
    void *brick[64];
};

static struct wall build_wall(void) {
    struct wall wall;
    for (unsigned i = 0; i < 64; i++) {
        check((wall.brick[i] = malloc(MIB)) != NULL);
    }
    return wall;
}

static void tear_down(struct wall *wall) {
    for (unsigned i = 0; i < 64; i++) {
        free(wall->brick[i]);
    }
}

static void check_zeros(const unsigned char *start, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (start[i] != 0) {
            check_eq(start[i], 0);
        }
    }
}

/* ---------------------------------------------------------------- tests */

TEST(contents_are_kept_whatever_the_sizes) {
    enum { BLOCKS = 24, STEPS = 1500 };
    static struct block blocks[BLOCKS];
    struct random random = random_start(31, 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = make(20 * KIB + random_below(&random, 2 * MIB), i + 1);
    }
    for (unsigned step = 0; step < STEPS; step++) {
        struct block *one = &blocks[random_below(&random, BLOCKS)];
        size_t most = random_below(&random, 10) == 0 ? 12 * MIB : 2 * MIB;
        resize(one, 1 + random_below(&random, (uint32_t)most));
        if (step % 50 == 0) {
            malloc_trim(0);
        }
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        check_mark(&blocks[i]);
        free(blocks[i].start);
    }
}

/* A copy would need both places at once, 64 MiB more; huge pages and descriptors need some. */
TEST(moving_needs_no_second_copy_of_the_memory) {
    struct block block = make(64 * MIB, 1);
    struct wall wall = build_wall();
    size_t before = test_anonymous_bytes();
    if (before == 0) {
        skip("the kernel does not tell the resident size");
    }
    unsigned moves = 0;
    for (unsigned i = 1; i <= 8; i++) {
        moves += resize(&block, (64 + i) * MIB);
        check(test_anonymous_bytes() <= before + i * MIB + 24 * MIB);
        struct wall more = build_wall();
        tear_down(&wall);
        wall = more;
    }
    check(moves >= 1);
    free(block.start);
    check(test_anonymous_bytes() <= before - 60 * MIB); /* moved pages are not kept */
    tear_down(&wall);
}

TEST(shrinking_gives_memory_back) {
    struct block block = make(64 * MIB, 2);
    struct wall wall = build_wall();
    check(resize(&block, 65 * MIB));
    size_t before = test_anonymous_bytes();
    if (before == 0) {
        skip("the kernel does not tell the resident size");
    }
    check(!resize(&block, 10 * MIB));
    check(test_anonymous_bytes() <= before - 50 * MIB); /* at once: these pages were moved */
    free(block.start);
    block = make(64 * MIB, 3);
    before = test_anonymous_bytes();
    check(!resize(&block, 10 * MIB));
    malloc_trim(0);
    check(test_anonymous_bytes() <= before - 50 * MIB);
    free(block.start);
    tear_down(&wall);
}

TEST(calloc_gives_zeros_where_blocks_have_moved_away) {
    struct random random = random_start(32, 0);
    for (unsigned round = 0; round < 40; round++) {
        struct block block = make(128 * KIB + random_below(&random, 6 * MIB), round + 1);
        struct wall wall = build_wall();
        resize(&block, block.size + 1 + random_below(&random, 2 * MIB));
        unsigned char *zeros[8];
        for (unsigned i = 0; i < 8; i++) {
            size_t size = 33 * KIB + random_below(&random, 2 * MIB);
            zeros[i] = calloc(1, size);
            check(zeros[i] != NULL);
            check_zeros(zeros[i], size);
            memset(zeros[i], 0xff, size);
        }
        for (unsigned i = 0; i < 8; i++) {
            free(zeros[i]);
        }
        check_mark(&block);
        free(block.start);
        tear_down(&wall);
    }
}

/* Blocks that grow by turns are in each other's way.  What was moved is bounded while it lasts, and
 * joins the rest of the heap again when it is freed. */
TEST(mappings_are_bounded_and_come_down_again) {
    enum { BLOCKS = 700 };
    static struct block blocks[BLOCKS];
    size_t before = count_mappings();
    unsigned moves = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = make(128 * KIB, i + 1);
    }
    for (unsigned step = 1; step <= 4; step++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            moves += resize(&blocks[i], (128 + 100 * step) * KIB);
        }
        check(count_mappings() <= before + 2 * MOVED_MOST + 50);
    }
    check(moves > BLOCKS);
    size_t most = count_mappings();
    for (unsigned i = 0; i < BLOCKS; i++) {
        check_mark(&blocks[i]);
        free(blocks[i].start);
    }
    size_t after = count_mappings();
    check(most > before + 100 && after < before + 50);
}

TEST(child_of_a_fork_goes_on_with_moved_blocks) {
    struct block block = make(8 * MIB, 5);
    struct wall wall = build_wall();
    check(resize(&block, 9 * MIB));
    check_child({
        resize(&block, 12 * MIB);
        struct wall another = build_wall();
        resize(&block, 20 * MIB);
        resize(&block, 3 * MIB);
        free(block.start);
        unsigned char *zeros = calloc(1, 30 * MIB);
        check_zeros(zeros, 30 * MIB);
        tear_down(&another);
    });
    check_mark(&block);
    resize(&block, 14 * MIB);
    free(block.start);
    tear_down(&wall);
}

static void *grow_and_shrink(void *stream) {
    struct random random = random_start(33, (uintptr_t)stream);
    struct block block = make(128 * KIB, (uintptr_t)stream + 1);
    for (unsigned i = 0; i < 400; i++) {
        resize(&block, 128 * KIB + random_below(&random, 3 * MIB));
        if (i % 100 == 99) {
            free(block.start);
            block = make(128 * KIB, (uintptr_t)stream + 1);
        }
    }
    free(block.start);
    return NULL;
}

TEST(threads_move_their_blocks_past_each_other) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) {
        check(pthread_create(&threads[i], NULL, grow_and_shrink, (void *)i) == 0);
    }
    for (unsigned i = 0; i < 20; i++) { /* and children find the heap whole, whatever the moment */
        check_child({ grow_and_shrink((void *)(uintptr_t)(10 + i)); });
    }
    for (unsigned i = 0; i < 4; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
}

/* The kernel would move locked memory, and unlock all that was locked together with it. */
TEST(locked_memory_stays_locked) {
    struct block block = make(4 * MIB, 7);
    struct wall wall = build_wall();
    if (mlockall(MCL_CURRENT) != 0) {
        skip("this process may not lock its memory");
    }
    for (unsigned i = 0; i < 64; i++) {
        check(is_locked(wall.brick[i]));
    }
    check(resize(&block, 5 * MIB));
    for (unsigned i = 0; i < 64; i++) {
        check(is_locked(wall.brick[i]));
    }
    free(block.start);
    tear_down(&wall);
}
