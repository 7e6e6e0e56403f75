/* SPDX-License-Identifier: MIT
 *
 * misuse_free_wild_bits.c - the pointer of a live block is freed with one of the bits 47 to 63
 * set. An index into a table by address must be bounded before it is used.
 *
 * The fast path's class map drops those bits, so for a small block it goes on to read the object,
 * at an address that is none: the processor ends the process there, before anything is changed, and
 * without a sentence. docs/manual/misuse.md says so. The slow path compares all bits.
 */
#define VARIANTS 17
#include "misuse.h"

static void misuse(size_t size, int variant) {
    bool all_slow = getenv("TALLY_CONF") != NULL && strstr(getenv("TALLY_CONF"), "all_slow:true");
    void *p = (void *)((uintptr_t)malloc(size) | (uintptr_t)1 << (47 + variant));
    expect("free(%p): not memory of this heap", p);
    if (!all_slow && size <= SMALL_MAX) {
        expect_fault();
    }
    free(launder(p));
}
