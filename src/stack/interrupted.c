/* SPDX-License-Identifier: MIT
 *
 * interrupted.c - the stack of code that a signal has interrupted, in the handler.
 *
 * Rules come from code.c.  Words are read in copies of pages, which the kernel makes if it can,
 * since what looks like a stack may be unmapped by another thread at this moment.
 */
#include <stdatomic.h>
#include <string.h>

#include "stack/code.h"
#include "stack/rules.h"
#include "stack/walk.h"

struct careful_way {
    struct walk_way way;
    struct code_room *room;
    uintptr_t start; /* of what is in the room's window; 0: nothing */
};

static bool read_copy(struct walk_way *way, uintptr_t address, uintptr_t *word) {
    struct careful_way *self = (struct careful_way *)way;
    uintptr_t start = align_down(address, CODE_WINDOW);
    if (address % sizeof(uintptr_t) != 0 || start == 0) {
        return false;
    }
    if (start != self->start) {
        self->start = 0;
        if (!code_copy(self->room, self->room->window, start, CODE_WINDOW)) {
            return false;
        }
        self->start = start;
    }
    memcpy(word, self->room->window + (address - start), sizeof(*word));
    return true;
}

static struct cfi_rule find_rule(struct walk_way *way, uintptr_t address) {
    uint64_t generation = rules_generation();
    union rule kept = way->is_fresh ? (union rule){0} : rules_find(address);
    if (LIKELY(kept.word != 0)) {
        return rules_unpack(kept);
    }
    struct cfi_rule rule = code_find(address, ((struct careful_way *)way)->room);
    kept = rules_pack(&rule);
    if (kept.word != 0 && rule.frame != CFI_UNKNOWN) { /* it may be known next time */
        rules_keep(generation, address, kept);
    }
    return rule;
}

unsigned walk_interrupted(struct walk_registers registers, uintptr_t *addresses, unsigned most,
                          struct code_room *room, bool *met_unknown) {
    struct careful_way way = {
        {read_copy, find_rule, .is_fresh = false, .knows_code = true}, room, 0};
    struct walk_result result = walk_stack(registers, &way.way, 0, addresses, most);
    if (result.end == WALK_NEEDS_BASE) {
        way.way.is_fresh = true;
        result = walk_stack(registers, &way.way, 0, addresses, most);
    }
    *met_unknown |= result.end == WALK_UNKNOWN;
    return result.count;
}
