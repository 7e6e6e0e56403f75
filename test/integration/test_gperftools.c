/* SPDX-License-Identifier: MIT
 *
 * test_gperftools.c - gperftools' functions as a C program sees them, answered by tally.
 *
 * test_gperftools_linked.sh compiles this file once more, with the headers of an installed gperftools and
 * linked with its library, and runs it under tally: what holds here has to hold there, too.  Functions that
 * its headers do not declare are tried here alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <google/heap-profiler.h>
#include <google/malloc_extension_c.h>
#include <google/profiler.h>
#include <google/tcmalloc.h>
#include <gperftools/heap-profiler.h>
#include <gperftools/malloc_extension_c.h>
#include <gperftools/nallocx.h>
#include <gperftools/profiler.h>
#include <gperftools/tcmalloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

enum { MIB = 1 << 20, MANY = 1000 };

/* Not known to the compiler, which would leave out allocations that nobody uses. */
static void *volatile kept;

static size_t property(const char *name) {
    size_t value = (size_t)1 << 62;
    check_eq(MallocExtension_GetNumericProperty(name, &value), 1);
    return value;
}

/* ---------------------------------------------------------------- MallocExtension_ */

TEST(bytes_in_use_are_those_of_the_program) {
    size_t before = property("generic.current_allocated_bytes");
    kept = malloc(10 * MIB);
    size_t after = property("generic.current_allocated_bytes");
    check(after - before >= 10 * MIB && after - before < 10 * MIB + MIB / 4);
    free(kept);
    check(property("generic.current_allocated_bytes") - before < MIB / 4);
}

TEST(the_parts_of_the_heap_add_up_to_its_size) {
    for (int i = 0; i < MANY; i++) {
        kept = malloc((size_t)i * 37);
        if (i % 3 != 0) {
            free(kept);
        }
    }
    size_t sum =
        property("generic.current_allocated_bytes") + property("tcmalloc.pageheap_free_bytes") +
        property("tcmalloc.central_cache_free_bytes") +
        property("tcmalloc.transfer_cache_free_bytes") +
        property("tcmalloc.thread_cache_free_bytes") + property("tcmalloc.pageheap_unmapped_bytes");
    check_eq(sum, property("generic.heap_size"));
    check_eq(property("tcmalloc.slack_bytes"), property("tcmalloc.pageheap_free_bytes") +
                                                   property("tcmalloc.pageheap_unmapped_bytes"));
    check_eq(property("generic.heap_size") - property("tcmalloc.pageheap_unmapped_bytes"),
             property("tcmalloc.pageheap_committed_bytes"));
    check(property("generic.total_physical_bytes") > property("tcmalloc.pageheap_committed_bytes"));
}

TEST(what_is_unknown_is_refused_and_changes_nothing) {
    size_t value = 12345;
    check_eq(MallocExtension_GetNumericProperty("tcmalloc.nothing", &value), 0);
    check_eq(MallocExtension_GetNumericProperty("tcmalloc.pageheap_reserve_count", &value), 0);
    check_eq(value, 12345);
    check_eq(MallocExtension_SetNumericProperty("tcmalloc.nothing", 1), 0);
    check_eq(MallocExtension_SetNumericProperty("generic.heap_size", 1), 0);
    check_eq(MallocExtension_SetNumericProperty("tcmalloc.max_total_thread_cache_bytes", 1), 0);
}

TEST(a_heap_limit_is_a_limit) {
    check_eq(property("tcmalloc.heap_limit_mb"), 0);
    check_eq(MallocExtension_SetNumericProperty("tcmalloc.heap_limit_mb", 64), 1);
    check_eq(property("tcmalloc.heap_limit_mb"), 64);
    check(malloc(80 * MIB) == NULL);
    check_eq(MallocExtension_SetNumericProperty("tcmalloc.heap_limit_mb", SIZE_MAX), 0);
    check_eq(MallocExtension_SetNumericProperty("tcmalloc.heap_limit_mb", 0), 1);
    kept = malloc(80 * MIB);
    check(kept != NULL);
    free(kept);
}

TEST(sampling_is_switched_by_its_property) {
    check_eq(property("tcmalloc.sample_parameter"), 0);
    check_eq(MallocExtension_SetNumericProperty("tcmalloc.sample_parameter", 500000), 1);
    check_eq(property("tcmalloc.sample_parameter"), 524288);
    check_eq(MallocExtension_SetNumericProperty("tcmalloc.sample_parameter", 0), 1);
    check_eq(property("tcmalloc.sample_parameter"), 0);
}

/* A heap that keeps what is free: it is large, and time does not pass. */
static void keep_what_is_free(void) {
    void (*set_rate)(double) =
        (void (*)(double))dlsym(RTLD_DEFAULT, "MallocExtension_SetMemoryReleaseRate");
    check(set_rate != NULL);
    set_rate(0);
    kept = malloc(400 * MIB);
    check(kept != NULL);
}

static void use_and_free(size_t bytes) {
    kept = malloc(bytes);
    memset(kept, 1, bytes);
    free(kept);
}

TEST(free_memory_is_released) {
    keep_what_is_free();
    MallocExtension_ReleaseFreeMemory();
    use_and_free(20 * MIB);
    size_t given_back = property("tcmalloc.pageheap_total_decommit_bytes");
    check(property("tcmalloc.pageheap_free_bytes") >= 16 * MIB);
    MallocExtension_ReleaseFreeMemory();
    check(property("tcmalloc.pageheap_free_bytes") < MIB);
    check(property("tcmalloc.pageheap_total_decommit_bytes") - given_back >= 16 * MIB);
}

TEST(what_was_released_beyond_the_wish_counts_next_time) {
    keep_what_is_free();
    MallocExtension_ReleaseFreeMemory();
    use_and_free(20 * MIB);
    MallocExtension_ReleaseToSystem(MIB);
    check(property("tcmalloc.pageheap_free_bytes") < MIB);
    use_and_free(20 * MIB);
    MallocExtension_ReleaseToSystem(MIB);
    check(property("tcmalloc.pageheap_free_bytes") >= 16 * MIB);
    MallocExtension_ReleaseToSystem(40 * MIB);
    check(property("tcmalloc.pageheap_free_bytes") < MIB);
}

TEST(aggressive_decommit_keeps_nothing) {
    check_eq(property("tcmalloc.aggressive_memory_decommit"), 0);
    check_eq(MallocExtension_SetNumericProperty("tcmalloc.aggressive_memory_decommit", 1), 1);
    check_eq(property("tcmalloc.aggressive_memory_decommit"), 1);
    use_and_free(20 * MIB);
    check(property("tcmalloc.pageheap_free_bytes") < MIB);
    check_eq(MallocExtension_SetNumericProperty("tcmalloc.aggressive_memory_decommit", 0), 1);
    check_eq(property("tcmalloc.aggressive_memory_decommit"), 0);
}

TEST(an_idle_thread_keeps_nothing) {
    void *objects[MANY];
    for (int i = 0; i < MANY; i++) {
        objects[i] = malloc(64);
    }
    for (int i = 0; i < MANY; i++) {
        free(objects[i]);
    }
    check(MallocExtension_GetThreadCacheSize() >= 64);
    check(property("tcmalloc.current_total_thread_cache_bytes") >=
          MallocExtension_GetThreadCacheSize());
    check(property("tcmalloc.impl.thread_cache_count") >= 1);
    MallocExtension_MarkThreadIdle();
    check_eq(MallocExtension_GetThreadCacheSize(), 0);
    MallocExtension_MarkThreadBusy();
    MallocExtension_MarkThreadTemporarilyIdle();
    check_eq(MallocExtension_GetThreadCacheSize(), 0);
}

TEST(addresses_are_told_apart) {
    int local = 0;
    char *object = malloc(100000);
    char *small = malloc(100);
    check_eq(MallocExtension_GetOwnership(object), MallocExtension_kOwned);
    check_eq(MallocExtension_GetOwnership(small), MallocExtension_kOwned);
    check_eq(MallocExtension_GetOwnership(&local), MallocExtension_kNotOwned);
    check_eq(MallocExtension_GetOwnership(NULL), MallocExtension_kNotOwned);
    check_eq(MallocExtension_VerifyAllMemory(), 1);
    check_eq(MallocExtension_VerifyMallocMemory(object), 1);
    check_eq(MallocExtension_VerifyNewMemory(small), 1);
    check_eq(MallocExtension_VerifyArrayNewMemory(NULL), 1);
    check_eq(MallocExtension_VerifyNewMemory(small + 16), 0);
    free(small);
    check_eq(MallocExtension_VerifyMallocMemory(small), 0);
    free(object);
}

TEST(sizes_are_those_that_requests_get) {
    for (size_t size = 1; size < 10 * MIB; size = size * 3 + 1) {
        void *object = malloc(size);
        size_t usable = MallocExtension_GetAllocatedSize(object);
        check(usable >= size);
        check_eq(usable, malloc_usable_size(object));
        check_eq(usable, MallocExtension_GetEstimatedAllocatedSize(size));
        check_eq(usable, tc_malloc_size(object));
        check_eq(usable, tc_nallocx(size, 0));
        check_eq(usable, nallocx(size, 0));
        free(object);
    }
    check(tc_nallocx(100, 12) >= 4096);
    check_eq(MallocExtension_GetAllocatedSize(NULL), 0);
}

/* Sizes of which the harness has none: a bit length each for a small object and a large one. */
TEST(blocks_are_counted_by_the_bits_of_their_size) {
    int before[kMallocExtensionHistogramSize], after[kMallocExtensionHistogramSize];
    int blocks_before, blocks_after;
    size_t total_before, total_after;
    void *objects[100];
    check_eq(MallocExtension_MallocMemoryStats(&blocks_before, &total_before, before), 1);
    for (int i = 0; i < 100; i++) {
        objects[i] = malloc(i < 90 ? 6000 : 3 * MIB);
    }
    check_eq(MallocExtension_MallocMemoryStats(&blocks_after, &total_after, after), 1);
    check_eq(after[13] - before[13], 90);
    check_eq(after[22] - before[22], 10);
    check_eq(blocks_after - blocks_before, 100);
    check_eq(total_after - total_before,
             90 * malloc_usable_size(objects[0]) + 10 * malloc_usable_size(objects[99]));
    for (int i = 0; i < 100; i++) {
        free(objects[i]);
    }
}

/* ---------------------------------------------------------------- the text */

static size_t figure(const char *text, const char *label) {
    const char *found = strstr(text, label);
    check(found != NULL);
    while (found > text && found[-1] != '\n') {
        found--;
    }
    check(strncmp(found, "MALLOC: ", 8) == 0);
    return strtoul(found + strcspn(found, "0123456789"), NULL, 10);
}

TEST(the_lines_of_the_statistics_add_up) {
    static char text[5000];
    kept = malloc(10 * MIB);
    MallocExtension_GetStats(text, sizeof text);
    size_t used = figure(text, "Bytes in use by application");
    check(used >= 10 * MIB && used < 11 * MIB);
    check(strstr(text, "(   10.") != NULL);
    size_t physical = used + figure(text, "Bytes in page heap freelist") +
                      figure(text, "Bytes in central cache freelist") +
                      figure(text, "Bytes in transfer cache freelist") +
                      figure(text, "Bytes in thread cache freelists") +
                      figure(text, "Bytes in malloc metadata");
    check_eq(physical, figure(text, "Actual memory used (physical + swap)"));
    check_eq(physical + figure(text, "Bytes released to OS (aka unmapped)"),
             figure(text, "Virtual address space used"));
    check(figure(text, "Spans in use") > 0);
    check(strstr(text, "class ") == NULL);
    free(kept);
}

TEST(with_room_the_statistics_have_a_line_for_each_size) {
    static char text[20000];
    kept = malloc(48);
    MallocExtension_GetStats(text, sizeof text);
    check(strstr(text, "[       48 bytes ] :") != NULL);
    free(kept);
}

TEST(the_statistics_are_cut_where_there_is_no_room) {
    char text[64];
    memset(text, 'x', sizeof text);
    MallocExtension_GetStats(text, 40);
    check_eq(strlen(text), 39);
    check_eq(text[40], 'x');
    MallocExtension_GetStats(text, 0);
    MallocExtension_GetStats(NULL, -1);
    check_eq(strlen(text), 39);
}

/* ---------------------------------------------------------------- tc_ */

TEST(objects_may_cross_between_the_families) {
    free(tc_malloc(100));
    tc_free(malloc(100));
    tc_cfree(malloc(100));
    tc_free_sized(malloc(100), 100);
    free(tc_realloc(malloc(10), 100000));
    free(tc_malloc_skip_new_handler(10));
    tc_free(NULL);
}

TEST(the_functions_do_what_their_namesakes_do) {
    char *zeros = tc_calloc(10, 1000);
    for (int i = 0; i < 10000; i++) {
        check_eq(zeros[i], 0);
    }
    strcpy(zeros, "text");
    zeros = tc_realloc(zeros, MIB);
    check_str(zeros, "text");
    check(tc_realloc(zeros, 0) == NULL);
    check(tc_calloc(SIZE_MAX / 2, 3) == NULL);
    void *page = tc_valloc(10), *pages = tc_pvalloc(5000), *aligned = tc_memalign(256, 10);
    check_eq((uintptr_t)page % 4096, 0);
    check_eq((uintptr_t)pages % 4096, 0);
    check(tc_malloc_size(pages) >= 8192);
    check_eq((uintptr_t)aligned % 256, 0);
    tc_free(page);
    tc_free(pages);
    tc_free(aligned);
    void *result = NULL;
    check_eq(tc_posix_memalign(&result, 3, 10), 22);
    check_eq(tc_posix_memalign(&result, 64, 10), 0);
    check_eq((uintptr_t)result % 64, 0);
    tc_free(result);
}

TEST(a_wrong_size_is_refused) {
    void *object = tc_malloc(100);
    check_dies({ tc_free_sized(object, 1000); }, "free_sized(", SIGABRT);
}

TEST(a_free_of_the_other_family_is_checked) {
    void *object = tc_malloc(100);
    tc_free(object);
    check_dies({ tc_free(object); }, "is already free", SIGABRT);
}

TEST(the_version_is_that_of_the_interface) {
    int major = 0, minor = 0;
    const char *patch = NULL;
    check_str(tc_version(&major, &minor, &patch), "gperftools 2.10 (tally)");
    check_eq(major, 2);
    check_eq(minor, 10);
    check_str(patch, "");
    check(tc_version(NULL, NULL, NULL) != NULL);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo */
TEST(information_is_about_tallys_heap) {
    kept = malloc(10 * MIB);
    struct mallinfo info = tc_mallinfo();
    check(info.uordblks >= 10 * MIB && info.uordblks < 11 * MIB);
    check_eq(info.arena, info.uordblks + info.fordblks + info.fsmblks);
    check_eq(tc_mallopt(1, 1), 1);
    free(kept);
}

TEST(statistics_go_to_standard_error) {
    int ends[2];
    char text[8192];
    check_eq(pipe(ends), 0);
    check_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    tc_malloc_stats();
    ssize_t length = read(ends[0], text, sizeof text - 1);
    check(length > 500);
    text[length] = '\0';
    check(figure(text, "Bytes in use by application") < MIB);
}

#ifdef TALLY_COMPAT_GPERFTOOLS_TCMALLOC_H
TEST(functions_that_came_later_are_there) {
    tc_free_aligned_sized(tc_memalign(64, 100), 64, 100);
    kept = tc_malloc(10 * MIB);
    struct mallinfo2 info = tc_mallinfo2();
    check(info.uordblks >= 10 * MIB && info.uordblks < 11 * MIB);
    tc_free(kept);
    check(MallocExtension_GetMemoryReleaseRate() == 1);
    MallocExtension_SetMemoryReleaseRate(4);
    check(MallocExtension_GetMemoryReleaseRate() == 4);
    MallocExtension_SetMemoryReleaseRate(0);
    check(MallocExtension_GetMemoryReleaseRate() == 0);
    MallocExtension_SetMemoryReleaseRate(-1);
    check(MallocExtension_GetMemoryReleaseRate() == 0);
}
#endif

/* ---------------------------------------------------------------- profiles */

static const char *module_of(uintptr_t address) {
    Dl_info info;
    return dladdr((void *)address, &info) != 0 ? info.dli_fname : "";
}

/* Its only objects of this size, one from each function. */
static void __attribute__((noinline)) allocate_marked(void) {
    kept = tc_malloc(33333);
    kept = tc_calloc(1, 33333);
    kept = tc_memalign(64, 33333);
    kept = tc_realloc(NULL, 33333);
}

TEST(profiles_begin_with_the_function_that_called) {
    char folder[] = "/tmp/tally-test.XXXXXX";
    check(mkdtemp(folder) != NULL && chdir(folder) == 0);
    check_eq(IsHeapProfilerRunning(), 0);
    HeapProfilerStart("profile");
    check_eq(IsHeapProfilerRunning(), 1);
    allocate_marked();
    char *text = GetHeapProfile();
    HeapProfilerStop();
    check_eq(IsHeapProfilerRunning(), 0);
    int stacks = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        unsigned long objects, bytes, leaf;
        if (sscanf(line, " %lu: %lu [%*[^]]] @ 0x%lx", &objects, &bytes, &leaf) == 3 &&
            objects == 1 && bytes >= 33333 && bytes < 45000) {
            stacks++;
            check_str(module_of(leaf), module_of((uintptr_t)allocate_marked));
        }
    }
    check_eq(stacks, 4);
    free(text);
    check_eq(chdir("/"), 0);
    check_eq(rmdir(folder), 0);
}

static int count_files(const char *format) {
    int count = 0;
    for (int number = 1; number < 10; number++) {
        char name[32];
        snprintf(name, sizeof name, format, number);
        count += unlink(name) == 0;
    }
    return count;
}

TEST(profiles_are_written_when_asked_for) {
    char folder[] = "/tmp/tally-test.XXXXXX";
    check(mkdtemp(folder) != NULL && chdir(folder) == 0);
    HeapProfilerStart("profile");
    HeapProfilerDump("first");
    HeapProfilerDump("second");
    HeapProfilerStop();
    HeapProfilerDump("third");
    check_eq(count_files("profile.%04d.heap"), 2);
    check_eq(chdir("/"), 0);
    check_eq(rmdir(folder), 0);
}

/* ---------------------------------------------------------------- time */

static void use_time(void) {
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < 100000000);
}

static struct ProfilerState state(void) {
    struct ProfilerState now;
    memset(&now, 1, sizeof now);
    ProfilerGetCurrentState(&now);
    check_eq(now.enabled, ProfilingIsEnabledForAllThreads() != 0);
    return now;
}

TEST(time_is_profiled_from_start_to_stop) {
    char folder[] = "/tmp/tally-test.XXXXXX";
    check(mkdtemp(folder) != NULL && chdir(folder) == 0);
    check_eq(state().enabled, 0);
    check_eq(state().samples_gathered, 0);
    check_eq(ProfilerStart("nowhere/profile"), 0);
    check(ProfilerStart("profile") != 0);
    check_eq(ProfilerStart("another"), 0);
    check_eq(state().enabled, 1);
    check_str(state().profile_name, "profile");
    check(time(NULL) - state().start_time < 100);
    ProfilerDisable(); /* without effect */
    ProfilerRegisterThread();
    while (state().samples_gathered == 0) {
        use_time();
    }
    ProfilerEnable();
    ProfilerFlush();
    check_eq(access("profile", R_OK), 0);
    ProfilerStop();
    check_eq(state().enabled, 0);
    uint64_t words[5];
    FILE *file = fopen("profile", "r");
    check(file != NULL && fread(words, sizeof words[0], 5, file) == 5 && fclose(file) == 0);
    check_eq(words[0], 0);
    check_eq(words[1], 3);
    check_eq(words[3], 10000);
    check_eq(unlink("profile"), 0);
    check_eq(chdir("/"), 0);
    check_eq(rmdir(folder), 0);
}

static int asked;

static int drop(void *argument) {
    asked += argument == &asked;
    return 0;
}

TEST(samples_that_the_filter_drops_are_not_gathered) {
    char folder[] = "/tmp/tally-test.XXXXXX";
    struct ProfilerOptions options = {drop, &asked};
    check(mkdtemp(folder) != NULL && chdir(folder) == 0);
    check(ProfilerStartWithOptions("profile", &options) != 0);
    while (asked == 0) {
        use_time();
    }
    check_eq(state().samples_gathered, 0);
    ProfilerStop();
    check_eq(unlink("profile"), 0);
    check_eq(chdir("/"), 0);
    check_eq(rmdir(folder), 0);
}

static void *stack[100];
static int depth;
static char *page;

/* The instruction that faulted is tried again. */
static void look_at_stack(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    depth = ProfilerGetStackTrace(stack, 100, 0, context);
    check_eq(mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
}

static void __attribute__((noinline)) fault_here(void) {
    *(volatile char *)page = 1;
}

TEST(a_handler_sees_the_stack_that_it_interrupts) {
    struct sigaction action = {.sa_sigaction = look_at_stack, .sa_flags = SA_SIGINFO};
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(page != MAP_FAILED);
    check_eq(sigaction(SIGSEGV, &action, NULL), 0);
    fault_here();
    check_eq(*page, 1);
    check(depth > 0 && depth <= 100);
    uintptr_t begin = (uintptr_t)fault_here;
    check((uintptr_t)stack[0] >= begin && (uintptr_t)stack[0] < begin + 64);
}
