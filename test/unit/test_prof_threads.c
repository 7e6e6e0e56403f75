/* SPDX-License-Identifier: MIT
 *
 * test_prof_threads.c - the profiler beside threads that begin, end, have names and fork.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>

#include "prof/prof.h"
#include "prof/record.h"
#include "prof_events.h"
#include "unit.h"

/* ---------------------------------------------------------------- threads */

enum { THREADS = 4, PER_THREAD = 20000 };

struct mail {
    _Atomic uint32_t id;
    size_t usable;
};
static struct mail mail[64];
static _Atomic uint64_t expected_objects, expected_bytes, expected_accumulated;

/* Frees some of its own, and some that others have left. */
static void *record_and_release(void *number) {
    struct random random = random_start(77, (uintptr_t)number);
    prof_thread_set_name("worker");
    for (unsigned i = 0; i < PER_THREAD / SLOWER; i++) {
        size_t usable = 16 + 16 * random_below(&random, 64);
        uint32_t id = record((unsigned)random_below(&random, PATTERNS), usable - 3, usable);
        check(id != 0);
        expected_accumulated += usable;
        struct mail *box = &mail[random_below(&random, 64)];
        uint32_t none = 0;
        switch (random_below(&random, 4)) {
        case 0: /* it stays */
            expected_objects++;
            expected_bytes += usable;
            break;
        case 1:
            release(id, usable);
            break;
        default: /* whoever comes by takes it out */
            if (atomic_compare_exchange_strong(&box->id, &none, UINT32_MAX)) {
                box->usable = usable;
                box->id = id;
            } else if (none != UINT32_MAX &&
                       atomic_compare_exchange_strong(&box->id, &none, UINT32_MAX)) {
                size_t theirs = box->usable;
                box->id = 0;
                release(none, theirs);
                release(id, usable);
            } else {
                release(id, usable);
            }
        }
    }
    prof_thread_ends();
    return NULL;
}

static void check_expected(void) {
    for (unsigned i = 0; i < 64; i++) {
        if (mail[i].id != 0) {
            release(mail[i].id, mail[i].usable);
            mail[i].id = 0;
        }
    }
    struct prof_totals totals = check_totals();
    check_eq(totals.live.objects, expected_objects);
    check_eq(totals.live.bytes, expected_bytes);
    check_eq(totals.accumulated.bytes, expected_accumulated);
    check_eq(totals.drops, 0);
}

TEST(threads_that_record_at_once_lose_nothing) {
    arm(0);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        check(pthread_create(&threads[i], NULL, record_and_release, (void *)i) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    check_expected();
}

static void *record_one_and_keep(void *id) {
    prof_thread_set_name("a name that is too long");
    *(uint32_t *)id = record(5, 100, 112);
    release(record(6, 100, 112), 112);
    prof_thread_ends();
    check_eq(record(5, 100, 112), 0); /* it is over */
    return NULL;
}

static bool thread_has_live(uint32_t thread, uint64_t *objects, uint64_t *accumulated) {
    bool found = false;
    *objects = *accumulated = 0;
    for (uint32_t i = 0; i < prof_context_count(); i++) {
        struct prof_context context;
        if (prof_read_context(i, &context) && context.thread == thread) {
            *objects += context.live.objects;
            *accumulated += context.accumulated.objects;
            found = true;
        }
    }
    return found;
}

TEST(a_thread_that_ended_keeps_its_line_while_it_has_live_samples) {
    arm(0);
    uint32_t id;
    uint64_t objects, accumulated;
    char name[16];
    bool has_ended;
    run_threads(1, record_one_and_keep, &id);
    check(thread_has_live(0, &objects, &accumulated));
    check_eq(objects, 1);
    check_eq(accumulated, 1); /* the other context went to those who are gone */
    prof_read_thread(0, name, &has_ended);
    check_str(name, "a name that is ");
    check(has_ended);
    release(id, 112);
    check(!thread_has_live(0, &objects, &accumulated));
    struct prof_totals totals = check_totals();
    check_eq(totals.accumulated.objects, 2);
    check_eq(totals.peak.objects, 2);
}

static void *record_as_worker(void *name) {
    pthread_setname_np(pthread_self(), name);
    release(record(0, 1, 16), 16);
    prof_thread_ends();
    return NULL;
}

/* The sum of what threads of this name have allocated. */
static uint64_t accumulated_by(const char *name) {
    uint64_t objects = 0;
    struct prof_context context;
    for (uint32_t i = 0; i < prof_context_count(); i++) {
        char its[16];
        bool has_ended;
        if (prof_read_context(i, &context)) {
            prof_read_thread(context.thread, its, &has_ended);
            objects += strcmp(its, name) == 0 ? context.accumulated.objects : 0;
        }
    }
    return objects;
}

TEST(what_ended_threads_have_allocated_stays_with_their_name) {
    start_heap_with("prof_sys_thread_name:true");
    prof_set_active(true);
    for (unsigned i = 0; i < 10; i++) {
        run_threads(1, record_as_worker, "worker");
        run_threads(1, record_as_worker, "logger");
    }
    run_threads(1, record_as_worker, "logger");
    check_eq(accumulated_by("worker"), 10);
    check_eq(accumulated_by("logger"), 11);
}

TEST(names_beyond_many_share_one_line) {
    start_heap_with("prof_sys_thread_name:true");
    prof_set_active(true);
    for (unsigned i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "thread %u", i);
        run_threads(1, record_as_worker, name);
    }
    check_eq(accumulated_by("thread 0"), 1);
    check_eq(accumulated_by("thread 62"), 1);
    check_eq(accumulated_by("thread 63"), 0);
    check_eq(accumulated_by(""), 137);
    check_eq(check_totals().accumulated.objects, 200);
}

TEST(many_threads_need_memory_for_few) {
    arm(0);
    uint32_t id;
    size_t before = 0;
    for (unsigned i = 0; i < 600; i++) {
        run_threads(1, record_one_and_keep, &id);
        release(id, 112);
        before = i == 300 ? prof_context_count() : before;
    }
    check_eq(prof_context_count(), before);
    check_eq(check_totals().accumulated.objects, 1200);
}

TEST(names_come_from_the_kernel_if_wanted) {
    start_heap_with("prof_sys_thread_name:true");
    prof_set_active(true);
    pthread_setname_np(pthread_self(), "first name");
    record(0, 1, 16);
    char name[16];
    bool has_ended;
    prof_read_thread(0, name, &has_ended);
    check_str(name, "first name");
    check(!has_ended);
    pthread_setname_np(pthread_self(), "second");
    prof_thread_get_name(name);
    check_str(name, "second");
    record(0, 1, 16);
    prof_read_thread(0, name, &has_ended);
    check_str(name, "second");
}

TEST(a_name_that_the_program_gave_wins_over_the_kernels) {
    char name[16];
    bool has_ended;
    arm(0);
    prof_name_threads();
    pthread_setname_np(pthread_self(), "of the kernel");
    record(0, 1, 16);
    prof_read_thread(0, name, &has_ended);
    check_str(name, "of the kernel");
    check(prof_thread_set_name("its own"));
    for (int i = 0; i < 1000; i++) {
        record(0, 1, 16);
    }
    prof_read_thread(0, name, &has_ended);
    check_str(name, "its own");
}

TEST(where_all_is_sampled_the_kernel_is_asked_now_and_then) {
    char name[16];
    bool has_ended;
    arm(0);
    prof_name_threads();
    pthread_setname_np(pthread_self(), "first name");
    record(0, 1, 16);
    pthread_setname_np(pthread_self(), "second");
    record(0, 1, 16);
    prof_read_thread(0, name, &has_ended);
    check_str(name, "first name");
    for (int i = 0; i < 4096 / 16; i++) {
        record(0, 1, 16);
    }
    prof_read_thread(0, name, &has_ended);
    check_str(name, "second");
}

/* ---------------------------------------------------------------- fork */

static _Atomic bool is_enough;

static void *never_end(void *number) {
    struct random random = random_start(5, (uintptr_t)number);
    while (!is_enough) {
        uint32_t id = record((unsigned)random_below(&random, PATTERNS), 10, 16);
        if (random_below(&random, 100) > 0) {
            release(id, 16);
        }
    }
    return NULL;
}

static void use_in_child(void) {
    check_totals();
    uint32_t ids[300];
    struct prof_totals before = check_totals();
    for (unsigned i = 0; i < 300; i++) {
        ids[i] = record(i % PATTERNS, 10, 16);
        check(ids[i] != 0);
    }
    check_eq(check_totals().live.objects, before.live.objects + 300);
    for (unsigned i = 0; i < 300; i++) {
        release(ids[i], 16);
    }
    check_eq(check_totals().live.objects, before.live.objects);
    char name[16];
    bool has_ended;
    unsigned alive = 0;
    for (uint32_t i = 0; i < prof_thread_count(); i++) {
        prof_read_thread(i, name, &has_ended);
        alive += !has_ended;
    }
    check_eq(alive, 1);
}

TEST(the_child_of_a_fork_has_what_was_recorded_and_goes_on) {
    arm(0);
    uint32_t kept = record(9, 50, 64);
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++) {
        check(pthread_create(&threads[i], NULL, never_end, (void *)i) == 0);
    }
    for (unsigned i = 0; i < 200u / SLOWER; i++) {
        check_child({
            tally_free(tally_malloc(100000)); /* notices the fork, as a program does */
            prof_forked();
            use_in_child();
            release(kept, 64);
            check_totals();
        });
    }
    is_enough = true;
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    check_totals();
}

static void *lock_and_vanish(void *unused) {
    record_lock();
    return unused;
}

TEST(what_a_vanished_holder_left_is_repaired) {
    arm(0);
    uint32_t ids[1000];
    for (unsigned i = 0; i < 1000; i++) {
        ids[i] = record(i % PATTERNS, 10, 16);
    }
    for (unsigned i = 0; i < 500; i++) {
        release(ids[i], 16);
    }
    run_threads(1, lock_and_vanish, NULL); /* who is not there in the child */
    pretend_fork();
    struct prof_totals totals = check_totals();
    check_eq(totals.live.objects, 500);
    check_eq(totals.accumulated.objects, 1000);
    for (unsigned i = 500; i < 1000; i++) {
        release(ids[i], 16);
    }
    for (unsigned i = 0; i < 2000; i++) {
        check(record(i % PATTERNS, 10, 16) != 0);
    }
    check_eq(check_totals().live.objects, 2000);
}
