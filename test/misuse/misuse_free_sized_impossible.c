/* SPDX-License-Identifier: MIT
 *
 * misuse_free_sized_impossible.c - a block is freed with a size that no block can have.
 */
#define VARIANTS 3
#include "misuse.h"

static void misuse(size_t size, int variant) {
    void (*free_it)(void *, size_t) = (void (*)(void *, size_t))function_named("free_sized");
    static const size_t sizes[] = {PTRDIFF_MAX, SIZE_MAX, SIZE_MAX - 4096};
    void *p = malloc(size);
    expect_part("free_sized(%p, %zu): wrong size: the object has %zu bytes, ", p, sizes[variant],
                malloc_usable_size(p));
    free_it(launder(p), sizes[variant]);
}
