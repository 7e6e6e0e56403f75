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
#include <sys/wait.h>
#include <tally/tally.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

/* How a function is called; the letters are its arguments. */
enum shape {
    SIZE,            /* void *f(size_t) */
    SIZE_NOTHROW,    /* void *f(size_t, const nothrow_t &) */
    COUNT_SIZE,      /* void *f(size_t, size_t) */
    NULL_SIZE,       /* void *f(void *, size_t) */
    NULL_COUNT_SIZE, /* void *f(void *, size_t, size_t) */
    ALIGN_SIZE,      /* void *f(size_t alignment, size_t) */
    SIZE_ALIGN,      /* void *f(size_t, size_t alignment), and with nothrow_t */
    OUT_ALIGN_SIZE,  /* int f(void **, size_t, size_t) */
    FREE_NULL,       /* void f(void *), void f(void *, size_t), void f(void *, size_t, size_t) */
    USABLE,          /* size_t f(void *) */
    MALLINFO,
    MALLINFO2,
    MALLOPT,
    TRIM,
    INFO,
    STATS,
    PURGE,           /* size_t f(void) */
    PURGE_SOME,      /* void f(size_t) */
    TOTALS,          /* void f(struct tally_totals *) */
    VERIFY,          /* void f(void) */
    VERSION,         /* const char *f(void) */
    LIMITS,          /* void f(size_t, size_t) */
    ON_SOFT,         /* void f(void (*)(size_t, void *), void *) */
    SIZE_FLAGS,      /* void *f(size_t, int) */
    NULL_SIZE_FLAGS, /* void *f(void *, size_t, int) */
    RESIZE,          /* size_t f(void *, size_t, size_t, int) */
    SIZE_FOR,        /* size_t f(size_t, int) */
    CTL,             /* mallctl */
    CTL_MIB,         /* mallctlnametomib */
    CTL_BY_MIB,      /* mallctlbymib */
    PRINT,           /* malloc_stats_print */
    DONE,            /* int f(size_t), 0 */
    REFUSED,         /* int f(size_t), EINVAL */
    NEVER_ARMED,     /* int f(void *, int), ENOENT */
    HEAP_PROFILER,   /* void f(const char *) */
    HEAP_PROFILE,    /* char *f(void) */
    LIVE,            /* int f(const void *), 1 */
    NOT_OWNED,       /* int f(const void *), 2 */
    BLOCKS,          /* int f(int *, size_t *, int *) */
    TEXT,            /* void f(char *, int) */
    PROPERTY,        /* int f(const char *, size_t *) */
    SET_PROPERTY,    /* int f(const char *, size_t) */
    RATE,            /* double f(void) */
    SET_RATE,        /* void f(double) */
    INSTANCE,        /* void *f(void) */
    CPU_STATE,       /* void f(struct ProfilerState *) */
    CPU_STACK,       /* int f(void **, int, int, const void *) */
    VARIABLE,        /* a pointer, NULL at first */
    MAP,             /* void *f(void *, size_t, int, int, int, off_t) */
    UNMAP,           /* int f(void *, size_t) */
    REMAP,           /* void *f(void *, size_t, size_t, int, ...) */
    BREAK,           /* void *f(intptr_t) */
    MOMENT,          /* unsigned long long f(void), not 0 */
    LEAK_CHECK,      /* int f(struct tally_leaks *, unsigned long long, const char *) */
    ROOT,            /* int f(const void *, size_t), 0; or void */
    NO_ROOT,         /* the same, EINVAL */
    CHECKER, /* void f(HeapLeakChecker *, const char *), or without the name; its fields are all 0 */
    NOTHING, /* any f(void *) that does nothing for NULL */
};

static const struct row {
    const char *name;
    enum shape shape;
} rows[] = {
    {"malloc", SIZE},
    {"calloc", COUNT_SIZE},
    {"realloc", NULL_SIZE},
    {"reallocarray", NULL_COUNT_SIZE},
    {"free", FREE_NULL},
    {"cfree", FREE_NULL},
    {"free_sized", FREE_NULL},
    {"free_aligned_sized", FREE_NULL},
    {"posix_memalign", OUT_ALIGN_SIZE},
    {"aligned_alloc", ALIGN_SIZE},
    {"memalign", ALIGN_SIZE},
    {"valloc", SIZE},
    {"pvalloc", SIZE},
    {"malloc_usable_size", USABLE},
    {"mallinfo", MALLINFO},
    {"mallinfo2", MALLINFO2},
    {"mallopt", MALLOPT},
    {"malloc_trim", TRIM},
    {"malloc_info", INFO},
    {"malloc_stats", STATS},
    {"__libc_malloc", SIZE},
    {"__libc_calloc", COUNT_SIZE},
    {"__libc_realloc", NULL_SIZE},
    {"__libc_free", FREE_NULL},
    {"__libc_cfree", FREE_NULL},
    {"__libc_memalign", ALIGN_SIZE},
    {"__libc_valloc", SIZE},
    {"__libc_pvalloc", SIZE},
    {"__libc_mallopt", MALLOPT},
    {"__libc_mallinfo", MALLINFO},
    {"__posix_memalign", OUT_ALIGN_SIZE},
    {"_Znwm", SIZE},
    {"_Znam", SIZE},
    {"_ZnwmRKSt9nothrow_t", SIZE_NOTHROW},
    {"_ZnamRKSt9nothrow_t", SIZE_NOTHROW},
    {"_ZnwmSt11align_val_t", SIZE_ALIGN},
    {"_ZnamSt11align_val_t", SIZE_ALIGN},
    {"_ZnwmSt11align_val_tRKSt9nothrow_t", SIZE_ALIGN},
    {"_ZnamSt11align_val_tRKSt9nothrow_t", SIZE_ALIGN},
    {"_ZdlPv", FREE_NULL},
    {"_ZdaPv", FREE_NULL},
    {"_ZdlPvm", FREE_NULL},
    {"_ZdaPvm", FREE_NULL},
    {"_ZdlPvRKSt9nothrow_t", FREE_NULL},
    {"_ZdaPvRKSt9nothrow_t", FREE_NULL},
    {"_ZdlPvSt11align_val_t", FREE_NULL},
    {"_ZdaPvSt11align_val_t", FREE_NULL},
    {"_ZdlPvmSt11align_val_t", FREE_NULL},
    {"_ZdaPvmSt11align_val_t", FREE_NULL},
    {"_ZdlPvSt11align_val_tRKSt9nothrow_t", FREE_NULL},
    {"_ZdaPvSt11align_val_tRKSt9nothrow_t", FREE_NULL},
    {"mallocx", SIZE_FLAGS},
    {"rallocx", NULL_SIZE_FLAGS},
    {"xallocx", RESIZE},
    {"sallocx", USABLE},
    {"dallocx", FREE_NULL},
    {"sdallocx", FREE_NULL},
    {"nallocx", SIZE_FOR},
    {"mallctl", CTL},
    {"mallctlnametomib", CTL_MIB},
    {"mallctlbymib", CTL_BY_MIB},
    {"malloc_stats_print", PRINT},
    {"malloc_message", VARIABLE},
    {"malloc_conf", VARIABLE},
    {"malloc_conf_2_conf_harder", VARIABLE},
    {"je_malloc", SIZE},
    {"je_calloc", COUNT_SIZE},
    {"je_realloc", NULL_SIZE},
    {"je_free", FREE_NULL},
    {"je_free_sized", FREE_NULL},
    {"je_free_aligned_sized", FREE_NULL},
    {"je_posix_memalign", OUT_ALIGN_SIZE},
    {"je_aligned_alloc", ALIGN_SIZE},
    {"je_memalign", ALIGN_SIZE},
    {"je_valloc", SIZE},
    {"je_pvalloc", SIZE},
    {"je_malloc_usable_size", USABLE},
    {"je_mallocx", SIZE_FLAGS},
    {"je_rallocx", NULL_SIZE_FLAGS},
    {"je_xallocx", RESIZE},
    {"je_sallocx", USABLE},
    {"je_dallocx", FREE_NULL},
    {"je_sdallocx", FREE_NULL},
    {"je_nallocx", SIZE_FOR},
    {"je_mallctl", CTL},
    {"je_mallctlnametomib", CTL_MIB},
    {"je_mallctlbymib", CTL_BY_MIB},
    {"je_malloc_stats_print", PRINT},
    {"je_malloc_message", VARIABLE},
    {"je_malloc_conf", VARIABLE},
    {"je_malloc_conf_2_conf_harder", VARIABLE},
    {"tally_malloc", SIZE},
    {"tally_calloc", COUNT_SIZE},
    {"tally_realloc", NULL_SIZE},
    {"tally_reallocarray", NULL_COUNT_SIZE},
    {"tally_free", FREE_NULL},
    {"tally_free_sized", FREE_NULL},
    {"tally_free_aligned_sized", FREE_NULL},
    {"tally_posix_memalign", OUT_ALIGN_SIZE},
    {"tally_aligned_alloc", ALIGN_SIZE},
    {"tally_memalign", ALIGN_SIZE},
    {"tally_valloc", SIZE},
    {"tally_pvalloc", SIZE},
    {"tally_usable_size", USABLE},
    {"tally_purge", PURGE},
    {"tally_totals", TOTALS},
    {"tally_held", PURGE},
    {"tally_set_limits", LIMITS},
    {"tally_on_soft_limit", ON_SOFT},
    {"tally_verify", VERIFY},
    {"tally_version", VERSION},
    {"tally_profile_start", DONE},
    {"tally_profile_stop", DONE},
    {"tally_profile_reset", DONE},
    {"tally_control_start", REFUSED},
    {"tally_control_stop", DONE},
    {"tally_profile_dump", NEVER_ARMED},
    {"tally_profile_dump_fd", NEVER_ARMED},
    {"tally_profile_dump_peak", NEVER_ARMED},
    {"IsHeapProfilerRunning", DONE},
    {"HeapProfilerStart", HEAP_PROFILER},
    {"HeapProfilerStop", HEAP_PROFILER},
    {"HeapProfilerDump", HEAP_PROFILER},
    {"GetHeapProfile", HEAP_PROFILE},
    {"MallocExtension_VerifyAllMemory", LIVE},
    {"MallocExtension_VerifyNewMemory", LIVE},
    {"MallocExtension_VerifyArrayNewMemory", LIVE},
    {"MallocExtension_VerifyMallocMemory", LIVE},
    {"MallocExtension_MallocMemoryStats", BLOCKS},
    {"MallocExtension_GetStats", TEXT},
    {"MallocExtension_GetNumericProperty", PROPERTY},
    {"MallocExtension_SetNumericProperty", SET_PROPERTY},
    {"MallocExtension_MarkThreadIdle", VERIFY},
    {"MallocExtension_MarkThreadBusy", VERIFY},
    {"MallocExtension_MarkThreadTemporarilyIdle", VERIFY},
    {"MallocExtension_ReleaseToSystem", PURGE_SOME},
    {"MallocExtension_ReleaseFreeMemory", VERIFY},
    {"MallocExtension_SetMemoryReleaseRate", SET_RATE},
    {"MallocExtension_GetMemoryReleaseRate", RATE},
    {"MallocExtension_GetEstimatedAllocatedSize", SIZE_FOR},
    {"MallocExtension_GetAllocatedSize", USABLE},
    {"MallocExtension_GetThreadCacheSize", PURGE},
    {"MallocExtension_GetOwnership", NOT_OWNED},
    {"_ZN15MallocExtension8instanceEv", INSTANCE},
    {"_ZN15MallocExtension8RegisterEPS_", FREE_NULL},
    {"_ZN15MallocExtension10InitializeEv", VERIFY},
    {"ProfilerStart", HEAP_PROFILER},
    {"ProfilerStartWithOptions", HEAP_PROFILER},
    {"ProfilerStop", HEAP_PROFILER},
    {"ProfilerFlush", HEAP_PROFILER},
    {"ProfilerEnable", HEAP_PROFILER},
    {"ProfilerDisable", HEAP_PROFILER},
    {"ProfilerRegisterThread", HEAP_PROFILER},
    {"ProfilingIsEnabledForAllThreads", DONE},
    {"ProfilerGetCurrentState", CPU_STATE},
    {"ProfilerGetStackTrace", CPU_STACK},
    {"tally_leak_mark", MOMENT},
    {"tally_leak_check", LEAK_CHECK},
    {"tally_leak_disable", VERIFY},
    {"tally_leak_enable", VERIFY},
    {"tally_leak_ignore", REFUSED},
    {"tally_leak_unignore", REFUSED},
    {"tally_leak_add_root", ROOT},
    {"tally_leak_remove_root", NO_ROOT},
    {"__lsan_do_leak_check", VERIFY},
    {"__lsan_do_recoverable_leak_check", DONE},
    {"__lsan_disable", VERIFY},
    {"__lsan_enable", VERIFY},
    {"__lsan_ignore_object", NOTHING},
    {"__lsan_register_root_region", ROOT},
    {"__lsan_unregister_root_region", NOTHING},
    {"_ZN15HeapLeakChecker8IsActiveEv", NOTHING},
    {"_ZN15HeapLeakChecker13GlobalCheckerEv", NOTHING},
    {"_ZN15HeapLeakChecker13NoGlobalLeaksEv", NOTHING},
    {"_ZN15HeapLeakChecker17CancelGlobalCheckEv", NOTHING},
    {"_ZN15HeapLeakCheckerC1EPKc", CHECKER},
    {"_ZN15HeapLeakCheckerC2EPKc", CHECKER},
    {"_ZN15HeapLeakCheckerD1Ev", CHECKER},
    {"_ZN15HeapLeakCheckerD2Ev", CHECKER},
    {"_ZN15HeapLeakChecker9DoNoLeaksENS_15ShouldSymbolizeE", CHECKER},
    {"_ZNK15HeapLeakChecker11BytesLeakedEv", CHECKER},
    {"_ZNK15HeapLeakChecker13ObjectsLeakedEv", CHECKER},
    {"_ZN15HeapLeakChecker14DoIgnoreObjectEPKv", NOTHING},
    {"_ZN15HeapLeakChecker14UnIgnoreObjectEPKv", NOTHING},
    {"_ZN15HeapLeakChecker8DisablerC1Ev", NOTHING},
    {"_ZN15HeapLeakChecker8DisablerC2Ev", NOTHING},
    {"_ZN15HeapLeakChecker8DisablerD1Ev", NOTHING},
    {"_ZN15HeapLeakChecker8DisablerD2Ev", NOTHING},
    {"_ZN11HeapCleanerC1EPFvvE", NOTHING},
    {"_ZN11HeapCleanerC2EPFvvE", NOTHING},
    {"_ZN11HeapCleaner15RunHeapCleanupsEv", NOTHING},
    {"mmap", MAP},
    {"mmap64", MAP},
    {"munmap", UNMAP},
    {"mremap", REMAP},
    {"sbrk", BREAK},
};

enum { ROWS = sizeof rows / sizeof *rows, ASKED = 200, ALIGNMENT = 64 };

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

/* True when the function did what it promises. */
static bool call_first(const struct row *row, union callable f) {
    switch (row->shape) {
    case SIZE:
        return good_block(f.size(ASKED), 16);
    case SIZE_NOTHROW:
        return good_block(f.size_nothrow(ASKED, "nothrow"), 16);
    case COUNT_SIZE:
        return good_block(f.size_size(2, ASKED / 2), 16);
    case NULL_SIZE:
        return good_block(f.pointer_size(NULL, ASKED), 16);
    case NULL_COUNT_SIZE:
        return good_block(f.pointer_size_size(NULL, 2, ASKED / 2), 16);
    case ALIGN_SIZE:
        return good_block(f.size_size(ALIGNMENT, ASKED), ALIGNMENT);
    case SIZE_ALIGN:
        return good_block(f.size_align_nothrow(ASKED, ALIGNMENT, "nothrow"), ALIGNMENT);
    case OUT_ALIGN_SIZE:
        return good_out_block(f);
    case FREE_NULL:
        f.free_three(NULL, 16, 16);
        return true;
    case USABLE:
        return f.usable(NULL) == 0;
    case MALLINFO:
        return f.mallinfo().uordblks >= 0;
    case MALLINFO2:
        return f.mallinfo2().uordblks < (size_t)1 << 40;
    case MALLOPT:
        return f.two_ints(M_ARENA_MAX, 2) == 1;
    case TRIM:
        return (unsigned)f.trim(0) <= 1;
    case INFO:
        return good_report(f);
    case STATS:
    case VERIFY:
        f.stats();
        return true;
    case PURGE:
        return f.purge() < (size_t)1 << 40;
    case PURGE_SOME:
        f.limits(1, 0);
        return true;
    case TOTALS:
        return good_totals(f);
    case VERSION:
        return f.version() != NULL && strcmp(f.version(), TALLY_VERSION) == 0;
    case DONE:
        return f.trim(1 << 20) == 0;
    case REFUSED:
        return f.trim(1 << 20) == EINVAL;
    case NEVER_ARMED:
        return f.pointer_int(NULL, 0) == ENOENT;
    case HEAP_PROFILER:
        f.heap_profiler(NULL);
        return true;
    case HEAP_PROFILE:
        return good_profile(f);
    case LIVE:
        return f.pointer_int(NULL, 0) == 1;
    case NOT_OWNED:
        return f.pointer_int(NULL, 0) == 2;
    case BLOCKS:
        return good_blocks(f);
    case TEXT:
        return good_text(f);
    case PROPERTY:
        return good_property(f);
    case SET_PROPERTY:
        return f.set_property("tcmalloc.heap_limit_mb", 0) == 1;
    case RATE:
        return f.rate() == 1;
    case SET_RATE:
        f.set_rate(2);
        return true;
    case INSTANCE:
        return f.instance() != NULL;
    case CPU_STATE:
        return good_state(f);
    case CPU_STACK:
        return good_stack(f);
    case LIMITS:
        f.limits(0, (size_t)1 << 30);
        return true;
    case ON_SOFT:
        f.on_soft(NULL, NULL);
        return true;
    case SIZE_FLAGS:
        return good_block(f.size_flags(ASKED, 0x40 | 6), ALIGNMENT);
    case NULL_SIZE_FLAGS:
        return good_block(f.pointer_size_flags(NULL, ASKED, 0x100), 16);
    case RESIZE:
        return good_resize(f);
    case SIZE_FOR:
        return f.size_for(ASKED, 0) >= ASKED && f.size_for(ASKED, 0) < 2 * ASKED;
    case CTL:
        return good_ctl(f);
    case CTL_MIB:
        return good_mib(f);
    case CTL_BY_MIB:
        return f.ctl_by_mib(NULL, 0, NULL, NULL, NULL, 0) == ENOENT;
    case PRINT:
        return good_print(f);
    case MAP:
        return good_map(f);
    case UNMAP:
        return good_unmap(f);
    case REMAP:
        return good_remap(f);
    case BREAK:
        return good_break(f);
    case MOMENT:
        return f.moment() != 0;
    case LEAK_CHECK:
        return good_leak_check(f);
    case ROOT:
        return f.root(&region, sizeof region) != EINVAL;
    case NO_ROOT:
        return f.root(&region, sizeof region) == EINVAL;
    case CHECKER:
        f.checker(checker_fields, "first");
        return true;
    case NOTHING:
        f.nothing(NULL);
        return true;
    case VARIABLE:
        return *(void **)f.symbol == NULL;
    }
    return false;
}

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
    return call_first(row, f) && heap_works() ? GOOD : BROKEN;
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
