/* SPDX-License-Identifier: MIT
 *
 * misuse_free_twice_signal.c - a signal handler frees a block that is free already.
 */
#include "misuse.h"

static struct {
    void *p;
    size_t usable;
} block;

static void free_in_handler(int signal_number) {
    (void)signal_number;
    expect_double_free("free", block.p, block.usable);
    free(launder(block.p));
}

static void misuse(size_t size, int variant __attribute__((unused))) {
    block.p = malloc(size);
    block.usable = malloc_usable_size(block.p);
    free(block.p);
    signal(SIGUSR1, free_in_handler);
    raise(SIGUSR1);
}
