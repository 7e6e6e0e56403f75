/* SPDX-License-Identifier: MIT
 *
 * misuse_free_code.c - the address of a function is freed: one of this program, one of libc.
 */
#define VARIANTS 2
#include "misuse.h"

static void misuse(size_t size __attribute__((unused)), int variant) {
    void *p = variant == 0 ? (void *)(uintptr_t)misuse : (void *)(uintptr_t)getpid;
    expect("free(%p): not memory of this heap", p);
    free(launder(p));
}
