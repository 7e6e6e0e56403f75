/* SPDX-License-Identifier: MIT
 *
 * Allocation patterns of one or several threads: `bench_threads PATTERN [key=value ...]`.  Each
 * prints one line of key=value: ns, what one operation costs a thread, and the resident size.
 *
 *   replace  every thread has `slots` blocks and replaces one chosen at random, again and again;
 *            nothing is passed between threads.  With toggle=1 a step fills a slot that is empty and
 *            empties one that is full
 *   blocks   bursts of `n` blocks, which are then freed in the same order
 *   cross    `pairs` of threads: one allocates, the other frees, batches handed over in a ring
 *   queue    half of the threads allocate batches of 4,096 blocks, the other half frees them; one
 *            queue with a mutex between all of them
 *   heirs    threads that replace random blocks, then leave all to a successor thread and exit
 *
 * Sizes lie between `least` and `most`: evenly (law=flat), or with a density of 1/x (law=inverse) or
 * 1/x² (law=square), so that most are small.  free=sized is C++: operator new and sized delete.
 *
 * A round is short, some ms, and there are many: on a machine with other work, the best round is one
 * in which nobody else ran.  With one thread its CPU time counts.  With several it is the wall clock
 * from the moment at which all are ready to the end of the last, so that a round in which the
 * threads ran one after the other, without disturbing each other, never looks like the best; their
 * CPU time in that round is printed beside it (cpu_ns).
 */
#define _GNU_SOURCE
#include "bench.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

enum { THREADS_MOST = 16, SIZES = 4096 };

static uint64_t seed = 0x9E3779B97F4A7C15u; /* argument seed=N chooses another sequence */

static void require(bool holds, const char *what) {
    if (!holds) {
        say(2, "%s\n", what);
        _exit(EXIT_USAGE);
    }
}

/* ---------------------------------------------------------------- sizes and blocks */

static uint32_t size_list[SIZES]; /* what a random number chooses from */

static double size_at(const char *law, double least, double most, double share) {
    if (strcmp(law, "inverse") == 0) {
        return least * pow(most / least, share);
    }
    if (strcmp(law, "square") == 0) {
        return 1 / (1 / least - share * (1 / least - 1 / most));
    }
    require(strcmp(law, "flat") == 0, "law is flat, inverse or square");
    return least + share * (most - least);
}

/* The quantiles of the law, so that every seed has the same sizes. */
static void make_sizes(size_t least, size_t most, const char *usual_law) {
    least = arg_number("least", least);
    most = arg_number("most", most);
    const char *law = arg_text("law", usual_law);
    require(sizeof(uint32_t) <= least && least <= most && most <= UINT32_MAX,
            "sizes: 4 <= least <= most");
    for (size_t i = 0; i < SIZES; i++) {
        double share = ((double)i + 0.5) / SIZES;
        size_list[i] = (uint32_t)(size_at(law, (double)least, (double)most, share) + 0.5);
    }
}

struct slot {
    uint32_t *block;
    size_t size;
};

/* What is called; nothing is for instructions.py, which subtracts what the harness itself does. */
enum way { NOTHING, PLAIN, SIZED };

static uint32_t blank[1]; /* the block when nothing is called */

/* operator new, and operator delete with a size, by the names that C++ gives them. */
static void *(*operator_new)(size_t);
static void (*operator_delete)(void *, size_t);

static void find_operators(void) {
    dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL); /* a preloaded library still comes first */
    *(void **)&operator_new = dlsym(RTLD_DEFAULT, "_Znwm");
    *(void **)&operator_delete = dlsym(RTLD_DEFAULT, "_ZdlPvm");
    require(operator_new != NULL && operator_delete != NULL, "no operator new or delete");
}

static enum way which_way(void) {
    const char *name = arg_text("free", "plain");
    bool sized = strcmp(name, "sized") == 0;
    require(sized || strcmp(name, "plain") == 0, "free is plain or sized");
    if (sized) {
        find_operators();
    }
    return arg_number("calls", 1) == 0 ? NOTHING : sized ? SIZED : PLAIN;
}

/* A program writes what it allocates, and has read what it frees.  `way` is a constant wherever
 * these are inlined. */
static inline __attribute__((always_inline)) void fill(struct slot *slot, size_t size,
                                                       enum way way) {
    slot->block = way == SIZED ? operator_new(size) : way == PLAIN ? malloc(size) : blank;
    slot->size = size;
    *slot->block = (uint32_t)size;
}

static inline __attribute__((always_inline)) void empty(struct slot *slot, enum way way) {
    keep((void *)(uintptr_t)*slot->block);
    if (way == SIZED) {
        operator_delete(slot->block, slot->size);
    } else if (way == PLAIN) {
        free(slot->block);
    }
}

/* ---------------------------------------------------------------- rounds */

struct worker {
    size_t index;
    uint64_t random;
    struct slot *slot;
    uint64_t started, ended, cpu_ns; /* of the round */
    _Alignas(64) pthread_t thread;
};

static struct {
    struct worker worker[THREADS_MOST];
    size_t threads, rounds;
    bool pinned;
    size_t operations; /* per thread and round */
    void (*prepare)(struct worker *), (*body)(struct worker *);
    pthread_barrier_t rest;
    atomic_size_t arrived; /* at the gate, over all rounds */
    double best_ns, best_cpu_ns;
} run = {.best_ns = 1e30};

/* Spin a little, then let others run: the machine may have fewer free CPUs than threads. */
static void wait_a_moment(size_t *spins) {
    if (++*spins % 256 == 0) {
        sched_yield();
    }
    keep(NULL);
}

/* Threads leave the gate together, as nearly as they can. */
static void pass_gate(size_t round) {
    size_t spins = 0;
    atomic_fetch_add(&run.arrived, 1);
    while (atomic_load(&run.arrived) < (round + 1) * run.threads) {
        wait_a_moment(&spins);
    }
}

static void judge_round(void) {
    uint64_t first = UINT64_MAX, last = 0, cpu = 0;
    for (size_t i = 0; i < run.threads; i++) {
        const struct worker *worker = &run.worker[i];
        first = worker->started < first ? worker->started : first;
        last = worker->ended > last ? worker->ended : last;
        cpu += worker->cpu_ns;
    }
    double cpu_ns = (double)cpu / (double)(run.threads * run.operations);
    double ns = run.threads == 1 ? cpu_ns : (double)(last - first) / (double)run.operations;
    if (ns < run.best_ns) {
        run.best_ns = ns;
        run.best_cpu_ns = cpu_ns;
    }
}

static void *work(void *context) {
    struct worker *worker = context;
    if (run.prepare != NULL) {
        run.prepare(worker);
    }
    for (size_t round = 0; round < run.rounds; round++) {
        pass_gate(round);
        worker->started = clock_ns(CLOCK_MONOTONIC);
        uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        run.body(worker);
        worker->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
        worker->ended = clock_ns(CLOCK_MONOTONIC);
        if (pthread_barrier_wait(&run.rest) == PTHREAD_BARRIER_SERIAL_THREAD) {
            judge_round();
        }
        pthread_barrier_wait(&run.rest);
    }
    return NULL;
}

static void print_result(const char *pattern, double ns, double cpu_ns, size_t threads) {
    struct memory now = read_memory();
    say(1,
        "pattern=%s threads=%zu operations=%zu ns=%.3f cpu_ns=%.3f mega_per_s=%.3f peak_kib=%zu "
        "rss_kib=%zu anon_kib=%zu\n",
        pattern, threads, run.operations, ns, cpu_ns, 1e3 / ns * (double)threads, now.peak_kib,
        now.rss_kib, now.anon_kib);
}

/* A CPU for each thread where there are enough, else none for any: a scheduler with other work to do
 * leaves two threads on one CPU for longer than a round.  pin=0 leaves them to it. */
static void choose_cpu(size_t index, pthread_attr_t *how) {
    cpu_set_t allowed, one;
    pthread_attr_init(how);
    if (!run.pinned || sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        (size_t)CPU_COUNT(&allowed) < run.threads || run.threads == 1) {
        return;
    }
    size_t cpu = 0;
    for (size_t left = index + 1; left > 0; cpu++) {
        left -= CPU_ISSET(cpu, &allowed) ? 1 : 0;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu - 1, &one);
    pthread_attr_setaffinity_np(how, sizeof one, &one);
}

/* Run the body in `threads` threads; `makers` of them produce what an operation is counted by. */
static void run_all(const char *pattern, size_t makers) {
    require(0 < run.threads && run.threads <= THREADS_MOST, "threads: 1 to 16");
    pthread_barrier_init(&run.rest, NULL, (unsigned)run.threads);
    for (size_t i = 0; i < run.threads; i++) {
        struct worker *worker = &run.worker[i];
        worker->index = i;
        worker->random = seed * (2 * i + 1);
        pthread_attr_t how;
        choose_cpu(i, &how);
        require(pthread_create(&worker->thread, &how, work, worker) == 0, "no thread");
    }
    for (size_t i = 0; i < run.threads; i++) {
        pthread_join(run.worker[i].thread, NULL);
    }
    print_result(pattern, run.best_ns, run.best_cpu_ns, makers);
}

/* ---------------------------------------------------------------- replace */

static struct {
    size_t slots;
    enum way way;
    bool toggle;
} replace = {.way = PLAIN};

/* A slot and a size from one random number. */
static inline __attribute__((always_inline)) struct slot *choose(struct worker *worker,
                                                                 size_t *size) {
    uint32_t number = rng_next(&worker->random);
    *size = size_list[(worker->random >> 8) % SIZES];
    return &worker->slot[(uint64_t)number * replace.slots >> 32];
}

static inline __attribute__((always_inline)) void replace_loop(struct worker *worker,
                                                               enum way way) {
    for (size_t i = run.operations; i > 0; i--) {
        size_t size;
        struct slot *slot = choose(worker, &size);
        empty(slot, way);
        fill(slot, size, way);
    }
}

static void toggle_loop(struct worker *worker) {
    for (size_t i = 2 * run.operations; i > 0; i--) {
        size_t size;
        struct slot *slot = choose(worker, &size);
        if (slot->block == NULL) {
            fill(slot, size, PLAIN);
        } else {
            empty(slot, PLAIN);
            slot->block = NULL;
        }
    }
}

static void replace_body(struct worker *worker) {
    if (replace.toggle) {
        toggle_loop(worker);
    } else if (replace.way == SIZED) {
        replace_loop(worker, SIZED);
    } else if (replace.way == PLAIN) {
        replace_loop(worker, PLAIN);
    } else {
        replace_loop(worker, NOTHING);
    }
}

static void replace_prepare(struct worker *worker) {
    worker->slot = harness_memory(replace.slots * sizeof *worker->slot);
    for (size_t i = 0; i < replace.slots && !replace.toggle; i++) {
        size_t size;
        choose(worker, &size);
        fill(&worker->slot[i], size, replace.way);
    }
    replace_body(worker); /* until the heap looks as it will look */
}

static void run_replace(void) {
    make_sizes(8, 1000, "flat");
    replace.slots = arg_number("slots", 5000);
    replace.way = which_way();
    replace.toggle = arg_number("toggle", 0) != 0;
    run.threads = arg_number("threads", 1);
    run.operations = arg_number("steps", 100000);
    run.rounds = arg_number("rounds", 40);
    args_end();
    require(0 < replace.slots && replace.slots <= UINT32_MAX, "slots is too small or large");
    run.prepare = replace_prepare;
    run.body = replace_body;
    run_all("replace", run.threads);
}

/* ---------------------------------------------------------------- blocks */

static struct {
    size_t n, repeat;
    enum way way;
} blocks;

static void blocks_prepare(struct worker *worker) {
    worker->slot = harness_memory(blocks.n * sizeof *worker->slot);
}

static inline __attribute__((always_inline)) void blocks_loop(struct worker *worker, enum way way) {
    for (size_t again = blocks.repeat; again > 0; again--) {
        for (size_t i = 0; i < blocks.n; i++) {
            fill(&worker->slot[i], size_list[rng_next(&worker->random) % SIZES], way);
        }
        for (size_t i = 0; i < blocks.n; i++) {
            empty(&worker->slot[i], way);
        }
    }
}

static void blocks_body(struct worker *worker) {
    if (blocks.way == SIZED) {
        blocks_loop(worker, SIZED);
    } else if (blocks.way == PLAIN) {
        blocks_loop(worker, PLAIN);
    } else {
        blocks_loop(worker, NOTHING);
    }
}

static void run_blocks(void) {
    make_sizes(32 << 10, 1 << 20, "inverse");
    blocks.n = arg_number("n", 1);
    blocks.repeat = arg_number("repeat", 20000 / (blocks.n + 1) + 1);
    blocks.way = which_way();
    run.threads = arg_number("threads", 1);
    run.rounds = arg_number("rounds", 40);
    args_end();
    require(blocks.n > 0, "n is 0");
    run.operations = blocks.n * blocks.repeat;
    run.prepare = blocks_prepare;
    run.body = blocks_body;
    run_all("blocks", run.threads);
}

/* ---------------------------------------------------------------- cross */

/*
 * The ring between producer and consumer.  Each side writes its own counter only; a batch belongs
 * to the producer until `filled` passes it and to the consumer until `emptied` does.
 */
enum { RING_BATCHES = 64, BATCH = 64 };

static struct ring {
    _Alignas(64) atomic_size_t filled;
    _Alignas(64) atomic_size_t emptied;
    _Alignas(64) struct slot slot[RING_BATCHES][BATCH];
} ring[THREADS_MOST / 2];

static void wait_until(atomic_size_t *counter, size_t value) {
    size_t spins = 0;
    while (atomic_load_explicit(counter, memory_order_acquire) < value) {
        wait_a_moment(&spins);
    }
}

static void produce(struct worker *worker, struct ring *to) {
    size_t first = atomic_load_explicit(&to->filled, memory_order_relaxed);
    size_t end = first + run.operations / BATCH;
    for (size_t i = first; i < end; i++) {
        wait_until(&to->emptied, i + 1 > RING_BATCHES ? i + 1 - RING_BATCHES : 0);
        for (size_t k = 0; k < BATCH; k++) {
            size_t size = size_list[rng_next(&worker->random) % SIZES];
            fill(&to->slot[i % RING_BATCHES][k], size, PLAIN);
        }
        atomic_store_explicit(&to->filled, i + 1, memory_order_release);
    }
}

static void consume(struct ring *from) {
    size_t first = atomic_load_explicit(&from->emptied, memory_order_relaxed);
    size_t end = first + run.operations / BATCH;
    for (size_t i = first; i < end; i++) {
        wait_until(&from->filled, i + 1);
        for (size_t k = 0; k < BATCH; k++) {
            empty(&from->slot[i % RING_BATCHES][k], PLAIN);
        }
        atomic_store_explicit(&from->emptied, i + 1, memory_order_release);
    }
}

static void cross_body(struct worker *worker) {
    struct ring *between = &ring[worker->index / 2];
    if (worker->index % 2 == 0) {
        produce(worker, between);
    } else {
        consume(between);
    }
}

static void run_cross(void) {
    make_sizes(8, 1000, "flat");
    size_t pairs = arg_number("pairs", 1);
    run.threads = 2 * pairs;
    run.operations = arg_number("batches", 1024) * BATCH;
    run.rounds = arg_number("rounds", 60);
    args_end();
    run.body = cross_body;
    run_all("cross", pairs);
}

/* ---------------------------------------------------------------- queue */

enum { QUEUE_BATCH = 4096, QUEUE_MOST = 100, WRITTEN = 128 };

struct batch {
    struct batch *next;
    void *block[QUEUE_BATCH];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct batch *first;
    size_t count;
    size_t batches; /* per thread and round */
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void enqueue(struct batch *batch) {
    pthread_mutex_lock(&queue.lock);
    while (queue.count >= QUEUE_MOST) {
        pthread_cond_wait(&queue.changed, &queue.lock);
    }
    batch->next = queue.first;
    queue.first = batch;
    queue.count++;
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
}

static struct batch *dequeue(void) {
    pthread_mutex_lock(&queue.lock);
    while (queue.first == NULL) {
        pthread_cond_wait(&queue.changed, &queue.lock);
    }
    struct batch *batch = queue.first;
    queue.first = batch->next;
    queue.count--;
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
    return batch;
}

static void fill_batches(struct worker *worker) {
    for (size_t i = 0; i < queue.batches; i++) {
        struct batch *batch = malloc(sizeof *batch);
        for (size_t k = 0; k < QUEUE_BATCH; k++) {
            size_t size = size_list[rng_next(&worker->random) % SIZES];
            batch->block[k] = memset(malloc(size), 1, size < WRITTEN ? size : WRITTEN);
        }
        enqueue(batch);
    }
}

static void queue_body(struct worker *worker) {
    if (worker->index % 2 == 0) {
        fill_batches(worker);
        return;
    }
    for (size_t i = 0; i < queue.batches; i++) {
        struct batch *batch = dequeue();
        for (size_t k = 0; k < QUEUE_BATCH; k++) {
            free(batch->block[k]);
        }
        free(batch);
    }
}

static void run_queue(void) {
    make_sizes(64, 64, "flat");
    run.threads = 2 * arg_number("pairs", 1);
    queue.batches = arg_number("batches", 32);
    run.rounds = arg_number("rounds", 60);
    args_end();
    run.operations = queue.batches * QUEUE_BATCH;
    run.body = queue_body;
    run_all("queue", run.threads / 2);
}

/* ---------------------------------------------------------------- heirs */

/*
 * A lane is a chain of threads, each the heir of the one before: it finds the blocks its
 * predecessor allocated, replaces them one by one, starts its own successor and exits.
 */
static struct {
    size_t lanes, generations;
    size_t left[THREADS_MOST]; /* threads still to come in a lane */
    sem_t ended;               /* raised once per lane when its last thread is through */
} heirs;

static void start_heir(struct worker *lane);

static void *live_as_heir(void *context) {
    struct worker *lane = context;
    replace_loop(lane, PLAIN);
    heirs.left[lane->index]--;
    if (heirs.left[lane->index] > 0) {
        start_heir(lane);
    } else {
        sem_post(&heirs.ended);
    }
    return NULL;
}

static void start_heir(struct worker *lane) {
    require(pthread_create(&lane->thread, NULL, live_as_heir, lane) == 0, "no thread");
    pthread_detach(lane->thread);
}

static void heirs_round(void *unused) {
    (void)unused;
    for (size_t i = 0; i < heirs.lanes; i++) {
        heirs.left[i] = heirs.generations;
        start_heir(&run.worker[i]);
    }
    for (size_t i = 0; i < heirs.lanes; i++) {
        sem_wait(&heirs.ended);
    }
}

static void run_heirs(void) {
    make_sizes(8, 1000, "flat");
    replace.slots = arg_number("slots", 1000);
    heirs.lanes = arg_number("lanes", 2);
    heirs.generations = arg_number("generations", 40);
    run.operations = arg_number("steps", 10000);
    size_t rounds = arg_number("rounds", 10);
    args_end();
    require(heirs.lanes <= THREADS_MOST, "at most 16 lanes");
    for (size_t i = 0; i < heirs.lanes; i++) {
        run.worker[i].index = i;
        run.worker[i].random = seed * (2 * i + 1);
        replace_prepare(&run.worker[i]);
    }
    sem_init(&heirs.ended, 0, 0);
    size_t steps = heirs.generations * run.operations;
    uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    double ns = best_ns(CLOCK_MONOTONIC, rounds, steps, heirs_round, NULL);
    cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    print_result("heirs", ns, (double)cpu / (double)(rounds * steps * heirs.lanes), heirs.lanes);
}

static const struct pattern {
    const char *name;
    void (*run)(void);
} patterns[] = {{"replace", run_replace},
                {"blocks", run_blocks},
                {"cross", run_cross},
                {"queue", run_queue},
                {"heirs", run_heirs}};

int main(int argc, char **argv) {
    size_t known = sizeof patterns / sizeof *patterns;
    if (argc > 1) {
        bench_begin(argc - 2, argv + 2);
        seed *= 2 * arg_number("seed", 0) + 1;
        run.pinned = arg_number("pin", 1) != 0;
    }
    for (size_t i = 0; argc > 1 && i < known; i++) {
        if (strcmp(argv[1], patterns[i].name) == 0) {
            patterns[i].run();
            return 0;
        }
    }
    say(2, "usage: bench_threads replace|blocks|cross|queue|heirs [key=value ...]\n");
    return EXIT_USAGE;
}
