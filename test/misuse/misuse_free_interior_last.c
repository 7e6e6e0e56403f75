/* SPDX-License-Identifier: MIT
 *
 * misuse_free_interior_last.c - a pointer to the last byte, the last word and the middle of a
 * block is freed.
 */
#define VARIANTS 3
#include "misuse.h"

static void misuse(size_t size, int variant) {
    char *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    size_t offset = variant == 0 ? usable - 1 : variant == 1 ? usable - 8 : usable / 2;
    expect_interior("free", p, offset, usable);
    free(launder(p + offset));
}
