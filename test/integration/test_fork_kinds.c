/* SPDX-License-Identifier: MIT
 *
 * test_fork_kinds.c - every way to make a process, from everywhere a program may do it.
 *
 * fork, _Fork, a bare clone, vfork with exec, posix_spawn, system and popen; from the main thread,
 * from another thread, beside threads that allocate, from a child, and from a signal handler that
 * interrupted the allocator in a program of one thread.  The child uses the heap at once, frees
 * what it inherited, and walks the heap.
 *
 * The strictest of them single-steps through allocator calls and forks between any two
 * instructions: once so that the child uses the heap inside the handler, once so that the child
 * goes on with the call it was born in.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>

#include <tally/tally.h>

#include "random.h"
#include "watch.h"

TEST_SETUP(require_tally);

enum { INHERITED = 400, CHILDREN = 24, ALLOCATORS = 4, LARGEST = 4 << 20 };

typedef pid_t fork_function(void);

static struct {
    char *inherited[INHERITED];
    fork_function *fork;
    atomic_bool stop;
} g;

static pid_t raw_clone(void) {
    return (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
}

/* 1 byte to 4 MiB, every power of two and its neighbours. */
static size_t nth_size(unsigned n) {
    size_t size = ((size_t)1 << n % 23) + n / 23 % 3;
    return size <= LARGEST ? size : LARGEST;
}

static void use_heap(void) {
    char *blocks[69];
    for (unsigned i = 0; i < 69; i++) {
        blocks[i] = malloc(nth_size(i));
        check(blocks[i] != NULL);
        blocks[i][0] = blocks[i][nth_size(i) - 1] = (char)i;
    }
    for (unsigned i = 0; i < 69; i++) {
        check_eq(blocks[i][0], (char)i);
        free(blocks[i]);
        step(0);
    }
}

static void allocate_inherited(void) {
    for (unsigned i = 0; i < INHERITED; i++) {
        size_t size = nth_size(i) % 70000 + 1;
        g.inherited[i] = malloc(size);
        check(g.inherited[i] != NULL);
        g.inherited[i][0] = (char)i;
    }
}

static void free_inherited(void) {
    for (unsigned i = 0; i < INHERITED; i++) {
        check_eq(g.inherited[i][0], (char)i);
        free(g.inherited[i]);
        g.inherited[i] = NULL;
    }
}

/* All that is asked of a child, which has one thread. */
static void be_a_child(void) {
    use_heap();
    free_inherited();
    use_heap();
    tally_verify();
}

static void wait_for(pid_t pid) {
    check_ending(watch_process(pid, STALL_SECONDS_INSIDE), __FILE__, __LINE__);
}

static void fork_and_wait(void (*child)(void)) {
    pid_t pid = g.fork();
    check(pid >= 0);
    if (pid == 0) {
        child();
        _exit(0);
    }
    wait_for(pid);
}

static void make_children(void) {
    for (unsigned i = 0; i < CHILDREN; i++) {
        fork_and_wait(be_a_child);
        use_heap();
    }
}

static void *make_children_in_thread(void *unused) {
    make_children();
    return unused;
}

static void *allocate_until_stopped(void *number) {
    struct random random = random_start(7, (uintptr_t)number);
    char *blocks[100] = {NULL};
    while (!atomic_load(&g.stop)) {
        char **slot = &blocks[random_below(&random, 100)];
        free(*slot);
        *slot = malloc(nth_size((unsigned)random_below(&random, 60)));
        check(*slot != NULL);
        **slot = 1;
    }
    for (unsigned i = 0; i < 100; i++) {
        free(blocks[i]);
    }
    return NULL;
}

/* Runs the body while other threads are busy in the allocator. */
static void beside_threads(void (*body)(void)) {
    pthread_t threads[ALLOCATORS];
    for (uintptr_t i = 0; i < ALLOCATORS; i++) {
        check_eq(pthread_create(&threads[i], NULL, allocate_until_stopped, (void *)i), 0);
    }
    body();
    atomic_store(&g.stop, true);
    for (unsigned i = 0; i < ALLOCATORS; i++) {
        check_eq(pthread_join(threads[i], NULL), 0);
    }
}

/* The main thread, another thread, and beside busy threads, one after the other. */
static void everywhere(void) {
    pthread_t thread;
    allocate_inherited();
    make_children();
    check_eq(pthread_create(&thread, NULL, make_children_in_thread, NULL), 0);
    check_eq(pthread_join(thread, NULL), 0);
    beside_threads(make_children);
    free_inherited();
    tally_verify();
}

static void try_everywhere(fork_function *way) {
    g.fork = way;
    run_watched(everywhere);
}

TEST(children_of_fork_use_the_heap_at_once) {
    try_everywhere(fork);
}

TEST(children_of_bare_fork_use_the_heap_at_once) {
    try_everywhere(_Fork);
}

TEST(children_of_clone_use_the_heap_at_once) {
    try_everywhere(raw_clone);
}

/* ---------------------------------------------------------------- generations */

enum { GENERATIONS = 6 };

static unsigned generation;

/* Each child leaves a block for its own child, and checks what all before it left. */
static void be_a_generation(void) {
    static char *blocks[GENERATIONS];
    use_heap();
    for (unsigned i = 0; i < generation; i++) {
        check_eq(*blocks[i], (char)i);
    }
    if (generation < GENERATIONS) {
        blocks[generation] = malloc(1000);
        *blocks[generation] = (char)generation;
        generation++;
        fork_and_wait(be_a_generation);
        generation--;
        free(blocks[generation]);
    }
    tally_verify();
}

static void every_way_in_turn(void) {
    fork_function *ways[] = {fork, _Fork, raw_clone};
    for (unsigned i = 0; i < 3; i++) {
        g.fork = ways[i];
        be_a_generation();
    }
}

TEST(children_of_children_use_the_heap) {
    run_watched(every_way_in_turn);
}

/* The first generation comes from a process with threads that allocate. */
static void fork_a_generation(void) {
    for (unsigned i = 0; i < CHILDREN / 4; i++) {
        fork_and_wait(be_a_generation);
    }
}

static void every_way_beside_threads(void) {
    g.fork = fork;
    beside_threads(fork_a_generation);
}

TEST(children_of_children_of_a_busy_program_use_the_heap) {
    run_watched(every_way_beside_threads);
}

/* ---------------------------------------------------------------- fork and exec in one */

extern char **environ;

static void spawn_programs(void) {
    char *const words[] = {(char *)(uintptr_t) "/bin/true", NULL};
    for (unsigned i = 0; i < CHILDREN; i++) {
        pid_t pid;
        check_eq(posix_spawn(&pid, words[0], NULL, NULL, words, environ), 0);
        wait_for(pid);
        pid = vfork();
        check(pid >= 0);
        if (pid == 0) {
            execv(words[0], words);
            _exit(127);
        }
        wait_for(pid);
        use_heap();
    }
}

/* A child of vfork runs in its parent's memory.  POSIX lets it do nothing but exec, programs do
 * more, and a heap that took its pid for that of a forked child would be ruined. */
static void allocate_in_vfork(void) {
    static char *volatile block;
    for (volatile unsigned i = 0; i < CHILDREN; i++) {
        pid_t pid = vfork();
        check(pid >= 0);
        if (pid == 0) {
            block = malloc(nth_size(i));
            free(malloc(100));
            _exit(0);
        }
        wait_for(pid);
        check(block != NULL);
        free(block);
        use_heap();
    }
}

static void ask_shells(void) {
    for (unsigned i = 0; i < CHILDREN / 4; i++) {
        char line[16] = "";
        FILE *stream = popen("echo here", "r");
        check(stream != NULL);
        check(fgets(line, sizeof line, stream) != NULL);
        check_str(line, "here\n");
        check_eq(pclose(stream), 0);
        check_eq(system("exit 3"), 3 << 8);
        use_heap();
    }
}

static void start_programs(void) {
    unsetenv("LD_PRELOAD");
    spawn_programs();
    allocate_in_vfork();
    ask_shells();
}

static void start_programs_everywhere(void) {
    start_programs();
    beside_threads(start_programs);
    tally_verify();
}

TEST(vfork_spawn_popen_and_system_leave_the_heap_whole) {
    run_watched(start_programs_everywhere);
}

/* ---------------------------------------------------------------- from a signal handler */

static struct {
    volatile sig_atomic_t forks, wanted;
    volatile sig_atomic_t child_goes_on; /* or leaves inside the handler */
    volatile sig_atomic_t in_child;
    volatile sig_atomic_t stepping; /* handlers do nothing while this is 0 */
    unsigned long instructions, stride;
} signals;

/* Everything a handler does is on the list of POSIX, but for what the child does to the heap. */
static void fork_in_handler(void) {
    int saved_errno = errno;
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        signals.in_child = 1;
        signals.stepping = 0;
        if (!signals.child_goes_on) {
            use_heap();
            free_inherited();
            tally_verify();
            _exit(0);
        }
    } else {
        check(pid > 0);
        while (waitpid(pid, &status, 0) < 0) {
            check_eq(errno, EINTR);
        }
        check_eq(status, 0);
        signals.forks++;
        step(1);
    }
    errno = saved_errno;
}

static void on_alarm(int signal_number) {
    (void)signal_number;
    if (!signals.in_child && signals.forks < signals.wanted) {
        fork_in_handler();
    }
}

static void leave_if_child(void) {
    if (signals.in_child) {
        be_a_child();
        _exit(0);
    }
}

static void allocate_under_alarms(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    allocate_inherited();
    check_eq(sigaction(SIGALRM, &action, NULL), 0);
    check_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
    signals.wanted = (sig_atomic_t)slice_or(150, 10000);
    for (unsigned i = 0; signals.forks < signals.wanted; i++) {
        char *blocks[20];
        for (unsigned j = 0; j < 20; j++) {
            blocks[j] = malloc(nth_size(i + j * 7) % 100000);
            check(blocks[j] != NULL);
        }
        for (unsigned j = 0; j < 20; j++) {
            free(blocks[j]);
        }
        leave_if_child();
    }
    check_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
    free_inherited();
    tally_verify();
}

TEST(a_handler_of_signals_forks_and_the_child_uses_the_heap) {
    test_allow_seconds(slice_or(TEST_SECONDS, 1200));
    run_watched(allocate_under_alarms);
}

TEST(a_handler_of_signals_forks_and_the_child_goes_on) {
    test_allow_seconds(slice_or(TEST_SECONDS, 1200));
    signals.child_goes_on = 1;
    run_watched(allocate_under_alarms);
}

/* ---------------------------------------------------------------- between any two instructions */

#ifdef __x86_64__
/* The trap flag makes the processor raise SIGTRAP behind every instruction.  The child that goes on
 * does so without. */
enum { TRAP_FLAG = 0x100 };

static void on_trap(int signal_number, siginfo_t *info, void *context) {
    ucontext_t *interrupted = context;
    (void)signal_number;
    (void)info;
    if (signals.stepping && ++signals.instructions % signals.stride == 0) {
        fork_in_handler();
    }
    if (signals.in_child) {
        interrupted->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
    }
}

static inline void start_stepping(void) {
    signals.stepping = 1;
    __asm__ volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" : : : "memory", "cc");
}

static inline void stop_stepping(void) {
    __asm__ volatile("pushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq" : : : "memory", "cc");
    signals.stepping = 0;
}

/* Some ways through the allocator; each is a call or two, stepped through as a whole. */
static void step_through(void (*body)(void)) {
    start_stepping();
    body();
    stop_stepping();
    leave_if_child();
}

enum { HELD = 40 };

static void *held[HELD];

static void allocate_hit(void) {
    held[0] = malloc(100);
}

static void free_hit(void) {
    free(held[0]);
}

static void allocate_many(void) {
    for (unsigned i = 0; i < HELD; i++) {
        held[i] = malloc(3000);
    }
}

static void free_many(void) {
    for (unsigned i = 0; i < HELD; i++) {
        free(held[i]);
    }
}

static void allocate_large(void) {
    held[0] = malloc(40000);
    held[2] = malloc(1500);
    held[1] = aligned_alloc(1 << 20, 3 << 20);
}

static void change_large(void) {
    held[0] = realloc(held[0], 33000);
    held[1] = realloc(held[1], 20);
    held[2] = realloc(held[2], 5000000);
}

static void free_large(void) {
    free(held[0]);
    free(held[1]);
    free(held[2]);
}

static void trim(void) {
    malloc_trim(0);
}

static void step_through_everything(void) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    check_eq(sigaction(SIGTRAP, &action, NULL), 0);
    allocate_inherited();
    free(malloc(100));
    signals.stride = slice_or(211, 1);
    step_through(allocate_hit);
    step_through(free_hit);
    step_through(allocate_many);
    step_through(free_many);
    step_through(allocate_large);
    step_through(change_large);
    step_through(free_large);
    step_through(trim);
    free_inherited();
    tally_verify();
}

static void say_steps(void) {
    char number[24];
    test_say("    ", test_decimal(number, (long long)atomic_load(&watch_counters[1])), " forks\n",
             NULL);
    check(atomic_load(&watch_counters[1]) > 50);
}
#endif

TEST(a_child_born_between_any_two_instructions_uses_the_heap) {
#ifdef __x86_64__
    test_allow_seconds(slice_or(TEST_SECONDS, 3600));
    run_watched(step_through_everything);
    say_steps();
#else
    skip("the trap flag is x86-64's");
#endif
}

TEST(a_child_born_between_any_two_instructions_goes_on) {
#ifdef __x86_64__
    test_allow_seconds(slice_or(TEST_SECONDS, 3600));
    signals.child_goes_on = 1;
    run_watched(step_through_everything);
    say_steps();
#else
    skip("the trap flag is x86-64's");
#endif
}
