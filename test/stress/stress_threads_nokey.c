/* SPDX-License-Identifier: MIT
 *
 * stress_threads_nokey.c - threads come and go in a process that has no pthread key left.
 *
 * The allocator learns of a thread's end by the destructor of a key.  A process has 1,024 of them,
 * and where they are used up, it must find the heaps of ended threads in another way or never make
 * them; what it may not do is leak them.  The program defines pthread_key_create itself, and as a
 * program's own definition comes first, the allocator's attempt fails.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>

#include <tally/tally.h>

#include "cpus.h"
#include "watch.h"

TEST_SETUP(require_tally);

enum { FIRST_THREADS = 500, SLICE_THREADS = 5000, WHOLE_THREADS = 100000, BLOCKS = 300 };
enum { TOLERATED_BYTES = 256 << 10 };
enum { VERIFY_EVERY = 10 }; /* threads, which is some thousand operations */

static unsigned refused;

/* libc's headers promise attributes that a definition here cannot have: it is declared as it is. */
int pthread_key_create(pthread_key_t *key, void (*destructor)(void *)) {
    (void)key;
    (void)destructor;
    refused++;
    return EAGAIN;
}

static void *live_shortly(void *unused) {
    void *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(i * 7 % 1000 + 1);
        check(blocks[i] != NULL);
        *(char *)blocks[i] = 1;
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
    return unused;
}

static void create_and_join(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        pthread_t thread;
        check_eq(pthread_create(&thread, NULL, live_shortly, NULL), 0);
        check_eq(pthread_join(thread, NULL), 0);
        if (i % VERIFY_EVERY == 0) {
            tally_verify();
        }
        step(0);
    }
}

static void churn(void) {
    char text[2][24];
    cpu_set_t allowed = cpus_allowed();
    for (unsigned i = 0; i < FIRST_THREADS; i++) {
        cpus_use_one(allowed, i);
        create_and_join(1);
    }
    cpus_use(allowed);
    size_t before = test_anonymous_bytes();
    check(before > 0);
    create_and_join(slice_or(SLICE_THREADS, WHOLE_THREADS) - FIRST_THREADS);
    size_t after = test_anonymous_bytes();
    test_say("    bytes: ", test_decimal(text[0], (long long)before), ", at the end ",
             test_decimal(text[1], (long long)after), "\n", NULL);
    check(after <= before + TOLERATED_BYTES);
}

TEST(threads_that_come_and_go_without_a_key_grow_nothing) {
    test_allow_seconds(slice_or(TEST_SECONDS, 3600));
    check(refused > 0); /* Else the allocator got its key and this tests nothing. */
    run_watched(churn);
}
