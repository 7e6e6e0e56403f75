/* SPDX-License-Identifier: MIT
 *
 * fault_workloads.c - every request to the kernel is refused in turn, and nothing is lost.
 *
 * Six workloads run again and again; in run n the n-th call of one kernel function fails, once or
 * from then on, until a run no longer gets as far as its fault.  The functions are the rows of
 * os_fault.def.  STRESS=1 (`make fault`) tries every n, from the first call of the process and
 * again from the start of the workload, with and without an address space limit; else n grows in
 * steps.
 *
 * What a refusal may do: a request gives NULL with errno ENOMEM.  What it may not: crash, hang,
 * harm a block that lives, hand out memory that calloc did not clear, or change errno in free or on
 * success.  When the kernel is willing again everything is freed: the heap is sound and empty, the
 * memory has gone back, and the same work is done once more with no refusal.
 *
 * Each run is a process of its own that starts the heap afresh.  So the first refusals meet the
 * start of the heap itself, which may then end with its one sentence, and with no other.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/lock.h"
#include "heap/classmap.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "heap/pages.h"
#include "os_fault.h"
#include "unit.h"

enum { BLOCKS = 160, THREADS = 3, MOST_RUNS = 5000, KEPT_ERRNO = 4321 };
enum { MORE_RSS = 3 << 20 }; /* our own descriptors, the stacks of threads, libc */

/* ---------------------------------------------------------------- blocks, and what is in them */

struct block {
    unsigned char *start;
    size_t size;
};

/* What one thread holds. */
struct blocks {
    struct block block[BLOCKS];
    struct random random;
    unsigned refused;
};

static struct blocks blocks[THREADS + 1]; /* those of the threads, then the main thread's own */
static struct blocks *const own = &blocks[THREADS];

/* A mark in the first and the last byte of every kibibyte. */
static unsigned char mark_at(const struct block *block, size_t at) {
    return (unsigned char)(block->size + at / 1024 * 7 + 1);
}

static size_t last_of_kibibyte(const struct block *block, size_t at) {
    return at + 1023 < block->size ? at + 1023 : block->size - 1;
}

static void mark(const struct block *block) {
    for (size_t at = 0; at < block->size; at += 1024) {
        block->start[at] = mark_at(block, at);
        block->start[last_of_kibibyte(block, at)] = mark_at(block, at);
    }
}

/* The marks of a block that had `size` bytes, in its first `bytes` bytes. */
static void check_mark(const struct block *block, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 1024) {
        check_eq(block->start[at], mark_at(block, at));
        if (last_of_kibibyte(block, at) < bytes) {
            check_eq(block->start[last_of_kibibyte(block, at)], mark_at(block, at));
        }
    }
}

static void check_zeros(const unsigned char *start, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (start[i] != 0) {
            check_eq(start[i], 0);
        }
    }
}

/* ---------------------------------------------------------------- requests */

enum how { MALLOC, CALLOC, ALIGNED, POSIX_ALIGNED };

static void *request(enum how how, size_t alignment, size_t size) {
    void *result = NULL;
    errno = 0;
    if (how == MALLOC) {
        result = tally_malloc(size);
    } else if (how == CALLOC) {
        result = tally_calloc(1, size);
    } else if (how == ALIGNED) {
        result = tally_aligned_alloc(alignment, size);
    } else {
        int error = tally_posix_memalign(&result, alignment, size);
        check_eq(errno, 0);
        check_eq(error, result == NULL ? ENOMEM : 0);
        errno = error;
    }
    check_eq(errno, result == NULL ? ENOMEM : 0);
    check((uintptr_t)result % alignment == 0);
    return result;
}

static void free_block(struct block *block) {
    if (block->start != NULL) {
        check_mark(block, block->size);
        errno = KEPT_ERRNO;
        tally_free(block->start);
        check_eq(errno, KEPT_ERRNO); /* also when the kernel refused to take pages back */
        block->start = NULL;
    }
}

static void alloc_block(struct blocks *all, unsigned i, enum how how, size_t alignment,
                        size_t size) {
    struct block *block = &all->block[i % BLOCKS];
    free_block(block);
    block->size = size;
    block->start = request(how, alignment, size);
    if (block->start == NULL) {
        all->refused++;
        return;
    }
    if (how == CALLOC) {
        check_zeros(block->start, size);
    }
    mark(block);
}

/* A refused realloc leaves the old block as it was. */
static void resize_block(struct blocks *all, unsigned i, size_t size) {
    struct block *block = &all->block[i % BLOCKS];
    if (block->start == NULL) {
        return;
    }
    errno = 0;
    unsigned char *moved = tally_realloc(block->start, size);
    check_eq(errno, moved == NULL ? ENOMEM : 0);
    if (moved == NULL) {
        all->refused++;
        check_mark(block, block->size);
        return;
    }
    block->start = moved;
    check_mark(block, block->size < size ? block->size : size);
    block->size = size;
    mark(block);
}

static size_t random_size(struct blocks *all, size_t least, size_t most) {
    return least + random_below(&all->random, most - least + 1);
}

static void check_all_marks(void) {
    for (unsigned t = 0; t <= THREADS; t++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            if (blocks[t].block[i].start != NULL) {
                check_mark(&blocks[t].block[i], blocks[t].block[i].size);
            }
        }
    }
}

static void free_all(struct blocks *all) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        free_block(&all->block[i]);
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

/* ---------------------------------------------------------------- six workloads */

static void churn_small(void) {
    for (unsigned i = 0; i < 3000; i++) {
        unsigned at = (unsigned)random_below(&own->random, BLOCKS);
        if (random_below(&own->random, 4) == 0) {
            free_block(&own->block[at]);
        } else {
            alloc_block(own, at, MALLOC, 16, random_size(own, 1, i % 50 == 0 ? 32000 : 1500));
        }
    }
}

static void churn_large(void) {
    for (unsigned i = 0; i < 40; i++) {
        unsigned at = (unsigned)random_below(&own->random, 12);
        size_t size = random_size(own, 40000, i % 8 == 0 ? 3 << 20 : 500000);
        switch (i % 4) {
        case 0:
            alloc_block(own, at, i % 8 == 0 ? CALLOC : MALLOC, 16, size);
            break;
        case 1:
            resize_block(own, at, size);
            break;
        case 2: /* grows and shrinks in steps, also below the size of a large block */
            resize_block(own, at, own->block[at].size * 2 + 1);
            resize_block(own, at, own->block[at].size / 3 + 1);
            break;
        default:
            free_block(&own->block[at]);
        }
    }
}

static void churn_aligned(void) {
    for (unsigned i = 0; i < 400; i++) {
        unsigned at = (unsigned)random_below(&own->random, i % 10 == 0 ? 4 : BLOCKS);
        size_t alignment = (size_t)16 << random_below(&own->random, i % 10 == 0 ? 18 : 9);
        size_t most = i % 10 == 0 ? 300000 : 9000;
        alloc_block(own, at, i % 2 == 0 ? ALIGNED : POSIX_ALIGNED, alignment,
                    random_size(own, 1, most));
        if (i % 7 == 0) {
            resize_block(own, at / 2, random_size(own, 1, 20000));
        }
    }
}

static void *churn_in_thread(void *argument) {
    struct blocks *all = argument;
    for (unsigned i = 0; i < 300; i++) {
        size_t most = i % 100 == 99 ? 400000 : i % 10 == 9 ? 20000 : 700;
        alloc_block(all, (unsigned)random_below(&all->random, BLOCKS), i % 3 == 0 ? CALLOC : MALLOC,
                    16, random_size(all, 1, most));
    }
    return NULL;
}

static void start_threads(pthread_t *threads) {
    for (unsigned t = 0; t < THREADS; t++) {
        check(pthread_create(&threads[t], NULL, churn_in_thread, &blocks[t]) == 0);
    }
}

static void join_threads(const pthread_t *threads) {
    for (unsigned t = 0; t < THREADS; t++) {
        check(pthread_join(threads[t], NULL) == 0);
    }
}

/* Threads come, leave what they allocated and go; others free it. */
static void churn_threads(void) {
    pthread_t threads[THREADS];
    for (unsigned round = 0; round < 2; round++) {
        start_threads(threads);
        join_threads(threads);
        for (unsigned i = round; i < BLOCKS; i += 2) {
            free_block(&blocks[round % THREADS].block[i]);
        }
        churn_in_thread(own);
    }
}

/* The child finds the blocks of its own thread as they were, can allocate, and can free all it
 * holds, also what threads that do not exist here had allocated before they were started anew. */
static void be_child(void) {
    check_all_marks();
    churn_in_thread(own);
    free_all(own);
    _exit(0);
}

static void churn_forks(void) {
    pthread_t threads[THREADS];
    churn_in_thread(own);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned t = 0; t < THREADS; t++) { /* What they hold now, no child can know. */
            free_all(&blocks[t]);
        }
        static struct blocks untold[THREADS];
        for (unsigned t = 0; t < THREADS; t++) {
            untold[t].random = blocks[t].random;
            check(pthread_create(&threads[t], NULL, churn_in_thread, &untold[t]) == 0);
        }
        pid_t pid = fork();
        check(pid >= 0);
        if (pid == 0) {
            be_child();
        }
        int status = 0;
        check_eq(waitpid(pid, &status, 0), pid);
        check_eq(status, 0);
        join_threads(threads);
        for (unsigned t = 0; t < THREADS; t++) {
            own->refused += untold[t].refused;
            untold[t].refused = 0;
            free_all(&untold[t]);
        }
    }
}

/* Memory is made dirty, given back, and must read as zeros when it is handed out by calloc. */
static void purge_and_clear(void) {
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 40; i++) {
            size_t most = i % 8 == 0 ? 500000 : i % 2 == 0 ? 100000 : 3000;
            alloc_block(own, i, i % 3 == 0 ? MALLOC : CALLOC, 16, random_size(own, 1, most));
            if (own->block[i].start != NULL) { /* dirty all of it, the marks included */
                memset(own->block[i].start, 0xa5, own->block[i].size);
                mark(&own->block[i]);
            }
        }
        for (unsigned i = round % 2; i < 40; i += 2) {
            free_block(&own->block[i]);
        }
        errno = KEPT_ERRNO;
        tally_purge();
        check_eq(errno, KEPT_ERRNO);
    }
}

struct workload {
    const char *name;
    void (*run)(void);
};

static const struct workload workloads[] = {
    {"small churn", churn_small},     {"large churn", churn_large},
    {"aligned churn", churn_aligned}, {"thread churn", churn_threads},
    {"fork children", churn_forks},   {"purge and clear", purge_and_clear},
};
enum { WORKLOADS = sizeof workloads / sizeof workloads[0] };

/* ---------------------------------------------------------------- one run */

static void check_nothing_is_lost(size_t rss_before) {
    heap_trim();
    heap_verify();
    check_eq(heap_totals().live, 0);
    check_eq(pages_totals().used, 0);
    check_eq(pages_totals().dirty, 0);
    size_t rss = test_anonymous_bytes();
    if (!SANITIZED && rss > rss_before + MORE_RSS) {
        check_eq(rss, rss_before); /* Nearly, that is; a failure says both. */
    }
}

static void seed(void) {
    for (unsigned t = 0; t <= THREADS; t++) {
        blocks[t].random = random_start(1, t);
    }
}

static void free_everything(size_t rss_before) {
    for (unsigned t = 0; t <= THREADS; t++) {
        free_all(&blocks[t]);
    }
    check_nothing_is_lost(rss_before);
}

/* The whole story under one fault; returns whether the fault was met. */
static bool run_under_fault(const struct workload *workload, size_t rss_before) {
    seed();
    workload->run();
    check_all_marks();
    heap_verify();
    for (unsigned i = 0; i < BLOCKS; i += 2) { /* Half is freed while the fault lasts. */
        free_block(&own->block[i]);
    }
    errno = KEPT_ERRNO;
    heap_trim();
    check_eq(errno, KEPT_ERRNO);
    heap_verify();
    bool met = os_fault_end();
    unsigned refused = count_refusals();
    check(met || refused == 0);
    check_all_marks();
    free_everything(rss_before);
    seed(); /* The kernel is willing again: everything can be had, and goes back. */
    workload->run();
    check_eq(count_refusals(), 0);
    free_everything(rss_before);
    return met;
}

/* ---------------------------------------------------------------- all runs of one function */

/* Where in the life of a process faults are counted from, and in what kind of process. */
enum moment { AT_START, LATER, AT_START_LIMITED, LATER_LIMITED, MOMENTS };

static const char *const moment_names[] = {"from the start", "from the workload on",
                                           "from the start, limited",
                                           "from the workload on, limited"};

struct plan {
    const struct workload *workload;
    enum os_fault_call call;
    enum os_fault_extent extent;
    enum moment moment;
};

/* The exit status of a child: 0 the fault was met, 1 a check failed, 2 it was not met. */
enum { MET = 0, NOT_MET = 2 };

static bool from_start(const struct plan *plan) {
    return plan->moment == AT_START || plan->moment == AT_START_LIMITED;
}

static void child(const struct plan *plan, unsigned n) {
    /* What is freed goes back at once, so that os_purge is asked often; and nobody but us asks. */
    setenv("TALLY_CONF", "dirty_decay_ms:0,narenas:1,background_thread:false", 1);
    if (plan->moment >= AT_START_LIMITED) {
        limit_address_space((rlim_t)1 << 46); /* window mode: smaller steps, no class map */
    }
    size_t rss_before = test_anonymous_bytes();
    if (from_start(plan)) {
        os_fault_begin(plan->call, plan->extent, n);
        start_heap();
    } else {
        start_heap();
        os_fault_begin(plan->call, plan->extent, n);
    }
    _exit(run_under_fault(plan->workload, rss_before) ? MET : NOT_MET);
}

/* Its last words, when the heap could not start, must be the one sentence. */
static void check_could_not_start(const struct plan *plan, int stderr_fd) {
    char said[256];
    ssize_t length = read(stderr_fd, said, sizeof said - 1);
    said[length > 0 ? length : 0] = '\0';
    if (!from_start(plan) || strcmp(said, "tally: no memory to start with\n") != 0) {
        test_say("    said: ", said, "\n", NULL);
        check(!"it ended otherwise than by the one sentence");
    }
}

static int run_child(const struct plan *plan, unsigned n) {
    int ends[2];
    check(pipe(ends) == 0);
    pid_t pid = fork();
    check(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        alarm(TEST_SECONDS);
        child(plan, n);
    }
    close(ends[1]);
    int status = 0;
    check_eq(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) {
        check_could_not_start(plan, ends[0]);
        status = MET << 8;
    }
    close(ends[0]);
    return status;
}

static void say_plan(const struct plan *plan, const char *what, unsigned n, const char *end) {
    char number[24];
    test_say("    ", plan->workload->name, ", ", os_fault_name(plan->call),
             plan->extent == FAULT_EXACTLY ? " once, " : " from then on, ",
             moment_names[plan->moment], ": ", what, test_decimal(number, n), end, "\n", NULL);
}

static bool exhaustive;

/* The number of runs that met their fault.  With threads the calls of two runs differ a little, so
 * in the long form a single run that does not get as far does not end it. */
static unsigned refuse_in_turn(const struct plan *plan) {
    unsigned met = 0, not_met = 0;
    unsigned enough = exhaustive ? 2 : 1;
    for (unsigned n = 1; not_met < enough; n += exhaustive ? 1 : 4 * n) {
        check(n < MOST_RUNS);
        int status = run_child(plan, n);
        if (status == MET << 8) {
            met++;
            not_met = 0;
        } else if (status == NOT_MET << 8) {
            not_met++;
        } else {
            say_plan(plan, "call ", n, "");
            check_eq(status, MET << 8);
        }
    }
    return met;
}

static void refuse(enum os_fault_call call, const struct workload *workload) {
    unsigned met = 0;
    for (enum moment moment = 0; moment < (exhaustive ? MOMENTS : LATER_LIMITED); moment++) {
        struct plan plan = {workload, call, FAULT_EXACTLY, moment};
        if (exhaustive || moment != AT_START) {
            met += refuse_in_turn(&plan);
        }
        plan.extent = FAULT_FROM_ON;
        if (exhaustive || moment == AT_START) {
            met += refuse_in_turn(&plan);
        }
    }
    char number[24];
    test_say("    ", workload->name, ", ", os_fault_name(call), ": ", test_decimal(number, met),
             " faults met\n", NULL);
}

static void refuse_all(const struct workload *workload) {
    exhaustive = getenv("STRESS") != NULL;
    if (exhaustive) {
        test_allow_seconds(3600);
    }
    for (int call = 0; call < FAULT_CALL_COUNT; call++) {
        refuse((enum os_fault_call)call, workload);
    }
}

TEST(small_churn_survives_every_refusal) {
    refuse_all(&workloads[0]);
}

TEST(large_churn_survives_every_refusal) {
    refuse_all(&workloads[1]);
}

TEST(aligned_churn_survives_every_refusal) {
    refuse_all(&workloads[2]);
}

TEST(thread_churn_survives_every_refusal) {
    refuse_all(&workloads[3]);
}

TEST(fork_children_survive_every_refusal) {
    refuse_all(&workloads[4]);
}

TEST(purge_and_clear_survives_every_refusal) {
    refuse_all(&workloads[5]);
}

/* ---------------------------------------------------------------- the wrappers themselves */

static bool is_met(enum os_fault_call call) {
    for (unsigned w = 0; w < WORKLOADS; w++) {
        for (enum moment moment = AT_START; moment <= LATER; moment++) {
            struct plan plan = {&workloads[w], call, FAULT_EXACTLY, moment};
            if (run_child(&plan, 1) == MET << 8) {
                return true;
            }
        }
    }
    return false;
}

/* A fault that nothing meets tests nothing.  Waits are a matter of luck, and are met below. */
TEST(every_call_but_waits_is_met_by_some_workload) {
    for (int call = 0; call < FAULT_CALL_COUNT; call++) {
        if (call != FAULT_os_wait_ms && !is_met((enum os_fault_call)call)) {
            test_say("    nothing calls ", os_fault_name((enum os_fault_call)call), "\n", NULL);
            check(!"every call is met");
        }
    }
}

static void *take_lock(void *lock) {
    check_eq(lock_acquire(lock), LOCK_SOUND);
    lock_release(lock);
    return NULL;
}

TEST(wait_that_is_cut_short_goes_on_waiting) {
    struct lock lock = LOCK_OF_RANK(RANK_METADATA);
    pthread_t thread;
    check_eq(lock_acquire(&lock), LOCK_SOUND);
    os_fault_begin(FAULT_os_wait_ms, FAULT_FROM_ON, 1);
    check(pthread_create(&thread, NULL, take_lock, &lock) == 0);
    while (!os_fault_met()) {
        usleep(100);
    }
    lock_release(&lock);
    check(pthread_join(thread, NULL) == 0);
    check(os_fault_end());
    check(!lock_is_held(&lock));
}

TEST(refused_class_map_means_window_mode) {
    os_fault_begin(FAULT_os_reserve_readable, FAULT_EXACTLY, 1);
    start_heap();
    check(os_fault_end());
    check(classmap_is_windowed());
}

TEST(heap_without_any_memory_says_one_sentence) {
    check_dies_exactly(
        {
            os_fault_begin(FAULT_os_map, FAULT_FROM_ON, 1);
            tally_malloc(1);
        },
        "tally: no memory to start with", SIGABRT);
}
