/* SPDX-License-Identifier: MIT
 *
 * stress_sleepers.c - threads work and sleep for moments only, while others empty their heaps.
 *
 * Every thread has a timer whose signal interrupts it anywhere, also in the fast paths, and whose
 * handler sleeps itself: its heap must not be touched then.  Other sleeps end just when the heap is
 * being emptied.  Threads end and begin meanwhile, hand each other blocks, and fork; the children
 * work on.  A block knows its size and its contents, so that two owners of one block are seen, and
 * after each round the heap is walked.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

#include "base/os_threads.h"
#include "base/os_timer.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "heap/sleepers.h"
#include "heap/thread.h"
#include "unit.h"
#include "watch.h"

enum { WORKERS = 5, HELD = 300, EXCHANGE = 32, TURNS = 400, HANDLER_NS = 200000 };
enum { SLICE_ROUNDS = 6, WHOLE_ROUNDS = 300 };

static struct {
    _Atomic(struct block *) exchange[EXCHANGE];
    _Atomic unsigned running;
    _Atomic unsigned emptied, claimed, handled;
    _Atomic uint32_t never; /* stays 0: sleepers wait for it in vain */
} g;

/* ---------------------------------------------------------------- blocks */

struct block {
    size_t size;
    uint64_t number;
    uint64_t words[];
};

static struct block *make_block(struct random *random) {
    size_t size = sizeof(struct block) + random_below(random, random_below(random, 8) ? 300 : 4000);
    struct block *block = tally_malloc(size);
    check(block != NULL);
    block->size = size;
    block->number = random_next(random);
    for (size_t i = 0; i < (size - sizeof *block) / 8; i++) {
        block->words[i] = block->number + i;
    }
    return block;
}

static void free_block(struct block *block) {
    if (block == NULL) {
        return;
    }
    for (size_t i = 0; i < (block->size - sizeof *block) / 8; i++) {
        check_eq(block->words[i], block->number + i);
    }
    block->number = 0;
    tally_free(block);
}

/* ---------------------------------------------------------------- threads */

static void sleep_here(int unused) {
    (void)unused;
    os_sleep_ns(HANDLER_NS);
    g.handled++;
}

static int start_timer(void) {
    enum { FIRST_NS = 300000, PERIOD_NS = 1100000 };
    struct os_timer_target target = {OS_CLOCK_WALL, os_thread_id(), SIGUSR1, 0};
    int timer = os_timer_create(&target);
    check(timer >= 0 && os_timer_set(timer, FIRST_NS, PERIOD_NS) == 0);
    return timer;
}

static void work(struct random *random, struct block **held) {
    for (unsigned n = (unsigned)random_below(random, 400); n > 0; n--) {
        unsigned i = (unsigned)random_below(random, HELD);
        free_block(held[i]);
        held[i] = random_below(random, 3) != 0 ? make_block(random) : NULL;
    }
    unsigned i = (unsigned)random_below(random, EXCHANGE);
    free_block(atomic_exchange(&g.exchange[i], make_block(random)));
}

static void rest(struct random *random) {
    uint64_t ns = random_below(random, 400000);
    if (random_below(random, 2) != 0) {
        os_sleep_ns(ns);
    } else {
        os_wait_ms(&g.never, 0, 1);
    }
    g.emptied +=
        tls.self != NULL && __atomic_load_n(&tls.self->sleep, __ATOMIC_RELAXED) == THREAD_ASLEEP;
    g.claimed += tls.claimed;
}

static void fork_and_work(struct random *random, struct block **held) {
    check_child({
        work(random, held);
        heap_trim();
        work(random, held);
    });
}

static void *work_and_sleep(void *seed) {
    struct block *held[HELD] = {0};
    struct random random = random_start((uintptr_t)seed, 0);
    int timer = start_timer();
    for (unsigned turn = 0; turn < TURNS; turn++) {
        work(&random, held);
        rest(&random);
        if (random_below(&random, TURNS) == 0) {
            fork_and_work(&random, held);
        }
        step(0);
    }
    os_timer_delete(timer);
    for (unsigned i = 0; i < HELD; i++) {
        free_block(held[i]);
    }
    g.running--;
    return NULL;
}

/* Two of these: the second meets claims that are held. */
static void *empty_again_and_again(void *unused) {
    while (g.running > 0) {
        thread_set_inside(true);
        sleepers_empty(THREAD_ALL_ARENAS);
        thread_set_inside(false);
        step(1);
    }
    return unused;
}

static void run_round(unsigned round) {
    pthread_t threads[WORKERS + 2];
    g.running = WORKERS;
    for (uintptr_t i = 0; i < WORKERS + 2; i++) {
        check(pthread_create(&threads[i], NULL,
                             i < WORKERS ? work_and_sleep : empty_again_and_again,
                             (void *)(round * WORKERS + i + 1)) == 0);
    }
    for (unsigned i = 0; i < WORKERS + 2; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    heap_verify();
}

static void storm(void) {
    start_heap_with("background_thread:false");
    check(signal(SIGUSR1, sleep_here) != SIG_ERR);
    for (unsigned round = 0; round < slice_or(SLICE_ROUNDS, WHOLE_ROUNDS); round++) {
        run_round(round);
    }
    for (unsigned i = 0; i < EXCHANGE; i++) {
        free_block(g.exchange[i]);
    }
    heap_trim();
    heap_verify();
    check_eq(heap_totals().live, 0);
    check_eq(heap_totals().cached, 0);
    char text[3][24];
    test_say("    woken with a claim ", test_decimal(text[0], g.claimed), ", with an empty heap ",
             test_decimal(text[1], g.emptied), ", handlers that slept ",
             test_decimal(text[2], g.handled), "\n", NULL);
    check(g.handled > 0);
#if !defined(__SANITIZE_THREAD__)
    check(g.emptied > 0 && g.claimed > g.emptied);
#endif
}

TEST(threads_that_sleep_for_moments_lose_nothing_but_their_caches) {
    run_watched(storm);
}
