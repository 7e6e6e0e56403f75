/* SPDX-License-Identifier: MIT
 *
 * misuse_realloc_zero_freed.c - realloc to zero bytes of a block that is free.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    volatile size_t nothing = 0;
    free(p);
    expect_double_free("realloc", p, usable);
    if (realloc(launder(p), nothing) == NULL) {
        return;
    }
}
