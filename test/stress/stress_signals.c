/* SPDX-License-Identifier: MIT
 *
 * stress_signals.c - a signal storm: every thread has a timer that fires 4,000 times a second, and
 * the handler allocates and frees while the thread does.
 *
 * The library runs with all_slow, so that every call is a slow one: the fast path has a window of a
 * few instructions in which a handler must not allocate, which test_reenter.c measures and the manual
 * states, and which is not what this test is about.  Besides mallocs and frees of all sizes, threads
 * start and end, trim, and hand each other blocks.
 *
 * A block knows its size and its contents; two owners of one block would be seen.  The parent
 * watches: a process in which nothing moves for some seconds hangs.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <tally/tally.h>

#include "random.h"
#include "watch.h"

TEST_SETUP(require_tally);

enum { WORKERS = 3, SLICE_SECONDS = 4, WHOLE_SECONDS = 60, HERTZ = 4000 };
enum { HELD = 400, HANDLER_HELD = 24, EXCHANGE = 64 };

/* The option is read at the first call of a process, which is long past: start again with it. */
__attribute__((constructor)) static void start_with_all_slow(int argc, char **argv) {
    (void)argc;
    if (getenv("TALLY_CONF") == NULL) {
        setenv("TALLY_CONF", "all_slow:true", 1);
        execv("/proc/self/exe", argv);
        _exit(1);
    }
}

/* ---------------------------------------------------------------- blocks */

struct block {
    size_t size;
    uint64_t number;
    uint64_t words[];
};

static size_t random_size(struct random *random) {
    uint64_t kind = random_below(random, 1000);
    size_t most = kind < 700 ? 200 : kind < 950 ? 3000 : kind < 995 ? 30000 : 400000;
    return sizeof(struct block) + random_below(random, most) / 8 * 8;
}

/* Large blocks are filled sparsely, so that time goes into the allocator. */
static size_t stride_of(const struct block *block) {
    return block->size > 4096 ? 64 : 1;
}

static size_t words_of(const struct block *block) {
    return (block->size - sizeof(struct block)) / 8;
}

static void fill_block(struct block *block) {
    for (size_t i = 0; i < words_of(block); i += stride_of(block)) {
        block->words[i] = block->number + i;
    }
}

static struct block *make_block(struct random *random) {
    size_t size = random_size(random);
    struct block *block = malloc(size);
    check(block != NULL);
    block->size = size;
    block->number = random_next(random);
    fill_block(block);
    return block;
}

static void check_block(const struct block *block) {
    for (size_t i = 0; i < words_of(block); i += stride_of(block)) {
        check_eq(block->words[i], block->number + i);
    }
}

static void drop_block(struct block *block) {
    if (block != NULL) {
        check_block(block);
        block->number = 0; /* a second owner finds another one */
        free(block);
    }
}

/* ---------------------------------------------------------------- the handler */

/* Of one thread, touched by its handler alone. */
struct held {
    struct block *blocks[HANDLER_HELD];
    struct random random;
    bool ready;
};

static __thread struct held held __attribute__((tls_model("initial-exec")));
static _Atomic uint64_t signals;
static pthread_key_t last_key;

static void on_timer(int number) {
    (void)number;
    int saved = errno;
    if (held.ready) {
        for (unsigned i = 0; i < 3; i++) {
            struct block **slot = &held.blocks[random_below(&held.random, HANDLER_HELD)];
            drop_block(*slot);
            *slot = random_below(&held.random, 4) == 0 ? NULL : make_block(&held.random);
        }
    }
    atomic_fetch_add_explicit(&signals, 1, memory_order_relaxed);
    errno = saved;
}

static timer_t start_timer(uint64_t stream) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    struct itimerspec period = {{0, 1000000000 / HERTZ}, {0, 1000000000 / HERTZ}};
    timer_t timer;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    held.random = random_start(7, stream);
    held.ready = true;
    check(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    check(timer_settime(timer, 0, &period, NULL) == 0);
    return timer;
}

/* A thread that ends takes its timer along as late as it can: handlers run while its heap is given
 * up.  The blocks its handler still holds are freed when no handler comes any more. */
struct ending_thread {
    timer_t timer;
    unsigned round;
};

static void stop_in_third_round(void *argument) {
    struct ending_thread *thread = argument;
    if (++thread->round < 3) {
        check(pthread_setspecific(last_key, thread) == 0);
        return;
    }
    timer_delete(thread->timer);
    held.ready = false;
    for (unsigned i = 0; i < HANDLER_HELD; i++) {
        drop_block(held.blocks[i]);
        held.blocks[i] = NULL;
    }
    free(thread);
}

/* ---------------------------------------------------------------- threads */

static _Atomic bool stop;
static struct block *_Atomic exchange[EXCHANGE];
static _Atomic unsigned streams;

/* Contents are compared by the stride they were written with. */
static struct block *resize_block(struct block *block, struct random *random) {
    size_t size = random_size(random);
    size_t stride = stride_of(block);
    check_block(block);
    struct block *moved = realloc(block, size);
    check(moved != NULL);
    size_t common = words_of(moved);
    moved->size = size;
    common = common < words_of(moved) ? common : words_of(moved);
    for (size_t i = 0; i < common; i += stride) {
        check_eq(moved->words[i], moved->number + i);
    }
    fill_block(moved);
    return moved;
}

static void change_one(struct block **blocks, struct random *random) {
    struct block **slot = &blocks[random_below(random, HELD)];
    uint64_t what = random_below(random, 1000);
    if (what < 2) {
        malloc_trim(0);
    } else if (what < 100 && *slot != NULL) {
        *slot = resize_block(*slot, random);
    } else if (what < 300) {
        *slot = atomic_exchange(&exchange[random_below(random, EXCHANGE)], *slot);
    } else {
        drop_block(*slot);
        *slot = make_block(random);
    }
}

/* Lives for some thousand changes and leaves nothing. */
static void *live(void *counter) {
    struct block *blocks[HELD] = {NULL};
    struct ending_thread ending = {.round = 0};
    unsigned stream = atomic_fetch_add(&streams, 1);
    struct random random = random_start(42, stream);
    ending.timer = start_timer(stream);
    for (unsigned i = 0; i < 3000; i++) {
        change_one(blocks, &random);
        step((unsigned)(uintptr_t)counter);
    }
    for (unsigned i = 0; i < HELD; i++) {
        drop_block(blocks[i]);
    }
    struct ending_thread *kept = malloc(sizeof *kept); /* this frame ends before the key's time */
    check(kept != NULL);
    *kept = ending;
    check(pthread_setspecific(last_key, kept) == 0);
    return NULL;
}

static void *follow_each_other(void *counter) {
    while (!atomic_load(&stop)) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, live, counter) == 0);
        check(pthread_join(thread, NULL) == 0);
    }
    return NULL;
}

static void storm(void) {
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    pthread_t threads[WORKERS];
    check(sigaction(SIGUSR1, &action, NULL) == 0);
    check(pthread_key_create(&last_key, stop_in_third_round) == 0);
    for (uintptr_t i = 0; i < WORKERS; i++) {
        check(pthread_create(&threads[i], NULL, follow_each_other, (void *)i) == 0);
    }
    nap_us(1000000 * (long)slice_or(SLICE_SECONDS, WHOLE_SECONDS));
    atomic_store(&stop, true);
    for (unsigned i = 0; i < WORKERS; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    for (unsigned i = 0; i < EXCHANGE; i++) {
        drop_block(exchange[i]);
    }
    char number[3][24];
    test_say("    ", test_decimal(number[0], (long long)signals), " signals, ",
             test_decimal(number[1], (long long)watch_sum()), " changes, ",
             test_decimal(number[2], streams), " threads\n", NULL);
    check(signals > 1000);
    tally_verify();
}

TEST(handlers_may_allocate_while_slow_paths_run) {
    test_allow_seconds(slice_or(TEST_SECONDS, 1200));
    run_watched(storm);
}
