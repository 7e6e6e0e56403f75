/* SPDX-License-Identifier: MIT
 *
 * rules.c - rules of the unwind tables as words, and where they are kept.
 */
#include "stack/rules.h"

_Static_assert(sizeof(union rule) == sizeof(uint64_t), "one word");

SPARSE struct rules rules;

enum { WORD = sizeof(uintptr_t) };

/* What does not fit into a field is noticed afterwards. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
union rule rules_pack(const struct cfi_rule *rule) {
    union rule packed = {.frame = rule->frame,
                         .returns = rule->returns,
                         .saved = rule->saved,
                         .offset = rule->offset / WORD,
                         .of_return = rule->of_return / WORD,
                         .of_saved = rule->of_saved / WORD};
    bool fits = packed.offset * WORD == rule->offset &&
                packed.of_return * WORD == rule->of_return &&
                packed.of_saved * WORD == rule->of_saved;
    return fits ? packed : (union rule){0};
}
#pragma GCC diagnostic pop

struct cfi_rule rules_unpack(union rule rule) {
    return (struct cfi_rule){.frame = rule.frame,
                             .offset = rule.offset * WORD,
                             .returns = rule.returns,
                             .of_return = rule.of_return * WORD,
                             .saved = rule.saved,
                             .of_saved = rule.of_saved * WORD,
                             .base = CFI_LOST};
}

static void set_place(size_t place, uint64_t word, uint64_t key) {
    atomic_store_explicit(&rules.places[place].word, word, memory_order_relaxed);
    atomic_store_explicit(&rules.places[place].mixed, word ^ key, memory_order_relaxed);
}

void rules_keep(uint64_t generation, uintptr_t address, union rule rule) {
    uint64_t key = rules_key(generation, address);
    size_t place = rules_place(address);
    uint64_t there = atomic_load_explicit(&rules.places[place].word, memory_order_relaxed);
    uint64_t mixed = atomic_load_explicit(&rules.places[place].mixed, memory_order_relaxed);
    if (rules_get(place ^ 1, key).word != 0) {
        place ^= 1;
    } else if (there != 0 && (there ^ mixed) != key) { /* the older one goes */
        set_place(place ^ 1, there, there ^ mixed);
    }
    set_place(place, rule.word, key);
}

void rules_forget(void) {
    /* Release: whoever sees the new generation sees the present code. */
    atomic_fetch_add_explicit(&rules.generation, 1, memory_order_release);
}
