/* SPDX-License-Identifier: MIT
 *
 * misuse_free_interior.c - a pointer into a block is freed; the variants are offsets.
 */
#define VARIANTS 8
#include "misuse.h"

static void misuse(size_t size, int variant) {
    static const size_t offsets[] = {1, 8, 15, 16, 17, 4096, 16384, 1 << 20};
    char *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    size_t offset = offsets[variant];
    if (offset >= usable) {
        not_applicable();
    }
    expect_interior("free", p, offset, usable);
    free(launder(p + offset));
}
