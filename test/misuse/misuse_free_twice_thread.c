/* SPDX-License-Identifier: MIT
 *
 * misuse_free_twice_thread.c - a block is freed by one thread and freed again by another.
 */
#include "misuse.h"

#include <pthread.h>

static struct {
    void *p;
    size_t usable;
    pthread_barrier_t freed;
} g;

static void *free_again(void *unused) {
    pthread_barrier_wait(&g.freed);
    expect_double_free("free", g.p, g.usable);
    free(launder(g.p));
    return unused;
}

/* The thread exists before the first free: to create one takes memory, perhaps that of the
 * block. */
static void misuse(size_t size, int variant __attribute__((unused))) {
    pthread_t thread;
    pthread_barrier_init(&g.freed, NULL, 2);
    pthread_create(&thread, NULL, free_again, NULL);
    g.p = malloc(size);
    g.usable = malloc_usable_size(g.p);
    free(g.p);
    pthread_barrier_wait(&g.freed);
    pthread_join(thread, NULL);
}
