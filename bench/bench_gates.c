/* SPDX-License-Identifier: MIT
 *
 * Figures of a process's life, one per run: `bench_gates PATTERN [key=value ...]`.  Each prints one
 * line of key=value; gates.py runs them over several allocators and knows which figure is promised.
 *
 *   live     `threads` threads with small stacks that each hold one block: memory per thread
 *   churn    threads created and joined, `at_once` at a time: growth after the first thousand
 *   fork     fork() with `threads` threads that hold a block or, with work=1, have used many sizes,
 *            and now sleep: its time in the parent, that of a bare clone, which runs no handlers,
 *            and that of the child's first allocation
 *   dirty    the pages a child copies that forks beside 64 sleeping threads and makes a few calls
 *
 * As in the other benches, nothing of the harness comes from malloc.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { STACK_BYTES = 64 << 10, MOST_AT_ONCE = 64, WARM_THREADS = 1000 };

static struct {
    size_t threads;
    pthread_t *ids;
    pthread_attr_t small_stack;
    pthread_barrier_t ready, leave;
    size_t block_bytes;
} g;

static void require(bool holds, const char *what) {
    if (!holds) {
        say(2, "%s failed\n", what);
        _exit(1);
    }
}

static void start_threads(void *(*body)(void *)) {
    g.ids = harness_memory((g.threads + 1) * sizeof *g.ids);
    require(pthread_attr_init(&g.small_stack) == 0, "pthread_attr_init");
    require(pthread_attr_setstacksize(&g.small_stack, STACK_BYTES) == 0, "setstacksize");
    pthread_barrier_init(&g.ready, NULL, (unsigned)g.threads + 1);
    pthread_barrier_init(&g.leave, NULL, (unsigned)g.threads + 1);
    for (size_t i = 0; i < g.threads; i++) {
        require(pthread_create(&g.ids[i], &g.small_stack, body, NULL) == 0, "pthread_create");
    }
    pthread_barrier_wait(&g.ready);
}

static void end_threads(void) {
    pthread_barrier_wait(&g.leave);
    for (size_t i = 0; i < g.threads; i++) {
        pthread_join(g.ids[i], NULL);
    }
}

static void sleep_until_the_end(void) {
    pthread_barrier_wait(&g.ready);
    pthread_barrier_wait(&g.leave);
}

/* ---------------------------------------------------------------- live */

static void *hold_one_block(void *unused) {
    char *block = malloc(g.block_bytes);
    memset(block, 1, g.block_bytes);
    sleep_until_the_end();
    free(block);
    return unused;
}

static void run_live(void) {
    g.threads = arg_number("threads", 1000);
    g.block_bytes = arg_number("bytes", 1000);
    args_end();
    size_t before = read_memory().anon_kib;
    start_threads(hold_one_block);
    size_t after = read_memory().anon_kib;
    end_threads();
    say(1, "pattern=live threads=%zu kib_per_thread=%.2f\n", g.threads,
        (double)(after - before) / (double)g.threads);
}

/* ---------------------------------------------------------------- churn */

/* The same work in every thread: some sizes often, many sizes once. */
static void work_a_little(void) {
    char *blocks[100];
    for (size_t i = 0; i < 100; i++) {
        size_t size = i % 4 == 0 ? i * 37 + 1 : 100;
        blocks[i] = malloc(size);
        memset(blocks[i], 1, size);
    }
    for (size_t i = 0; i < 100; i++) {
        free(blocks[i]);
    }
}

static void *live_shortly(void *unused) {
    work_a_little();
    return unused;
}

static void create_and_join(size_t count, size_t at_once) {
    pthread_t ids[MOST_AT_ONCE];
    for (size_t i = 0; i < count; i += at_once) {
        for (size_t j = 0; j < at_once; j++) {
            require(pthread_create(&ids[j], NULL, live_shortly, NULL) == 0, "pthread_create");
        }
        for (size_t j = 0; j < at_once; j++) {
            pthread_join(ids[j], NULL);
        }
    }
}

static void run_churn(void) {
    size_t threads = arg_number("threads", 10000);
    size_t at_once = arg_number("at_once", 1);
    args_end();
    require(0 < at_once && at_once <= MOST_AT_ONCE, "at_once");
    create_and_join(WARM_THREADS, at_once);
    size_t before = read_memory().anon_kib;
    create_and_join(threads, at_once);
    size_t after = read_memory().anon_kib;
    say(1, "pattern=churn threads=%zu first_kib=%zu growth_kib=%ld\n", threads, before,
        (long)after - (long)before);
}

/* ---------------------------------------------------------------- fork */

static void *work_and_sleep(void *unused) {
    for (size_t i = 0; i < 3; i++) {
        work_a_little();
    }
    sleep_until_the_end();
    return unused;
}

/* What the child tells, in memory it shares with its parent. */
struct told {
    _Atomic uint64_t first_ns;
};

static struct told *shared_memory(void) {
    void *memory =
        mmap(NULL, sizeof(struct told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(memory != MAP_FAILED, "mmap");
    return memory;
}

/* Times of one kind in ns; sorted in place, as qsort may allocate. */
struct times {
    uint64_t *ns;
    size_t count;
};

static struct times new_times(size_t most) {
    struct times times = {harness_memory(most * sizeof(uint64_t)), 0};
    return times;
}

static void sort_times(struct times *times) {
    uint64_t *ns = times->ns;
    for (size_t i = 1; i < times->count; i++) {
        for (size_t j = i; j > 0 && ns[j - 1] > ns[j]; j--) {
            uint64_t other = ns[j];
            ns[j] = ns[j - 1];
            ns[j - 1] = other;
        }
    }
}

static double least_us(const struct times *times) {
    return (double)times->ns[0] / 1000;
}

static double median_us(const struct times *times) {
    return (double)times->ns[times->count / 2] / 1000;
}

static pid_t bare_clone(void) {
    return (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
}

/* One child, which allocates once and leaves.  The parent goes on, and copies what was shared. */
static void time_one(pid_t (*way)(void), struct told *told, struct times *parent,
                     struct times *child) {
    uint64_t start = clock_ns(CLOCK_MONOTONIC);
    pid_t pid = way();
    if (pid == 0) {
        uint64_t born = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        char *block = malloc(100);
        *block = 1;
        free(block);
        atomic_store(&told->first_ns, clock_ns(CLOCK_THREAD_CPUTIME_ID) - born);
        _exit(0);
    }
    parent->ns[parent->count++] = clock_ns(CLOCK_MONOTONIC) - start;
    require(pid > 0 && waitpid(pid, NULL, 0) == pid, "fork");
    child->ns[child->count++] = atomic_load(&told->first_ns);
    work_a_little();
}

static void run_fork(void) {
    g.threads = arg_number("threads", 0);
    g.block_bytes = arg_number("bytes", 1000);
    size_t rounds = arg_number("rounds", 60);
    bool work = arg_number("work", 0) != 0;
    args_end();
    struct times forks = new_times(rounds), clones = new_times(rounds);
    struct times first = new_times(rounds), unused = new_times(rounds);
    struct told *told = shared_memory();
    work_a_little();
    start_threads(work ? work_and_sleep : hold_one_block);
    for (size_t i = 0; i < rounds; i++) {
        time_one(fork, told, &forks, &first);
        time_one(bare_clone, told, &clones, &unused);
    }
    sort_times(&forks);
    sort_times(&clones);
    sort_times(&first);
    say(1,
        "pattern=fork threads=%zu fork_us=%.1f fork_median_us=%.1f clone_us=%.1f child_us=%.1f\n",
        g.threads, least_us(&forks), median_us(&forks), least_us(&clones), median_us(&first));
    end_threads();
}

/* ---------------------------------------------------------------- dirty */

static size_t private_dirty_kib(void) {
    return field_kib(read_proc("/proc/self/smaps_rollup"), "Private_Dirty:");
}

static void run_dirty(void) {
    g.threads = arg_number("threads", 64);
    size_t calls = arg_number("calls", 20), sizes = arg_number("sizes", 5);
    args_end();
    work_a_little();
    start_threads(work_and_sleep);
    private_dirty_kib();
    pid_t pid = fork();
    if (pid == 0) {
        size_t before = private_dirty_kib();
        for (size_t i = 0; i < calls; i++) {
            char *block = malloc(i % sizes * 300 + 1);
            *block = 1;
            free(block);
        }
        say(1, "pattern=dirty threads=%zu dirty_kib=%zu\n", g.threads,
            private_dirty_kib() - before);
        _exit(0);
    }
    require(pid > 0 && waitpid(pid, NULL, 0) == pid, "fork");
    end_threads();
}

static const struct {
    const char *name;
    void (*run)(void);
} patterns[] = {{"live", run_live}, {"churn", run_churn}, {"fork", run_fork}, {"dirty", run_dirty}};

int main(int argc, char **argv) {
    bench_begin(argc > 2 ? argc - 2 : 0, argv + 2);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (argc > 1 && strcmp(argv[1], patterns[i].name) == 0) {
            patterns[i].run();
            return 0;
        }
    }
    say(2, "usage: bench_gates live|churn|fork|dirty [key=value ...]\n");
    return EXIT_USAGE;
}
