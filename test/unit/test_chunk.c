/* SPDX-License-Identifier: MIT
 *
 * test_chunk.c - the searches in 128 bits against searches that look at one bit at a time.
 */
#include "heap/chunk.h"

#include "unit.h"

enum { ROUNDS = 20000 };

static bool bit(unit_map map, unsigned i) {
    return map >> i & 1;
}

/* Maps of every density, with runs of every length. */
static unit_map random_map(struct random *random) {
    unit_map map = (unit_map)random_next(random) << 64 | random_next(random);
    switch (random_below(random, 6)) {
    case 0:
        return map & ((unit_map)random_next(random) << 64 | random_next(random));
    case 1:
        return map | ((unit_map)random_next(random) << 64 | random_next(random));
    case 2:
        return random_below(random, 2) == 0 ? 0 : ~(unit_map)0;
    case 3:
        return map;
    default:
        break;
    }
    map = 0; /* runs */
    for (unsigned i = 0; i < CHUNK_UNITS;) {
        unsigned length = (unsigned)random_below(random, 40) + 1;
        if (length > CHUNK_UNITS - i) {
            length = CHUNK_UNITS - i;
        }
        map |= random_below(random, 2) == 0 ? chunk_units(i, length) : 0;
        i += length;
    }
    return map;
}

static unsigned naive_find_run(unit_map map, unsigned count, unsigned alignment) {
    for (unsigned start = 0; start + count <= CHUNK_UNITS; start += alignment) {
        unsigned i = 0;
        while (i < count && bit(map, start + i)) {
            i++;
        }
        if (i == count) {
            return start;
        }
    }
    return CHUNK_UNITS;
}

static int naive_free_order(unit_map used) {
    int order = -1;
    for (int k = 0; k <= 7; k++) {
        if (naive_find_run(~used, 1u << k, 1u << k) < CHUNK_UNITS) {
            order = k;
        }
    }
    return order;
}

static unsigned naive_next_run(unit_map map, unsigned *first) {
    unsigned start = *first;
    while (start < CHUNK_UNITS && !bit(map, start)) {
        start++;
    }
    if (start == CHUNK_UNITS) {
        return 0;
    }
    unsigned end = start;
    while (end < CHUNK_UNITS && bit(map, end)) {
        end++;
    }
    *first = start;
    return end - start;
}

TEST(units_are_a_range_of_bits) {
    for (unsigned first = 0; first < CHUNK_UNITS; first++) {
        for (unsigned count = 1; first + count <= CHUNK_UNITS; count++) {
            unit_map map = chunk_units(first, count);
            for (unsigned i = 0; i < CHUNK_UNITS; i++) {
                if (bit(map, i) != (i >= first && i < first + count)) {
                    check_eq(first, count);
                }
            }
            check_eq(chunk_count_units(map), count);
        }
    }
}

TEST(unit_of_an_address_counts_from_its_chunk) {
    uintptr_t base = (uintptr_t)CHUNK_BYTES * 12345;
    for (unsigned unit = 0; unit < CHUNK_UNITS; unit++) {
        check_eq(chunk_unit(base + unit * UNIT_BYTES), unit);
        check_eq(chunk_unit(base + unit * UNIT_BYTES + UNIT_BYTES - 1), unit);
    }
    check_eq(chunk_unit(base + CHUNK_BYTES), 0);
}

TEST(find_run_agrees_with_the_naive_search) {
    struct random random = random_start(7, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unit_map map = random_map(&random);
        unsigned count = (unsigned)random_below(&random, round % 2 ? 12 : CHUNK_UNITS) + 1;
        for (unsigned alignment = 1; alignment <= CHUNK_UNITS; alignment *= 2) {
            check_eq(chunk_find_run(map, count, alignment), naive_find_run(map, count, alignment));
        }
    }
}

TEST(free_order_agrees_with_the_naive_search) {
    static struct chunk chunk;
    struct random random = random_start(8, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        chunk.used = random_map(&random);
        chunk.committed = ~(unit_map)0;
        check_eq(chunk_free_order(&chunk), naive_free_order(chunk.used));
        chunk.committed = random_map(&random);
        check_eq(chunk_free_order(&chunk), naive_free_order(chunk.used | ~chunk.committed));
    }
}

TEST(next_run_agrees_with_the_naive_search_and_covers_every_bit) {
    struct random random = random_start(9, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unit_map map = random_map(&random), seen = 0;
        unsigned first = 0, naive_first = 0, length;
        do {
            length = chunk_next_run(map, &first);
            check_eq(length, naive_next_run(map, &naive_first));
            if (length > 0) {
                check_eq(first, naive_first);
                seen |= chunk_units(first, length);
            }
            first += length;
            naive_first += length;
        } while (length > 0);
        check(seen == map);
    }
}

TEST(count_agrees_with_counting) {
    struct random random = random_start(10, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unit_map map = random_map(&random);
        unsigned ones = 0;
        for (unsigned i = 0; i < CHUNK_UNITS; i++) {
            ones += bit(map, i);
        }
        check_eq(chunk_count_units(map), ones);
    }
}
