/* SPDX-License-Identifier: MIT
 *
 * misuse_free_stack_thread.c - a variable on the stack of a thread is freed.
 */
#include "misuse.h"

#include <pthread.h>

static void *free_local(void *unused) {
    char bytes[256] = {0};
    void *p = launder(bytes);
    expect("free(%p): not memory of this heap", p);
    free(launder(p));
    return unused;
}

static void misuse(size_t size __attribute__((unused)), int variant __attribute__((unused))) {
    pthread_t thread;
    pthread_create(&thread, NULL, free_local, NULL);
    pthread_join(thread, NULL);
}
