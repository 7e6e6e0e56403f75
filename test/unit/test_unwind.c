/* SPDX-License-Identifier: MIT
 *
 * test_unwind.c - the stack that is found against the stack that there is: by frame pointers, by libgcc, and
 * with what is kept of the last walk.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unwind.h>

#include "opt/opt.h"
#include "prof/unwind.h"
#include "unit.h"
#include "walked_stacks.h"

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
