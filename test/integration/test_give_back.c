/* SPDX-License-Identifier: MIT
 *
 * test_give_back.c - memory that the program gave up goes back to the kernel: by itself where there
 * are threads, at the latest with the next few calls where there is one, and at once on request.
 *
 * A burst of blocks is allocated beside some that stay, and freed.  Then the resident memory may be
 * 1.1 times what is live and 8 MiB.  The slice is 256 MiB, STRESS=1 makes it 1 GiB.  The program's
 * own tables lie in mappings of their own, which are gone when the memory is looked at.
 *
 * How long it takes is printed; twice the decay time is the goal and is asked for at the whole
 * length, on a machine with time to spare.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <tally/tally.h>

#include "watch.h"

#include "list.h"
#include "random.h"

TEST_SETUP(require_tally);

enum { DECAY_MS = 1000, PATIENCE_MS = 300000, POLL_MS = 20 };

static const size_t MIB = 1 << 20;

/* What a burst consists of. */
enum kind { SMALL_IN_ORDER, SMALL_AT_RANDOM, MIXED_AT_RANDOM, BLOCKS_OF_A_MIB };

static size_t size_of_next(enum kind kind, struct random *random) {
    switch (kind) {
    case BLOCKS_OF_A_MIB:
        return MIB;
    case MIXED_AT_RANDOM: {
        size_t least = (size_t)8 << random_below(random, 9);
        return least + random_below(random, least);
    }
    default:
        return 64;
    }
}

/* Allocated blocks in a table of their own. */
struct blocks {
    void **block;
    size_t count, most, bytes;
};

static struct blocks allocate(enum kind kind, size_t bytes) {
    struct random random = random_start(41, kind);
    struct blocks all = {.most = bytes / (kind == BLOCKS_OF_A_MIB ? MIB : 16)};
    all.block = mmap(NULL, all.most * sizeof *all.block, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(all.block != MAP_FAILED);
    while (all.bytes < bytes && all.count < all.most) {
        size_t size = size_of_next(kind, &random);
        void *block = malloc(size);
        check(block != NULL);
        memset(block, 1, size);
        all.block[all.count++] = block;
        all.bytes += size;
    }
    return all;
}

static void shuffle(struct blocks *all) {
    struct random random = random_start(42, 0);
    for (size_t i = all->count; i > 1; i--) {
        size_t other = random_below(&random, i);
        void *block = all->block[i - 1];
        all->block[i - 1] = all->block[other];
        all->block[other] = block;
    }
}

static void free_all(struct blocks *all) {
    for (size_t i = 0; i < all->count; i++) {
        free(all->block[i]);
    }
    check(munmap(all->block, all->most * sizeof *all->block) == 0);
}

/* Allocates and frees a burst, with the resident memory as proof that it was there. */
static void burst(enum kind kind) {
    struct blocks all = allocate(kind, slice_or(256, 1024) * MIB);
    check(test_anonymous_bytes() >= all.bytes);
    if (kind == SMALL_AT_RANDOM || kind == MIXED_AT_RANDOM) {
        shuffle(&all);
    }
    free_all(&all);
}

static void say_mib(const char *what, size_t bytes, const char *behind, long long ms) {
    char number[2][24];
    test_say("    ", what, " ", test_decimal(number[0], (long long)(bytes / (MIB / 10))),
             " tenths of a MiB", behind, ms >= 0 ? test_decimal(number[1], ms) : "",
             ms >= 0 ? " ms\n" : "\n", NULL);
}

static size_t allowed(size_t live) {
    return live + live / 10 + 8 * MIB;
}

/* No call of the allocator in here. */
static void wait_until_resident(size_t most) {
    long ms = 0;
    while (test_anonymous_bytes() > most && ms < PATIENCE_MS) {
        nap_us(POLL_MS * 1000);
        ms += POLL_MS;
    }
    say_mib("resident", test_anonymous_bytes(), " after ", ms);
    check(test_anonymous_bytes() <= most);
    check(!whole_length() || ms <= 2 * DECAY_MS);
}

/* ---------------------------------------------------------------- with threads */

static pthread_barrier_t ready;

static void *sleep_beside(void *unused) {
    free(malloc(100));
    pthread_barrier_wait(&ready);
    pause();
    return unused;
}

static void start_sleeper(void) {
    pthread_t thread;
    check(pthread_barrier_init(&ready, NULL, 2) == 0);
    check(pthread_create(&thread, NULL, sleep_beside, NULL) == 0);
    pthread_barrier_wait(&ready);
}

static void shrinks_by_itself(enum kind kind) {
    start_sleeper();
    struct blocks live = allocate(SMALL_IN_ORDER, slice_or(16, 64) * MIB);
    burst(kind);
    /* The table of what lives counts as well. */
    wait_until_resident(allowed(live.bytes + live.count * sizeof(void *)));
    free_all(&live);
    wait_until_resident(allowed(0));
}

TEST(idle_process_with_threads_gives_small_objects_back) {
    shrinks_by_itself(SMALL_IN_ORDER);
}

TEST(idle_process_with_threads_gives_small_objects_back_that_were_freed_at_random) {
    shrinks_by_itself(SMALL_AT_RANDOM);
}

TEST(idle_process_with_threads_gives_objects_of_all_sizes_back) {
    shrinks_by_itself(MIXED_AT_RANDOM);
}

TEST(idle_process_with_threads_gives_large_blocks_back) {
    shrinks_by_itself(BLOCKS_OF_A_MIB);
}

static void *burst_and_sleep(void *kind) {
    burst(*(enum kind *)kind);
    pthread_barrier_wait(&ready);
    pause();
    return NULL;
}

TEST(thread_that_freed_much_and_sleeps_keeps_little_from_going_back) {
    enum kind kind = MIXED_AT_RANDOM;
    pthread_t thread;
    free(malloc(100));
    check(pthread_barrier_init(&ready, NULL, 2) == 0);
    check(pthread_create(&thread, NULL, burst_and_sleep, &kind) == 0);
    pthread_barrier_wait(&ready);
    wait_until_resident(allowed(0));
}

/* ---------------------------------------------------------------- with one thread */

/* Twice the decay time passes, and then the program goes on a little. */
static void shrinks_with_the_next_calls(enum kind kind) {
    struct blocks live = allocate(SMALL_IN_ORDER, slice_or(16, 64) * MIB);
    burst(kind);
    say_mib("resident", test_anonymous_bytes(), " after the last free", -1);
    nap_us(2 * DECAY_MS * 1000);
    for (unsigned i = 0; i < 10; i++) {
        free(test_launder(malloc(64)));
    }
    say_mib("resident", test_anonymous_bytes(), " after a few calls", -1);
    check(test_anonymous_bytes() <= allowed(live.bytes + live.count * sizeof(void *)));
    free_all(&live);
}

TEST(single_thread_gives_small_objects_back) {
    shrinks_with_the_next_calls(SMALL_IN_ORDER);
}

TEST(single_thread_gives_small_objects_back_that_were_freed_at_random) {
    shrinks_with_the_next_calls(SMALL_AT_RANDOM);
}

TEST(single_thread_gives_objects_of_all_sizes_back) {
    shrinks_with_the_next_calls(MIXED_AT_RANDOM);
}

TEST(single_thread_gives_large_blocks_back) {
    shrinks_with_the_next_calls(BLOCKS_OF_A_MIB);
}

/* What may be kept without any further call: dirty pages of 4 MiB or a sixteenth, and little else. */
TEST(single_thread_keeps_little_after_its_last_free) {
    size_t before = test_anonymous_bytes();
    burst(BLOCKS_OF_A_MIB);
    struct tally_totals totals;
    tally_totals(&totals);
    check(totals.free_pages_kept <= 4 * MIB);
    check(test_anonymous_bytes() <= before + 6 * MIB);
}

/* Pages are faulted in once, and not in each round. */
TEST(saw_tooth_does_not_give_back_what_it_needs_again) {
    enum { ROUNDS = 20, BLOCKS = 64 };
    void *block[BLOCKS];
    size_t purged_rounds = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            block[i] = malloc(MIB);
            check(block[i] != NULL);
            memset(block[i], 1, MIB);
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            free(block[i]);
        }
        purged_rounds += test_anonymous_bytes() < BLOCKS * MIB * 3 / 4;
    }
    check(purged_rounds <= 3);
}

/* ---------------------------------------------------------------- a change of phase */

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

TEST(space_of_small_objects_serves_larger_ones_and_goes_back_in_the_end) {
    enum { BYTES = 60000000 };
    struct link *first = build_list(BYTES / 64, 64);
    size_t peak = test_anonymous_bytes();
    first = thin_list(first, 64);
    struct link *second = build_list(BYTES / 400, 400);
    peak = larger(peak, test_anonymous_bytes());
    thin_list(first, 0);
    thin_list(second, 0);
    say_mib("peak", peak, "", -1);
    say_mib("end", test_anonymous_bytes(), "", -1);
    check(peak <= 125 * MIB);
    check(test_anonymous_bytes() <= 20 * MIB);
}

/* ---------------------------------------------------------------- on request */

static void gives_all_back(void (*give_back)(void)) {
    size_t before = test_anonymous_bytes();
    struct blocks small = allocate(SMALL_IN_ORDER, 32 * MIB);
    struct blocks mixed = allocate(MIXED_AT_RANDOM, 32 * MIB);
    free_all(&small);
    free_all(&mixed);
    give_back();
    struct tally_totals totals;
    tally_totals(&totals);
    check_eq(totals.cached, 0);
    check_eq(totals.free_pages_kept, 0);
    check(totals.slab_free < MIB); /* beside the few objects libc holds */
    check(test_anonymous_bytes() <= before + 2 * MIB);
    tally_verify();
}

static void trim(void) {
    check_eq(malloc_trim(0), 1);
    check_eq(malloc_trim(0), 0);
}

static void purge(void) {
    check(tally_purge() > 0);
    check_eq(tally_purge(), 0);
}

TEST(trim_gives_everything_back) {
    gives_all_back(trim);
}

TEST(purge_gives_everything_back) {
    gives_all_back(purge);
}

TEST(purge_gives_everything_back_beside_a_background_thread) {
    start_sleeper();
    struct blocks small = allocate(SMALL_IN_ORDER, 64 * MIB);
    free_all(&small);
    tally_purge();
    wait_until_resident(allowed(0));
}

/* ---------------------------------------------------------------- what a thread may hold */

static void *use_all_sizes_and_sleep(void *unused) {
    enum { BLOCKS = 100 }; /* so few that no background thread comes */
    static void *block[BLOCKS];
    for (unsigned round = 0; round < 20; round++) {
        for (size_t size = 8; size <= 30000; size += size / 4 + 1) {
            for (unsigned i = 0; i < BLOCKS; i++) {
                block[i] = malloc(size);
            }
            for (unsigned i = 0; i < BLOCKS; i++) {
                free(block[i]);
            }
        }
    }
    pthread_barrier_wait(&ready);
    pause();
    return unused;
}

/* A purge that comes before the thread has gone to sleep leaves what it keeps: then another does. */
TEST(what_a_sleeping_thread_keeps_is_counted_and_goes_at_a_purge) {
    pthread_t thread;
    struct tally_totals totals;
    check(pthread_barrier_init(&ready, NULL, 2) == 0);
    check(pthread_create(&thread, NULL, use_all_sizes_and_sleep, NULL) == 0);
    pthread_barrier_wait(&ready);
    tally_totals(&totals);
    say_mib("cached", totals.cached, "", -1);
    check(totals.cached > 0);
    while (totals.cached > 0) { /* the test's own limit ends it */
        tally_purge();
        tally_totals(&totals);
    }
}
