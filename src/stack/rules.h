/* SPDX-License-Identifier: MIT
 *
 * rules.h - rules that were found once (cfi.h), by address.
 *
 *      place of an address   { rule, rule ^ key }      the key is the address and the generation of all rules
 *
 * Looking a rule up takes some hundred nanoseconds to some microseconds, so it is kept as one word.  Anyone
 * writes the two words of a place one after the other, and what does not fit together is not believed.  This is a cache: what is
 * kept may be gone the next time.
 *
 * Threads     No locks; for signal handlers, too.
 */
#pragma once

#include <stdatomic.h>

#include "base/bits.h"
#include "base/hash.h"
#include "stack/cfi.h"

enum { RULES_LG = 14 };

struct rules {
    _Atomic uint64_t generation;
    struct {
        _Atomic uint64_t rule, mixed;
    } places[1 << RULES_LG];
};
extern struct rules rules;

/* ---------------------------------------------------------------- as one word */

/* Offsets count words. */
enum {
    RULE_RETURN_SHIFT = 4,
    RULE_SAVED_SHIFT = 5,
    RULE_ASKED = 1 << 7, /* libgcc was; otherwise that there is no table may be wrong (unwind.c) */
    RULE_OFFSETS_SHIFT = 10,
    RULE_OFFSET_BITS = 18,
};

static inline enum cfi_frame rule_frame(uint64_t word) {
    return (enum cfi_frame)(word & 15);
}

static inline enum cfi_saved rule_saved(uint64_t word) {
    return (enum cfi_saved)(word >> RULE_SAVED_SHIFT & 3);
}

enum rule_offset { RULE_OFFSET, RULE_OF_RETURN, RULE_OF_SAVED };

static inline uintptr_t rule_offset(uint64_t word, enum rule_offset which) {
    unsigned above = 64 - RULE_OFFSETS_SHIFT - RULE_OFFSET_BITS * ((unsigned)which + 1);
    return (uintptr_t)((int64_t)(word << above) >> (64 - RULE_OFFSET_BITS)) * sizeof(uintptr_t);
}

/* 0: it does not fit. */
uint64_t rule_pack(const struct cfi_rule *rule);

/* What the word does not have is CFI_LOST. */
struct cfi_rule rule_unpack(uint64_t word);

/* ---------------------------------------------------------------- kept */

/* Acquire: what it is the generation of is looked at after this. */
static inline uint64_t rules_generation(void) {
    return atomic_load_explicit(&rules.generation, memory_order_acquire);
}

static inline uint64_t rules_key(uint64_t generation, uintptr_t address) {
    enum { ABOVE_ADDRESSES = 48 };
    return address ^ generation << ABOVE_ADDRESSES;
}

/* Each address has two places. */
static inline size_t rules_place(uintptr_t address) {
    return hash_place(address, RULES_LG);
}

static inline uint64_t rules_get(size_t place, uint64_t key) {
    uint64_t rule = atomic_load_explicit(&rules.places[place].rule, memory_order_relaxed);
    uint64_t mixed = atomic_load_explicit(&rules.places[place].mixed, memory_order_relaxed);
    return (rule ^ mixed) == key ? rule : 0;
}

/* The rule at an address in a function, which for callers is one in the call; 0: not kept. */
static inline uint64_t rules_find_of(uint64_t generation, uintptr_t address) {
    uint64_t key = rules_key(generation, address);
    size_t place = rules_place(address);
    uint64_t rule = rules_get(place, key);
    return LIKELY(rule != 0) ? rule : rules_get(place ^ 1, key);
}
static inline uint64_t rules_find(uintptr_t address) {
    return rules_find_of(rules_generation(), address);
}

void rules_keep(uintptr_t address, uint64_t rule);

/* Code is gone, so any rule may be wrong now. */
void rules_forget(void);
