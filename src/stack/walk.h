/* SPDX-License-Identifier: MIT
 *
 * walk.h - from function to function, each by the rule of its tables, or by frame pointer where it has none.
 *
 * Tables that compilers make for exceptions are right at every instruction, so a walk is right where code was
 * compiled without frame pointers, and where a function was interrupted before it has set up its own.
 *
 * Nothing is believed that was read: frames must ascend, and words and rules come from functions of the caller
 * that do not fault.
 *
 * Threads     Takes no lock, allocates nothing, needs little stack; the rest is up to those functions.
 */
#pragma once

#include "stack/cfi.h"
#include "stack/stack.h"

/* How a walk comes to what it needs to know. */
struct walk_way {
    bool (*read)(struct walk_way *way, uintptr_t address, uintptr_t *word);
    /* Of an address in a function.  With `is_fresh` it is looked up anew, with the base register. */
    struct cfi_rule (*find_rule)(struct walk_way *way, uintptr_t address);
    bool is_fresh;
    bool knows_code; /* CFI_NO_TABLE is code for sure */
};

enum walk_end {
    WALK_ENDED,
    WALK_FULL,       /* there may be more than `most` */
    WALK_BROKEN,     /* the next frame cannot be found */
    WALK_UNKNOWN,    /* the next address is not code */
    WALK_NEEDS_BASE, /* which is known only if the way is fresh */
};

/*
 * Addresses innermost first, at least one: return addresses, but where code was interrupted, as it was at the
 * beginning, one more than the instruction's.  Those of frames that end at `below` or further in are left out.
 */
struct walk_result {
    unsigned count;
    enum walk_end end;
    uintptr_t stack; /* pointer in the function of the last address */
};
struct walk_result walk_stack(struct walk_registers registers, struct walk_way *way,
                              uintptr_t below, uintptr_t *addresses, unsigned most);

__attribute__((no_sanitize("address", "thread"))) static inline uintptr_t
walk_word_at(uintptr_t address) {
    return *(const uintptr_t *)address;
}
