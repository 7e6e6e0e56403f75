/* SPDX-License-Identifier: MIT
 *
 * misuse_realloc_foreign.c - realloc of memory that the heap does not know: a variable, an
 * integer, a wild pointer, a mapping.
 */
#define VARIANTS 4
#include "misuse.h"

#include <sys/mman.h>

static void misuse(size_t size, int variant) {
    char bytes[64] = {0};
    void *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *foreign[] = {bytes, (void *)42, (void *)0xdeadbeefdeadbeef, map};
    void *p = launder(foreign[variant]);
    expect("realloc(%p): not memory of this heap", p);
    if (realloc(launder(p), size + 1) == NULL) {
        return;
    }
}
