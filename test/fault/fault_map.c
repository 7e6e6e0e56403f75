/* SPDX-License-Identifier: MIT
 *
 * fault_map.c - every request to the kernel is refused in turn, and nothing is lost.
 *
 * A workload of all kinds of blocks in several threads runs again and again; in run n the n-th call
 * of one kernel function fails, once or from then on, until a run no longer gets as far as its fault.
 * What a refusal may do: a request gives NULL with errno ENOMEM.  What it may not: crash, harm a
 * block that lives, lose memory, or change errno in free.  When the kernel is willing again,
 * everything can be allocated again.
 *
 * Each run is a process of its own that starts the heap afresh.  So the first refusals meet the start
 * of the heap itself, which may then end with its one sentence, and with no other.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>

#include "heap/classmap.h"
#include "heap/heap.h"
#include "heap/pages.h"
#include "os_fault.h"
#include "unit.h"

enum { THREADS = 3, BLOCKS = 128, MOST_RUNS = 200 };

/* ---------------------------------------------------------------- one thread's blocks */

struct block {
    unsigned char *start;
    size_t size;
};

struct blocks {
    struct block block[BLOCKS];
    unsigned refused;
};

/* A mark in the first and last byte of every kibibyte. */
static void mark(const struct block *block) {
    for (size_t at = 0; at < block->size; at += 1024) {
        size_t end = at + 1023 < block->size ? at + 1023 : block->size - 1;
        block->start[at] = (unsigned char)(block->size + at);
        block->start[end] = (unsigned char)(block->size + at);
    }
}

static void check_mark(const struct block *block) {
    for (size_t at = 0; at < block->size; at += 1024) {
        size_t end = at + 1023 < block->size ? at + 1023 : block->size - 1;
        check_eq(block->start[at], (unsigned char)(block->size + at));
        check_eq(block->start[end], (unsigned char)(block->size + at));
    }
}

/* Small, medium, large and aligned, by turns. */
static size_t size_of(unsigned i) {
    switch (i % 8) {
    case 0:
    case 1:
    case 2:
        return 16 + i * 3;
    case 3:
    case 4:
        return 1000 + i * 17;
    case 5:
        return 30000 + i * 10;
    case 6:
        return 100000 + i * 100;
    default:
        return i % 64 == 7 ? 3000000 : 500;
    }
}

static void *request(unsigned i, size_t size) {
    void *result = NULL;
    errno = 0;
    switch (i % 5) {
    case 0:
        result = tally_calloc(1, size);
        break;
    case 1:
        result = tally_aligned_alloc(i % 2 ? 256 : 1 << 18, size);
        break;
    case 2: {
        int error = tally_posix_memalign(&result, 64, size);
        check(error == 0 || error == ENOMEM);
        check_eq(errno, 0);
        check((result == NULL) == (error == ENOMEM));
        errno = error;
        break;
    }
    default:
        result = tally_malloc(size);
    }
    check_eq(errno, result == NULL ? ENOMEM : 0);
    return result;
}

static void free_block(struct block *block) {
    if (block->start != NULL) {
        check_mark(block);
        errno = 4321;
        tally_free(block->start);
        check_eq(errno, 4321); /* also when the kernel refused to take pages back */
        block->start = NULL;
    }
}

static void alloc_block(struct blocks *blocks, unsigned i) {
    struct block *block = &blocks->block[i];
    block->size = size_of(i);
    block->start = request(i, block->size);
    if (block->start == NULL) {
        blocks->refused++;
    } else {
        mark(block);
    }
}

/* A refused realloc leaves the old block as it was. */
static void resize_block(struct blocks *blocks, unsigned i) {
    struct block *block = &blocks->block[i];
    size_t size = size_of(i * 5 % BLOCKS) + 7;
    errno = 0;
    unsigned char *moved = tally_realloc(block->start, size);
    if (moved == NULL) {
        check_eq(errno, ENOMEM);
        blocks->refused++;
        check_mark(block);
        return;
    }
    check_eq(errno, 0);
    check(block->size < 1 || moved[0] == (unsigned char)block->size);
    *block = (struct block){moved, size};
    mark(block);
}

static void work(struct blocks *blocks) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        alloc_block(blocks, i);
        if (i % 3 == 2) {
            free_block(&blocks->block[i / 2]);
        }
        if (i % 4 == 3 && blocks->block[i / 3].start != NULL) {
            resize_block(blocks, i / 3);
        }
        if (i % 100 == 50) {
            tally_purge();
        }
    }
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        if (blocks->block[i].start == NULL) {
            alloc_block(blocks, i);
        }
    }
}

static void free_all(struct blocks *blocks) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        free_block(&blocks->block[i]);
    }
}

static void *work_in_thread(void *argument) {
    work(argument);
    return NULL;
}

static void *free_in_thread(void *argument) {
    free_all(argument);
    return NULL;
}

/* ---------------------------------------------------------------- one run */

static struct blocks blocks[THREADS + 1]; /* those of the threads, then the main thread's own */

/* Threads start, fill and end; other threads free what they left. */
static void run_threads_on_blocks(void *(*body)(void *)) {
    pthread_t threads[THREADS];
    for (unsigned t = 0; t < THREADS; t++) {
        check(pthread_create(&threads[t], NULL, body, &blocks[t]) == 0);
    }
    for (unsigned t = 0; t < THREADS; t++) {
        check(pthread_join(threads[t], NULL) == 0);
    }
}

static unsigned count_refusals(void) {
    unsigned refused = 0;
    for (unsigned t = 0; t <= THREADS; t++) {
        refused += blocks[t].refused;
        blocks[t].refused = 0;
    }
    return refused;
}

static void check_all_marks(void) {
    for (unsigned t = 0; t <= THREADS; t++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            if (blocks[t].block[i].start != NULL) {
                check_mark(&blocks[t].block[i]);
            }
        }
    }
}

static void check_nothing_is_lost(void) {
    heap_trim();
    heap_verify();
    check_eq(heap_totals().live, 0);
    check_eq(pages_totals().used, 0);
    check_eq(pages_totals().dirty, 0);
}

/* The whole story under one fault; returns whether the fault was met. */
static bool run_under_fault(void) {
    work(&blocks[THREADS]);
    run_threads_on_blocks(work_in_thread);
    check_all_marks();
    heap_verify();
    for (unsigned t = 0; t < THREADS; t++) { /* Half is freed while the fault lasts. */
        for (unsigned i = t; i < BLOCKS; i += 2) {
            free_block(&blocks[t].block[i]);
        }
    }
    heap_verify();
    errno = 4321;
    heap_trim();
    check_eq(errno, 4321);
    heap_verify();
    bool met = os_fault_end();
    check(met || count_refusals() == 0);
    count_refusals();
    check_all_marks();
    run_threads_on_blocks(free_in_thread);
    free_all(&blocks[THREADS]);
    check_nothing_is_lost();
    /* The kernel is willing again: everything can be had, and goes back. */
    work(&blocks[THREADS]);
    run_threads_on_blocks(work_in_thread);
    check_eq(count_refusals(), 0);
    for (unsigned t = 0; t <= THREADS; t++) {
        free_all(&blocks[t]);
    }
    check_nothing_is_lost();
    return met;
}

/* ---------------------------------------------------------------- all runs of one function */

enum moment { AT_START, LATER };

/* Window mode takes its own memory in smaller steps, so it asks for more of them. */
static bool limited_address_space;

/* The exit status of a child: 0 the fault was met, 1 a check failed, 2 it was not met. */
enum { MET = 0, NOT_MET = 2 };

static void child(enum os_fault_call call, enum os_fault_extent extent, enum moment when,
                  unsigned n) {
    /* What is freed goes back at once, so that os_purge is asked often. */
    setenv("TALLY_CONF", "dirty_decay_ms:0,narenas:1", 1);
    if (limited_address_space) {
        limit_address_space((rlim_t)1 << 46);
    }
    if (when == AT_START) {
        os_fault_begin(call, extent, n);
        start_heap();
    } else {
        start_heap();
        os_fault_begin(call, extent, n);
    }
    _exit(run_under_fault() ? MET : NOT_MET);
}

/* Its last words, when the heap could not start, must be the one sentence. */
static void check_could_not_start(int stderr_fd, enum moment when) {
    char said[256];
    ssize_t length = read(stderr_fd, said, sizeof said - 1);
    check(when == AT_START);
    said[length > 0 ? length : 0] = '\0';
    check_str(said, "tally: no memory to start with\n");
}

static int run_child(enum os_fault_call call, enum os_fault_extent extent, enum moment when,
                     unsigned n) {
    int ends[2];
    check(pipe(ends) == 0);
    pid_t pid = fork();
    check(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        alarm(60);
        child(call, extent, when, n);
    }
    close(ends[1]);
    int status = 0;
    check_eq(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) {
        check_could_not_start(ends[0], when);
        status = MET << 8;
    }
    close(ends[0]);
    return status;
}

static void refuse_in_turn(enum os_fault_call call, enum os_fault_extent extent, enum moment when) {
    char number[24];
    unsigned n = 0, run = 0;
    int status = MET << 8;
    while (status == MET << 8) {
        n += n < 20 ? 1 : n / 5; /* each of the first calls, then with growing steps */
        check(++run < MOST_RUNS);
        status = run_child(call, extent, when, n);
        if (status != MET << 8 && status != NOT_MET << 8) {
            test_say("    ", os_fault_name(call),
                     extent == FAULT_EXACTLY ? " call " : " from call ", test_decimal(number, n),
                     when == AT_START ? " of the process\n" : "\n", NULL);
            check_eq(status, MET << 8);
        }
    }
    test_say("    ", os_fault_name(call),
             extent == FAULT_EXACTLY ? ", one call" : ", from a call on",
             when == AT_START ? ", from the start: " : ": ", test_decimal(number, run - 1),
             " runs met the fault\n", NULL);
    bool at_start_only = call == FAULT_RESERVE_READABLE && when == LATER;
    check(run > 1 || at_start_only); /* A fault that nothing meets tests nothing. */
}

static void refuse_in_all_ways(enum os_fault_call call) {
    refuse_in_turn(call, FAULT_EXACTLY, AT_START);
    refuse_in_turn(call, FAULT_FROM_ON, AT_START);
    refuse_in_turn(call, FAULT_EXACTLY, LATER);
    refuse_in_turn(call, FAULT_FROM_ON, LATER);
}

/* Mappings of our own are large, so there are few requests after the start. */
TEST(refused_mapping_loses_nothing) {
    refuse_in_turn(FAULT_MAP, FAULT_EXACTLY, AT_START);
    refuse_in_turn(FAULT_MAP, FAULT_FROM_ON, AT_START);
}

TEST(refused_mapping_loses_nothing_in_window_mode) {
    limited_address_space = true;
    refuse_in_all_ways(FAULT_MAP);
}

TEST(refused_reservation_loses_nothing) {
    refuse_in_all_ways(FAULT_RESERVE);
}

TEST(refused_class_map_means_window_mode) {
    refuse_in_all_ways(FAULT_RESERVE_READABLE);
    os_fault_begin(FAULT_RESERVE_READABLE, FAULT_EXACTLY, 1);
    start_heap();
    check(os_fault_end());
    check(classmap_is_windowed());
}

TEST(refused_commit_loses_nothing) {
    refuse_in_all_ways(FAULT_COMMIT);
}

TEST(refused_purge_loses_nothing) {
    refuse_in_all_ways(FAULT_PURGE);
}

TEST(refused_unmap_loses_nothing) {
    refuse_in_all_ways(FAULT_UNMAP);
}

TEST(heap_without_any_memory_says_one_sentence) {
    check_dies_exactly(
        {
            os_fault_begin(FAULT_MAP, FAULT_FROM_ON, 1);
            tally_malloc(1);
        },
        "tally: no memory to start with", SIGABRT);
}
