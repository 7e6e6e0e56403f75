/* SPDX-License-Identifier: MIT
 *
 * misuse_free_twice_overwritten.c - a block is freed, written over, and freed again. The mark of a
 * free block was destroyed by the write, so a block that sits in a cache is not recognised at once;
 * it is when the cache is emptied.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    char *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    if (usable > SMALL_MAX) {
        not_applicable();
    }
    for (int i = 0; i < 100; i++) {
        free(malloc(size));
    }
    free(p);
    memset(launder(p), 1, usable);
    expect_double_free("free", p, usable);
    expect("free(%p): the %zu-byte object was already free, found when a cache was emptied",
           (void *)p, usable);
    free(launder(p));
    malloc_trim(0);
}
