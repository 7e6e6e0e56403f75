/* SPDX-License-Identifier: MIT
 *
 * test_unwind.c - the stack that is found against the stack that there is: by frame pointers, by tables, and
 * with what is kept of the last walk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unwind.h>

#include "opt/opt.h"
#include "stack/rules.h"
#include "stack/stack.h"
#include "unit.h"
#include "walked_stacks.h"

/* ---------------------------------------------------------------- frame pointers and tables */

TEST(frame_pointers_alone_find_every_caller) {
    begin(PROF_UNWIND_FRAME_POINTERS);
    struct walk walk = new_walk();
    descend(&walk, 20);
    check_found(&walk);
    check(has_counted(tables, 0));
}

TEST(tables_that_are_read_each_time_tell_the_same) {
    begin(PROF_UNWIND_LIBGCC);
    for (volatile unsigned i = 0; i < 3; i++) {
        struct walk walk = new_walk();
        unsigned before = tables;
        descend(&walk, 20);
        check_found(&walk);
        check(SANITIZED || tables - before >= 20);
    }
}

TEST(the_tables_of_each_call_are_read_once) {
    begin(PROF_UNWIND_AUTO);
    struct walk walk = new_walk();
    struct walk first = {0};
    unsigned at_first = 0;
    for (volatile unsigned i = 0; i < 10; i++) {
        descend_again(&walk, 20); /* always from here */
        first = i == 0 ? walk : first;
        at_first = i == 0 ? tables : at_first;
        check_eq(walk.nfound, first.nfound); /* the outermost frames are there, too */
        check(memcmp(walk.found, first.found, walk.nfound * sizeof(walk.found[0])) == 0);
    }
    check(has_counted(tables, at_first));
    check(walk.nfound > walk.nnoted + 1);
}

TEST(known_calls_are_known_in_every_combination) {
    begin(PROF_UNWIND_AUTO);
    struct walk walk = new_walk();
    unsigned at_first = 0;
    for (volatile unsigned levels = 1; levels < 30; levels++) {
        descend_again(&walk, levels);
        at_first = levels == 1 ? tables : at_first;
    }
    check(has_counted(tables, at_first));
    descend(&walk, 1); /* another call of it */
    check(has_counted(tables, at_first + 1));
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
    unsigned at_first = 0;
    for (volatile unsigned i = 0; i < 2 * count; i++) {
        struct walk walk = new_walk();
        struct through through =
            new_through(&walk, call_clobbering, after_clobbering, values[i % count]);
        descend_through(&through);
        check_found_through(&through);
        at_first = i == 0 ? tables : at_first;
    }
    check(has_counted(tables, at_first)); /* whatever the register holds */
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

TEST(not_all_that_is_marked_as_a_signals_frame_is_one) {
    begin(PROF_UNWIND_AUTO);
    for (unsigned i = 0; i < 5; i++) {
        struct walk walk = new_walk();
        struct through through = new_through(&walk, call_like_signal, after_like_signal, 0);
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

/* A thread that keeps nothing: the rules are the same, so that the two may differ in nothing else. */
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

struct reference {
    uintptr_t below, *addresses;
    unsigned count, most;
};

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *argument) {
    struct reference *reference = argument;
    int is_exact = 0;
    uintptr_t address = _Unwind_GetIPInfo(context, &is_exact);
    if (address == 0 || reference->count == reference->most) {
        return _URC_END_OF_STACK;
    }
    if (_Unwind_GetCFA(context) > reference->below) {
        reference->addresses[reference->count++] = address + (unsigned)(is_exact != 0);
    }
    return _URC_NO_REASON;
}

/* What libgcc's own unwinder finds. */
static void check_against_libgcc(void *frame, const uintptr_t *found, unsigned count) {
    static uintptr_t addresses[UNWIND_ROOM];
    struct reference reference = {(uintptr_t)frame, addresses, 0, 128};
    _Unwind_Backtrace(visit, &reference);
    check_eq(reference.count, count);
    check(memcmp(addresses, found, count * sizeof(found[0])) == 0);
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
    check_against_libgcc(frame, found, count);
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
        switch (fork_in_the_road(SANITIZED ? 3 : 6)) {
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
        case 4:
            call_saving(next_road, next, roads);
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

TEST(what_was_kept_counts_no_more_when_rules_are_forgotten) {
    begin(PROF_UNWIND_AUTO);
    enum { TURNS = 9, LESSON = 4 };
    for (volatile unsigned i = 0; i < TURNS; i++) {
        unsigned before = kept.same;
        if (i == LESSON) {
            rules_forget();
        }
        compare(NULL);
        bool is_settled = i == LESSON - 1 || i == TURNS - 1;
        check(kept.same > before || !is_settled);
        check(kept.same == before || i != LESSON);
    }
}

#if defined(__x86_64__)
/* Two stacks whose inner frames lie in the same place and differ in nothing but the frame pointer that an
 * inner function has saved.  It leads to other frames, while what the first stack had there is still the same. */
enum { BOTH_ROOMS = 1024 };

static void __attribute__((noinline)) walk_beyond(uintptr_t bytes, bool is_adjacent) {
    volatile char *room = __builtin_alloca(BOTH_ROOMS - bytes);
    room[0] = 1;
    if (is_adjacent) {
        call_clobbering(compare, NULL, 5);
    } else { /* which leaves the frame pointer alone, calls call_saving(compare, ...) */
        call_frameless((void (*)(void *))(uintptr_t)call_saving, (void *)(uintptr_t)compare, 5);
    }
    __asm__ volatile("" ::"r"(room) : "memory");
}

static void __attribute__((noinline)) walk_from_either(uintptr_t bytes, bool is_adjacent) {
    volatile char *room = __builtin_alloca(bytes);
    room[0] = 1;
    if (bytes < BOTH_ROOMS / 2) {
        walk_beyond(bytes, is_adjacent);
        __asm__ volatile("nop" ::"r"(room) : "memory");
    } else {
        walk_beyond(bytes, is_adjacent);
        __asm__ volatile("nop; nop" ::"r"(room) : "memory");
    }
}

TEST(a_frame_pointer_that_was_saved_inside_leads_elsewhere) {
    begin(PROF_UNWIND_AUTO);
    for (volatile unsigned i = 0; i < 40; i++) {
        walk_from_either(i / 2 % 2 ? 512 : 128, i < 20);
    }
    check(kept.same > 0);
}

/* As if the code had been there before with another frame, and nobody had noticed that it has changed. */
TEST(rules_of_code_that_is_gone_are_noticed) {
    begin(PROF_UNWIND_AUTO);
    struct cfi_rule rule = {.frame = CFI_STACK, .offset = 64, .of_return = -8, .saved = CFI_SAME};
    struct walk walk = new_walk();
    struct through through = new_through(&walk, call_frameless, after_frameless, 0);
    for (volatile unsigned i = 0; i < 2 * 16384; i++) {
        if (i == 16384) {
            union rule packed = rules_pack(&rule);
            packed.asked = 1;
            rules_keep(rules_generation(), (uintptr_t)after_frameless - 1, packed);
            walk.thread->count = 0;
        }
        walk.nnoted = 0;
        descend_through(&through);
    }
    check_found_through(&through);
}

/* Machine code made at run time, whose tables are registered by hand: subq $24, %rsp; movq %rdi, %rax;
 * movq %rsi, %rdi; callq *%rax; addq $24, %rsp; retq. */
static const unsigned char made_code[] = {0x48, 0x83, 0xec, 24,   0x48, 0x89, 0xf8, 0x48, 0x89,
                                          0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 24,   0xc3};
enum { AFTER_CALL = 12 };

struct made_tables {
    struct {
        uint32_t length, zero;
        unsigned char
            bytes[16]; /* version, no letters, factors 1 and -8, return register 16, program */
    } shared;
    struct __attribute__((packed)) {
        uint32_t length, back;
        const unsigned char *start;
        uint64_t size;
        unsigned char program[8]; /* after 4 bytes the frame is 32 bytes up */
    } description;
    uint32_t end;
};

static struct made_tables made_tables = {
    .shared = {20, 0, {1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1}},
    .description = {28, 28, NULL, sizeof(made_code), {0x44, 0x0e, 32}},
};

TEST(tables_that_are_registered_by_hand_are_read) {
    begin(PROF_UNWIND_AUTO);
    unsigned char *code =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, made_code, sizeof(made_code));
    check(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0);
    made_tables.description.start = code;
    void (*register_frame)(void *);
    *(void **)&register_frame = dlsym(dlopen("libgcc_s.so.1", RTLD_NOW), "__register_frame");
    register_frame(&made_tables);
    for (volatile unsigned i = 0; i < 4; i++) {
        struct walk walk = new_walk();
        struct through through =
            new_through(&walk, (caller *)(uintptr_t)code, (const char *)code + AFTER_CALL, 0);
        descend_through(&through);
        check_found_through(&through);
    }
}
#endif

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
