/* SPDX-License-Identifier: MIT
 *
 * test_reenter.c - a signal handler allocates and frees, or forks, while it interrupts the
 * allocator: at every instruction of the slow paths, and of the fast ones.
 *
 * Each scene is some calls of the malloc family.  A first process runs it step by step and writes
 * down the address of every instruction.  Then, for each instruction, a new process runs the scene
 * up to there, does the handler's work (blocks of several sizes, the interrupted one among them, are
 * made, checked, freed and kept), lets the scene finish, and compares the heap with the model: every
 * block holds what was written, no two overlap, nothing that is handed out later does either, and
 * tally_verify() agrees.  The parent watches for processes that hang.
 *
 * What is promised, and so what is tested:
 *   - a handler may interrupt anything and never waits for ever;
 *   - interrupting a slow path corrupts nothing;
 *   - in the fast path malloc has a window, from the load of the magazine's top to the read of the
 *     slot, and free has one from that load to the raising of the top.  The first two tests measure
 *     these instructions and print them; no other may do harm;
 *   - a child that a handler forks may allocate whatever was interrupted, the fast path included:
 *     malloc lowers the top before it reads the slot, free fills the slot before it raises the top,
 *     so the interrupted call, which never ends in that child, loses one object at most.
 *
 * `make test` stops at each instruction of the caches and at a sample of the others, STRESS=1 at all
 * of them, each time they are executed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <tally/tally.h>

#include "interrupt.h"
#include "reenter_blocks.h"
#include "watch.h"

TEST_SETUP(require_tally);

/* When the page of counters is renewed is a matter of the clock, and a scene must go the same way
 * each time.  The last test has the page. */
extern const char *malloc_conf;
const char *malloc_conf = "stats_page:false";

enum {
    BATCH = 200,          /* more than a magazine holds */
    SHORT = 4000,         /* steps of a short scene */
    WHOLE_SAMPLE = 20000, /* interruptions of a scene, at most */
};

/* ---------------------------------------------------------------- watching */

enum { PATIENCE_SECONDS = 120 }; /* a process needs some milliseconds */

/* Waits for the child's end, and ends it when that does not come.  The test has SIGCHLD blocked. */
static struct ending await(pid_t pid) {
    struct ending ending = {false, 0};
    struct timespec patience = {PATIENCE_SECONDS, 0};
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    while (waitpid(pid, &ending.status, WNOHANG) == 0) {
        if (sigtimedwait(&child, NULL, &patience) < 0 && errno == EAGAIN) {
            ending.hung = true;
            kill(pid, SIGKILL);
            waitpid(pid, &ending.status, 0);
            return ending;
        }
    }
    return ending;
}

static void block_sigchld(void) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    check(sigprocmask(SIG_BLOCK, &child, NULL) == 0);
}

/* ---------------------------------------------------------------- what handlers do */

static void only_allocate(uintptr_t at) {
    (void)at;
    make(&handler_blocks, SIZE, 3);
}

static void only_free(uintptr_t at) {
    (void)at;
    drop(&victims, 3);
}

/* Sizes of all kinds; some blocks stay, some go, some of what was there before goes. */
static void allocate_and_free(uintptr_t at) {
    static const size_t sizes[] = {SIZE, 16, MIDDLE, 1000, SIZE, MIDDLE, 5000, 40000, 200000};
    (void)at;
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        make(&handler_blocks, sizes[i], 2);
        drop(&handler_blocks, 1);
    }
    drop(&victims, 4);
    unsigned char *zeros = calloc(40, 10);
    if (zeros == NULL) {
        _exit(NO_MEMORY);
    }
    for (unsigned i = 0; i < 400; i++) {
        if (zeros[i] != 0) {
            _exit(BROKEN_CONTENT);
        }
    }
    zeros = realloc(zeros, 3000);
    keep(&handler_blocks, zeros, 3000);
}

/* More than magazines hold: they are refilled, emptied and change places. */
static void turn_over(uintptr_t at) {
    (void)at;
    make(&handler_blocks, SIZE, 3 * BATCH);
    drop(&handler_blocks, 2 * BATCH);
    make(&handler_blocks, SIZE, BATCH);
}

/* At every instruction: what is made goes again, or memory would run out. */
static void come_and_go(uintptr_t at) {
    static const size_t sizes[] = {SIZE, 16, MIDDLE, SIZE};
    make(&handler_blocks, sizes[at % 4], 2);
    drop(&handler_blocks, 2);
}

/* The child uses the heap inside the handler and ends there. */
static void fork_and_allocate(uintptr_t at) {
    pid_t pid = fork();
    if (pid == 0) {
        allocate_and_free(at);
        make(&later_blocks, SIZE, LATER);
        check_model();
        _exit(FINE);
    }
    struct ending ending = await(pid);
    if (ending.hung || ending.status != 0) {
        _exit(ending.hung ? HUNG : WIFEXITED(ending.status) ? WEXITSTATUS(ending.status) : 1);
    }
}

/* The child returns from the handler, finishes the interrupted call and uses the heap then; the
 * parent takes over its verdict. */
static void fork_and_return(uintptr_t at) {
    (void)at;
    pid_t pid = fork();
    if (pid > 0) {
        struct ending ending = await(pid);
        _exit(ending.hung ? HUNG : WIFEXITED(ending.status) ? WEXITSTATUS(ending.status) : 1);
    }
}

/* ---------------------------------------------------------------- scenes */

struct scene {
    const char *name;
    void (*prepare)(void);
    void (*act)(void);
    bool in_thread;
};

/* A thread that has a heap, magazines for the class, and some objects in both of them. */
static void warm_up(void) {
    make(&scene_blocks, SIZE, 2 * BATCH);
    drop(&scene_blocks, BATCH + BATCH / 2);
    make(&scene_blocks, SIZE, 7);
    drop(&scene_blocks, 3);
    for (unsigned i = 0; i < 6; i++) {
        make(&victims, SIZE, 1);
        make(&victims, MIDDLE, 1);
    }
}

/* Pointers: the first call through the linkage table would take the loader along. */
static void *(*volatile call_malloc)(size_t) = malloc;
static void (*volatile call_free)(void *) = free;
static void (*volatile call_free_sized)(void *, size_t) = tally_free_sized;
static void *(*volatile call_realloc)(void *, size_t) = realloc;
static void *(*volatile call_calloc)(size_t, size_t) = calloc;
static void *(*volatile call_memalign)(size_t, size_t) = memalign;
static int (*volatile call_trim)(size_t) = malloc_trim;
static size_t (*volatile call_usable_size)(void *) = malloc_usable_size;
static void (*volatile call_totals)(struct tally_totals *) = tally_totals;

/* What the acts return; they become part of the model when no handler can interrupt any more. */
static struct block made[2 * BATCH];
static unsigned made_count;

static void note(void *p, size_t size) {
    made[made_count++] = (struct block){p, size};
}

static void act_malloc(void) {
    note(call_malloc(SIZE), SIZE);
}

static void act_free(void) {
    call_free(scene_blocks.blocks[--scene_blocks.count].p);
}

/* The oldest block is among others that are all carved, which the fast path wants. */
static struct block oldest;

static void prepare_oldest(void) {
    oldest.p = malloc(SIZE);
    make(&scene_blocks, SIZE, 2000);
    warm_up();
}

static void act_free_oldest(void) {
    call_free(oldest.p);
}

static void act_free_sized_oldest(void) {
    call_free_sized(oldest.p, SIZE);
}

static void act_malloc_many(void) {
    for (unsigned i = 0; i < BATCH; i++) {
        note(call_malloc(SIZE), SIZE);
    }
}

static void act_free_many(void) {
    for (unsigned i = 0; i < BATCH; i++) {
        act_free();
    }
}

static void prepare_many(void) {
    warm_up();
    make(&scene_blocks, SIZE, BATCH);
}

/* Nothing in the caches, so objects come from slabs, and slabs from pages. */
static void prepare_dry(void) {
    warm_up();
    malloc_trim(0);
}

/* Slow calls that find room and objects in the magazines. */
static void prepare_middle(void) {
    warm_up();
    make(&later_blocks, MIDDLE, 40);
    drop(&later_blocks, 30);
    make(&later_blocks, MIDDLE, 4);
    drop(&later_blocks, MOST_BLOCKS);
}

static void act_middle(void) {
    void *first = call_malloc(MIDDLE);
    void *second = call_malloc(MIDDLE);
    call_free(first);
    note(second, MIDDLE);
    note(call_malloc(MIDDLE), MIDDLE);
}

/* In memory that is just being carved, where the fast path does not know its way yet. */
static void prepare_young(void) {
    warm_up();
    malloc_trim(0);
    warm_up();
    make(&scene_blocks, SIZE, 2 * BATCH);
    drop(&scene_blocks, 5);
}

static void act_free_some(void) {
    for (unsigned i = 0; i < 8; i++) {
        act_free();
    }
}

/* Sizes that this thread has not used: no magazine, so the bins serve each call. */
static void act_rare_sizes(void) {
    for (size_t size = 1100; size < 9000; size += 1900) {
        note(call_malloc(size), size);
    }
    void *p = call_malloc(7000);
    call_free(p);
}

static void act_large(void) {
    note(call_malloc(300000), 300000);
    void *p = call_malloc(5000000);
    call_free(p);
    note(call_calloc(100, 1000), 100000);
    note(call_memalign(1 << 20, 5000), 5000);
    note(call_memalign(4096, 5000), 5000);
}

static void act_realloc(void) {
    void *p = call_realloc(NULL, 40);
    p = call_realloc(p, 400);
    p = call_realloc(p, 40000);
    p = call_realloc(p, 180000);
    p = call_realloc(p, 700000);
    p = call_realloc(p, 60000);
    p = call_realloc(p, 500);
    note(p, 500);
}

static void act_trim(void) {
    call_trim(0);
}

static void prepare_trim(void) {
    static const size_t sizes[] = {32, 48, 200, 1000, 20000, 300000};
    warm_up();
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        make(&scene_blocks, sizes[i], 30);
        drop(&scene_blocks, 30);
    }
}

static void act_ask(void) {
    static struct tally_totals totals;
    call_totals(&totals);
    (void)call_usable_size(scene_blocks.blocks[0].p);
}

/* A thread's first calls: without a heap, then with one. */
static void act_first_calls(void) {
    for (unsigned i = 0; i < 30; i++) {
        note(call_malloc(SIZE), SIZE);
    }
}

static void act_nothing(void) {
}

static const struct scene fast_scenes[] = {
    {"malloc, fast", warm_up, act_malloc, false},
    {"free, fast", prepare_oldest, act_free_oldest, false},
    {"free_sized, fast", prepare_oldest, act_free_sized_oldest, false},
};

/* The short ones come first: there every instruction is interrupted even in the short slice. */
static const struct scene slow_scenes[] = {
    {"malloc: refill", warm_up, act_malloc_many, false},
    {"free: magazines leave", prepare_many, act_free_many, false},
    {"malloc and free: middle sizes", prepare_middle, act_middle, false},
    {"free: young memory", prepare_young, act_free_some, false},
    {"malloc: nothing cached", prepare_dry, act_malloc_many, false},
    {"malloc and free: rare sizes", warm_up, act_rare_sizes, false},
    {"large and aligned blocks", warm_up, act_large, false},
    {"realloc", warm_up, act_realloc, false},
    {"malloc_trim", prepare_trim, act_trim, false},
    {"questions", warm_up, act_ask, false},
    {"first calls of a thread", warm_up, act_first_calls, true},
};

/* The end of a thread is interrupted too: this scene begins when its function is about to return. */
static const struct scene exit_scene = {"end of a thread", warm_up, act_nothing, true};

/* ---------------------------------------------------------------- running one scene */

static const struct scene *running;
static pthread_key_t last_key;
static bool reached;

/* The allocator hears of a thread's end by a key too, and lets one round pass.  This key is younger,
 * so its destructor comes later in each round; the third round is behind everything. */
static void end_in_third_round(void *round) {
    if ((uintptr_t)round < 3) {
        pthread_setspecific(last_key, (void *)((uintptr_t)round + 1));
    } else {
        reached = interrupt_end();
    }
}

static void *act_in_thread(void *unused) {
    bool at_exit = running == &exit_scene;
    if (at_exit) {
        struct block mine[BATCH];
        for (unsigned i = 0; i < BATCH; i++) {
            mine[i].p = malloc(SIZE + i % 3 * 1000);
        }
        for (unsigned i = 0; i < BATCH; i++) {
            free(mine[i].p);
        }
        pthread_setspecific(last_key, (void *)1);
        interrupt_begin();
        return unused;
    }
    interrupt_begin();
    running->act();
    reached = interrupt_end();
    return unused;
}

/* In a process of its own; what to do at which instruction has been said. */
static _Noreturn void run_scene(const struct scene *scene) {
    running = scene;
    if (scene->in_thread) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, act_in_thread, NULL) == 0);
        check(pthread_join(thread, NULL) == 0);
    } else {
        interrupt_begin();
        scene->act();
        reached = interrupt_end();
    }
    for (unsigned i = 0; i < made_count; i++) {
        keep(&scene_blocks, made[i].p, made[i].size);
    }
    check_heap();
    _exit(reached ? FINE : NOT_REACHED);
}

static struct interrupt_trace *trace;

/* The scene in a child, watched.  `arrange` says what happens in it. */
static struct ending run_child(const struct scene *scene, size_t step, interrupt_work *work) {
    pid_t pid = fork();
    check(pid >= 0);
    if (pid == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, 2); /* a corrupted heap has much to say */
        check(pthread_key_create(&last_key, end_in_third_round) == 0);
        live_before = live_bytes();
        scene->prepare();
        if (work == NULL) {
            interrupt_record(trace);
        } else if (step == SIZE_MAX) {
            interrupt_at_every(work);
        } else {
            interrupt_at(trace, step, work);
        }
        run_scene(scene);
    }
    return await(pid);
}

static void record_scene(const struct scene *scene) {
    struct ending ending = run_child(scene, 0, NULL);
    check(!ending.hung && WIFEXITED(ending.status));
    check_eq(WEXITSTATUS(ending.status), NOT_REACHED);
    check(trace->count > 10 && trace->count < INTERRUPT_MOST_STEPS);
}

/* ---------------------------------------------------------------- where an instruction is */

/* The functions that hold the fast path, and which of their instructions do harm. */
enum { FAST_FUNCTIONS = 3, FAST_BYTES = 256 };
static struct fast {
    const char *name;
    uintptr_t start;
    size_t bytes;
    bool harms[FAST_BYTES];
} fast[FAST_FUNCTIONS] = {
    {.name = "tally_malloc"}, {.name = "tally_free"}, {.name = "tally_free_sized"}};

static struct { uintptr_t start, end; /* of the library's code */ } library;

static int find_code(struct dl_phdr_info *info, size_t size, void *inside) {
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) != 0 &&
            (uintptr_t)inside - start < segment->p_memsz) {
            library.start = start;
            library.end = start + segment->p_memsz;
        }
    }
    return 0;
}

static void find_functions(void) {
    if (!interrupt_is_possible()) {
        skip("code cannot be stepped through or written to here");
    }
    test_allow_seconds(slice_or(TEST_SECONDS, 7200));
    block_sigchld();
    trace = interrupt_new_trace();
    check(trace != NULL);
    for (unsigned f = 0; f < FAST_FUNCTIONS; f++) {
        void *start = dlsym(RTLD_DEFAULT, fast[f].name);
        Dl_info info;
        const ElfW(Sym) *symbol = NULL;
        check(start != NULL && dladdr1(start, &info, (void **)&symbol, RTLD_DL_SYMENT) != 0);
        fast[f].start = (uintptr_t)start;
        fast[f].bytes = symbol->st_size;
        check(fast[f].bytes > 0 && fast[f].bytes <= FAST_BYTES);
    }
    dl_iterate_phdr(find_code, (void *)fast[0].start);
    check(library.start != 0);
}

static struct fast *fast_function_at(uintptr_t at) {
    for (unsigned f = 0; f < FAST_FUNCTIONS; f++) {
        if (at - fast[f].start < fast[f].bytes) {
            return &fast[f];
        }
    }
    return NULL;
}

static bool is_ours(uintptr_t at) {
    return at >= library.start && at < library.end;
}

static const char *hexadecimal(char buffer[24], uintptr_t value) {
    char *end = buffer + 23;
    *end = '\0';
    do {
        *--end = "0123456789abcdef"[value % 16];
        value /= 16;
    } while (value != 0);
    *--end = 'x';
    *--end = '0';
    return end;
}

/* ---------------------------------------------------------------- verdicts */

static const char *what_happened(struct ending ending) {
    if (ending.hung) {
        return "hangs";
    }
    if (WIFSIGNALED(ending.status)) {
        return WTERMSIG(ending.status) == SIGABRT ? "is stopped by the allocator" : "crashes";
    }
    switch (WEXITSTATUS(ending.status)) {
    case BROKEN_CONTENT:
        return "finds a block that changed";
    case OVERLAP:
        return "finds blocks that overlap";
    case NO_MEMORY:
        return "gets no memory";
    case LOST:
        return "loses memory";
    case HUNG:
        return "has a child that hangs";
    default:
        return "fails";
    }
}

static bool is_hang(struct ending ending) {
    return ending.hung || (WIFEXITED(ending.status) && WEXITSTATUS(ending.status) == HUNG);
}

static bool was_missed(struct ending ending) {
    return !ending.hung && WIFEXITED(ending.status) && WEXITSTATUS(ending.status) == NOT_REACHED;
}

static void say_step(const struct scene *scene, size_t step, uintptr_t at, struct ending ending) {
    char number[24], hex[24];
    struct fast *function = fast_function_at(at);
    test_say("    ", scene->name, ", instruction ", test_decimal(number, (long long)step), " at ",
             function != NULL ? function->name : "libtally.so", " + ",
             hexadecimal(hex, at - (function != NULL ? function->start : library.start)), ": ",
             what_happened(ending), "\n", NULL);
}

struct tally_of_steps {
    size_t run, missed, harmed;
};

/* One interruption.  Harm is allowed where `window` says so; hanging is never. */
static void interrupt_once(const struct scene *scene, size_t step, interrupt_work *work,
                           struct tally_of_steps *steps, bool learn) {
    uintptr_t at = trace->at[step];
    struct fast *function = fast_function_at(at);
    struct ending ending = run_child(scene, step, work);
    for (unsigned again = 0; again < 2 && was_missed(ending); again++) {
        ending = run_child(scene, step, work); /* The clock may have led it another way. */
    }
    bool *harms = function != NULL ? &function->harms[at - function->start] : NULL;
    steps->run++;
    if (ending.status == 0 && !ending.hung) {
        return;
    }
    if (was_missed(ending)) {
        steps->missed++;
        return;
    }
    if (is_hang(ending) || harms == NULL || (!learn && !*harms)) {
        say_step(scene, step, at, ending);
        test_fail(__FILE__, __LINE__, "a handler interrupted the allocator");
    }
    *harms = true;
    steps->harmed++;
}

static void say_steps(const struct scene *scene, size_t slow, const struct tally_of_steps *steps) {
    char number[3][24];
    test_say("    ", scene->name, ": ", test_decimal(number[0], (long long)slow),
             " instructions of slow paths, interrupted at ",
             test_decimal(number[1], (long long)steps->run), " of them, not reached ",
             test_decimal(number[2], (long long)steps->missed), "\n", NULL);
}

/* Every instruction of a fast scene; all that are the library's must be the fast path's. */
static void measure_window(const struct scene *scene, interrupt_work *work, bool learn) {
    struct tally_of_steps steps = {0, 0, 0};
    record_scene(scene);
    for (size_t step = 0; step < trace->count; step++) {
        if (is_ours(trace->at[step])) {
            check(fast_function_at(trace->at[step]) != NULL);
            interrupt_once(scene, step, work, &steps, learn);
        }
    }
    check(steps.run >= 10);
    check_eq(steps.missed, 0);
}

/*
 * Which steps of a slow scene are interrupted; the fast path's own are left to the fast scenes.  In
 * the short slice one in `stride` of the library's instructions (fewer in long scenes), each at the
 * first time that any scene comes to it; else all steps, or every n-th where there are too many.
 */
static bool is_chosen(uintptr_t at, size_t nth, size_t stride) {
    static bool met[1 << 20];
    static size_t new_ones;
    if (whole_length()) {
        return nth % stride == 0;
    }
    check(at - library.start < sizeof met);
    bool *known = &met[at - library.start];
    if (*known) {
        return false;
    }
    *known = true;
    return new_ones++ % stride == 0;
}

static bool is_slow(uintptr_t at) {
    return is_ours(at) && fast_function_at(at) == NULL;
}

static void interrupt_everywhere(const struct scene *scene, interrupt_work *work, size_t stride) {
    struct tally_of_steps steps = {0, 0, 0};
    size_t slow = 0, nth = 0;
    record_scene(scene);
    for (size_t step = 0; step < trace->count; step++) {
        slow += is_slow(trace->at[step]);
    }
    if (whole_length()) {
        stride = slow / WHOLE_SAMPLE + 1;
    } else if (slow > SHORT) {
        stride *= 8;
    }
    for (size_t step = 0; step < trace->count; step++) {
        if (is_slow(trace->at[step]) && is_chosen(trace->at[step], nth++, stride)) {
            interrupt_once(scene, step, work, &steps, false);
        }
    }
    say_steps(scene, slow, &steps);
    check(slow > 50);
    check(steps.missed * 4 <= steps.run + 4);
}

/* ---------------------------------------------------------------- tests */

static void say_window(const struct fast *function) {
    char first[24], last[24], number[24];
    unsigned count = 0;
    size_t low = FAST_BYTES, high = 0;
    for (size_t i = 0; i < function->bytes; i++) {
        if (function->harms[i]) {
            count++;
            low = i < low ? i : low;
            high = i;
        }
    }
    if (count == 0) {
        test_say("    ", function->name, ": no window\n", NULL);
    } else {
        test_say("    ", function->name, ": a handler that allocates does harm before ",
                 test_decimal(number, count), " instructions, those at + ", hexadecimal(first, low),
                 " to + ", hexadecimal(last, high), "\n", NULL);
    }
}

static unsigned window_instructions(const struct fast *function) {
    unsigned count = 0;
    for (size_t i = 0; i < function->bytes; i++) {
        count += function->harms[i];
    }
    return count;
}

/* How wide the window may be; a new compiler or a change of the fast path shows here. */
enum { MALLOC_WINDOW = 5, FREE_WINDOW = 7 };

TEST(the_fast_path_has_a_small_window) {
    find_functions();
    for (unsigned s = 0; s < FAST_FUNCTIONS; s++) {
        measure_window(&fast_scenes[s], only_allocate, true);
        measure_window(&fast_scenes[s], only_free, true);
        measure_window(&fast_scenes[s], allocate_and_free, true);
        measure_window(&fast_scenes[s], turn_over, true);
        say_window(&fast[s]);
        check(window_instructions(&fast[s]) <= (s == 0 ? MALLOC_WINDOW : FREE_WINDOW));
    }
}

TEST(a_child_forked_in_the_fast_path_may_allocate) {
    find_functions();
    for (unsigned s = 0; s < FAST_FUNCTIONS; s++) {
        measure_window(&fast_scenes[s], fork_and_allocate, false);
    }
}

/* The first kind of handler meets every instruction; where another one differs is rarer. */
enum { EVERY_ONE = 1, SOME = 32 };

static void interrupt_all_slow_scenes(interrupt_work *work, size_t stride) {
    find_functions();
    for (unsigned s = 0; s < sizeof slow_scenes / sizeof slow_scenes[0]; s++) {
        interrupt_everywhere(&slow_scenes[s], work, stride);
    }
}

TEST(slow_paths_may_be_interrupted_by_mallocs_and_frees) {
    interrupt_all_slow_scenes(allocate_and_free, EVERY_ONE);
}

TEST(slow_paths_may_be_interrupted_by_frees_alone) {
    interrupt_all_slow_scenes(only_free, SOME);
}

TEST(the_end_of_a_thread_may_be_interrupted) {
    find_functions();
    interrupt_everywhere(&exit_scene, allocate_and_free, EVERY_ONE);
}

TEST(a_child_forked_in_a_slow_path_may_allocate) {
    interrupt_all_slow_scenes(fork_and_allocate, SOME);
}

TEST(a_child_forked_in_a_slow_path_may_return_to_it) {
    interrupt_all_slow_scenes(fork_and_return, SOME);
}

/* One process, a handler before each of its instructions. */
static void spare_the_fast_path(uintptr_t at) {
    if (is_ours(at) && fast_function_at(at) == NULL) {
        come_and_go(at);
    }
}

TEST(slow_paths_may_be_interrupted_again_and_again) {
    find_functions();
    for (unsigned s = 0; s < sizeof slow_scenes / sizeof slow_scenes[0]; s++) {
        struct ending ending = run_child(&slow_scenes[s], SIZE_MAX, spare_the_fast_path);
        if (ending.hung || ending.status != 0) {
            test_say("    ", slow_scenes[s].name, " ", what_happened(ending), "\n", NULL);
            test_fail(__FILE__, __LINE__, "a handler at every instruction");
        }
    }
}

/* The same with the page of counters, which is renewed every millisecond in so young a process. */
TEST(renewals_of_the_page_of_counters_may_be_interrupted_again_and_again) {
    find_functions();
    pid_t pid = fork();
    check(pid >= 0);
    if (pid == 0) {
        static char preload[4096];
        const char *loaded = getenv("LD_PRELOAD");
        snprintf(preload, sizeof preload, "LD_PRELOAD=%s", loaded != NULL ? loaded : "");
        char *environment[] = {"TALLY_CONF=stats_page:true", preload, NULL};
        execle("/proc/self/exe", "test_reenter", "slow_paths_may_be_interrupted_again_and_again",
               (char *)NULL, environment);
        _exit(127);
    }
    int status;
    check(waitpid(pid, &status, 0) == pid);
    check_eq(status, 0);
}
