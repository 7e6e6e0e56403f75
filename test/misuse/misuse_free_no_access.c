/* SPDX-License-Identifier: MIT
 *
 * misuse_free_no_access.c - a page without access is freed: the message must come before any
 * look at the page.
 */
#include "misuse.h"

#include <sys/mman.h>

static void misuse(size_t size __attribute__((unused)), int variant __attribute__((unused))) {
    void *p = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect("free(%p): not memory of this heap", p);
    free(launder(p));
}
