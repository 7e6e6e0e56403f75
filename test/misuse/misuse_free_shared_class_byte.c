/* SPDX-License-Identifier: MIT
 *
 * misuse_free_shared_class_byte.c - memory that the program has mapped is freed, at an address that
 * differs from a live block in bit 46 alone. A table that is indexed by the lower bits mistakes it
 * for the block; at the latest when the cache is emptied all bits have to be compared.
 */
#include "misuse.h"

#include <sys/mman.h>

static void misuse(size_t size, int variant __attribute__((unused))) {
    enum { COUNT = 300 };
    static void *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = malloc(size);
    }
    for (size_t i = 0; i < COUNT; i += 2) {
        free(blocks[i]);
    }
    char *p = (char *)((uintptr_t)blocks[1] ^ (uintptr_t)1 << 46);
    void *page = (void *)((uintptr_t)p & ~(uintptr_t)65535);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(page, 1 << 20, PROT_READ | PROT_WRITE, flags, -1, 0) != page) {
        not_applicable();
    }
    expect("free(%p): not memory of this heap", (void *)p);
    expect("free(%p): not memory of this heap, found when a cache was emptied", (void *)p);
    free(launder(p));
    malloc_trim(0);
}
