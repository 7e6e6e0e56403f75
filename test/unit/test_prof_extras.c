/* SPDX-License-Identifier: MIT
 *
 * test_prof_extras.c - what the profiler does beside counting: the last samples, marks, the log, sums by
 * class, functions of the program, agents.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <sched.h>

#include "control/events.h"
#include "heap/fast.h"
#include "opt/opt.h"
#include "prof/prof.h"
#include "prof/recent.h"
#include "prof/record.h"
#include "prof/usdt.h"
#include "prof_events.h"
#include "unit.h"

/* ---------------------------------------------------------------- extras */

TEST(the_last_samples_are_kept_in_order) {
    start_heap_with("prof_recent_alloc_max:3");
    prof_reset(0);
    prof_set_active(true);
    check_eq(prof_recent_max(), 3);
    uint32_t ids[6];
    for (unsigned i = 0; i < 5; i++) {
        ids[i] = record(i, 10 + i, 16 + 16 * i);
    }
    release(ids[0], 16); /* no longer among them */
    release(ids[3], 64);
    struct prof_event recent;
    uint64_t cursor = 0;
    for (unsigned i = 2; i < 5; i++) {
        check(prof_recent_walk(&cursor, &recent));
        check_eq(recent.requested, 10 + i);
        check_eq(recent.usable, 16 + 16 * i);
        check_eq(recent.is_freed, i == 3);
        check(recent.stack != 0 && recent.thread == 0 && recent.born_ns > 0);
        check((recent.freed_stack != 0) == (i == 3));
        check((recent.freed_ns >= recent.born_ns) == (i == 3));
    }
    check(!prof_recent_walk(&cursor, &recent));
    ids[5] = record(5, 77, 80);
    check(prof_recent_walk(&cursor, &recent)); /* it goes on where it was */
    check_eq(recent.requested, 77);
    prof_recent_set_max(1);
    cursor = 0;
    check(prof_recent_walk(&cursor, &recent));
    check_eq(recent.requested, 77);
    check(!prof_recent_walk(&cursor, &recent));
    prof_recent_set_max(0);
    cursor = 0;
    check(!prof_recent_walk(&cursor, &recent));
    release(ids[5], 80);
    release(ids[2], 48);
    prof_recent_set_max(-1);
    for (unsigned i = 0; i < 1000; i++) {
        record(i % PATTERNS, i, 1024);
    }
    for (unsigned i = 0; i < 1000; i++) {
        check(prof_recent_walk(&cursor, &recent));
        check_eq(recent.requested, i);
    }
    check(!prof_recent_walk(&cursor, &recent));
}

static void record_late(void) {
    prof_recorded(record_at_level(1, 0, 4242, 5000), &object);
}

static char recent_text[4096];

static void keep_text(void *unused, const char *text) {
    (void)unused;
    check(strlen(text) < sizeof(recent_text));
    memcpy(recent_text, text, strlen(text) + 1);
}

TEST(samples_that_come_while_the_last_are_written_are_not_among_them) {
    start_heap_with("prof_recent_alloc_max:10");
    prof_reset(0);
    prof_set_active(true);
    (void)record(1, 77, 80);
    for (unsigned i = 0; i < 2; i++) {
        at_next_map = i == 0 ? record_late : NULL;
        thread_mark_inside(true);
        check(events_write_recent(keep_text, NULL));
        thread_mark_inside(false);
        check(at_next_map == NULL);
        check(strstr(recent_text, "\"size\":77,") != NULL);
        check_eq(strstr(recent_text, "\"size\":4242,") != NULL, i == 1);
    }
}

TEST(many_samples_are_forgotten_a_few_at_a_time) {
    start_heap_with("prof_recent_alloc_max:-1");
    prof_reset(0);
    prof_set_active(true);
    for (unsigned i = 0; i < 1000; i++) {
        (void)record(1, 10, 16);
    }
    unsigned rounds = 1;
    record_lock();
    recent_set_max(0);
    for (; recent_forget_some(); rounds++) {
    }
    record_unlock();
    check(rounds >= 10);
    struct prof_event event;
    uint64_t cursor = 0;
    check(!prof_recent_walk(&cursor, &event));
}

static bool is_told(void) {
    return (attention_take(ATTENTION_PROFILE) & ATTENTION_PROFILE) != 0;
}

TEST(marks_are_in_bytes) {
    arm(0);
    (void)is_told();
    tell_marks.live = 1000;
    uint32_t first = record(1, 900, 900);
    check(!is_told());
    uint32_t second = record(1, 100, 100);
    check(is_told());
    tell_marks.live = UINT64_MAX;
    tell_marks.live_low = 500;
    release(second, 100);
    check(!is_told());
    release(first, 900);
    check(is_told());
    tell_marks.live_low = 0;
    tell_marks.allocated = 1500;
    tell_marks.freed = 1300;
    first = record(1, 400, 400);
    check(!is_told());
    release(first, 400);
    check(is_told());
}

TEST(the_log_has_what_is_freed_while_it_is_on) {
    arm(0);
    check(!prof_log_stop() && !prof_log_is_on());
    uint32_t before = record(1, 10, 16);
    release(before, 16);
    before = record(2, 10, 16);
    check(prof_log_start());
    check(!prof_log_start() && prof_log_is_on());
    uint32_t stack = stack_of(before);
    release(before, 16);
    uint32_t stays = record(3, 10, 32);
    release(record(4, 10, 48), 48);
    check(prof_log_stop());
    release(stays, 32);
    struct prof_event event;
    check(prof_log_read(0, &event));
    check_eq(event.stack, stack);
    check_eq(event.usable, 16);
    check(event.freed_stack != 0 && event.freed_ns >= event.born_ns);
    check_eq(event.thread + event.freed_thread, 0);
    check(prof_log_read(1, &event));
    check_eq(event.usable, 48);
    check(!prof_log_read(2, &event));
    check(prof_log_duration() > 0);
    prof_log_forget();
    check(!prof_log_read(0, &event));
    check(prof_log_start() && !prof_log_read(0, &event));
}

TEST(requests_are_summed_up_by_class) {
    start_heap_with("prof_stats:true");
    prof_reset(0);
    prof_set_active(true);
    struct prof_class_sum sum;
    uint32_t small = record(0, 20, 32);
    record(1, 30, 32);
    uint32_t large = record(2, 99999, 100 << 10);
    release(small, 32);
    check(prof_read_class(32, false, &sum));
    check_eq(sum.requested, 30);
    check_eq(sum.count, 1);
    check(prof_read_class(32, true, &sum));
    check_eq(sum.requested, 50);
    check_eq(sum.count, 2);
    check(prof_read_class(100 << 10, false, &sum));
    check_eq(sum.requested, 99999);
    prof_reset(0);
    release(large, 100 << 10); /* forgotten, and still subtracted */
    check(prof_read_class(100 << 10, false, &sum));
    check_eq(sum.count, 0);
    check(prof_read_class(100 << 10, true, &sum));
    check_eq(sum.count, 1);
}

TEST(without_the_option_there_are_no_sums_by_class) {
    arm(0);
    struct prof_class_sum sum;
    record(0, 20, 32);
    check(!prof_read_class(32, false, &sum));
}

/* ---------------------------------------------------------------- functions of the program */

static struct {
    unsigned samples, frees, walks;
    const void *object;
    size_t size, usable;
    unsigned count;
    uintptr_t first;
} hooked;

static void sample_hook(const void *what, size_t size, void **addresses, unsigned count,
                        size_t usable) {
    check_eq(tls.inside, 0); /* it may allocate */
    tally_free(tally_malloc(100));
    check_eq(record(0, 1, 16), 0); /* which is not sampled */
    thread_mark_inside(false);
    hooked.samples++;
    hooked.object = what;
    hooked.size = size;
    hooked.usable = usable;
    hooked.count = count;
    hooked.first = (uintptr_t)addresses[0];
    errno = 99;
}

static void sample_free_hook(const void *what, size_t usable) {
    check_eq(tls.inside, 0);
    hooked.frees++;
    hooked.object = what;
    hooked.usable = usable;
    errno = 99;
}

static void backtrace_hook(void **addresses, unsigned *count, unsigned most) {
    check(most >= 2);
    hooked.walks++;
    addresses[0] = (void *)0x1111;
    addresses[1] = (void *)0x2222;
    *count = 2;
}

enum { RESET_ROUNDS = 3000 / SLOWER };
static _Atomic unsigned reset_begun[RESET_ROUNDS], reset_done[RESET_ROUNDS];

static void wait_for_other(_Atomic unsigned *count) {
    ++*count;
    while (*count % 2 != 0) {
        sched_yield();
    }
}

static void *reset_together(void *unused) {
    static _Atomic unsigned threads;
    unsigned lg_sample = 10 + threads++;
    (void)unused;
    thread_mark_inside(true);
    for (unsigned i = 0; i < RESET_ROUNDS; i++) {
        wait_for_other(&reset_begun[i]);
        prof_reset(lg_sample);
        prof_set_active((i + lg_sample) % 2);
        wait_for_other(&reset_done[i]);
        uint64_t rate = UINT64_C(1) << prof_lg_sample();
        struct prof_totals totals;
        prof_read_totals(&totals);
        check_eq(totals.rate, rate);
        check_eq(track_rate(), prof_is_active() ? rate : 0);
    }
    thread_mark_inside(false);
    return NULL;
}

TEST(rate_and_weights_agree_whoever_sets_them_at_once) {
    arm(0);
    run_threads(2, reset_together, NULL);
}

static uint32_t freed_by_hook;
static bool hook_sees_its_stack;

static void free_in_hook(const void *at, size_t size, void **addresses, unsigned count,
                         size_t usable) {
    (void)at;
    (void)size;
    (void)usable;
    void *copy[PROF_DEPTH_MOST];
    memcpy(copy, addresses, count * sizeof(copy[0]));
    release(freed_by_hook, 32);
    hook_sees_its_stack = memcmp(copy, addresses, count * sizeof(copy[0])) == 0;
}

TEST(stack_given_to_a_function_of_the_program_stays_while_that_frees) {
    start_heap_with("prof_recent_alloc_max:10");
    prof_reset(0);
    prof_set_active(true);
    freed_by_hook = record(0x55, 20, 32);
    tell_hooks.sample = free_in_hook;
    uint32_t id = record(0x2a, 10, 16);
    tell_hooks.sample = NULL;
    check(hook_sees_its_stack);
    release(id, 16);
}

TEST(functions_of_the_program_are_called) {
    arm(0);
    errno = 5;
    tell_hooks.sample = sample_hook;
    tell_hooks.sample_free = sample_free_hook;
    uint32_t id = record(1, 33, 48);
    check_eq(hooked.samples, 1);
    check(hooked.object == &object && hooked.size == 33 && hooked.usable == 48);
    uintptr_t first;
    prof_read_stack(stack_of(id), &first, 1);
    check(hooked.count > LEVELS && hooked.first == first);
    release(id, 48);
    check_eq(hooked.frees, 1);
    check_eq(hooked.usable, 48);
    tell_hooks.backtrace = backtrace_hook;
    id = record(1, 33, 48);
    check_eq(hooked.walks, 1);
    check_eq(hooked.count, 2);
    check_eq(hooked.first, 0x1111);
    tell_hooks.sample = NULL;
    tell_hooks.sample_free = NULL;
    tell_hooks.backtrace = NULL;
    record(1, 33, 48);
    release(id, 48);
    check_eq(hooked.samples + hooked.frees + hooked.walks, 2 + 1 + 1);
    check_eq(errno, 5);
}

/* ---------------------------------------------------------------- agents */

/* As the kernel does it. */
static void set_agents(uint16_t alloc_agents, uint16_t free_agents) {
    memcpy((char *)&bin_unusual + BIN_ALLOC_AGENTS, &alloc_agents, sizeof alloc_agents);
    memcpy((char *)&bin_unusual + BIN_FREE_AGENTS, &free_agents, sizeof free_agents);
}

static void call_slowly(void) {
    tally_free(tally_malloc(1 << 20));
}

TEST(agents_arm_the_sampler_at_the_next_slow_call_and_leave_nothing) {
    start_heap();
    for (unsigned which = 0; which < 2; which++) {
        check_eq(track_rate(), 0);
        set_agents(which == 0, which == 1);
        call_slowly();
        check_eq(track_rate(), UINT64_C(1) << opt.lg_prof_sample);
        check(!prof_is_active() && !prof_was_armed());
        set_agents(0, 0);
        call_slowly();
        check_eq(track_rate(), 0);
        check_eq(bin_get_unusual(), 0);
    }
}

TEST(agents_change_nothing_for_a_profiler_that_is_on) {
    arm(12);
    set_agents(1, 1);
    call_slowly();
    prof_set_active(false);
    check_eq(track_rate(), 1 << 12);
    check_eq(record(0, 100, 112), PROF_UNRECORDED);
    release(PROF_UNRECORDED, 112);
    prof_set_active(true);
    uint32_t id = record(0, 100, 112);
    check(id != 0 && id != PROF_UNRECORDED);
    release(id, 112);
    set_agents(0, 0);
    call_slowly();
    check_eq(track_rate(), 1 << 12);
    check_eq(bin_get_unusual(), BIN_SAMPLING);
}

/* The sum over many samples of an object is what they stand for; each is a multiple of the rate. */
TEST(weights_for_agents_are_right_in_the_mean) {
    enum { DRAWS = 20000 };
    static const struct {
        size_t usable;
        unsigned lg_rate;
    } cases[] = {{16, 19}, {4096, 12}, {100000, 15}, {1 << 20, 19}, {64 << 20, 19}};
    start_heap();
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double rate = (double)(UINT64_C(1) << cases[i].lg_rate);
        double chance = -expm1(-(double)cases[i].usable / rate);
        double sum = 0;
        for (unsigned draw = 0; draw < DRAWS; draw++) {
            uint64_t weight = usdt_weight(cases[i].usable, UINT64_C(1) << cases[i].lg_rate);
            check(weight > 0 && weight % (UINT64_C(1) << cases[i].lg_rate) == 0);
            sum += (double)weight;
        }
        double wanted = (double)cases[i].usable / chance * DRAWS;
        check(fabs(sum - wanted) < 6 * rate * 0.5 * sqrt(DRAWS)); /* each is off by less than one */
    }
    check_eq(usdt_weight(12345, 1), 12345);
}
