/* SPDX-License-Identifier: MIT
 *
 * test_threads.c - threads: blocks that are freed by another thread than the one that allocated
 * them, threads that end while their blocks live on, and destructors that allocate and free
 * while a thread goes away.
 *
 * Every block carries its size and a pattern, so that a block handed out twice shows up as
 * damage and not only as luck. The work is deterministic; the interleaving is not, and no test
 * depends on it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

static const size_t MIB = 1024 * 1024;

/* The head of every block of these tests; the rest is filled with the tag. */
struct block {
    struct block *next;
    uint32_t size;
    unsigned char tag;
    unsigned char bytes[];
};

static struct block *new_block(size_t size, unsigned tag) {
    struct block *block = malloc(sizeof *block + size);
    check(block != NULL);
    block->next = NULL;
    block->size = (uint32_t)size;
    block->tag = (unsigned char)tag;
    memset(block->bytes, (int)(tag & 255), size);
    return block;
}

static void check_block(const struct block *block) {
    check(malloc_usable_size((void *)(uintptr_t)block) >= sizeof *block + block->size);
    for (uint32_t i = 0; i < block->size; i += 61) {
        check_eq(block->bytes[i], block->tag);
    }
    if (block->size > 0) {
        check_eq(block->bytes[block->size - 1], block->tag);
    }
}

static void free_list(struct block *list) {
    while (list != NULL) {
        struct block *next = list->next;
        check_block(list);
        free(list);
        list = next;
    }
}

/* Sizes from a few bytes to some hundred kilobytes, mostly small. */
static size_t mixed_size(unsigned *state) {
    *state = *state * 1664525 + 1013904223;
    unsigned random = *state >> 8;
    if (random % 512 == 0) {
        return 100000 + random % 200000;
    }
    if (random % 16 == 0) {
        return random % 20000;
    }
    return random % 700;
}

static struct block *new_list(unsigned count, unsigned seed) {
    struct block *list = NULL;
    for (unsigned i = 0; i < count; i++) {
        struct block *block = new_block(mixed_size(&seed), i);
        block->next = list;
        list = block;
    }
    return list;
}

static pthread_t start(void *(*run)(void *), void *argument) {
    pthread_t thread;
    check_eq(pthread_create(&thread, NULL, run, argument), 0);
    return thread;
}

static void *join(pthread_t thread) {
    void *result = NULL;
    check_eq(pthread_join(thread, &result), 0);
    return result;
}

/* A stack of blocks that several threads push to and that is taken as a whole. */
static struct {
    _Atomic(struct block *) top;
    atomic_uint pushed, taken;
    atomic_bool done;
} mailbox;

static void push(struct block *block) {
    struct block *top = atomic_load(&mailbox.top);
    do {
        block->next = top;
    } while (!atomic_compare_exchange_weak(&mailbox.top, &top, block));
    atomic_fetch_add(&mailbox.pushed, 1);
}

enum { PER_PRODUCER = 60000, PRODUCERS = 2 };

static void *produce(void *seed) {
    unsigned state = (unsigned)(uintptr_t)seed;
    for (unsigned i = 0; i < PER_PRODUCER; i++) {
        push(new_block(mixed_size(&state), i));
        while (atomic_load(&mailbox.pushed) - atomic_load(&mailbox.taken) > 20000) {
            sched_yield();
        }
    }
    return NULL;
}

static void *consume(void *unused) {
    for (;;) {
        bool done = atomic_load(&mailbox.done);
        struct block *list = atomic_exchange(&mailbox.top, NULL);
        if (list == NULL && done) {
            return unused;
        }
        if (list == NULL) {
            sched_yield();
        }
        while (list != NULL) {
            struct block *next = list->next;
            check_block(list);
            free(list);
            atomic_fetch_add(&mailbox.taken, 1);
            list = next;
        }
    }
}

TEST(blocks_of_producers_are_freed_by_consumers) {
    pthread_t producers[PRODUCERS];
    pthread_t consumers[2];
    for (size_t i = 0; i < PRODUCERS; i++) {
        producers[i] = start(produce, (void *)(i + 1));
    }
    for (size_t i = 0; i < 2; i++) {
        consumers[i] = start(consume, NULL);
    }
    for (size_t i = 0; i < PRODUCERS; i++) {
        join(producers[i]);
    }
    atomic_store(&mailbox.done, true);
    for (size_t i = 0; i < 2; i++) {
        join(consumers[i]);
    }
    check_eq(mailbox.taken, PRODUCERS * PER_PRODUCER);
}

static void *make_list(void *seed) {
    return new_list(2000, (unsigned)(uintptr_t)seed);
}

static void *drop_list(void *list) {
    free_list(list);
    return NULL;
}

TEST(blocks_outlive_the_thread_that_allocated_them) {
    struct block *lists[20];
    for (size_t i = 0; i < 20; i++) {
        lists[i] = join(start(make_list, (void *)(i * 7 + 1)));
    }
    /* Threads that come later must not be given what is still in use. */
    for (size_t i = 0; i < 5; i++) {
        free_list(join(start(make_list, (void *)(i + 1000))));
    }
    for (size_t i = 0; i < 20; i++) {
        free_list(lists[i]);
    }
}

TEST(a_thread_that_only_frees_leaves_nothing_behind) {
    struct mallinfo2 before = mallinfo2();
    for (unsigned i = 0; i < 50; i++) {
        join(start(drop_list, new_list(500, i)));
    }
    struct mallinfo2 after = mallinfo2();
    check(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd + 2 * MIB);
}

static void *realloc_list(void *argument) {
    struct block *head = NULL;
    unsigned state = 99;
    for (struct block *block = argument; block != NULL;) {
        struct block *next = block->next;
        check_block(block);
        uint32_t old_size = block->size;
        size_t size = mixed_size(&state);
        unsigned char tag = block->tag;
        block = realloc(block, sizeof *block + size);
        check(block != NULL);
        for (size_t i = 0; i < size && i < old_size; i += 61) {
            check_eq(block->bytes[i], tag);
        }
        memset(block->bytes, tag, size);
        block->size = (uint32_t)size;
        block->next = head;
        head = block;
        block = next;
    }
    return head;
}

TEST(realloc_moves_blocks_of_another_thread) {
    for (unsigned i = 0; i < 10; i++) {
        struct block *list = new_list(1000, i + 5);
        free_list(join(start(realloc_list, list)));
    }
}

static void *touch_many_sizes(void *unused) {
    for (size_t size = 8; size < 2000; size += 24) {
        void *p = malloc(size);
        memset(p, 1, size);
        free(p);
    }
    free(malloc(300000));
    return unused;
}

static void run_threads(int count) {
    for (int i = 0; i < count; i++) {
        join(start(touch_many_sizes, NULL));
    }
}

TEST(thousands_of_threads_one_after_another_do_not_grow_the_heap) {
    run_threads(200);
    size_t before = test_anonymous_bytes();
    run_threads(2000);
    check(test_anonymous_bytes() < before + 4 * MIB);
}

TEST(threads_that_never_allocate_come_and_go) {
    for (int i = 0; i < 500; i++) {
        check_eq(join(start(drop_list, NULL)), NULL);
    }
    free(malloc(100));
}

static void *churn(void *seed) {
    enum { LIVE = 500 };
    struct block *live[LIVE] = {NULL};
    unsigned state = (unsigned)(uintptr_t)seed;
    for (unsigned i = 0; i < 60000; i++) {
        size_t size = mixed_size(&state);
        struct block **slot = &live[(state >> 4) % LIVE];
        if (*slot != NULL) {
            check_block(*slot);
            free(*slot);
        }
        *slot = new_block(size, i);
    }
    for (size_t i = 0; i < LIVE; i++) {
        free(live[i]);
    }
    return NULL;
}

TEST(many_threads_churn_side_by_side) {
    pthread_t threads[8];
    for (size_t i = 0; i < 8; i++) {
        threads[i] = start(churn, (void *)(i + 1));
    }
    for (size_t i = 0; i < 8; i++) {
        join(threads[i]);
    }
}

/* Keys whose destructors free what the key held, allocate anew and arm themselves again: a
 * thread runs its destructors up to PTHREAD_DESTRUCTOR_ITERATIONS times, and the allocator's own
 * key is among them. */
enum { KEYS = 8, ROUNDS = 3 };

static pthread_key_t keys[KEYS];
static atomic_uint destructor_calls;

struct armed {
    unsigned key, round;
    struct block *list;
};

static struct armed *new_armed(unsigned key, unsigned round) {
    struct armed *armed = malloc(sizeof *armed);
    check(armed != NULL);
    *armed = (struct armed){key, round, new_list(20, key * 10 + round)};
    return armed;
}

static void destroy(void *value) {
    struct armed *armed = value;
    unsigned key = armed->key;
    unsigned round = armed->round;
    free_list(armed->list);
    free(armed);
    free_list(new_list(30, round));
    atomic_fetch_add(&destructor_calls, 1);
    if (round < ROUNDS) {
        check_eq(pthread_setspecific(keys[key], new_armed(key, round + 1)), 0);
    }
}

static void *arm_keys(void *unused) {
    for (unsigned i = 0; i < KEYS; i++) {
        check_eq(pthread_setspecific(keys[i], new_armed(i, 1)), 0);
    }
    return unused;
}

static void *arm_with_foreign_blocks(void *values) {
    for (unsigned i = 0; i < KEYS; i++) {
        check_eq(pthread_setspecific(keys[i], ((void **)values)[i]), 0);
    }
    return NULL;
}

static void make_keys(void) {
    for (size_t i = 0; i < KEYS; i++) {
        check_eq(pthread_key_create(&keys[i], destroy), 0);
    }
}

TEST(destructors_of_a_thread_allocate_and_free) {
    make_keys();
    for (unsigned i = 0; i < 300; i++) {
        join(start(arm_keys, NULL));
    }
    check_eq(destructor_calls, 300 * KEYS * ROUNDS);
}

TEST(destructors_work_in_a_thread_that_never_allocated) {
    make_keys();
    for (unsigned i = 0; i < 300; i++) {
        void *values[KEYS];
        for (unsigned j = 0; j < KEYS; j++) {
            values[j] = new_armed(j, 1);
        }
        join(start(arm_with_foreign_blocks, values));
    }
    check_eq(destructor_calls, 300 * KEYS * ROUNDS);
}

TEST(the_heap_works_when_no_pthread_key_is_left) {
    pthread_key_t key;
    while (pthread_key_create(&key, NULL) == 0) {
    }
    run_threads(100);
    free_list(join(start(make_list, (void *)5)));
}

static void *end_early(void *unused) {
    struct block *list = new_list(100, 3);
    free_list(list);
    pthread_exit(unused);
}

static void *wait_for_cancel(void *flag) {
    struct block *list = new_list(100, 4);
    free_list(list);
    atomic_store((atomic_bool *)flag, true);
    for (;;) {
        free(malloc(100));
        pthread_testcancel();
    }
    return NULL;
}

TEST(threads_ended_by_exit_and_by_cancel_leave_the_heap_whole) {
    for (int i = 0; i < 100; i++) {
        atomic_bool running = false;
        join(start(end_early, NULL));
        pthread_t thread = start(wait_for_cancel, &running);
        while (!atomic_load(&running)) {
            sched_yield();
        }
        check_eq(pthread_cancel(thread), 0);
        check_eq(join(thread), PTHREAD_CANCELED);
    }
    free_list(new_list(3000, 17));
}

/* The number of heaps of threads. */
static size_t heaps(void) {
    return mallinfo2().ordblks;
}

static void *allocate_and_leave_the_rest_to_libc(void *count) {
    for (uintptr_t i = 0; i < (uintptr_t)count; i++) {
        free(malloc(2000 + i));
    }
    check(strerror(99999) != NULL);                     /* libc keeps the text for the thread ... */
    check(dlsym(RTLD_DEFAULT, "no such name") == NULL); /* ... and the error. */
    return NULL;
}

/* libc frees what it keeps for a thread after all destructors have run. A thread that has no heap
 * yet must not earn one there: nobody would be told that it is left behind. How many calls a thread
 * has made before decides, so all counts around the limit are tried. */
TEST(what_libc_frees_after_the_destructors_leaves_no_heap_behind) {
    enum { THREADS = 300, MOST_CALLS = 21 };
    join(start(allocate_and_leave_the_rest_to_libc, (void *)MOST_CALLS));
    malloc_trim(0); /* The heap of the last thread is kept for the next one; this empties it. */
    size_t before = heaps();
    for (uintptr_t i = 0; i < THREADS; i++) {
        join(start(allocate_and_leave_the_rest_to_libc, (void *)(i % MOST_CALLS)));
    }
    malloc_trim(0);
    check_eq(heaps(), before);
}

static void *note_heaps_at_work(void *unused) {
    for (int i = 0; i < 300; i++) {
        free(malloc(96));
    }
    (void)unused;
    return (void *)heaps();
}

TEST(a_thread_that_ends_leaves_no_heap_behind) {
    join(start(note_heaps_at_work, NULL));
    malloc_trim(0);
    size_t before = heaps();
    for (int i = 0; i < 300; i++) {
        size_t at_work = (size_t)join(start(note_heaps_at_work, NULL));
        check(at_work > before && at_work <= before + 1 + (size_t)sysconf(_SC_NPROCESSORS_CONF));
    }
    malloc_trim(0);
    check_eq(heaps(), before);
}
