/* SPDX-License-Identifier: MIT
 *
 * made_samples.h - what a profiler might have counted, for test_dump*.c.
 *
 * The functions of prof.h that a dump calls are replaced at link time (CMakeLists.txt) by what a test
 * says, and so are the maps, the clock, the process id and the kernel's memory.
 */
#ifndef TALLY_TEST_MADE_SAMPLES_H
#define TALLY_TEST_MADE_SAMPLES_H

#include <stdio.h>
#include <sys/stat.h>

#include "prof/extract.h"
#include "unit.h"

/* ---------------------------------------------------------------- what is replaced */

enum { CONTEXTS = 30000, STACKS = 30000, DEPTH = 20 };

static struct prof_context contexts[CONTEXTS];
static uint32_t context_count;
static uintptr_t stacks[STACKS][DEPTH];
static unsigned depths[STACKS];
static const char *thread_names[100];
static bool thread_ended[100];
static uint32_t threads_known = 1;
static uint64_t rate = 1, drops;

uint32_t __wrap_prof_context_count(void);
uint32_t __wrap_prof_context_count(void) {
    return context_count;
}

bool __wrap_prof_read_context(uint32_t index, struct prof_context *context);
bool __wrap_prof_read_context(uint32_t index, struct prof_context *context) {
    check(index < context_count);
    *context = contexts[index];
    return contexts[index].accumulated.objects > 0;
}

static double pinned[CONTEXTS]; /* bytes */

void __wrap_prof_add_pinned(struct pinned_survey *survey, double *by_context, uint32_t count);
void __wrap_prof_add_pinned(struct pinned_survey *survey, double *by_context, uint32_t count) {
    check(survey != NULL && survey->copies[0].address == 0 && count == context_count);
    for (uint32_t i = 0; i < count; i++) {
        check(by_context[i] == 0);
        by_context[i] = pinned[i];
    }
}

unsigned __wrap_prof_read_stack(uint32_t stack, uintptr_t *addresses, unsigned most);
unsigned __wrap_prof_read_stack(uint32_t stack, uintptr_t *addresses, unsigned most) {
    check(depths[stack] <= most);
    memcpy(addresses, stacks[stack], depths[stack] * sizeof(*addresses));
    return depths[stack];
}

uint32_t __wrap_prof_thread_count(void);
uint32_t __wrap_prof_thread_count(void) {
    return threads_known;
}

void __wrap_prof_read_thread(uint32_t thread, char name[16], bool *has_ended);
void __wrap_prof_read_thread(uint32_t thread, char name[16], bool *has_ended) {
    const char *given = thread_names[thread];
    snprintf(name, 16, "%s", given != NULL ? given : "");
    *has_ended = thread_ended[thread];
}

void __wrap_prof_read_totals(struct prof_totals *totals);
void __wrap_prof_read_totals(struct prof_totals *totals) {
    *totals = (struct prof_totals){.rate = rate, .drops = drops};
}

unsigned __wrap_prof_lg_sample(void);
unsigned __wrap_prof_lg_sample(void) {
    return 19;
}

static const char *maps_text; /* instead of the kernel's; "" cannot be opened */

int __real_os_open(const char *path);
int __wrap_os_open(const char *path);
int __wrap_os_open(const char *path) {
    if (maps_text == NULL || strcmp(path, "/proc/self/maps") != 0) {
        return __real_os_open(path);
    }
    return open_text(maps_text);
}

static uint32_t process_id; /* if not 0 */
uint32_t __real_os_process_id(void);
uint32_t __wrap_os_process_id(void);
uint32_t __wrap_os_process_id(void) {
    return process_id != 0 ? process_id : __real_os_process_id();
}

static uint64_t wall_ns; /* if not 0 */
uint64_t __real_os_wall_ns(void);
uint64_t __wrap_os_wall_ns(void);
uint64_t __wrap_os_wall_ns(void) {
    return wall_ns != 0 ? wall_ns : __real_os_wall_ns();
}

static long maps_allowed = -1; /* so many requests of memory are served; -1 all */
static size_t mapped_bytes;    /* what has not come back */

void *__real_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes) {
    if (maps_allowed == 0) {
        return NULL;
    }
    maps_allowed -= maps_allowed > 0;
    void *start = __real_os_map(bytes);
    mapped_bytes += start != NULL ? bytes : 0;
    return start;
}

int __real_os_unmap(void *start, size_t bytes);
int __wrap_os_unmap(void *start, size_t bytes);
int __wrap_os_unmap(void *start, size_t bytes) {
    mapped_bytes -= bytes;
    return __real_os_unmap(start, bytes);
}

static inline void start(void) {
    start_heap();
    mapped_bytes = 0;
}
TEST_SETUP(start);

/* ---------------------------------------------------------------- making profiles */

static inline uint32_t add_stack(unsigned depth, const uintptr_t *addresses) {
    static uint32_t count;
    check(count < STACKS && depth <= DEPTH);
    memcpy(stacks[count], addresses, depth * sizeof(*addresses));
    depths[count] = depth;
    return count++;
}

/* The weights of a sampled object of this size, rounded as jemalloc does it. */
static inline void weigh(struct prof_sum *sum, uint64_t objects, uint64_t size) {
    static const struct {
        uint64_t size;
        double bytes, objects;
    } weights[] = {
        {1024, 524800, 512.5}, /* 1024 / (1 - exp(-1024 / 524288)), 1 / (...) */
        {65536, 557738, 8.5},  /* to eighths */
        {131072, 592552, 4.5},
    };
    sum->objects += objects;
    sum->bytes += objects * size;
    sum->requested += objects * (size - 1);
    for (size_t i = 0; rate == 524288 && i < sizeof(weights) / sizeof(*weights); i++) {
        if (weights[i].size == size) {
            sum->all_bytes += (double)objects * weights[i].bytes;
            sum->all_objects += (double)objects * weights[i].objects;
            sum->all_slack += (double)objects * weights[i].objects;
            return;
        }
    }
    sum->all_objects += (double)objects;
    sum->all_bytes += (double)(objects * size);
    sum->all_slack += (double)objects;
}

static inline struct prof_context *context_of(uint32_t stack, uint32_t thread, uint64_t size) {
    uint32_t size_lg = 63 - (uint32_t)__builtin_clzll(size);
    for (uint32_t i = 0; i < context_count; i++) {
        if (contexts[i].stack == stack && contexts[i].thread == thread &&
            contexts[i].size_lg == size_lg) {
            return &contexts[i];
        }
    }
    check(context_count < CONTEXTS);
    contexts[context_count] =
        (struct prof_context){.stack = stack, .thread = thread, .size_lg = size_lg};
    return &contexts[context_count++];
}

/* Objects that were allocated, and how many of them live. */
static inline void add_objects(uint32_t stack, uint32_t thread, uint64_t size, uint64_t objects,
                               uint64_t live) {
    struct prof_context *context = context_of(stack, thread, size);
    weigh(&context->accumulated, objects, size);
    if (live > 0) {
        weigh(&context->live, live, size);
    }
}

/* The example of two stacks and two threads, with the larger stack first. */
static inline void make_sampled_example(void) {
    rate = 524288;
    threads_known = 2;
    thread_names[1] = "worker";
    uint32_t second = add_stack(3, (uintptr_t[]){0x7f10c0a01235, 0x55d0aa001244, 0x7f10c08a71f5});
    uint32_t first =
        add_stack(4, (uintptr_t[]){0x7f10c0a01235, 0x55d0aa001180, 0x55d0aa0011f2, 0x7f10c0845305});
    add_objects(second, 1, 131072, 2, 2);
    add_objects(second, 1, 65536, 1, 1);
    add_objects(first, 1, 1024, 1, 1);
    add_objects(first, 0, 1024, 5, 3);
    maps_text = "55d0aa000000-55d0aa002000 r-xp 00001000 fe:00 131 /opt/app/server\n"
                "7f10c0a00000-7f10c0aa0000 r-xp 00009000 fe:00 77 /usr/lib/libjemalloc.so.2\n";
}

static char text[8 << 20];

/* A dump as a string. */
static inline const char *dump_text(enum dump_format format, enum dump_what what) {
    size_t length = 0;
    char *dumped = dump_to_memory(format, what, &length);
    check(dumped != NULL && length < sizeof(text) && dumped[length] == '\0');
    memcpy(text, dumped, length + 1);
    dump_release(dumped, length);
    check_eq(mapped_bytes, 0);
    return text;
}

static inline void make_many(void) {
    struct random random = {42};
    for (uint32_t i = 0; i < 20000; i++) {
        uintptr_t addresses[DEPTH];
        for (unsigned a = 0; a < DEPTH; a++) {
            addresses[a] = 0x400000 + random_below(&random, a < 4 ? 100 : 20000) * 16;
        }
        contexts[context_count] = (struct prof_context){.stack = add_stack(DEPTH, addresses)};
        weigh(&contexts[context_count].live, 1 + i, 16);
        weigh(&contexts[context_count++].accumulated, 1 + i, 16);
    }
}

/* ---------------------------------------------------------------- files */

static inline int dump_by_name(const char *file) {
    return dump_to_file(file, dump_format_by_name(file, DUMP_PROTO), DUMP_NOW);
}

/* It appears while the dump is written. */
static const char *appears;
int __real_os_rename(const char *from, const char *to);
int __wrap_os_rename(const char *from, const char *to);
int __wrap_os_rename(const char *from, const char *to) {
    if (appears != NULL) {
        check_eq(symlink("elsewhere", appears), 0);
    }
    return __real_os_rename(from, to);
}

#endif
