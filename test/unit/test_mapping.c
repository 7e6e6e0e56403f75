/* SPDX-License-Identifier: MIT
 *
 * test_mapping.c - the set of the program's mappings against a model that knows each page.
 *
 * Nothing is mapped: the kernel's answers are made here, so that any layout can be tried.
 */
#define _GNU_SOURCE
#include "base/os.h"
#include "prof/mapping.h"

#include <errno.h>

#include "heap/fast.h"
#include "opt/opt.h"
#include "prof/prof.h"
#include "unit.h"

enum { PAGE = 4096, PAGES = 512, STEPS = 20000 };
#define REGION ((uintptr_t)1 << 40)

static int next_error;
static intptr_t next_answer;
static _Atomic bool waits, is_waiting; /* whoever unmaps what lies behind the model */

int __real_os_unmap(void *start, size_t bytes);
int __wrap_os_unmap(void *start, size_t bytes);
int __wrap_os_unmap(void *start, size_t bytes) {
    while (waits && start == (void *)(REGION + (uintptr_t)PAGES * PAGE)) {
        is_waiting = true;
    }
    bool is_ours = (uintptr_t)start - REGION < (uintptr_t)1 << 32;
    return is_ours ? next_error : __real_os_unmap(start, bytes);
}

intptr_t __wrap_os_remap_for_program(const struct os_remap_call *call);
intptr_t __wrap_os_remap_for_program(const struct os_remap_call *call) {
    (void)call;
    return next_answer;
}

/* ---------------------------------------------------------------- the model */

static uint32_t owner[PAGES]; /* number of the mapping that a page belongs to; 0: none */
static uint32_t mappings;

static void set(unsigned first, unsigned count, uint32_t number) {
    for (unsigned i = first; i < first + count && i < PAGES; i++) {
        owner[i] = number;
    }
}

/* Pages, runs of pages of one mapping, and mappings that have a page. */
struct model {
    size_t bytes;
    uint32_t ranges, objects;
};

static struct model read_model(void) {
    static uint8_t is_seen[STEPS + 1];
    struct model model = {0};
    memset(is_seen, 0, sizeof is_seen);
    for (unsigned i = 0; i < PAGES; i++) {
        if (owner[i] != 0) {
            model.bytes += PAGE;
            model.ranges += i == 0 || owner[i - 1] != owner[i];
            model.objects += !is_seen[owner[i]];
            is_seen[owner[i]] = 1;
        }
    }
    return model;
}

static void check_model(void) {
    struct model model = read_model();
    struct mapping_sum sum = mapping_read();
    struct prof_totals totals;
    prof_read_totals(&totals);
    check_eq(sum.bytes, model.bytes);
    check_eq(sum.ranges, model.ranges);
    check_eq(totals.live.objects, model.objects);
    check_eq(totals.live.bytes, model.bytes);
    /* Whatever the rate is, a mapping stands for itself. */
    check(totals.live.all_bytes == (double)model.bytes);
    check(totals.live.all_objects == (double)model.objects);
}

/* ---------------------------------------------------------------- calls */

static void *address(unsigned page) {
    return (void *)(REGION + (uintptr_t)page * PAGE);
}

static void map(unsigned first, unsigned count) {
    mapping_added((uintptr_t)address(first), (size_t)count * PAGE - 17);
    set(first, count, ++mappings);
}

static void unmap(unsigned first, unsigned count) {
    check_eq(mapping_unmap(address(first), (size_t)count * PAGE), next_error);
    if (next_error == 0) {
        set(first, count, 0);
    }
}

static void remap(unsigned first, unsigned count, unsigned to, unsigned new_count, int flags) {
    struct os_remap_call call = {address(first), (size_t)count * PAGE, (size_t)new_count * PAGE,
                                 flags, address(to)};
    bool stays = new_count <= count && !(flags & OS_REMAP_HAS_ADDRESS);
    next_answer = (intptr_t)address(stays ? first : to);
    check_eq(mapping_remap(&call), next_answer);
    if (stays) {
        set(first + new_count, count - new_count, 0);
    } else {
        if (!(flags & OS_REMAP_KEEPS_OLD)) {
            set(first, count, 0);
        }
        set(to, new_count, ++mappings);
    }
}

static void begin(const char *conf) {
    start_heap_with(conf);
    thread_mark_inside(true);
    check(mapping_mode & MAPPING_RECORD);
}

#define CONF "prof:true,lg_prof_sample:60,prof_mmap:true"

TEST(a_hole_makes_two_ranges_of_one_mapping) {
    begin(CONF);
    map(10, 10);
    unmap(12, 3);
    check_eq(mapping_read().ranges, 2);
    check_model();
    unmap(0, 12); /* and more than there is */
    check_model();
    unmap(15, 5);
    check_eq(mapping_read().ranges, 0);
    check_model();
}

TEST(what_is_mapped_over_others_replaces_them) {
    begin(CONF);
    map(0, 4);
    map(4, 4);
    map(8, 4);
    map(2, 8);
    check_eq(mapping_read().ranges, 3);
    check_model();
    map(0, 100);
    check_eq(mapping_read().ranges, 1);
    check_model();
}

TEST(memory_that_is_moved_belongs_to_who_moved_it) {
    begin(CONF);
    map(0, 8);
    remap(0, 8, 0, 3, 0);
    check_model();
    remap(0, 3, 100, 6, 1);
    check_model();
    remap(100, 6, 200, 6, 1 | OS_REMAP_KEEPS_OLD);
    check_eq(mapping_read().bytes, 12 * PAGE);
    check_model();
}

TEST(a_call_that_fails_changes_nothing) {
    begin(CONF);
    map(0, 8);
    next_error = -ENOMEM;
    unmap(2, 2);
    check_model();
    next_answer = -EFAULT;
    struct os_remap_call call = {address(0), 8 * PAGE, 16 * PAGE, 1, NULL};
    check_eq(mapping_remap(&call), -EFAULT);
    check_model();
}

TEST(any_sequence_of_calls_leaves_what_the_model_says) {
    begin(CONF);
    struct random random = random_start(2024, 0);
    for (unsigned step = 0; step < STEPS / SLOWER; step++) {
        unsigned first = (unsigned)random_below(&random, PAGES - 40);
        unsigned count = 1 + (unsigned)random_below(&random, 20);
        unsigned to = (unsigned)random_below(&random, PAGES - 40);
        switch (random_below(&random, 4)) {
        case 0:
            map(first, count);
            break;
        case 1:
        case 2:
            unmap(first, count);
            break;
        default:
            to = to + 40 < first || to > first + 40 ? to : (first + 60) % (PAGES - 40);
            remap(first, count, to, count + (unsigned)random_below(&random, 3), 1 | 2);
        }
        if (step % 16 == 0) {
            check_model();
        }
    }
    check_model();
}

TEST(a_profiler_that_is_off_records_nothing_and_still_sees_ends) {
    begin(CONF);
    map(0, 8);
    prof_set_active(false);
    mapping_added((uintptr_t)address(100), PAGE);
    check_model();
    unmap(0, 3);
    check_model();
    mapping_added((uintptr_t)address(3), PAGE); /* in place of what was there */
    set(3, 1, 0);
    check_model();
    prof_set_active(true);
    map(20, 1);
    check_model();
}

TEST(there_is_a_most) {
    begin(CONF);
    enum { MANY = 70000, MOST = 65536 };
    for (uintptr_t i = 0; i < MANY; i++) {
        mapping_added(REGION + i * 2 * PAGE, PAGE);
    }
    struct prof_totals totals;
    prof_read_totals(&totals);
    check_eq(mapping_read().ranges, MOST);
    check_eq(totals.live.objects, MOST);
    check_eq(totals.drops, MANY - MOST);
    check_eq(mapping_unmap((void *)REGION, (size_t)MANY * 2 * PAGE), 0);
    check_eq(mapping_read().ranges, 0);
    prof_read_totals(&totals);
    check_eq(totals.live.bytes, 0);
}

TEST(only_mappings_are_recorded_if_that_is_wanted) {
    start_heap_with("prof:true,lg_prof_sample:0,prof_mmap_only:true");
    struct prof_totals totals;
    void *object = tally_malloc(100000);
    thread_mark_inside(true);
    prof_read_totals(&totals);
    check_eq(totals.accumulated.objects, 0);
    map(0, 3);
    check_model();
    thread_mark_inside(false);
    tally_free(object);
}

TEST(prof_stats_and_recent_samples_are_about_objects) {
    begin("prof:true,lg_prof_sample:0,prof_mmap:true,prof_stats:true,prof_recent_alloc_max:-1");
    struct prof_class_sum sum;
    uint64_t cursor = 0;
    struct prof_event recent;
    while (prof_recent_walk(&cursor, &recent)) { /* what was sampled at the start */
    }
    map(0, 16);
    check(prof_read_class(16 * PAGE, true, &sum));
    check_eq(sum.count, 0);
    check(!prof_recent_walk(&cursor, &recent));
    unmap(0, 16);
    check(!prof_recent_walk(&cursor, &recent));
}

/* ---------------------------------------------------------------- fork */

static void *unmap_and_wait(void *unused) {
    (void)unused;
    thread_mark_inside(true);
    (void)mapping_unmap(address(PAGES), PAGE);
    thread_mark_inside(false);
    return NULL;
}

/* The child finds the lock as a thread left it that it does not have. */
TEST(a_child_of_a_fork_in_the_middle_has_its_ranges) {
    pthread_t thread;
    begin(CONF);
    for (unsigned i = 0; i < 20; i++) {
        map(i * 7 % 20 * 10, 8);
    }
    unmap(3, 1);
    unmap(40, 8);
    check_model();
    waits = true;
    check_eq(pthread_create(&thread, NULL, unmap_and_wait, NULL), 0);
    while (!is_waiting) {
        usleep(100);
    }
    check_child({
        check_model();
        map(42, 3);
        unmap(0, 13);
        check_model();
    });
    waits = false;
    check_eq(pthread_join(thread, NULL), 0);
    check_model();
}
