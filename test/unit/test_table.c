/* SPDX-License-Identifier: MIT
 *
 * test_table.c - items stay where they are, none overlap, and a refusal changes nothing.
 */
#include "base/table.h"

#include "base/os.h"
#include "unit.h"

TEST_SETUP(os_init);

static bool refuses;
void *__real_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes) {
    return refuses ? NULL : __real_os_map(bytes);
}

struct item {
    uint32_t words[5];
};

static struct table table = {.item_bytes = sizeof(struct item)};

enum { ITEMS = 100000 };

TEST(items_are_apart_and_stay) {
    static struct item *places[ITEMS];
    for (uint32_t i = 0; i < ITEMS; i++) {
        check(table_reach(&table, i));
        places[i] = table_at(&table, i);
        for (unsigned w = 0; w < 5; w++) {
            check_eq(places[i]->words[w], 0);
            places[i]->words[w] = i * 5 + w;
        }
    }
    for (uint32_t i = 0; i < ITEMS; i++) {
        check(table_at(&table, i) == places[i]);
        for (unsigned w = 0; w < 5; w++) {
            check_eq(places[i]->words[w], i * 5 + w);
        }
    }
    check(table_bytes() >= ITEMS * sizeof(struct item));
    table_clear(&table);
    check_eq(table_bytes(), 0);
}

TEST(items_go_to_another_table_and_the_first_is_empty) {
    struct table other = {0};
    check(table_reach(&table, 1000));
    ((struct item *)table_at(&table, 1000))->words[0] = 7;
    size_t bytes = table_bytes();
    table_move(&table, &other);
    check_eq(((struct item *)table_at(&other, 1000))->words[0], 7);
    check(table_reach(&table, 1000));
    check_eq(((struct item *)table_at(&table, 1000))->words[0], 0);
    table_clear(&table);
    table_clear(&other);
    check(bytes > 0);
    check_eq(table_bytes(), 0);
}

TEST(without_memory_it_stays_as_it_was) {
    check(table_reach(&table, TABLE_FIRST - 1));
    size_t before = table_bytes();
    refuses = true;
    check(table_reach(&table, 0));
    check(!table_reach(&table, TABLE_FIRST));
    check_eq(table_bytes(), before);
    refuses = false;
    check(table_reach(&table, TABLE_FIRST));
}

TEST(numbers_beyond_the_last_segment_are_refused) {
    check(!table_reach(&table, UINT32_MAX));
}

static _Atomic unsigned begun;

static void *reach_together(void *unused) {
    (void)unused;
    begun++;
    while (begun < 4) {
    }
    for (uint32_t i = 0; i < 20000; i++) {
        check(table_reach(&table, i));
        atomic_fetch_add((_Atomic uint32_t *)table_at(&table, i), 1);
    }
    return NULL;
}

TEST(threads_that_grow_it_at_once_get_the_same_items) {
    run_threads(4, reach_together, NULL);
    for (uint32_t i = 0; i < 20000; i++) {
        check_eq(*(uint32_t *)table_at(&table, i), 4);
    }
}
