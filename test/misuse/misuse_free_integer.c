/* SPDX-License-Identifier: MIT
 *
 * misuse_free_integer.c - a small integer is freed as if it were a pointer.
 */
#define VARIANTS 6
#include "misuse.h"

static void misuse(size_t size __attribute__((unused)), int variant) {
    static const uintptr_t integers[] = {1, 8, 16, 42, 4096, 65536};
    void *p = (void *)integers[variant];
    expect("free(%p): not memory of this heap", p);
    free(launder(p));
}
