/* SPDX-License-Identifier: MIT
 *
 * test_arena.c - as many arenas as asked for, each with a bin of its own for every class.
 */
#include "heap/arena.h"

#include <stdio.h>

#include "base/os.h"
#include "unit.h"

static void check_bins(unsigned arenas) {
    check_eq(arena_count(), arenas);
    struct bin *last = NULL;
    for (unsigned a = 0; a < arenas; a++) {
        for (unsigned c = 1; c < CLASS_COUNT; c++) {
            struct bin *bin = arena_bin(a, c);
            check_eq(bin->arena, a);
            check_eq(bin->size_class, c);
            check_eq((uintptr_t)bin % CACHE_LINE, 0);
            check(last == NULL || bin > last); /* no two are the same */
            last = bin;
        }
        check(arena_choose() < arenas);
    }
}

TEST(default_is_one_arena_for_each_cpu) {
    start_heap();
    check_bins(os_facts.cpus < 256 ? os_facts.cpus : 256);
}

TEST(option_sets_the_number_of_arenas) {
    static const unsigned numbers[] = {1, 2, 3, 64, 256};
    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        check_child({
            char conf[40];
            snprintf(conf, sizeof conf, "narenas:%u", numbers[i]);
            start_heap_with(conf);
            check_bins(numbers[i]);
        });
    }
}

TEST(single_arena_is_always_chosen) {
    start_heap_with("narenas:1");
    for (unsigned i = 0; i < 100; i++) {
        check_eq(arena_choose(), 0);
    }
}

TEST(bins_start_empty) {
    start_heap_with("narenas:7");
    for (unsigned a = 0; a < 7; a++) {
        for (unsigned c = 1; c < CLASS_COUNT; c++) {
            if (arena_bin(a, c)->nslabs == 0) {
                check_eq(arena_bin(a, c)->nout, 0);
                check(arena_bin(a, c)->slabs == NULL);
            }
            bin_verify(arena_bin(a, c));
        }
    }
}
