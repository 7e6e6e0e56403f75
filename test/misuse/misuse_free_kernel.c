/* SPDX-License-Identifier: MIT
 *
 * misuse_free_kernel.c - an address of the kernel is freed.
 */
#define VARIANTS 3
#include "misuse.h"

static void misuse(size_t size __attribute__((unused)), int variant) {
    static const uintptr_t pointers[] = {0xffff888000001000, 0xffffffff81000000,
                                         0xffff800000000000};
    void *p = (void *)pointers[variant];
    expect("free(%p): not memory of this heap", p);
    free(launder(p));
}
