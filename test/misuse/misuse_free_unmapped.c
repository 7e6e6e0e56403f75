/* SPDX-License-Identifier: MIT
 *
 * misuse_free_unmapped.c - an address is freed where nothing has been mapped: right behind an
 * old mapping, near it, and far from everything.
 */
#define VARIANTS 3
#include "misuse.h"

#include <sys/mman.h>

static void misuse(size_t size __attribute__((unused)), int variant) {
    char *map = mmap(NULL, 8 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(map, 8 << 20);
    void *p = variant == 0 ? map : variant == 1 ? map + (1 << 20) : (void *)0x123456780000;
    expect("free(%p): not memory of this heap", p);
    free(launder(p));
}
