/* SPDX-License-Identifier: MIT
 *
 * test_sleepers.c - heaps of threads that sleep are emptied, those of others are not, and a thread
 * that wakes finds its heap whole.
 */
#define _GNU_SOURCE
#include "heap/sleepers.h"

#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/syscall.h>

#include "base/os_sleep.h"
#include "base/os_threads.h"
#include "heap/cache.h"
#include "heap/counts.h"
#include "heap/depot.h"
#include "heap/heap.h"
#include "heap/thread.h"
#include "interrupt.h"
#include "unit.h"

enum { OBJECTS = 200, SIZE = 96 };

/* ---------------------------------------------------------------- what the test plays */

static _Atomic uint64_t played_ms; /* 0: the clock is the kernel's */
static _Atomic bool has_no_proc, has_no_barrier;
static _Atomic unsigned looks, fences, calls_of_background;
static void (*between_looks)(void);
static _Atomic bool forks_at_next_put;
static sem_t fork_now, fork_done;

uint64_t __real_os_now_ms(void);
uint64_t __wrap_os_now_ms(void);
uint64_t __wrap_os_now_ms(void) {
    return played_ms != 0 ? played_ms : __real_os_now_ms();
}

bool __real_os_look_at_sleep(uint32_t thread, struct os_sleep *sleep);
bool __wrap_os_look_at_sleep(uint32_t thread, struct os_sleep *sleep);
bool __wrap_os_look_at_sleep(uint32_t thread, struct os_sleep *sleep) {
    looks++;
    return !has_no_proc && __real_os_look_at_sleep(thread, sleep);
}

bool __real_os_fence_threads(void);
bool __wrap_os_fence_threads(void);
bool __wrap_os_fence_threads(void) {
    fences++;
    if (between_looks != NULL) {
        between_looks();
    }
    return !has_no_barrier && __real_os_fence_threads();
}

void __real_depot_put(unsigned arena, unsigned c, void **slots, unsigned count);
void __wrap_depot_put(unsigned arena, unsigned c, void **slots, unsigned count);
void __wrap_depot_put(unsigned arena, unsigned c, void **slots, unsigned count) {
    if (forks_at_next_put) {
        forks_at_next_put = false;
        check(sem_post(&fork_now) == 0 && sem_wait(&fork_done) == 0);
    }
    __real_depot_put(arena, c, slots, count);
}

void __wrap_background_wake(void);
void __wrap_background_wake(void) {
    calls_of_background++;
}

static void begin(void) {
    start_heap_with("background_thread:false");
#if defined(__SANITIZE_THREAD__)
    skip("the thread sanitizer does not know what orders these accesses");
#endif
    if (!__real_os_fence_threads()) {
        skip("this kernel has no membarrier");
    }
}

/* ---------------------------------------------------------------- a thread that sleeps */

/* Leaves A and F of some classes filled. */
static void use_heap(void) {
    void *objects[OBJECTS];
    for (size_t size = SIZE; size <= 3 * SIZE; size += SIZE) {
        for (unsigned i = 0; i < OBJECTS; i++) {
            objects[i] = tally_malloc(size);
            check(objects[i] != NULL);
            memset(objects[i], (int)i, size);
        }
        for (unsigned i = 0; i < OBJECTS; i++) {
            check_eq(*(unsigned char *)objects[i], (unsigned char)i);
            tally_free(objects[i]);
        }
        tally_free(tally_malloc(size));
    }
}

static struct {
    void (*wait)(void); /* how it sleeps */
    struct thread *heap;
    _Atomic uint32_t number; /* once it has used its heap */
    _Atomic uint32_t word;   /* not 0: it may wake */
    int pipe[2];
} sleeper;

static void wait_in_read(void) {
    char byte;
    check_eq(read(sleeper.pipe[0], &byte, 1), 1);
}

static void wait_in_poll(void) {
    struct pollfd poll_of = {.fd = sleeper.pipe[0], .events = POLLIN};
    check_eq(poll(&poll_of, 1, -1), 1);
}

static void wait_in_futex(void) {
    while (sleeper.word == 0) {
        syscall(SYS_futex, &sleeper.word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    }
}

static void wait_in_nanosleep(void) {
    while (sleeper.word == 0) {
        os_sleep_ns(20000000);
    }
}

static void do_nothing(int unused) {
    (void)unused;
}

static void wait_in_sigsuspend(void) {
    sigset_t usr1, before;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    check(pthread_sigmask(SIG_BLOCK, &usr1, &before) == 0);
    while (sleeper.word == 0) {
        sigsuspend(&before);
    }
    check(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

static void wait_running(void) {
    while (sleeper.word == 0) {
    }
}

static void wait_inside(void) {
    thread_set_inside(true);
    wait_in_futex();
    thread_set_inside(false);
}

static void sleep_in_handler(int unused) {
    (void)unused;
    wait_in_futex();
}

static void wait_in_handler(void) {
    check(signal(SIGUSR2, sleep_in_handler) != SIG_ERR);
    check(raise(SIGUSR2) == 0);
}

static void *use_and_sleep(void *unused) {
    use_heap();
    sleeper.heap = tls.self;
    sleeper.number = os_thread_id();
    sleeper.wait();
    use_heap();
    check(tls.hot == &tls.self->hot && !tls.claimed);
    return unused;
}

static pthread_t start_sleeper(void (*wait)(void)) {
    pthread_t thread;
    sleeper.wait = wait;
    sleeper.word = sleeper.number = 0;
    check(pipe(sleeper.pipe) == 0);
    check(pthread_create(&thread, NULL, use_and_sleep, NULL) == 0);
    while (sleeper.number == 0) {
        os_sleep_ns(100000);
    }
    check(!thread_is_empty(sleeper.heap));
    return thread;
}

/* The kernel's word for it; a moment later it may be nearer to its sleep. */
static void await_sleep(void) {
    struct os_sleep sleep;
    while (!__real_os_look_at_sleep(sleeper.number, &sleep)) {
        os_sleep_ns(100000);
    }
}

static void wake(pthread_t thread) {
    sleeper.word = 1;
    os_wake_all(&sleeper.word);
    check_eq(write(sleeper.pipe[1], "x", 1), 1);
    pthread_kill(thread, SIGUSR1);
    check(pthread_join(thread, NULL) == 0);
    close(sleeper.pipe[0]);
    close(sleeper.pipe[1]);
}

static void empty_all(void) {
    thread_set_inside(true);
    sleepers_empty(THREAD_ALL_ARENAS);
    thread_set_inside(false);
}

static uint64_t tick(void) {
    thread_set_inside(true);
    uint64_t wait_ms = sleepers_tick();
    thread_set_inside(false);
    return wait_ms;
}

/* ---------------------------------------------------------------- who is emptied */

static void check_emptied(void (*wait)(void)) {
    pthread_t thread = start_sleeper(wait);
    while (!thread_is_empty(sleeper.heap)) {
        empty_all();
    }
    check_eq(sleeper.heap->sleep, THREAD_ASLEEP);
    heap_verify();
    wake(thread);
    heap_verify();
}

TEST(threads_that_sleep_are_emptied_however_they_sleep) {
    begin();
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    check_emptied(wait_in_read);
    check_emptied(wait_in_poll);
    check_emptied(wait_in_futex);
    check_emptied(wait_in_nanosleep);
    check_emptied(wait_in_sigsuspend);
    heap_trim();
    check_eq(heap_totals().cached, 0);
}

/* It is not even parked. */
static void check_left_alone(void (*wait)(void), bool sleeps) {
    pthread_t thread = start_sleeper(wait);
    if (sleeps) {
        await_sleep();
    }
    unsigned before = fences;
    for (unsigned i = 0; i < 100; i++) {
        empty_all();
    }
    check_eq(fences, before);
    check(!thread_is_empty(sleeper.heap) && !sleeper.heap->owner->claimed);
    wake(thread);
    heap_verify();
}

TEST(thread_that_runs_is_left_alone) {
    begin();
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    check_left_alone(wait_running, false);
}

TEST(thread_that_sleeps_inside_is_left_alone) {
    begin();
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    check_left_alone(wait_inside, true);
}

TEST(thread_that_sleeps_in_a_signal_handler_is_left_alone) {
    begin();
    if (SANITIZED) {
        skip("a sanitizer calls handlers in a way of its own");
    }
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    check_left_alone(wait_in_handler, true);
}

/* The next sleep differs in nothing but that it is the next. */
static void wake_for_a_moment(void) {
    struct os_sleep before, after;
    check(__real_os_look_at_sleep(sleeper.number, &before));
    os_wake_all(&sleeper.word);
    do {
        os_sleep_ns(100000);
    } while (!__real_os_look_at_sleep(sleeper.number, &after) || after.switches == before.switches);
    check(before.sp == after.sp && before.pc == after.pc && before.call == after.call);
}

TEST(owner_that_woke_between_the_looks_keeps_its_heap) {
    begin();
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    pthread_t thread = start_sleeper(wait_in_futex);
    await_sleep();
    between_looks = wake_for_a_moment;
    for (unsigned i = 0; i < 20; i++) {
        empty_all();
        check(!thread_is_empty(sleeper.heap) && sleeper.heap->sleep == THREAD_AWAKE);
    }
    check(fences > 0);
    between_looks = NULL;
    wake(thread);
    heap_verify();
}

TEST(caller_keeps_its_own_heap) {
    begin();
    use_heap();
    empty_all();
    check(!thread_is_empty(tls.self) && tls.hot == &tls.self->hot);
}

TEST(only_threads_of_the_arena_are_emptied) {
    begin();
    pthread_t thread = start_sleeper(wait_in_futex);
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    await_sleep();
    thread_set_inside(true);
    sleepers_empty(sleeper.heap->arena + 1u);
    check(!thread_is_empty(sleeper.heap));
    while (!thread_is_empty(sleeper.heap)) {
        sleepers_empty(sleeper.heap->arena);
    }
    thread_set_inside(false);
    wake(thread);
}

/* ---------------------------------------------------------------- an end without a word */

static void *use_and_vanish(void *unused) {
    use_heap();
    sleeper.heap = tls.self;
    sleeper.number = os_thread_id();
    syscall(SYS_exit, 0);
    return unused;
}

/* Its number, too, may be another thread's by then. */
TEST(owner_that_vanished_with_its_data_is_left_alone) {
    enum { BYTES = 1 << 20 };
    pthread_attr_t attributes;
    pthread_t gone, thread;
    begin();
    if (SANITIZED) {
        skip("a sanitizer keeps account of threads");
    }
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    void *stack = os_map(BYTES);
    check(stack != NULL && pthread_attr_init(&attributes) == 0);
    check(pthread_attr_setstack(&attributes, stack, BYTES) == 0);
    check(pthread_create(&gone, &attributes, use_and_vanish, NULL) == 0);
    check(pthread_join(gone, NULL) == 0);
    struct thread *left = sleeper.heap;
    check((uintptr_t)left->owner - (uintptr_t)stack < BYTES);
    empty_all();
    check(os_unmap(stack, BYTES) == 0);
    empty_all();
    thread = start_sleeper(wait_in_futex);
    await_sleep();
    left->number = sleeper.number;
    while (!thread_is_empty(sleeper.heap)) {
        empty_all();
    }
    check(!thread_is_empty(left));
    wake(thread);
}

/* ---------------------------------------------------------------- each instruction of a call */

static _Atomic uint32_t in_handler, tried;
static _Atomic bool is_over;

/* In the midst of malloc or free: the other thread tries, and this one waits for that. */
static void let_other_try(uintptr_t unused) {
    (void)unused;
    if (tls.inside) {
        return; /* which the test above is about */
    }
    uint32_t before = tried;
    in_handler = os_thread_id();
    while (tried == before) {
        os_wait(&tried, before);
    }
}

static void *be_interrupted(void *unused) {
    use_heap();
    sleeper.heap = tls.self;
    void *first = tally_malloc(SIZE);
    interrupt_at_every(let_other_try);
    interrupt_begin();
    void *second = tally_malloc(SIZE);
    tally_free(first);
    interrupt_end();
    check(first != second);
    tally_free(second);
    check(!tls.claimed);
    is_over = true;
    return unused;
}

TEST(no_instruction_of_the_fast_paths_is_taken_for_sleep) {
    pthread_t thread;
    struct os_sleep sleep;
    begin();
    if (SANITIZED || !interrupt_is_possible()) {
        skip("no single steps here");
    }
    check(pthread_create(&thread, NULL, be_interrupted, NULL) == 0);
    while (!is_over) {
        if (in_handler != 0 && __real_os_look_at_sleep(in_handler, &sleep)) {
            in_handler = 0;
            empty_all();
            check(!thread_is_empty(sleeper.heap));
            tried++;
            os_wake_all(&tried);
        }
    }
    check(tried > 14 + 22);
    check_eq(fences, 0);
    check(pthread_join(thread, NULL) == 0);
    heap_verify();
}

/* ---------------------------------------------------------------- counts and modes */

TEST(emptying_changes_no_count_of_requests) {
    begin();
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    pthread_t thread = start_sleeper(wait_in_futex);
    struct thread_sums before = thread_read_arena(THREAD_ALL_ARENAS);
    size_t live = heap_totals().live;
    while (!thread_is_empty(sleeper.heap)) {
        empty_all();
    }
    struct thread_sums after = thread_read_arena(THREAD_ALL_ARENAS);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        check_eq(before.requests[c], after.requests[c]);
    }
    check_eq(heap_totals().live, live);
    wake(thread);
}

static void *count_and_sleep(void *unused) {
    use_heap();
    const uint64_t *allocated = thread_allocated_live();
    uint64_t before = *allocated;
    sleeper.heap = tls.self;
    sleeper.number = os_thread_id();
    wait_in_futex();
    check_eq(*allocated, before);
    tally_free(tally_malloc(SIZE));
    check_eq(*allocated, before + SIZE);
    check(tls.modes & THREAD_EXACT && tls.hot != &tls.self->hot && !tls.claimed);
    return unused;
}

TEST(thread_that_counts_exactly_stays_parked_when_it_wakes) {
    pthread_t thread;
    begin();
    check(pipe(sleeper.pipe) == 0);
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    check(pthread_create(&thread, NULL, count_and_sleep, NULL) == 0);
    while (sleeper.number == 0) {
        os_sleep_ns(100000);
    }
    while (!thread_is_empty(sleeper.heap)) {
        empty_all();
    }
    wake(thread);
    heap_verify();
}

/* ---------------------------------------------------------------- now and then */

enum { START_MS = 1000000, WHILE_MS = 1000 };

static bool background_is_called(void) {
    return atomic_exchange(&calls_of_background, 0) != 0;
}

TEST(heap_that_has_not_changed_for_a_while_is_emptied_and_rests_until_its_owner_wakes) {
    begin();
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    played_ms = START_MS;
    pthread_t thread = start_sleeper(wait_in_futex);
    check(background_is_called());
    await_sleep();
    check(tick() <= WHILE_MS);
    check(!thread_is_empty(sleeper.heap));
    played_ms += WHILE_MS / 2;
    check(tick() <= WHILE_MS / 2);
    check(!thread_is_empty(sleeper.heap));
    do {
        played_ms += WHILE_MS;
    } while (tick() != UINT64_MAX); /* which it is once the owner has got to its sleep */
    check(thread_is_empty(sleeper.heap));
    check(!background_is_called());
    unsigned before = looks;
    played_ms += 10 * WHILE_MS;
    check_eq(tick(), UINT64_MAX);
    check_eq(looks, before);
    wake(thread);
    check(background_is_called());
}

static void *use_again_and_again(void *unused) {
    use_heap();
    sleeper.heap = tls.self;
    sleeper.number = os_thread_id();
    for (;;) {
        uint32_t before = sleeper.word;
        while (sleeper.word == before) {
            os_wait(&sleeper.word, before);
        }
        if (sleeper.word == UINT32_MAX) {
            return unused;
        }
        tally_free(tally_malloc(SIZE));
        tried++;
    }
}

TEST(heap_that_is_used_between_ticks_is_never_looked_at) {
    pthread_t thread;
    begin();
    played_ms = START_MS;
    check(pthread_create(&thread, NULL, use_again_and_again, NULL) == 0);
    while (sleeper.number == 0) {
        os_sleep_ns(100000);
    }
    for (unsigned i = 0; i < 200; i++) {
        uint32_t before = tried;
        sleeper.word++;
        while (os_wake_all(&sleeper.word), tried == before) {
            os_sleep_ns(10000);
        }
        played_ms += 10 * WHILE_MS;
        check(tick() <= WHILE_MS);
    }
    check_eq(looks, 0);
    check(!thread_is_empty(sleeper.heap));
    sleeper.word = UINT32_MAX;
    os_wake_all(&sleeper.word);
    check(pthread_join(thread, NULL) == 0);
}

TEST(thread_that_runs_on_is_looked_at_less_and_less) {
    begin();
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    played_ms = START_MS;
    pthread_t thread = start_sleeper(wait_running);
    unsigned ticks = 0;
    uint64_t wait_ms = tick();
    for (uint64_t end = played_ms + 600 * WHILE_MS; played_ms < end; ticks++) {
        played_ms += wait_ms;
        wait_ms = tick();
        check(wait_ms != UINT64_MAX);
    }
    check(looks >= 5 && looks < 30);
    check(wait_ms > 10 * WHILE_MS && ticks < 100);
    wake(thread);
}

/* ---------------------------------------------------------------- the kernel does not help */

TEST(without_proc_nothing_is_emptied) {
    begin();
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    pthread_t thread = start_sleeper(wait_in_futex);
    await_sleep();
    has_no_proc = true;
    for (unsigned i = 0; i < 10; i++) {
        empty_all();
        heap_trim();
    }
    check(!thread_is_empty(sleeper.heap) && fences == 0);
    wake(thread);
    heap_verify();
}

TEST(without_a_barrier_nothing_is_emptied_and_the_owner_goes_on) {
    begin();
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    pthread_t thread = start_sleeper(wait_in_futex);
    await_sleep();
    has_no_barrier = true;
    while (fences == 0) {
        empty_all();
    }
    check(!thread_is_empty(sleeper.heap));
    unsigned before = looks;
    empty_all();
    check_eq(tick(), UINT64_MAX);
    check(looks == before && fences == 1);
    wake(thread);
    heap_verify();
}

/* ---------------------------------------------------------------- a fork at a chosen moment */

/* Its heap is half empty in the child, and who emptied it is gone. */
static void fork_while_emptied(void) {
    check(sem_wait(&fork_now) == 0);
    check(tls.claimed && tls.self->sleep == THREAD_EMPTYING);
    check_child({
        use_heap();
        check(!tls.claimed && tls.self->sleep == THREAD_AWAKE);
        heap_verify();
        while (thread_recover_some()) {
        }
        use_heap();
        heap_trim();
        heap_verify();
    });
    check(sem_post(&fork_done) == 0);
}

TEST(child_of_a_fork_recovers_a_heap_that_was_being_emptied) {
    begin();
    check(sem_init(&fork_now, 0, 0) == 0 && sem_init(&fork_done, 0, 0) == 0);
    check(signal(SIGUSR1, do_nothing) != SIG_ERR);
    pthread_t thread = start_sleeper(fork_while_emptied);
    await_sleep();
    forks_at_next_put = true;
    while (forks_at_next_put) {
        empty_all();
    }
    wake(thread);
    heap_verify();
}
