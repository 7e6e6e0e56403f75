/* SPDX-License-Identifier: MIT
 *
 * misuse_free_twice.c - a block is freed twice, at once.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    free(p);
    expect_double_free("free", p, usable);
    free(launder(p));
}
