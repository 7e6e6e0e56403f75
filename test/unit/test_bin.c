/* SPDX-License-Identifier: MIT
 *
 * test_bin.c - refill and drain move each object once, empty slabs go back, and what should never be
 * put back ends the process.
 */
#include "heap/bin.h"

#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "heap/slab.h"
#include "unit.h"

/* Two arenas, so that objects of both meet in one drain. */
static void start(void) {
    start_heap_with("narenas:2");
    heap_trim();
}
TEST_SETUP(start);

enum { MOST = 3000 };

/* Each object once: sorts a copy and looks for neighbours closer than the size. */
static int compare_pointers(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return x < y ? -1 : x > y;
}

static void check_disjoint(void *const *objects, unsigned count, unsigned size_class) {
    static uintptr_t sorted[MOST];
    memcpy(sorted, objects, count * sizeof(void *));
    qsort(sorted, count, sizeof(uintptr_t), compare_pointers);
    for (unsigned i = 1; i < count; i++) {
        check(sorted[i] - sorted[i - 1] >= size_classes[size_class].size);
    }
}

static void fill(void *const *objects, unsigned count, unsigned size_class) {
    for (unsigned i = 0; i < count; i++) {
        check_eq(slab_word1(objects[i]), slab_secret);
        memset(objects[i], 0x77, size_classes[size_class].size);
    }
}

static void shuffle(void **objects, unsigned count, struct random *random) {
    for (unsigned i = count; i > 1; i--) {
        unsigned other = (unsigned)random_below(random, i);
        void *swap = objects[i - 1];
        objects[i - 1] = objects[other];
        objects[other] = swap;
    }
}

static void put_secret(void *const *objects, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        slab_set_word1(objects[i], slab_secret);
    }
}

static void drain(unsigned size_class, void **objects, unsigned count) {
    put_secret(objects, count);
    bin_drain(size_class, objects, count);
}

static unsigned several_slabs_of(unsigned size_class) {
    unsigned count = size_classes[size_class].total * 5u / 2;
    return count < MOST ? count : MOST;
}

TEST(objects_of_every_class_go_out_once_and_come_back) {
    static void *objects[MOST];
    struct random random = random_start(21, 0);
    size_t used = pages_totals().used;
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        struct bin *bin = arena_bin(0, c);
        unsigned count = several_slabs_of(c);
        check_eq(bin_refill(bin, objects, count, PAGES_MAY_GROW), count);
        bin_verify(bin);
        check_eq(bin_nout(bin), count);
        check_disjoint(objects, count, c);
        fill(objects, count, c);
        shuffle(objects, count, &random);
        for (unsigned done = 0; done < count;) {
            unsigned n = (unsigned)random_below(&random, 200) + 1;
            n = n < count - done ? n : count - done;
            drain(c, objects + done, n);
            done += n;
            bin_verify(bin);
            check_eq(bin_nout(bin), count - done);
        }
        check_eq(bin->nslabs, 1); /* one that a burst would ask for again */
        bin_trim(bin);
        bin_verify(bin);
        check_eq(bin->nslabs, 0);
        check_eq(pages_totals().used, used);
    }
    heap_verify();
}

TEST(random_refills_and_drains_agree_with_the_counts) {
    check(arena_prepare(1));
    static void *out[MOST];
    struct random random = random_start(22, 0);
    for (unsigned c = 1; c < CLASS_COUNT; c += 7) {
        unsigned held = 0;
        for (unsigned step = 0; step < 150; step++) {
            unsigned n = (unsigned)random_below(&random, 64) + 1;
            unsigned arena = (unsigned)random_below(&random, 2);
            if (random_below(&random, 2) == 0 && held + n <= MOST) {
                check_eq(bin_refill(arena_bin(arena, c), out + held, n, PAGES_MAY_GROW), n);
                fill(out + held, n, c);
                held += n;
                check_disjoint(out, held, c);
            } else if (held >= n) {
                shuffle(out, held, &random);
                held -= n;
                drain(c, out + held, n);
            }
            bin_verify(arena_bin(0, c));
            bin_verify(arena_bin(1, c));
            check_eq(bin_nout(arena_bin(0, c)) + bin_nout(arena_bin(1, c)), held);
        }
        drain(c, out, held);
    }
}

TEST(one_drain_serves_objects_of_several_arenas) {
    void *mixed[60];
    check(arena_prepare(1));
    for (unsigned i = 0; i < 60; i++) {
        check_eq(bin_refill(arena_bin(i % 2, 9), &mixed[i], 1, PAGES_MAY_GROW), 1);
        check_eq(classmap_span((uintptr_t)mixed[i])->arena, i % 2);
    }
    check_eq(bin_nout(arena_bin(0, 9)), 30);
    check_eq(bin_nout(arena_bin(1, 9)), 30);
    drain(9, mixed, 60);
    check_eq(bin_nout(arena_bin(0, 9)), 0);
    check_eq(bin_nout(arena_bin(1, 9)), 0);
    heap_verify();
}

TEST(lowest_slab_serves_first) {
    static void *objects[MOST];
    unsigned c = 16, total = size_classes[c].total;
    struct bin *bin = arena_bin(0, c);
    check_eq(bin_refill(bin, objects, 3 * total, PAGES_MAY_GROW), 3 * total);
    /* One object of each slab is free; the lowest address must come out first. */
    void *freed[3] = {objects[0], objects[total], objects[2 * total]};
    drain(c, freed, 3);
    qsort(freed, 3, sizeof(void *), compare_pointers);
    for (unsigned i = 0; i < 3; i++) {
        void *object;
        check_eq(bin_refill(bin, &object, 1, PAGES_IN_CHUNKS), 1);
        check_eq(object, freed[i]);
        bin_verify(bin);
    }
}

TEST(refill_that_may_not_grow_the_heap_brings_what_there_is) {
    struct bin *bin = arena_bin(0, CLASS_COUNT - 1);
    void *objects[8];
    bool zeroed;
    while (pages_take(1, 1, PAGES_IN_CHUNKS, &zeroed) != NULL) {
    }
    check_eq(bin_refill(bin, objects, 8, PAGES_IN_CHUNKS), 0);
    bin_verify(bin);
    check_eq(bin_refill(bin, objects, 6, PAGES_MAY_GROW), 6);
    while (pages_take(1, 1, PAGES_IN_CHUNKS, &zeroed) != NULL) {
    }
    check_eq(bin_refill(bin, objects, 8, PAGES_IN_CHUNKS), 2); /* a slab has eight */
    bin_verify(bin);
}

TEST(look_knows_out_free_and_uncarved) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        void *objects[3];
        check_eq(bin_refill(arena_bin(0, c), objects, 3, PAGES_MAY_GROW), 3);
        struct span *slab = classmap_span((uintptr_t)objects[0]);
        check_eq(bin_look(slab, (uintptr_t)objects[0]), BIN_OBJECT_OUT);
        uintptr_t last =
            slab->base + (uintptr_t)(slab_class(slab)->total - 1) * slab_class(slab)->size;
        enum bin_object expected =
            slab->ncarved == slab_class(slab)->total ? BIN_OBJECT_FREE : BIN_OBJECT_UNCARVED;
        check_eq(bin_look(slab, last), expected);
        drain(c, &objects[0], 1);
        check_eq(bin_look(slab, (uintptr_t)objects[0]), BIN_OBJECT_FREE);
        drain(c, &objects[1], 2);
    }
}

TEST(slow_frees_make_their_granule_fast) {
    unsigned c = 16;
    void *object;
    check_eq(bin_refill(arena_bin(0, c), &object, 1, PAGES_MAY_GROW), 1);
    struct span *slab = classmap_span((uintptr_t)object);
    check_eq(classmap_get((uintptr_t)object), 0);
    unsigned frees = 0;
    while (classmap_get((uintptr_t)object) == 0) {
        check(++frees <= 1000);
        bin_note_slow_free(slab, (uintptr_t)object);
        bin_verify(arena_bin(0, c));
    }
    check(frees > 1); /* not at the first: it would touch pages for nothing */
}

TEST(object_drained_twice_dies) {
    void *objects[3];
    check_eq(bin_refill(arena_bin(0, 10), objects, 3, PAGES_MAY_GROW), 3);
    drain(10, objects, 1);
    check_dies_exactly(drain(10, objects, 1),
                       "tally: free(%p): the 160-byte object was already free, found when a cache "
                       "was emptied",
                       SIGABRT);
    void *twice[2];
    twice[0] = twice[1] = objects[1];
    check_dies(drain(10, twice, 2), "already free, found when a cache was emptied", SIGABRT);
}

TEST(object_of_another_class_dies) {
    void *object;
    check_eq(bin_refill(arena_bin(0, 10), &object, 1, PAGES_MAY_GROW), 1);
    check_dies_exactly(bin_drain(11, &object, 1),
                       "tally: free(%p): not memory of this heap, found when a cache was emptied",
                       SIGABRT);
    void *twin = (void *)((uintptr_t)object ^ UINT64_C(1) << 46); /* shares its class byte */
    check_dies(bin_drain(10, &twin, 1), "not memory of this heap, found when a cache was emptied",
               SIGABRT);
}

static void *churn(void *steps) {
    static _Atomic unsigned stream;
    unsigned me = stream++;
    struct random random = random_start(23, me);
    void *held[200];
    unsigned count = 0;
    for (unsigned i = 0; i < *(unsigned *)steps; i++) {
        unsigned n = (unsigned)random_below(&random, 20) + 1;
        if (random_below(&random, 2) == 0 && count + n <= 200) {
            check_eq(bin_refill(arena_bin(me % 2, 5), held + count, n, PAGES_MAY_GROW), n);
            for (unsigned k = count; k < count + n; k++) {
                *(uintptr_t *)held[k] = (uintptr_t)held ^ k;
            }
            count += n;
        } else if (count >= n) {
            count -= n;
            for (unsigned k = count; k < count + n; k++) {
                check_eq(*(uintptr_t *)held[k], (uintptr_t)held ^ k);
            }
            drain(5, held + count, n);
        }
    }
    drain(5, held, count);
    return NULL;
}

TEST(threads_at_two_bins_lose_nothing) {
    check(arena_prepare(1));
    unsigned steps = 10000;
    run_threads(4, churn, &steps);
    heap_verify();
    check_eq(bin_nout(arena_bin(0, 5)) + bin_nout(arena_bin(1, 5)), 0);
}

/* Entering a bin repairs it, if the fork came in the middle of another thread's work. */
static void use_each_bin(void) {
    for (unsigned a = 0; a < arena_count(); a++) {
        check(arena_prepare(a));
        for (unsigned c = 1; c < CLASS_COUNT; c++) {
            void *object;
            check_eq(bin_refill(arena_bin(a, c), &object, 1, PAGES_MAY_GROW), 1);
            bin_verify(arena_bin(a, c));
            drain(c, &object, 1);
            bin_verify(arena_bin(a, c));
        }
    }
    heap_verify();
}

/* A thread that is inside the bin, has spoilt all that is derived, and is gone after the fork. */
static void *leave_half_done(void *bin_to_spoil) {
    struct bin *bin = bin_to_spoil;
    lock_acquire(&bin->lock);
    bin->nmalloc += 7;
    bin->nslabs = 100;
    bin->empty = 5;
    bin->slabs = NULL;
    return NULL;
}

TEST(abandoned_bin_is_rebuilt_from_its_slabs) {
    static void *objects[MOST];
    for (unsigned c = 1; c < CLASS_COUNT; c += 5) {
        struct bin *bin = arena_bin(0, c);
        unsigned count = several_slabs_of(c);
        check_eq(bin_refill(bin, objects, count, PAGES_MAY_GROW), count);
        drain(c, objects, count / 2);
        run_threads(1, leave_half_done, bin);
        pretend_fork();
        drain(c, objects + count / 2, 1);
        bin_verify(bin);
        check_eq(bin_nout(bin), count - count / 2 - 1);
        drain(c, objects + count / 2 + 1, count - count / 2 - 1);
        bin_verify(bin);
        check_eq(bin_nout(bin), 0);
    }
    heap_verify();
}

TEST(child_of_a_fork_repairs_what_another_thread_left_half_done) {
    check(arena_prepare(1));
    unsigned steps = 60000 / SLOWER;
    pthread_t thread[2];
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_create(&thread[i], NULL, churn, &steps) == 0);
    }
    for (unsigned i = 0; i < 60 / SLOWER; i++) {
        check_child(use_each_bin());
    }
    for (unsigned i = 0; i < 2; i++) {
        check(pthread_join(thread[i], NULL) == 0);
    }
    heap_verify();
}
