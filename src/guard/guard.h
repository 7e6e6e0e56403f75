/* SPDX-License-Identifier: MIT
 *
 * guard.h - telling the program what it did wrong.
 */
#pragma once

#include "base/common.h"

struct heap_object;

/* Says in one sentence what is wrong with an address passed to `function`, and ends the process.
 * Uses no lock and no memory. */
_Noreturn void guard_refuse(const char *function, const void *address,
                            const struct heap_object *object);

/* The same for a live object freed with the size of another. */
_Noreturn void guard_refuse_size(const char *function, const void *address,
                                 const struct heap_object *object, size_t size, size_t expected);

/* Before a call returns an error: ends the process if the option xmalloc says so. */
void guard_fail(const char *function, int error);
