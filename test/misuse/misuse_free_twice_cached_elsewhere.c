/* SPDX-License-Identifier: MIT
 *
 * misuse_free_twice_cached_elsewhere.c - a block sits in the cache of a thread that still runs,
 * and another thread frees it again.
 */
#include "misuse.h"

#include <pthread.h>

struct work {
    size_t size, usable;
    void *p;
    pthread_barrier_t freed;
};

/* Warms the thread's cache up first, so that the block stays in it. */
static void *free_and_wait(void *argument) {
    struct work *work = argument;
    for (int i = 0; i < 200; i++) {
        free(malloc(work->size));
    }
    work->p = malloc(work->size);
    work->usable = malloc_usable_size(work->p);
    free(work->p);
    pthread_barrier_wait(&work->freed);
    pause();
    return NULL;
}

static void misuse(size_t size, int variant __attribute__((unused))) {
    struct work work = {.size = size};
    pthread_t thread;
    pthread_barrier_init(&work.freed, NULL, 2);
    pthread_create(&thread, NULL, free_and_wait, &work);
    pthread_barrier_wait(&work.freed);
    expect_double_free("free", work.p, work.usable);
    free(launder(work.p));
}
