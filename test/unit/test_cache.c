/* SPDX-License-Identifier: MIT
 *
 * test_cache.c - a thread's magazines: what goes in comes out once, room and budget add up after every
 * call, and no copy looks past the end of a magazine.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "heap/cache.h"

#include <sys/mman.h>

#include "opt/opt.h"
#include "heap/arena.h"
#include "heap/depot.h"
#include "heap/pool.h"
#include "heap/heap.h"
#include "heap/meta.h"
#include "unit.h"

/* This thread's heap, once it has earned one. */
static struct thread *own_heap(const char *conf) {
    start_heap_with(conf);
    while (thread_self() == NULL) {
    }
    return tls.self;
}

static unsigned held_by_cache(struct thread *thread, unsigned c) {
    const struct rec *rec = &thread->hot.rec[c];
    unsigned held = magazine_take_count(rec->take);
    return held + (rec->give != 0 ? magazine_give_count(rec->give, thread->cap[c]) : 0);
}

/* The two equations of cache.c. */
static void check_invariant(struct thread *thread) {
    size_t promised = 0;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        promised += (size_t)thread->room[c] * size_classes[c].size;
        bool has_magazines = thread->hot.rec[c].take != 0;
        check_eq(has_magazines, thread->room[c] != 0);
        check(thread->room[c] <= size_classes[c].room_max);
        /* A full A leaves F open for one: a free must find a slot. */
        check(held_by_cache(thread, c) <= thread->room[c] + (unsigned)has_magazines);
        check(thread->cap[c] <= MAGAZINE_MOST);
    }
    check_eq(thread->spare_bytes + promised, thread->budget_bytes);
    check(thread->budget_bytes <= opt.thread_cache_bytes);
}

static size_t objects_out(unsigned c) {
    size_t sum = 0;
    for (unsigned a = 0; a < arena_count(); a++) {
        sum += arena_get(a) != NULL ? bin_nout(arena_bin(a, c)) : 0;
    }
    return sum;
}

enum { MOST_LIVE = 4000 };

/* The live objects of one class; the first word of each tells its place, so that a second owner
 * shows. */
struct live {
    void *objects[MOST_LIVE];
    unsigned count;
};

static void alloc_one(struct thread *thread, unsigned c, struct live *live) {
    void *object = cache_alloc(thread, c);
    check(object != NULL);
    check_eq(slab_word1(object), slab_secret);
    slab_set_word1(object, 0);
    *(void ***)object = &live->objects[live->count];
    live->objects[live->count++] = object;
}

static void free_one(struct thread *thread, unsigned c, struct live *live, unsigned which) {
    void *object = live->objects[which];
    check_eq(*(void ***)object, &live->objects[which]);
    live->objects[which] = live->objects[--live->count];
    *(void ***)live->objects[which] = &live->objects[which];
    slab_set_word1(object, slab_secret);
    cache_free(thread, c, object);
}

static void walk_randomly(struct thread *thread, struct live *live, unsigned classes,
                          unsigned steps, struct random *random) {
    for (unsigned step = 0; step < steps / SLOWER; step++) {
        unsigned k = (unsigned)random_below(random, classes);
        unsigned c = 1 + k * (CLASS_COUNT - 1) / classes;
        unsigned burst = (unsigned)random_below(random, random_below(random, 8) == 0 ? 100 : 6) + 1;
        bool allocate = random_below(random, 2) == 0;
        for (unsigned i = 0; i < burst; i++) {
            if (allocate && live[k].count < 300) {
                alloc_one(thread, c, &live[k]);
            } else if (!allocate && live[k].count > 0) {
                free_one(thread, c, &live[k], (unsigned)random_below(random, live[k].count));
            }
        }
        check_eq(objects_out(c), live[k].count + held_by_cache(thread, c) + depot_count(c));
        check_invariant(thread);
        if (step % 500 == 0) {
            heap_verify();
        }
    }
}

static void run_walk(const char *conf, unsigned classes, unsigned steps) {
    static struct live live[CLASS_COUNT];
    struct random random = random_start(26, classes);
    struct thread *thread = own_heap(conf);
    walk_randomly(thread, live, classes, steps, &random);
    for (unsigned k = 0; k < classes; k++) {
        while (live[k].count > 0) {
            free_one(thread, 1 + k * (CLASS_COUNT - 1) / classes, &live[k], live[k].count - 1);
        }
    }
    check_invariant(thread);
    cache_flush(thread);
    check_invariant(thread);
    check_eq(thread->spare_bytes, thread->budget_bytes);
    depot_drain_all();
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        check_eq(objects_out(c), 0);
    }
    heap_verify();
}

TEST(random_work_in_a_few_classes_keeps_the_books) {
    run_walk("narenas:2", 3, 5000);
}

TEST(random_work_in_all_classes_keeps_the_books) {
    run_walk("narenas:2", CLASS_COUNT - 1, 8000);
}

TEST(small_budget_keeps_the_books) {
    run_walk("thread_cache_bytes:70000", CLASS_COUNT - 1, 8000);
}

TEST(tiny_budget_keeps_the_books) {
    run_walk("thread_cache_bytes:300,depot_bytes:1000", 8, 3000);
}

TEST(no_budget_means_no_magazines) {
    run_walk("thread_cache_bytes:0", 8, 1000);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        check_eq(tls.self->hot.rec[c].take, 0);
    }
}

TEST(large_budget_keeps_the_books) {
    run_walk("thread_cache_bytes:100m,depot_bytes:0", CLASS_COUNT - 1, 3000);
}

/* Classes that come late, when the budget is spent, take room from others, down to one object. */
TEST(class_with_magazines_always_has_room) {
    struct thread *thread = own_heap("thread_cache_bytes:100000");
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned c = CLASS_COUNT - 1; c >= 1; c--) {
            for (unsigned i = 0; i < 1500; i++) {
                void *object = cache_alloc(thread, c);
                slab_set_word1(object, slab_secret);
                cache_free(thread, c, object);
            }
            check_invariant(thread);
        }
    }
    heap_verify();
}

TEST(magazines_come_with_repeated_use_only) {
    struct thread *thread = own_heap("");
    size_t metadata = meta_bytes();
    void *objects[CLASS_COUNT];
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        objects[c] = cache_alloc(thread, c);
    }
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        slab_set_word1(objects[c], slab_secret);
        cache_free(thread, c, objects[c]);
        check_eq(thread->room[c], 0);
    }
    /* What chunks and their table need apart, a thread that touches each size once costs nothing. */
    check(meta_bytes() - metadata < 200000);
    check_eq(thread->spare_bytes, thread->budget_bytes);
    for (unsigned i = 0; i < 30; i++) {
        alloc_one(thread, 5, &(struct live){.count = 0});
    }
    check(thread->room[5] > 0);
}

TEST(room_grows_with_use_up_to_the_most) {
    struct thread *thread = own_heap("thread_cache_bytes:10m");
    static struct live live;
    unsigned last = 0;
    for (unsigned round = 0; round < 200; round++) {
        while (live.count < 1000) {
            alloc_one(thread, 3, &live);
        }
        while (live.count > 0) {
            free_one(thread, 3, &live, live.count - 1);
        }
        check(thread->room[3] >= last);
        last = thread->room[3];
        check_invariant(thread);
    }
    check_eq(last, size_classes[3].room_max);
}

/* The giving magazine is the last thing in a mapping of ours, with nothing readable behind it. */
static struct magazine *magazine_before_guard(void) {
    size_t step = 1 << 20; /* what meta.c maps at a time */
    for (unsigned i = 0; i < 100; i++) {
        char *guard = mmap(NULL, step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(guard != MAP_FAILED);
        check(meta_alloc(step - 2 * MAGAZINE_BYTES - 64, 64) != NULL); /* a mapping of its own */
        char *magazine = meta_alloc(sizeof(struct magazine), MAGAZINE_BYTES);
        while (magazine + MAGAZINE_BYTES < guard && magazine + step > guard) {
            magazine = meta_alloc(sizeof(struct magazine), MAGAZINE_BYTES);
        }
        if (magazine + MAGAZINE_BYTES == guard) {
            return (struct magazine *)magazine;
        }
    }
    return NULL;
}

TEST(nothing_is_read_behind_the_last_magazine) {
    struct thread *thread = own_heap("narenas:1,thread_cache_bytes:5000"); /* so F is full often */
    struct magazine *last = magazine_before_guard();
    if (last == NULL) {
        skip("the kernel places mappings in an order this test does not know");
    }
    static struct live live[CLASS_COUNT];
    struct random random = random_start(27, 0);
    for (unsigned round = 0; round < 40; round++) {
        unsigned c = 10 + round % 10;
        struct magazine *other = pool_take();
        pool_put(last);
        pool_put(other); /* A gets `other`, F gets `last` */
        for (unsigned step = 0; step < 2000; step++) {
            unsigned count = live[c].count;
            if (count < 60 && random_below(&random, 2) == 0) {
                alloc_one(thread, c, &live[c]);
            } else if (count > 0) {
                free_one(thread, c, &live[c], count - 1);
            }
        }
        check_invariant(thread);
        cache_flush(thread);
        depot_drain_all();
        struct magazine *pooled; /* find `last` in the pool again */
        do {
            pooled = pool_take();
        } while (pooled != last);
    }
}

TEST(uncached_objects_come_from_the_bin) {
    own_heap("narenas:1");
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        size_t before = objects_out(c);
        void *object = cache_alloc_uncached(NULL, c);
        check(object != NULL);
        check_eq(objects_out(c), before + 1);
        bin_drain(c, &object, 1);
        check_eq(objects_out(c), before);
    }
}

TEST(depot_serves_before_the_heap_grows) {
    struct thread *thread = own_heap("narenas:1,depot_bytes:100m");
    static struct live live;
    while (live.count < MOST_LIVE) {
        alloc_one(thread, 16, &live);
    }
    while (live.count > 0) {
        free_one(thread, 16, &live, live.count - 1);
    }
    cache_flush(thread);
    check(depot_count(16) > 0);
    size_t mapped = pages_totals().mapped;
    /* Another class needs pages: objects that wait in the depot give theirs. */
    void *object = NULL;
    for (unsigned i = 0; i < 30; i++) {
        object = cache_alloc(thread, 50);
        check(object != NULL);
    }
    check(pages_totals().mapped <= mapped + CHUNK_BYTES);
    heap_verify();
}
