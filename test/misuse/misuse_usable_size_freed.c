/* SPDX-License-Identifier: MIT
 *
 * misuse_usable_size_freed.c - malloc_usable_size of a block that is free.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    free(p);
    expect_double_free("malloc_usable_size", p, usable);
    if (malloc_usable_size(launder(p)) == 0) {
        return;
    }
}
