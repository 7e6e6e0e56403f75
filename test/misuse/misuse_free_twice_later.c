/* SPDX-License-Identifier: MIT
 *
 * misuse_free_twice_later.c - a block is freed again after a thousand other blocks of its size
 * came and went.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    free(p);
    for (int i = 0; i < 1000; i++) {
        free(malloc(size));
    }
    expect_double_free("free", p, usable);
    free(launder(p));
}
