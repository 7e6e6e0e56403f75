/* SPDX-License-Identifier: MIT
 *
 * program_give_back.c - allocates and frees so much that slabs and large blocks go back to the
 * allocator's pages, in several threads. Started by test_neighbours.sh beside a library that
 * replaces libc's functions; prints "gave all back" and exits with 0 when all went well.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SMALL = 20000, LARGE = 50, THREADS = 4 };

static void expect(int condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "failed: %s\n", what);
        exit(1);
    }
}

static void fill_and_free(char **blocks, size_t count, size_t size) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = malloc(size);
        expect(blocks[i] != NULL, "malloc");
        memset(blocks[i], (int)i, size);
    }
    for (size_t i = 0; i < count; i++) {
        expect(blocks[i][size - 1] == (char)i, "contents");
        free(blocks[i]);
    }
}

static void *give_back(void *unused) {
    char **blocks = malloc(SMALL * sizeof *blocks);
    expect(blocks != NULL, "malloc of the table");
    for (size_t size = 40; size < 2000; size *= 4) {
        fill_and_free(blocks, SMALL, size);
    }
    fill_and_free(blocks, LARGE, 200000);
    fill_and_free(blocks, LARGE / 10, 5000000);
    free(blocks);
    return unused;
}

/* Without the neighbour in front of libc the program would prove nothing. */
static void expect_neighbour(void) {
    struct timespec now;
    unsigned long *calls = dlsym(RTLD_DEFAULT, "neighbour_calls");
    expect(calls != NULL, "the neighbour is loaded");
    unsigned long before = *calls;
    clock_gettime(CLOCK_MONOTONIC, &now);
    expect(*calls > before, "clock_gettime is the neighbour's");
}

int main(void) {
    pthread_t threads[THREADS];
    give_back(NULL);
    expect_neighbour();
    for (int i = 0; i < THREADS; i++) {
        expect(pthread_create(&threads[i], NULL, give_back, NULL) == 0, "pthread_create");
    }
    for (int i = 0; i < THREADS; i++) {
        expect(pthread_join(threads[i], NULL) == 0, "pthread_join");
    }
    puts("gave all back");
    return 0;
}
