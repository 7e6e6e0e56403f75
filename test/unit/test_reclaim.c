/* SPDX-License-Identifier: MIT
 *
 * test_reclaim.c - pages inside slabs go back, what is live stays as it is, and a slab on its way is
 * left alone by everybody else.
 */
#include "heap/reclaim.h"

#include <sys/mman.h>

#include "base/os.h"
#include "heap/arena.h"
#include "heap/bin.h"
#include "heap/classmap.h"
#include "heap/depot.h"
#include "heap/dirty.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "heap/slab.h"
#include "unit.h"

static void start(void) {
    start_heap_with("narenas:1,background_thread:false");
    heap_trim();
}
TEST_SETUP(start);

enum { MOST = 1 << 16, HEAP_BYTES = 8 << 20 };
static void *objects[MOST];

static void fill(void *object, size_t size, unsigned salt) {
    memset(object, (int)(salt % 251), size);
}

static void check_filled(const void *object, size_t size, unsigned salt) {
    const uint8_t *bytes = object;
    for (size_t i = 0; i < size; i += 16) {
        check_eq(bytes[i], salt % 251);
    }
}

/* Fills HEAP_BYTES with objects and frees all but every nth; returns how many there were. */
static unsigned make_holes(size_t size, unsigned nth) {
    unsigned count = (unsigned)(HEAP_BYTES / size);
    check(count <= MOST);
    for (unsigned i = 0; i < count; i++) {
        objects[i] = tally_malloc(size);
        fill(objects[i], size, i);
    }
    for (unsigned i = 0; i < count; i++) {
        if (i % nth != 0) {
            tally_free(objects[i]);
            objects[i] = NULL;
        }
    }
    return count;
}

static size_t resident_pages_of(const struct span *slab) {
    unsigned char present[64];
    size_t bytes = slab_class(slab)->slab_mask + 1;
    check_eq(mincore((void *)slab->base, bytes, present), 0);
    size_t count = 0;
    for (size_t i = 0; i < bytes / os_facts.page_bytes; i++) {
        count += present[i] & 1;
    }
    return count;
}

static void check_and_free(size_t size, unsigned count, unsigned nth) {
    for (unsigned i = 0; i < count; i += nth) {
        check_filled(objects[i], size, i);
        tally_free(objects[i]);
    }
}

TEST(trim_gives_back_pages_between_live_objects) {
    static const size_t sizes[] = {128, 480, 1024, 2048, 3000, 4096, 6000, 10000, 16384, 32768};
    for (unsigned s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        size_t size = sizes[s];
        /* No slab runs empty, and still most pages do. */
        unsigned total = size_classes[size_class_of(size)].total;
        unsigned nth = size < 1024 ? total * 3 / 4 : total / 2;
        unsigned count = make_holes(size, nth);
        size_t before = slab_untouched_bytes();
        heap_trim();
        heap_verify();
        check(slab_untouched_bytes() - before > HEAP_BYTES / 4);
        check_and_free(size, count, nth);
        heap_trim();
        heap_verify();
    }
}

TEST(only_pages_of_live_objects_stay_resident) {
    unsigned count = make_holes(4096, 16);
    heap_trim();
    size_t pages = 0;
    for (unsigned i = 0; i < count; i += 16) {
        pages += resident_pages_of(classmap_span((uintptr_t)objects[i]));
    }
    check(os_facts.page_bytes != 4096 || pages <= 2 * (count / 16u));
    check_and_free(4096, count, 16);
}

TEST(what_went_is_handed_out_again_and_keeps_what_is_written) {
    for (unsigned round = 0; round < 5; round++) {
        unsigned count = make_holes(1536, 7);
        heap_trim();
        for (unsigned i = 0; i < count; i++) {
            if (i % 7 != 0) {
                objects[i] = tally_malloc(1536);
                fill(objects[i], 1536, i);
            }
        }
        heap_verify();
        check_and_free(1536, count, 1);
    }
}

TEST(freeing_twice_is_told_apart_from_never_allocated) {
    unsigned count = make_holes(4096, 16);
    void *freed = (char *)objects[16] + 4096;
    heap_trim();
    check_eq(heap_look(freed).verdict, HEAP_DOUBLE_FREE);
    const struct span *slab = classmap_span((uintptr_t)freed);
    for (unsigned i = 0; i < slab_class(slab)->total; i++) {
        check_eq(slab_is_surely_out(slab, i), slab_is_out(slab, i));
    }
    check_and_free(4096, count, 16);
}

TEST(by_time_a_slab_gives_at_the_second_look) {
    dirty_decay_ms[CHUNK_DIRTY] = -1; /* no steps */
    unsigned count = make_holes(4096, 16);
    heap_tick();
    while (depot_tick()) {
    }
    thread_flush();
    dirty_decay_ms[CHUNK_DIRTY] = 1;
    size_t before = slab_untouched_bytes();
    check(reclaim_tick() != UINT64_MAX);
    check_eq(slab_untouched_bytes(), before);
    _Atomic uint32_t never_rung = 0;
    while (reclaim_tick() != UINT64_MAX) {
        os_wait_ms(&never_rung, 0, 2);
    }
    check(slab_untouched_bytes() - before > HEAP_BYTES / 4);
    heap_verify();
    check_and_free(4096, count, 16);
}

TEST(without_a_background_thread_those_who_free_give_back) {
    unsigned count = make_holes(4096, 16);
    dirty_decay_ms[CHUNK_DIRTY] = 1;
    size_t before = slab_untouched_bytes();
    for (unsigned i = 0; slab_untouched_bytes() - before < HEAP_BYTES / 4; i++) {
        check(i < 1000);
        for (unsigned k = 0; k < 1000; k++) { /* more than caches hold */
            void *some[16];
            for (unsigned n = 0; n < 16; n++) {
                some[n] = tally_malloc(32768);
            }
            for (unsigned n = 0; n < 16; n++) {
                tally_free(some[n]);
            }
        }
    }
    heap_verify();
    check_and_free(4096, count, 16);
}

/* ---------------------------------------------------------------- a slab on its way */

enum { CLASS = 30 };

static void drain(void **slots, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        slab_set_word1(slots[i], slab_secret);
    }
    bin_drain(CLASS, slots, count);
}

/* A slab that is full but for some pages in the middle, and busy. */
static struct span *make_busy(struct bin *bin, unsigned *held) {
    unsigned total = size_classes[CLASS].total;
    check_eq(bin_refill(bin, objects, total, PAGES_MAY_GROW), total);
    struct span *slab = classmap_span((uintptr_t)objects[0]);
    drain(objects + total / 4, total / 2);
    memmove(objects + total / 4, objects + total / 4 + total / 2,
            (total - total / 4 - total / 2) * sizeof(void *));
    *held = total - total / 2;
    uint32_t sheets = bin_begin_purge(bin, slab, slab->base, false);
    check(sheets != 0 && slab_is_busy(slab));
    bin_verify(bin);
    return slab;
}

TEST(nothing_is_taken_from_a_busy_slab) {
    struct bin *bin = arena_bin(0, CLASS);
    unsigned held;
    struct span *slab = make_busy(bin, &held);
    void *other;
    check_eq(bin_refill(bin, &other, 1, PAGES_MAY_GROW), 1);
    check(classmap_span((uintptr_t)other) != slab);
    check_eq(bin_begin_purge(bin, slab, slab->base, false), 0);
    bin_end_purge(bin, slab, slab->base, true);
    bin_verify(bin);
    drain(&other, 1);
    drain(objects, held);
    bin_verify(bin);
    check_eq(bin_nout(bin), 0);
}

TEST(a_busy_slab_that_runs_empty_stays_until_it_is_done) {
    struct bin *bin = arena_bin(0, CLASS);
    unsigned held;
    struct span *slab = make_busy(bin, &held);
    drain(objects, held);
    bin_verify(bin);
    check_eq(slab->kind, SPAN_SLAB);
    bin_trim(bin);
    check_eq(slab->kind, SPAN_SLAB);
    bin_end_purge(bin, slab, slab->base, false);
    bin_verify(bin);
    bin_trim(bin);
    check_eq(slab->kind, SPAN_NONE);
    check_eq(bin->nslabs, 0);
}

static void *lock_and_vanish(void *bin) {
    lock_acquire(&((struct bin *)bin)->lock);
    return NULL;
}

TEST(a_bin_that_a_fork_found_locked_takes_its_busy_slab_back) {
    struct bin *bin = arena_bin(0, CLASS);
    unsigned held;
    struct span *slab = make_busy(bin, &held);
    run_threads(1, lock_and_vanish, bin);
    pretend_fork();
    void *object;
    check_eq(bin_refill(bin, &object, 1, PAGES_MAY_GROW), 1);
    check(!slab_is_busy(slab) && !slab->is_fresh);
    bin_verify(bin);
}

/* ---------------------------------------------------------------- beside other threads */

static _Atomic bool stop;

static void *trim_all_the_time(void *unused) {
    while (!stop) {
        heap_trim();
    }
    return unused;
}

static void churn_beside(void) {
    struct random random = random_start(26, 0);
    enum { HELD = 3000 };
    static void *held[HELD];
    for (unsigned i = 0; i < 200000 / SLOWER; i++) {
        unsigned k = (unsigned)random_below(&random, HELD);
        size_t size = 64 + k % 9 * 700;
        if (held[k] != NULL) {
            check_filled(held[k], size, k);
            tally_free(held[k]);
            held[k] = NULL;
        }
        if (random_below(&random, 8) == 0) {
            held[k] = tally_malloc(size);
            fill(held[k], size, k);
        }
    }
    for (unsigned k = 0; k < HELD; k++) {
        tally_free(held[k]);
    }
}

TEST(programs_and_purges_do_not_meet) {
    pthread_t thread;
    check(pthread_create(&thread, NULL, trim_all_the_time, NULL) == 0);
    churn_beside();
    stop = true;
    check(pthread_join(thread, NULL) == 0);
    heap_verify();
}

static void use_and_verify(void) {
    churn_beside();
    heap_trim();
    heap_verify();
}

TEST(a_child_forked_during_a_purge_goes_on) {
    pthread_t thread;
    (void)make_holes(2048, 5);
    check(pthread_create(&thread, NULL, trim_all_the_time, NULL) == 0);
    for (unsigned i = 0; i < 10 / SLOWER + 1; i++) {
        check_child(use_and_verify());
        (void)make_holes(2048, 5);
    }
    stop = true;
    check(pthread_join(thread, NULL) == 0);
}
