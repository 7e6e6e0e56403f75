/* SPDX-License-Identifier: MIT
 *
 * stress_cross_thread.c - blocks that are made by one thread and freed by another, through the
 * library as programs load it.
 *
 * Producers fill blocks and put them into a ring; consumers check the contents and free them.  And
 * threads come and go, each handing the blocks it leaves to the next: what a dead thread allocated
 * must live on.
 *
 *      SEED=n repeats a run as far as the scheduler allows, STRESS=1 takes a new one and works longer.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "cpus.h"
#include "unit.h"

TEST_SETUP(require_tally);

enum { PRODUCERS = 2, CONSUMERS = 2, RING = 1024, HANDED = 300 };
enum { BLOCKS = 500000, GENERATIONS = 1500 };

static struct {
    uint64_t seed;
    unsigned factor; /* how much longer to work */
} g;

static void choose_seed(void) {
    const char *seed = getenv("SEED");
    bool longer = getenv("STRESS") != NULL;
    g.seed = seed != NULL ? strtoull(seed, NULL, 0)
             : longer     ? (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid()
                          : 20240602;
    g.factor = longer ? 20 : 1;
    char text[24];
    test_say("    SEED=", test_decimal(text, (long long)g.seed), "\n", NULL);
    if (longer) {
        test_allow_seconds(3600);
    }
}

/* A block knows its size and a number from which all its words follow. */
struct block {
    size_t size;
    uint64_t number;
    uint64_t words[];
};

static struct block *make_block(struct random *random) {
    uint64_t kind = random_below(random, 100);
    size_t words = kind < 80   ? random_below(random, 40)
                   : kind < 99 ? random_below(random, 1000)
                               : random_below(random, 20000);
    size_t size = sizeof(struct block) + words * 8;
    struct block *block = malloc(size);
    check(block != NULL);
    block->size = size;
    block->number = random_next(random);
    for (size_t i = 0; i < words; i++) {
        block->words[i] = block->number + i;
    }
    return block;
}

static void check_block(const struct block *block) {
    for (size_t i = 0; i < (block->size - sizeof(struct block)) / 8; i++) {
        check_eq(block->words[i], block->number + i);
    }
}

/* ---------------------------------------------------------------- producers and consumers */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct block *blocks[RING];
    unsigned head, count;
    unsigned producers; /* still at work */
} ring = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void ring_put(struct block *block) {
    pthread_mutex_lock(&ring.mutex);
    while (ring.count == RING) {
        pthread_cond_wait(&ring.changed, &ring.mutex);
    }
    ring.blocks[(ring.head + ring.count++) % RING] = block;
    pthread_cond_broadcast(&ring.changed);
    pthread_mutex_unlock(&ring.mutex);
}

/* The oldest block, or NULL when there will be no more. */
static struct block *ring_take(void) {
    pthread_mutex_lock(&ring.mutex);
    while (ring.count == 0 && ring.producers > 0) {
        pthread_cond_wait(&ring.changed, &ring.mutex);
    }
    struct block *block = NULL;
    if (ring.count > 0) {
        block = ring.blocks[ring.head];
        ring.head = (ring.head + 1) % RING;
        ring.count--;
        pthread_cond_broadcast(&ring.changed);
    }
    pthread_mutex_unlock(&ring.mutex);
    return block;
}

static _Atomic unsigned stream;

static void *produce(void *unused) {
    (void)unused;
    struct random random = random_start(g.seed, stream++);
    for (unsigned i = 0; i < BLOCKS * g.factor / PRODUCERS; i++) {
        ring_put(make_block(&random));
    }
    pthread_mutex_lock(&ring.mutex);
    ring.producers--;
    pthread_cond_broadcast(&ring.changed);
    pthread_mutex_unlock(&ring.mutex);
    return NULL;
}

static void *consume(void *consumed) {
    struct block *block;
    while ((block = ring_take()) != NULL) {
        check_block(block);
        free(block);
        (*(_Atomic unsigned *)consumed)++;
    }
    return NULL;
}

TEST(blocks_arrive_whole_and_are_freed_elsewhere) {
    static _Atomic unsigned consumed;
    pthread_t threads[PRODUCERS + CONSUMERS];
    choose_seed();
    ring.producers = PRODUCERS;
    for (unsigned i = 0; i < PRODUCERS + CONSUMERS; i++) {
        void *(*body)(void *) = i < PRODUCERS ? produce : consume;
        check(pthread_create(&threads[i], NULL, body, (void *)&consumed) == 0);
    }
    for (unsigned i = 0; i < PRODUCERS + CONSUMERS; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    check_eq(consumed, BLOCKS * g.factor / PRODUCERS * PRODUCERS);
    tally_verify();
}

/* ---------------------------------------------------------------- threads that come and go */

struct heritage {
    struct block *blocks[HANDED];
    struct random random;
};

/* Checks what it inherits, frees a part, makes up for it, and leaves all of it to the next. */
static void *live_and_leave(void *argument) {
    struct heritage *heritage = argument;
    for (unsigned i = 0; i < HANDED; i++) {
        struct block **slot = &heritage->blocks[i];
        if (*slot != NULL) {
            check_block(*slot);
        }
        if (*slot == NULL || random_below(&heritage->random, 3) == 0) {
            free(*slot);
            *slot = make_block(&heritage->random);
        } else if (random_below(&heritage->random, 5) == 0) {
            size_t grown = (*slot)->size + random_below(&heritage->random, 300) / 8 * 8;
            struct block *moved = realloc(*slot, grown);
            check(moved != NULL);
            check_block(moved);
            *slot = moved;
        }
    }
    return NULL;
}

TEST(blocks_of_ended_threads_live_on) {
    enum { LINES = 3 };
    static struct heritage lines[LINES];
    choose_seed();
    for (unsigned i = 0; i < LINES; i++) {
        lines[i].random = random_start(g.seed, 100 + i);
    }
    for (unsigned generation = 0; generation < GENERATIONS * g.factor; generation++) {
        pthread_t threads[LINES];
        for (unsigned i = 0; i < LINES; i++) {
            check(pthread_create(&threads[i], NULL, live_and_leave, &lines[i]) == 0);
        }
        for (unsigned i = 0; i < LINES; i++) {
            check(pthread_join(threads[i], NULL) == 0);
        }
        if (generation % 10 == 0) { /* some thousand operations */
            tally_verify();
        }
    }
    for (unsigned i = 0; i < LINES; i++) {
        for (unsigned k = 0; k < HANDED; k++) {
            check_block(lines[i].blocks[k]);
            free(lines[i].blocks[k]);
        }
    }
    tally_verify();
}

/* Small blocks only: after its first calls such a thread never takes the slowest path again. */
static void *use_small_blocks(void *unused) {
    void *blocks[HANDED];
    (void)unused;
    for (unsigned i = 0; i < HANDED; i++) {
        blocks[i] = malloc(i % 10 * 16 + 16);
        check(blocks[i] != NULL);
    }
    for (unsigned i = 0; i < HANDED; i++) {
        free(blocks[i]);
    }
    return NULL;
}

/* A heap that forgets what ended threads cached grows with each of them. */
TEST(ended_threads_leave_no_memory_behind) {
    enum { WARM_UP = 200 };
    static struct heritage line;
    struct tally_totals first, last;
    pthread_t thread;
    choose_seed();
    cpu_set_t allowed = cpus_allowed();
    for (unsigned generation = 0; generation < 2000; generation++) {
        if (generation < WARM_UP) {
            cpus_use_one(allowed, generation);
        }
        line.random = random_start(g.seed, 7);
        check(pthread_create(&thread, NULL, live_and_leave, &line) == 0);
        check(pthread_join(thread, NULL) == 0);
        run_threads(1, use_small_blocks, NULL);
        for (unsigned i = 0; i < HANDED; i++) {
            free(line.blocks[i]);
            line.blocks[i] = NULL;
        }
        if (generation == WARM_UP) {
            cpus_use(allowed);
            tally_totals(&first);
        }
    }
    tally_totals(&last);
    check(last.metadata < first.metadata + 100000);
    check(last.mapped < first.mapped + (8 << 20));
    check(last.cached < first.cached + (2 << 20));
}
