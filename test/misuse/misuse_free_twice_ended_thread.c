/* SPDX-License-Identifier: MIT
 *
 * misuse_free_twice_ended_thread.c - a block was freed by a thread that has ended since, and is
 * freed again.
 */
#include "misuse.h"

#include <pthread.h>

struct work {
    size_t size, usable;
    void *p;
};

static void *allocate_and_free(void *argument) {
    struct work *work = argument;
    for (int i = 0; i < 200; i++) {
        free(malloc(work->size));
    }
    work->p = malloc(work->size);
    work->usable = malloc_usable_size(work->p);
    free(work->p);
    return NULL;
}

static void misuse(size_t size, int variant __attribute__((unused))) {
    struct work work = {.size = size};
    pthread_t thread;
    pthread_create(&thread, NULL, allocate_and_free, &work);
    pthread_join(thread, NULL);
    expect_double_free("free", work.p, work.usable);
    free(launder(work.p));
}
