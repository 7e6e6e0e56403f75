/* SPDX-License-Identifier: MIT
 *
 * test_trie.c - equal stacks have equal numbers, different ones different numbers, and every number
 * reads back as the stack it was made of; also when threads insert at once and when memory ends.
 */
#include "base/trie.h"

#include "base/os.h"
#include "unit.h"

TEST_SETUP(os_init);

static _Atomic long maps_left = -1; /* -1: no limit */
void *__real_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes) {
    if (maps_left == 0) {
        return NULL;
    }
    maps_left -= maps_left > 0;
    return __real_os_map(bytes);
}

enum { DEEPEST = 40, STACKS = 30000, THREADS = 4 };

static struct trie trie = TRIE_EMPTY;

/* Stack n: its addresses follow from n, and neighbours share their outer part. */
static unsigned make_stack(unsigned n, uintptr_t *addresses) {
    struct random random = random_start(n, 1);
    unsigned depth = 1 + (unsigned)random_below(&random, DEEPEST);
    unsigned shared = (unsigned)random_below(&random, depth);
    for (unsigned i = 0; i < depth; i++) { /* i from the outside */
        uintptr_t address = 0x400000 + i * 0x1000 + (i < shared ? n % 7 : n) * 16;
        addresses[depth - 1 - i] = address;
    }
    return depth;
}

static uint32_t insert(unsigned n, struct trie_path *path) {
    uintptr_t addresses[DEEPEST];
    unsigned depth = make_stack(n, addresses);
    return trie_insert(&trie, path, addresses, depth);
}

static void check_reads_back(uint32_t number, unsigned n) {
    uintptr_t right[DEEPEST];
    uintptr_t found[DEEPEST + 1];
    unsigned depth = make_stack(n, right);
    check_eq(trie_depth(&trie, number), depth);
    check_eq(trie_read(&trie, number, found, DEEPEST + 1), depth);
    check(memcmp(right, found, depth * sizeof(right[0])) == 0);
}

/* All pairs (parent, address) are different: what the tree promises. */
static int compare_nodes(const void *a, const void *b) {
    return memcmp(a, b, 12);
}

static void check_nodes_are_unique(void) {
    uint32_t count = trie_count(&trie);
    struct {
        uintptr_t address;
        uint32_t parent, depth;
    } *nodes = malloc(((size_t)count + 1) * 16);
    for (uint32_t i = 1; i <= count; i++) {
        memcpy(&nodes[i - 1], table_at(&trie.nodes, i), 16);
    }
    qsort(nodes, count, 16, compare_nodes);
    for (uint32_t i = 1; i < count; i++) {
        check(compare_nodes(&nodes[i - 1], &nodes[i]) != 0);
    }
    free(nodes);
}

TEST(every_stack_reads_back_and_has_one_number) {
    static uint32_t numbers[STACKS];
    struct trie_path path = {0};
    for (unsigned n = 0; n < STACKS; n++) {
        numbers[n] = insert(n, &path);
        check(numbers[n] != 0);
    }
    struct trie_path fresh = {0};
    for (unsigned n = 0; n < STACKS; n++) {
        check_reads_back(numbers[n], n);
        check_eq(insert(n, &fresh), numbers[n]);
    }
    check_nodes_are_unique();
}

TEST(shared_beginnings_are_stored_once) {
    struct trie_path path = {0};
    uintptr_t first[] = {3, 2, 1};
    uintptr_t second[] = {4, 2, 1};
    uint32_t a = trie_insert(&trie, &path, first, 3);
    uint32_t b = trie_insert(&trie, &path, second, 3);
    check(a != b);
    check_eq(trie_count(&trie), 4);
    check_eq(trie_insert(&trie, &path, second + 1, 2), trie_step(&trie, trie_step(&trie, 0, 1), 2));
    check_eq(trie_count(&trie), 4);
    check_eq(trie_insert(&trie, &path, first, 0), 0);
    uintptr_t innermost;
    check_eq(trie_read(&trie, b, &innermost, 1), 1);
    check_eq(innermost, 4);
}

/* A thread that replaces the index freezes its empty slots.  In the child of a fork it may be gone. */
static void freeze(unsigned share) {
    _Atomic uint32_t *words = (_Atomic uint32_t *)(void *)trie.index; /* lg, used, slots */
    for (uint32_t i = 0; i < 1u << words[0]; i++) {
        if (words[2 + i] == 0 && i % share == 0) {
            words[2 + i] = UINT32_MAX;
        }
    }
}

TEST(an_index_whose_replacement_was_left_unfinished_is_replaced) {
    static uint32_t numbers[300];
    struct trie_path path = {0};
    for (unsigned share = 1; share < 8; share++) {
        trie = (struct trie)TRIE_EMPTY;
        path.count = 0;
        for (unsigned n = 0; n < 20; n++) {
            numbers[n] = insert(n, &path);
        }
        freeze(share);
        for (unsigned n = 0; n < 300; n++) {
            struct trie_path fresh = {0};
            uint32_t number = insert(n, &fresh);
            check(number != 0 && (n >= 20 || number == numbers[n]));
            check_reads_back(number, n);
        }
        check_nodes_are_unique();
    }
}

static _Atomic unsigned begun;
static uint32_t found[THREADS][STACKS];

static void *insert_all(void *number) {
    unsigned thread = (unsigned)(uintptr_t)number;
    struct trie_path path = {0};
    begun++;
    while (begun < THREADS) {
    }
    for (unsigned i = 0; i < STACKS / SLOWER; i++) {
        unsigned n = thread % 2 == 0 ? i : STACKS / SLOWER - 1 - i; /* half of them backwards */
        found[thread][n] = insert(n, &path);
    }
    return NULL;
}

static void insert_in_threads(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        check(pthread_create(&threads[i], NULL, insert_all, (void *)i) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

TEST(threads_that_insert_at_once_agree) {
    insert_in_threads();
    for (unsigned n = 0; n < STACKS / SLOWER; n++) {
        check(found[0][n] != 0);
        check_reads_back(found[0][n], n);
        for (unsigned i = 1; i < THREADS; i++) {
            check_eq(found[i][n], found[0][n]);
        }
    }
}

TEST(without_memory_a_stack_has_no_number_and_the_others_keep_theirs) {
    static uint32_t numbers[STACKS];
    for (long most = 0; most < 12; most++) {
        trie = (struct trie)TRIE_EMPTY;
        maps_left = most;
        struct trie_path path = {0};
        unsigned refused = 0;
        for (unsigned n = 0; n < STACKS / SLOWER; n++) {
            numbers[n] = insert(n, &path);
            refused += numbers[n] == 0;
        }
        check(most > 0 || refused == STACKS / SLOWER);
        check(most > 4 || refused > 0);
        for (unsigned n = 0; n < STACKS / SLOWER; n++) {
            if (numbers[n] != 0) {
                check_reads_back(numbers[n], n);
            }
        }
        maps_left = -1;
        for (unsigned n = 0; n < STACKS / SLOWER; n++) { /* memory is back */
            uint32_t number = insert(n, &path);
            check(number != 0 && (numbers[n] == 0 || numbers[n] == number));
        }
    }
}

TEST(threads_agree_when_memory_comes_and_goes) {
    maps_left = 9;
    insert_in_threads();
    for (unsigned n = 0; n < STACKS / SLOWER; n++) {
        for (unsigned i = 0; i < THREADS; i++) {
            if (found[i][n] != 0) {
                check_reads_back(found[i][n], n);
                check(found[0][n] == 0 || found[0][n] == found[i][n]);
            }
        }
    }
}
