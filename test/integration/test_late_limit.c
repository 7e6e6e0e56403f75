/* SPDX-License-Identifier: MIT
 *
 * test_late_limit.c - an address space limit that the program sets after the heap has started.
 *
 * At that moment gigabytes of addresses are reserved, the kernel counts them all, and refuses
 * whatever is asked for.  The heap has to give them back at the first refusal, while other threads
 * are inside malloc and free, and what the limit leaves must then be usable.
 *
 * Every block carries a pattern, so that memory handed out twice shows as damage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tally/tally.h>

#include "random.h"
#include "test.h"

TEST_SETUP(require_tally);

enum { THREADS = 4, FAILURES = 50 };
static const size_t MIB = 1024 * 1024;
static const size_t LIMIT_MIB = 400;
static const size_t USABLE_PERCENT = 80;

struct block {
    struct block *next;
    size_t size;
    unsigned char bytes[];
};

/* Sizes of all magnitudes from a list node to half a MiB, each taking about as much memory. */
static size_t mixed_size(struct random *random) {
    size_t top = (size_t)32 << random_below(random, 15);
    return sizeof(struct block) + top / 2 + random_below(random, top / 2);
}

static struct block *new_block(struct random *random) {
    size_t size = mixed_size(random);
    struct block *block = malloc(size);
    if (block != NULL) {
        block->size = size;
        memset(block->bytes, (int)(size % 251), size - sizeof *block);
    }
    return block;
}

static void free_block(struct block *block) {
    unsigned char mark = (unsigned char)(block->size % 251);
    for (size_t i = 0; i < block->size - sizeof *block; i += 61) {
        check_eq(block->bytes[i], mark);
    }
    free(block);
}

static void free_list(struct block *list) {
    while (list != NULL) {
        struct block *next = list->next;
        free_block(list);
        list = next;
    }
}

/* Allocates until malloc failed FAILURES times; adds the bytes to `*sum`. */
static struct block *fill(struct random *random, size_t *sum) {
    struct block *list = NULL;
    for (unsigned failures = 0; failures < FAILURES;) {
        errno = 0;
        struct block *block = new_block(random);
        if (block == NULL) {
            check_eq(errno, ENOMEM);
            failures++;
            continue;
        }
        check_eq(errno, 0);
        block->next = list;
        list = block;
        *sum += block->size;
    }
    return list;
}

static void limit_now(size_t mib) {
    struct rlimit limit = {mib * MIB, RLIM_INFINITY};
    check(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void check_usable(const char *where, size_t bytes) {
    char number[24];
    test_say(where, ": ", test_decimal(number, (long long)(bytes / MIB)), " MiB of the limit\n",
             NULL);
    check(bytes >= LIMIT_MIB * MIB / 100 * USABLE_PERCENT);
}

/* A heap that has seen some use, so that frees of earlier objects come after the switch. */
static struct block *warm_up(struct random *random) {
    struct block *list = NULL;
    for (unsigned i = 0; i < 2000; i++) {
        struct block *block = new_block(random);
        check(block != NULL);
        if (i % 2 == 0) {
            free_block(block);
        } else {
            block->next = list;
            list = block;
        }
    }
    return list;
}

TEST(most_of_a_late_limit_is_usable_and_so_again_after_frees) {
    struct random random = random_start(1, 0);
    free_list(warm_up(&random));
    limit_now(LIMIT_MIB);
    for (unsigned round = 0; round < 3; round++) {
        size_t sum = 0;
        struct block *list = fill(&random, &sum);
        check_usable("one thread", sum);
        free_list(list);
    }
    tally_verify();
}

TEST(objects_from_before_the_limit_are_freed_and_reused_after_it) {
    struct random random = random_start(2, 0);
    struct block *early = warm_up(&random);
    limit_now(LIMIT_MIB);
    size_t sum = 0;
    struct block *late = fill(&random, &sum);
    free_list(early);
    for (unsigned i = 0; i < 10000; i++) {
        struct block *block = malloc(sizeof *block + 40);
        check(block != NULL);
        free(block);
    }
    free_list(late);
    tally_verify();
}

TEST(double_free_is_still_found_after_the_switch) {
    struct random random = random_start(3, 0);
    void *object = malloc(100);
    limit_now(LIMIT_MIB);
    size_t sum = 0;
    free_list(fill(&random, &sum));
    void *alias = test_launder(object);
    free(object);
    check_dies(free(alias), "free(%p)", SIGABRT);
}

TEST(free_of_null_and_of_foreign_memory_is_judged_after_the_switch) {
    struct random random = random_start(4, 0);
    limit_now(LIMIT_MIB);
    size_t sum = 0;
    free_list(fill(&random, &sum));
    free(NULL);
    static char global[64];
    check_dies(free(test_launder(global + 16)), "free(%p): not memory of this heap", SIGABRT);
}

TEST(the_program_can_map_memory_again_after_the_switch) {
    struct random random = random_start(5, 0);
    free(malloc(1));
    limit_now(LIMIT_MIB);
    check(mmap(NULL, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    struct block *block = NULL;
    for (unsigned i = 0; i < 100; i++) { /* Something is asked of the kernel among these. */
        block = new_block(&random);
        check(block != NULL);
    }
    check(malloc(16 * MIB) != NULL);
    check(mmap(NULL, 64 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}

TEST(a_forked_child_lives_with_the_limit_of_its_parent) {
    struct random random = random_start(6, 0);
    free_list(warm_up(&random));
    limit_now(LIMIT_MIB);
    check_child({
        size_t sum = 0;
        free_list(fill(&random, &sum));
        check_usable("child", sum);
    });
    size_t sum = 0;
    free_list(fill(&random, &sum));
    check_usable("parent", sum);
}

/* ---------------------------------------------------------------- with threads */

/* Each thread leaves what it frees partly to the next one. */
static struct {
    _Atomic(struct block *) passed[THREADS];
    _Atomic bool limit_is_set;
    _Atomic unsigned full; /* threads that have filled what they could get */
    _Atomic size_t sum;
} shared;

static void pass_on(unsigned me, struct block *block) {
    block = atomic_exchange(&shared.passed[(me + 1) % THREADS], block);
    if (block != NULL) {
        free_block(block);
    }
}

/* Allocates and frees without rest until the limit is there and for a while after. */
static void churn(unsigned me, struct random *random) {
    enum { KEPT = 64 };
    struct block *kept[KEPT] = {NULL};
    for (unsigned left = 20000; left > 0; left -= atomic_load(&shared.limit_is_set)) {
        unsigned i = (unsigned)random_below(random, KEPT);
        if (kept[i] != NULL) {
            pass_on(me, kept[i]);
        }
        size_t size = sizeof(struct block) + 1 + random_below(random, 600);
        kept[i] = malloc(size);
        if (kept[i] != NULL) {
            kept[i]->size = size;
            memset(kept[i]->bytes, (int)(size % 251), size - sizeof(struct block));
        }
        free(NULL);
    }
    for (unsigned i = 0; i < KEPT; i++) {
        if (kept[i] != NULL) {
            pass_on(me, kept[i]);
        }
    }
}

static void *work(void *argument) {
    unsigned me = (unsigned)(uintptr_t)argument;
    struct random random = random_start(7, me);
    churn(me, &random);
    size_t sum = 0;
    struct block *list = fill(&random, &sum);
    atomic_fetch_add(&shared.sum, sum);
    atomic_fetch_add(&shared.full, 1);
    while (atomic_load(&shared.full) < THREADS) {
        usleep(1000);
    }
    free_list(list);
    return NULL;
}

TEST(threads_survive_the_switch_and_get_most_of_the_limit) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        check(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    }
    usleep(20000);
    limit_now(LIMIT_MIB);
    /* The first refusal comes while they run. */
    check(malloc(32 * MIB) != NULL);
    shared.sum += 32 * MIB;
    atomic_store(&shared.limit_is_set, true);
    for (unsigned i = 0; i < THREADS; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    check_usable("four threads", shared.sum);
    for (unsigned i = 0; i < THREADS; i++) {
        free_list(shared.passed[i]);
    }
    tally_verify();
}
