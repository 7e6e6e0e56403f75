/* SPDX-License-Identifier: MIT
 *
 * test_snapshot.c - the copy of all counters: it changes when it is renewed and at no other time, from
 * several threads at once, and after a fork that met somebody renewing it.
 */
#include "control/snapshot.h"

#include "base/lock.h"
#include "unit.h"

TEST(counters_change_with_the_epoch_alone) {
    start_heap();
    check(snapshot_start());
    check_eq(snapshot_epoch(), 1);
    check(snapshot_start());
    check_eq(snapshot_epoch(), 1);
    size_t before = snapshot_totals()->allocated;
    char *object = tally_malloc(1 << 20);
    check_eq(snapshot_totals()->allocated, before);
    check(snapshot_refresh());
    check_eq(snapshot_epoch(), 2);
    check_eq(snapshot_totals()->allocated, before + (1 << 20));
    tally_free(object);
}

TEST(arenas_that_stand_for_several_have_no_decay_time_of_their_own) {
    start_heap_with("narenas:3");
    check(snapshot_arena(SNAPSHOT_ALL) == NULL);
    check(snapshot_refresh());
    check_eq(snapshot_arenas(), 3);
    for (unsigned a = 0; a < 3; a++) {
        check(snapshot_arena(a) != NULL);
    }
    check(snapshot_arena(SNAPSHOT_ALL) != NULL);
    check(snapshot_arena(3) == snapshot_arena(SNAPSHOT_ALL));
    check(snapshot_arena(4) == NULL);
    check(snapshot_arena(SNAPSHOT_DESTROYED) == NULL);
    check(snapshot_arena(SIZE_MAX) == NULL);
    check_eq(snapshot_arena(SNAPSHOT_ALL)->dirty_decay_ms, -1);
    check_eq(snapshot_arena(SNAPSHOT_ALL)->muzzy_decay_ms, -1);
}

TEST(a_new_arena_counts_at_once_and_has_figures_later) {
    start_heap_with("narenas:2");
    check(snapshot_refresh());
    snapshot_note_made(2);
    check_eq(snapshot_arenas(), 3);
    check(snapshot_arena(2) == NULL);
    snapshot_note_destroyed(1);
    check(snapshot_arena(1) == NULL);
    check(snapshot_refresh());
    check(snapshot_arena(1) != NULL);
    check_eq(snapshot_arenas(), 3);
}

static void *refresh_often(void *unused) {
    for (unsigned i = 0; i < 200 / SLOWER; i++) {
        tally_free(tally_malloc(100 + i));
        uint64_t epoch = snapshot_epoch();
        check(snapshot_refresh());
        check(snapshot_epoch() > epoch);
        struct total_counts totals;
        snapshot_copy(&totals, snapshot_totals(), sizeof totals);
        check(totals.active <= totals.mapped);
        check(totals.active < totals.resident);
    }
    return unused;
}

TEST(threads_may_renew_it_at_once) {
    start_heap();
    check(snapshot_start());
    uint64_t before = snapshot_epoch();
    run_threads(8, refresh_often, NULL);
    check_eq(snapshot_epoch(), before + 8 * (200 / SLOWER));
    heap_verify();
}

static _Atomic bool stop;

static void *refresh_until_stopped(void *unused) {
    while (!stop) {
        check(snapshot_refresh());
    }
    return unused;
}

TEST(a_child_that_was_forked_beside_it_can_go_on) {
    start_heap();
    check(snapshot_start());
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++) {
        check(pthread_create(&threads[i], NULL, refresh_until_stopped, NULL) == 0);
    }
    for (unsigned i = 0; i < 200 / SLOWER; i++) {
        check_child({
            start_heap(); /* An entry of the api notices the fork. */
            check(snapshot_refresh());
            check(snapshot_arena(SNAPSHOT_ALL) != NULL);
        });
    }
    stop = true;
    for (unsigned i = 0; i < 4; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
}

TEST(our_own_lock_is_counted_until_it_is_reset) {
    start_heap();
    check(snapshot_refresh());
    check(snapshot_refresh());
    check_str(snapshot_lock_names[2], "ctl");
    uint64_t ops = snapshot_lock(2)->num_ops;
    check(ops > 0);
    check(snapshot_refresh());
    uint64_t more = snapshot_lock(2)->num_ops - ops;
    check(more > 0);
    snapshot_reset_locks();
    check(snapshot_refresh());
    check(snapshot_lock(2)->num_ops <= ops + more);
}
