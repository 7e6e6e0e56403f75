/* SPDX-License-Identifier: MIT
 *
 * test_emergency.c - blocks for calls that interrupt the allocator: apart from each other, aligned,
 * recognised for ever, used again; and the list of objects to free later.
 */
#include "heap/emergency.h"

#include <signal.h>
#include <sys/time.h>

#include "base/attention.h"
#include "heap/counts.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "unit.h"

TEST(blocks_are_apart_aligned_and_of_the_size_asked_for) {
    char *blocks[200];
    size_t sizes[200];
    for (unsigned i = 0; i < 200; i++) {
        size_t alignment = (size_t)16 << i % 9;
        sizes[i] = 1 + i * 97 % 3000;
        blocks[i] = emergency_alloc(sizes[i], alignment);
        check(blocks[i] != NULL && (uintptr_t)blocks[i] % alignment == 0);
        memset(blocks[i], (int)i, sizes[i]);
    }
    for (unsigned i = 0; i < 200; i++) {
        size_t size;
        check_eq(emergency_look(blocks[i], &size), EMERGENCY_LIVE);
        check(size >= sizes[i] && size < sizes[i] + 16);
        for (size_t k = 0; k < sizes[i]; k++) {
            check_eq((unsigned char)blocks[i][k], (unsigned char)i);
        }
    }
    check_eq(emergency_count(), 200);
}

TEST(what_is_not_a_block_is_told_from_one) {
    char *block = emergency_alloc(100, 16);
    size_t size;
    check_eq(emergency_look(block + 16, &size), EMERGENCY_NOTHING);
    check_eq(emergency_look(block + 1, &size), EMERGENCY_NOTHING);
    check_eq(emergency_look(&size, &size), EMERGENCY_ELSEWHERE);
    check_eq(emergency_look(NULL, &size), EMERGENCY_ELSEWHERE);
    check(emergency_free(block));
    check_eq(emergency_look(block, &size), EMERGENCY_FREE);
    check(!emergency_free(block));
}

TEST(an_area_starts_again_when_its_last_block_is_freed) {
    char *first = emergency_alloc(1000, 16);
    for (unsigned i = 0; i < 10000; i++) { /* Far more than all areas would hold. */
        char *second = emergency_alloc(60000, 16);
        check(second != NULL);
        memset(second, 1, 60000);
        check(emergency_free(second));
        check(emergency_free(first));
        first = emergency_alloc(1000, 16);
        check(first != NULL);
    }
}

TEST(large_blocks_get_areas_of_their_own_and_the_impossible_is_refused) {
    char *large = emergency_alloc(3 << 20, 4096);
    check(large != NULL && (uintptr_t)large % 4096 == 0);
    memset(large, 1, 3 << 20);
    check(emergency_alloc(SIZE_MAX, 16) == NULL);
    check(emergency_alloc((size_t)1 << 40, 16) == NULL);
    check(emergency_alloc(16, (size_t)1 << 40) == NULL);
    check(emergency_free(large));
}

TEST(areas_run_out_with_an_answer) {
    unsigned blocks = 0;
    while (emergency_alloc(60000, 16) != NULL) {
        blocks++;
        check(blocks < 1000);
    }
    check(blocks > 30);
}

static void *churn(void *unused) {
    (void)unused;
    char *held[8] = {0};
    for (unsigned i = 0; i < 20000; i++) {
        char **slot = &held[i * 5 % 8];
        if (*slot != NULL) {
            check_eq(**slot, (char)(uintptr_t)slot);
            check(emergency_free(*slot));
        }
        *slot = emergency_alloc(16 + i % 500, 16);
        check(*slot != NULL);
        **slot = (char)(uintptr_t)slot;
    }
    for (unsigned i = 0; i < 8; i++) {
        check(held[i] == NULL || emergency_free(held[i]));
    }
    return NULL;
}

TEST(threads_share_the_areas) {
    run_threads(4, churn, NULL);
    /* All is free again, so all areas start from the beginning. */
    char *block = emergency_alloc(16, 16);
    char *again;
    check(emergency_free(block));
    again = emergency_alloc(16, 16);
    check_eq(again, block);
}

TEST(objects_left_for_later_come_back_last_in_first_out) {
    start_heap();
    uint64_t objects[3][2];
    check(emergency_take_deferred() == NULL);
    for (unsigned i = 0; i < 3; i++) {
        emergency_defer(objects[i]);
    }
    check(attention_get() & ATTENTION_DEFERRED);
    void **object = emergency_take_deferred();
    for (unsigned i = 0; i < 3; i++) {
        check_eq(object, (void **)objects[2 - i]);
        object = *object;
    }
    check(object == NULL);
    check(emergency_take_deferred() == NULL);
    attention_take(ATTENTION_DEFERRED);
}

/* ---------------------------------------------------------------- through the front door */

/* A call that finds this thread inside is what a signal handler makes. */
TEST(calls_that_interrupt_are_served_and_what_they_free_goes_at_the_next_slow_call) {
    start_heap();
    void *small = tally_malloc(100);
    void *large = tally_malloc(1 << 20);
    size_t live = heap_totals().live;
    tls.inside = 1;
    char *block = tally_malloc(5000);
    size_t size;
    check_eq(emergency_look(block, &size), EMERGENCY_LIVE);
    check_eq(tally_usable_size(block), size);
    memset(block, 7, 5000);
    block = tally_realloc(block, 9000);
    check(block != NULL && block[4999] == 7);
    char *zeros = tally_calloc(3000, 1);
    for (unsigned i = 0; i < 3000; i++) {
        check_eq(zeros[i], 0);
    }
    tally_free(zeros);
    tally_free(small);
    tally_free(large);
    check_eq(tally_purge(), 0);
    tls.inside = 0;
    check_eq(heap_totals().live, live); /* They wait ... */
    tally_free(tally_malloc(100000));
    check_eq(heap_totals().live, live - 112 - (1 << 20)); /* ... and are gone. */
    check_eq(attention_get() & ~(uint32_t)ATTENTION_STATS,
             ATTENTION_CALM); /* but for the clock's */
    /* A block of an area may be freed at any time and is refused a second time. */
    tally_free(block);
    check_dies(tally_free(block), "is already free", SIGABRT);
    heap_verify();
}

TEST(a_double_free_by_a_handler_is_found_when_its_turn_comes) {
    start_heap();
    void *large = tally_malloc(1 << 20);
    tls.inside = 1;
    tally_free(large);
    tally_free(large);
    tls.inside = 0;
    check_dies(tally_free(tally_malloc(100000)), "free(", SIGABRT);
}

TEST(an_object_that_carries_the_secret_is_left_alone_by_a_handler) {
    start_heap();
    uint64_t *object = tally_malloc(64);
    object[1] = slab_secret;
    tls.inside = 1;
    tally_free(object);
    tls.inside = 0;
    check_eq(emergency_take_deferred(), NULL);
    tally_free(object); /* It was not freed: this is no double free. */
}

TEST(a_handler_that_frees_nonsense_is_told) {
    start_heap();
    char *object = tally_malloc(64);
    tls.inside = 1;
    check_dies(tally_free(object + 16), "not the start of an object", SIGABRT);
    check_dies(tally_free(&object), "not memory of this heap", SIGABRT);
}
