/* SPDX-License-Identifier: MIT
 *
 * soak_load.c - a mixed load that goes on until it is told to stop, for tools/soak.py.
 *
 * What it holds on average is the same in every minute: tables of blocks of random sizes, some
 * handed from thread to thread, buffers that grow and shrink, bursts, threads that come and go and
 * children that are forked.  So whatever grows in this process is the allocator's.  It is linked to
 * no allocator; the one to be measured is preloaded.
 *
 * On SIGTERM every thread ends, the heap is verified if the allocator can do that, and one line says
 * how much was done.  A block that changed or a child that failed ends the process with status 1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../test/lib/random.h"

enum { TABLE = 1500, SHARED = 256, BURST = 8000, STEPS_BETWEEN_NAPS = 500 };

static _Atomic int stopping;
static _Atomic unsigned long steps, forks, threads_ended;

static _Noreturn void give_up(const char *why) {
    fprintf(stderr, "soak_load: %s\n", why);
    _exit(1);
}

static void nap_ms(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* ---------------------------------------------------------------- blocks */

struct block {
    size_t size;
    unsigned char bytes[];
};

static size_t random_size(struct random *random) {
    uint64_t kind = random_below(random, 1000);
    size_t most = kind < 800 ? 300 : kind < 980 ? 4000 : kind < 998 ? 40000 : 500000;
    return sizeof(struct block) + 1 + random_below(random, most);
}

static void stamp(struct block *block) {
    size_t bytes = block->size - sizeof(struct block);
    block->bytes[0] = (unsigned char)block->size;
    block->bytes[bytes / 2] = (unsigned char)block->size;
    block->bytes[bytes - 1] = (unsigned char)block->size;
}

static void check_stamp(const struct block *block) {
    size_t bytes = block->size - sizeof(struct block);
    unsigned char expected = (unsigned char)block->size;
    if (block->bytes[0] != expected || block->bytes[bytes / 2] != expected ||
        block->bytes[bytes - 1] != expected) {
        give_up("a block changed");
    }
}

static struct block *make(size_t size) {
    struct block *block = malloc(size);
    if (block == NULL) {
        give_up("no memory");
    }
    block->size = size;
    stamp(block);
    return block;
}

static void drop(struct block *block) {
    if (block != NULL) {
        check_stamp(block);
        free(block);
    }
}

/* ---------------------------------------------------------------- what the threads do */

static struct block *_Atomic shared[SHARED];

static void change(struct block **table, struct random *random) {
    struct block **slot = &table[random_below(random, TABLE)];
    if (random_below(random, 8) == 0) {
        *slot = atomic_exchange(&shared[random_below(random, SHARED)], *slot);
    } else {
        drop(*slot);
        *slot = make(random_size(random));
    }
}

static void *churn(void *number) {
    struct block *table[TABLE] = {NULL};
    struct random random = random_start(9, (uintptr_t)number);
    while (!atomic_load(&stopping)) {
        for (unsigned i = 0; i < STEPS_BETWEEN_NAPS; i++) {
            change(table, &random);
        }
        atomic_fetch_add(&steps, STEPS_BETWEEN_NAPS);
        nap_ms(2);
    }
    for (unsigned i = 0; i < TABLE; i++) {
        drop(table[i]);
    }
    return NULL;
}

/* A buffer that doubles up to 16 MiB, as the buffers of editors and compilers do, then shrinks. */
static void *grow_and_shrink(void *unused) {
    (void)unused;
    while (!atomic_load(&stopping)) {
        struct block *block = make(64);
        for (size_t size = 128; size <= (size_t)16 << 20; size *= 2) {
            check_stamp(block);
            block = realloc(block, size);
            if (block == NULL) {
                give_up("no memory");
            }
            block->size = size;
            stamp(block);
        }
        block->bytes[100000] = 77;
        block = realloc(block, 150000);
        if (block == NULL || block->bytes[100000] != 77) {
            give_up("a shrunk block changed");
        }
        free(block);
        atomic_fetch_add(&steps, 20);
        nap_ms(5);
    }
    return NULL;
}

/* Much at once, then nothing of it. */
static void *burst(void *unused) {
    static struct block *blocks[BURST];
    struct random random = random_start(9, 100);
    (void)unused;
    while (!atomic_load(&stopping)) {
        size_t size = sizeof(struct block) + 1 + random_below(&random, 1500);
        for (unsigned i = 0; i < BURST; i++) {
            blocks[i] = make(size);
        }
        for (unsigned i = 0; i < BURST; i++) {
            drop(blocks[i]);
        }
        atomic_fetch_add(&steps, BURST);
        nap_ms(200);
    }
    return NULL;
}

static void *short_life(void *number) {
    struct block *blocks[100];
    struct random random = random_start(9, (uintptr_t)number);
    for (unsigned i = 0; i < 100; i++) {
        blocks[i] = make(random_size(&random));
    }
    for (unsigned i = 0; i < 100; i++) {
        drop(blocks[i]);
    }
    return NULL;
}

static void *start_threads(void *unused) {
    (void)unused;
    for (uintptr_t n = 1000; !atomic_load(&stopping); n += 4) {
        pthread_t threads[4];
        for (uintptr_t i = 0; i < 4; i++) {
            if (pthread_create(&threads[i], NULL, short_life, (void *)(n + i)) != 0) {
                give_up("no thread");
            }
        }
        for (unsigned i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
        }
        atomic_fetch_add(&threads_ended, 4);
        nap_ms(10);
    }
    return NULL;
}

static void *start_children(void *unused) {
    (void)unused;
    while (!atomic_load(&stopping)) {
        pid_t pid = fork();
        if (pid == 0) {
            short_life((void *)7);
            _exit(0);
        }
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
            give_up("a child failed");
        }
        atomic_fetch_add(&forks, 1);
        nap_ms(50);
    }
    return NULL;
}

static void on_term(int number) {
    (void)number;
    atomic_store(&stopping, 1);
}

int main(void) {
    void *(*const bodies[])(void *) = {churn, churn,         churn,         grow_and_shrink,
                                       burst, start_threads, start_children};
    enum { BODIES = sizeof bodies / sizeof bodies[0] };
    pthread_t threads[BODIES];
    signal(SIGTERM, on_term);
    for (uintptr_t i = 0; i < BODIES; i++) {
        if (pthread_create(&threads[i], NULL, bodies[i], (void *)i) != 0) {
            give_up("no thread");
        }
    }
    for (unsigned i = 0; i < BODIES; i++) {
        pthread_join(threads[i], NULL);
    }
    for (unsigned i = 0; i < SHARED; i++) {
        drop(shared[i]);
    }
    void (*verify)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "tally_verify");
    if (verify != NULL) {
        verify();
    }
    printf("%lu steps, %lu forks, %lu threads\n", steps, forks, threads_ended);
    return 0;
}
