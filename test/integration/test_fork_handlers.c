/* SPDX-License-Identifier: MIT
 *
 * test_fork_handlers.c - handlers of fork that allocate, and that fork.
 *
 * Libraries register handlers before the allocator has started and after it, and all of them may
 * allocate: before the fork, behind it in the parent, and in the child before or after the
 * allocator's own handler has run.  One set registers from .preinit_array of the program, earlier
 * than any constructor; the others follow in main, more than libc has room for without allocating.
 *
 *      prepare     in reverse order of registration: theirs, ours, the first ones'
 *      parent      in order of registration
 *      child       in order of registration: the first ones', ours, theirs
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>

#include <tally/tally.h>

#include "random.h"
#include "watch.h"

TEST_SETUP(require_tally);

enum { LATE_HANDLERS = 60, SIZES = 23, CHILDREN = 20, ALLOCATORS = 4, LARGEST = 4 << 20 };
enum { STEPS_OF_CHILDREN, STEPS_OF_NESTED };

/* One set of handlers, with what its prepare handler leaves to the other two. */
struct handlers {
    char *blocks[SIZES];
    unsigned prepared, in_parent, in_child;
};

static struct handlers early, late;
static bool armed; /* the early handlers are registered for every test, but work for some only */
static bool nesting;
static atomic_bool stop;

/* 1 byte to 4 MiB. */
static void allocate_all(struct handlers *set) {
    for (unsigned i = 0; i < SIZES; i++) {
        size_t size = (size_t)1 << i;
        free(malloc(size + 1));
        set->blocks[i] = malloc(size);
        check(set->blocks[i] != NULL);
        set->blocks[i][0] = set->blocks[i][size - 1] = (char)i;
    }
}

static void free_all(struct handlers *set) {
    for (unsigned i = 0; i < SIZES; i++) {
        check_eq(set->blocks[i][((size_t)1 << i) - 1], (char)i);
        free(set->blocks[i]);
        set->blocks[i] = NULL;
        free(malloc((size_t)1 << i));
    }
}

static void prepare(struct handlers *set) {
    if (armed) {
        allocate_all(set);
        set->prepared++;
    }
}

static void in_parent(struct handlers *set) {
    if (armed) {
        free_all(set);
        set->in_parent++;
    }
}

static void in_child(struct handlers *set) {
    if (armed) {
        free_all(set);
        set->in_child++;
    }
}

static void early_prepare(void) {
    prepare(&early);
}

static void early_in_parent(void) {
    in_parent(&early);
}

static void early_in_child(void) {
    in_child(&early);
}

static void late_prepare(void) {
    prepare(&late);
}

static void late_in_parent(void) {
    in_parent(&late);
}

static void late_in_child(void) {
    in_child(&late);
}

static void register_early(void) {
    pthread_atfork(early_prepare, early_in_parent, early_in_child);
}

__attribute__((section(".preinit_array"),
               used)) static void (*const before_constructors)(void) = register_early;

/* The last one does the work; the others only fill libc's list. */
static void do_nothing(void) {
}

static void register_late(void) {
    for (unsigned i = 0; i < LATE_HANDLERS; i++) {
        check_eq(pthread_atfork(do_nothing, do_nothing, do_nothing), 0);
    }
    check_eq(pthread_atfork(late_prepare, late_in_parent, late_in_child), 0);
}

static void be_a_child(void) {
    check_eq(early.in_child, 1);
    check_eq(late.in_child, 1);
    struct handlers more = {{NULL}, 0, 0, 0};
    allocate_all(&more);
    free_all(&more);
    tally_verify();
}

static void fork_once(void) {
    pid_t pid = fork();
    check(pid >= 0);
    if (pid == 0) {
        be_a_child();
        _exit(0);
    }
    check_ending(watch_process(pid, STALL_SECONDS_INSIDE), __FILE__, __LINE__);
    step(STEPS_OF_CHILDREN);
}

static void fork_again_and_again(void) {
    for (unsigned i = 1; i <= CHILDREN; i++) {
        fork_once();
        check_eq(early.prepared, i);
        check_eq(early.in_parent, i);
        check_eq(late.prepared, i);
        check_eq(late.in_parent, i);
    }
}

static void *allocate_until_stopped(void *number) {
    struct random random = random_start(11, (uintptr_t)number);
    while (!atomic_load(&stop)) {
        char *block = malloc((size_t)1 << random_below(&random, 20));
        check(block != NULL);
        *block = 1;
        free(block);
    }
    return NULL;
}

static void fork_beside_threads(void) {
    pthread_t threads[ALLOCATORS];
    for (uintptr_t i = 0; i < ALLOCATORS; i++) {
        check_eq(pthread_create(&threads[i], NULL, allocate_until_stopped, (void *)i), 0);
    }
    fork_again_and_again();
    atomic_store(&stop, true);
    for (unsigned i = 0; i < ALLOCATORS; i++) {
        check_eq(pthread_join(threads[i], NULL), 0);
    }
    tally_verify();
}

static void alone(void) {
    armed = true;
    register_late();
    fork_again_and_again();
    tally_verify();
}

static void beside_threads(void) {
    armed = true;
    register_late();
    fork_beside_threads();
}

TEST(handlers_of_fork_allocate_from_one_byte_to_four_mebibytes) {
    run_watched(alone);
}

TEST(handlers_of_fork_allocate_beside_threads_that_allocate) {
    run_watched(beside_threads);
}

/* ---------------------------------------------------------------- fork in a handler of fork */

/* Forks in every handler, unless this is that fork.  Its child uses the heap and leaves. */
static void fork_inside(void) {
    if (nesting) {
        return;
    }
    nesting = true;
    pid_t pid = fork();
    check(pid >= 0);
    struct handlers more = {{NULL}, 0, 0, 0};
    if (pid == 0) {
        allocate_all(&more);
        free_all(&more);
        tally_verify();
        _exit(0);
    }
    check_ending(watch_process(pid, STALL_SECONDS_INSIDE), __FILE__, __LINE__);
    step(STEPS_OF_NESTED);
    nesting = false;
}

static void fork_inside_handlers(void) {
    check_eq(pthread_atfork(fork_inside, fork_inside, fork_inside), 0);
    for (unsigned i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        check(pid >= 0);
        if (pid == 0) {
            struct handlers more = {{NULL}, 0, 0, 0};
            allocate_all(&more);
            free_all(&more);
            tally_verify();
            _exit(0);
        }
        check_ending(watch_process(pid, STALL_SECONDS_INSIDE), __FILE__, __LINE__);
    }
    check_eq(atomic_load(&watch_counters[STEPS_OF_NESTED]), 3 * CHILDREN);
    atomic_store(&stop, true);
}

static void fork_inside_handlers_beside_threads(void) {
    pthread_t threads[ALLOCATORS];
    for (uintptr_t i = 0; i < ALLOCATORS; i++) {
        check_eq(pthread_create(&threads[i], NULL, allocate_until_stopped, (void *)i), 0);
    }
    fork_inside_handlers();
    for (unsigned i = 0; i < ALLOCATORS; i++) {
        check_eq(pthread_join(threads[i], NULL), 0);
    }
    tally_verify();
}

TEST(a_handler_of_fork_forks) {
    run_watched(fork_inside_handlers);
}

TEST(a_handler_of_fork_forks_beside_threads_that_allocate) {
    run_watched(fork_inside_handlers_beside_threads);
}
