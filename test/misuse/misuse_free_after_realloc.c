/* SPDX-License-Identifier: MIT
 *
 * misuse_free_after_realloc.c - a block is freed by its old address after realloc moved it.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    void *moved = realloc(p, 4 * usable + 100000);
    if (moved == p) {
        not_applicable();
    }
    expect_double_free("free", p, usable);
    free(launder(p));
}
