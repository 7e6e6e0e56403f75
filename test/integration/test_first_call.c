/* SPDX-License-Identifier: MIT
 *
 * test_first_call.c - every exported function as the very first call: of a process, of a thread,
 * of a child after fork.
 *
 * An allocator initialises itself from whichever function happens to come first, before its own
 * constructor and before libc has finished. The first call of a process is made from
 * .preinit_array, which runs before the constructors of every library; the program starts itself
 * again for each function, with the function's name as argument. The function then returns what
 * it promises, and an ordinary malloc and free follow.
 *
 * The table below has a row for each exported function; test_exports.sh compares it with the
 * exports.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <gperftools/profiler.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

enum { ASKED = 200, ALIGNMENT = 64 };

/* One function pointer in every shape that the table knows. */
union callable {
    void *symbol;
    void *(*size)(size_t);
    void *(*size_nothrow)(size_t, const void *);
    void *(*size_size)(size_t, size_t);
    void *(*size_align_nothrow)(size_t, size_t, const void *);
    void *(*pointer_size)(void *, size_t);
    void *(*pointer_size_size)(void *, size_t, size_t);
    int (*out_size_size)(void **, size_t, size_t);
    void (*free_three)(void *, size_t, size_t);
    size_t (*usable)(void *);
    struct mallinfo (*mallinfo)(void);
    struct mallinfo2 (*mallinfo2)(void);
    int (*two_ints)(int, int);
    int (*trim)(size_t);
    int (*info)(int, FILE *);
    void (*stats)(void);
    size_t (*purge)(void);
    void (*totals)(struct tally_totals *);
    const char *(*version)(void);
    void (*limits)(size_t, size_t);
    void (*on_soft)(void (*)(size_t, void *), void *);
    void *(*size_flags)(size_t, int);
    void *(*pointer_size_flags)(void *, size_t, int);
    size_t (*resize)(void *, size_t, size_t, int);
    size_t (*size_for)(size_t, int);
    int (*ctl)(const char *, void *, size_t *, void *, size_t);
    int (*ctl_mib)(const char *, size_t *, size_t *);
    int (*ctl_by_mib)(const size_t *, size_t, void *, size_t *, void *, size_t);
    void (*print)(void (*)(void *, const char *), void *, const char *);
    int (*pointer_int)(void *, int);
    void (*heap_profiler)(const char *);
    unsigned long long (*moment)(void);
    int (*leak_check)(struct tally_leaks *, unsigned long long, const char *);
    int (*root)(const void *, size_t);
    void (*checker)(void *, const char *);
    void (*nothing)(void *);
    char *(*heap_profile)(void);
    int (*blocks)(int *, size_t *, int *);
    void (*text)(char *, int);
    int (*property)(const char *, size_t *);
    int (*set_property)(const char *, size_t);
    double (*rate)(void);
    void (*set_rate)(double);
    void *(*instance)(void);
    void (*cpu_state)(struct ProfilerState *);
    int (*cpu_stack)(void **, int, int, const void *);
    void *(*map)(void *, size_t, int, int, int, off_t);
    int (*unmap)(void *, size_t);
    void *(*remap)(void *, size_t, size_t, int, ...);
    void *(*move_break)(intptr_t);
    int (*control)(int, ...);
    void *(*open)(const char *, int);
};

static bool good_block(void *p, size_t alignment) {
    if (p == NULL || (uintptr_t)p % alignment != 0) {
        return false;
    }
    memset(p, 0xa5, ASKED);
    free(p);
    return true;
}

static bool good_out_block(union callable f) {
    void *p = NULL;
    return f.out_size_size(&p, ALIGNMENT, ASKED) == 0 && good_block(p, ALIGNMENT);
}

static bool good_totals(union callable f) {
    struct tally_totals totals;
    memset(&totals, 0xff, sizeof totals);
    f.totals(&totals);
    return totals.live < (size_t)1 << 40 && totals.mapped < (size_t)1 << 40;
}

static bool good_report(union callable f) {
    FILE *file = fopen("/dev/null", "w");
    bool good = file != NULL && f.info(0, file) == 0;
    return good && fclose(file) == 0;
}

static void count_call(void *opaque, const char *text) {
    *(size_t *)opaque += text[0] != '\0';
}

static bool good_print(union callable f) {
    size_t calls = 0;
    f.print(count_call, &calls, "");
    return calls > 0;
}

/* There is no call of xallocx without an object, so the one before it is the first. */
static bool good_resize(union callable f) {
    char *p = malloc(100000);
    bool good = p != NULL && f.resize(p, 1, 99999, 0) == malloc_usable_size(p);
    free(p);
    return good;
}

static bool good_ctl(union callable f) {
    const char *version = NULL;
    size_t bytes = sizeof version;
    return f.ctl("version", &version, &bytes, NULL, 0) == 0 && version != NULL;
}

static bool good_mib(union callable f) {
    size_t mib[4];
    size_t length = 4;
    return f.ctl_mib("arenas.narenas", mib, &length) == 0 && length == 2;
}

/* The profiler is not running, so there is nothing to tell. */
static bool good_profile(union callable f) {
    char *text = f.heap_profile();
    bool good = text != NULL && text[0] == '\0';
    free(text);
    return good;
}

static bool good_blocks(union callable f) {
    int count = -1, histogram[64];
    size_t total = (size_t)1 << 62;
    return f.blocks(&count, &total, histogram) == 1 && count >= 0 && total < (size_t)1 << 40;
}

static bool good_text(union callable f) {
    char text[32];
    f.text(text, sizeof text);
    return strlen(text) == sizeof text - 1 && text[0] == '-';
}

static bool good_property(union callable f) {
    size_t value = (size_t)1 << 62;
    return f.property("generic.heap_size", &value) == 1 && value < (size_t)1 << 40 &&
           f.property("generic.nothing", &value) == 0;
}

static bool good_state(union callable f) {
    struct ProfilerState state = {.enabled = 7, .samples_gathered = 7};
    f.cpu_state(&state);
    return state.enabled == 0 && state.samples_gathered == 0 && state.profile_name[0] == '\0';
}

static bool good_stack(union callable f) {
    void *addresses[2];
    int count = f.cpu_stack(addresses, 2, 0, NULL);
    return count >= 0 && count <= 2 && f.cpu_stack(addresses, 0, 0, NULL) == 0;
}

static bool good_map(union callable f) {
    char *p = f.map(NULL, ASKED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return false;
    }
    p[ASKED - 1] = 1;
    return f.map(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
           errno == EINVAL && munmap(p, ASKED) == 0;
}

/* Nothing is mapped at the first pages, and an odd address is refused. */
static bool good_unmap(union callable f) {
    return f.unmap(NULL, 4096) == 0 && f.unmap((void *)1, 4096) == -1 && errno == EINVAL;
}

static bool good_remap(union callable f) {
    return f.remap(NULL, 65536, 131072, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT;
}

static long region[4];
static long checker_fields[7]; /* of a HeapLeakChecker */

static bool good_leak_check(union callable f) {
    struct tally_leaks leaks;
    return f.leak_check(&leaks, 0, NULL) == 0 && leaks.definite_objects < 100;
}

static bool good_break(union callable f) {
    char *before = f.move_break(10000);
    return before != (void *)-1 && f.move_break(0) == before + 10000 &&
           f.move_break(-10000) == before + 10000 && f.move_break(0) == before;
}

/* ---------------------------------------------------------------- ways to call */

/* What each function is called with first; true when it did what it promises. */

/* void *f(size_t) */
static bool as_size(union callable f) {
    return good_block(f.size(ASKED), 16);
}

/* void *f(size_t, const nothrow_t &) */
static bool as_size_nothrow(union callable f) {
    return good_block(f.size_nothrow(ASKED, "nothrow"), 16);
}

/* void *f(size_t, size_t) */
static bool as_count_size(union callable f) {
    return good_block(f.size_size(2, ASKED / 2), 16);
}

/* void *f(void *, size_t) */
static bool as_null_size(union callable f) {
    return good_block(f.pointer_size(NULL, ASKED), 16);
}

/* void *f(void *, size_t, size_t) */
static bool as_null_count_size(union callable f) {
    return good_block(f.pointer_size_size(NULL, 2, ASKED / 2), 16);
}

/* void *f(size_t alignment, size_t) */
static bool as_align_size(union callable f) {
    return good_block(f.size_size(ALIGNMENT, ASKED), ALIGNMENT);
}

/* void *f(size_t, size_t alignment), and with nothrow_t */
static bool as_size_align(union callable f) {
    return good_block(f.size_align_nothrow(ASKED, ALIGNMENT, "nothrow"), ALIGNMENT);
}

/* int f(void **, size_t, size_t) */
static bool as_out_align_size(union callable f) {
    return good_out_block(f);
}

/* void f(void *), void f(void *, size_t), void f(void *, size_t, size_t) */
static bool as_free_null(union callable f) {
    f.free_three(NULL, 16, 16);
    return true;
}

/* size_t f(void *) */
static bool as_usable(union callable f) {
    return f.usable(NULL) == 0;
}

static bool as_mallinfo(union callable f) {
    return f.mallinfo().uordblks >= 0;
}

static bool as_mallopt(union callable f) {
    return f.two_ints(M_ARENA_MAX, 2) == 1;
}

static bool as_info(union callable f) {
    return good_report(f);
}

static bool as_mallinfo2(union callable f) {
    return f.mallinfo2().uordblks < (size_t)1 << 40;
}

static bool as_trim(union callable f) {
    return (unsigned)f.trim(0) <= 1;
}

/* void f(void) */
static bool as_stats(union callable f) {
    f.stats();
    return true;
}

/* size_t f(void) */
static bool as_purge(union callable f) {
    return f.purge() < (size_t)1 << 40;
}

/* void f(size_t) */
static bool as_purge_some(union callable f) {
    f.limits(1, 0);
    return true;
}

/* void f(struct tally_totals *) */
static bool as_totals(union callable f) {
    return good_totals(f);
}

/* const char *f(void) */
static bool as_version(union callable f) {
    return f.version() != NULL && strcmp(f.version(), TALLY_VERSION) == 0;
}

/* void f(size_t, size_t) */
static bool as_limits(union callable f) {
    f.limits(0, (size_t)1 << 30);
    return true;
}

/* void f(void (*)(size_t, void *), void *) */
static bool as_on_soft(union callable f) {
    f.on_soft(NULL, NULL);
    return true;
}

/* void *f(size_t, int) */
static bool as_size_flags(union callable f) {
    return good_block(f.size_flags(ASKED, 0x40 | 6), ALIGNMENT);
}

/* void *f(void *, size_t, int) */
static bool as_null_size_flags(union callable f) {
    return good_block(f.pointer_size_flags(NULL, ASKED, 0x100), 16);
}

/* size_t f(void *, size_t, size_t, int) */
static bool as_resize(union callable f) {
    return good_resize(f);
}

/* size_t f(size_t, int) */
static bool as_size_for(union callable f) {
    return f.size_for(ASKED, 0) >= ASKED && f.size_for(ASKED, 0) < 2 * ASKED;
}

/* mallctl */
static bool as_ctl(union callable f) {
    return good_ctl(f);
}

/* mallctlnametomib */
static bool as_ctl_mib(union callable f) {
    return good_mib(f);
}

/* mallctlbymib */
static bool as_ctl_by_mib(union callable f) {
    return f.ctl_by_mib(NULL, 0, NULL, NULL, NULL, 0) == ENOENT;
}

/* malloc_stats_print */
static bool as_print(union callable f) {
    return good_print(f);
}

/* int f(size_t), 0 */
static bool as_done(union callable f) {
    return f.trim(1 << 20) == 0;
}

/* int f(size_t), EINVAL */
static bool as_refused(union callable f) {
    return f.trim(1 << 20) == EINVAL;
}

/* int f(void *, int), ENOENT */
static bool as_never_armed(union callable f) {
    return f.pointer_int(NULL, 0) == ENOENT;
}

/* void f(const char *) */
static bool as_heap_profiler(union callable f) {
    f.heap_profiler(NULL);
    return true;
}

/* char *f(void) */
static bool as_heap_profile(union callable f) {
    return good_profile(f);
}

/* int f(const void *), 1 */
static bool as_live(union callable f) {
    return f.pointer_int(NULL, 0) == 1;
}

/* int f(const void *), 2 */
static bool as_not_owned(union callable f) {
    return f.pointer_int(NULL, 0) == 2;
}

/* int f(int *, size_t *, int *) */
static bool as_blocks(union callable f) {
    return good_blocks(f);
}

/* void f(char *, int) */
static bool as_text(union callable f) {
    return good_text(f);
}

/* int f(const char *, size_t *) */
static bool as_property(union callable f) {
    return good_property(f);
}

/* int f(const char *, size_t) */
static bool as_set_property(union callable f) {
    return f.set_property("tcmalloc.heap_limit_mb", 0) == 1;
}

/* double f(void) */
static bool as_rate(union callable f) {
    return f.rate() == 1;
}

/* void f(double) */
static bool as_set_rate(union callable f) {
    f.set_rate(2);
    return true;
}

/* void *f(void) */
static bool as_instance(union callable f) {
    return f.instance() != NULL;
}

/* void f(struct ProfilerState *) */
static bool as_cpu_state(union callable f) {
    return good_state(f);
}

/* int f(void **, int, int, const void *) */
static bool as_cpu_stack(union callable f) {
    return good_stack(f);
}

/* a pointer, NULL at first */
static bool as_variable(union callable f) {
    return *(void **)f.symbol == NULL;
}

/* void *f(void *, size_t, int, int, int, off_t) */
static bool as_map(union callable f) {
    return good_map(f);
}

/* int f(void *, size_t) */
static bool as_unmap(union callable f) {
    return good_unmap(f);
}

/* void *f(void *, size_t, size_t, int, ...) */
static bool as_remap(union callable f) {
    return good_remap(f);
}

/* void *f(intptr_t) */
static bool as_break(union callable f) {
    return good_break(f);
}

/* void *f(const char *, int) */
static bool as_open(union callable f) {
    return f.open(NULL, RTLD_NOW) != NULL && f.open("/nowhere", RTLD_NOW | RTLD_DEEPBIND) == NULL;
}

/* int f(int, ...) */
static bool as_control(union callable f) {
    char name[16] = "";
    return f.control(PR_GET_NAME, name) == 0 && name[0] != 0 && f.control(-1, 0) == -1 &&
           errno == EINVAL;
}

/* unsigned long long f(void), not 0 */
static bool as_moment(union callable f) {
    return f.moment() != 0;
}

/* int f(struct tally_leaks *, unsigned long long, const char *) */
static bool as_leak_check(union callable f) {
    return good_leak_check(f);
}

/* int f(const void *, size_t), 0; or void */
static bool as_root(union callable f) {
    return f.root(&region, sizeof region) != EINVAL;
}

/* the same, EINVAL */
static bool as_no_root(union callable f) {
    return f.root(&region, sizeof region) == EINVAL;
}

/* void f(HeapLeakChecker *, const char *), or without the name; its fields are all 0 */
static bool as_checker(union callable f) {
    f.checker(checker_fields, "first");
    return true;
}

/* any f(void *) that does nothing for NULL */
static bool as_nothing(union callable f) {
    f.nothing(NULL);
    return true;
}

static const struct row {
    const char *name;
    bool (*call)(union callable f); /* true: the answer is right */
} rows[] = {
    {"malloc", as_size},
    {"calloc", as_count_size},
    {"realloc", as_null_size},
    {"reallocarray", as_null_count_size},
    {"free", as_free_null},
    {"cfree", as_free_null},
    {"free_sized", as_free_null},
    {"free_aligned_sized", as_free_null},
    {"posix_memalign", as_out_align_size},
    {"aligned_alloc", as_align_size},
    {"memalign", as_align_size},
    {"valloc", as_size},
    {"pvalloc", as_size},
    {"malloc_usable_size", as_usable},
    {"mallinfo", as_mallinfo},
    {"mallinfo2", as_mallinfo2},
    {"mallopt", as_mallopt},
    {"malloc_trim", as_trim},
    {"malloc_info", as_info},
    {"malloc_stats", as_stats},
    {"__libc_malloc", as_size},
    {"__libc_calloc", as_count_size},
    {"__libc_realloc", as_null_size},
    {"__libc_free", as_free_null},
    {"__libc_cfree", as_free_null},
    {"__libc_memalign", as_align_size},
    {"__libc_valloc", as_size},
    {"__libc_pvalloc", as_size},
    {"__libc_mallopt", as_mallopt},
    {"__libc_mallinfo", as_mallinfo},
    {"__posix_memalign", as_out_align_size},
    {"_Znwm", as_size},
    {"_Znam", as_size},
    {"_ZnwmRKSt9nothrow_t", as_size_nothrow},
    {"_ZnamRKSt9nothrow_t", as_size_nothrow},
    {"_ZnwmSt11align_val_t", as_size_align},
    {"_ZnamSt11align_val_t", as_size_align},
    {"_ZnwmSt11align_val_tRKSt9nothrow_t", as_size_align},
    {"_ZnamSt11align_val_tRKSt9nothrow_t", as_size_align},
    {"_ZdlPv", as_free_null},
    {"_ZdaPv", as_free_null},
    {"_ZdlPvm", as_free_null},
    {"_ZdaPvm", as_free_null},
    {"_ZdlPvRKSt9nothrow_t", as_free_null},
    {"_ZdaPvRKSt9nothrow_t", as_free_null},
    {"_ZdlPvSt11align_val_t", as_free_null},
    {"_ZdaPvSt11align_val_t", as_free_null},
    {"_ZdlPvmSt11align_val_t", as_free_null},
    {"_ZdaPvmSt11align_val_t", as_free_null},
    {"_ZdlPvSt11align_val_tRKSt9nothrow_t", as_free_null},
    {"_ZdaPvSt11align_val_tRKSt9nothrow_t", as_free_null},
    {"mallocx", as_size_flags},
    {"rallocx", as_null_size_flags},
    {"xallocx", as_resize},
    {"sallocx", as_usable},
    {"dallocx", as_free_null},
    {"sdallocx", as_free_null},
    {"nallocx", as_size_for},
    {"mallctl", as_ctl},
    {"mallctlnametomib", as_ctl_mib},
    {"mallctlbymib", as_ctl_by_mib},
    {"malloc_stats_print", as_print},
    {"malloc_message", as_variable},
    {"malloc_conf", as_variable},
    {"malloc_conf_2_conf_harder", as_variable},
    {"je_malloc", as_size},
    {"je_calloc", as_count_size},
    {"je_realloc", as_null_size},
    {"je_free", as_free_null},
    {"je_free_sized", as_free_null},
    {"je_free_aligned_sized", as_free_null},
    {"je_posix_memalign", as_out_align_size},
    {"je_aligned_alloc", as_align_size},
    {"je_memalign", as_align_size},
    {"je_valloc", as_size},
    {"je_pvalloc", as_size},
    {"je_malloc_usable_size", as_usable},
    {"je_mallocx", as_size_flags},
    {"je_rallocx", as_null_size_flags},
    {"je_xallocx", as_resize},
    {"je_sallocx", as_usable},
    {"je_dallocx", as_free_null},
    {"je_sdallocx", as_free_null},
    {"je_nallocx", as_size_for},
    {"je_mallctl", as_ctl},
    {"je_mallctlnametomib", as_ctl_mib},
    {"je_mallctlbymib", as_ctl_by_mib},
    {"je_malloc_stats_print", as_print},
    {"je_malloc_message", as_variable},
    {"je_malloc_conf", as_variable},
    {"je_malloc_conf_2_conf_harder", as_variable},
    {"tally_malloc", as_size},
    {"tally_calloc", as_count_size},
    {"tally_realloc", as_null_size},
    {"tally_reallocarray", as_null_count_size},
    {"tally_free", as_free_null},
    {"tally_free_sized", as_free_null},
    {"tally_free_aligned_sized", as_free_null},
    {"tally_posix_memalign", as_out_align_size},
    {"tally_aligned_alloc", as_align_size},
    {"tally_memalign", as_align_size},
    {"tally_valloc", as_size},
    {"tally_pvalloc", as_size},
    {"tally_usable_size", as_usable},
    {"tally_purge", as_purge},
    {"tally_totals", as_totals},
    {"tally_held", as_purge},
    {"tally_set_limits", as_limits},
    {"tally_on_soft_limit", as_on_soft},
    {"tally_verify", as_stats},
    {"tally_version", as_version},
    {"tally_profile_start", as_done},
    {"tally_profile_stop", as_done},
    {"tally_profile_reset", as_done},
    {"tally_control_start", as_refused},
    {"tally_control_stop", as_done},
    {"tally_profile_dump", as_never_armed},
    {"tally_profile_dump_fd", as_never_armed},
    {"tally_profile_dump_peak", as_never_armed},
    {"IsHeapProfilerRunning", as_done},
    {"HeapProfilerStart", as_heap_profiler},
    {"HeapProfilerStop", as_heap_profiler},
    {"HeapProfilerDump", as_heap_profiler},
    {"GetHeapProfile", as_heap_profile},
    {"MallocExtension_VerifyAllMemory", as_live},
    {"MallocExtension_VerifyNewMemory", as_live},
    {"MallocExtension_VerifyArrayNewMemory", as_live},
    {"MallocExtension_VerifyMallocMemory", as_live},
    {"MallocExtension_MallocMemoryStats", as_blocks},
    {"MallocExtension_GetStats", as_text},
    {"MallocExtension_GetNumericProperty", as_property},
    {"MallocExtension_SetNumericProperty", as_set_property},
    {"MallocExtension_MarkThreadIdle", as_stats},
    {"MallocExtension_MarkThreadBusy", as_stats},
    {"MallocExtension_MarkThreadTemporarilyIdle", as_stats},
    {"MallocExtension_ReleaseToSystem", as_purge_some},
    {"MallocExtension_ReleaseFreeMemory", as_stats},
    {"MallocExtension_SetMemoryReleaseRate", as_set_rate},
    {"MallocExtension_GetMemoryReleaseRate", as_rate},
    {"MallocExtension_GetEstimatedAllocatedSize", as_size_for},
    {"MallocExtension_GetAllocatedSize", as_usable},
    {"MallocExtension_GetThreadCacheSize", as_purge},
    {"MallocExtension_GetOwnership", as_not_owned},
    {"_ZN15MallocExtension8instanceEv", as_instance},
    {"_ZN15MallocExtension8RegisterEPS_", as_free_null},
    {"_ZN15MallocExtension10InitializeEv", as_stats},
    {"ProfilerStart", as_heap_profiler},
    {"ProfilerStartWithOptions", as_heap_profiler},
    {"ProfilerStop", as_heap_profiler},
    {"ProfilerFlush", as_heap_profiler},
    {"ProfilerEnable", as_heap_profiler},
    {"ProfilerDisable", as_heap_profiler},
    {"ProfilerRegisterThread", as_heap_profiler},
    {"ProfilingIsEnabledForAllThreads", as_done},
    {"ProfilerGetCurrentState", as_cpu_state},
    {"ProfilerGetStackTrace", as_cpu_stack},
    {"tally_leak_mark", as_moment},
    {"tally_leak_check", as_leak_check},
    {"tally_leak_disable", as_stats},
    {"tally_leak_enable", as_stats},
    {"tally_leak_ignore", as_refused},
    {"tally_leak_unignore", as_refused},
    {"tally_leak_add_root", as_root},
    {"tally_leak_remove_root", as_no_root},
    {"__lsan_do_leak_check", as_stats},
    {"__lsan_do_recoverable_leak_check", as_done},
    {"__lsan_disable", as_stats},
    {"__lsan_enable", as_stats},
    {"__lsan_ignore_object", as_nothing},
    {"__lsan_register_root_region", as_root},
    {"__lsan_unregister_root_region", as_nothing},
    {"_ZN15HeapLeakChecker8IsActiveEv", as_nothing},
    {"_ZN15HeapLeakChecker13GlobalCheckerEv", as_nothing},
    {"_ZN15HeapLeakChecker13NoGlobalLeaksEv", as_nothing},
    {"_ZN15HeapLeakChecker17CancelGlobalCheckEv", as_nothing},
    {"_ZN15HeapLeakCheckerC1EPKc", as_checker},
    {"_ZN15HeapLeakCheckerC2EPKc", as_checker},
    {"_ZN15HeapLeakCheckerD1Ev", as_checker},
    {"_ZN15HeapLeakCheckerD2Ev", as_checker},
    {"_ZN15HeapLeakChecker9DoNoLeaksENS_15ShouldSymbolizeE", as_checker},
    {"_ZNK15HeapLeakChecker11BytesLeakedEv", as_checker},
    {"_ZNK15HeapLeakChecker13ObjectsLeakedEv", as_checker},
    {"_ZN15HeapLeakChecker14DoIgnoreObjectEPKv", as_nothing},
    {"_ZN15HeapLeakChecker14UnIgnoreObjectEPKv", as_nothing},
    {"_ZN15HeapLeakChecker8DisablerC1Ev", as_nothing},
    {"_ZN15HeapLeakChecker8DisablerC2Ev", as_nothing},
    {"_ZN15HeapLeakChecker8DisablerD1Ev", as_nothing},
    {"_ZN15HeapLeakChecker8DisablerD2Ev", as_nothing},
    {"_ZN11HeapCleanerC1EPFvvE", as_nothing},
    {"_ZN11HeapCleanerC2EPFvvE", as_nothing},
    {"_ZN11HeapCleaner15RunHeapCleanupsEv", as_nothing},
    {"mmap", as_map},
    {"mmap64", as_map},
    {"munmap", as_unmap},
    {"mremap", as_remap},
    {"sbrk", as_break},
    {"prctl", as_control},
    {"dlopen", as_open},
};

enum { ROWS = sizeof rows / sizeof *rows };

/* What follows must work whatever came first. */
static bool heap_works(void) {
    for (size_t size = 1; size < 300000; size = size * 2 + 1) {
        void *p = malloc(size);
        if (p == NULL || malloc_usable_size(p) < size) {
            return false;
        }
        memset(p, 1, size);
        free(p);
    }
    return true;
}

enum verdict { GOOD = 0, NOT_DEFINED = 3, BROKEN = 4 };

/* Defined where this file is linked statically, by test_static.sh: there dlsym finds nothing. */
void *look_up_static(const char *name) __attribute__((weak));

static enum verdict try_row(const struct row *row) {
    union callable f;
    f.symbol = look_up_static != NULL ? look_up_static(row->name) : dlsym(RTLD_DEFAULT, row->name);
    if (f.symbol == NULL) {
        return NOT_DEFINED;
    }
    return row->call(f) && heap_works() ? GOOD : BROKEN;
}

/* Runs before every constructor. With the argument --first NAME the process makes that call and
 * ends. */
static void before_constructors(int argc, char **argv, char **environment) {
    (void)environment;
    if (argc != 3 || strcmp(argv[1], "--first") != 0) {
        return;
    }
    for (size_t i = 0; i < ROWS; i++) {
        if (strcmp(argv[2], rows[i].name) == 0) {
            _exit(try_row(&rows[i]));
        }
    }
    _exit(NOT_DEFINED);
}

__attribute__((section(".preinit_array"),
               used)) static void (*const first_of_all)(int, char **,
                                                        char **) = before_constructors;

/* Waits for the process that made the call and names the function if it went wrong. All rows are
 * tried before the test fails, so that one run shows every gap. */
static bool good_verdict(const struct row *row, pid_t pid, const char *where) {
    char number[24];
    int status = 0;
    check_eq(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == GOOD) {
        return true;
    }
    if (WIFSIGNALED(status)) {
        test_say("    ", row->name, " ", where, ": signal ", test_decimal(number, WTERMSIG(status)),
                 "\n", NULL);
    } else {
        test_say("    ", row->name, " ", where,
                 WEXITSTATUS(status) == NOT_DEFINED ? ": not defined\n" : ": wrong result\n", NULL);
    }
    return false;
}

/* malloc_stats writes there. The descriptor is replaced, not the stream, which stays unbuffered. */
static void silence_stderr(void) {
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    check(dup2(fd, STDERR_FILENO) == STDERR_FILENO);
}

static void check_first_calls(char *binding, const char *where) {
    char *environment[] = {binding, NULL};
    int bad = 0;
    silence_stderr();
    for (size_t i = 0; i < ROWS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            execle("/proc/self/exe", "test_first_call", "--first", rows[i].name, NULL, environment);
            _exit(127);
        }
        bad += !good_verdict(&rows[i], pid, where);
    }
    check_eq(bad, 0);
}

TEST(every_function_may_be_the_first_call_of_a_process) {
    char lazily[] = "LD_BIND_NOW=";
    check_first_calls(lazily, "as first call of a process");
}

TEST(every_function_may_be_the_first_call_of_a_process_that_binds_at_once) {
    char at_once[] = "LD_BIND_NOW=1";
    check_first_calls(at_once, "as first call of a process that binds at once");
}

static void *thread_main(void *row) {
    _exit(try_row(row));
}

TEST(every_function_may_be_the_first_call_of_a_thread) {
    int bad = 0;
    silence_stderr();
    for (size_t i = 0; i < ROWS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            pthread_t thread;
            pthread_create(&thread, NULL, thread_main, (void *)(uintptr_t)&rows[i]);
            pthread_join(thread, NULL);
            _exit(BROKEN);
        }
        bad += !good_verdict(&rows[i], pid, "as first call of a thread");
    }
    check_eq(bad, 0);
}

TEST(every_function_may_be_the_first_call_after_fork) {
    int bad = 0;
    silence_stderr();
    for (size_t i = 0; i < ROWS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            _exit(try_row(&rows[i]));
        }
        bad += !good_verdict(&rows[i], pid, "as first call after fork");
    }
    check_eq(bad, 0);
}
