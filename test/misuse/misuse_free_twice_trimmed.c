/* SPDX-License-Identifier: MIT
 *
 * misuse_free_twice_trimmed.c - a block is freed again after malloc_trim gave its page back to
 * the kernel: reading the block could not tell, and must not be needed.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    enum { COUNT = 1000 };
    static void *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = malloc(size);
    }
    size_t usable = malloc_usable_size(blocks[COUNT / 2]);
    for (size_t i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
    malloc_trim(0);
    expect_double_free("free", blocks[COUNT / 2], usable);
    free(launder(blocks[COUNT / 2]));
}
