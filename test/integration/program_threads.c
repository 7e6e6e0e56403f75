/* SPDX-License-Identifier: MIT
 *
 * program_threads.c - a plain program with some threads that allocate, check and free; compiled and
 * started by test_replay_programs.sh.  Prints "done" and exits with 0 when all went well.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 6, BLOCKS = 500 };

static void *work(void *number) {
    unsigned char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = i * 131 % 9000 + 1;
        blocks[i] = malloc(size);
        if (blocks[i] == NULL) {
            exit(1);
        }
        memset(blocks[i], (int)i, size);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i][i * 131 % 9000] != (unsigned char)i) {
            exit(1);
        }
        free(blocks[i]);
    }
    return number;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, NULL) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        if (pthread_join(threads[i], NULL) != 0) {
            return 1;
        }
    }
    puts("done");
    return 0;
}
