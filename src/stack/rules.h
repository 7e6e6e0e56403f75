/* SPDX-License-Identifier: MIT
 *
 * rules.h - rules that were found once (cfi.h), by address.
 *
 *      place of an address   { word, word ^ key }      the key is the address and the generation of all rules
 *
 * Looking a rule up takes some hundred nanoseconds to some microseconds, so it is kept as one word.
 * Any thread writes the two words of a place one after the other; words that do not fit together
 * are not believed.  This is a cache: a kept rule may be gone the next time.
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
        _Atomic uint64_t word, mixed;
    } places[1 << RULES_LG];
};
extern struct rules rules;

/* A rule as one word; 0: none.  Offsets count words. */
union rule {
    uint64_t word;
    struct {
        uint64_t frame : 4, returns : 1, saved : 2;
        /* libgcc was asked; otherwise "no table" may be wrong (unwind.c). */
        uint64_t asked : 1;
        int64_t offset : 18, of_return : 18, of_saved : 18;
    };
};

/* 0 where it does not fit. */
union rule rules_pack(const struct cfi_rule *rule);

/* What the word has no room for is CFI_LOST. */
struct cfi_rule rules_unpack(union rule rule);

/* ---------------------------------------------------------------- kept */

/* Acquire: the rules and code of this generation are read after it. */
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

static inline union rule rules_get(size_t place, uint64_t key) {
    uint64_t word = atomic_load_explicit(&rules.places[place].word, memory_order_relaxed);
    uint64_t mixed = atomic_load_explicit(&rules.places[place].mixed, memory_order_relaxed);
    return (union rule){(word ^ mixed) == key ? word : 0};
}

/* The rule at an address in a function; for a caller it is an address in the call. */
static inline union rule rules_find_of(uint64_t generation, uintptr_t address) {
    uint64_t key = rules_key(generation, address);
    size_t place = rules_place(address);
    union rule rule = rules_get(place, key);
    return LIKELY(rule.word != 0) ? rule : rules_get(place ^ 1, key);
}
static inline union rule rules_find(uintptr_t address) {
    return rules_find_of(rules_generation(), address);
}

/* Keeps a rule that was found after the generation was read. */
void rules_keep(uint64_t generation, uintptr_t address, union rule rule);

/* Code is gone, so any rule may be wrong now. */
void rules_forget(void);
