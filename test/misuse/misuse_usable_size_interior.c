/* SPDX-License-Identifier: MIT
 *
 * misuse_usable_size_interior.c - malloc_usable_size of a pointer into a block.
 */
#define VARIANTS 4
#include "misuse.h"

static void misuse(size_t size, int variant) {
    static const size_t offsets[] = {1, 8, 16, 4096};
    char *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    if (offsets[variant] >= usable) {
        not_applicable();
    }
    expect_interior("malloc_usable_size", p, offsets[variant], usable);
    if (malloc_usable_size(launder(p + offsets[variant])) == 0) {
        return;
    }
}
