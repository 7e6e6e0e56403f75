/* SPDX-License-Identifier: MIT
 *
 * test_gperftools_cxx.cc - gperftools' functions and classes as a C++ program sees them, answered by tally.
 *
 * As test_gperftools.c, this is compiled with an installed gperftools, too, by test_gperftools_linked.sh.
 * The program has its operators of tc_ functions, as those have that were built for them.
 */
#include <google/heap-checker.h>
#include <google/heap-profiler.h>
#include <google/malloc_extension.h>
#include <google/profiler.h>
#include <google/tcmalloc.h>
#include <gperftools/heap-checker.h>
#include <gperftools/heap-profiler.h>
#include <gperftools/malloc_extension.h>
#include <gperftools/malloc_extension_c.h>
#include <gperftools/profiler.h>
#include <gperftools/tcmalloc.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "test.h"

TEST_SETUP(require_tally);

static int news;

void *operator new(size_t size) {
    news++;
    return tc_new(size);
}
void operator delete(void *pointer) noexcept {
    tc_delete(pointer);
}
void operator delete(void *pointer, size_t size) noexcept {
    tc_delete_sized(pointer, size);
}

enum { MIB = 1 << 20 };
static const size_t too_much = (size_t)1 << 60;
static void *volatile kept;

static MallocExtension *extension() {
    return MallocExtension::instance();
}

static size_t property(const char *name) {
    size_t value = too_much;
    check(extension()->GetNumericProperty(name, &value));
    return value;
}

/* ---------------------------------------------------------------- MallocExtension */

TEST(the_class_tells_what_the_functions_tell) {
    MallocExtension::Initialize();
    kept = malloc(10 * MIB);
    size_t value = 0;
    check_eq(MallocExtension_GetNumericProperty("generic.current_allocated_bytes", &value), 1);
    check(value >= 10 * MIB && value < 11 * MIB);
    check_eq(property("generic.current_allocated_bytes"), value);
    check(!extension()->GetNumericProperty("generic.nothing", &value));
    check_eq(extension()->GetAllocatedSize(kept), malloc_usable_size(kept));
    check_eq(extension()->GetEstimatedAllocatedSize(10 * MIB), malloc_usable_size(kept));
    check_eq(extension()->GetOwnership(kept), MallocExtension::kOwned);
    check_eq(extension()->GetOwnership(&value), MallocExtension::kNotOwned);
    check(extension()->VerifyAllMemory());
    check(extension()->VerifyNewMemory(kept) && extension()->VerifyArrayNewMemory(kept));
    check(extension()->VerifyMallocMemory(kept));
    int blocks = 0, histogram[kMallocHistogramSize];
    check(extension()->MallocMemoryStats(&blocks, &value, histogram));
    check(blocks > 0 && value >= 10 * MIB && value < 11 * MIB);
    char text[5000];
    extension()->GetStats(text, sizeof text);
    check(strstr(text, "Bytes in use by application") != nullptr);
    free(kept);
}

TEST(the_class_sets_what_can_be_set) {
    check(extension()->SetNumericProperty("tcmalloc.heap_limit_mb", 64));
    check_eq(property("tcmalloc.heap_limit_mb"), 64);
    check(!extension()->SetNumericProperty("generic.heap_size", 64));
    check(extension()->SetNumericProperty("tcmalloc.heap_limit_mb", 0));
    extension()->SetMemoryReleaseRate(5);
    check(extension()->GetMemoryReleaseRate() == 5);
    extension()->SetSystemAllocator(nullptr);
    check(extension()->GetSystemAllocator() == nullptr);
}

TEST(the_class_gives_back) {
    for (int i = 0; i < 1000; i++) {
        free(malloc(64));
    }
    extension()->MarkThreadIdle();
    check_eq(extension()->GetThreadCacheSize(), 0);
    extension()->MarkThreadBusy();
    extension()->MarkThreadTemporarilyIdle();
    kept = malloc(20 * MIB);
    memset(kept, 1, 20 * MIB);
    free(kept);
    extension()->ReleaseToSystem(100 * MIB);
    check(property("tcmalloc.pageheap_free_bytes") < MIB);
    extension()->ReleaseFreeMemory();
}

TEST(an_object_that_is_registered_changes_nothing) {
    MallocExtension *before = extension();
    MallocExtension::Register(nullptr);
    check_eq(extension(), before);
}

static void add_up(void *sum, const base::MallocRange *range) {
    *static_cast<size_t *>(sum) += range->length;
    char *address = static_cast<char *>(kept);
    if (range->address <= (uintptr_t)address &&
        (uintptr_t)address < range->address + range->length) {
        free(malloc(100)); /* it may allocate */
        *static_cast<size_t *>(sum) += too_much;
    }
}

TEST(ranges_hold_what_is_allocated) {
    size_t sum = 0;
    kept = malloc(MIB);
    extension()->Ranges(&sum, add_up);
    check(sum > too_much + MIB && sum < 2 * too_much);
    free(kept);
}

TEST(lists_that_tally_does_not_have_are_empty) {
    int period = -1;
    std::vector<MallocExtension::FreeListInfo> lists(3);
    extension()->GetFreeListSizes(&lists);
    check(lists.empty());
    check(extension()->ReadStackTraces(&period) == nullptr);
    check_eq(period, 0);
    check(extension()->ReadHeapGrowthStackTraces() == nullptr);
    std::string text = "before ";
    extension()->GetHeapGrowthStacks(&text);
    check(text.find("before heap profile:      0:        0 [") == 0);
    check(text.find("] @ growth\n") != std::string::npos);
}

TEST(samples_are_told_when_there_are_some) {
    std::string text;
    extension()->GetHeapSample(&text);
    check(text.find("%warn") == 0);
    check(extension()->SetNumericProperty("tcmalloc.sample_parameter", 1));
    kept = malloc(3 * MIB);
    text.clear();
    extension()->GetHeapSample(&text);
    check(text.find("heap profile: ") == 0);
    check(text.find("1:  3145728 [") != std::string::npos);
    check(text.find("MAPPED_LIBRARIES:") != std::string::npos);
    free(kept);
}

/* ---------------------------------------------------------------- tc_ */

TEST(operators_of_the_program_may_be_made_of_tc_functions) {
    int before = news;
    std::vector<std::string> strings(10, std::string(100, 'x'));
    check_eq(news - before, 12);
    check(extension()->GetOwnership(strings.data()) == MallocExtension::kOwned);
}

TEST(every_new_has_its_delete) {
    tc_delete(tc_new(100));
    tc_delete_sized(tc_new(100), 100);
    tc_delete_nothrow(tc_new_nothrow(100, std::nothrow), std::nothrow);
    tc_deletearray(tc_newarray(100));
    tc_deletearray_sized(tc_newarray(100), 100);
    tc_deletearray_nothrow(tc_newarray_nothrow(100, std::nothrow), std::nothrow);
    std::align_val_t aligned{256};
    void *object = tc_new_aligned(100, aligned);
    check_eq((uintptr_t)object % 256, 0);
    tc_delete_aligned(object, aligned);
    tc_delete_sized_aligned(tc_new_aligned(100, aligned), 100, aligned);
    tc_delete_aligned_nothrow(tc_new_aligned_nothrow(100, aligned, std::nothrow), aligned,
                              std::nothrow);
    tc_deletearray_aligned(tc_newarray_aligned(100, aligned), aligned);
    tc_deletearray_sized_aligned(tc_newarray_aligned(100, aligned), 100, aligned);
    tc_deletearray_aligned_nothrow(tc_newarray_aligned_nothrow(100, aligned, std::nothrow), aligned,
                                   std::nothrow);
    operator delete(tc_new(100));
    tc_delete(operator new(100));
}

template <typename Function> static bool throws(Function function) {
    try {
        function();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

TEST(a_new_that_fails_throws) {
    check(throws([] { kept = tc_new(too_much); }));
    check(throws([] { kept = tc_newarray(too_much); }));
    check(throws([] { kept = tc_new_aligned(too_much, std::align_val_t{64}); }));
    check(throws([] { kept = tc_newarray_aligned(too_much, std::align_val_t{64}); }));
    check(tc_new_nothrow(too_much, std::nothrow) == nullptr);
    check(tc_newarray_nothrow(too_much, std::nothrow) == nullptr);
    check(tc_new_aligned_nothrow(too_much, std::align_val_t{64}, std::nothrow) == nullptr);
    check(tc_newarray_aligned_nothrow(too_much, std::align_val_t{64}, std::nothrow) == nullptr);
}

static int handled;

/* Makes room the second time. */
static void handle() {
    if (++handled % 2 == 0) {
        MallocExtension::instance()->SetNumericProperty("tcmalloc.heap_limit_mb", 0);
    }
}

static void limit_heap() {
    check(extension()->SetNumericProperty("tcmalloc.heap_limit_mb", 16));
    std::set_new_handler(handle);
    handled = 0;
}

TEST(the_new_handler_is_called_where_it_is_asked_for) {
    limit_heap();
    check(tc_malloc(64 * MIB) == nullptr);
    check_eq(handled, 0);
    check_eq(tc_set_new_mode(1), 0);
    check(tc_malloc_skip_new_handler(64 * MIB) == nullptr);
    check_eq(handled, 0);
    tc_free(tc_malloc(64 * MIB));
    check_eq(handled, 2);
    limit_heap();
    char *zeros = static_cast<char *>(tc_calloc(64, MIB));
    check(zeros != nullptr && zeros[64 * MIB - 1] == 0);
    check_eq(handled, 2);
    tc_free(zeros);
    limit_heap();
    char *text = static_cast<char *>(malloc(100));
    strcpy(text, "text");
    text = static_cast<char *>(tc_realloc(text, 64 * MIB));
    check_str(text, "text");
    check_eq(handled, 2);
    tc_free(text);
    limit_heap();
    void *aligned = tc_memalign(256, 64 * MIB);
    check(aligned != nullptr && (uintptr_t)aligned % 256 == 0);
    check_eq(handled, 2);
    tc_free(aligned);
    limit_heap();
    check_eq(tc_posix_memalign(&aligned, 256, 64 * MIB), 0);
    check_eq(handled, 2);
    tc_free(aligned);
    limit_heap();
    tc_delete(tc_new(64 * MIB));
    check_eq(handled, 2);
    check_eq(tc_set_new_mode(0), 1);
}

/* ---------------------------------------------------------------- HeapLeakChecker */

static int cleanups;
REGISTER_HEAPCHECK_CLEANUP(count, cleanups++)

/* test_heap_checker.cc has what it finds when it is on. */
TEST(a_checker_that_is_off_finds_nothing) {
    check(!HeapLeakChecker::IsActive());
    check(HeapLeakChecker::GlobalChecker() == nullptr);
    check(HeapLeakChecker::NoGlobalLeaks());
    HeapLeakChecker::CancelGlobalCheck();
    HeapLeakChecker checker("name");
    kept = malloc(100);
    check_eq(HeapLeakChecker::IgnoreObject(kept), kept);
    HeapLeakChecker::UnIgnoreObject(kept);
    kept = nullptr;
    {
        HeapLeakChecker::Disabler disabler;
        kept = malloc(100);
    }
    kept = nullptr;
    check(checker.NoLeaks() && checker.QuickNoLeaks() && checker.BriefNoLeaks());
    check(checker.SameHeap() && checker.QuickSameHeap() && checker.BriefSameHeap());
    check_eq(checker.BytesLeaked(), 0);
    check_eq(checker.ObjectsLeaked(), 0);
}

TEST(a_checker_has_the_size_it_has_in_gperftools) {
    check_eq(sizeof(HeapLeakChecker), 56);
    check_eq(sizeof(HeapLeakChecker::Disabler), 1);
}

TEST(a_hidden_pointer_is_another_number) {
    int target = 0;
    HiddenPointer<int> hidden(&target);
    check_eq(hidden.get(), &target);
    uintptr_t bits;
    memcpy(&bits, static_cast<void *>(&hidden), sizeof bits);
    check_eq(bits, (uintptr_t)&target ^ 0xF03A5F7BF03A5F7B);
}

TEST(cleanups_are_called) {
    check_eq(cleanups, 0);
    HeapCleaner::RunHeapCleanups();
    check_eq(cleanups, 1);
}

/* ---------------------------------------------------------------- what has C linkage */

TEST(functions_of_c_have_their_names_in_cxx) {
    struct ProfilerState state;
    ProfilerGetCurrentState(&state);
    check_eq(state.enabled, 0);
    check_eq(IsHeapProfilerRunning(), 0);
    char *text = GetHeapProfile();
    check_str(text, "");
    free(text);
}
