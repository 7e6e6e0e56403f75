/* SPDX-License-Identifier: MIT
 *
 * misuse_free_interior_aligned.c - a pointer into an aligned block is freed.
 */
#define VARIANTS 3
#include "misuse.h"

static void misuse(size_t size, int variant) {
    static const size_t offsets[] = {1, 8, 16};
    char *p = aligned_alloc(4096, size + 32);
    size_t usable = malloc_usable_size(p);
    expect_interior("free", p, offsets[variant], usable);
    free(launder(p + offsets[variant]));
}
