/* SPDX-License-Identifier: MIT
 *
 * test_hooked_threads.c - arenas over memory that the program supplies: hooks that allocate or come later,
 * the default table, threads and forks.
 */
#define _GNU_SOURCE
#include <semaphore.h>

#include "base/os.h"
#include "extent_supply.h"
#include "heap/arena.h"
#include "heap/counts.h"
#include "heap/extents.h"
#include "heap/heap.h"
#include "heap/hooked.h"
#include "heap/hooks.h"
#include "heap/thread.h"
#include "unit.h"

/* ---------------------------------------------------------------- hooks that allocate */

TEST(hook_may_allocate) {
    unsigned arena = create_hooked();
    supply.allocates = true;
    work(arena, 9, 300);
    check(arena_destroy(arena));
    check_eq(supply.count, 0);
}

TEST(hook_of_the_callers_own_arena_may_allocate) {
    unsigned arena = create_hooked();
    supply.allocates = true;
    check(thread_set_arena(arena));
    check(tls.modes & THREAD_HOOKED);
    for (unsigned i = 0; i < 300; i++) {
        size_t size = sizes[i % SIZES];
        void *object = tally_malloc(size);
        check_eq(arena_of(object), arena);
        memset(object, 1, size);
        tally_free(object);
        check_eq(thread_count_cached(size_class_of(100)), 0);
    }
    check(thread_set_arena(0));
    check(tls.hot == &tls.self->hot);
    supply.allocates = false;
    check(arena_destroy(arena));
    check_eq(supply.count, 0);
    heap_verify();
}

static struct supply other_supply;
static unsigned other_arena;

/* Another arena's hooks are called from this one, and end before it does. */
static void *alloc_and_destroy_other(struct extent_hooks *table, void *new_addr, size_t size,
                                     size_t alignment, bool *zero, bool *commit, unsigned arena) {
    check(arena_destroy(other_arena));
    check(tls.modes & THREAD_IN_HOOK);
    void *object = tally_malloc(100); /* must not come from the hook that is running */
    check(arena_of(object) != (int)arena);
    tally_free(object);
    return hook_alloc(table, new_addr, size, alignment, zero, commit, arena);
}

TEST(hook_may_destroy_another_arena) {
    unsigned arena = create_hooked();
    other_supply = supply;
    other_supply.arena = other_arena = (unsigned)arena_create(&other_supply.table);
    check(alloc_in(other_arena, 1000) != NULL);
    supply.table.alloc = alloc_and_destroy_other;
    check(thread_set_arena(arena));
    void *object = tally_malloc(1000);
    check_eq(arena_of(object), arena);
    check(!arena_exists(other_arena) && other_supply.count == 0);
    tally_free(object);
}

/* ---------------------------------------------------------------- hooks that come later */

TEST(hooks_set_later_supply_what_comes_later) {
    start_heap_with("narenas:1");
    int arena = arena_create(NULL);
    void *before = alloc_in((unsigned)arena, 100);
    void *large_before = alloc_in((unsigned)arena, MIB);
    check_eq(arena_hooks((unsigned)arena), &hooks_default);
    check(arena_set_hooks((unsigned)arena, prepare_supply()));
    check_eq(supply.count, 0);
    void *after = alloc_in((unsigned)arena, 100);
    check(lies_in_supply(after, 100) && !lies_in_supply(before, 100));
    tally_free(before);
    tally_free(large_before);
    tally_free(after);
    check(arena_set_hooks((unsigned)arena, &hooks_default));
    unsigned calls = supply.calls[ALLOC];
    check(!lies_in_supply(alloc_in((unsigned)arena, 100), 100));
    check_eq(supply.calls[ALLOC], calls);
    check(!arena_set_hooks(77, &supply.table));
    heap_verify();
}

TEST(thread_with_a_cache_notices_hooks_of_its_arena) {
    start_heap_with("narenas:1");
    for (unsigned i = 0; i < 1000; i++) {
        tally_free(tally_malloc(64));
    }
    check(tls.hot == &tls.self->hot);
    prepare_supply();
    supply.arena = 0;
    check(arena_set_hooks(0, &supply.table));
    void *object = NULL;
    for (unsigned i = 0; i < 10000 && tls.hot == &tls.self->hot; i++) {
        object = tally_malloc(64);
        check(object != NULL);
    }
    check(tls.modes & THREAD_HOOKED);
    object = tally_malloc(64);
    check(lies_in_supply(object, 64));
    tally_free(object);
    object = tally_malloc(20000);
    check(lies_in_supply(object, 20000));
    supply.allocates = false;
    check(lies_in_supply(tally_malloc(MIB), MIB));
    check(arena_set_hooks(0, &hooks_default));
    tally_free(tally_malloc(64));
    check(!(tls.modes & THREAD_HOOKED) && tls.hot == &tls.self->hot);
    heap_verify();
}

static void *be_a_short_thread(void *argument) {
    (void)argument;
    for (unsigned i = 0; i < 3; i++) { /* too few for a heap */
        void *object = tally_malloc(sizes[i]);
        check(lies_in_supply(object, sizes[i]));
        tally_free(object);
    }
    return NULL;
}

TEST(thread_without_a_heap_is_served_by_hooks_too) {
    start_heap_with("narenas:1");
    prepare_supply();
    supply.arena = 0;
    check(arena_set_hooks(0, &supply.table));
    run_threads(1, be_a_short_thread, NULL);
}

/* ---------------------------------------------------------------- the default table */

TEST(default_hooks_work_for_whoever_calls_them) {
    start_heap();
    struct extent_hooks *hooks = arena_hooks(0);
    bool zero = false, commit = false;
    for (size_t alignment = os_facts.page_bytes; alignment <= 8 << 20; alignment *= 2) {
        char *start = hooks->alloc(hooks, NULL, 4 * MIB, alignment, &zero, &commit, 0);
        check(start != NULL && (uintptr_t)start % alignment == 0 && zero && commit);
        check_eq(start[4 * MIB - 1], 0);
        memset(start, 1, 4 * MIB);
        check(!hooks->purge_forced(hooks, start, 4 * MIB, MIB, MIB, 0));
        check(start[MIB] == 0 && start[MIB - 1] == 1);
        check(!hooks->purge_lazy(hooks, start, 4 * MIB, 0, MIB, 0));
        check(!hooks->decommit(hooks, start, 4 * MIB, 2 * MIB, MIB, 0));
        check(!hooks->commit(hooks, start, 4 * MIB, 2 * MIB, MIB, 0));
        check_eq(start[2 * MIB], 0);
        start[2 * MIB] = 1;
        check(!hooks->split(hooks, start, 4 * MIB, MIB, 3 * MIB, true, 0));
        check(!hooks->merge(hooks, start, MIB, start + MIB, 3 * MIB, true, 0));
        check(!hooks->dalloc(hooks, start, 4 * MIB, true, 0));
        check(hooks->alloc(hooks, start, 4 * MIB, alignment, &zero, &commit, 0) == start);
        check(hooks->alloc(hooks, start, 4 * MIB, alignment, &zero, &commit, 0) == NULL);
        hooks->destroy(hooks, start, 4 * MIB, true, 0);
    }
    check(hooks->alloc(hooks, NULL, (size_t)1 << 60, 4096, &zero, &commit, 0) == NULL);
}

static unsigned wrapped_calls;

static void *wrapped_alloc(struct extent_hooks *hooks, void *new_addr, size_t size,
                           size_t alignment, bool *zero, bool *commit, unsigned arena) {
    (void)hooks;
    wrapped_calls++;
    return hooks_default.alloc(&hooks_default, new_addr, size, alignment, zero, commit, arena);
}

TEST(copy_of_the_default_table_with_one_member_wrapped_works) {
    start_heap_with("narenas:1");
    static struct extent_hooks wrapped;
    wrapped = *arena_hooks(0);
    wrapped.alloc = wrapped_alloc;
    unsigned arena = (unsigned)arena_create(&wrapped);
    work(arena, 3, 500);
    check(wrapped_calls > 0);
    check(arena_destroy(arena));
    check_eq(hooked_totals(arena).mapped, 0);
    heap_verify();
}

/* ---------------------------------------------------------------- threads and forks */

static _Atomic unsigned workers;

static void *work_in_thread(void *argument) {
    (void)argument;
    struct random random = random_start(workers++, 7);
    void *held[20] = {NULL};
    for (unsigned i = 0; i < 4000 / SLOWER; i++) {
        unsigned k = (unsigned)random_below(&random, 20);
        if (held[k] == NULL) {
            held[k] = alloc_in(1, sizes[random_below(&random, SIZES - 2)]);
            check(held[k] != NULL);
            *(void **)held[k] = held + k;
        } else {
            check_eq(*(void **)held[k], held + k);
            tally_free(held[k]);
            held[k] = NULL;
        }
        __atomic_fetch_add(&now_ms, 1, __ATOMIC_RELAXED);
    }
    for (unsigned k = 0; k < 20; k++) {
        if (held[k] != NULL) {
            tally_free(held[k]);
        }
    }
    return NULL;
}

TEST(threads_share_an_arena_with_hooks) {
    static const ssize_t times[] = {0, 20, -1};
    for (unsigned i = 0; i < 3; i++) {
        check_child({
            unsigned arena = create_hooked();
            check(arena_set_decay_ms(arena, CHUNK_DIRTY, times[i]));
            size_t live = heap_totals().live;
            run_threads(4, work_in_thread, NULL);
            heap_verify();
            thread_flush();
            check_eq(heap_totals().live, live);
            check(arena_destroy(arena));
            check_eq(supply.count, 0);
        });
    }
}

static void *work_for_ever(void *argument) {
    for (;;) {
        (void)work_in_thread(argument);
    }
    return NULL;
}

TEST(child_of_a_fork_works_on) {
    unsigned arena = create_hooked();
    supply.table.decommit = NULL;
    check(arena_set_decay_ms(arena, CHUNK_DIRTY, 5));
    pthread_t threads[3];
    for (unsigned i = 0; i < 3; i++) {
        check(pthread_create(&threads[i], NULL, work_for_ever, NULL) == 0);
    }
    for (unsigned i = 0; i < 60 / SLOWER; i++) {
        check_child({
            pthread_mutex_init(&supply.lock, NULL); /* another may have held it */
            for (unsigned k = 0; k < 100; k++) {
                void *object = alloc_in(arena, sizes[k % SIZES]);
                check(object != NULL);
                tally_free(object);
            }
            extents_verify(arena_hooked(arena));
        });
    }
}

/* ---------------------------------------------------------------- a fork at a chosen moment */

/* Counts down to the change of the chunk table in whose midst the process is forked. */
static int changes_before_fork = -1;

/* The thread that changes the table is not in the child. */
static void *work_in_child(void *argument) {
    (void)argument;
    for (unsigned k = 0; k < 4 * SIZES; k++) {
        void *object = alloc_in(1, sizes[k % SIZES]);
        check(object != NULL);
        tally_free(object);
    }
    extents_verify(arena_hooked(1));
    return NULL;
}

static sem_t fork_now, fork_done;

static void *fork_when_told(void *argument) {
    check(sem_wait(&fork_now) == 0);
    check_child(work_in_child(argument));
    check(sem_post(&fork_done) == 0);
    return NULL;
}

static void fork_if_it_is_time(void) {
    if (changes_before_fork >= 0 && changes_before_fork-- == 0) {
        check(sem_post(&fork_now) == 0 && sem_wait(&fork_done) == 0);
    }
}

void __real_classmap_enter(struct chunk *chunk);
void __wrap_classmap_enter(struct chunk *chunk);
void __wrap_classmap_enter(struct chunk *chunk) {
    fork_if_it_is_time();
    __real_classmap_enter(chunk);
}

void __real_classmap_leave(const struct chunk *chunk);
void __wrap_classmap_leave(const struct chunk *chunk);
void __wrap_classmap_leave(const struct chunk *chunk) {
    fork_if_it_is_time();
    __real_classmap_leave(chunk);
}

/* An extent of three chunks is entered, and then taken out: each time one chunk after the other. */
TEST(child_of_a_fork_in_the_midst_of_an_extent_works_on) {
    for (int changes = 0; changes < 6; changes++) {
        check_child({
            unsigned arena = create_hooked();
            check(arena_set_decay_ms(arena, CHUNK_DIRTY, 0));
            pthread_t thread;
            check(pthread_create(&thread, NULL, fork_when_told, NULL) == 0);
            changes_before_fork = changes;
            tally_free(alloc_in(arena, 5 * MIB));
            check(changes_before_fork < 0 && pthread_join(thread, NULL) == 0);
        });
    }
}
