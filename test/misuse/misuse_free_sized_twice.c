/* SPDX-License-Identifier: MIT
 *
 * misuse_free_sized_twice.c - a block is freed twice with its right size, by free_sized and by
 * the sized operator delete.
 */
#define VARIANTS 3
#include "misuse.h"

static void misuse(size_t size, int variant) {
    static const char *const names[] = {"free_sized", "_ZdlPvm", "_ZdaPvm"};
    void (*free_it)(void *, size_t) = (void (*)(void *, size_t))function_named(names[variant]);
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    free_it(p, size);
    expect_double_free("free_sized", p, usable);
    free_it(launder(p), size);
}
