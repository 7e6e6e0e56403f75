/* SPDX-License-Identifier: MIT
 *
 * stress_model.c - random operations of several threads against a shadow of every live block.
 *
 * Each thread owns blocks and knows of each what must be true: its bytes (a pattern made from its id),
 * its alignment, its usable size, which stays the same while it lives.  Blocks change hands through a
 * shared market, so that they are freed and resized by other threads than those that made them.
 *
 *      thread 0   [block block block ...]  --offer-->  market  --accept-->  thread 1  [...]
 *
 * Between rounds all threads stand still and the main thread looks at everything at once: no two
 * blocks overlap, every block has its bytes, the heap is walked and checked, and what the heap counts
 * as live is, to the byte, the sum of the usable sizes of the shadow.
 *
 * The work runs with 1, 2, 4 and 8 threads, and once more in each of three worlds: the fast path, the
 * slow path only (all_slow), and window mode (an address space limit).
 *
 *      SEED=n      repeats a run, as far as the scheduler allows; every run prints its seed
 *      STRESS=1    takes a new seed and works twenty times longer
 */
#include <stdio.h>
#include <time.h>

#include "heap/classmap.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "heap/pages.h"
#include "unit.h"

enum {
    MOST_THREADS = 8,
    MOST_BLOCKS = 1500, /* of one thread */
    MARKET_PLACES = 64,
    /* The heap is verified after each round: with asserts, more often. */
    ROUNDS = DEBUG ? 32 : 8,
    STEPS = DEBUG ? 3000 : 12000, /* of all threads together, in a round */
    WHOLE_PATTERN = 4096,         /* bytes up to which every word of a block is checked */
    MOST_BYTES = 100 << 20, /* of all live blocks, so that the limited world has room to spare */
};

struct block {
    unsigned char *start;
    size_t size;   /* as requested */
    size_t usable; /* as told once */
    size_t alignment;
    uint64_t id;
    bool sized; /* may be freed with its size: it came from malloc, calloc or realloc */
};

struct worker {
    struct random random;
    struct block blocks[MOST_BLOCKS];
    unsigned count;
    unsigned number;
};

static struct {
    struct worker workers[MOST_THREADS];
    unsigned threads;
    unsigned rounds, steps;
    uint64_t seed;
    pthread_barrier_t barrier;
    pthread_mutex_t market_mutex;
    struct block market[MARKET_PLACES]; /* start == NULL: free place */
    _Atomic uint64_t next_id;
    _Atomic size_t live_bytes; /* about; guides sizes only */
} g;

/* The seed again, at the place where it is needed: beside a failure. */
#define check_block(condition, block)                                                              \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "block %p size %zu usable %zu id %lu; repeat with SEED=%lu\n",         \
                    (void *)(block)->start, (block)->size, (block)->usable,                        \
                    (unsigned long)(block)->id, (unsigned long)g.seed);                            \
            check(condition);                                                                      \
        }                                                                                          \
    } while (0)

/* ---------------------------------------------------------------- the pattern of a block */

static uint64_t word_for(uint64_t id, size_t at) {
    return (id + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ at * UINT64_C(0xc2b2ae3d27d4eb4f);
}

/*
 * The next position to look at, a multiple of 8: every word of small blocks, one word per 1000 bytes
 * of large ones, and always the last whole one.  The few bytes behind that have a pattern of bytes.
 */
static size_t next_word(size_t at, size_t size) {
    size_t step = size <= WHOLE_PATTERN ? 8 : 1000;
    size_t last = size / 8 * 8 - 8;
    return at == last ? size : at + step < last ? at + step : last;
}

static void write_pattern(const struct block *block) {
    size_t words = block->size / 8 * 8;
    for (size_t at = 0; at < words; at = next_word(at, block->size)) {
        uint64_t word = word_for(block->id, at);
        memcpy(block->start + at, &word, 8);
    }
    memset(block->start + words, (int)(block->id & 0xff), block->size - words);
}

/* Checks the first `bytes` bytes of the pattern of a block that had `size` bytes. */
static void check_pattern(const struct block *block, size_t size, size_t bytes) {
    size_t words = size / 8 * 8;
    for (size_t at = 0; at < words && at + 8 <= bytes; at = next_word(at, size)) {
        uint64_t word;
        memcpy(&word, block->start + at, 8);
        check_block(word == word_for(block->id, at), block);
    }
    for (size_t at = words; at < bytes; at++) {
        check_block(block->start[at] == (block->id & 0xff), block);
    }
}

static void check_zeros(const struct block *block) {
    for (size_t i = 0; i < block->size; i++) {
        check_block(block->start[i] == 0, block);
    }
}

/* Everything that must be true of a live block. */
static void check_live(const struct block *block) {
    check_block((uintptr_t)block->start % block->alignment == 0, block);
    check_block(tally_usable_size(block->start) == block->usable, block);
    check_block(block->usable >= block->size, block);
    check_pattern(block, block->size, block->size);
}

/* ---------------------------------------------------------------- operations */

/* Sizes as programs ask for them: mostly small, some medium, few large, many at the borders. */
static size_t choose_size(struct random *random) {
    uint64_t kind = random_below(random, 100);
    size_t size;
    if (kind < 60) {
        size = random_below(random, 300);
    } else if (kind < 85) {
        size = random_below(random, 4200);
    } else if (kind < 96) {
        size = random_below(random, SMALL_MAX + 5000);
    } else if (kind < 99) {
        size = random_below(random, 400000);
    } else {
        size = random_below(random, 5 << 20);
    }
    if (random_below(random, 10) == 0) { /* A class boundary and its neighbours. */
        unsigned c = (unsigned)random_below(random, CLASS_COUNT - 1) + 1;
        size = size_classes[c].size + random_below(random, 3) - 1;
    }
    return g.live_bytes < MOST_BYTES ? size : size % 64;
}

static void adopt(struct worker *worker, struct block block) {
    check_block(block.start != NULL, &block);
    block.usable = tally_usable_size(block.start);
    g.live_bytes += block.usable;
    worker->blocks[worker->count++] = block;
    struct block *kept = &worker->blocks[worker->count - 1];
    kept->id = g.next_id++;
    write_pattern(kept);
    check_live(kept);
}

static void do_malloc(struct worker *worker) {
    struct block block = {.size = choose_size(&worker->random), .alignment = 16, .sized = true};
    block.start = tally_malloc(block.size);
    adopt(worker, block);
}

static void do_calloc(struct worker *worker) {
    size_t size = choose_size(&worker->random);
    size_t count = random_below(&worker->random, 4) + 1;
    struct block block = {.size = size / count * count, .alignment = 16, .sized = true};
    block.start = tally_calloc(count, size / count);
    check_block(block.start != NULL, &block);
    check_zeros(&block);
    adopt(worker, block);
}

static void do_aligned(struct worker *worker) {
    struct random *random = &worker->random;
    uint64_t most = random_below(random, 10) == 0 ? 19 : 9;
    struct block block = {.size = choose_size(random),
                          .alignment = (size_t)16 << random_below(random, most)};
    if (random_below(random, 2) == 0) {
        block.start = tally_aligned_alloc(block.alignment, block.size);
    } else {
        void *result = NULL;
        check_eq(tally_posix_memalign(&result, block.alignment, block.size), 0);
        block.start = result;
    }
    adopt(worker, block);
}

static struct block *choose_block(struct worker *worker) {
    return &worker->blocks[random_below(&worker->random, worker->count)];
}

static void forget(struct worker *worker, struct block *block) {
    *block = worker->blocks[--worker->count];
}

static void do_free(struct worker *worker, struct block *block) {
    check_live(block);
    unsigned char *start = block->start;
    size_t size = block->size, alignment = block->alignment;
    bool sized = block->sized && random_below(&worker->random, 3) == 0;
    bool aligned = !block->sized && random_below(&worker->random, 2) == 0;
    g.live_bytes -= block->usable;
    forget(worker, block);
    if (sized) {
        tally_free_sized(start, size);
    } else if (aligned) {
        tally_free_aligned_sized(start, alignment, size);
    } else {
        tally_free(start);
    }
}

static void do_realloc(struct worker *worker, struct block *block) {
    size_t old_size = block->size;
    check_live(block);
    g.live_bytes -= block->usable;
    block->size = choose_size(&worker->random) + 1; /* to 0 would be a free */
    block->start = tally_realloc(block->start, block->size);
    check_block(block->start != NULL, block);
    check_pattern(block, old_size, old_size < block->size ? old_size : block->size);
    block->alignment = 16;
    block->sized = true;
    block->usable = tally_usable_size(block->start);
    block->id = g.next_id++;
    g.live_bytes += block->usable;
    write_pattern(block);
    check_live(block);
}

/* Hands a block over, and takes what somebody else left at that place. */
static void do_exchange(struct worker *worker) {
    struct block *place = &g.market[random_below(&worker->random, MARKET_PLACES)];
    pthread_mutex_lock(&g.market_mutex);
    struct block got = *place;
    place->start = NULL;
    if (worker->count > 0) {
        struct block *given = choose_block(worker);
        *place = *given;
        forget(worker, given);
    }
    pthread_mutex_unlock(&g.market_mutex);
    if (got.start != NULL) {
        check_live(&got);
        worker->blocks[worker->count++] = got;
    }
}

static void do_something(struct worker *worker) {
    uint64_t kind = random_below(&worker->random, 100);
    bool full = worker->count + 1 >= MOST_BLOCKS || g.live_bytes > MOST_BYTES + (MOST_BYTES >> 2);
    if (!full && kind < 30) {
        do_malloc(worker);
    } else if (!full && kind < 38) {
        do_calloc(worker);
    } else if (!full && kind < 46) {
        do_aligned(worker);
    } else if (kind < 60) {
        do_exchange(worker);
    } else if (worker->count > 0 && kind < 70) {
        do_realloc(worker, choose_block(worker));
    } else if (worker->count > 0 && kind < 73) {
        check_live(choose_block(worker));
    } else if (worker->count > 0) {
        do_free(worker, choose_block(worker));
    }
}

/* Now and then a thread frees all it has, or allocates only, so that slabs run empty and full. */
static void do_phase(struct worker *worker) {
    if (random_below(&worker->random, 2) == 0) {
        while (worker->count > 0) {
            do_free(worker, &worker->blocks[worker->count - 1]);
        }
    } else {
        size_t size = choose_size(&worker->random);
        for (unsigned i = 0; i < 300 && worker->count + 1 < MOST_BLOCKS; i++) {
            struct block block = {.size = size % 3000, .alignment = 16, .sized = true};
            block.start = tally_malloc(block.size);
            adopt(worker, block);
        }
    }
}

static void *work(void *argument) {
    struct worker *worker = argument;
    for (unsigned round = 0; round < g.rounds; round++) {
        for (unsigned step = 0; step < g.steps / g.threads; step++) {
            do_something(worker);
            if (random_below(&worker->random, 2000) == 0) {
                do_phase(worker);
            }
        }
        if (random_below(&worker->random, 8) == 0) {
            tally_purge();
        }
        pthread_barrier_wait(&g.barrier); /* The main thread looks at everything ... */
        pthread_barrier_wait(&g.barrier); /* ... and lets us go on. */
    }
    return NULL;
}

/* ---------------------------------------------------------------- between rounds */

static struct block all[MOST_THREADS * MOST_BLOCKS + MARKET_PLACES];

static int by_address(const void *a, const void *b) {
    const struct block *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static unsigned gather(void) {
    unsigned count = 0;
    for (unsigned t = 0; t < g.threads; t++) {
        memcpy(all + count, g.workers[t].blocks, g.workers[t].count * sizeof(struct block));
        count += g.workers[t].count;
    }
    for (unsigned i = 0; i < MARKET_PLACES; i++) {
        if (g.market[i].start != NULL) {
            all[count++] = g.market[i];
        }
    }
    qsort(all, count, sizeof(struct block), by_address);
    return count;
}

static void look_at_everything(void) {
    unsigned count = gather();
    size_t live = 0;
    for (unsigned i = 0; i < count; i++) {
        check_live(&all[i]);
        check_block(i == 0 || all[i - 1].start + all[i - 1].usable <= all[i].start, &all[i]);
        live += all[i].usable;
    }
    tally_verify();
    struct tally_totals totals;
    tally_totals(&totals);
    check_eq(totals.live, live);
    check_eq(totals.live + totals.cached + totals.slab_free + totals.large_rest,
             pages_totals().used);
    check(pages_totals().used + totals.free_pages_kept <= totals.mapped);
    check_eq(g.live_bytes, live);
}

static void free_all(void) {
    unsigned count = gather();
    for (unsigned i = 0; i < count; i++) {
        check_live(&all[i]);
        tally_free(all[i].start);
    }
    g.live_bytes = 0;
    memset(g.market, 0, sizeof g.market);
}

/* All threads have ended, all blocks are free: the page heap must be as empty as it was. */
static void check_nothing_is_lost(void) {
    struct tally_totals totals;
    tally_purge();
    tally_verify();
    tally_totals(&totals);
    check_eq(totals.live, 0);
    check_eq(totals.cached, 0);
    check_eq(pages_totals().used, 0);
    check_eq(totals.free_pages_kept, 0);
}

static void run(unsigned threads) {
    pthread_t ids[MOST_THREADS];
    g.threads = threads;
    pthread_barrier_init(&g.barrier, NULL, threads + 1);
    pthread_mutex_init(&g.market_mutex, NULL);
    for (unsigned t = 0; t < threads; t++) {
        g.workers[t].random = random_start(g.seed, threads * 100 + t);
        g.workers[t].count = 0;
        g.workers[t].number = t;
        check(pthread_create(&ids[t], NULL, work, &g.workers[t]) == 0);
    }
    for (unsigned round = 0; round < g.rounds; round++) {
        pthread_barrier_wait(&g.barrier);
        look_at_everything();
        pthread_barrier_wait(&g.barrier);
    }
    for (unsigned t = 0; t < threads; t++) {
        check(pthread_join(ids[t], NULL) == 0);
    }
    look_at_everything();
    free_all();
    check_nothing_is_lost();
}

/* ---------------------------------------------------------------- seed, length and worlds */

static void choose_seed(void) {
    const char *seed = getenv("SEED");
    bool longer = getenv("STRESS") != NULL;
    g.seed = seed != NULL ? strtoull(seed, NULL, 0)
             : longer     ? (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid()
                          : 20240601;
    g.rounds = ROUNDS;
    g.steps = (longer ? STEPS * 20 : STEPS) / SLOWER;
    char text[24];
    test_say("    SEED=", test_decimal(text, (long long)g.seed), "\n", NULL);
    if (longer) {
        test_allow_seconds(3600);
    }
}

/* The totals are compared exactly, so nobody may move objects meanwhile: MALLOC_CONF, read before
 * TALLY_CONF, forbids the background thread. */
static void run_all_numbers_of_threads(void) {
    setenv("MALLOC_CONF", "background_thread:false", 1);
    start_heap();
    for (unsigned threads = 1; threads <= MOST_THREADS; threads *= 2) {
        run(threads);
    }
}

TEST(every_block_is_as_the_shadow_says) {
    choose_seed();
    run_all_numbers_of_threads();
    check(!classmap_is_windowed());
}

TEST(every_block_is_as_the_shadow_says_on_the_slow_path) {
    choose_seed();
    setenv("TALLY_CONF", "all_slow:true", 1);
    run_all_numbers_of_threads();
}

/* Few arenas, a small cache and no waiting: other ways through the same code. */
TEST(every_block_is_as_the_shadow_says_with_little_cache) {
    choose_seed();
    setenv("TALLY_CONF", "narenas:1,thread_cache_bytes:20k,depot_bytes:0,dirty_decay_ms:0", 1);
    run_all_numbers_of_threads();
}

TEST(every_block_is_as_the_shadow_says_in_window_mode) {
    limit_address_space((rlim_t)512 << 20);
    choose_seed();
    run_all_numbers_of_threads();
    check(classmap_is_windowed());
}
