/* SPDX-License-Identifier: MIT
 *
 * misuse_free_stack.c - a variable of the stack is freed.
 */
#define VARIANTS 3
#include "misuse.h"

static void misuse(size_t size __attribute__((unused)), int variant) {
    char bytes[256] = {0};
    void *p = launder(bytes + 16 * variant);
    expect("free(%p): not memory of this heap", p);
    free(launder(p));
}
