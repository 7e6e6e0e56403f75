/* SPDX-License-Identifier: MIT
 *
 * misuse_free_twice_many.c - one of a thousand freed blocks is freed again, after they have left
 * the cache of the thread.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    enum { COUNT = 1000 };
    static void *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = malloc(size);
    }
    size_t usable = malloc_usable_size(blocks[COUNT / 3]);
    for (size_t i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
    expect_double_free("free", blocks[COUNT / 3], usable);
    free(launder(blocks[COUNT / 3]));
}
