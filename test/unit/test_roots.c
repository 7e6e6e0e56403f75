/* SPDX-License-Identifier: MIT
 *
 * test_roots.c - what holds objects in the eyes of a leak check: stacks, registers and storage of the caller,
 * mappings, the environment, modules, and what the program says about single objects and regions.
 */
#include <dlfcn.h>
#include <jemalloc/jemalloc.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "leak/leak.h"
#include "leak_checks.h"
#include "prof/prof.h"
#include "unit.h"

TEST_SETUP(need_plain_memory);

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
