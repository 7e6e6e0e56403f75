/* SPDX-License-Identifier: MIT
 *
 * work.h - memory for the time of one check: mappings, and stacks of words.
 *
 * Its addresses are known, since none of it may count as a root, and all of it is given back at once.
 *
 * Threads     One check at a time.
 */
#pragma once

#include "base/common.h"

/* Zeros, in whole pages; NULL without memory, which is remembered.  A mapping may be given back early. */
void *work_map(size_t bytes);
void work_unmap(void *start);
bool work_has_failed(void);

/* Gives everything back and forgets the failure. */
void work_release(void);

void work_walk(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context);

/* A stack of words; all zeros is an empty one.  Without memory what is pushed is lost, and work_has_failed is
 * true. */
struct work_block;
struct work_stack {
    struct work_block *top;
    struct work_block *spare;
};
void work_push(struct work_stack *stack, uintptr_t word);
bool work_pop(struct work_stack *stack, uintptr_t *word);
