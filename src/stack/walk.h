/* SPDX-License-Identifier: MIT
 *
 * walk.h - from function to function, by the rules of tables, or by frame pointers without them.
 *
 * Tables that compilers make for exceptions are right at every instruction, so a walk is right
 * where code was compiled without frame pointers, and where a function was interrupted before it
 * had set up its own.
 *
 * Nothing that was read is believed: frames must ascend, and words and rules come from functions of
 * the caller that do not fault.
 *
 * Threads     Takes no lock, allocates nothing, needs little stack; the rest is up to them.
 */
#pragma once

#include "stack/cfi.h"
#include "stack/stack.h"

/* How a walk learns what it needs to know. */
struct walk_way {
    bool (*read)(struct walk_way *way, uintptr_t address, uintptr_t *word);
    /* The rule at an address in a function; if `is_fresh`, looked up anew, with `base`. */
    struct cfi_rule (*find_rule)(struct walk_way *way, uintptr_t address);
    bool is_fresh;
    bool knows_code; /* CFI_NO_TABLE is code for sure */
};

enum walk_end {
    WALK_ENDED,
    WALK_FULL,       /* there may be more than `most` */
    WALK_BROKEN,     /* the next frame cannot be found */
    WALK_UNKNOWN,    /* the next address is not code */
    WALK_NEEDS_BASE, /* the base register is known only if the way is fresh */
};

/* Addresses innermost first, at least one: return addresses or, where code was interrupted, as at
 * the beginning, the instruction's plus one.  Frames that end at or below `below` are left out. */
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
