/* SPDX-License-Identifier: MIT
 *
 * misuse_free_sized_wrong.c - a block is freed with a size of another class: of a smaller one,
 * of a larger one, of a huge one. By free_sized and by the sized operator delete.
 */
#define VARIANTS 9
#include "misuse.h"

static void misuse(size_t size, int variant) {
    static const char *const names[] = {"free_sized", "_ZdlPvm", "_ZdaPvm"};
    void (*free_it)(void *, size_t) = (void (*)(void *, size_t))function_named(names[variant % 3]);
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    size_t wrong = variant / 3 == 0 ? size / 2 : variant / 3 == 1 ? size * 2 + 50 : 600000000;
    size_t would_be = usable_size_of(wrong);
    if (would_be == usable) {
        not_applicable();
    }
    expect("free_sized(%p, %zu): wrong size: the object has %zu bytes, one of that size would "
           "have %zu",
           p, wrong, usable, would_be);
    free_it(launder(p), wrong);
}
