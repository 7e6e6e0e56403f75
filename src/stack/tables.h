/* SPDX-License-Identifier: MIT
 *
 * tables.h - unwind tables of loaded code, as libgcc finds them.
 *
 * libgcc looks for tables without a lock where the loader helps (glibc 2.35), or under the loader's
 * recursive lock.  Where tables were registered by hand (code generators; static programs),
 * versions before 13 keep them under a lock of their own and may allocate meanwhile: therefore a
 * call that comes from libgcc itself asks it for nothing, and the child of a static program, where
 * another thread may have held that lock, does not ask it any more.
 *
 * Threads     From anywhere; tables_prepare not inside.
 */
#pragma once

#include "stack/cfi.h"

struct code_range {
    uintptr_t low, high;
};

static inline bool is_within(struct code_range range, uintptr_t address) {
    return address - range.low < range.high - range.low;
}

/* All that a mapped file occupies, from its headers. */
struct code_range range_of_file(const void *start);

/* As unwind_prepare. */
void tables_prepare(void);

/* May libgcc be asked on behalf of code at this address? */
bool tables_may_ask(uintptr_t caller);

/* The rule at an address in a function, if libgcc may be asked; CFI_NO_TABLE: there is none. */
struct cfi_rule tables_find(uintptr_t address);
