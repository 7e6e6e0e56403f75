/* SPDX-License-Identifier: MIT
 *
 * misuse_free_global.c - a global variable is freed: one with a value, one of zeros, a constant.
 */
#define VARIANTS 3
#include "misuse.h"

static char with_value[64] = {1};
static char of_zeros[1 << 16];

static void misuse(size_t size __attribute__((unused)), int variant) {
    void *p = launder(variant == 0   ? (void *)with_value
                      : variant == 1 ? (void *)of_zeros
                                     : (void *)(uintptr_t) "text");
    expect("free(%p): not memory of this heap", p);
    free(launder(p));
}
