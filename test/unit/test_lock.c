/* SPDX-License-Identifier: MIT
 *
 * test_lock.c - the lock excludes, wakes sleepers, and tells about a holder that a fork left behind.
 */
#include "base/lock.h"

#include <stdio.h>

#include "base/os.h"
#include "unit.h"

enum { THREADS = 4, TURNS = 20000 };

/* The number is plain: without exclusion increments are lost, and the thread sanitizer sees it. */
static struct {
    struct lock lock;
    unsigned long number;
    bool inside;
    bool sleepy;
} shared = {.lock = LOCK_OF_RANK(RANK_BIN)};

static void start(void) {
    attention_begin();
    attention_init();
    attention_start();
}
TEST_SETUP(start);

static void *increment(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < TURNS; i++) {
        check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
        check(!shared.inside);
        shared.inside = true;
        shared.number++;
        if (shared.sleepy && i % 1000 == 0) {
            usleep(300); /* Longer than contenders spin: they have to sleep and be woken. */
        }
        shared.inside = false;
        lock_release(&shared.lock);
    }
    return NULL;
}

TEST(one_thread_at_a_time_is_inside) {
    run_threads(THREADS, increment, NULL);
    check_eq(shared.number, THREADS * TURNS);
    check(!lock_is_held(&shared.lock));
}

TEST(sleepers_are_woken) {
    shared.sleepy = true;
    run_threads(THREADS, increment, NULL);
    check_eq(shared.number, THREADS * TURNS);
}

TEST(exclusion_holds_when_a_second_thread_comes_later) {
    lock_init();
    increment(NULL); /* Alone: the lock may know that and take a shorter way. */
    run_threads(THREADS, increment, NULL);
    increment(NULL);
    check_eq(shared.number, (THREADS + 2) * TURNS);
}

TEST(lock_is_held_between_acquire_and_release) {
    for (unsigned way = 0; way < 2; way++) {
        check(!lock_is_held(&shared.lock));
        check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
        check(lock_is_held(&shared.lock));
        lock_release(&shared.lock);
        check(!lock_is_held(&shared.lock));
        lock_init();
    }
}

static void *acquire_and_go(void *unused) {
    (void)unused;
    check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
    return NULL;
}

TEST(lock_held_before_a_fork_is_abandoned_after_it) {
    run_threads(1, acquire_and_go, NULL);
    check(lock_is_held(&shared.lock));
    pretend_fork();
    check_eq(lock_acquire(&shared.lock), LOCK_ABANDONED);
    lock_release(&shared.lock);
    check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
    lock_release(&shared.lock);
}

TEST(lock_free_before_a_fork_is_sound_after_it) {
    for (unsigned i = 0; i < 5; i++) {
        check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
        lock_release(&shared.lock);
        pretend_fork();
    }
    check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
    pretend_fork(); /* By a thread that holds it itself and releases it in the child. */
    lock_release(&shared.lock);
    check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
    lock_release(&shared.lock);
}

static struct {
    _Atomic bool holds;
    _Atomic bool go_on;
} holder;

static void *hold(void *unused) {
    (void)unused;
    check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
    holder.holds = true;
    while (!holder.go_on) {
        usleep(100);
    }
    lock_release(&shared.lock);
    return NULL;
}

TEST(real_fork_beside_a_holder_gives_an_abandoned_lock_in_the_child_only) {
    pthread_t thread;
    lock_init();
    check(pthread_create(&thread, NULL, hold, NULL) == 0);
    while (!holder.holds) {
        usleep(100);
    }
    check_child({
        check_eq(lock_acquire(&shared.lock), LOCK_ABANDONED);
        lock_release(&shared.lock);
        check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
    });
    holder.go_on = true;
    check(pthread_join(thread, NULL) == 0);
    check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
}

/* ---------------------------------------------------------------- counts */

TEST(uncontended_turns_are_counted_and_nothing_else) {
    for (unsigned way = 0; way < 2; way++) {
        for (unsigned i = 0; i < 10; i++) {
            check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
            lock_release(&shared.lock);
        }
        pretend_fork(); /* A lock of an older generation is taken slowly, and is not contended. */
        lock_init();
    }
    struct lock_counts counts = lock_read_counts(&shared.lock);
    check_eq(counts.taken, 20);
    check_eq(counts.spun + counts.slept + counts.slept_ns + counts.longest_ns, 0);
    check_eq(counts.most_sleepers, 0);
}

static void *take_a_turn(void *unused) {
    (void)unused;
    check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
    lock_release(&shared.lock);
    return NULL;
}

TEST(those_who_slept_are_counted_with_their_time) {
    enum { SLEEPERS = 3, HELD_US = 3000 };
    pthread_t threads[SLEEPERS];
    check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
    for (unsigned i = 0; i < SLEEPERS; i++) {
        check(pthread_create(&threads[i], NULL, take_a_turn, NULL) == 0);
    }
    while (shared.lock.sleepers < SLEEPERS) {
        usleep(100);
    }
    usleep(HELD_US);
    lock_release(&shared.lock);
    for (unsigned i = 0; i < SLEEPERS; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    struct lock_counts counts = lock_read_counts(&shared.lock);
    check_eq(counts.taken, SLEEPERS + 1);
    check_eq(counts.slept, SLEEPERS);
    check_eq(counts.spun, 0);
    check_eq(counts.most_sleepers, SLEEPERS);
    check(counts.longest_ns >= HELD_US * 1000u && counts.slept_ns >= SLEEPERS * HELD_US * 1000ul);
    check_eq(shared.lock.sleepers, 0);
    lock_reset_counts(&shared.lock);
    counts = lock_read_counts(&shared.lock);
    check_eq(counts.taken + counts.slept + counts.slept_ns + counts.longest_ns, 0);
    check_eq(counts.most_sleepers, 0);
}

TEST(contended_turns_are_counted_once_each) {
    shared.sleepy = true;
    run_threads(THREADS, increment, NULL);
    struct lock_counts counts = lock_read_counts(&shared.lock);
    check_eq(counts.taken, THREADS * TURNS);
    check(counts.slept > 0 && counts.spun + counts.slept <= counts.taken);
    check(counts.longest_ns <= counts.slept_ns);
    check_eq(shared.lock.sleepers, 0);
}

TEST(reset_leaves_an_abandoned_lock_to_be_repaired) {
    run_threads(1, acquire_and_go, NULL);
    pretend_fork();
    lock_reset_counts(&shared.lock);
    check_eq(lock_read_counts(&shared.lock).taken, 0);
    check_eq(lock_acquire(&shared.lock), LOCK_ABANDONED);
    lock_release(&shared.lock);
    check_eq(lock_acquire(&shared.lock), LOCK_SOUND);
}

TEST(abandoned_lock_is_told_to_one_contender_only) {
    run_threads(1, acquire_and_go, NULL);
    pretend_fork();
    check_eq(lock_acquire(&shared.lock), LOCK_ABANDONED);
    lock_release(&shared.lock);
    run_threads(THREADS, increment, NULL);
    check_eq(shared.number, THREADS * TURNS);
}

#define RANK_BROKEN "tally: internal error: 'held_ranks >> lock->rank == 0' does not hold"

TEST(locks_in_ascending_rank_nest) {
    struct lock low = {.rank = RANK_BIN}, high = {.rank = RANK_PAGES};
    lock_acquire(&low);
    lock_acquire(&high);
    lock_release(&high);
    lock_acquire(&high);
    lock_release(&high);
    lock_release(&low);
}

TEST(rank_violation_dies_in_debug_builds) {
    if (!DEBUG) {
        skip("ranks are checked in debug builds only");
    }
    struct lock low = {.rank = RANK_BIN}, high = {.rank = RANK_PAGES}, peer = {.rank = RANK_BIN};
    check_dies(
        {
            lock_acquire(&high);
            lock_acquire(&low);
        },
        RANK_BROKEN, SIGABRT);
    check_dies(
        {
            lock_acquire(&low);
            lock_acquire(&peer);
        },
        RANK_BROKEN, SIGABRT);
    check_dies(lock_release(&low), "tally: internal error: 'held_ranks & 1u << lock->rank'",
               SIGABRT);
}
