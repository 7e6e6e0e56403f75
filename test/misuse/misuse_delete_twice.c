/* SPDX-License-Identifier: MIT
 *
 * misuse_delete_twice.c - operator delete in every unsized form of a block that is free already.
 */
#define VARIANTS 4
#include "misuse.h"

static void misuse(size_t size, int variant) {
    static const char *const names[] = {"_ZdlPv", "_ZdaPv", "_ZdlPvSt11align_val_t", "cfree"};
    void (*delete_it)(void *, size_t) = (void (*)(void *, size_t))function_named(names[variant]);
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    delete_it(p, 16);
    expect_double_free("free", p, usable);
    delete_it(launder(p), 16);
}
