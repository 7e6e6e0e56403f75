/* SPDX-License-Identifier: MIT
 *
 * misuse_free_aligned_sized_wrong.c - an aligned block is freed with a size of another class.
 */
#define VARIANTS 2
#include "misuse.h"

static void misuse(size_t size, int variant) {
    static const char *const names[] = {"free_aligned_sized", "_ZdlPvmSt11align_val_t"};
    void (*free_it)(void *, size_t, size_t) =
        (void (*)(void *, size_t, size_t))function_named(names[variant]);
    void *p = aligned_alloc(64, size);
    size_t usable = malloc_usable_size(p);
    size_t wrong = size * 3 + 200;
    void *other = aligned_alloc(64, wrong);
    size_t would_be = malloc_usable_size(other);
    free(other);
    expect("free_aligned_sized(%p, %zu): wrong size: the object has %zu bytes, one of that size "
           "would have %zu",
           p, wrong, usable, would_be);
    if (variant == 0) {
        free_it(launder(p), 64, wrong);
    } else {
        free_it(launder(p), wrong, 64);
    }
}
