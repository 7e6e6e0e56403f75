/* SPDX-License-Identifier: MIT
 *
 * misuse_free_twice_aligned.c - an aligned block is freed twice; the variants are alignments
 * from 32 bytes to 2 MiB.
 */
#define VARIANTS 5
#include "misuse.h"

static void misuse(size_t size, int variant) {
    void *p = aligned_alloc((size_t)32 << 4 * variant, size);
    size_t usable = malloc_usable_size(p);
    free(p);
    expect_double_free("free", p, usable);
    free(launder(p));
}
