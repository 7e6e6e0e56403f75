/* SPDX-License-Identifier: MIT
 *
 * test_runs.c - runs of free chunks against an array that says which are free: the shortest run that
 * suffices is found, neighbours join, and cutting leaves the rest.
 */
#include "heap/runs.h"

#include "heap/classmap.h"
#include "heap/heap.h"
#include "heap/pages.h"
#include "heap/region.h"
#include "unit.h"

/* More than the lengths that have a set of their own. */
enum { CHUNKS = 100 };

static struct {
    struct chunk *chunk[CHUNKS]; /* neighbours, by address */
    bool is_free[CHUNKS];
} g;

/* The heap's own free chunks are set aside: the runs hold ours alone. */
static void start(void) {
    start_heap();
    pages_lock();
    check(region_grow(CHUNKS));
    struct chunk *first = runs_find(CHUNKS, 1);
    check(first != NULL);
    runs_reset();
    for (unsigned i = 0; i < CHUNKS; i++) {
        g.chunk[i] = classmap_neighbour(first, (ptrdiff_t)i);
        check(g.chunk[i] != NULL && g.chunk[i]->used == 0);
        g.chunk[i]->run = 0;
        g.chunk[i]->starts_run = 0;
        g.chunk[i]->used = 1; /* as if somebody had it */
    }
    /* What lies beside ours must not join it. */
    for (int side = -1; side <= 1; side += 2) {
        struct chunk *beside = classmap_neighbour(g.chunk[side < 0 ? 0 : CHUNKS - 1], side);
        if (beside != NULL && beside->used == 0) {
            beside->run = 0;
            beside->starts_run = 0;
        }
    }
}
TEST_SETUP(start);

static unsigned index_of(const struct chunk *chunk) {
    return (unsigned)((chunk->base - g.chunk[0]->base) / CHUNK_BYTES);
}

static void set_free(unsigned first, unsigned length, bool is_free) {
    for (unsigned i = first; i < first + length; i++) {
        check_eq(g.is_free[i], !is_free);
        g.is_free[i] = is_free;
        g.chunk[i]->used = is_free ? 0 : 1;
    }
}

static void add(unsigned first, unsigned length) {
    set_free(first, length, true);
    runs_add(g.chunk[first], length);
}

static unsigned length_at(unsigned i) {
    unsigned length = 0;
    while (i + length < CHUNKS && g.is_free[i + length]) {
        length++;
    }
    return length;
}

/* Every run of the array is one of the sets, and no other is. */
static void check_runs(void) {
    size_t runs = 0;
    for (unsigned i = 0; i < CHUNKS; i++) {
        unsigned length = length_at(i);
        if (length > 0) {
            runs++;
            check(g.chunk[i]->starts_run);
            check_eq(g.chunk[i]->run, length);
            check_eq(g.chunk[i + length - 1]->run, length);
            runs_verify_chunk(g.chunk[i]);
            i += length;
        }
    }
    check_eq(runs_verify(), runs);
}

/* The length of the shortest run that has `chunks`, 0 when none has. */
static unsigned shortest_with(size_t chunks) {
    unsigned best = 0;
    for (unsigned i = 0; i < CHUNKS; i++) {
        unsigned length = length_at(i);
        if (length >= chunks && (best == 0 || length < best)) {
            best = length;
        }
        i += length;
    }
    return best;
}

TEST(neighbours_join_in_any_order) {
    static const unsigned order[] = {5, 7, 6, 0, 2, 1, 3, 4};
    for (unsigned i = 0; i < 8; i++) {
        add(order[i], 1);
        check_runs();
    }
    check_eq(runs_verify(), 1);
    check_eq(g.chunk[0]->run, 8);
}

TEST(shortest_run_that_suffices_is_found) {
    add(0, 9);
    add(20, 3);
    add(30, 5);
    add(40, 60);
    check_runs();
    check_eq(index_of(runs_find(1, 1)), 20);
    check_eq(index_of(runs_find(4, 1)), 30);
    check_eq(index_of(runs_find(6, 1)), 0);
    check_eq(index_of(runs_find(10, 1)), 40);
    check_eq(index_of(runs_find(60, 1)), 40);
    check(runs_find(61, 1) == NULL);
}

TEST(cut_leaves_what_is_before_and_behind) {
    add(10, 80);
    struct chunk *first = runs_find(5, 4);
    check_eq(index_of(first), 10);
    struct chunk *taken = runs_cut(first, 5, 4);
    check_eq(taken->base % (4 * (size_t)CHUNK_BYTES), 0);
    check(index_of(taken) >= 10 && index_of(taken) < 14);
    set_free(index_of(taken), 5, false);
    check_runs();
}

TEST(random_cuts_and_adds_keep_the_sets_right) {
    struct random random = random_start(33, 0);
    add(0, CHUNKS);
    for (unsigned step = 0; step < 20000 / SLOWER; step++) {
        unsigned length = 1 + (unsigned)random_below(&random, 40);
        unsigned at = (unsigned)random_below(&random, CHUNKS);
        if (random_below(&random, 2) == 0) {
            size_t alignment = (size_t)1 << random_below(&random, 3);
            struct chunk *first = runs_find(length, alignment);
            unsigned shortest = shortest_with(length + alignment - 1);
            check_eq(first != NULL, shortest > 0);
            if (first == NULL) {
                continue;
            }
            /* Those above 32 share sets by doublings, longest first. */
            check(first->run == shortest || (shortest > 32 && first->run > shortest));
            struct chunk *taken = runs_cut(first, length, alignment);
            check_eq(taken->base % (alignment * CHUNK_BYTES), 0);
            set_free(index_of(taken), length, false);
        } else if (!g.is_free[at]) {
            unsigned count = 0;
            while (count < length && at + count < CHUNKS && !g.is_free[at + count]) {
                count++;
            }
            add(at, count);
        }
        check_runs();
    }
}
