/* SPDX-License-Identifier: MIT
 *
 * test_heap_checker.cc - gperftools' HeapLeakChecker, served by tally: leaks since a checker was made, Disabler,
 * ignored objects, hidden pointers, the whole program.
 *
 * By the header that we offer; test_gperftools_linked.sh has the same class from gperftools' own.
 */
#include <cstdint>
#include <cstdlib>
#include <map>
#include <pthread.h>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

#include <gperftools/heap-checker.h>
#include <tally/tally.h>

#include "test.h"

extern "C" {
extern const char *malloc_conf;
const char *malloc_conf = "leak_check:local,leak_exit_code:0";
}

TEST_SETUP(require_tally);

static_assert(sizeof(HeapLeakChecker) == 56, "that of gperftools 2.10");

namespace {

const std::uintptr_t mask = 0xF03A5F7BF03A5F7B;

__attribute__((noinline)) void wipe() {
    volatile char room[32 << 10];
    for (std::size_t i = 0; i < sizeof room; i++) {
        room[i] = 0x11;
    }
#if defined(__x86_64__)
    __asm__ volatile("xorl %%eax, %%eax\n xorl %%ecx, %%ecx\n xorl %%edx, %%edx\n"
                     "xorl %%esi, %%esi\n xorl %%edi, %%edi\n xorl %%r8d, %%r8d\n"
                     "xorl %%r9d, %%r9d\n xorl %%r10d, %%r10d\n xorl %%r11d, %%r11d\n"
                     "xorl %%ebx, %%ebx\n xorl %%r12d, %%r12d\n xorl %%r13d, %%r13d\n"
                     "xorl %%r14d, %%r14d\n xorl %%r15d, %%r15d"
                     :
                     :
                     : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "rbx", "r12",
                       "r13", "r14", "r15", "memory");
#endif
}

__attribute__((noinline)) std::uintptr_t lose(std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(std::malloc(bytes)) ^ mask;
}

/* In a form that no search knows. */
std::uintptr_t hide(std::size_t bytes) {
    std::uintptr_t hidden = lose(bytes);
    wipe();
    return hidden;
}

__attribute__((noinline)) void *shown(std::uintptr_t hidden) {
    return reinterpret_cast<void *>(hidden ^ mask);
}

/* Two objects that lead to each other. */
__attribute__((noinline)) std::uintptr_t hide_loop() {
    void **first = static_cast<void **>(std::malloc(16));
    void **second = static_cast<void **>(std::malloc(16));
    *first = second;
    *second = first;
    return reinterpret_cast<std::uintptr_t>(first) ^ mask;
}

__attribute__((noinline)) void free_loop(std::uintptr_t hidden) {
    void **first = static_cast<void **>(shown(hidden));
    std::free(*first);
    std::free(first);
}

__attribute__((noinline)) void ignore_inside(std::uintptr_t hidden) {
    HeapLeakChecker::IgnoreObject(static_cast<char *>(shown(hidden)) + 100);
}

__attribute__((noinline)) void unignore(std::uintptr_t hidden) {
    HeapLeakChecker::UnIgnoreObject(shown(hidden));
}

void check_sums(HeapLeakChecker &checker, ssize_t bytes, ssize_t objects) {
    check_eq(checker.NoLeaks(), objects == 0);
    check_eq(checker.BytesLeaked(), bytes);
    check_eq(checker.ObjectsLeaked(), objects);
}

void *kept;
thread_local void *kept_by_thread;

} // namespace

TEST(a_checker_is_active_and_counts_what_is_lost) {
    check(HeapLeakChecker::IsActive());
    HeapLeakChecker checker("simple");
    check_sums(checker, 0, 0);
    std::uintptr_t hidden = hide(1000);
    check_sums(checker, 1000, 1);
    std::free(shown(hidden));
    check_sums(checker, 0, 0);
    check(checker.SameHeap());
}

TEST(what_was_lost_before_a_checker_is_none_of_its_leaks) {
    std::uintptr_t hidden = hide(3000);
    HeapLeakChecker checker("later");
    check_sums(checker, 0, 0);
    std::uintptr_t another = hide(500);
    {
        HeapLeakChecker nested("nested");
        check_sums(nested, 0, 0);
    }
    check_sums(checker, 500, 1);
    std::free(shown(hidden));
    std::free(shown(another));
    check_sums(checker, 0, 0);
}

TEST(a_loop_of_objects_is_lost_as_a_whole) {
    HeapLeakChecker checker("loop");
    std::uintptr_t hidden = hide_loop();
    wipe();
    check_sums(checker, 32, 2);
    free_loop(hidden);
    wipe();
    check_sums(checker, 0, 0);
}

TEST(what_globals_threads_and_containers_lead_to_is_not_lost) {
    HeapLeakChecker checker("reachable");
    kept = std::malloc(100);
    kept_by_thread = std::malloc(200);
    static std::map<std::string, std::vector<std::string>> table;
    for (int i = 0; i < 100; i++) {
        table[std::string(50, 'k') + std::to_string(i)].push_back(std::string(100, 'v'));
    }
    static std::string *array = new std::string[10];
    check(array != nullptr);
    pthread_key_t key;
    pthread_key_create(&key, nullptr);
    pthread_setspecific(key, std::malloc(300));
    wipe();
    check_sums(checker, 0, 0);
    std::free(kept);
    std::free(kept_by_thread);
    kept = kept_by_thread = nullptr;
}

TEST(what_is_allocated_under_a_disabler_is_not_lost) {
    HeapLeakChecker checker("disabled");
    {
        HeapLeakChecker::Disabler outer;
        {
            HeapLeakChecker::Disabler inner;
            hide(10);
        }
        hide(20);
    }
    check_sums(checker, 0, 0);
    hide(30);
    check_sums(checker, 30, 1);
}

TEST(a_disabler_is_for_its_thread_alone) {
    HeapLeakChecker checker("threads");
    HeapLeakChecker::Disabler disabler;
    std::thread([] { hide(40); }).join();
    wipe();
    check_eq(checker.NoLeaks(), false);
    check_eq(checker.BytesLeaked(), 40);
}

TEST(ignored_objects_are_not_lost_until_they_are_ignored_no_more) {
    HeapLeakChecker checker("ignored");
    std::uintptr_t hidden = hide(600);
    ignore_inside(hidden);
    wipe();
    check_sums(checker, 0, 0);
    unignore(hidden);
    wipe();
    check_sums(checker, 600, 1);
    std::free(shown(hidden));
    check_sums(checker, 0, 0);
}

TEST(mistakes_end_the_program) {
    check_dies({ HeapLeakChecker checker("unused"); }, "\"unused\" ends without a check", SIGABRT);
    HeapLeakChecker checker("early");
    check_dies(checker.BytesLeaked(), "BytesLeaked() before a check", SIGABRT);
    check_dies(checker.ObjectsLeaked(), "ObjectsLeaked() before a check", SIGABRT);
    static int number;
    check_dies(HeapLeakChecker::UnIgnoreObject(&number), "that object is not ignored", SIGABRT);
    check(checker.NoLeaks());
}

TEST(there_is_no_check_of_the_whole_program_in_local_mode) {
    check(HeapLeakChecker::GlobalChecker() == nullptr);
    hide(700);
    check(HeapLeakChecker::NoGlobalLeaks());
    HeapLeakChecker::CancelGlobalCheck();
}

TEST(the_calls_of_tally_count_the_same) {
    struct tally_leaks leaks;
    unsigned long long start = tally_leak_mark();
    check_eq(tally_leak_check(&leaks, start, nullptr), 0);
    check_eq(leaks.definite_objects, 0);
    check(leaks.reachable_objects > 0);
    std::uintptr_t hidden = hide(800);
    check_eq(tally_leak_check(&leaks, start, nullptr), 0);
    check_eq(leaks.definite_objects, 1);
    check_eq(leaks.definite_bytes, 800);
    check_eq(leaks.indirect_objects, 0);
    check_eq(tally_leak_ignore(shown(hidden)), 0);
    check_eq(tally_leak_check(&leaks, start, nullptr), 0);
    check_eq(leaks.definite_objects, 0);
    check_eq(tally_leak_unignore(shown(hidden)), 0);
    check(tally_leak_unignore(shown(hidden)) != 0);
    check(tally_leak_ignore(&start) != 0);
    check(tally_leak_remove_root(&start, 8) != 0);
    std::free(shown(hidden));
    check_eq(tally_leak_check(&leaks, start, nullptr), 0);
    check_eq(leaks.definite_objects, 0);
}
