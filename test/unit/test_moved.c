/* SPDX-License-Identifier: MIT
 *
 * test_moved.c - the list of moved ranges: what is noted is found piece by piece, and forgotten.
 */
#include "heap/moved.h"

#include "unit.h"

TEST_SETUP(start_heap);

enum { K = 1024 };

/* Where the piece at `at` ends, of a block that ends at 1000 K; checks whether it is moved. */
static size_t piece_end(size_t at, bool moved) {
    uintptr_t end = 0;
    check_eq(moved_look(at * K, 1000 * K, &end), moved);
    return end / K;
}

TEST(pieces_are_found_in_whatever_order_they_were_noted) {
    check(moved_add(500 * K, 100 * K));
    check(moved_add(100 * K, 50 * K));
    check(moved_add(150 * K, 50 * K)); /* beside the one before, and yet another mapping */
    check_eq(moved_count(), 3);
    check_eq(piece_end(0, false), 100);
    check_eq(piece_end(100, true), 150);
    check_eq(piece_end(149, true), 150);
    check_eq(piece_end(150, true), 200);
    check_eq(piece_end(200, false), 500);
    check_eq(piece_end(599, true), 600);
    check_eq(piece_end(600, false), 1000);
}

TEST(block_that_ends_inside_a_piece_is_followed_no_further) {
    uintptr_t end = 0;
    check(moved_add(100 * K, 50 * K));
    check(moved_look(100 * K, 120 * K, &end));
    check_eq(end, 120 * K);
    check(!moved_look(10 * K, 20 * K, &end));
    check_eq(end, 20 * K);
}

TEST(forgotten_ranges_are_cut_or_gone) {
    check(moved_add(100 * K, 50 * K));
    check(moved_add(200 * K, 50 * K));
    check(moved_add(300 * K, 50 * K));
    moved_forget(120 * K, 260 * K);
    check_eq(moved_count(), 2);
    check_eq(piece_end(100, true), 120);
    check_eq(piece_end(120, false), 300);
    check_eq(piece_end(300, true), 350);
    moved_forget(0, 1000 * K);
    check_eq(moved_count(), 0);
    check_eq(piece_end(0, false), 1000);
}

TEST(list_has_an_end_and_its_entries_are_used_again) {
    for (size_t i = 1; i <= MOVED_MOST; i++) {
        check(moved_add(i * K, K));
    }
    check(!moved_add(1, 1));
    check_eq(moved_count(), MOVED_MOST);
    moved_forget(7 * K, 9 * K);
    check(moved_add(2000 * K, K) && moved_add(3000 * K, K));
    check(!moved_add(4000 * K, K));
    check_eq(moved_count(), MOVED_MOST);
}

static void *add_and_forget(void *unused) {
    static _Atomic size_t threads;
    size_t own = ++threads * 100000 * K;
    for (size_t i = 0; i < 2000 / SLOWER; i++) {
        uintptr_t end;
        check(moved_add(own + i % 50 * K, K));
        check(moved_look(own + i % 50 * K, own + 100 * K, &end));
        moved_forget(own, own + 100 * K);
    }
    return unused;
}

TEST(threads_and_their_forked_children_find_the_list_whole) {
    pthread_t threads[2];
    check(moved_add(10 * K, K));
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_create(&threads[i], NULL, add_and_forget, NULL) == 0);
    }
    for (unsigned i = 0; i < 50 / SLOWER; i++) {
        check_child({
            check(moved_count() >= 1 && moved_count() <= 3);
            check_eq(piece_end(10, true), 11);
            check(moved_add(20 * K, K));
            moved_forget(0, UINTPTR_MAX);
            check_eq(moved_count(), 0);
        });
    }
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    check_eq(moved_count(), 1);
}
