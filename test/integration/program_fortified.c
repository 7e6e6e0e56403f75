/* SPDX-License-Identifier: MIT
 *
 * program_fortified.c - uses every byte of its blocks in a build in which the compiler checks the
 * sizes of objects (_FORTIFY_SOURCE=3); compiled and started by test_replay_programs.sh.
 *
 * The checks go by the size that was asked for.  So a program may use what malloc_usable_size tells
 * only after it said so by realloc, and that must not move the block or change the answer.  Prints
 * "kept" when all went well; with an argument it writes one byte too many, which libc must notice.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef WITH_TALLY_H
#include <tally/tally.h>
#endif

/* Not inlined: the sizes are known at run time only, as in a real program. */
static __attribute__((noinline)) void fill(size_t size, size_t bytes) {
    char *p = malloc(size);
    if (p == NULL) {
        exit(1);
    }
    memset(p, 'x', bytes);
    size_t usable = malloc_usable_size(p);
    if (usable < size || malloc_usable_size(p) != usable) {
        exit(1);
    }
    char *whole = realloc(p, usable);
    if (whole == NULL || malloc_usable_size(whole) != usable) {
        exit(1);
    }
    memset(whole, 'y', usable);
    if (malloc_usable_size(whole) != usable || whole[usable - 1] != 'y') {
        exit(1);
    }
    free(whole);
}

static __attribute__((noinline)) void fill_strings(size_t size) {
    char *text = calloc(size, 1);
    char *copy = strdup("some words");
    if (text == NULL || copy == NULL) {
        exit(1);
    }
    snprintf(text, size, "%s and %s", copy, copy);
    strncat(text, "!", size - strlen(text) - 1);
    free(text);
    free(copy);
}

int main(int argc, char **argv) {
    (void)argv;
    for (size_t size = 1; size < 300000; size += 1 + size / 13) {
        fill(size, size);
        fill_strings(size + 30);
    }
#ifdef WITH_TALLY_H
    /* What the header promises about sizes is what a block has. */
    char *p = tally_malloc((size_t)argc * 10);
    memset(p, 1, (size_t)argc * 10);
    p = tally_realloc(p, (size_t)argc * 1000);
    memset(p, 1, (size_t)argc * 1000);
    tally_free(p);
    p = tally_aligned_alloc(64, (size_t)argc * 100);
    memset(p, 1, (size_t)argc * 100);
    tally_free(p);
#endif
    if (argc > 1) {
        fill((size_t)argc * 20, (size_t)argc * 20 + 1);
    }
    puts("kept");
    return 0;
}
