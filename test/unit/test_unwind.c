/* SPDX-License-Identifier: MIT
 *
 * test_unwind.c - the stack that is found against the stack that there is.
 *
 * Each function on the way notes its own return address, so the truth is known frame by frame.  Code
 * without frame pointers, and without unwind tables, is written in assembler, where nothing depends on
 * the compiler.  libgcc's unwinder is counted on its way out of dlsym.
 */
#define _GNU_SOURCE
#include "prof/unwind.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unwind.h>

#include "opt/opt.h"
#include "base/os.h"
#include "unit.h"

/* ---------------------------------------------------------------- libgcc, counted */

static _Unwind_Reason_Code (*real_backtrace)(_Unwind_Trace_Fn, void *);
static _Atomic unsigned asked;

static _Unwind_Reason_Code counting_backtrace(_Unwind_Trace_Fn visit, void *context) {
    asked++;
    return real_backtrace(visit, context);
}

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name) {
    void *symbol = __real_dlsym(library, name);
    if (strcmp(name, "_Unwind_Backtrace") == 0) {
        *(void **)&real_backtrace = symbol;
        return (void *)counting_backtrace;
    }
    return symbol;
}

/* A sanitizer has libgcc in the program: there it cannot be counted. */
static bool was_asked(unsigned least, unsigned most) {
    return SANITIZED || (least <= asked && asked <= most);
}

/* ---------------------------------------------------------------- code of other kinds */

#if defined(__x86_64__)
/* call_*(function, argument, value) calls the function; `value` goes to rbp where it is clobbered. */
void call_clobbering(void (*function)(void *), void *argument, uintptr_t value);
void call_frameless(void (*function)(void *), void *argument, uintptr_t value);
void call_without_tables(void (*function)(void *), void *argument, uintptr_t value);
void call_frame_without_tables(void (*function)(void *), void *argument, uintptr_t value);
void call_varying(void (*function)(void *), void *argument, uintptr_t value);
extern const char after_varying[], after_clobbering[], after_frameless[], after_without_tables[],
    after_frame_without_tables[];

__asm__(".text\n"
        /* Uses rbp for something else, as optimized code does; has unwind tables. */
        "call_clobbering: .cfi_startproc\n"
        "pushq %rbp\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbp, 0\n"
        "movq %rdx, %rbp\n movq %rdi, %rax\n movq %rsi, %rdi\n"
        "callq *%rax\n"
        "after_clobbering: popq %rbp\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbp\n"
        "retq\n .cfi_endproc\n"
        /* Leaves rbp alone and has no frame: it is skipped by frame pointers. */
        "call_frameless: .cfi_startproc\n"
        "subq $8, %rsp\n .cfi_adjust_cfa_offset 8\n movq %rdi, %rax\n movq %rsi, %rdi\n"
        "callq *%rax\n"
        "after_frameless: addq $8, %rsp\n .cfi_adjust_cfa_offset -8\n"
        "retq\n .cfi_endproc\n"
        /* Takes `value` bytes of the stack, as alloca does, and finds back by rbx. */
        "call_varying: .cfi_startproc\n"
        "pushq %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbx, 0\n"
        "movq %rsp, %rbx\n .cfi_def_cfa_register %rbx\n"
        "subq %rdx, %rsp\n movq %rdi, %rax\n movq %rsi, %rdi\n"
        "callq *%rax\n"
        "after_varying: movq %rbx, %rsp\n .cfi_def_cfa_register %rsp\n"
        "popq %rbx\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbx\n"
        "retq\n .cfi_endproc\n"
        /* The first without tables. */
        "call_without_tables:\n"
        "pushq %rbp\n movq %rdx, %rbp\n movq %rdi, %rax\n movq %rsi, %rdi\n"
        "callq *%rax\n"
        "after_without_tables: popq %rbp\n retq\n"
        /* A frame, but no tables: machine code made at run time often is like this. */
        "call_frame_without_tables:\n"
        "pushq %rbp\n movq %rsp, %rbp\n movq %rdi, %rax\n movq %rsi, %rdi\n"
        "callq *%rax\n"
        "after_frame_without_tables: popq %rbp\n retq\n");
#endif

/* ---------------------------------------------------------------- the truth */

enum { MOST_NOTED = 400 };

struct walk {
    struct unwind_thread *thread;
    unsigned most;
    uintptr_t noted[MOST_NOTED]; /* return addresses, outermost first */
    unsigned nnoted;
    uintptr_t found[UNWIND_ROOM];
    unsigned nfound;
};

static struct unwind_thread main_thread;

static void note(struct walk *walk, const void *address) {
    check(walk->nnoted < MOST_NOTED);
    walk->noted[walk->nnoted++] = (uintptr_t)address;
}

/* The end of each way. */
static __attribute__((noinline)) void look(void *argument) {
    struct walk *walk = argument;
    note(walk, __builtin_return_address(0));
    walk->nfound = unwind(walk->thread, __builtin_frame_address(0), walk->found, walk->most);
}

static __attribute__((noinline)) void descend(struct walk *walk, unsigned levels) {
    note(walk, __builtin_return_address(0));
    if (levels > 0) {
        descend(walk, levels - 1);
    } else {
        look(walk);
    }
    __asm__ volatile("" ::: "memory");
}

static void check_found(const struct walk *walk) {
    check(walk->nfound >= walk->nnoted);
    for (unsigned i = 0; i < walk->nnoted; i++) {
        check_eq(walk->found[i], walk->noted[walk->nnoted - 1 - i]);
    }
}

static void begin(uint64_t how) {
    os_init();
    opt.prof_unwind = how;
    unwind_init();
    unwind_prepare();
    asked = 0;
}

static struct walk new_walk(void) {
    return (struct walk){.thread = &main_thread, .most = 128};
}

/* ---------------------------------------------------------------- frame pointers and libgcc */

TEST(frame_pointers_alone_find_every_caller) {
    begin(PROF_UNWIND_FRAME_POINTERS);
    struct walk walk = new_walk();
    descend(&walk, 20);
    check_found(&walk);
    check(was_asked(0, 0));
}

TEST(libgcc_finds_the_same) {
    begin(PROF_UNWIND_LIBGCC);
    struct walk walk = new_walk();
    descend(&walk, 20);
    check_found(&walk);
    check(was_asked(1, 1));
}

static __attribute__((noinline)) void descend_again(struct walk *walk, unsigned levels) {
    struct walk again = {.thread = walk->thread, .most = walk->most};
    *walk = again;
    descend(walk, levels);
    check_found(walk);
}

TEST(libgcc_is_asked_once_for_each_call) {
    begin(PROF_UNWIND_AUTO);
    struct walk walk = new_walk();
    struct walk first = {0};
    for (volatile unsigned i = 0; i < 10; i++) {
        descend_again(&walk, 20); /* always from here */
        first = i == 0 ? walk : first;
        check_eq(walk.nfound, first.nfound); /* the outermost frames are there, too */
        check(memcmp(walk.found, first.found, walk.nfound * sizeof(walk.found[0])) == 0);
    }
    check(was_asked(1, 1));
    check(walk.nfound > walk.nnoted + 1);
}

TEST(known_calls_are_known_in_every_combination) {
    begin(PROF_UNWIND_AUTO);
    struct walk walk = new_walk();
    for (volatile unsigned levels = 1; levels < 30; levels++) {
        descend_again(&walk, levels);
    }
    check(was_asked(1, 1));
    descend(&walk, 1); /* another call of it */
    check(was_asked(2, 2));
}

#if defined(__x86_64__)
typedef void caller(void (*function)(void *), void *argument, uintptr_t value);

struct through {
    struct walk *walk;
    caller *by;
    const char *after;
    uintptr_t value;
};

static __attribute__((noinline)) void descend_through(struct through *through) {
    note(through->walk, __builtin_return_address(0));
    note(through->walk, &&here);
    through->walk->nnoted--; /* the address of the call is noted below */
    through->by(look, through->walk, through->value);
here:
    __asm__ volatile("" ::: "memory");
}

/* Frames below the call of assembler code cannot note their addresses there; what stands below and above
 * it is compared. */
static void check_found_through(const struct through *through) {
    const struct walk *walk = through->walk;
    /* found: the call of look (in assembler), the call of that (in descend_through), then the noted. */
    check_eq(walk->found[0], (uintptr_t)through->after);
    check(walk->nfound >= walk->nnoted + 1);
    for (unsigned i = 2; i < walk->nnoted; i++) {
        check_eq(walk->found[i], walk->noted[walk->nnoted - i]);
    }
}

static struct through new_through(struct walk *walk, caller *by, const char *after,
                                  uintptr_t value) {
    return (struct through){walk, by, after, value};
}

/* What rbp may hold: numbers, pointers to anywhere, and to the stack. */
static unsigned make_values(uintptr_t *values) {
    char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    munmap(pages + 2 * 4096, 4096);
    uintptr_t stack = (uintptr_t)__builtin_frame_address(0);
    uintptr_t some[] = {0,
                        1,
                        8,
                        4096,
                        0x1234567,
                        (uintptr_t)pages,
                        (uintptr_t)pages + 4088,
                        (uintptr_t)pages + 4096,
                        (uintptr_t)pages + 8192,
                        stack,
                        stack + 8,
                        stack + 3,
                        stack - 64,
                        stack + 4096,
                        stack + (64 << 10),
                        stack + (200 << 10),
                        stack + (512 << 10),
                        stack + (1 << 20) - 64,
                        stack + (64 << 20),
                        stack + (1 << 30),
                        UINTPTR_MAX,
                        UINTPTR_MAX - 7,
                        UINTPTR_MAX - 15,
                        (uintptr_t)INTPTR_MAX - 7,
                        UINT64_C(0x8000000000000000),
                        UINT64_C(0x00007ffffffffff8),
                        (uintptr_t)&main_thread,
                        (uintptr_t)&after_clobbering};
    memcpy(values, some, sizeof(some));
    return sizeof(some) / sizeof(some[0]);
}

TEST(code_without_frame_pointers_hides_nothing_from_auto) {
    begin(PROF_UNWIND_AUTO);
    uintptr_t values[40];
    unsigned count = make_values(values);
    for (volatile unsigned i = 0; i < 2 * count; i++) {
        struct walk walk = new_walk();
        struct through through =
            new_through(&walk, call_clobbering, after_clobbering, values[i % count]);
        descend_through(&through);
        check_found_through(&through);
    }
    check(was_asked(1, 3)); /* and what is known does not depend on what the register holds */
}

TEST(frameless_code_hides_nothing_from_auto) {
    begin(PROF_UNWIND_AUTO);
    for (unsigned i = 0; i < 5; i++) {
        struct walk walk = new_walk();
        struct through through = new_through(&walk, call_frameless, after_frameless, 0);
        descend_through(&through);
        check_found_through(&through);
    }
}

TEST(no_value_in_the_frame_pointer_makes_it_fault) {
    begin(PROF_UNWIND_FRAME_POINTERS);
    uintptr_t values[40];
    unsigned count = make_values(values);
    for (unsigned i = 0; i < count; i++) {
        struct walk walk = new_walk();
        struct through through = new_through(&walk, call_clobbering, after_clobbering, values[i]);
        descend_through(&through);
        check(walk.nfound >= 1);
        check_eq(walk.found[0], (uintptr_t)after_clobbering);
        call_without_tables(look, &walk, values[i]);
        check_eq(walk.found[0], (uintptr_t)after_without_tables);
    }
}

TEST(code_without_tables_ends_the_walk) {
    begin(PROF_UNWIND_AUTO);
    for (volatile unsigned i = 0; i < 3; i++) {
        struct walk walk = new_walk();
        call_without_tables(look, &walk, 1);
        check_eq(walk.nfound, 1);
        check_eq(walk.found[0], (uintptr_t)after_without_tables);
    }
}

TEST(code_without_tables_is_passed_where_its_frame_leads_to_a_known_call) {
    begin(PROF_UNWIND_AUTO);
    for (volatile unsigned i = 0; i < 4; i++) {
        struct walk walk = new_walk();
        bool teaches = i == 0;
        struct through through =
            new_through(&walk, teaches ? call_frameless : call_frame_without_tables,
                        teaches ? after_frameless : after_frame_without_tables, 0);
        descend_through(&through);
        check_found_through(&through);
    }
}

TEST(frames_of_varying_size_are_noticed) {
    begin(PROF_UNWIND_AUTO);
    struct random random = random_start(3, 3);
    for (volatile unsigned i = 0; i < 200; i++) {
        struct walk walk = new_walk();
        uintptr_t bytes = i % 3 == 0 ? 0 : 16 * random_below(&random, 100);
        struct through through = new_through(&walk, call_varying, after_varying, bytes);
        descend_through(&through);
        check_found_through(&through);
    }
}
#endif

/* ---------------------------------------------------------------- what is kept of the last walk */

/* A thread that keeps nothing: what is known about sites is the same, so that the two may differ in nothing
 * else. */
static struct unwind_thread forgetful;

static struct {
    unsigned looks;
    unsigned same;     /* levels that were not walked */
    unsigned numbered; /* of these, with the note that they should have */
} kept;

/* A note is a sum of all addresses from the outermost on. */
static uint32_t note_of(uint32_t outer, uintptr_t address) {
    return (uint32_t)((outer * UINT64_C(31) + address) * UINT64_C(0x9e3779b97f4a7c15) >> 32) | 1;
}

static void check_notes(struct unwind_stack stack) {
    uint32_t note = 0;
    for (unsigned i = 0; i < stack.count; i++) {
        struct unwind_level *level = &stack.levels[i];
        note = note_of(note, unwind_address(level));
        check(level->note == 0 || level->note == note);
        check(level->note == 0 || i < stack.same);
        kept.numbered += level->note != 0;
        level->note = note;
    }
}

/* The walk that uses what is kept against one that cannot. */
static __attribute__((noinline)) void compare(void *unused) {
    static uintptr_t found[UNWIND_ROOM], fresh[UNWIND_ROOM];
    (void)unused;
    void *frame = __builtin_frame_address(0);
    struct unwind_stack stack = unwind_again(&main_thread, frame, found, 128);
    if (stack.levels != NULL) {
        check_notes(stack);
        kept.same += stack.same;
        for (unsigned i = 0; i < stack.count; i++) {
            found[i] = unwind_address(&stack.levels[stack.count - 1 - i]);
        }
    }
    forgetful.count = 0;
    unsigned count = unwind(&forgetful, frame, fresh, 128);
    check_eq(stack.count, count);
    check(memcmp(found, fresh, count * sizeof(found[0])) == 0);
    kept.looks++;
    __asm__ volatile("" ::: "memory");
}

static uint64_t roads = 1;

static unsigned fork_in_the_road(unsigned ways) {
    roads = roads * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned)(roads >> 40) % ways;
}

static void take_a_road(void *depth);
static void (*volatile next_road)(void *) = take_a_road;

/* Two functions with frames of the same size: the same slots, other return addresses. */
static __attribute__((noinline)) void left_road(void *depth) {
    next_road(depth);
    __asm__ volatile("nop" ::: "memory");
}

static __attribute__((noinline)) void right_road(void *depth) {
    next_road(depth);
    __asm__ volatile("nop; nop" ::: "memory");
}

/* A frame of varying size. */
static __attribute__((noinline)) void wide_road(void *depth) {
    volatile char *room = __builtin_alloca(16 + fork_in_the_road(40) * 16);
    room[0] = 1;
    next_road(depth);
    __asm__ volatile("" ::"r"(room) : "memory");
}

static jmp_buf way_back;

/* Goes on by any of them, sometimes twice; looks at the end and now and then on the way, so that much may have
 * changed since the last look; and sometimes leaves all of it at once. */
static __attribute__((noinline)) void take_a_road(void *argument) {
    uintptr_t depth = (uintptr_t)argument;
    if (depth == 0 || fork_in_the_road(8) == 0) {
        compare(NULL);
    }
    if (depth == 0) {
        return;
    }
    if (fork_in_the_road(50) == 0) {
        longjmp(way_back, 1);
    }
    for (unsigned turns = 1 + (fork_in_the_road(2) == 0); turns > 0; turns--) {
        void *next = (void *)(depth - 1);
        switch (fork_in_the_road(SANITIZED ? 3 : 5)) {
        case 0:
            left_road(next);
            break;
        case 1:
            right_road(next);
            break;
        case 2:
            wide_road(next);
            break;
#if defined(__x86_64__)
        case 3:
            call_clobbering(next_road, next, fork_in_the_road(2) ? 0 : roads);
            break;
        default:
            call_frameless(next_road, next, 0);
#endif
        }
    }
}

static void wander(unsigned times) {
    for (volatile unsigned i = 0; i < times; i++) {
        if (setjmp(way_back) == 0) {
            next_road((void *)(uintptr_t)(3 + fork_in_the_road(9)));
        }
    }
}

TEST(a_walk_with_what_is_kept_finds_what_a_fresh_one_finds) {
    begin(PROF_UNWIND_AUTO);
    wander(3000);
    check(kept.looks > 10000);
    /* Otherwise this was a test of something else. */
    check(kept.same / kept.looks >= 3);
    check(kept.numbered > kept.looks);
}

/* Teaches that a distance varies, which was not known. */
static void learn_something(void) {
    for (unsigned size = 32; size <= 64; size += 32) {
        struct walk walk = new_walk();
        walk.thread = &forgetful;
#if defined(__x86_64__)
        call_varying(look, &walk, size);
#else
        descend(&walk, size);
#endif
    }
}

TEST(what_was_kept_counts_no_more_when_a_site_is_known_otherwise) {
    begin(PROF_UNWIND_AUTO);
    enum { TURNS = 9, LESSON = 4 };
    for (unsigned i = 0; i < TURNS; i++) {
        unsigned before = kept.same;
        if (i == LESSON) {
            learn_something();
        }
        compare(NULL);
        bool is_settled = i == LESSON - 1 || i == TURNS - 1;
        check(kept.same > before || !is_settled);
        check(kept.same == before || i != LESSON);
    }
}

static void *wander_in_thread(void *argument) {
    unwind_begin(&main_thread);
    wander(100);
    return argument;
}

TEST(what_another_thread_kept_is_forgotten) {
    begin(PROF_UNWIND_AUTO);
    wander(100);
    pthread_t thread;
    check_eq(pthread_create(&thread, NULL, wander_in_thread, NULL), 0);
    check_eq(pthread_join(thread, NULL), 0);
    unwind_begin(&main_thread);
    unwind_begin(&forgetful);
    wander(100);
}

static void compare_in_handler(int number) {
    (void)number;
    compare(NULL);
}

TEST(handlers_on_their_own_stack_neither_use_nor_spoil_what_is_kept) {
    begin(PROF_UNWIND_AUTO);
    static char room[64 << 10];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof(room)};
    check_eq(sigaltstack(&stack, NULL), 0);
    struct sigaction action = {.sa_handler = compare_in_handler, .sa_flags = SA_ONSTACK};
    check_eq(sigaction(SIGUSR1, &action, NULL), 0);
    for (unsigned i = 0; i < 50; i++) {
        wander(2);
        raise(SIGUSR1);
        compare(NULL);
    }
    check(kept.same > kept.looks);
}

/* ---------------------------------------------------------------- depth */

static uintptr_t in_recursion;

static __attribute__((noinline)) void recurse(struct walk *walk, unsigned levels) {
    volatile char room[64];
    room[0] = 0;
    in_recursion = (uintptr_t)__builtin_return_address(0);
    if (levels > 0) {
        recurse(walk, levels - 1);
    } else {
        look(walk);
    }
    __asm__ volatile("" ::"r"(room) : "memory");
}

static void check_deep(uint64_t how) {
    begin(how);
    struct walk walk = new_walk();
    for (unsigned levels = 40000; levels > 0; levels /= 3) {
        walk.nnoted = 0;
        recurse(&walk, levels);
        if (levels > 200) {
            check_eq(walk.nfound, 128);
            for (unsigned i = 1; i < 128; i++) {
                check_eq(walk.found[i], in_recursion);
            }
        }
    }
}

TEST(deep_recursion_is_cut_by_frame_pointers) {
    check_deep(PROF_UNWIND_FRAME_POINTERS);
}

TEST(deep_recursion_is_cut_by_libgcc) {
    check_deep(PROF_UNWIND_LIBGCC);
}

TEST(deep_recursion_is_cut) {
    check_deep(PROF_UNWIND_AUTO);
    unsigned before = asked;
    struct walk walk = new_walk();
    recurse(&walk, 5000);
    recurse(&walk, 5000);
    check(was_asked(0, before + 2));
}

TEST(the_depth_that_is_asked_for_is_kept) {
    begin(PROF_UNWIND_AUTO);
    for (unsigned most = 1; most <= 21; most += 4) {
        struct walk walk = new_walk();
        walk.most = most;
        descend(&walk, 20);
        check_eq(walk.nfound, most);
        for (unsigned i = 0; i < most; i++) {
            check_eq(walk.found[i], walk.noted[walk.nnoted - 1 - i]);
        }
    }
    struct walk walk = new_walk();
    walk.most = 100000;
    descend(&walk, 300);
    check_eq(walk.nfound, UNWIND_MOST);
}

/* ---------------------------------------------------------------- other stacks */

static struct walk *in_handler;

static void handle(int number) {
    (void)number;
    look(in_handler);
}

static __attribute__((noinline)) void be_interrupted(struct walk *walk) {
    note(walk, __builtin_return_address(0));
    in_handler = walk;
    raise(SIGUSR1);
    __asm__ volatile("" ::: "memory");
}

/* An alternate stack at the end of a mapping, between pages that cannot be read. */
static void handle_on_other_stack(void) {
    size_t bytes = 64 << 10;
    char *pages = mmap(NULL, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mprotect(pages + 4096, bytes, PROT_READ | PROT_WRITE) == 0);
    stack_t stack = {.ss_sp = pages + 4096, .ss_size = bytes};
    check(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    check(sigaction(SIGUSR1, &action, NULL) == 0);
}

static bool is_found(const struct walk *walk, uintptr_t address) {
    for (unsigned i = 0; i < walk->nfound; i++) {
        if (walk->found[i] == address) {
            return true;
        }
    }
    return false;
}

TEST(a_handler_on_an_alternate_stack_is_walked_to_its_end) {
    begin(PROF_UNWIND_FRAME_POINTERS);
    handle_on_other_stack();
    struct walk walk = new_walk();
    descend(&walk, 3); /* knows its own stack now */
    walk.nnoted = 0;
    be_interrupted(&walk);
    check(walk.nfound >= 1);
}

TEST(auto_walks_through_a_handler_into_what_it_interrupted) {
    begin(PROF_UNWIND_AUTO);
    handle_on_other_stack();
    for (unsigned i = 0; i < 4; i++) {
        struct walk walk = new_walk();
        be_interrupted(&walk);
        check(is_found(&walk, walk.noted[0]));
        descend_again(&walk, 5);
    }
}

#if defined(__x86_64__)
extern const char forbidden[];

static void handle_forbidden(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    look(in_handler);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

TEST(where_a_signal_came_the_address_is_one_behind_the_instruction) {
    begin(PROF_UNWIND_AUTO);
    struct sigaction action = {.sa_sigaction = handle_forbidden, .sa_flags = SA_SIGINFO};
    check(sigaction(SIGILL, &action, NULL) == 0);
    for (volatile unsigned i = 0; i < 3; i++) {
        struct walk walk = new_walk();
        in_handler = &walk;
        __asm__ volatile("forbidden: ud2" ::: "memory");
        check(is_found(&walk, (uintptr_t)forbidden + 1));
        check(!is_found(&walk, (uintptr_t)forbidden));
    }
}
#endif

static ucontext_t outside, coroutine;
static struct walk *in_coroutine;
static unsigned coroutine_levels;

static void run_coroutine(void) {
    descend(in_coroutine, coroutine_levels);
}

static void walk_in_coroutine(struct walk *walk, char *stack, size_t bytes) {
    in_coroutine = walk;
    check(getcontext(&coroutine) == 0);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = bytes;
    coroutine.uc_link = &outside;
    makecontext(&coroutine, run_coroutine, 0);
    check(swapcontext(&outside, &coroutine) == 0);
}

/* Stacks of several sizes at the same addresses, unmapped and mapped again, with nothing behind. */
static void check_coroutines(uint64_t how) {
    begin(how);
    size_t most = 256 << 10;
    char *area = mmap(NULL, most + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (unsigned i = 0; i < 12; i++) {
        size_t bytes = most >> i % 3;
        check(munmap(area, most + 8192) == 0);
        check(mmap(area, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                   0) == area);
        struct walk walk = new_walk();
        coroutine_levels = i;
        walk_in_coroutine(&walk, area, bytes);
        check_found(&walk);
    }
}

TEST(coroutines_are_walked_to_their_end_by_frame_pointers) {
    check_coroutines(PROF_UNWIND_FRAME_POINTERS);
}

TEST(coroutines_are_walked_to_their_end) {
    check_coroutines(PROF_UNWIND_AUTO);
}

#if defined(__x86_64__)
static uintptr_t in_register;

static void run_with_clobbered_frame(void) {
    call_clobbering(look, in_coroutine, in_register);
}

/* Whatever the frame pointer holds, nothing outside of the stack is read: not the page before it, not
 * the one behind. */
TEST(no_value_in_the_frame_pointer_makes_a_coroutine_fault) {
    begin(PROF_UNWIND_FRAME_POINTERS);
    size_t bytes = 64 << 10;
    char *area = mmap(NULL, bytes + (4 << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mprotect(area, bytes, PROT_READ | PROT_WRITE) == 0);
    for (uintptr_t at = bytes - 4096; at < bytes + (2 << 20); at += at < bytes + 64 ? 8 : 40000) {
        struct walk walk = new_walk();
        in_register = (uintptr_t)area + at;
        in_coroutine = &walk;
        check(getcontext(&coroutine) == 0);
        coroutine.uc_stack.ss_sp = area;
        coroutine.uc_stack.ss_size = bytes;
        coroutine.uc_link = &outside;
        makecontext(&coroutine, run_with_clobbered_frame, 0);
        check(swapcontext(&outside, &coroutine) == 0);
        check_eq(walk.found[0], (uintptr_t)after_clobbering);
    }
}

static void begin_with_junk(void) {
    descend(in_coroutine, coroutine_levels);
    check(setcontext(&outside) == 0);
}

/* As some libraries do it: a frame pointer and a return address that lead nowhere, or into a hole. */
static void walk_on_junk(struct walk *walk, char *end, uintptr_t frame, uintptr_t address) {
    uintptr_t *top = (uintptr_t *)(void *)end - 3;
    in_coroutine = walk;
    top[0] = address;
    check(getcontext(&coroutine) == 0);
    coroutine.uc_mcontext.gregs[REG_RSP] = (greg_t)top;
    coroutine.uc_mcontext.gregs[REG_RBP] = (greg_t)frame;
    coroutine.uc_mcontext.gregs[REG_RIP] = (greg_t)begin_with_junk;
    check(swapcontext(&outside, &coroutine) == 0);
}

TEST(coroutines_that_begin_with_anything_are_walked_to_their_end) {
    static const uint64_t ways[] = {PROF_UNWIND_AUTO, PROF_UNWIND_LIBGCC,
                                    PROF_UNWIND_FRAME_POINTERS};
    size_t bytes = 64 << 10;
    char *stack = mmap(NULL, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mprotect(stack, bytes, PROT_READ | PROT_WRITE) == 0);
    uintptr_t hole = (uintptr_t)stack + bytes;
    uintptr_t junk[] = {UINT64_C(0xdeaddeaddeaddead), hole, hole - 1, 1, UINTPTR_MAX, 0};
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        begin(ways[i]);
        for (unsigned j = 0; j < sizeof(junk) / sizeof(junk[0]); j++) {
            struct walk walk = new_walk();
            coroutine_levels = j;
            walk_on_junk(&walk, stack + bytes, junk[j], junk[j]);
            check_found(&walk);
        }
    }
}

/* libgcc finds the caller by the frame pointer here, and that leads into a hole. */
static void begin_with_frame(void) {
    void *volatile varying = __builtin_alloca(coroutine_levels * 16 + 16);
    (void)varying;
    descend(in_coroutine, 2);
    check(setcontext(&outside) == 0);
}

TEST(frame_pointers_that_libgcc_would_follow_into_a_hole_are_tried_before) {
    begin(PROF_UNWIND_LIBGCC);
    size_t bytes = 64 << 10;
    char *stack = mmap(NULL, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mprotect(stack, bytes, PROT_READ | PROT_WRITE) == 0);
    uintptr_t *top = (uintptr_t *)(void *)(stack + bytes) - 3;
    struct walk walk = new_walk();
    in_coroutine = &walk;
    coroutine_levels = 1;
    top[0] =
        (uintptr_t)after_frameless; /* tables for it, and the stack ends before its frame does */
    check(getcontext(&coroutine) == 0);
    coroutine.uc_mcontext.gregs[REG_RSP] = (greg_t)top;
    coroutine.uc_mcontext.gregs[REG_RBP] = (greg_t)stack + (greg_t)bytes;
    coroutine.uc_mcontext.gregs[REG_RIP] = (greg_t)begin_with_frame;
    top[1] = top[2] = (uintptr_t)after_frameless;
    check(swapcontext(&outside, &coroutine) == 0);
    check_found(&walk);
}
#endif

/* The first thread's data are no part of its stack: what is mapped beside them may be a stack of the
 * program, and gone when a later walk believes it to be readable. */
TEST(the_first_thread_is_at_home_on_its_stack_alone) {
    begin(PROF_UNWIND_FRAME_POINTERS);
    char *stack = mmap(NULL, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct unwind_thread own = {0};
    struct walk walk = {.thread = &own, .most = 64};
    coroutine_levels = 3;
    walk_in_coroutine(&walk, stack, 64 << 10);
    check_found(&walk);
    check_eq(own.high, os_first_stack_end());
    check(own.low > (uintptr_t)stack + (64 << 10));
}

/* ---------------------------------------------------------------- threads */

static struct walk in_threads[2];

static void *walk_in_thread(void *unused) {
    (void)unused;
    struct unwind_thread own = {0};
    unsigned before = asked;
    for (volatile unsigned i = 0; i < 2; i++) {
        in_threads[i] = (struct walk){.thread = &own, .most = 128};
        descend(&in_threads[i], 6);
        check_found(&in_threads[i]);
    }
    check(was_asked(0, before + 2));
    /* The second time frame pointers found as much as libgcc did, the start of the thread included. */
    check(in_threads[1].nfound > in_threads[1].nnoted + 1);
    check_eq(in_threads[0].nfound, in_threads[1].nfound);
    unsigned n = in_threads[0].nfound;
    check(memcmp(in_threads[0].found, in_threads[1].found, n * sizeof(uintptr_t)) == 0);
    return NULL;
}

TEST(the_start_of_a_thread_is_part_of_its_stacks) {
    begin(PROF_UNWIND_AUTO);
    run_threads(1, walk_in_thread, NULL);
    uintptr_t outermost = in_threads[0].found[in_threads[0].nfound - 1];
    run_threads(1, walk_in_thread, NULL);
    check_eq(in_threads[0].found[in_threads[0].nfound - 1], outermost);
}

static void *walk_in_small_thread(void *argument) {
    struct unwind_thread own = {0};
    struct walk walk = {.thread = &own, .most = 64};
    descend(&walk, 4);
    check_found(&walk);
    *(struct unwind_thread *)argument = own;
    return NULL;
}

/* A stack without a page behind or before it that could be read by mistake. */
TEST(a_stack_the_program_supplies_is_known_like_any_other) {
    begin(PROF_UNWIND_FRAME_POINTERS);
    size_t bytes = SANITIZED ? 4 << 20 : 64 << 10;
    char *area = mmap(NULL, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mprotect(area + 4096, bytes, PROT_READ | PROT_WRITE) == 0);
    pthread_attr_t attributes;
    pthread_t thread;
    struct unwind_thread seen;
    check(pthread_attr_init(&attributes) == 0);
    check(pthread_attr_setstack(&attributes, area + 4096, bytes) == 0);
    check(pthread_create(&thread, &attributes, walk_in_small_thread, &seen) == 0);
    check(pthread_join(thread, NULL) == 0);
    if (SANITIZED) {
        return; /* a sanitizer's own data lie between stack and thread-local variables */
    }
    check(seen.low >= (uintptr_t)area + 4096);
    check(seen.high > seen.low && seen.high <= (uintptr_t)area + 4096 + bytes);
}
