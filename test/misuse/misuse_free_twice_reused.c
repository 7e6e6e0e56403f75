/* SPDX-License-Identifier: MIT
 *
 * misuse_free_twice_reused.c - a block is freed twice with one malloc of its size in between. If
 * that malloc was given the same block, the mistake shows when the block is freed for the third
 * time.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    free(p);
    void *q = malloc(size);
    if (q == p) {
        free(launder(p));
    }
    expect_double_free("free", p, usable);
    free(launder(p));
}
