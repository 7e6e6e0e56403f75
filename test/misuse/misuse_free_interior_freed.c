/* SPDX-License-Identifier: MIT
 *
 * misuse_free_interior_freed.c - a pointer into a block that is free is freed.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    char *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    free(p);
    expect_interior("free", p, 8, usable);
    expect("free(%p): no object is here: this memory of the heap is free", (void *)(p + 8));
    expect("free(%p): not memory of this heap", (void *)(p + 8));
    free(launder(p + 8));
}
