/* SPDX-License-Identifier: MIT
 *
 * stress_first_call.c - 64 threads make the first call of a process at the same moment.
 *
 * One of them starts the heap, the others must wait for it and find it ready; and whoever comes
 * first, by whichever function, gets sound memory.  The functions have names of their own here, so
 * nothing has called them when the threads start, and each round is a new process.
 */
#include <sched.h>

#include "unit.h"
#include "watch.h"

enum { RACERS = 64, ROUNDS = 60, WHOLE_ROUNDS = 5000 };

static _Atomic unsigned ready, go;
static void *_Atomic results[RACERS];

static void *first_call(unsigned kind) {
    void *p = NULL;
    switch (kind % 6) {
    case 0:
        return tally_malloc(100);
    case 1:
        return tally_calloc(10, 10);
    case 2:
        return tally_realloc(NULL, 100);
    case 3:
        return tally_posix_memalign(&p, 64, 100) == 0 ? p : NULL;
    case 4:
        tally_free(NULL);
        return tally_malloc(50000);
    default:
        return tally_aligned_alloc(4096, 100);
    }
}

static void *race(void *number) {
    unsigned me = (unsigned)(uintptr_t)number;
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&go)) {
        sched_yield();
    }
    void *p = first_call(me);
    check(p != NULL);
    memset(p, (int)me, 100);
    atomic_store(&results[me], p);
    tally_free(tally_malloc(me * 100));
    return NULL;
}

static void be_one_process(void) {
    pthread_t threads[RACERS];
    for (uintptr_t i = 0; i < RACERS; i++) {
        check(pthread_create(&threads[i], NULL, race, (void *)i) == 0);
    }
    while (atomic_load(&ready) < RACERS) {
        sched_yield();
    }
    atomic_store(&go, 1);
    for (unsigned i = 0; i < RACERS; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    for (unsigned i = 0; i < RACERS; i++) {
        unsigned char *p = results[i];
        for (unsigned k = 0; k < 100; k++) {
            check_eq(p[k], i);
        }
        tally_free(p);
    }
    tally_verify();
    step(0);
}

TEST(threads_that_race_for_the_first_call_all_get_memory) {
    test_allow_seconds(slice_or(TEST_SECONDS, 3600));
    for (unsigned round = 0; round < slice_or(ROUNDS, WHOLE_ROUNDS) / SLOWER; round++) {
        run_watched(be_one_process);
    }
}
