/* SPDX-License-Identifier: MIT
 *
 * stress_fork_storm.c - forks beside threads that allocate; each child uses the heap at once.
 *
 * Four threads allocate and free without pause, so that a fork finds them anywhere: inside a lock,
 * half-way through a fast path, while slabs and pages move.  The child then allocates and frees
 * from 1 byte to 4 MiB, frees what it inherited from its own thread and from the others, and walks
 * the heap.  Blocks carry a pattern: one that was handed out twice shows up as damage.
 *
 * A block of another thread is freed in the child only if its place in the table says it is whole.
 * The owner fills a block before it shows it there, and takes it out before it frees it, and the
 * child sees the writes of each thread up to some moment and none after it, so this is certain.
 *
 * The child is watched by its parent: five seconds without a step is a hang.  300 forks; STRESS=1
 * takes 100,000.  SEED=n repeats a run as far as the scheduler allows.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>

#include <tally/tally.h>

#include "random.h"
#include "watch.h"

#ifndef LINKED_STATICALLY
TEST_SETUP(require_tally);
#endif

enum { ALLOCATORS = 4, SLOTS = 200, CHILD_OPERATIONS = 1600, CHILD_SLOTS = 100 };
enum { SLICE_FORKS = 300, WHOLE_FORKS = 100000 };
enum { STEPS_OF_CHILD, STEPS_OF_FORKS };

/* A block knows its size; its last bytes repeat its number. */
struct block {
    size_t size;
    uint64_t number;
};

/* Slots are NULL while their block is not whole. */
struct worker {
    _Atomic(struct block *) slots[SLOTS];
    struct random random;
};

static struct {
    struct worker workers[ALLOCATORS + 1]; /* the last belongs to the thread that forks */
    atomic_bool stop;
    uint64_t seed;
    unsigned forks;
    pid_t (*fork)(void);
} g;

/* Mostly small, and now and then up to 4 MiB. */
static size_t choose_size(struct random *random) {
    uint64_t kind = random_below(random, 100);
    size_t most = kind < 70 ? 500 : kind < 94 ? 20000 : kind < 99 ? 300000 : 4 << 20;
    return sizeof(struct block) + 8 + random_below(random, most);
}

static struct block *make_block(struct random *random) {
    size_t size = choose_size(random);
    struct block *block = malloc(size);
    check(block != NULL);
    block->size = size;
    block->number = random_next(random);
    memcpy((char *)block + size - 8, &block->number, 8);
    return block;
}

static void end_block(struct block *block) {
    uint64_t number;
    memcpy(&number, (char *)block + block->size - 8, 8);
    check_eq(number, block->number);
    memset(block, 0x5a, sizeof *block);
    free(block);
}

/* Replaces the block of one slot; what is in a slot is whole at every moment. */
static void replace(struct worker *worker, unsigned slot) {
    struct block *old = atomic_load(&worker->slots[slot]);
    atomic_store(&worker->slots[slot], NULL);
    if (old != NULL) {
        end_block(old);
    }
    atomic_store(&worker->slots[slot], make_block(&worker->random));
}

static void *allocate_until_stopped(void *argument) {
    struct worker *worker = argument;
    while (!atomic_load(&g.stop)) {
        replace(worker, (unsigned)random_below(&worker->random, SLOTS));
    }
    return NULL;
}

static void free_all(struct worker *worker) {
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        struct block *block = atomic_load(&worker->slots[slot]);
        if (block != NULL) {
            end_block(block);
            atomic_store(&worker->slots[slot], NULL);
        }
        step(STEPS_OF_CHILD);
    }
}

/* The program may be run with another allocator in front, to see how that one fares. */
static bool heap_is_ours(void) {
    return (void *)malloc == (void *)tally_malloc;
}

static void be_a_child(unsigned number) {
    struct random random = random_start(g.seed, 1000 + number);
    struct block *blocks[CHILD_SLOTS] = {NULL};
    for (unsigned i = 0; i < CHILD_OPERATIONS; i++) {
        struct block **slot = &blocks[random_below(&random, CHILD_SLOTS)];
        if (*slot != NULL) {
            end_block(*slot);
            *slot = NULL;
        } else {
            *slot = make_block(&random);
        }
        step(STEPS_OF_CHILD);
    }
    free(malloc(4 << 20));
    for (unsigned i = 0; i < ALLOCATORS + 1; i++) {
        free_all(&g.workers[i]);
    }
    if (heap_is_ours()) {
        tally_verify();
    }
    for (unsigned i = 0; i < CHILD_SLOTS; i++) {
        if (blocks[i] != NULL) {
            end_block(blocks[i]);
        }
    }
}

static void fork_once(unsigned number) {
    pid_t pid = g.fork();
    check(pid >= 0);
    if (pid == 0) {
        be_a_child(number);
        _exit(0);
    }
    struct ending ending = watch_process(pid, STALL_SECONDS_INSIDE);
    if (ending.hung || ending.status != 0) {
        char text[2][24];
        test_say("    child of fork ", test_decimal(text[0], number),
                 ", SEED=", test_decimal(text[1], (long long)g.seed), "\n", NULL);
    }
    check_ending(ending, __FILE__, __LINE__);
    step(STEPS_OF_FORKS);
}

static void storm(void) {
    pthread_t threads[ALLOCATORS];
    for (unsigned i = 0; i < ALLOCATORS + 1; i++) {
        g.workers[i].random = random_start(g.seed, i);
    }
    for (unsigned i = 0; i < ALLOCATORS; i++) {
        check_eq(pthread_create(&threads[i], NULL, allocate_until_stopped, &g.workers[i]), 0);
    }
    struct worker *own = &g.workers[ALLOCATORS];
    for (unsigned number = 0; number < g.forks; number++) {
        for (unsigned i = 0; i < 20; i++) {
            replace(own, (unsigned)random_below(&own->random, SLOTS));
        }
        fork_once(number);
    }
    atomic_store(&g.stop, true);
    for (unsigned i = 0; i < ALLOCATORS; i++) {
        check_eq(pthread_join(threads[i], NULL), 0);
    }
    for (unsigned i = 0; i < ALLOCATORS + 1; i++) {
        free_all(&g.workers[i]);
    }
    if (heap_is_ours()) {
        tally_verify();
    }
}

/* The storm itself runs in a watched process as well: fork may hang in the parent too. */
static void run_storm(pid_t (*way)(void), unsigned slice_forks) {
    const char *seed = getenv("SEED");
    char text[24];
    g.seed = seed != NULL     ? strtoull(seed, NULL, 0)
             : whole_length() ? (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid()
                              : 20240603;
    g.forks = slice_or(slice_forks, WHOLE_FORKS);
    g.fork = way;
    test_say("    SEED=", test_decimal(text, (long long)g.seed), "\n", NULL);
    test_allow_seconds(slice_or(TEST_SECONDS, 7200));
    run_watched(storm);
    check_eq(atomic_load(&watch_counters[STEPS_OF_FORKS]), g.forks);
}

static pid_t raw_clone(void) {
    return (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
}

TEST(children_of_fork_beside_allocating_threads_use_the_heap) {
    run_storm(fork, SLICE_FORKS);
}

TEST(children_of_bare_fork_beside_allocating_threads_use_the_heap) {
    run_storm(_Fork, SLICE_FORKS / 3);
}

TEST(children_of_clone_beside_allocating_threads_use_the_heap) {
    run_storm(raw_clone, SLICE_FORKS / 3);
}
