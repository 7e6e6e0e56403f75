/* SPDX-License-Identifier: MIT
 *
 * test_pool.c - empty magazines are used again, their pages go back to the kernel and come again.
 */
#define _GNU_SOURCE
#include "heap/pool.h"

#include <sys/mman.h>

#include "base/os.h"
#include "heap/heap.h"
#include "heap/meta.h"
#include "unit.h"

enum { MOST = 4000 };

static struct magazine *taken[MOST];
static bool purge_fails;
static unsigned purges;

int __real_os_purge(void *start, size_t bytes);
int __wrap_os_purge(void *start, size_t bytes);
int __wrap_os_purge(void *start, size_t bytes) {
    purges++;
    return purge_fails ? -EINVAL : __real_os_purge(start, bytes);
}

static void take(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        taken[i] = pool_take();
        check(taken[i] != NULL);
        memset(taken[i]->slots, 1, sizeof taken[i]->slots);
        taken[i]->slots[0] = taken[i];
    }
    for (unsigned i = 0; i < count; i++) { /* All are different ones. */
        check_eq(taken[i]->slots[0], taken[i]);
    }
}

static void put(unsigned first, unsigned end) {
    for (unsigned i = first; i < end; i++) {
        pool_put(taken[i]);
    }
}

/* Of the magazines that were taken. */
static unsigned count_resident(unsigned count) {
    unsigned resident = 0;
    for (unsigned i = 0; i < count; i++) {
        unsigned char is_there;
        uintptr_t page = align_down((uintptr_t)taken[i], os_facts.page_bytes);
        check(mincore((void *)page, os_facts.page_bytes, &is_there) == 0);
        resident += is_there & 1;
    }
    return resident;
}

TEST(magazines_that_are_put_are_taken_again) {
    start_heap();
    take(300);
    size_t metadata = meta_bytes();
    for (unsigned round = 0; round < 10; round++) {
        put(0, 300);
        take(300);
    }
    check_eq(meta_bytes(), metadata);
}

TEST(pages_of_empty_magazines_go_and_come_again) {
    start_heap();
    take(MOST);
    size_t metadata = meta_bytes();
    for (unsigned round = 0; round < 5; round++) {
        put(0, MOST);
        check_eq(count_resident(MOST), MOST);
        pool_purge();
        check(count_resident(MOST) < MOST / 20);
        heap_verify();
        pool_purge(); /* There is nothing more to do. */
        heap_verify();
        take(MOST);
        check_eq(meta_bytes(), metadata);
    }
    put(0, MOST);
    heap_verify();
}

TEST(magazine_in_use_keeps_its_page) {
    struct random random = random_start(1, 0);
    start_heap();
    take(MOST);
    for (unsigned round = 0; round < 20; round++) {
        unsigned kept = (unsigned)random_below(&random, MOST);
        for (unsigned i = 0; i < MOST; i++) { /* in any order */
            unsigned other = (unsigned)random_below(&random, MOST);
            struct magazine *magazine = taken[i];
            taken[i] = taken[other];
            taken[other] = magazine;
        }
        put(kept, MOST);
        pool_purge();
        for (unsigned i = 0; i < kept; i++) {
            check_eq(taken[i]->slots[0], taken[i]);
        }
        for (unsigned i = kept; i < MOST; i++) {
            taken[i] = pool_take();
            taken[i]->slots[0] = taken[i];
        }
        for (unsigned i = 0; i < MOST; i++) {
            check_eq(taken[i]->slots[0], taken[i]);
        }
    }
    put(0, MOST);
    heap_verify();
}

TEST(few_magazines_stay) {
    start_heap();
    take(20);
    put(0, 20);
    unsigned before = purges;
    pool_purge();
    check_eq(purges, before);
}

TEST(pages_that_the_kernel_does_not_take_stay) {
    start_heap();
    take(MOST);
    put(0, MOST);
    purge_fails = true;
    pool_purge();
    check_eq(count_resident(MOST), MOST);
    heap_verify();
    purge_fails = false;
    pool_purge();
    check(count_resident(MOST) < MOST / 20);
    take(MOST);
    put(0, MOST);
    heap_verify();
}

TEST(child_of_a_fork_may_drop_the_pool_and_works) {
    start_heap();
    take(MOST);
    put(0, MOST);
    pool_purge();
    check_child({
        take(MOST);
        put(0, MOST);
        pool_purge();
        heap_verify();
    });
}
