/* SPDX-License-Identifier: MIT
 *
 * program_rates.c - some 10 MiB of each of several sizes, each in a function of its own, for rates.py.
 *
 *      rates            prints "name usable-bytes live ever" for each function; profiles are written at exit
 *
 * A third of what a function allocates is kept.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline))

NOINLINE static void print_counts(const char *name, void *block, unsigned live, unsigned ever) {
    printf("%s %zu %u %u\n", name, malloc_usable_size(block), live, ever);
}

/* One in three is not freed. */
static void *_Atomic last;

NOINLINE static void keep_some(void *block, unsigned number) {
    if (block == NULL) {
        exit(3);
    }
    if (number % 3 == 0) {
        last = block;
    } else {
        free(block);
    }
}

NOINLINE static void rate_tiny(unsigned number) {
    keep_some(malloc(24), number);
    __asm__ volatile("");
}

NOINLINE static void rate_small(unsigned number) {
    keep_some(malloc(200), number);
    __asm__ volatile("");
}

NOINLINE static void rate_medium(unsigned number) {
    keep_some(malloc(3000), number);
    __asm__ volatile("");
}

NOINLINE static void rate_big(unsigned number) {
    keep_some(malloc(40000), number);
    __asm__ volatile("");
}

NOINLINE static void rate_huge(unsigned number) {
    keep_some(malloc(600000), number);
    __asm__ volatile("");
}

static void run(const char *name, void (*allocate)(unsigned), unsigned live) {
    for (unsigned i = 0; i < 3 * live; i++) {
        allocate(i);
    }
    allocate(0);
    print_counts(name, last, live + 1, 3 * live + 1);
}

int main(void) {
    static char buffer[1 << 12];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    run("rate_tiny", rate_tiny, 300000);
    run("rate_small", rate_small, 50000);
    run("rate_medium", rate_medium, 3400);
    run("rate_big", rate_big, 260);
    run("rate_huge", rate_huge, 17);
    return 0;
}
