/* SPDX-License-Identifier: MIT
 *
 * misuse_free_after_realloc_zero.c - a block is freed after realloc to zero bytes has freed it.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    volatile size_t nothing = 0;
    if (realloc(p, nothing) != NULL) {
        return;
    }
    expect_double_free("free", p, usable);
    free(launder(p));
}
