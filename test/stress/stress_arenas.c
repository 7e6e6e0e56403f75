/* SPDX-License-Identifier: MIT
 *
 * stress_arenas.c - arenas are made, reset and destroyed beside threads that use others.
 *
 *      users     allocate and free as any program does, and find what they wrote
 *      owners    make an arena, with hooks or without, allocate in it past caches and through an
 *                explicit one, free a part, some of it into their own cache, reset it and destroy it
 *      binders   bind themselves to a new arena, work with malloc and free, let go and destroy it
 *      shapers   purge, change decay times, ask for totals
 *
 * An owner's reset must not take anything from anybody else, so every block carries a pattern of its
 * holder.  At the end everything is returned: nothing is live that was not before, no extent of a hook
 * is missing, and the heap is walked.
 *
 *      SEED=n      repeats a run, as far as the scheduler allows; every run prints its seed
 *      STRESS=1    takes a new seed and works twenty times longer
 */
#include <stdio.h>
#include <time.h>

#include "base/os.h"
#include "heap/arena.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "heap/hooks.h"
#include "unit.h"

enum { THREADS = 8, SLICES = 10, ROUNDS = 6, BLOCKS = 200 };

static struct {
    uint64_t seed;
    unsigned rounds;
    _Atomic unsigned number;
    _Atomic unsigned working; /* threads that are not done; shapers stop with the last */
    _Atomic size_t extents;   /* bytes that hooks gave and did not get back */
} g;

struct block {
    uint64_t *start;
    size_t size;
    uint64_t tag;
};

static size_t random_size(struct random *random) {
    uint64_t kind = random_below(random, 100);
    if (kind < 70) {
        return 16 + random_below(random, 1000);
    }
    return kind < 95 ? 16 + random_below(random, 40000) : 40000 + random_below(random, 3 << 20);
}

static void sign(struct block *block) {
    block->start[0] = block->tag;
    block->start[block->size / 8 - 1] = block->tag;
}

static void check_block(const struct block *block) {
    check_eq(block->start[0], block->tag);
    check_eq(block->start[block->size / 8 - 1], block->tag);
}

/* ---------------------------------------------------------------- hooks that count */

static struct extent_hooks tables[2];

static void *counted_alloc(struct extent_hooks *hooks, void *new_addr, size_t size,
                           size_t alignment, bool *zero, bool *commit, unsigned arena) {
    (void)hooks;
    void *start =
        hooks_default.alloc(&hooks_default, new_addr, size, alignment, zero, commit, arena);
    g.extents += start != NULL ? size : 0;
    return start;
}

static bool counted_dalloc(struct extent_hooks *hooks, void *addr, size_t size, bool committed,
                           unsigned arena) {
    if (hooks == &tables[1]) {
        return true; /* it keeps its extents until the arena goes */
    }
    g.extents -= size;
    return hooks_default.dalloc(&hooks_default, addr, size, committed, arena);
}

static void counted_destroy(struct extent_hooks *hooks, void *addr, size_t size, bool committed,
                            unsigned arena) {
    (void)hooks;
    g.extents -= size;
    hooks_default.destroy(&hooks_default, addr, size, committed, arena);
}

static struct extent_hooks *choose_hooks(struct random *random) {
    uint64_t which = random_below(random, 4);
    return which < 2 ? &tables[which] : NULL;
}

/* ---------------------------------------------------------------- the four kinds */

static void use(struct random *random) {
    static __thread struct block blocks[BLOCKS];
    for (unsigned i = 0; i < 2000; i++) {
        struct block *block = &blocks[random_below(random, BLOCKS)];
        if (block->start == NULL) {
            block->size = random_size(random) & ~(size_t)7;
            block->tag = random_next(random);
            block->start = tally_malloc(block->size);
            check(block->start != NULL);
            sign(block);
        } else {
            check_block(block);
            tally_free(block->start);
            block->start = NULL;
        }
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i].start != NULL) {
            check_block(&blocks[i]);
            tally_free(blocks[i].start);
            blocks[i].start = NULL;
        }
    }
}

static unsigned create(struct random *random) {
    int arena = arena_create(choose_hooks(random));
    check(arena > 0);
    return (unsigned)arena;
}

static void own_once(struct random *random, unsigned arena, int cache) {
    struct block blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        bool zeroed;
        struct place place = {(int)arena, random_below(random, 2) == 0 ? cache : PLACE_NO_CACHE};
        size_t size = random_size(random) & ~(size_t)7;
        blocks[i] = (struct block){place_alloc(place, size, 1, &zeroed), size, random_next(random)};
        check(blocks[i].start != NULL);
        sign(&blocks[i]);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        check_block(&blocks[i]);
        uint64_t way = random_below(random, 6);
        struct heap_object found = heap_look(blocks[i].start);
        check_eq(found.verdict, HEAP_LIVE);
        if (way == 0) {
            check(heap_free(&found)); /* perhaps into this thread's cache */
        } else if (way <= 2) {
            check(place_free((struct place){PLACE_OWN, way == 1 ? cache : PLACE_NO_CACHE}, &found));
        }
    }
}

static void own(struct random *random) {
    unsigned arena = create(random);
    int cache = tcaches_create();
    check(cache >= 0);
    for (unsigned i = 0; i < 3; i++) {
        own_once(random, arena, cache);
        /* What it holds is of this arena only, and would be of the next one of this index. */
        tcaches_flush((unsigned)cache);
        if (i < 2) {
            check(arena_reset(arena));
        }
    }
    tcaches_destroy((unsigned)cache);
    check(arena_destroy(arena));
    thread_flush();
}

static void bind(struct random *random) {
    unsigned arena = create(random);
    check(thread_set_arena(arena));
    use(random);
    void *left = tally_malloc(100);
    check(left != NULL);
    check(!arena_destroy(arena));
    check(thread_set_arena(0));
    check(arena_destroy(arena));
}

static void shape(struct random *random) {
    unsigned arena = (unsigned)random_below(random, arena_limit());
    switch (random_below(random, 5)) {
    case 0:
        arena_purge(arena);
        break;
    case 1:
        arena_decay(arena);
        break;
    case 2:
        (void)arena_set_decay_ms(arena, CHUNK_DIRTY, (ssize_t)random_below(random, 20) - 1);
        break;
    case 3:
        (void)heap_totals();
        break;
    default:
        (void)heap_tick();
    }
}

static void *work(void *argument) {
    (void)argument;
    unsigned number = g.number++;
    struct random random = random_start(g.seed, number);
    void (*const kinds[])(struct random *) = {use, own, bind, use, own, use, own, shape};
    bool shapes = kinds[number % 8] == shape;
    for (unsigned round = 0; shapes ? g.working > 1 : round < g.rounds; round++) {
        kinds[number % 8](&random);
    }
    g.working--;
    return NULL;
}

static void run(const char *conf) {
    test_allow_seconds(getenv("STRESS") != NULL ? 3600 : 120);
    g.seed = getenv("SEED") != NULL ? strtoull(getenv("SEED"), NULL, 0) : 1;
    g.rounds = (ROUNDS + SLOWER - 1) / SLOWER;
    if (getenv("STRESS") != NULL) {
        g.rounds *= 20;
        g.seed = getenv("SEED") != NULL ? g.seed : (uint64_t)time(NULL);
    }
    char number[24];
    test_say("seed ", test_decimal(number, (long long)g.seed), "\n", NULL);
    start_heap_with(conf);
    for (unsigned i = 0; i < 2; i++) {
        tables[i] = hooks_default;
        tables[i].alloc = counted_alloc;
        tables[i].dalloc = counted_dalloc;
        tables[i].destroy = counted_destroy;
    }
    size_t before = heap_totals().live;
    for (unsigned slice = 0; slice < SLICES; slice++) {
        g.working = THREADS;
        run_threads(THREADS, work, NULL);
        heap_verify(); /* with all that the threads have left in caches */
    }
    heap_trim();
    heap_verify();
    check_eq(g.extents, 0);
    check_eq(heap_totals().live, before);
    for (unsigned a = arena_count(); a < arena_limit(); a++) {
        check(!arena_exists(a));
        check_eq(arena_thread_count(a), 0);
    }
}

TEST(arenas_come_and_go_beside_working_threads) {
    run("narenas:2");
}

TEST(arenas_come_and_go_on_the_slow_path) {
    run("narenas:2,all_slow:true");
}

TEST(arenas_come_and_go_with_small_caches_and_no_decay) {
    run("narenas:3,thread_cache_bytes:8192,depot_bytes:65536,dirty_decay_ms:0");
}
