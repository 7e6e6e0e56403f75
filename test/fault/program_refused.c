/* SPDX-License-Identifier: MIT
 *
 * program_refused.c - a program that can live with every refusal, for strace.sh to refuse it
 * things.
 *
 * It is an ordinary program on malloc: blocks of all sizes, realloc, calloc, threads, trim.  It
 * checks what it is given, accepts NULL with ENOMEM and threads that cannot be made, and ends with
 * 0 when all it was given was right.  Two system calls that nothing else makes mark where its work
 * begins and ends, so that the script can tell its requests from the loader's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BLOCKS = 100, STEPS = 1500, THREADS = 2, KEPT_ERRNO = 4321 };

struct work {
    unsigned char *block[BLOCKS];
    size_t size[BLOCKS];
    uint64_t random;
    unsigned refused;
};

static void require(int condition, const char *what) {
    if (!condition) {
        char line[200];
        int length = snprintf(line, sizeof line, "wrong: %s\n", what);
        (void)!write(2, line, (size_t)length);
        _exit(3);
    }
}

static size_t choose(struct work *work, size_t limit) {
    work->random = work->random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(work->random >> 33) % limit;
}

static void check_block(const struct work *work, unsigned i, size_t size) {
    for (size_t at = 0; at < size; at += 1000) {
        require(work->block[i][at] == (unsigned char)(work->size[i] + at), "contents");
    }
}

static void write_block(struct work *work, unsigned i, size_t size) {
    work->size[i] = size;
    for (size_t at = 0; at < size; at += 1000) {
        work->block[i][at] = (unsigned char)(size + at);
    }
}

static void free_block(struct work *work, unsigned i) {
    if (work->block[i] != NULL) {
        check_block(work, i, work->size[i]);
    }
    errno = KEPT_ERRNO;
    free(work->block[i]);
    require(errno == KEPT_ERRNO, "errno after free");
    work->block[i] = NULL;
}

static size_t choose_size(struct work *work) {
    size_t kind = choose(work, 100);
    return 1 + choose(work, kind < 70 ? 1000 : kind < 92 ? 30000 : kind < 98 ? 400000 : 4000000);
}

static void allocate(struct work *work, unsigned i) {
    size_t size = choose_size(work);
    int zeroed = choose(work, 3) == 0;
    errno = KEPT_ERRNO;
    work->block[i] = zeroed ? calloc(1, size) : malloc(size);
    require(errno == (work->block[i] == NULL ? ENOMEM : KEPT_ERRNO), "errno of malloc");
    if (work->block[i] == NULL) {
        work->refused++;
        return;
    }
    for (size_t at = 0; zeroed && at < size; at++) {
        require(work->block[i][at] == 0, "zeros of calloc");
    }
    write_block(work, i, size);
}

static void resize(struct work *work, unsigned i) {
    size_t size = choose_size(work) * 2;
    errno = KEPT_ERRNO;
    unsigned char *moved = realloc(work->block[i], size);
    require(errno == (moved == NULL ? ENOMEM : KEPT_ERRNO), "errno of realloc");
    if (moved == NULL) {
        work->refused++;
        check_block(work, i, work->size[i]);
        return;
    }
    work->block[i] = moved;
    check_block(work, i, work->size[i] < size ? work->size[i] : size);
    write_block(work, i, size);
}

static void *run(void *argument) {
    struct work *work = argument;
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned i = (unsigned)choose(work, BLOCKS);
        if (work->block[i] != NULL && choose(work, 3) == 0) {
            resize(work, i);
        } else {
            free_block(work, i);
            allocate(work, i);
        }
        if (step % 300 == 299) {
            malloc_trim(0);
        }
    }
    return NULL;
}

/* Nothing else in this program asks for a priority. */
static void mark(void) {
    getpriority(PRIO_PROCESS, 0);
}

int main(void) {
    static struct work works[THREADS + 1];
    pthread_t threads[THREADS];
    int made[THREADS];
    mark();
    for (unsigned t = 0; t <= THREADS; t++) {
        works[t].random = t + 1;
    }
    for (unsigned t = 0; t < THREADS; t++) {
        made[t] = pthread_create(&threads[t], NULL, run, &works[t]) == 0;
    }
    run(&works[THREADS]);
    for (unsigned t = 0; t < THREADS; t++) {
        if (made[t]) {
            require(pthread_join(threads[t], NULL) == 0, "join");
        }
    }
    unsigned refused = 0;
    for (unsigned t = 0; t <= THREADS; t++) {
        refused += works[t].refused;
        for (unsigned i = 0; i < BLOCKS; i++) {
            free_block(&works[t], i);
        }
    }
    malloc_trim(0);
    mark();
    char line[64];
    int length = snprintf(line, sizeof line, "whole, %u refused\n", refused);
    (void)!write(1, line, (size_t)length);
    return 0;
}
