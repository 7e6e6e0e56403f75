/* SPDX-License-Identifier: MIT
 *
 * misuse_free_wild.c - a wild pointer is freed: one that no process can have, on x86-64 not even
 * canonical.
 */
#define VARIANTS 5
#include "misuse.h"

static void misuse(size_t size __attribute__((unused)), int variant) {
    static const uintptr_t pointers[] = {0xdeadbeefdeadbeef, 0x4141414141414141, 0x0000800000000000,
                                         0x00ff000000001000, 0xfffffffffffffff0};
    void *p = (void *)pointers[variant];
    expect("free(%p): not memory of this heap", p);
    free(launder(p));
}
