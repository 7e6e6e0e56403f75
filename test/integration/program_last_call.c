/* SPDX-License-Identifier: MIT
 *
 * program_last_call.c - allocates and frees at random, says what it holds, and then calls nothing any more.
 *
 *      program_last_call SEED plain|threads|fork all|half|none
 *
 * The last word is what it keeps.  It writes "PID BYTES OBJECTS FREES" to its output: what is live, in bytes as
 * malloc_usable_size tells them, and how often it has called free.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4, BLOCKS = 40000, PHASES = 6 };

/* One thread's work. */
struct worker {
    pthread_t thread;
    uint64_t random;
    unsigned share; /* the work is that of so many */
    char *blocks[BLOCKS];
    size_t count, bytes, frees;
};

static struct worker workers[WORKERS];
static pthread_barrier_t done;
static char kept; /* a, h or n */

static uint64_t draw(struct worker *worker, uint64_t limit) {
    worker->random = worker->random * 6364136223846793005u + 1442695040888963407u;
    return (worker->random >> 33) % limit;
}

static size_t draw_size(struct worker *worker) {
    uint64_t kind = draw(worker, 1000);
    return (size_t)(kind < 900   ? 16 + draw(worker, 600)
                    : kind < 998 ? 600 + draw(worker, 20000)
                                 : 40000 + draw(worker, 2000000));
}

static void take(struct worker *worker, size_t count) {
    for (size_t i = 0; i < count && worker->count < BLOCKS / worker->share; i++) {
        size_t size = draw_size(worker);
        char *block = malloc(size);
        if (block == NULL) {
            abort();
        }
        memset(block, 1, size);
        worker->bytes += malloc_usable_size(block);
        worker->blocks[worker->count++] = block;
    }
}

static void give(struct worker *worker, size_t count) {
    for (size_t i = 0; i < count && worker->count > 0; i++) {
        char **block = &worker->blocks[draw(worker, worker->count)];
        worker->bytes -= malloc_usable_size(*block);
        worker->frees++;
        free(*block);
        *block = worker->blocks[--worker->count];
    }
}

static void work(struct worker *worker) {
    for (int i = 0; i < PHASES; i++) {
        take(worker, draw(worker, BLOCKS / worker->share));
        give(worker, draw(worker, worker->count + 1));
    }
    take(worker, BLOCKS);
    give(worker, kept == 'a' ? 0 : kept == 'h' ? worker->count / 2 : worker->count);
}

static void *run_thread(void *worker) {
    work(worker);
    pthread_barrier_wait(&done);
    pause();
    return NULL;
}

static void run_threads(void) {
    pthread_barrier_init(&done, NULL, WORKERS + 1);
    for (int i = 0; i < WORKERS; i++) {
        if (pthread_create(&workers[i].thread, NULL, run_thread, &workers[i]) != 0) {
            abort();
        }
    }
    pthread_barrier_wait(&done);
}

static void tell(void) {
    size_t bytes = 0, count = 0, frees = 0;
    char line[128];
    for (int i = 0; i < WORKERS; i++) {
        bytes += workers[i].bytes;
        count += workers[i].count;
        frees += workers[i].frees;
    }
    int length =
        snprintf(line, sizeof line, "%ld %zu %zu %zu\n", (long)getpid(), bytes, count, frees);
    if (write(STDOUT_FILENO, line, (size_t)length) != length) {
        abort();
    }
}

int main(int argc, char **argv) {
    if (argc != 4) {
        return 2;
    }
    kept = argv[3][0];
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i].random = strtoull(argv[1], NULL, 10) * WORKERS + i;
        workers[i].share = argv[2][0] == 't' ? WORKERS : 1;
    }
    if (argv[2][0] == 't') {
        run_threads();
    } else {
        work(&workers[0]);
    }
    if (argv[2][0] == 'f') {
        pid_t child = fork();
        if (child > 0) {
            waitpid(child, NULL, 0);
            return 0;
        }
        take(&workers[0], BLOCKS / 4);
        give(&workers[0], workers[0].count / 2);
    }
    tell();
    for (;;) {
        pause();
    }
}
