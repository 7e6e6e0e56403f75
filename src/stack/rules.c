/* SPDX-License-Identifier: MIT
 *
 * rules.c - rules of the unwind tables as words, and where they are kept.
 */
#include "stack/rules.h"

struct rules rules;

static bool fits(int32_t offset) {
    enum { MOST = 1 << (RULE_OFFSET_BITS - 1) };
    int32_t words = offset / (int32_t)sizeof(uintptr_t);
    return offset % (int32_t)sizeof(uintptr_t) == 0 && words >= -MOST && words < MOST;
}

static uint64_t pack_offset(int32_t offset, enum rule_offset which) {
    uint64_t words = (uint64_t)(offset / (int32_t)sizeof(uintptr_t));
    return (words & ((1u << RULE_OFFSET_BITS) - 1))
           << (RULE_OFFSETS_SHIFT + RULE_OFFSET_BITS * (unsigned)which);
}

uint64_t rule_pack(const struct cfi_rule *rule) {
    if (!fits(rule->offset) || !fits(rule->of_return) || !fits(rule->of_saved)) {
        return 0;
    }
    return (uint64_t)rule->frame | (uint64_t)rule->returns << RULE_RETURN_SHIFT |
           (uint64_t)rule->saved << RULE_SAVED_SHIFT | pack_offset(rule->offset, RULE_OFFSET) |
           pack_offset(rule->of_return, RULE_OF_RETURN) |
           pack_offset(rule->of_saved, RULE_OF_SAVED);
}

struct cfi_rule rule_unpack(uint64_t word) {
    return (struct cfi_rule){
        .frame = rule_frame(word),
        .offset = (int32_t)rule_offset(word, RULE_OFFSET),
        .returns = (enum cfi_return)(word >> RULE_RETURN_SHIFT & 1),
        .of_return = (int32_t)rule_offset(word, RULE_OF_RETURN),
        .saved = rule_saved(word),
        .of_saved = (int32_t)rule_offset(word, RULE_OF_SAVED),
        .base = CFI_LOST,
    };
}

static void set_place(size_t place, uint64_t rule, uint64_t key) {
    atomic_store_explicit(&rules.places[place].rule, rule, memory_order_relaxed);
    atomic_store_explicit(&rules.places[place].mixed, rule ^ key, memory_order_relaxed);
}

void rules_keep(uintptr_t address, uint64_t rule) {
    uint64_t key = rules_key(rules_generation(), address);
    size_t place = rules_place(address);
    uint64_t there = atomic_load_explicit(&rules.places[place].rule, memory_order_relaxed);
    uint64_t mixed = atomic_load_explicit(&rules.places[place].mixed, memory_order_relaxed);
    if (rules_get(place ^ 1, key) != 0) {
        place ^= 1;
    } else if (there != 0 && (there ^ mixed) != key) { /* the older one goes */
        set_place(place ^ 1, there, there ^ mixed);
    }
    set_place(place, rule, key);
}

void rules_forget(void) {
    /* Release: who sees it sees the code that is now. */
    atomic_fetch_add_explicit(&rules.generation, 1, memory_order_release);
}
