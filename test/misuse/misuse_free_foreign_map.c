/* SPDX-License-Identifier: MIT
 *
 * misuse_free_foreign_map.c - memory that the program has mapped itself is freed: its start, its
 * middle, and a mapping right behind the heap.
 */
#define VARIANTS 3
#include "misuse.h"

#include <sys/mman.h>

static void misuse(size_t size __attribute__((unused)), int variant) {
    size_t bytes = 4 << 20;
    void *hint = variant < 2 ? NULL : malloc(100);
    hint = variant < 2 ? NULL : (void *)(((uintptr_t)hint | 0x3fffffff) + 1);
    char *map = mmap(hint, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *p = map + (variant == 1 ? 16384 : 0);
    expect("free(%p): not memory of this heap", p);
    free(launder(p));
}
