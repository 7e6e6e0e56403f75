/* SPDX-License-Identifier: MIT
 *
 * test_shelf.c - large blocks that threads keep: taken again without a lock, within bounds, counted
 * as free, and reachable by everybody.
 */
#include "heap/shelf.h"

#include <sched.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "base/os.h"
#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/dirty.h"
#include "heap/large.h"
#include "heap/thread.h"
#include "unit.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

/* The caller has a heap, and nothing goes behind a test's back. */
static void start(void) {
    start_heap_with("narenas:2,dirty_decay_ms:-1,background_thread:false");
    for (unsigned i = 0; i < 20; i++) {
        tally_free(tally_malloc(100));
    }
    check(tls.self != NULL);
}
TEST_SETUP(start);

static uint64_t page_locks(void) {
    return lock_read_counts(pages_counted_lock()).taken;
}

TEST(pairs_and_bursts_take_no_lock) {
    static const size_t sizes[] = {33 * KIB, 64 * KIB, 100000, 256 * KIB, 1 * MIB};
    void *block[8];
    for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        unsigned burst = sizes[s] <= 100000 ? 8 : 1;
        uint64_t before = 0;
        for (unsigned round = 0; round < 100; round++) {
            before = round == 1 ? page_locks() : before;
            for (unsigned i = 0; i < burst; i++) {
                block[i] = tally_malloc(sizes[s]);
                *(size_t *)block[i] = i;
            }
            for (unsigned i = 0; i < burst; i++) {
                check_eq(*(size_t *)block[i], i);
                tally_free(block[i]);
            }
        }
        check_eq(page_locks(), before);
        heap_verify();
    }
}

/* What the program holds, and what the heap says of it. */
enum { MOST_BLOCKS = 40 };
static struct {
    void *block[MOST_BLOCKS];
    size_t bytes[MOST_BLOCKS];
} held;

static void check_counts(void) {
    size_t count = 0, bytes = 0;
    for (unsigned i = 0; i < MOST_BLOCKS; i++) {
        count += held.block[i] != NULL;
        bytes += held.bytes[i];
    }
    struct heap_totals totals = heap_totals();
    check_eq(large_count(), count);
    check_eq(large_bytes(), bytes);
    check_eq(totals.live + totals.cached + totals.slab_free + totals.large_rest,
             pages_totals().used);
    check(shelf_bytes() <= MIB);
}

static void replace(unsigned i, size_t size) {
    if (held.block[i] != NULL) {
        uintptr_t base = (uintptr_t)held.block[i];
        tally_free(held.block[i]);
        held.block[i] = NULL;
        held.bytes[i] = 0;
        check_eq(heap_look((void *)base).verdict, HEAP_FREE_PAGES);
        check_eq(heap_look((void *)(base + 100)).verdict, HEAP_FREE_PAGES);
        return;
    }
    char *block = tally_calloc(1, size);
    held.block[i] = block;
    held.bytes[i] = tally_usable_size(block);
    check_eq(held.bytes[i], large_usable_bytes(size));
    for (size_t at = 0; at < size; at += 1000) {
        check_eq(block[at], 0);
    }
    memset(block, 0x5a, size);
}

TEST(counts_are_exact_and_zeros_are_zeros_whatever_is_replaced) {
    struct random random = {7};
    for (unsigned step = 0; step < 3000 / SLOWER; step++) {
        unsigned i = (unsigned)random_below(&random, MOST_BLOCKS);
        replace(i, 33 * KIB + random_below(&random, step % 7 == 0 ? 2 * MIB : 200 * KIB));
        check_counts();
        if (step % 64 == 0) {
            heap_verify();
        }
        if (step % 1000 == 999) {
            (void)heap_trim();
            check_eq(shelf_bytes(), 0);
        }
    }
}

/* ---------------------------------------------------------------- what others may do */

struct sleeper {
    _Atomic unsigned stage;
    void *block; /* another thread's */
};

static void wait_for(struct sleeper *sleeper, unsigned stage) {
    while (atomic_load(&sleeper->stage) < stage) {
        usleep(1000);
    }
}

/* Fills a shelf, sleeps, and goes on. */
static void *fill_and_sleep(void *argument) {
    struct sleeper *sleeper = argument;
    for (unsigned i = 0; i < 40; i++) {
        tally_free(tally_malloc(64 * KIB + (i % 4) * 64 * KIB));
    }
    tally_free(sleeper->block);
    atomic_store(&sleeper->stage, 1);
    wait_for(sleeper, 2);
    for (unsigned i = 0; i < 40; i++) {
        tally_free(tally_malloc(64 * KIB + (i % 4) * 64 * KIB));
    }
    return NULL;
}

TEST(shelf_of_a_sleeping_thread_is_emptied_by_others) {
    struct sleeper sleeper = {0};
    pthread_t thread;
    check(pthread_create(&thread, NULL, fill_and_sleep, &sleeper) == 0);
    wait_for(&sleeper, 1);
    check(shelf_bytes() >= 10 * 64 * KIB);
    check_child({
        while (thread_recover_some()) {
        }
        check_eq(shelf_bytes(), 0);
        heap_verify();
    });
    (void)heap_trim();
    check_eq(shelf_bytes(), 0);
    check_eq(large_count(), 0);
    heap_verify();
    atomic_store(&sleeper.stage, 2);
    check(pthread_join(thread, NULL) == 0);
    check_eq(large_count(), 0);
    heap_verify();
}

TEST(idle_shelf_is_emptied_by_the_second_tick) {
    tally_free(tally_malloc(64 * KIB));
    check(shelf_tick());
    check_eq(shelf_bytes(), 64 * KIB);
    tally_free(tally_malloc(64 * KIB));
    check(shelf_tick());
    check_eq(shelf_bytes(), 64 * KIB);
    check(!shelf_tick());
    check_eq(shelf_bytes(), 0);
    heap_verify();
}

TEST(block_of_another_arena_moves_over) {
    struct sleeper sleeper = {.block = tally_malloc(300 * KIB)};
    unsigned own = thread_arena();
    check_eq(large_count_in(own), 1);
    check(thread_set_arena(1 - own));
    tally_free(sleeper.block);
    check_eq(shelf_bytes(), align_up(300 * KIB, UNIT_BYTES));
    check_eq(large_count_in(own), 0);
    check_eq(large_count(), 0);
    heap_verify();
    check(tally_malloc(300 * KIB) == sleeper.block);
    check_eq(large_count_in(own), 0);
    check_eq(large_count_in(1 - own), 1);
    heap_verify();
}

TEST(nothing_is_kept_where_memory_is_to_go_back_at_once) {
    void *block = tally_malloc(64 * KIB);
    dirty_decay_ms[CHUNK_DIRTY] = 0;
    tally_free(block);
    check_eq(shelf_bytes(), 0);
    dirty_decay_ms[CHUNK_DIRTY] = -1;
    tally_free(tally_malloc(2 * MIB)); /* too large */
    check_eq(shelf_bytes(), 0);
    thread_set_cached(false);
    tally_free(tally_malloc(64 * KIB));
    check_eq(shelf_bytes(), 0);
}

static void *replace_and_verify(void *stop) {
    struct random random = {(uintptr_t)&random};
    void *block[8] = {0};
    while (!atomic_load((atomic_bool *)stop)) {
        unsigned i = (unsigned)random_below(&random, 8);
        tally_free(block[i]);
        size_t words = (33 * KIB + random_below(&random, 300 * KIB)) / sizeof(uintptr_t);
        uintptr_t *words_of = tally_malloc(words * sizeof(uintptr_t));
        words_of[0] = words_of[words - 1] = (uintptr_t)&random;
        sched_yield();
        check(words_of[0] == (uintptr_t)&random && words_of[words - 1] == (uintptr_t)&random);
        block[i] = words_of;
    }
    for (unsigned i = 0; i < 8; i++) {
        tally_free(block[i]);
    }
    return NULL;
}

TEST(blocks_have_one_owner_while_others_empty_the_shelves) {
    atomic_bool stop = false;
    pthread_t thread[3];
    for (unsigned i = 0; i < 3; i++) {
        check(pthread_create(&thread[i], NULL, replace_and_verify, &stop) == 0);
    }
    for (unsigned i = 0; i < 300 / SLOWER; i++) {
        i % 3 == 0 ? (void)shelf_tick() : shelf_empty_all();
        usleep(1000);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < 3; i++) {
        check(pthread_join(thread[i], NULL) == 0);
    }
    check_eq(large_count(), 0);
    heap_verify();
}
