/* SPDX-License-Identifier: MIT
 *
 * test_cfi.c - rules of real functions, and of tables that were damaged.
 *
 * That the rules lead to the callers is shown by the walks of test_cpu.c and test_unwind.c.
 */
#define _GNU_SOURCE
#include <fnmatch.h>
#include <glob.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stack/cfi.h"
#include "stack/libgcc.h"
#include "random.h"
#include "test.h"

enum { DAMAGES = 3000, PART_MOST = 4096 };

/* Exactly as long as it says, so that a sanitizer sees who reads behind it. */
struct part {
    unsigned char *bytes;
    size_t length;
};

static struct part copy_part(const unsigned char *from) {
    uint32_t length;
    memcpy(&length, from, sizeof length);
    struct part part = {malloc(sizeof length + length + CFI_BEHIND), sizeof length + length};
    check(part.bytes != NULL);
    memcpy(part.bytes, from, part.length);
    memset(part.bytes + part.length, 0, CFI_BEHIND);
    return part;
}

struct function {
    uintptr_t start;
    struct part description, shared;
};

static struct function find(void *address) {
    struct libgcc_bases bases;
    const unsigned char *own = _Unwind_Find_FDE(address, &bases);
    uint32_t back;
    check(own != NULL);
    memcpy(&back, own + sizeof(uint32_t), sizeof back);
    return (struct function){(uintptr_t)bases.function, copy_part(own),
                             copy_part(own + sizeof(uint32_t) - back)};
}

static bool ask(const struct function *function, uintptr_t address, struct cfi_rule *rule) {
    struct cfi_parts copy = {function->description.bytes, function->shared.bytes,
                             function->description.length, function->shared.length};
    return cfi_find_rule(&copy, function->start, address, rule);
}

static void release(struct function *function) {
    free(function->description.bytes);
    free(function->shared.bytes);
}

static void *const functions[] = {(void *)printf,  (void *)qsort, (void *)strtod,
                                  (void *)fnmatch, (void *)glob,  (void *)regcomp};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

TEST(at_its_start_a_function_has_just_been_called) {
    for (unsigned i = 0; i < FUNCTIONS; i++) {
        struct function function = find(functions[i]);
        struct cfi_rule rule;
        check(ask(&function, function.start, &rule));
        check_eq(rule.frame, CFI_STACK);
        check_eq(rule.saved, CFI_SAME);
#if defined(__x86_64__)
        check_eq(rule.returns, CFI_AT_FRAME);
        check_eq(rule.offset, 8);
        check_eq(rule.of_return, -8);
#endif
        release(&function);
    }
}

TEST(an_address_outside_of_the_function_has_no_rule) {
    struct function function = find((void *)qsort);
    struct cfi_rule rule;
    check(!ask(&function, function.start - 1, &rule));
    check(!ask(&function, function.start + (1 << 24), &rule));
    release(&function);
}

static void damage(struct part *part, struct random *random) {
    size_t from = random_below(random, 2) ? 0 : sizeof(uint32_t); /* or the length is right */
    for (uint64_t i = 1 + random_below(random, 8); i > 0; i--) {
        part->bytes[from + random_below(random, part->length - from)] =
            (unsigned char)random_below(random, 256);
    }
}

TEST(damaged_tables_are_survived) {
    struct random random = random_start(3, 0);
    for (unsigned i = 0; i < DAMAGES; i++) {
        struct function function = find(functions[i % FUNCTIONS]);
        struct cfi_rule rule;
        damage(random_below(&random, 2) ? &function.description : &function.shared, &random);
        for (unsigned at = 0; at < 64; at++) {
            (void)ask(&function, function.start + random_below(&random, 2000), &rule);
        }
        release(&function);
    }
    check(true);
}
