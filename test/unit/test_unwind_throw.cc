/* SPDX-License-Identifier: MIT
 *
 * test_unwind_throw.cc - walks from within exceptions: where they are made, in destructors that run while
 * one passes, and in handlers; and in several threads that throw at once.
 *
 * libgcc is then at work already in the same thread.  A walk must neither wait for it nor disturb it.
 */
#include <pthread.h>
#include <string.h>

#include "test.h"

extern "C" {
#include "stack/stack.h"
void os_init(void);
}

enum { DEPTH = 12, ROUNDS = 300, THREADS = 4 };

static thread_local unwind_thread mine;
static thread_local uintptr_t found[UNWIND_ROOM];

/* Walks, and looks for the function that began it all. */
static __attribute__((noinline)) unsigned walk(uintptr_t must_find) {
    unwind_stack stack = unwind_again(&mine, __builtin_frame_address(0), found, UNWIND_MOST);
    unsigned hits = 0;
    for (unsigned i = 0; i < stack.count; i++) {
        hits +=
            (stack.levels != nullptr ? unwind_address(&stack.levels[i]) : found[i]) == must_find;
    }
    check(hits == 1);
    return stack.count;
}

static thread_local uintptr_t beginning;
static thread_local unsigned destroyed;

struct witness {
    ~witness() {
        walk(beginning);
        destroyed++;
    }
};

struct thrown {
    unsigned depth;
    explicit thrown(unsigned levels) : depth(levels) {
        walk(beginning);
    }
    thrown(const thrown &other) : depth(other.depth) {
        walk(beginning);
    }
};

static __attribute__((noinline)) void descend(unsigned levels) {
    witness here;
    if (levels == 0) {
        throw thrown(DEPTH);
    }
    descend(levels - 1);
}

static __attribute__((noinline)) void begin_and_catch(void) {
    beginning = (uintptr_t)__builtin_return_address(0);
    destroyed = 0;
    try {
        descend(DEPTH);
        check(false);
    } catch (thrown &caught) {
        walk(beginning);
        check_eq(caught.depth, DEPTH);
    }
    check_eq(destroyed, DEPTH + 1);
}

static void prepare(void) {
    os_init();
    unwind_init();
    unwind_prepare();
}

TEST(walks_succeed_while_an_exception_is_on_its_way) {
    prepare();
    for (unsigned i = 0; i < ROUNDS; i++) {
        begin_and_catch();
    }
}

static void *throw_many(void *unused) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        begin_and_catch();
    }
    return unused;
}

TEST(threads_throw_and_walk_at_once) {
    prepare();
    pthread_t threads[THREADS];
    for (pthread_t &thread : threads) {
        check(pthread_create(&thread, nullptr, throw_many, nullptr) == 0);
    }
    for (pthread_t &thread : threads) {
        check(pthread_join(thread, nullptr) == 0);
    }
}
