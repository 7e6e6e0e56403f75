/* SPDX-License-Identifier: MIT
 *
 * misuse_usable_size_foreign.c - malloc_usable_size of memory that the heap does not know: a
 * variable, an integer, a wild pointer, a mapping.
 */
#define VARIANTS 4
#include "misuse.h"

#include <sys/mman.h>

static void misuse(size_t size __attribute__((unused)), int variant) {
    char bytes[64] = {0};
    void *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *foreign[] = {bytes, (void *)42, (void *)0xdeadbeefdeadbeef, map};
    void *p = launder(foreign[variant]);
    expect("malloc_usable_size(%p): not memory of this heap", p);
    if (malloc_usable_size(launder(p)) == 0) {
        return;
    }
}
