/* SPDX-License-Identifier: MIT
 *
 * test_leak.c - what is lost is found, exactly, and nothing else.
 *
 * The objects are tally_malloc's, so the heap has only what a test has put there.  A pointer that is to be
 * lost is made in a function of its own (lose), and what that leaves on the stack and in registers is wiped:
 * otherwise it might still be held by chance.
 */
#include "leak/leak.h"

#include <dlfcn.h>
#include <grp.h>
#include <jemalloc/jemalloc.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/os_threads.h"
#include "base/own.h"
#include "heap/heap.h"
#include "heap/hooks.h"
#include "leak/mark.h"
#include "prof/prof.h"
#include "unit.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

/* ---------------------------------------------------------------- tools */

/* A sanitizer's own words about the stack look like accesses that must not be. */
static void need_plain_memory(void) {
    if (SANITIZED) {
        skip("a sanitizer watches what a search reads");
    }
}
TEST_SETUP(need_plain_memory);

/* Overwrites what calls that have returned have left behind. */
static __attribute__((noinline)) void wipe(void) {
    volatile char rest[32 * KIB];
    for (size_t i = 0; i < sizeof(rest); i++) {
        rest[i] = 0;
    }
#if defined(__x86_64__)
    __asm__ volatile("xorl %%eax, %%eax\n xorl %%ecx, %%ecx\n xorl %%edx, %%edx\n"
                     "xorl %%esi, %%esi\n xorl %%edi, %%edi\n xorl %%r8d, %%r8d\n"
                     "xorl %%r9d, %%r9d\n xorl %%r10d, %%r10d\n xorl %%r11d, %%r11d\n"
                     "pxor %%xmm0, %%xmm0\n pxor %%xmm1, %%xmm1\n pxor %%xmm2, %%xmm2\n"
                     "pxor %%xmm3, %%xmm3\n pxor %%xmm4, %%xmm4\n pxor %%xmm5, %%xmm5\n"
                     "xorl %%ebx, %%ebx\n xorl %%r12d, %%r12d\n xorl %%r13d, %%r13d\n"
                     "xorl %%r14d, %%r14d\n xorl %%r15d, %%r15d"
                     :
                     :
                     : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "rbx", "r12",
                       "r13", "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
                       "memory");
#endif
}

static __attribute__((noinline)) void *make(size_t size) {
    void *object = tally_malloc(size);
    check(object != NULL);
    memset(object, 0, size);
    return object;
}

static __attribute__((noinline)) void lose(void (*body)(void)) {
    body();
}

/* Runs a body whose pointers are gone afterwards. */
static void lose_all_of(void (*body)(void)) {
    lose(body);
    wipe();
}

static struct leak_result *check_with(struct leak_wish wish) {
    struct leak_result *result;
    wipe();
    if (!leak_check(&wish, &result)) {
        test_fail(__FILE__, __LINE__, result != NULL ? result->why : "no result");
    }
    return result;
}

/* However long others keep the processors. */
#define LONG_PAUSE_NS UINT64_C(20000000000)

static struct leak_result *check_now(void) {
    return check_with((struct leak_wish){.max_pause_ns = LONG_PAUSE_NS});
}

static void expect(const struct leak_result *result, enum leak_kind kind, uint64_t objects,
                   uint64_t bytes) {
    check_eq(result->kinds[kind].objects, objects);
    check_eq(result->kinds[kind].bytes, bytes);
}

static void expect_nothing(const struct leak_result *result) {
    expect(result, LEAK_DEFINITE, 0, 0);
    expect(result, LEAK_INDIRECT, 0, 0);
    expect(result, LEAK_POSSIBLE, 0, 0);
    check_eq(result->group_count, 0);
    check_eq(result->object_count, 0);
}

/* Nothing, definite and indirect in turn. */
static void expect_lost(uint64_t definite, uint64_t definite_bytes, uint64_t indirect,
                        uint64_t indirect_bytes) {
    struct leak_result *result = check_now();
    expect(result, LEAK_DEFINITE, definite, definite_bytes);
    expect(result, LEAK_INDIRECT, indirect, indirect_bytes);
    expect(result, LEAK_POSSIBLE, 0, 0);
    leak_release(result);
}

static void expect_all_held(void) {
    struct leak_result *result = check_now();
    expect_nothing(result);
    leak_release(result);
}

static void *held; /* global data */

/* ---------------------------------------------------------------- plain */

TEST(an_empty_heap_has_no_leaks_and_says_what_it_looked_at) {
    start_heap();
    struct leak_result *result = check_now();
    expect_nothing(result);
    check_eq(result->heap_bytes, 0);
    check_eq(result->reachable.objects, 0);
    check(result->root_bytes > 4096);
    check_eq(result->threads, 1);
    check_eq(result->unanswered, 0);
    check(result->pause_ns > 0 && result->total_ns >= result->pause_ns);
    check_str(result->why, "");
    leak_release(result);
}

static void lose_three(void) {
    for (volatile int i = 0; i < 3; i++) {
        make(100);
    }
}

TEST(a_lost_object_is_definite_and_one_that_is_held_is_not) {
    start_heap();
    held = make(1000);
    lose_all_of(lose_three);
    struct leak_result *result = check_now();
    expect(result, LEAK_DEFINITE, 3, 3 * 112);
    expect(result, LEAK_INDIRECT, 0, 0);
    check_eq(result->reachable.objects, 1);
    check_eq(result->reachable.bytes, tally_usable_size(held));
    check_eq(result->heap_bytes, 3 * 112 + tally_usable_size(held));
    check_eq(result->group_count, 1);
    check_eq(result->groups[0].usable, 112);
    check_eq(result->groups[0].stack, 0);
    check_eq(result->groups[0].sum.objects, 3);
    check_eq(result->object_count, 3);
    check_eq(result->objects[0].usable, 112);
    check_eq(result->objects_left_out, 0);
    leak_release(result);
}

TEST(what_is_freed_is_not_lost_wherever_it_waits) {
    enum { COUNT = 5000 };
    static void *objects[COUNT];
    start_heap();
    for (int i = 0; i < COUNT; i++) {
        objects[i] = make(16 + (size_t)i % 900);
    }
    for (int i = 0; i < COUNT; i++) { /* into magazines, depots and slabs */
        tally_free(objects[i]);
    }
    struct leak_result *result = check_now();
    expect_nothing(result);
    check_eq(result->reachable.objects, 0);
    leak_release(result);
    tally_purge();
    expect_all_held();
}

TEST(the_sums_agree_with_what_the_heap_has_counted) {
    enum { COUNT = 20000 };
    static void *objects[COUNT];
    start_heap();
    struct random random = random_start(7, 0);
    for (int i = 0; i < COUNT; i++) {
        objects[i] = make(1 + random_below(&random, i % 100 == 0 ? 300 * KIB : 2000));
    }
    for (int i = 0; i < COUNT; i += 3) {
        tally_free(objects[i]);
        objects[i] = NULL;
    }
    struct leak_result *result = check_now();
    struct heap_totals totals = heap_totals();
    expect_nothing(result);
    check_eq(result->reachable.objects, totals.live_objects);
    check_eq(result->reachable.bytes, totals.live);
    leak_release(result);
    memset(objects, 0, sizeof(objects));
    result = check_now();
    check_eq(result->kinds[LEAK_DEFINITE].objects + result->kinds[LEAK_INDIRECT].objects,
             totals.live_objects);
    check_eq(result->kinds[LEAK_DEFINITE].bytes + result->kinds[LEAK_INDIRECT].bytes, totals.live);
    leak_release(result);
}

/* ---------------------------------------------------------------- what leads to what */

static void lose_tree(void) {
    void **root = make(64);
    root[0] = make(200);
    root[1] = make(300);
    *(void **)root[0] = make(40);
}

TEST(what_only_a_lost_object_holds_is_indirect) {
    start_heap();
    lose_all_of(lose_tree);
    expect_lost(1, 64, 3, 208 + 320 + 48);
}

static void lose_ring(void) {
    void **first = make(64), **second = make(64), **third = make(64);
    *first = second;
    *second = third;
    *third = first;
    third[1] = make(128);
}

TEST(of_a_ring_one_is_definite) {
    start_heap();
    lose_all_of(lose_ring);
    expect_lost(1, 64, 3, 2 * 64 + 128);
}

/* a and b lead to the ring c <-> d; none leads to a or b.  The ring comes first in memory. */
static void lose_two_heads(void) {
    void **c = make(64), **d = make(64), **a = make(64), **b = make(64);
    *c = d;
    *d = c;
    *a = d;
    *b = d;
}

TEST(a_ring_that_lost_objects_lead_to_is_indirect_in_any_order) {
    start_heap();
    lose_all_of(lose_two_heads);
    expect_lost(2, 128, 2, 128);
}

static void lose_itself(void) {
    void **self = make(64);
    *self = self;
}

TEST(an_object_that_leads_to_itself_is_definite) {
    start_heap();
    lose_all_of(lose_itself);
    expect_lost(1, 64, 0, 0);
}

static void lose_list(void) {
    void **last = NULL;
    for (int i = 0; i < 200000; i++) {
        void **item = make(16);
        *item = last;
        last = item;
    }
}

TEST(a_list_of_any_length_is_followed) {
    start_heap();
    lose_all_of(lose_list);
    expect_lost(1, 16, 199999, 199999 * 16);
    struct leak_result *result = check_now();
    check_eq(result->object_count, LEAK_OBJECTS_MOST);
    check_eq(result->objects_left_out, 200000 - LEAK_OBJECTS_MOST);
    leak_release(result);
}

TEST(a_quick_check_calls_all_of_it_definite) {
    start_heap();
    lose_all_of(lose_tree);
    struct leak_result *result = check_with((struct leak_wish){.is_quick = true});
    expect(result, LEAK_DEFINITE, 4, 64 + 208 + 320 + 48);
    expect(result, LEAK_INDIRECT, 0, 0);
    leak_release(result);
}

/* ---------------------------------------------------------------- pointers to the inside */

static void hold_inside(void) {
    char *object = make(1000);
    *(void **)(void *)(object + 8) = make(64);
    held = object + 500;
}

TEST(what_only_a_pointer_to_its_inside_holds_is_possible_with_what_it_leads_to) {
    start_heap();
    lose_all_of(hold_inside);
    struct leak_result *result = check_now();
    expect(result, LEAK_POSSIBLE, 2, 1024 + 64);
    expect(result, LEAK_DEFINITE, 0, 0);
    leak_release(result);
    result = check_with((struct leak_wish){.max_offset = 499});
    expect(result, LEAK_DEFINITE, 1, 1024);
    expect(result, LEAK_INDIRECT, 1, 64);
    leak_release(result);
    held = (char *)held - 500 + 8; /* past a cookie of new[] */
    expect_all_held();
    held = (char *)held + 56;
    expect_all_held();
}

static void hold_both(void) {
    char *object = make(1000);
    *(void **)(void *)object = object + 700;
    held = make(64);
    *(void **)held = object + 900;
    ((void **)held)[1] = object;
}

TEST(one_pointer_to_the_start_is_enough) {
    start_heap();
    lose_all_of(hold_both);
    expect_all_held();
}

static void hold_unaligned(void) {
    static char bytes[32];
    held = NULL;
    void *object = make(64);
    memcpy(bytes + 3, &object, sizeof(object));
}

TEST(a_pointer_at_an_odd_address_counts_if_the_step_is_one) {
    start_heap();
    lose_all_of(hold_unaligned);
    expect_lost(1, 64, 0, 0);
    struct leak_result *result = check_with((struct leak_wish){.step = 1});
    expect_nothing(result);
    leak_release(result);
}

/* ---------------------------------------------------------------- kinds of objects */

static void lose_resized(void) {
    void *object = make(40);
    for (size_t size = 80; size <= 3 * MIB; size *= 2) {
        object = tally_realloc(object, size);
        check(object != NULL);
    }
}

TEST(a_resized_object_is_lost_once) {
    start_heap();
    lose_all_of(lose_resized);
    struct leak_result *result = check_now();
    check_eq(result->kinds[LEAK_DEFINITE].objects, 1);
    check(result->kinds[LEAK_DEFINITE].bytes >= 2 * MIB);
    leak_release(result);
}

static void lose_aligned(void) {
    for (size_t alignment = 32; alignment <= 4 * MIB; alignment *= 2) {
        void *object = tally_aligned_alloc(alignment, 100);
        check(object != NULL && (uintptr_t)object % alignment == 0);
    }
}

TEST(aligned_objects_are_lost) {
    start_heap();
    lose_all_of(lose_aligned);
    struct leak_result *result = check_now();
    check_eq(result->kinds[LEAK_DEFINITE].objects, 18);
    leak_release(result);
}

static void lose_large(void) {
    for (int i = 0; i < 4; i++) {
        char *object = make(5 * MIB);
        *(void **)(void *)(object + 4 * MIB + 800) = make(64); /* far inside */
    }
}

TEST(large_objects_are_lost_and_followed_to_their_end) {
    start_heap();
    held = make(40 * MIB);
    lose_all_of(lose_large);
    expect_lost(4, 4 * 5 * (uint64_t)MIB, 4, 4 * 64);
}

static void hold_moved(void) {
    void **object = make(300 * KIB);
    object[10] = make(64);
    void *others[8];
    for (int i = 0; i < 8; i++) {
        others[i] = make(MIB);
    }
    held = tally_realloc(object, 30 * MIB); /* it has to move */
    for (int i = 0; i < 8; i++) {
        tally_free(others[i]);
    }
}

TEST(a_moved_object_is_held_and_lost_as_any_other) {
    start_heap();
    lose_all_of(hold_moved);
    expect_all_held();
    held = NULL;
    expect_lost(1, 30 * (uint64_t)MIB, 1, 64);
}

/* Few of its pages exist. */
TEST(a_sparse_object_is_followed) {
    start_heap();
    char *sparse = tally_calloc(1, (size_t)8 << 30);
    if (sparse == NULL) {
        skip("there are no 8 GiB of addresses");
    }
    *(void **)(void *)(sparse + ((size_t)5 << 30)) = make(64);
    held = sparse;
    sparse = NULL;
    expect_all_held();
    tally_free(held);
    held = NULL;
    expect_lost(1, 64, 0, 0);
}

static void lose_in_arena(void) {
    unsigned arena = 0;
    size_t bytes = sizeof(arena);
    check_eq(je_mallctl("arenas.create", &arena, &bytes, NULL, 0), 0);
    check(je_mallocx(100, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE) != NULL);
    void *cached = je_mallocx(200, MALLOCX_ARENA(arena));
    je_dallocx(cached, 0);
    unsigned cache = 0;
    bytes = sizeof(cache);
    check_eq(je_mallctl("tcache.create", &cache, &bytes, NULL, 0), 0);
    je_dallocx(je_mallocx(300, MALLOCX_TCACHE(cache)), MALLOCX_TCACHE(cache));
}

TEST(objects_of_manual_arenas_are_lost_and_those_in_explicit_caches_are_free) {
    start_heap();
    lose_all_of(lose_in_arena);
    expect_lost(1, 112, 0, 0);
}

/* Hooks that are kept by the library alone, in memory of the program. */
static void lose_hooked(void) {
    unsigned arena = 0;
    size_t bytes = sizeof(arena);
    struct extent_hooks *hooks = make(sizeof(*hooks));
    *hooks = hooks_default;
    check_eq(je_mallctl("arenas.create", &arena, &bytes, &hooks, sizeof(hooks)), 0);
    void **root = je_mallocx(100, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
    *root = je_mallocx(MIB, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
    check(*root != NULL);
    je_dallocx(je_mallocx(500, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE), MALLOCX_TCACHE_NONE);
}

TEST(objects_in_memory_from_extent_hooks_are_lost_and_the_hooks_are_held) {
    start_heap();
    lose_all_of(lose_hooked);
    struct leak_result *result = check_now();
    expect(result, LEAK_DEFINITE, 1, 112);
    expect(result, LEAK_INDIRECT, 1, MIB);
    check_eq(result->reachable.objects, 1);
    leak_release(result);
}

/* ---------------------------------------------------------------- what holds */

TEST(the_stack_of_the_caller_holds) {
    start_heap();
    void *volatile local[1] = {make(64)};
    expect_all_held();
    check(local[0] != NULL);
    local[0] = NULL;
    expect_lost(1, 64, 0, 0);
}

#if defined(__x86_64__)
TEST(a_register_of_the_caller_holds) {
    start_heap();
    struct leak_result *result = NULL;
    static const struct leak_wish wish;
    bool done;
    void *object = make(64);
    wipe();
    /* Only rbx has it, which a callee keeps. */
    __asm__ volatile("movq %3, %%rbx\n"
                     "xorl %%r12d, %%r12d\n"
                     "movq %%rsp, %%r13\n"
                     "andq $-16, %%rsp\n"
                     "movq %4, %%rdi\n"
                     "movq %5, %%rsi\n"
                     "call leak_check\n"
                     "movq %%r13, %%rsp\n"
                     : "=a"(done), "+D"(object), "=m"(result)
                     : "D"(object), "r"(&wish), "r"(&result)
                     : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "r13", "memory",
                       "cc");
    check(done);
    expect_nothing(result);
    leak_release(result);
}
#endif

static __thread void *volatile in_thread_storage;
static pthread_key_t key;

static void hold_in_thread_storage(void) {
    in_thread_storage = make(64);
    check(pthread_key_create(&key, NULL) == 0);
    check(pthread_setspecific(key, make(80)) == 0);
}

TEST(thread_local_storage_holds) {
    start_heap();
    lose_all_of(hold_in_thread_storage);
    expect_all_held();
    in_thread_storage = NULL;
    expect_lost(1, 64, 0, 0);
    check(pthread_setspecific(key, NULL) == 0);
    expect_lost(2, 64 + 80, 0, 0);
}

static void hold_in_mapping(void) {
    void **map = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(map != MAP_FAILED);
    map[1000] = make(64);
    check(mprotect(map, MIB, PROT_READ) == 0);
    held = (char *)map + 1; /* not a pointer into the heap */
}

TEST(what_the_program_has_mapped_holds_also_when_it_is_read_only) {
    start_heap();
    lose_all_of(hold_in_mapping);
    expect_all_held();
    check(munmap((char *)held - 1, MIB) == 0);
    expect_lost(1, 64, 0, 0);
}

static void hold_in_environment(void) {
    char *text = make(64);
    strcpy(text, "TALLY_LEAK_TEST=1");
    check(putenv(text) == 0);
}

TEST(the_environment_holds) {
    start_heap();
    lose_all_of(hold_in_environment);
    expect_all_held();
    check(unsetenv("TALLY_LEAK_TEST") == 0);
}

/* ---------------------------------------------------------------- other threads */

static _Atomic int stage; /* what a thread has done, and may do */

static void reach(int number) {
    atomic_store(&stage, number);
}

static void await(int number) {
    while (atomic_load(&stage) < number) {
        usleep(100);
    }
}

static void start_thread(pthread_t *thread, void *(*body)(void *)) {
    reach(0);
    check(pthread_create(thread, NULL, body, NULL) == 0);
    await(1);
}

static void end_thread(pthread_t thread) {
    reach(2);
    check(pthread_join(thread, NULL) == 0);
}

static void *hold_on_stack(void *unused) {
    void *volatile local[2] = {make(64), NULL};
    local[1] = make(100);
    wipe();
    reach(1);
    await(2);
    return local[0] == unused ? NULL : local[1]; /* lost, but for what join returns */
}

TEST(the_stack_of_another_thread_holds_until_it_ends) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_on_stack);
    struct leak_result *result = check_now();
    expect_nothing(result);
    check_eq(result->threads, 2);
    check_eq(result->unanswered, 0);
    check_eq(result->reachable.objects, 2);
    leak_release(result);
    end_thread(thread); /* libc keeps its stack, with the pointers */
    expect_lost(2, 64 + 112, 0, 0);
}

#if defined(__x86_64__)
static void *hold_in_registers(void *unused) {
    void *object = make(64);
    void *vector = make(100);
    wipe();
    bool is_wide = __builtin_cpu_supports("avx");
    __asm__ volatile("movq %1, %%xmm7\n"
                     "xorl %k1, %k1\n"
                     "testb %3, %3\n"
                     "je 1f\n"
                     "vxorps %%ymm6, %%ymm6, %%ymm6\n"
                     "vinsertf128 $1, %%xmm7, %%ymm6, %%ymm7\n" /* into the upper half alone */
                     "1: movq %0, %%r14\n"
                     "xorl %k0, %k0\n"
                     "leaq -128(%%rsp), %%rdi\n" /* what a leaf may use counts, too */
                     "xorl %%eax, %%eax\n"
                     "movl $16, %%ecx\n"
                     "rep stosq\n"
                     "movl $1, %2\n"
                     "2: pause\n"
                     "cmpl $2, %2\n"
                     "jne 2b\n"
                     : "+r"(object), "+r"(vector), "+m"(stage)
                     : "r"(is_wide)
                     : "r14", "xmm6", "xmm7", "rax", "rcx", "rdi", "cc", "memory");
    wipe();
    return unused;
}

TEST(registers_of_another_thread_hold_vectors_too) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_in_registers);
    struct leak_result *result = check_now();
    check_eq(result->reachable.objects, 2);
    expect_nothing(result);
    leak_release(result);
    end_thread(thread);
    expect_lost(2, 64 + 112, 0, 0);
}
#endif

static void *hold_in_its_storage(void *unused) {
    in_thread_storage = make(64);
    wipe();
    reach(1);
    await(2);
    return unused;
}

TEST(thread_local_storage_of_another_thread_holds_until_it_ends) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_in_its_storage);
    expect_all_held();
    end_thread(thread);
    expect_lost(1, 64, 0, 0);
}

static void *hold_while_signals_are_blocked(void *unused) {
    void *volatile local = make(64);
    sigset_t all;
    sigfillset(&all);
    check(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
    wipe();
    reach(1);
    await(2);
    return local == unused ? NULL : unused;
}

TEST(a_thread_that_keeps_signals_away_holds_and_is_counted) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_while_signals_are_blocked);
    struct leak_result *result = check_now();
    expect_nothing(result);
    check_eq(result->reachable.objects, 1);
    check_eq(result->unanswered, 1);
    check_str(result->why,
              "threads that could not be stopped: 1; what they hold in registers is not seen");
    leak_release(result);
    end_thread(thread);
    expect_lost(1, 64, 0, 0);
}

/* Mostly outside, where it holds what it has only in a register for a moment. */
static void *work_unstoppably(void *unused) {
    void *own[16] = {0};
    sigset_t all;
    sigfillset(&all);
    check(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
    for (unsigned i = 0; atomic_load(&stage) < 2; i++) {
        tally_free(own[i % 16]);
        own[i % 16] = make(100 + i % 400);
        for (volatile int k = 0; k < 20000; k++) {
        }
    }
    for (int i = 0; i < 16; i++) {
        tally_free(own[i]);
    }
    return unused;
}

TEST(threads_that_keep_signals_away_and_allocate_have_no_leaks) {
    pthread_t threads[8];
    unsigned done = 0;
    test_allow_seconds(120);
    start_heap();
    lose_all_of(lose_three);
    for (int i = 0; i < 8; i++) {
        check(pthread_create(&threads[i], NULL, work_unstoppably, NULL) == 0);
    }
    for (int i = 0; i < 6 || done == 0; i++) {
        struct leak_wish wish = {.max_pause_ns = LONG_PAUSE_NS};
        struct leak_result *result;
        wipe();
        if (leak_check(&wish, &result)) {
            check(result->unanswered <= 8);
            expect(result, LEAK_DEFINITE, 3, 3 * 112);
            done++;
        } else {
            check_str(result->why, "a thread that cannot be stopped is in the allocator");
        }
        leak_release(result);
    }
    reach(2);
    for (int i = 0; i < 8; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    expect_lost(3, 3 * 112, 0, 0);
}

static void *return_an_object(void *unused) {
    (void)unused;
    return make(64);
}

static __attribute__((noinline)) void join(pthread_t thread) {
    void *object;
    check(pthread_join(thread, &object) == 0);
    check(object != NULL);
}

static bool count_thread(uint32_t thread, void *count) {
    (void)thread;
    ++*(unsigned *)count;
    return true;
}

TEST(what_a_thread_returns_is_held_until_it_is_joined) {
    pthread_t thread;
    unsigned threads;
    start_heap();
    check(pthread_create(&thread, NULL, return_an_object, NULL) == 0);
    do {
        threads = 0;
        check(os_walk_threads(count_thread, &threads) == 0);
    } while (threads > 1);
    expect_all_held();
    join(thread);
    expect_lost(1, 64, 0, 0);
}

static void set_alternate_stack(void) {
    stack_t stack = {.ss_sp = make(64 * KIB), .ss_size = 64 * KIB};
    check(sigaltstack(&stack, NULL) == 0);
}

TEST(a_stack_for_handlers_that_only_the_kernel_knows_is_held) {
    start_heap();
    lose_all_of(set_alternate_stack);
    expect_all_held();
    check(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
    expect_lost(1, 64 * KIB, 0, 0);
}

static void *check_without_first_thread(void *first) {
    struct os_thread_look look;
    do {
        look = os_look_at_thread((uint32_t)getpid(), SIGRTMAX);
    } while (!look.is_gone);
    (void)first;
    expect_lost(3, 3 * 112, 0, 0);
    _exit(0);
}

TEST(a_process_whose_first_thread_has_ended_is_checked) {
    pthread_t thread;
    start_heap();
    held = make(64);
    lose_all_of(lose_three);
    check(pthread_create(&thread, NULL, check_without_first_thread, NULL) == 0);
    pthread_exit(NULL);
}

/* ---------------------------------------------------------------- looking at threads */

TEST(a_thread_is_gone_when_the_kernel_says_so_and_not_for_want_of_a_descriptor) {
    uint32_t self = os_thread_id();
    struct rlimit few = {0, 0}, before;
    check(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few.rlim_max = before.rlim_max;
    check(setrlimit(RLIMIT_NOFILE, &few) == 0);
    struct os_thread_look look = os_look_at_thread(self, SIGRTMAX);
    check(look.is_unknown && !look.is_gone);
    start_heap();
    struct leak_result *result;
    check(!leak_check(&(struct leak_wish){0}, &result));
    check_str(result->why, "the threads of the process cannot be listed: is /proc mounted?");
    leak_release(result);
    check(setrlimit(RLIMIT_NOFILE, &before) == 0);
    look = os_look_at_thread(self, SIGRTMAX);
    check(!look.is_unknown && !look.is_gone && !look.blocks_signals && !look.is_asleep);
    look = os_look_at_thread(0x7ffffff0, SIGRTMAX);
    check(look.is_gone && !look.is_unknown);
}

TEST(many_groups_do_not_hide_which_signals_a_thread_blocks) {
    gid_t groups[2000];
    sigset_t set;
    for (unsigned i = 0; i < 2000; i++) {
        groups[i] = 1000000 + i;
    }
    if (setgroups(2000, groups) != 0) {
        skip("groups cannot be set");
    }
    check(!os_look_at_thread(os_thread_id(), SIGRTMAX).blocks_signals);
    sigemptyset(&set);
    sigaddset(&set, SIGRTMAX);
    check(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    check(os_look_at_thread(os_thread_id(), SIGRTMAX).blocks_signals);
}

static void on_alternate_stack(int number) {
    (void)number;
    void *volatile local = make(100);
    wipe();
    reach(1);
    await(2);
    (void)local;
}

static void *hold_below_a_handler(void *unused) {
    void *volatile local = make(64);
    static char memory[128 * KIB];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
    struct sigaction action = {.sa_handler = on_alternate_stack, .sa_flags = SA_ONSTACK};
    check(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    check(raise(SIGUSR1) == 0);
    memset(memory, 0, sizeof(memory));
    return local == unused ? NULL : unused;
}

TEST(a_thread_in_a_handler_on_another_stack_holds_by_both) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_below_a_handler);
    expect_all_held();
    end_thread(thread);
    expect_lost(2, 64 + 112, 0, 0);
}

static void *stay_inside(void *unused) {
    thread_mark_inside(true);
    reach(1);
    while (atomic_load(&stage) < 2) {
    }
    thread_mark_inside(false);
    return unused;
}

TEST(a_thread_that_does_not_leave_the_allocator_is_not_waited_for_beyond_the_time_allowed) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, stay_inside);
    struct leak_wish wish = {.max_pause_ns = 20000000};
    struct leak_result *result;
    check(!leak_check(&wish, &result));
    check_str(result->why, "its threads could not be stopped in the time allowed");
    leak_release(result);
    end_thread(thread);
    expect_all_held();
}

static void *stay_inside_for_a_while(void *unused) {
    thread_mark_inside(true);
    reach(1);
    uint64_t end = os_now_ns() + 300000000;
    while (os_now_ns() < end) {
    }
    thread_mark_inside(false);
    await(2);
    return unused;
}

TEST(a_check_that_comes_too_early_is_tried_again) {
    pthread_t thread;
    start_heap();
    lose_all_of(lose_three);
    start_thread(&thread, stay_inside_for_a_while);
    struct leak_result *result = check_with((struct leak_wish){.max_pause_ns = 400000000});
    expect(result, LEAK_DEFINITE, 3, 3 * 112);
    check_eq(result->threads, 2);
    leak_release(result);
    end_thread(thread);
}

static void *hold_by_errno(void *unused) {
    errno = 4711;
    reach(1);
    while (atomic_load(&stage) < 2) {
        check_eq(errno, 4711);
    }
    return unused;
}

TEST(a_stopped_thread_keeps_its_errno) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_by_errno);
    for (int i = 0; i < 20; i++) {
        expect_all_held();
    }
    end_thread(thread);
}

/* One of the library's own: what it has on its stack while it works is not the program's. */
static void *work_as_own(void *unused) {
    sigset_t all;
    sigfillset(&all);
    check(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
    own_enroll();
    reach(1);
    while (atomic_load(&stage) < 2) {
        own_begin();
        void *volatile object = tally_malloc(64);
        check(object != NULL);
        tally_free(object);
        own_end();
    }
    own_leave();
    return unused;
}

TEST(threads_of_the_library_are_kept_from_working_and_are_not_counted) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, work_as_own);
    for (int i = 0; i < 20; i++) {
        struct leak_result *result = check_now();
        expect_nothing(result);
        check_eq(result->heap_bytes, 0); /* its object is free whenever it does not work */
        check_eq(result->threads, 1);
        check_eq(result->unanswered, 0);
        leak_release(result);
    }
    end_thread(thread);
}

/* ---------------------------------------------------------------- modules */

static void hold_in_module(void *module) {
    void **place = dlsym(module, "held_by_plugin");
    check(place != NULL);
    *place = make(64);
}

TEST(data_of_a_module_that_was_opened_holds_until_it_is_closed) {
    start_heap();
    void *module = dlopen(LEAK_PLUGIN, RTLD_NOW);
    check(module != NULL);
    hold_in_module(module);
    expect_all_held();
    check(dlclose(module) == 0);
    expect_lost(1, 64, 0, 0);
}

/* ---------------------------------------------------------------- what the program says */

static void *hidden; /* upside down */

static void hide_tree(void) {
    void **root = make(64);
    root[0] = make(200);
    hidden = (void *)~(uintptr_t)root;
}

static void *reveal(void) {
    return (void *)~(uintptr_t)hidden;
}

static void ignore_hidden(void) {
    check(leak_ignore(reveal()));
    check(!leak_ignore(reveal()));
}

/* By a pointer to the inside. */
static void unignore_hidden(void) {
    check(leak_unignore((char *)reveal() + 10));
    check(!leak_unignore(reveal()));
}

static void ignore_both_ways(void) {
    start_heap();
    lose_all_of(hide_tree);
    expect_lost(1, 64, 1, 208);
    lose_all_of(ignore_hidden);
    struct leak_result *result = check_now();
    expect_nothing(result);
    check_eq(result->ignored.objects, 2);
    check_eq(result->ignored.bytes, 64 + 208);
    leak_release(result);
    lose_all_of(unignore_hidden);
    expect_lost(1, 64, 1, 208);
    check(!leak_ignore(&result));
    check(!leak_ignore(NULL));
}

TEST(an_ignored_object_is_no_leak_nor_is_what_it_leads_to) {
    ignore_both_ways();
}

TEST(a_tracked_object_can_be_ignored) {
    setenv("TALLY_CONF", "prof:true,lg_prof_sample:0", 1);
    ignore_both_ways();
}

static void free_hidden(void) {
    tally_free(reveal());
}

static void hide_large(void) {
    hidden = (void *)~(uintptr_t)make(MIB);
}

TEST(a_large_object_can_be_ignored_and_what_comes_in_its_place_is_not) {
    start_heap();
    lose_all_of(hide_large);
    lose_all_of(ignore_hidden);
    expect_all_held();
    lose_all_of(free_hidden);
    lose_all_of(hide_large);
    expect_lost(1, MIB, 0, 0);
}

TEST(a_hundred_thousand_objects_can_be_ignored_each_once) {
    enum { COUNT = 100000 };
    static uintptr_t hidden_ones[COUNT];
    start_heap();
    for (int i = 0; i < COUNT; i++) {
        hidden_ones[i] = ~(uintptr_t)make(16);
        check(leak_ignore((void *)~hidden_ones[i]));
        check(!leak_ignore((void *)~hidden_ones[i]));
    }
    struct leak_result *result = check_now();
    expect_nothing(result);
    check_eq(result->ignored.objects, COUNT);
    leak_release(result);
    for (int i = 0; i < COUNT; i += 2) {
        check(leak_unignore((void *)~hidden_ones[i]));
        check(!leak_unignore((void *)~hidden_ones[i]));
    }
    result = check_now();
    expect(result, LEAK_DEFINITE, COUNT / 2, COUNT / 2 * 16);
    leak_release(result);
}

static void make_disabled(void) {
    leak_disable();
    void **first = make(64);
    leak_disable();
    leak_enable();
    make(100);
    hidden = (void *)~(uintptr_t)make(2 * MIB);
    leak_enable();
    *first = make(200);
    make(300);
    leak_enable(); /* one too many does nothing */
}

TEST(what_is_allocated_while_leaks_are_disabled_is_ignored_for_ever) {
    start_heap();
    lose_all_of(make_disabled);
    struct leak_result *result = check_now();
    expect(result, LEAK_DEFINITE, 1, 320);
    expect(result, LEAK_INDIRECT, 0, 0);
    check_eq(result->ignored.objects, 4);
    check_eq(result->ignored.bytes, 64 + 112 + 2 * MIB + 208);
    leak_release(result);
    tally_free(reveal());
    heap_verify();
}

static void *make_enabled(void *unused) {
    make(64);
    wipe();
    return unused;
}

TEST(leaks_are_disabled_in_one_thread_only) {
    start_heap();
    leak_disable();
    run_threads(1, make_enabled, NULL);
    expect_lost(1, 64, 0, 0);
    leak_enable();
}

static void **region; /* shared memory, which is no root */

static void hold_in_region(void) {
    *region = make(64);
}

TEST(a_registered_region_holds_as_often_as_it_was_registered) {
    start_heap();
    region = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(region != MAP_FAILED);
    lose_all_of(hold_in_region);
    expect_lost(1, 64, 0, 0);
    check(leak_add_root(region, 4096));
    check(leak_add_root(region, 4096));
    expect_all_held();
    check(leak_remove_root(region, 4096));
    expect_all_held();
    check(!leak_remove_root(region, 8));
    check(leak_remove_root(region, 4096));
    check(!leak_remove_root(region, 4096));
    expect_lost(1, 64, 0, 0);
    check(leak_add_root(region, 4096));
    check(munmap(region, 4096) == 0); /* and is not there any more */
    expect_lost(1, 64, 0, 0);
}

/* ---------------------------------------------------------------- wishes */

static void hold_in_data(void) {
    held = make(64);
}

TEST(globals_can_be_left_out) {
    start_heap();
    void *volatile local[1] = {make(80)};
    lose_all_of(hold_in_data);
    struct leak_result *result = check_with((struct leak_wish){.skip_globals = true});
    expect(result, LEAK_DEFINITE, 1, 64);
    check_eq(result->reachable.objects, 1);
    leak_release(result);
    result = check_with((struct leak_wish){.skip_threads = true});
    expect(result, LEAK_DEFINITE, 1, 80);
    check_eq(result->reachable.objects, 1);
    leak_release(result);
    result = check_with((struct leak_wish){.skip_threads = true, .skip_globals = true});
    expect(result, LEAK_DEFINITE, 2, 64 + 80);
    leak_release(result);
    check(local[0] != NULL);
}

TEST(a_search_in_place_finds_the_same) {
    start_heap();
    held = make(500);
    lose_all_of(lose_tree);
    lose_all_of(lose_ring);
    for (int i = 0; i < 2; i++) {
        struct leak_result *result =
            check_with((struct leak_wish){.in_place = true, .max_pause_ns = UINT64_MAX / 4});
        expect(result, LEAK_DEFINITE, 2, 128);
        expect(result, LEAK_INDIRECT, 6, 208 + 320 + 48 + 2 * 64 + 128);
        check_eq(result->reachable.objects, 1);
        leak_release(result);
    }
}

TEST(a_search_in_place_gives_up_in_time) {
    start_heap();
    held = make(500);
    lose_list();
    struct leak_wish wish = {.in_place = true, .max_pause_ns = 1};
    struct leak_result *result;
    check(!leak_check(&wish, &result));
    check_str(result->why, "the search took longer than it may hold up the program");
    leak_release(result);
    check(leak_check(&(struct leak_wish){0}, &result));
    leak_release(result);
}

TEST(where_the_process_cannot_be_copied_it_is_searched_in_place) {
    if (geteuid() == 0) { /* no limit of processes holds for root */
        check(setuid(65534) == 0);
    }
    start_heap();
    lose_all_of(lose_tree);
    struct rlimit limit = {1, 1};
    check(setrlimit(RLIMIT_NPROC, &limit) == 0);
    struct leak_result *result;
    check(prctl(PR_SET_DUMPABLE, 0) == 0);
    if (geteuid() != 0 && !leak_check(&(struct leak_wish){0}, &result)) {
        check_str(result->why, "/proc/thread-self/pagemap cannot be read, and without a copy of the"
                               " process that is not safe");
        leak_release(result);
    }
    check(prctl(PR_SET_DUMPABLE, 1) == 0);
    result = check_now();
    expect(result, LEAK_DEFINITE, 1, 64);
    expect(result, LEAK_INDIRECT, 3, 208 + 320 + 48);
    check_str(result->why,
              "the process could not be copied (11), so its threads were held up for the search");
    leak_release(result);
}

TEST(where_the_process_cannot_be_copied_threads_must_stop) {
    pthread_t thread;
    start_heap();
    start_thread(&thread, hold_while_signals_are_blocked);
    struct leak_result *result;
    check(!leak_check(&(struct leak_wish){.in_place = true}, &result));
    check_str(result->why, "there are threads that cannot be stopped, and without a copy of the"
                           " process that is not safe");
    leak_release(result);
    end_thread(thread);
}

TEST(no_check_is_made_behind_a_filter_of_system_calls) {
    struct sock_filter allow = {.code = BPF_RET | BPF_K, .k = SECCOMP_RET_ALLOW};
    struct sock_fprog program = {1, &allow};
    start_heap();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        skip("there are no filters here");
    }
    struct leak_result *result;
    check(!leak_check(&(struct leak_wish){0}, &result));
    check_str(result->why, "the program has put itself behind a filter of system calls");
    leak_release(result);
}

static _Atomic unsigned refused;

static void check_in_handler(int number) {
    struct leak_result *result = NULL;
    (void)number;
    if (!leak_check(&(struct leak_wish){.max_pause_ns = LONG_PAUSE_NS}, &result) &&
        result != NULL) {
        check_str(result->why, "this thread is making a check");
        refused++;
    }
    leak_release(result);
}

static void *interrupt_again_and_again(void *first) {
    while (refused == 0) {
        pthread_kill(*(pthread_t *)first, SIGUSR1);
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

TEST(a_handler_that_interrupts_a_check_makes_none) {
    pthread_t self = pthread_self(), thread;
    start_heap();
    signal(SIGUSR1, check_in_handler);
    check(pthread_create(&thread, NULL, interrupt_again_and_again, &self) == 0);
    while (refused == 0) {
        expect_all_held();
    }
    check(pthread_join(thread, NULL) == 0);
}

static void *check_until_told(void *unused) {
    struct leak_result *result;
    reach(1);
    while (atomic_load(&stage) < 2) {
        if (!leak_check(&(struct leak_wish){.max_pause_ns = LONG_PAUSE_NS}, &result)) {
            check_str(result->why, "the process ends");
        }
        leak_release(result);
    }
    return unused;
}

TEST(the_last_check_does_not_wait_for_another) {
    pthread_t thread;
    start_heap();
    lose_all_of(lose_three);
    start_thread(&thread, check_until_told);
    for (int i = 0; i < 10; i++) {
        struct leak_result *result =
            check_with((struct leak_wish){.is_last = true, .max_pause_ns = LONG_PAUSE_NS});
        expect(result, LEAK_DEFINITE, 3, 3 * 112);
        leak_release(result);
    }
    end_thread(thread);
}

TEST(no_check_is_made_inside_the_allocator) {
    start_heap();
    struct leak_result *result = (void *)1;
    thread_mark_inside(true);
    check(!leak_check(&(struct leak_wish){0}, &result));
    check_eq(result, NULL);
    check(!leak_ignore(held));
    thread_mark_inside(false);
    leak_release(NULL);
}

/* ---------------------------------------------------------------- with the profiler */

TEST(groups_are_by_stack_where_objects_are_sampled) {
    start_heap_with("prof:true,lg_prof_sample:0");
    lose_all_of(lose_three);
    lose_all_of(lose_tree);
    struct leak_result *result = check_now();
    expect(result, LEAK_DEFINITE, 4, 3 * 112 + 64);
    expect(result, LEAK_INDIRECT, 3, 208 + 320 + 48);
    check_eq(result->group_count, 5);
    for (unsigned i = 0; i < result->group_count; i++) {
        check(result->groups[i].stack != 0);
        check_eq(result->groups[i].usable, 0);
        check(i == 0 || result->groups[i - 1].sum.bytes >= result->groups[i].sum.bytes);
    }
    check_eq(result->groups[0].sum.objects, 3);
    check_eq(result->objects[0].requested + 12, result->objects[0].usable);
    uintptr_t addresses[PROF_DEPTH_MOST];
    check(prof_read_stack(result->groups[0].stack, addresses, PROF_DEPTH_MOST) > 2);
    leak_release(result);
}

/* ---------------------------------------------------------------- forks */

TEST(a_forked_child_finds_its_own_leaks) {
    start_heap();
    held = make(64);
    lose_all_of(lose_three);
    check_child({
        lose_all_of(lose_tree);
        expect_lost(3 + 1, 3 * 112 + 64, 3, 208 + 320 + 48);
        held = NULL;
        expect_lost(3 + 2, 3 * 112 + 64 + 64, 3, 208 + 320 + 48);
    });
    expect_lost(3, 3 * 112, 0, 0);
}

TEST(the_copy_leaves_no_child_and_no_signal_behind) {
    start_heap();
    expect_all_held();
    check_eq(waitpid(-1, NULL, WNOHANG), -1);
    check_eq(errno, ECHILD);
    sigset_t pending;
    check(sigpending(&pending) == 0 && !sigismember(&pending, SIGCHLD));
}

static void *check_again_and_again(void *unused) {
    while (atomic_load(&stage) < 2) {
        expect_lost(3, 3 * 112, 0, 0);
    }
    return unused;
}

TEST(checks_wait_for_each_other_and_a_child_that_is_forked_meanwhile_can_check) {
    pthread_t threads[2];
    start_heap();
    lose_all_of(lose_three);
    for (int i = 0; i < 2; i++) {
        check(pthread_create(&threads[i], NULL, check_again_and_again, NULL) == 0);
    }
    for (int i = 0; i < 20; i++) {
        check_child({
            expect_lost(3, 3 * 112, 0, 0);
            held = make(64);
            expect_lost(3, 3 * 112, 0, 0);
        });
        held = NULL;
    }
    reach(2);
    for (int i = 0; i < 2; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
}

/* ---------------------------------------------------------------- load */

static _Atomic bool stops;

/* Allocates, frees and passes on; holds everything on its stack or in `passed`. */
static void *work(void *argument) {
    static _Atomic(void *) passed[256];
    void *own[64] = {0};
    struct random random = random_start((uint64_t)(uintptr_t)&own, 0);
    while (!stops) {
        size_t i = random_below(&random, 64);
        tally_free(own[i]);
        own[i] = make(1 + random_below(&random, random_below(&random, 50) == 0 ? 100000 : 500));
        if (random_below(&random, 4) == 0) {
            own[i] = atomic_exchange(&passed[random_below(&random, 256)], own[i]);
        }
    }
    for (int i = 0; i < 64; i++) {
        tally_free(own[i]);
    }
    return argument;
}

static void check_under_load(const char *conf) {
    pthread_t threads[8];
    bool is_whole = getenv("STRESS") != NULL;
    unsigned checks = is_whole ? 1000 : 25;
    test_allow_seconds(is_whole ? 1800 : 120);
    start_heap_with(conf);
    for (int i = 0; i < 8; i++) {
        check(pthread_create(&threads[i], NULL, work, NULL) == 0);
    }
    lose_all_of(lose_three);
    for (unsigned i = 0; i < checks; i++) {
        struct leak_result *result = check_with((struct leak_wish){.max_pause_ns = 10000000000});
        check_eq(result->threads, 9);
        check_eq(result->unanswered, 0);
        expect(result, LEAK_DEFINITE, 3, 3 * 112);
        expect(result, LEAK_INDIRECT, 0, 0);
        check_eq(result->kinds[LEAK_POSSIBLE].objects, 0);
        leak_release(result);
    }
    stops = true;
    for (int i = 0; i < 8; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    struct leak_result *result = check_now();
    expect(result, LEAK_DEFINITE, 3, 3 * 112);
    leak_release(result);
    heap_verify();
}

TEST(eight_threads_that_allocate_are_stopped_again_and_again) {
    check_under_load("");
}

TEST(eight_threads_whose_every_allocation_is_sampled_are_stopped_again_and_again) {
    check_under_load("prof:true,lg_prof_sample:0");
}
