/* SPDX-License-Identifier: MIT
 *
 * misuse_free_never_allocated.c - a well-formed address behind the highest block of its size is
 * freed, where no block has been handed out yet. Depending on where the slab ends, the heap sees
 * an object that it has not handed out, one that waits in a cache, free memory, the unused end
 * of the last pages of a large block, or the tail of a slab, which is too short for an object.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    enum { COUNT = 40 };
    char *highest = NULL;
    for (size_t i = 0; i < COUNT; i++) {
        char *p = malloc(size);
        highest = p > highest ? p : highest;
    }
    size_t usable = malloc_usable_size(highest);
    char *next = highest + usable;
    for (size_t i = 0; i < CROWD; i++) {
        if (crowd[i] >= (void *)next && crowd[i] < (void *)(next + usable)) {
            not_applicable();
        }
    }
    expect("free(%p): this %zu-byte object was never allocated", (void *)next, usable);
    expect("free(%p): the %zu-byte object is already free", (void *)next, usable);
    expect("free(%p): no object is here: this memory of the heap is free", (void *)next);
    expect("free(%p): not memory of this heap", (void *)next);
    expect_interior("free", highest, usable, usable);
    expect_interior("free", next, 0, usable);
    free(launder(next));
}
