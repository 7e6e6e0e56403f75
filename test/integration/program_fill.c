/* SPDX-License-Identifier: MIT
 *
 * program_fill.c - fills a limited memory until nothing more is served, looks at every byte, gives
 * all back, and begins again. Started by test_limits.sh; linked to no allocator, so that the same
 * program measures whichever is preloaded.
 *
 *      program_fill LIMIT MEGABYTES WHEN SIZE ROUNDS
 *
 *      LIMIT   as or data: RLIMIT_AS, RLIMIT_DATA; none: somebody else limits us; stop: at the limit
 *              the program is content by itself, because nothing would be refused but all be killed
 *      WHEN    early: before exec; late: when the heap is already in use
 *      SIZE    bytes of a block, or mixed, or each: another one in every round
 *
 * A round is over after a number of refusals: one in a row of equal blocks, many of mixed ones, since
 * small blocks fit where large ones do not. Each refusal has to say ENOMEM. The last line is the
 * share of the limit that the worst round could use, in percent.
 *
 * Blocks hold their own list and a pattern that follows from their number; the program allocates
 * nothing else between the first block of a round and the last.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { REFUSALS_OF_MIXED_SIZES = 50, MEBIBYTE = 1 << 20 };

struct block {
    struct block *next;
    size_t words; /* behind this header */
    uint64_t number;
    uint64_t pattern[];
};

static struct {
    struct block *first;
    uint64_t count;
    size_t bytes;
    uint64_t random;
} g = {.random = 20240602};

static void expect(int condition, const char *what) {
    if (!condition) {
        printf("failed: %s\n", what);
        exit(1);
    }
}

static uint64_t next_random(void) {
    g.random = g.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return g.random >> 33;
}

/* Most blocks are small and most bytes are in large ones, as in real heaps. */
static size_t mixed_size(void) {
    unsigned magnitude = (unsigned)(next_random() % 100);
    size_t bound = magnitude < 70 ? 1 << 10 : magnitude < 95 ? 32 << 10 : 1 << 20;
    return sizeof(struct block) + next_random() % bound;
}

static void fill(struct block *block, size_t size) {
    block->next = g.first;
    block->number = g.count;
    block->words = (size - sizeof *block) / 8;
    for (size_t i = 0; i < block->words; i++) {
        block->pattern[i] = block->number * 31 + i;
    }
    g.first = block;
    g.count++;
    g.bytes += size;
}

static void check(const struct block *block) {
    for (size_t i = 0; i < block->words; i++) {
        expect(block->pattern[i] == block->number * 31 + i, "a block keeps its contents");
    }
}

static void fill_all(size_t size, size_t content) {
    int refusals = size != 0 ? 1 : REFUSALS_OF_MIXED_SIZES;
    g.first = NULL;
    g.count = g.bytes = 0;
    while (refusals > 0 && g.bytes < content) {
        size_t wanted = size != 0 ? size : mixed_size();
        errno = 0;
        struct block *block = malloc(wanted);
        if (block != NULL) {
            fill(block, wanted);
        } else {
            expect(errno == ENOMEM, "a refusal says ENOMEM");
            refusals--;
        }
    }
}

static void check_all(void) {
    uint64_t seen = 0;
    for (const struct block *block = g.first; block != NULL; block = block->next) {
        check(block);
        seen++;
    }
    expect(seen == g.count, "all blocks are on the list");
}

static void free_all(void) {
    errno = 4242;
    while (g.first != NULL) {
        struct block *next = g.first->next;
        free(g.first);
        g.first = next;
    }
    expect(errno == 4242, "free leaves errno alone");
}

static int is(const char *argument, const char *word) {
    return strcmp(argument, word) == 0;
}

static void set_limit(const char *name, size_t bytes) {
    struct rlimit limit = {bytes, bytes};
    if (is(name, "as") || is(name, "data")) {
        int resource = is(name, "as") ? RLIMIT_AS : RLIMIT_DATA;
        expect(setrlimit(resource, &limit) == 0, "setrlimit");
    } else {
        expect(is(name, "none") || is(name, "stop"), "a limit is as, data, none or stop");
    }
}

/* 0 stands for mixed sizes. */
static size_t size_of_round(const char *argument, int round) {
    static const size_t sizes[] = {64, 1 << 20, 4096, 0, 1000, 200000};
    if (is(argument, "each")) {
        return sizes[round % 6];
    }
    size_t size = is(argument, "mixed") ? 0 : strtoul(argument, NULL, 10);
    expect(size == 0 || size >= sizeof(struct block), "a block has room for its header");
    return size;
}

/* A heap that has been used: small and large blocks, a part of them still there. */
static void use_heap(void) {
    static void *kept[200];
    for (size_t i = 0; i < 200; i++) {
        void *passing = malloc(i * 500);
        kept[i] = malloc(i * 100);
        expect(kept[i] != NULL && passing != NULL, "malloc without a limit");
        free(passing);
    }
}

int main(int argc, char **argv) {
    static char buffer[BUFSIZ];
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    expect(argc == 6, "five arguments: LIMIT MEGABYTES WHEN SIZE ROUNDS");
    size_t limit = strtoul(argv[2], NULL, 10) * MEBIBYTE;
    int rounds = atoi(argv[5]);
    expect(limit > 0 && rounds > 0, "arguments");
    if (is(argv[3], "early")) {
        set_limit(argv[1], limit);
        argv[3] = "set";
        execv("/proc/self/exe", argv);
        expect(0, "exec under the limit");
    }
    use_heap();
    if (is(argv[3], "late")) {
        set_limit(argv[1], limit);
    }
    size_t least = SIZE_MAX;
    for (int i = 0; i < rounds; i++) {
        fill_all(size_of_round(argv[4], i), is(argv[1], "stop") ? limit : SIZE_MAX);
        check_all();
        printf("round %d: %zu blocks, %zu MiB\n", i + 1, (size_t)g.count, g.bytes / MEBIBYTE);
        least = g.bytes < least ? g.bytes : least;
        free_all();
    }
    printf("%zu\n", least * 100 / limit);
    return 0;
}
