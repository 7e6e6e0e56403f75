/* SPDX-License-Identifier: MIT
 *
 * misuse_realloc_freed.c - realloc of a block that is free.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    free(p);
    expect_double_free("realloc", p, usable);
    if (realloc(launder(p), size + 1) == NULL) {
        return;
    }
}
