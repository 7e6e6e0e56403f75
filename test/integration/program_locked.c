/* SPDX-License-Identifier: MIT
 *
 * program_locked.c - a program that locks its memory, and one that dies and leaves a core file.
 * Started by test_locked.sh and test_core.sh; linked to no allocator, so that the same program
 * measures whichever is preloaded.
 *
 *      program_locked future|current|both
 *          mlockall() with MCL_FUTURE, MCL_CURRENT or both, then 64 MiB of heap. Prints how much
 *          was resident in excess of the heap, how far the locked addresses and the page tables
 *          grew, all in MiB, and the milliseconds that mlockall() took.
 *          Exits with 3 where a process may not lock gigabytes.
 *      program_locked core MEGABYTES
 *          fills that much heap, prints the resident memory in MiB and aborts.
 *
 * Locked pages cannot be given back: the kernel refuses, and calloc has to notice.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "proc.h"

enum { MEBIBYTE = 1 << 20, HEAP_MIB = 64, BLOCK = 20000, CANNOT_LOCK = 3 };
enum { BLOCKS = HEAP_MIB * MEBIBYTE / BLOCK };

static unsigned char *blocks[BLOCKS];

static void expect(int condition, const char *what) {
    if (!condition) {
        printf("failed: %s (errno %d)\n", what, errno);
        exit(1);
    }
}

static long resident(void) {
    return (long)proc_mebibytes("/proc/self/smaps_rollup", "\nAnonymous:");
}

static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void fill_heap(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BLOCK);
        expect(blocks[i] != NULL, "malloc of locked memory");
        memset(blocks[i], 0xa5, BLOCK);
    }
}

static void free_heap(void) {
    errno = 4242;
    for (size_t i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
    expect(errno == 4242, "free leaves errno alone");
}

/* What was dirty, freed and could not be given back must not come out of calloc as it was. */
static void check_zeros(void) {
    for (size_t size = BLOCK; size <= 4 * MEBIBYTE; size *= 4) {
        unsigned char *p = calloc(1, size);
        expect(p != NULL, "calloc of locked memory");
        for (size_t i = 0; i < size; i++) {
            expect(p[i] == 0, "calloc gives zeros");
        }
        memset(p, 0x5a, size);
        free(p);
    }
}

/* Whether this process may lock as much as it likes, tried on addresses without memory. */
static int may_lock(void) {
    size_t much = (size_t)8 << 30;
    void *p = mmap(NULL, much, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int failed = p == MAP_FAILED || mlock2(p, much, MLOCK_ONFAULT) != 0;
    munmap(p, much);
    return !failed;
}

static void lock_memory(int flags) {
    if (!may_lock()) {
        exit(CANNOT_LOCK);
    }
    long resident_before = resident();
    long tables = (long)proc_mebibytes("/proc/self/status", "\nVmPTE:");
    long start = milliseconds();
    expect(mlockall(flags) == 0, "mlockall");
    long taken = milliseconds() - start;
    fill_heap();
    printf("%ld %ld %ld %ld\n", resident() - resident_before - HEAP_MIB,
           (long)proc_mebibytes("/proc/self/status", "\nVmLck:"),
           (long)proc_mebibytes("/proc/self/status", "\nVmPTE:") - tables, taken);
    for (int round = 0; round < 3; round++) {
        free_heap();
        check_zeros();
        fill_heap();
    }
    free_heap();
}

static void dump_core(size_t mebibytes) {
    for (size_t filled = 0; filled < mebibytes * MEBIBYTE; filled += BLOCK) {
        unsigned char *p = malloc(BLOCK);
        expect(p != NULL, "malloc");
        memset(p, 0xa5, BLOCK);
    }
    printf("%ld\n", resident());
    abort();
}

int main(int argc, char **argv) {
    static char buffer[BUFSIZ];
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    free(malloc(100));
    if (argc == 3 && strcmp(argv[1], "core") == 0) {
        dump_core(strtoul(argv[2], NULL, 10));
    }
    expect(argc == 2, "arguments: future, current, both, or core MEGABYTES");
    lock_memory(strcmp(argv[1], "future") == 0    ? MCL_FUTURE
                : strcmp(argv[1], "current") == 0 ? MCL_CURRENT
                                                  : MCL_CURRENT | MCL_FUTURE);
    return 0;
}
