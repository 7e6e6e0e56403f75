/* SPDX-License-Identifier: MIT
 *
 * test_leak.c - what is lost is found, exactly, and nothing else; a check that cannot be made is not made.
 *
 * test_roots.c has what holds objects, test_stop.c the threads that must stand still meanwhile.
 */
#include <jemalloc/jemalloc.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "heap/counts.h"
#include "heap/fast.h"
#include "heap/hooks.h"
#include "leak/leak.h"
#include "leak_checks.h"
#include "prof/prof.h"
#include "unit.h"

TEST_SETUP(need_plain_memory);

/* ---------------------------------------------------------------- plain */

TEST(an_empty_heap_has_no_leaks_and_says_what_it_looked_at) {
    start_heap();
    struct leak_result *result = check_now();
    expect_nothing(result);
    check_eq(result->heap_bytes, 0);
    check_eq(result->reachable.objects, 0);
    check(result->root_bytes > 4096);
    check_eq(result->threads, 1);
    check_eq(result->unanswered, 0);
    check(result->pause_ns > 0 && result->total_ns >= result->pause_ns);
    check_str(result->why, "");
    leak_release(result);
}

TEST(a_lost_object_is_definite_and_one_that_is_held_is_not) {
    start_heap();
    held = make(1000);
    lose_all_of(lose_three);
    struct leak_result *result = check_now();
    expect(result, LEAK_DEFINITE, 3, 3 * 112);
    expect(result, LEAK_INDIRECT, 0, 0);
    check_eq(result->reachable.objects, 1);
    check_eq(result->reachable.bytes, tally_usable_size(held));
    check_eq(result->heap_bytes, 3 * 112 + tally_usable_size(held));
    check_eq(result->group_count, 1);
    check_eq(result->groups[0].usable, 112);
    check_eq(result->groups[0].stack, 0);
    check_eq(result->groups[0].sum.objects, 3);
    check_eq(result->object_count, 3);
    check_eq(result->objects[0].usable, 112);
    check_eq(result->objects_left_out, 0);
    leak_release(result);
}

TEST(what_is_freed_is_not_lost_wherever_it_waits) {
    enum { COUNT = 5000 };
    static void *objects[COUNT];
    start_heap();
    for (int i = 0; i < COUNT; i++) {
        objects[i] = make(16 + (size_t)i % 900);
    }
    for (int i = 0; i < COUNT; i++) { /* into magazines, depots and slabs */
        tally_free(objects[i]);
    }
    struct leak_result *result = check_now();
    expect_nothing(result);
    check_eq(result->reachable.objects, 0);
    leak_release(result);
    tally_purge();
    expect_all_held();
}

TEST(the_sums_agree_with_what_the_heap_has_counted) {
    enum { COUNT = 20000 };
    static void *objects[COUNT];
    start_heap();
    struct random random = random_start(7, 0);
    for (int i = 0; i < COUNT; i++) {
        objects[i] = make(1 + random_below(&random, i % 100 == 0 ? 300 * KIB : 2000));
    }
    for (int i = 0; i < COUNT; i += 3) {
        tally_free(objects[i]);
        objects[i] = NULL;
    }
    struct leak_result *result = check_now();
    struct heap_totals totals = heap_totals();
    expect_nothing(result);
    check_eq(result->reachable.objects, totals.live_objects);
    check_eq(result->reachable.bytes, totals.live);
    leak_release(result);
    memset(objects, 0, sizeof(objects));
    result = check_now();
    check_eq(result->kinds[LEAK_DEFINITE].objects + result->kinds[LEAK_INDIRECT].objects,
             totals.live_objects);
    check_eq(result->kinds[LEAK_DEFINITE].bytes + result->kinds[LEAK_INDIRECT].bytes, totals.live);
    leak_release(result);
}

/* ---------------------------------------------------------------- what leads to what */

static void lose_tree(void) {
    void **root = make(64);
    root[0] = make(200);
    root[1] = make(300);
    *(void **)root[0] = make(40);
}

TEST(what_only_a_lost_object_holds_is_indirect) {
    start_heap();
    lose_all_of(lose_tree);
    expect_lost(1, 64, 3, 208 + 320 + 48);
}

static void lose_ring(void) {
    void **first = make(64), **second = make(64), **third = make(64);
    *first = second;
    *second = third;
    *third = first;
    third[1] = make(128);
}

TEST(of_a_ring_one_is_definite) {
    start_heap();
    lose_all_of(lose_ring);
    expect_lost(1, 64, 3, 2 * 64 + 128);
}

/* a and b lead to the ring c <-> d; none leads to a or b.  The ring comes first in memory. */
static void lose_two_heads(void) {
    void **c = make(64), **d = make(64), **a = make(64), **b = make(64);
    *c = d;
    *d = c;
    *a = d;
    *b = d;
}

TEST(a_ring_that_lost_objects_lead_to_is_indirect_in_any_order) {
    start_heap();
    lose_all_of(lose_two_heads);
    expect_lost(2, 128, 2, 128);
}

static void lose_itself(void) {
    void **self = make(64);
    *self = self;
}

TEST(an_object_that_leads_to_itself_is_definite) {
    start_heap();
    lose_all_of(lose_itself);
    expect_lost(1, 64, 0, 0);
}

static void lose_list(void) {
    void **last = NULL;
    for (int i = 0; i < 200000; i++) {
        void **item = make(16);
        *item = last;
        last = item;
    }
}

TEST(a_list_of_any_length_is_followed) {
    start_heap();
    lose_all_of(lose_list);
    expect_lost(1, 16, 199999, 199999 * 16);
    struct leak_result *result = check_now();
    check_eq(result->object_count, LEAK_OBJECTS_MOST);
    check_eq(result->objects_left_out, 200000 - LEAK_OBJECTS_MOST);
    leak_release(result);
}

TEST(a_quick_check_calls_all_of_it_definite) {
    start_heap();
    lose_all_of(lose_tree);
    struct leak_result *result = check_with((struct leak_wish){.is_quick = true});
    expect(result, LEAK_DEFINITE, 4, 64 + 208 + 320 + 48);
    expect(result, LEAK_INDIRECT, 0, 0);
    leak_release(result);
}

/* ---------------------------------------------------------------- pointers to the inside */

static void hold_inside(void) {
    char *object = make(1000);
    *(void **)(void *)(object + 8) = make(64);
    held = object + 500;
}

TEST(what_only_a_pointer_to_its_inside_holds_is_possible_with_what_it_leads_to) {
    start_heap();
    lose_all_of(hold_inside);
    struct leak_result *result = check_now();
    expect(result, LEAK_POSSIBLE, 2, 1024 + 64);
    expect(result, LEAK_DEFINITE, 0, 0);
    leak_release(result);
    result = check_with((struct leak_wish){.max_offset = 499});
    expect(result, LEAK_DEFINITE, 1, 1024);
    expect(result, LEAK_INDIRECT, 1, 64);
    leak_release(result);
    held = (char *)held - 500 + 8; /* past a cookie of new[] */
    expect_all_held();
    held = (char *)held + 56;
    expect_all_held();
}

static void hold_both(void) {
    char *object = make(1000);
    *(void **)(void *)object = object + 700;
    held = make(64);
    *(void **)held = object + 900;
    ((void **)held)[1] = object;
}

TEST(one_pointer_to_the_start_is_enough) {
    start_heap();
    lose_all_of(hold_both);
    expect_all_held();
}

static void hold_unaligned(void) {
    static char bytes[32];
    held = NULL;
    void *object = make(64);
    memcpy(bytes + 3, &object, sizeof(object));
}

TEST(a_pointer_at_an_odd_address_counts_if_the_step_is_one) {
    start_heap();
    lose_all_of(hold_unaligned);
    expect_lost(1, 64, 0, 0);
    struct leak_result *result = check_with((struct leak_wish){.step = 1});
    expect_nothing(result);
    leak_release(result);
}

/* ---------------------------------------------------------------- kinds of objects */

static void lose_resized(void) {
    void *object = make(40);
    for (size_t size = 80; size <= 3 * MIB; size *= 2) {
        object = tally_realloc(object, size);
        check(object != NULL);
    }
}

TEST(a_resized_object_is_lost_once) {
    start_heap();
    lose_all_of(lose_resized);
    struct leak_result *result = check_now();
    check_eq(result->kinds[LEAK_DEFINITE].objects, 1);
    check(result->kinds[LEAK_DEFINITE].bytes >= 2 * MIB);
    leak_release(result);
}

static void lose_aligned(void) {
    for (size_t alignment = 32; alignment <= 4 * MIB; alignment *= 2) {
        void *object = tally_aligned_alloc(alignment, 100);
        check(object != NULL && (uintptr_t)object % alignment == 0);
    }
}

TEST(aligned_objects_are_lost) {
    start_heap();
    lose_all_of(lose_aligned);
    struct leak_result *result = check_now();
    check_eq(result->kinds[LEAK_DEFINITE].objects, 18);
    leak_release(result);
}

static void lose_large(void) {
    for (int i = 0; i < 4; i++) {
        char *object = make(5 * MIB);
        *(void **)(void *)(object + 4 * MIB + 800) = make(64); /* far inside */
    }
}

TEST(large_objects_are_lost_and_followed_to_their_end) {
    start_heap();
    held = make(40 * MIB);
    lose_all_of(lose_large);
    expect_lost(4, 4 * 5 * (uint64_t)MIB, 4, 4 * 64);
}

static void hold_moved(void) {
    void **object = make(300 * KIB);
    object[10] = make(64);
    void *others[8];
    for (int i = 0; i < 8; i++) {
        others[i] = make(MIB);
    }
    held = tally_realloc(object, 30 * MIB); /* it has to move */
    for (int i = 0; i < 8; i++) {
        tally_free(others[i]);
    }
}

TEST(a_moved_object_is_held_and_lost_as_any_other) {
    start_heap();
    lose_all_of(hold_moved);
    expect_all_held();
    held = NULL;
    expect_lost(1, 30 * (uint64_t)MIB, 1, 64);
}

/* Few of its pages exist. */
TEST(a_sparse_object_is_followed) {
    start_heap();
    char *sparse = tally_calloc(1, (size_t)8 << 30);
    if (sparse == NULL) {
        skip("there are no 8 GiB of addresses");
    }
    *(void **)(void *)(sparse + ((size_t)5 << 30)) = make(64);
    held = sparse;
    sparse = NULL;
    expect_all_held();
    tally_free(held);
    held = NULL;
    expect_lost(1, 64, 0, 0);
}

static void lose_in_arena(void) {
    unsigned arena = 0;
    size_t bytes = sizeof(arena);
    check_eq(je_mallctl("arenas.create", &arena, &bytes, NULL, 0), 0);
    check(je_mallocx(100, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE) != NULL);
    void *cached = je_mallocx(200, MALLOCX_ARENA(arena));
    je_dallocx(cached, 0);
    unsigned cache = 0;
    bytes = sizeof(cache);
    check_eq(je_mallctl("tcache.create", &cache, &bytes, NULL, 0), 0);
    je_dallocx(je_mallocx(300, MALLOCX_TCACHE(cache)), MALLOCX_TCACHE(cache));
}

TEST(objects_of_manual_arenas_are_lost_and_those_in_explicit_caches_are_free) {
    start_heap();
    lose_all_of(lose_in_arena);
    expect_lost(1, 112, 0, 0);
}

/* Hooks that are kept by the library alone, in memory of the program. */
static void lose_hooked(void) {
    unsigned arena = 0;
    size_t bytes = sizeof(arena);
    struct extent_hooks *hooks = make(sizeof(*hooks));
    *hooks = hooks_default;
    check_eq(je_mallctl("arenas.create", &arena, &bytes, &hooks, sizeof(hooks)), 0);
    void **root = je_mallocx(100, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
    *root = je_mallocx(MIB, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
    check(*root != NULL);
    je_dallocx(je_mallocx(500, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE), MALLOCX_TCACHE_NONE);
}

TEST(objects_in_memory_from_extent_hooks_are_lost_and_the_hooks_are_held) {
    start_heap();
    lose_all_of(lose_hooked);
    struct leak_result *result = check_now();
    expect(result, LEAK_DEFINITE, 1, 112);
    expect(result, LEAK_INDIRECT, 1, MIB);
    check_eq(result->reachable.objects, 1);
    leak_release(result);
}

/* ---------------------------------------------------------------- wishes */

static void hold_in_data(void) {
    held = make(64);
}

TEST(globals_can_be_left_out) {
    start_heap();
    void *volatile local[1] = {make(80)};
    lose_all_of(hold_in_data);
    struct leak_result *result = check_with((struct leak_wish){.skip_globals = true});
    expect(result, LEAK_DEFINITE, 1, 64);
    check_eq(result->reachable.objects, 1);
    leak_release(result);
    result = check_with((struct leak_wish){.skip_threads = true});
    expect(result, LEAK_DEFINITE, 1, 80);
    check_eq(result->reachable.objects, 1);
    leak_release(result);
    result = check_with((struct leak_wish){.skip_threads = true, .skip_globals = true});
    expect(result, LEAK_DEFINITE, 2, 64 + 80);
    leak_release(result);
    check(local[0] != NULL);
}

TEST(a_search_in_place_finds_the_same) {
    start_heap();
    held = make(500);
    lose_all_of(lose_tree);
    lose_all_of(lose_ring);
    for (int i = 0; i < 2; i++) {
        struct leak_result *result =
            check_with((struct leak_wish){.in_place = true, .max_pause_ns = UINT64_MAX / 4});
        expect(result, LEAK_DEFINITE, 2, 128);
        expect(result, LEAK_INDIRECT, 6, 208 + 320 + 48 + 2 * 64 + 128);
        check_eq(result->reachable.objects, 1);
        leak_release(result);
    }
}

TEST(a_search_in_place_gives_up_in_time) {
    start_heap();
    held = make(500);
    lose_list();
    struct leak_wish wish = {.in_place = true, .max_pause_ns = 1};
    struct leak_result *result;
    check(!leak_check(&wish, &result));
    check_str(result->why, "the search took longer than it may hold up the program");
    leak_release(result);
    check(leak_check(&(struct leak_wish){0}, &result));
    leak_release(result);
}

TEST(where_the_process_cannot_be_copied_it_is_searched_in_place) {
    if (geteuid() == 0) { /* no limit of processes holds for root */
        check(setuid(65534) == 0);
    }
    start_heap();
    lose_all_of(lose_tree);
    struct rlimit limit = {1, 1};
    check(setrlimit(RLIMIT_NPROC, &limit) == 0);
    struct leak_result *result;
    check(prctl(PR_SET_DUMPABLE, 0) == 0);
    if (geteuid() != 0 && !leak_check(&(struct leak_wish){0}, &result)) {
        check_str(result->why, "/proc/thread-self/pagemap cannot be read, and without a copy of the"
                               " process that is not safe");
        leak_release(result);
    }
    check(prctl(PR_SET_DUMPABLE, 1) == 0);
    result = check_now();
    expect(result, LEAK_DEFINITE, 1, 64);
    expect(result, LEAK_INDIRECT, 3, 208 + 320 + 48);
    check_str(result->why,
              "the process could not be copied (11), so its threads were held up for the search");
    leak_release(result);
}

TEST(where_the_process_cannot_be_copied_threads_must_stop) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_while_signals_are_blocked);
    struct leak_result *result;
    check(!leak_check(&(struct leak_wish){.in_place = true}, &result));
    check_str(result->why, "there are threads that cannot be stopped, and without a copy of the"
                           " process that is not safe");
    leak_release(result);
    end_thread(thread);
}

TEST(no_check_is_made_behind_a_filter_of_system_calls) {
    struct sock_filter allow = {.code = BPF_RET | BPF_K, .k = SECCOMP_RET_ALLOW};
    struct sock_fprog program = {1, &allow};
    start_heap();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        skip("there are no filters here");
    }
    struct leak_result *result;
    check(!leak_check(&(struct leak_wish){0}, &result));
    check_str(result->why, "the program has put itself behind a filter of system calls");
    leak_release(result);
}

static _Atomic unsigned refused;

static void check_in_handler(int number) {
    struct leak_result *result = NULL;
    (void)number;
    if (!leak_check(&(struct leak_wish){.max_pause_ns = LONG_PAUSE_NS}, &result) &&
        result != NULL) {
        check_str(result->why, "this thread is making a check");
        refused++;
    }
    leak_release(result);
}

static void *interrupt_again_and_again(void *first) {
    while (refused == 0) {
        pthread_kill(*(pthread_t *)first, SIGUSR1);
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

TEST(a_handler_that_interrupts_a_check_makes_none) {
    pthread_t self = pthread_self(), thread;
    start_heap();
    signal(SIGUSR1, check_in_handler);
    check(pthread_create(&thread, NULL, interrupt_again_and_again, &self) == 0);
    while (refused == 0) {
        expect_all_held();
    }
    check(pthread_join(thread, NULL) == 0);
}

static void *check_until_told(void *unused) {
    struct leak_result *result;
    reach(1);
    while (atomic_load(&stage) < 2) {
        if (!leak_check(&(struct leak_wish){.max_pause_ns = LONG_PAUSE_NS}, &result)) {
            check_str(result->why, "the process ends");
        }
        leak_release(result);
    }
    return unused;
}

TEST(the_last_check_does_not_wait_for_another) {
    pthread_t thread;
    start_heap();
    lose_all_of(lose_three);
    start_thread(&thread, check_until_told);
    for (int i = 0; i < 10; i++) {
        struct leak_result *result =
            check_with((struct leak_wish){.is_last = true, .max_pause_ns = LONG_PAUSE_NS});
        expect(result, LEAK_DEFINITE, 3, 3 * 112);
        leak_release(result);
    }
    end_thread(thread);
}

TEST(no_check_is_made_inside_the_allocator) {
    start_heap();
    struct leak_result *result = (void *)1;
    thread_mark_inside(true);
    check(!leak_check(&(struct leak_wish){0}, &result));
    check_eq(result, NULL);
    check(!leak_ignore(held));
    thread_mark_inside(false);
    leak_release(NULL);
}

/* ---------------------------------------------------------------- with the profiler */

TEST(groups_are_by_stack_where_objects_are_sampled) {
    start_heap_with("prof:true,lg_prof_sample:0");
    lose_all_of(lose_three);
    lose_all_of(lose_tree);
    struct leak_result *result = check_now();
    expect(result, LEAK_DEFINITE, 4, 3 * 112 + 64);
    expect(result, LEAK_INDIRECT, 3, 208 + 320 + 48);
    check_eq(result->group_count, 5);
    for (unsigned i = 0; i < result->group_count; i++) {
        check(result->groups[i].stack != 0);
        check_eq(result->groups[i].usable, 0);
    }
    check_eq(result->objects[0].requested + 12, result->objects[0].usable);
    uintptr_t addresses[PROF_DEPTH_MOST];
    check(prof_read_stack(result->groups[0].stack, addresses, PROF_DEPTH_MOST) > 2);
    leak_release(result);
}

static uint64_t with_below(const struct leak_group *group) {
    return group->sum.bytes + group->below.bytes;
}

TEST(a_group_has_what_hangs_below_it_and_the_largest_with_that_is_first) {
    start_heap_with("prof:true,lg_prof_sample:0");
    lose_all_of(lose_three);
    lose_all_of(lose_tree);
    struct leak_result *result = check_now();
    for (unsigned i = 1; i < result->group_count; i++) {
        check(with_below(&result->groups[i - 1]) >= with_below(&result->groups[i]));
    }
    check_eq(result->groups[0].kind, LEAK_DEFINITE);
    check_eq(result->groups[0].sum.bytes, 64);
    check_eq(result->groups[0].below.objects, 3);
    check_eq(result->groups[0].below.bytes, 208 + 320 + 48);
    check_eq(result->groups[0].below.requested, 200 + 300 + 40);
    check_eq(result->groups[1].sum.objects, 3);
    check_eq(result->groups[1].below.objects, 0);
    leak_release(result);
}

/* ---------------------------------------------------------------- forks */

TEST(a_forked_child_finds_its_own_leaks) {
    start_heap();
    held = make(64);
    lose_all_of(lose_three);
    check_child({
        lose_all_of(lose_tree);
        expect_lost(3 + 1, 3 * 112 + 64, 3, 208 + 320 + 48);
        held = NULL;
        expect_lost(3 + 2, 3 * 112 + 64 + 64, 3, 208 + 320 + 48);
    });
    expect_lost(3, 3 * 112, 0, 0);
}

TEST(the_copy_leaves_no_child_and_no_signal_behind) {
    start_heap();
    expect_all_held();
    check_eq(waitpid(-1, NULL, WNOHANG), -1);
    check_eq(errno, ECHILD);
    sigset_t pending;
    check(sigpending(&pending) == 0 && !sigismember(&pending, SIGCHLD));
}

static void *check_again_and_again(void *unused) {
    while (atomic_load(&stage) < 2) {
        expect_lost(3, 3 * 112, 0, 0);
    }
    return unused;
}

TEST(checks_wait_for_each_other_and_a_child_that_is_forked_meanwhile_can_check) {
    pthread_t threads[2];
    start_heap();
    lose_all_of(lose_three);
    for (int i = 0; i < 2; i++) {
        check(pthread_create(&threads[i], NULL, check_again_and_again, NULL) == 0);
    }
    for (int i = 0; i < 20; i++) {
        check_child({
            expect_lost(3, 3 * 112, 0, 0);
            held = make(64);
            expect_lost(3, 3 * 112, 0, 0);
        });
        held = NULL;
    }
    reach(2);
    for (int i = 0; i < 2; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
}
