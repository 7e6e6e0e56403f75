/* SPDX-License-Identifier: MIT
 *
 * misuse_free_p_q_p.c - two blocks are freed in turn, then the first again: a check of the last
 * freed block alone is not enough.
 */
#include "misuse.h"

static void misuse(size_t size, int variant __attribute__((unused))) {
    void *p = malloc(size);
    void *q = malloc(size);
    size_t usable = malloc_usable_size(p);
    free(p);
    free(q);
    expect_double_free("free", p, usable);
    free(launder(p));
}
