/* SPDX-License-Identifier: MIT
 *
 * gperftools_cxx.c - gperftools' C++ class MallocExtension: mangled names, virtual table.
 *
 * C++ programs call MallocExtension::instance() and then virtual functions of the object it
 * returns.  Here that is the object below, whose functions call the C functions of
 * malloc_extension_c.h.  If a program is also linked with gperftools, that library registers its
 * own object at the start, which is ignored.
 *
 * Some answers are empty: there are no stacks of heap growth and no lists of free objects, and the
 * functions that get memory from the kernel cannot be replaced.
 *
 * Threads     As for the C functions.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <gperftools/malloc_extension_c.h>

#include "api/life.h"
#include "prof/prof.h"

#if TALLY_OVERRIDE

struct extension {
    const void *const *functions;
};

/* std::vector of anything, and base::MallocRange. */
struct vector {
    void *begin, *end, *capacity;
};
struct range {
    uintptr_t address;
    size_t length;
    int type; /* in use, free, unmapped, unknown */
    double fraction;
};
enum { RANGE_UNKNOWN = 3 };

/* ---------------------------------------------------------------- texts for std::string */

/* The runtime that made the string is there by now, though it need not have been at our start. */
static void append(void *string, const char *text, size_t length) {
    void *(*append_bytes)(void *, const char *, size_t) =
        (void *(*)(void *, const char *, size_t))dlsym(
            RTLD_DEFAULT, "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE6appendEPKcm");
    if (append_bytes != NULL) {
        append_bytes(string, text, length);
    }
}

static const char no_sample[] =
    "%warn There is no data, because nothing is sampled: set tcmalloc.sample_parameter,\n"
    "%warn or start the program with TALLY_CONF=prof:true.\n"
    "heap profile:      0:        0 [     0:        0] @ heapprofile\n";
static const char no_growth[] = "heap profile:      0:        0 [     0:        0] @ growth\n";

static void get_heap_sample(struct extension *this, void *string) {
    (void)this;
    size_t length = 0;
    char *text = NULL;
    if (life_enter()) {
        text = prof_was_armed() ? dump_to_memory(DUMP_GPERFTOOLS, DUMP_NOW, &length) : NULL;
        life_leave();
    }
    if (text == NULL) {
        append(string, no_sample, sizeof(no_sample) - 1);
        return;
    }
    append(string, text, length);
    if (life_enter()) {
        dump_release(text, length);
        life_leave();
    }
}

static void get_growth(struct extension *this, void *string) {
    (void)this;
    append(string, no_growth, sizeof(no_growth) - 1);
}

/* ---------------------------------------------------------------- ranges */

struct visit {
    void *argument;
    void (*function)(void *argument, const struct range *range);
};

static void tell_range(uintptr_t start, uintptr_t end, void *context) {
    const struct visit *visit = context;
    struct range range = {.address = start, .length = end - start, .type = RANGE_UNKNOWN};
    visit->function(visit->argument, &range);
}

static void ranges(struct extension *this, void *argument,
                   void (*function)(void *argument, const struct range *range)) {
    (void)this;
    (void)life_ready();
    heap_walk_ranges(tell_range, &(struct visit){argument, function});
}

/* ---------------------------------------------------------------- the rest of the table */

static void destroy(struct extension *this) {
    (void)this;
}
static bool verify_all(struct extension *this) {
    (void)this;
    return MallocExtension_VerifyAllMemory();
}
static bool verify(struct extension *this, const void *pointer) {
    (void)this;
    return MallocExtension_VerifyMallocMemory(pointer);
}
static bool memory_stats(struct extension *this, int *blocks, size_t *total, int *histogram) {
    (void)this;
    return MallocExtension_MallocMemoryStats(blocks, total, histogram);
}
static void get_stats(struct extension *this, char *buffer, int length) {
    (void)this;
    MallocExtension_GetStats(buffer, length);
}
static bool get_property(struct extension *this, const char *name, size_t *value) {
    (void)this;
    return MallocExtension_GetNumericProperty(name, value);
}
static bool set_property(struct extension *this, const char *name, size_t value) {
    (void)this;
    return MallocExtension_SetNumericProperty(name, value);
}
static void mark_idle(struct extension *this) {
    (void)this;
    MallocExtension_MarkThreadIdle();
}
static void mark_busy(struct extension *this) {
    (void)this;
    MallocExtension_MarkThreadBusy();
}
static void *get_system_allocator(struct extension *this) {
    (void)this;
    return NULL;
}
static void set_system_allocator(struct extension *this, void *allocator) {
    (void)this;
    (void)allocator;
}
static void release(struct extension *this, size_t bytes) {
    (void)this;
    MallocExtension_ReleaseToSystem(bytes);
}
static void release_all(struct extension *this) {
    (void)this;
    MallocExtension_ReleaseFreeMemory();
}
static void set_release_rate(struct extension *this, double rate) {
    (void)this;
    MallocExtension_SetMemoryReleaseRate(rate);
}
static double get_release_rate(struct extension *this) {
    (void)this;
    return MallocExtension_GetMemoryReleaseRate();
}
static size_t get_estimated_size(struct extension *this, size_t size) {
    (void)this;
    return MallocExtension_GetEstimatedAllocatedSize(size);
}
static size_t get_size(struct extension *this, const void *pointer) {
    (void)this;
    return MallocExtension_GetAllocatedSize(pointer);
}
static int get_ownership(struct extension *this, const void *pointer) {
    (void)this;
    return (int)MallocExtension_GetOwnership(pointer);
}
static void get_free_lists(struct extension *this, struct vector *lists) {
    (void)this;
    lists->end = lists->begin;
}
static void **read_stacks(struct extension *this, int *period) {
    (void)this;
    size_t value = 0;
    (void)MallocExtension_GetNumericProperty("tcmalloc.sample_parameter", &value);
    *period = (int)value;
    return NULL;
}
static void **read_growth(struct extension *this) {
    (void)this;
    return NULL;
}
static size_t get_thread_cache(struct extension *this) {
    (void)this;
    return MallocExtension_GetThreadCacheSize();
}

/* Defined where gperftools is loaded as well. */
extern const char type_information[] __asm__("_ZTI15MallocExtension") __attribute__((weak));

/* A pointer to the table points at its third entry. */
enum { BEFORE_FUNCTIONS = 2 };
static const void *const table[] = {
    NULL, /* offset of the object in a larger one */
    type_information,
    destroy, /* and the same with delete */
    destroy,
    verify_all,
    verify, /* of new, new[] and malloc */
    verify,
    verify,
    memory_stats,
    get_stats,
    get_heap_sample,
    get_growth,
    ranges,
    get_property,
    set_property,
    mark_idle,
    mark_busy,
    get_system_allocator,
    set_system_allocator,
    release,
    release_all,
    set_release_rate,
    get_release_rate,
    get_estimated_size,
    get_size,
    get_ownership,
    get_free_lists,
    read_stacks,
    read_growth,
    get_thread_cache,
    mark_idle, /* MarkThreadTemporarilyIdle */
};
static struct extension extension = {table + BEFORE_FUNCTIONS};

#define MANGLED(name) __asm__(name) __attribute__((visibility("default")))
struct extension *extension_instance(void) MANGLED("_ZN15MallocExtension8instanceEv");
void extension_register(struct extension *) MANGLED("_ZN15MallocExtension8RegisterEPS_");
void extension_initialize(void) MANGLED("_ZN15MallocExtension10InitializeEv");

struct extension *extension_instance(void) {
    return &extension;
}

/* Remembered, so that it is no leak. */
void extension_register(struct extension *another) {
    static struct extension *volatile registered;
    registered = another;
    (void)registered;
}

void extension_initialize(void) {
}

#endif
