/* SPDX-License-Identifier: MIT
 *
 * program_mappings.c - how many mappings a heap is made of, and what happens when no more can be
 * had. Started by test_mappings.sh; linked to no allocator, so that the same program measures
 * whichever is preloaded.
 *
 *      program_mappings sparse GIGABYTES KILOBYTES
 *          a heap of that size in blocks of that size, one page of each touched; prints the mappings,
 *          then the resident memory and the page tables in MiB
 *      program_mappings full SPARE
 *          uses the heap, takes every mapping the kernel allows (vm.max_map_count) but SPARE,
 *          and goes on: allocations may be refused, contents stay, every free succeeds. Then the
 *          mappings are given back and the heap serves again.
 *
 * Mappings are used up by a foreign region whose pages alternate in protection.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proc.h"

enum { PAGE = 4096, KEPT_ERRNO = 4242 };

static void expect(int condition, const char *what) {
    if (!condition) {
        printf("failed: %s (errno %d)\n", what, errno);
        exit(1);
    }
}

static size_t count_lines(const char *path) {
    static char piece[1 << 16];
    size_t lines = 0;
    ssize_t n;
    int fd = open(path, O_RDONLY);
    expect(fd >= 0, path);
    while ((n = read(fd, piece, sizeof piece)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            lines += piece[i] == '\n';
        }
    }
    close(fd);
    return lines;
}

static void be_sparse(size_t total, size_t block_bytes) {
    size_t count = total / block_bytes;
    char **blocks = malloc(count * sizeof *blocks);
    expect(blocks != NULL, "malloc of the table");
    for (size_t i = 0; i < count; i++) {
        blocks[i] = malloc(block_bytes);
        expect(blocks[i] != NULL, "malloc of a block");
        blocks[i][block_bytes / 2] = (char)i;
    }
    printf("%zu %zu %zu\n", count_lines("/proc/self/maps"),
           proc_mebibytes("/proc/self/smaps_rollup", "\nAnonymous:"),
           proc_mebibytes("/proc/self/status", "\nVmPTE:"));
    for (size_t i = 0; i < count; i++) {
        expect(blocks[i][block_bytes / 2] == (char)i, "a block keeps its contents");
        free(blocks[i]);
    }
    free(blocks);
}

enum { SINGLES = 64 };

/* The foreign region, and single pages for what is left when no pair of mappings is. */
static struct {
    char *start;
    size_t bytes;
    size_t opened; /* pages made readable, every second one */
    void *single[SINGLES];
    size_t singles;
} region;

static size_t most_mappings(void) {
    char text[32] = "";
    int fd = open("/proc/sys/vm/max_map_count", O_RDONLY);
    expect(fd >= 0 && read(fd, text, sizeof text - 1) > 0, "/proc/sys/vm/max_map_count");
    close(fd);
    return strtoul(text, NULL, 10);
}

static void reserve_region(void) {
    region.bytes = (most_mappings() + 2) * 2 * PAGE;
    region.start =
        mmap(NULL, region.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    expect(region.start != MAP_FAILED, "mmap of the foreign region");
}

static char *nth_page(size_t n) {
    return region.start + (2 * n + 1) * PAGE;
}

/* Neighbours of different protection are two mappings. */
static void *map_single(void) {
    int protection = region.singles % 2 == 0 ? PROT_EXEC : PROT_READ;
    return mmap(NULL, PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Each page opened costs two mappings. */
static void take_all_mappings(size_t spare) {
    while (mprotect(nth_page(region.opened), PAGE, PROT_READ) == 0) {
        region.opened++;
        expect(region.opened < region.bytes / PAGE / 2 - 1, "the kernel limits mappings");
    }
    while ((region.single[region.singles] = map_single()) != MAP_FAILED) {
        region.singles++;
        expect(region.singles < SINGLES, "the kernel refuses the last mapping");
    }
    for (size_t i = 0; i < (spare + 1) / 2 && region.opened > 0; i++) {
        expect(mprotect(nth_page(--region.opened), PAGE, PROT_NONE) == 0, "mprotect");
    }
}

static void give_mappings_back(void) {
    while (region.singles > 0) {
        expect(munmap(region.single[--region.singles], PAGE) == 0, "munmap of a single page");
    }
    expect(munmap(region.start, region.bytes) == 0, "munmap of the foreign region");
}

enum { BLOCKS = 6000 };
static struct {
    unsigned char *p;
    size_t size;
} blocks[BLOCKS];
static size_t refused;

static size_t nth_size(size_t i) {
    static const size_t kinds[] = {16, 100, 1000, 5000, 20000, 40000, 150000, 600000};
    return i % 500 == 499 ? 5000000 : kinds[i % 8] + i % 13;
}

static void mark(size_t i) {
    memset(blocks[i].p, (int)i, blocks[i].size < 5000 ? blocks[i].size : 5000);
    blocks[i].p[blocks[i].size - 1] = (unsigned char)i;
}

static void check(size_t i) {
    size_t marked = blocks[i].size < 5000 ? blocks[i].size : 5000;
    for (size_t j = 0; j < marked; j += 7) {
        expect(blocks[i].p[j] == (unsigned char)i, "a block keeps its contents");
    }
    expect(blocks[i].p[blocks[i].size - 1] == (unsigned char)i, "a block keeps its last byte");
}

/* malloc, or realloc where there is a block already, that may be refused. */
static void try_to_get(size_t i, size_t size) {
    errno = 0;
    unsigned char *p = realloc(blocks[i].p, size);
    if (p == NULL) {
        expect(errno == ENOMEM, "a refusal says ENOMEM");
        refused++;
        return;
    }
    size_t old = blocks[i].size;
    if (blocks[i].p != NULL && size > old) {
        expect(p[0] == (unsigned char)i && p[old - 1] == (unsigned char)i, "realloc copies");
    }
    blocks[i].p = p;
    blocks[i].size = size;
    mark(i);
}

static void release(size_t i) {
    if (blocks[i].p != NULL) {
        check(i);
        errno = KEPT_ERRNO;
        free(blocks[i].p);
        expect(errno == KEPT_ERRNO, "free leaves errno alone");
        blocks[i].p = NULL;
        blocks[i].size = 0;
    }
}

static void verify(void) {
    void (*check_heap)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "tally_verify");
    if (check_heap != NULL) {
        check_heap();
    }
}

static void go_on_at_the_limit(void) {
    for (size_t i = 0; i < BLOCKS; i += 2) {
        release(i);
    }
    verify();
    for (size_t i = 0; i < BLOCKS; i++) {
        try_to_get(i, nth_size(i * 7) * (1 + i % 3));
    }
    verify();
    for (size_t i = 0; i < BLOCKS; i += 3) {
        release(i);
    }
    for (size_t i = 0; i < BLOCKS; i += 3) {
        try_to_get(i, nth_size(i));
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        release(i);
    }
    verify();
}

static void be_full(size_t spare) {
    reserve_region();
    for (size_t i = 0; i < BLOCKS; i++) {
        try_to_get(i, nth_size(i));
    }
    expect(refused == 0, "malloc before the limit");
    take_all_mappings(spare);
    go_on_at_the_limit();
    size_t refused_at_limit = refused;
    give_mappings_back();
    refused = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        try_to_get(i, nth_size(i));
    }
    expect(refused == 0, "malloc serves again when there are mappings");
    for (size_t i = 0; i < BLOCKS; i++) {
        release(i);
    }
    verify();
    printf("refused %zu\n", refused_at_limit);
}

int main(int argc, char **argv) {
    static char buffer[BUFSIZ];
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    if (argc == 4 && strcmp(argv[1], "sparse") == 0) {
        be_sparse(strtoul(argv[2], NULL, 10) << 30, strtoul(argv[3], NULL, 10) << 10);
    } else if (argc == 3 && strcmp(argv[1], "full") == 0) {
        be_full(strtoul(argv[2], NULL, 10));
    } else {
        expect(0, "arguments: sparse GIGABYTES KILOBYTES, or full SPARE");
    }
    return 0;
}
