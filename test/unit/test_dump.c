/* SPDX-License-Identifier: MIT
 *
 * test_dump.c - profiles are written to the byte as their formats say, into files that are complete or
 * not there.
 *
 * What the profiler has counted is replaced at link time (CMakeLists.txt) by what a test says, and so
 * are the maps, the clock, the process id and the kernel's memory.  With PROFILES set, the test
 * `files_for_readers` leaves files there, which test/interop shows to jeprof and pprof.
 */
#define _GNU_SOURCE /* memfd_create */
#include "prof/dump.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/log.h"
#include "opt/opt.h"
#include "base/os.h"
#include "gunzip.h"
#include "prof/prof.h"
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

static void start(void) {
    start_heap();
    mapped_bytes = 0;
}
TEST_SETUP(start);

/* ---------------------------------------------------------------- making profiles */

static uint32_t add_stack(unsigned depth, const uintptr_t *addresses) {
    static uint32_t count;
    check(count < STACKS && depth <= DEPTH);
    memcpy(stacks[count], addresses, depth * sizeof(*addresses));
    depths[count] = depth;
    return count++;
}

/* The weights of a sampled object of this size, rounded as jemalloc does it. */
static void weigh(struct prof_sum *sum, uint64_t objects, uint64_t size) {
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
            return;
        }
    }
    sum->all_objects += (double)objects;
    sum->all_bytes += (double)(objects * size);
}

static struct prof_context *context_of(uint32_t stack, uint32_t thread) {
    for (uint32_t i = 0; i < context_count; i++) {
        if (contexts[i].stack == stack && contexts[i].thread == thread) {
            return &contexts[i];
        }
    }
    check(context_count < CONTEXTS);
    contexts[context_count] = (struct prof_context){.stack = stack, .thread = thread};
    return &contexts[context_count++];
}

/* Objects that were allocated, and how many of them live. */
static void add_objects(uint32_t stack, uint32_t thread, uint64_t size, uint64_t objects,
                        uint64_t live) {
    struct prof_context *context = context_of(stack, thread);
    weigh(&context->accumulated, objects, size);
    if (live > 0) {
        weigh(&context->live, live, size);
    }
}

/* The example of two stacks and two threads, with the larger stack first. */
static void make_sampled_example(void) {
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

static const char sampled_maps[] =
    "\nMAPPED_LIBRARIES:\n"
    "55d0aa000000-55d0aa002000 r-xp 00001000 fe:00 131 /opt/app/server\n"
    "7f10c0a00000-7f10c0aa0000 r-xp 00009000 fe:00 77 /usr/lib/libjemalloc.so.2\n";

static char text[8 << 20];

/* A dump as a string. */
static const char *dump_text(enum dump_format format, enum dump_what what) {
    size_t length = 0;
    char *dumped = dump_to_memory(format, what, &length);
    check(dumped != NULL && length < sizeof(text) && dumped[length] == '\0');
    memcpy(text, dumped, length + 1);
    dump_release(dumped, length);
    check_eq(mapped_bytes, 0);
    return text;
}

/* ---------------------------------------------------------------- jemalloc's format */

TEST(heap_v2_is_jemallocs_to_the_byte) {
    make_sampled_example();
    char expected[2000];
    snprintf(expected, sizeof(expected), "%s%s",
             "heap_v2/524288\n"
             "  t*: 7: 13594 [0: 0]\n"
             "  t0: 3: 3072 [0: 0]\n"
             "  t1: 4: 18430 [0: 0] worker\n"
             "@ 0x7f10c0a01234 0x55d0aa001180 0x55d0aa0011f2 0x7f10c0845305\n"
             "  t*: 4: 4096 [0: 0]\n"
             "  t0: 3: 3072 [0: 0]\n"
             "  t1: 1: 1024 [0: 0]\n"
             "@ 0x7f10c0a01234 0x55d0aa001244 0x7f10c08a71f5\n"
             "  t*: 3: 301518 [0: 0]\n"
             "  t1: 3: 301518 [0: 0]\n",
             sampled_maps);
    check_str(dump_text(DUMP_JEMALLOC, DUMP_NOW), expected);
}

TEST(raw_counts_are_written_without_prof_unbias) {
    make_sampled_example();
    opt.prof_unbias = 0;
    check(strstr(dump_text(DUMP_JEMALLOC, DUMP_NOW), "524288\n  t*: 7: 331776 [0: 0]\n") != NULL);
}

TEST(accumulated_counts_are_written_with_prof_accum) {
    make_sampled_example();
    opt.prof_unbias = 0;
    opt.prof_accum = 1;
    maps_text = "";
    add_objects(add_stack(1, (uintptr_t[]){0x101}), 0, 16, 9, 0);
    check_str(dump_text(DUMP_JEMALLOC, DUMP_NOW),
              "heap_v2/524288\n"
              "  t*: 7: 331776 [18: 333968]\n"
              "  t0: 3: 3072 [14: 5264]\n"
              "  t1: 4: 328704 [4: 328704] worker\n"
              "@ 0x100\n"
              "  t*: 0: 0 [9: 144]\n"
              "  t0: 0: 0 [9: 144]\n"
              "@ 0x7f10c0a01234 0x55d0aa001180 0x55d0aa0011f2 0x7f10c0845305\n"
              "  t*: 4: 4096 [6: 6144]\n"
              "  t0: 3: 3072 [5: 5120]\n"
              "  t1: 1: 1024 [1: 1024]\n"
              "@ 0x7f10c0a01234 0x55d0aa001244 0x7f10c08a71f5\n"
              "  t*: 3: 327680 [3: 327680]\n"
              "  t1: 3: 327680 [3: 327680]\n");
}

TEST(ended_threads_are_listed_while_they_have_something) {
    threads_known = 4;
    thread_ended[1] = thread_ended[2] = true;
    thread_names[2] = "line\nbreak";
    maps_text = "";
    uint32_t stack = add_stack(2, (uintptr_t[]){0x101, 0x200});
    add_objects(stack, 1, 16, 4, 0);
    add_objects(stack, 2, 16, 4, 1);
    check_str(dump_text(DUMP_JEMALLOC, DUMP_NOW), "heap_v2/1\n"
                                                  "  t*: 1: 16 [0: 0]\n"
                                                  "  t0: 0: 0 [0: 0]\n"
                                                  "  t2: 1: 16 [0: 0] line break\n"
                                                  "  t3: 0: 0 [0: 0]\n"
                                                  "@ 0x100 0x200\n"
                                                  "  t*: 1: 16 [0: 0]\n"
                                                  "  t2: 1: 16 [0: 0]\n");
}

TEST(the_peak_is_written_instead_of_now) {
    maps_text = "";
    add_objects(add_stack(1, (uintptr_t[]){0x101}), 0, 16, 4, 1);
    weigh(&contexts[0].peak, 3, 16);
    check(strstr(dump_text(DUMP_JEMALLOC, DUMP_NOW), "@ 0x100\n  t*: 1: 16 ") != NULL);
    check(strstr(dump_text(DUMP_JEMALLOC, DUMP_PEAK), "@ 0x100\n  t*: 3: 48 ") != NULL);
}

TEST(a_stack_that_could_not_be_walked_has_one_address) {
    maps_text = "";
    add_objects(add_stack(0, (uintptr_t[]){0}), 0, 16, 1, 1);
    check(strstr(dump_text(DUMP_JEMALLOC, DUMP_NOW), "@ 0x0\n  t*: 1: 16 ") != NULL);
}

TEST(nothing_recorded_is_a_profile_too) {
    maps_text = "";
    threads_known = 0;
    check_str(dump_text(DUMP_JEMALLOC, DUMP_NOW), "heap_v2/1\n  t*: 0: 0 [0: 0]\n");
    check_str(dump_text(DUMP_GPERFTOOLS, DUMP_NOW),
              "heap profile:      0:        0 [     0:        0] @ heapprofile\n"
              "\nMAPPED_LIBRARIES:\n");
}

/* ---------------------------------------------------------------- gperftools' format */

TEST(heap_text_is_gperftools_to_the_byte) {
    add_objects(add_stack(2, (uintptr_t[]){0x401141, 0x4011b5}), 0, 32, 2, 2);
    struct prof_sum *ever = &contexts[0].accumulated;
    *ever = (struct prof_sum){4, 1088, 1088, 4, 1088};
    add_objects(add_stack(3, (uintptr_t[]){0x401137, 0x40118c, 0x4011b5}), 0, 4096, 1, 1);
    maps_text = "00400000-00402000 r-xp 00000000 08:01 131 /bin/demo\n"
                "00402000-00403000 rw-p 00002000 08:01 131 /bin/demo\n";
    check_str(dump_text(DUMP_GPERFTOOLS, DUMP_NOW),
              "heap profile:      3:     4160 [     5:     5184] @ heapprofile\n"
              "     1:     4096 [     1:     4096] @ 0x00401136 0x0040118c 0x004011b5\n"
              "     2:       64 [     4:     1088] @ 0x00401140 0x004011b5\n"
              "\nMAPPED_LIBRARIES:\n"
              "00400000-00402000 r-xp 00000000 08:01 131 /bin/demo\n");
}

TEST(heap_text_has_estimates_and_joins_threads) {
    make_sampled_example();
    const char *dumped = dump_text(DUMP_GPERFTOOLS, DUMP_NOW);
    check(strstr(dumped, "profile:   2068:  3842042 [  3093:  4891642] @ heapprofile\n") != NULL);
    check(strstr(dumped, "\n  2050:  2099200 [  3075:  3148800] @ 0x7f10c0a01234 0x") != NULL);
    check(strstr(dumped, "\n    18:  1742842 [    18:  1742842] @ 0x7f10c0a01234 0x") != NULL);
}

/* ---------------------------------------------------------------- profile.proto */

/* A field of a message: a number, or bytes. */
struct field {
    unsigned number;
    bool is_bytes;
    uint64_t value; /* or length */
    const unsigned char *bytes;
};

static uint64_t read_varint(const unsigned char **next, const unsigned char *end) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        check(*next < end && shift < 70);
        value |= (uint64_t)(**next & 0x7f) << shift;
        if (*(*next)++ < 0x80) {
            return value;
        }
    }
}

static bool read_field(const unsigned char **next, const unsigned char *end, struct field *field) {
    if (*next == end) {
        return false;
    }
    uint64_t tag = read_varint(next, end);
    field->number = (unsigned)(tag >> 3);
    field->is_bytes = (tag & 7) == 2;
    check(field->is_bytes || (tag & 7) == 0);
    field->value = read_varint(next, end);
    field->bytes = *next;
    if (field->is_bytes) {
        check(field->value <= (uint64_t)(end - *next));
        *next += field->value;
    }
    return true;
}

static unsigned char profile[8 << 20];
static const unsigned char *profile_end;

static void dump_profile(enum dump_what what) {
    size_t length = 0;
    char *dumped = dump_to_memory(DUMP_PROTO, what, &length);
    check(dumped != NULL);
    profile_end = profile + gunzip(dumped, length, profile, sizeof(profile));
    dump_release(dumped, length);
    check_eq(mapped_bytes, 0);
}

/* The n-th field of this number in the profile; false when there are fewer. */
static bool find_field(unsigned number, size_t n, struct field *field) {
    const unsigned char *next = profile;
    while (read_field(&next, profile_end, field)) {
        if (field->number == number && n-- == 0) {
            return true;
        }
    }
    return false;
}

static size_t count_fields(unsigned number) {
    struct field field;
    size_t count = 0;
    while (find_field(number, count, &field)) {
        count++;
    }
    return count;
}

/* The value of the only field of this number in a message; 0 if there is none. */
static uint64_t inner_value(struct field message, unsigned number) {
    struct field field;
    const unsigned char *next = message.bytes;
    while (read_field(&next, message.bytes + message.value, &field)) {
        if (field.number == number) {
            return field.value;
        }
    }
    return 0;
}

/* The n-th of the packed numbers of a field in a message; UINT64_MAX when there are fewer. */
static uint64_t packed_value(struct field message, unsigned number, size_t n) {
    struct field field;
    const unsigned char *next = message.bytes;
    while (read_field(&next, message.bytes + message.value, &field)) {
        const unsigned char *at = field.bytes, *end = field.bytes + field.value;
        while (field.number == number && at < end) {
            uint64_t value = read_varint(&at, end);
            if (n-- == 0) {
                return value;
            }
        }
    }
    return UINT64_MAX;
}

static const char *string_at(uint64_t index) {
    static char string[300];
    struct field field;
    check(find_field(6, index, &field) && field.value < sizeof(string));
    memcpy(string, field.bytes, field.value);
    string[field.value] = '\0';
    return string;
}

static uint64_t profile_value(unsigned number) {
    struct field field;
    return find_field(number, 0, &field) ? field.value : 0;
}

static void check_type(size_t n, const char *name, const char *unit) {
    struct field type;
    check(find_field(1, n, &type));
    check_str(string_at(inner_value(type, 1)), name);
    check_str(string_at(inner_value(type, 2)), unit);
}

TEST(proto_says_what_it_is) {
    make_sampled_example();
    wall_ns = UINT64_C(1700000000123456789);
    drops = 5;
    dump_profile(DUMP_NOW);
    check_eq(count_fields(1), 4);
    check_type(0, "alloc_objects", "count");
    check_type(1, "alloc_space", "bytes");
    check_type(2, "inuse_objects", "count");
    check_type(3, "inuse_space", "bytes");
    check_str(string_at(0), "");
    check_str(string_at(profile_value(14)), "inuse_space");
    check_eq(profile_value(9), wall_ns);
    check_eq(profile_value(12), 524288);
    struct field period;
    check(find_field(11, 0, &period));
    check_str(string_at(inner_value(period, 1)), "space");
    check_str(string_at(inner_value(period, 2)), "bytes");
    check(strstr(string_at(profile_value(7)), "operator new") != NULL);
    check_eq(count_fields(13), 1);
    check_str(string_at(profile_value(13)), "5 samples are missing for want of memory");
}

/* The value of a label by its key; `text` gets that of one in words. */
static uint64_t label(struct field sample, const char *key) {
    struct field field;
    const unsigned char *next = sample.bytes;
    while (read_field(&next, sample.bytes + sample.value, &field)) {
        if (field.number == 3 && strcmp(string_at(inner_value(field, 1)), key) == 0) {
            uint64_t string = inner_value(field, 2);
            return string != 0 ? string : inner_value(field, 3);
        }
    }
    return 0;
}

/* Addresses lie inside of the calls. */
static void check_location(uint64_t id, uintptr_t return_address, uint64_t mapping) {
    struct field location;
    check(find_field(4, id - 1, &location));
    check_eq(inner_value(location, 1), id);
    check_eq(inner_value(location, 2), mapping);
    check_eq(inner_value(location, 3), return_address - 1);
}

TEST(proto_has_a_sample_for_each_stack_and_thread) {
    make_sampled_example();
    dump_profile(DUMP_NOW);
    check_eq(count_fields(2), 3);
    static const uint64_t values[3][4] = {
        {2563, 2624000, 1538, 1574400}, {513, 524800, 513, 524800}, {18, 1742842, 18, 1742842}};
    static const char *const names[3] = {"0", "worker", "worker"};
    static const uint64_t sizes[3] = {1024, 1024, 109226};
    for (size_t i = 0; i < 3; i++) {
        struct field sample;
        check(find_field(2, i, &sample));
        for (size_t v = 0; v < 4; v++) {
            check_eq(packed_value(sample, 2, v), values[i][v]);
        }
        check_eq(packed_value(sample, 2, 4), UINT64_MAX);
        check_str(string_at(label(sample, "thread")), names[i]);
        check_eq(label(sample, "bytes"), sizes[i]);
        check_eq(label(sample, "request"), sizes[i] - 1);
    }
}

TEST(proto_has_each_address_once_in_its_mapping) {
    make_sampled_example();
    dump_profile(DUMP_NOW);
    struct field sample;
    check_eq(count_fields(4), 6);
    check_eq(count_fields(3), 2);
    check(find_field(2, 0, &sample));
    check_location(packed_value(sample, 1, 0), 0x7f10c0a01235, 2);
    check_location(packed_value(sample, 1, 1), 0x55d0aa001180, 1);
    check_location(packed_value(sample, 1, 2), 0x55d0aa0011f2, 1);
    check_location(packed_value(sample, 1, 3), 0x7f10c0845305, 0);
    check_eq(packed_value(sample, 1, 4), UINT64_MAX);
    uint64_t shared = packed_value(sample, 1, 0);
    check(find_field(2, 2, &sample));
    check_eq(packed_value(sample, 1, 0), shared);
    struct field mapping;
    check(find_field(3, 1, &mapping));
    check_eq(inner_value(mapping, 1), 2);
    check_eq(inner_value(mapping, 2), 0x7f10c0a00000);
    check_eq(inner_value(mapping, 3), 0x7f10c0aa0000);
    check_eq(inner_value(mapping, 4), 0x9000);
    check_str(string_at(inner_value(mapping, 5)), "/usr/lib/libjemalloc.so.2");
}

TEST(proto_names_the_program_first) {
    char path[200];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    check(length > 0);
    path[length] = '\0';
    add_objects(add_stack(2, (uintptr_t[]){(uintptr_t)dump_profile + 1, (uintptr_t)strlen + 1}), 0,
                16, 1, 1);
    dump_profile(DUMP_PEAK);
    struct field mapping;
    check(find_field(3, 0, &mapping));
    check_str(string_at(inner_value(mapping, 5)), path);
    check_eq(strlen(string_at(inner_value(mapping, 6))), 40);
    check_location(1, (uintptr_t)dump_profile + 1, 1);
    check_str(string_at(profile_value(13)), "in use: at the highest point so far");
    for (size_t i = 0; find_field(3, i, &mapping); i++) {
        check_eq(inner_value(mapping, 1), i + 1);
    }
}

/* ---------------------------------------------------------------- many stacks */

static void make_many(void) {
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

TEST(twenty_thousand_stacks_are_written_in_order) {
    make_many();
    maps_text = "";
    const char *dumped = dump_text(DUMP_JEMALLOC, DUMP_NOW);
    uintptr_t before[DEPTH] = {0};
    uint64_t found = 0;
    for (const char *line = strchr(dumped, '@'); line != NULL; line = strchr(line, '@')) {
        uintptr_t addresses[DEPTH];
        int order = 0;
        char *next = (char *)(uintptr_t)(line + 1);
        for (unsigned a = 0; a < DEPTH; a++) {
            addresses[a] = strtoul(next, &next, 16);
            if (order == 0 && addresses[a] != before[a]) {
                order = addresses[a] > before[a] ? 1 : -1;
            }
        }
        check_eq(order, 1);
        check(*next == '\n');
        memcpy(before, addresses, sizeof(before));
        found++;
        line = next;
    }
    check_eq(found, 20000);
    dump_profile(DUMP_NOW);
    check_eq(count_fields(2), 20000);
}

/* ---------------------------------------------------------------- files */

static char directory[40]; /* "" while there is none */
static char path[400];

static const char *in_directory(const char *name) {
    if (directory[0] == '\0') {
        strcpy(directory, "/tmp/tally-dump-XXXXXX");
        check(mkdtemp(directory) != NULL);
    }
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

/* The directory is empty, and goes. */
static void check_nothing_left(void) {
    check_eq(rmdir(directory), 0);
    directory[0] = '\0';
}

static void remove_file(const char *name) {
    check_eq(unlink(in_directory(name)), 0);
}

static const char *content(const char *name) {
    int fd = open(in_directory(name), O_RDONLY | O_NOFOLLOW);
    check(fd >= 0);
    ssize_t length = read(fd, text, sizeof(text) - 1);
    check(length >= 0);
    text[length] = '\0';
    close(fd);
    return text;
}

static int dump_by_name(const char *file) {
    return dump_to_file(file, dump_format_by_name(file, DUMP_PROTO), DUMP_NOW);
}

TEST(a_file_is_for_its_owner_alone) {
    make_sampled_example();
    umask(0);
    check_eq(dump_by_name(in_directory("a.heap")), 0);
    struct stat status;
    check_eq(lstat(path, &status), 0);
    check_eq(status.st_mode, S_IFREG | 0600);
    check(strstr(content("a.heap"), "heap_v2/524288\n  t*: 7: 13594 ") == text);
    remove_file("a.heap");
    check_nothing_left();
    check_eq(mapped_bytes, 0);
}

TEST(the_ending_chooses_the_format) {
    static const struct {
        const char *name, *beginning;
    } names[] = {
        {"a.heap", "heap_v2/"},  {"a.gperf", "heap profile:"}, {"a.hprof", "heap profile:"},
        {"a.pb.gz", "\x1f\x8b"}, {"a.pb", "\x1f\x8b"},         {"a.tally", "\x1f\x8b"},
        {"a", "\x1f\x8b"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        check_eq(dump_by_name(in_directory(names[i].name)), 0);
        check(strncmp(content(names[i].name), names[i].beginning, strlen(names[i].beginning)) == 0);
        remove_file(names[i].name);
    }
    check_eq(dump_to_file(in_directory("a.heap"), DUMP_GPERFTOOLS, DUMP_NOW), 0);
    check(strstr(content("a.heap"), "heap profile:") == text);
    remove_file("a.heap");
    check_nothing_left();
}

TEST(a_file_that_exists_is_left_alone) {
    FILE *file = fopen(in_directory("a.heap"), "w");
    fputs("mine", file);
    fclose(file);
    check_eq(dump_to_file(path, DUMP_JEMALLOC, DUMP_NOW), -EEXIST);
    check_str(content("a.heap"), "mine");
    remove_file("a.heap");
    check_nothing_left();
}

TEST(a_link_in_the_way_is_not_followed) {
    in_directory("a.heap");
    check_eq(symlink("elsewhere", path), 0);
    check_eq(dump_to_file(path, DUMP_JEMALLOC, DUMP_NOW), -EEXIST);
    check_eq(access(in_directory("elsewhere"), F_OK), -1);
    remove_file("a.heap");
    check_nothing_left();
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

TEST(a_link_that_comes_late_is_not_replaced) {
    appears = in_directory("a.heap");
    check_eq(dump_to_file(path, DUMP_JEMALLOC, DUMP_NOW), -EEXIST);
    check_eq(access(in_directory("elsewhere"), F_OK), -1);
    struct stat status;
    check(lstat(in_directory("a.heap"), &status) == 0 && S_ISLNK(status.st_mode));
    remove_file("a.heap");
    check_nothing_left();
}

TEST(what_a_killed_process_left_is_passed_over) {
    char left[64];
    snprintf(left, sizeof(left), ".tally-%u-0.part", (unsigned)getpid());
    close(open(in_directory(left), O_CREAT | O_WRONLY, 0600));
    check_eq(dump_to_file(in_directory("a.heap"), DUMP_JEMALLOC, DUMP_NOW), 0);
    remove_file("a.heap");
    remove_file(left);
    check_nothing_left();
}

TEST(directories_that_are_not_there_are_errors) {
    in_directory("");
    check_eq(dump_to_file("/nowhere/at/all.heap", DUMP_JEMALLOC, DUMP_NOW), -ENOENT);
    check_eq(dump_to_file("/proc/self/a.heap", DUMP_JEMALLOC, DUMP_NOW), -ENOENT);
    check_eq(dump_to_file("/dev/null/a.heap", DUMP_JEMALLOC, DUMP_NOW), -ENOTDIR);
    check_eq(dump_to_file("", DUMP_JEMALLOC, DUMP_NOW), -ENOENT);
    check_eq(dump_to_file(directory, DUMP_JEMALLOC, DUMP_NOW), -EEXIST);
    memset(text, 'x', 300);
    text[300] = '\0';
    check_eq(dump_to_file(in_directory(text), DUMP_JEMALLOC, DUMP_NOW), -ENAMETOOLONG);
    memset(text, '/', 6000);
    text[6000] = '\0';
    check_eq(dump_to_file(text, DUMP_JEMALLOC, DUMP_NOW), -ENAMETOOLONG);
    check_nothing_left();
    check_eq(mapped_bytes, 0);
}

TEST(a_directory_that_is_not_ours_is_an_error) {
    if (geteuid() == 0) {
        check_eq(setresuid(65534, 65534, 65534), 0);
    }
    check_eq(dump_to_file("/etc/a.heap", DUMP_JEMALLOC, DUMP_NOW), -EACCES);
}

/* SIGXFSZ would end the test. */
TEST(a_full_disk_leaves_nothing_behind) {
    struct rlimit limit = {100000, RLIM_INFINITY};
    check_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    make_many();
    for (int format = DUMP_JEMALLOC; format <= DUMP_GPERFTOOLS; format++) {
        check_eq(dump_to_file(in_directory("a"), (enum dump_format)format, DUMP_NOW), -EFBIG);
    }
    check_nothing_left();
    check_eq(mapped_bytes, 0);
}

TEST(descriptors_that_take_nothing_are_errors) {
    make_sampled_example();
    int full = open("/dev/full", O_WRONLY);
    int reading = open("/dev/null", O_RDONLY);
    for (int format = DUMP_JEMALLOC; format <= DUMP_GPERFTOOLS; format++) {
        check_eq(dump_to_descriptor(full, (enum dump_format)format, DUMP_NOW), -ENOSPC);
        check_eq(dump_to_descriptor(reading, (enum dump_format)format, DUMP_NOW), -EBADF);
        check_eq(dump_to_descriptor(-1, (enum dump_format)format, DUMP_NOW), -EBADF);
    }
    int ends[2];
    check_eq(pipe(ends), 0);
    close(ends[0]);
    check_eq(dump_to_descriptor(ends[1], DUMP_JEMALLOC, DUMP_NOW), -EPIPE);
    check_eq(mapped_bytes, 0);
}

TEST(a_descriptor_gets_the_same_bytes) {
    make_sampled_example();
    int fd = memfd_create("dump", 0);
    check_eq(dump_to_descriptor(fd, DUMP_JEMALLOC, DUMP_NOW), 0);
    static char got[4000];
    ssize_t length = pread(fd, got, sizeof(got) - 1, 0);
    check(length > 0);
    got[length] = '\0';
    check_str(got, dump_text(DUMP_JEMALLOC, DUMP_NOW));
}

/* What a program that has closed its standard descriptors prints goes into no file of ours. */
TEST(standard_descriptors_are_not_taken) {
    check_child({
        in_directory("a");
        close(0);
        close(1);
        int fd = os_create(path);
        int maps = os_open("/proc/self/maps");
        check(fd > 2);
        check(maps > 2);
        check(fcntl(fd, F_GETFD) == FD_CLOEXEC);
        unlink(path);
        rmdir(directory);
    });
}

TEST(without_memory_nothing_is_left_behind) {
    make_many();
    for (int format = DUMP_JEMALLOC; format <= DUMP_GPERFTOOLS; format++) {
        int error = -ENOMEM;
        long allowed = 0;
        for (; error != 0; allowed++) {
            maps_allowed = allowed;
            error = dump_to_file(in_directory("a"), (enum dump_format)format, DUMP_NOW);
            maps_allowed = -1;
            check(error == 0 || error == -ENOMEM);
            check_eq(mapped_bytes, 0);
            check_eq(access(path, F_OK), error == 0 ? 0 : -1);
        }
        check(allowed > 10);
        remove_file("a");
        check_nothing_left();
    }
    maps_allowed = 3;
    size_t length = 0;
    check(dump_to_memory(DUMP_JEMALLOC, DUMP_NOW, &length) == NULL);
    check_eq(mapped_bytes, 0);
}

/* ---------------------------------------------------------------- names */

static void expect(const char *name) {
    if (access(in_directory(name), F_OK) != 0) {
        test_fail(__FILE__, __LINE__, name);
    }
    remove_file(name);
}

static void set_prefix(const char *prefix) {
    check(dump_set_prefix(in_directory(prefix)));
}

TEST(automatic_names_follow_jemallocs_scheme) {
    process_id = 26296;
    set_prefix("jeprof");
    check_eq(dump_automatically('i'), 0);
    expect("jeprof.26296.0.i0.heap");
    check_eq(dump_automatically('m'), 0);
    expect("jeprof.26296.1.m0.heap");
    check_eq(dump_to_file(in_directory("own"), DUMP_JEMALLOC, DUMP_NOW), 0);
    expect("own");
    check_eq(dump_automatically('u'), 0);
    expect("jeprof.26296.2.u0.heap");
    check_eq(dump_automatically('i'), 0);
    expect("jeprof.26296.3.i1.heap");
    check_eq(dump_automatically('f'), 0);
    expect("jeprof.26296.4.f.heap");
    check_nothing_left();
    check_eq(mapped_bytes, 0);
}

TEST(names_of_an_earlier_process_are_passed_over) {
    process_id = 7;
    set_prefix("p");
    close(open(in_directory("p.7.0.f.heap"), O_CREAT | O_WRONLY, 0600));
    check_eq(symlink("nowhere", in_directory("p.7.1.f.heap")), 0);
    check_eq(dump_automatically('f'), 0);
    expect("p.7.2.f.heap");
    remove_file("p.7.0.f.heap");
    remove_file("p.7.1.f.heap");
    check_nothing_left();
}

TEST(names_tell_the_time_when_asked) {
    process_id = 7;
    opt.prof_time_in_name = 1;
    set_prefix("p");
    static const struct {
        uint64_t seconds;
        const char *name;
    } times[] = {{951782400, "p.7.0.m0.20000229T000000Z.heap"},
                 {1709251199, "p.7.1.m1.20240229T235959Z.heap"},
                 {1767225599, "p.7.2.m2.20251231T235959Z.heap"},
                 {1767225600, "p.7.3.m3.20260101T000000Z.heap"},
                 {4107542400, "p.7.4.m4.21000301T000000Z.heap"}};
    for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
        wall_ns = times[i].seconds * 1000000000;
        check_eq(dump_automatically('m'), 0);
        expect(times[i].name);
    }
    check_nothing_left();
}

TEST(names_tell_the_pid_namespace_when_asked) {
    process_id = 7;
    opt.prof_pid_namespace = 1;
    set_prefix("p");
    char link[64], name[100];
    ssize_t length = readlink("/proc/self/ns/pid", link, sizeof(link) - 1);
    check(length > 6);
    link[length - 1] = '\0'; /* pid:[4026531836] */
    snprintf(name, sizeof(name), "p.%s.7.0.f.heap", link + 5);
    check_eq(dump_automatically('f'), 0);
    expect(name);
    check_nothing_left();
}

TEST(the_format_of_automatic_dumps_can_be_chosen) {
    process_id = 7;
    set_prefix("p");
    opt.prof_format = 1;
    check_eq(dump_automatically('m'), 0);
    check(strncmp(content("p.7.0.m0.pb.gz"), "\x1f\x8b", 2) == 0);
    opt.prof_format = 2;
    check_eq(dump_automatically('m'), 0);
    check(strstr(content("p.7.1.m1.hprof"), "heap profile:") == text);
    remove_file("p.7.0.m0.pb.gz");
    remove_file("p.7.1.m1.hprof");
    check_nothing_left();
}

TEST(an_empty_prefix_writes_nothing) {
    check(dump_set_prefix(""));
    struct capture capture = capture_begin();
    check_eq(dump_automatically('i'), -EINVAL);
    check_eq(dump_automatically('m'), -EINVAL);
    check_str(capture_end(capture), "");
    memset(text, 'x', 5000);
    text[5000] = '\0';
    check(!dump_set_prefix(text));
    text[4096] = '\0';
    check(dump_set_prefix(text));
    check_eq(dump_automatically('m'), -ENAMETOOLONG);
}

TEST(automatic_dumps_that_fail_say_so_in_one_line) {
    process_id = 7;
    check(dump_set_prefix("/nowhere/p"));
    struct capture capture = capture_begin();
    check_eq(dump_automatically('m'), -ENOENT); /* Its caller hears of it. */
    check_eq(dump_automatically('f'), -ENOENT);
    check_str(capture_end(capture), "tally: cannot write the heap profile /nowhere/p.7.1.f.heap: "
                                    "there is no such directory (2)\n");
}

/* ---------------------------------------------------------------- JSON */

static struct prof_event events[8];
static size_t event_count, event_next;

static bool next_event(void *context, struct prof_event *event) {
    check(context == events);
    if (event_next == event_count) {
        event_next = 0;
        return false;
    }
    *event = events[event_next++];
    return true;
}

static void make_events(void) {
    threads_known = 8;
    thread_names[7] = "a\"b\\c\n\xc3\xa4\xff";
    add_stack(1, (uintptr_t[]){0xa1});
    add_stack(2, (uintptr_t[]){0xb1, 0xb2});
    add_stack(1, (uintptr_t[]){0xc1});
    events[0] = (struct prof_event){.stack = 2,
                                    .thread = 7,
                                    .freed_stack = 0,
                                    .freed_thread = 3,
                                    .born_ns = 10,
                                    .freed_ns = 20,
                                    .requested = 3003,
                                    .usable = 3072,
                                    .is_freed = true,
                                    .end_is_known = true};
    events[1] = events[0];
    events[1].stack = 0;
    events[1].usable = 16;
    event_count = 2;
}

TEST(the_log_is_jemallocs_json) {
    make_events();
    process_id = 1;
    set_prefix("p");
    struct dump_log log = {{next_event, events}, 12345, "5.3.1"};
    check_eq(dump_log(NULL, &log), 0);
    check_str(content("p.1.0.json"),
              "{\"info\":{\"duration\":12345,\"version\":\"5.3.1\",\"lg_sample_rate\":19,"
              "\"prof_time_resolution\":\"default\",\"pid\":1},"
              "\"threads\":[{\"thr_uid\":3,\"thr_name\":\"\"},"
              "{\"thr_uid\":7,\"thr_name\":\"a\\\"b\\\\c\\ufffd\xc3\xa4\\ufffd\"}],"
              "\"stack_traces\":[[\"0xa1\"],[\"0xc1\"]],"
              "\"allocations\":[{\"alloc_thread\":1,\"free_thread\":0,\"alloc_trace\":1,"
              "\"free_trace\":0,\"alloc_timestamp\":10,\"free_timestamp\":20,\"usize\":3072},"
              "{\"alloc_thread\":1,\"free_thread\":0,\"alloc_trace\":0,\"free_trace\":0,"
              "\"alloc_timestamp\":10,\"free_timestamp\":20,\"usize\":16}]}");
    remove_file("p.1.0.json");
    event_count = 0;
    opt.prof_time_resolution = 1;
    check_eq(dump_log(in_directory("named"), &log), 0);
    check(strstr(content("named"), "\"prof_time_resolution\":\"high\",\"pid\":1},\"threads\":[],"
                                   "\"stack_traces\":[],\"allocations\":[]}") != NULL);
    check_eq(dump_log(in_directory("named"), &log), -EEXIST);
    remove_file("named");
    check(dump_set_prefix(""));
    check_eq(dump_log(NULL, &log), -EINVAL);
    check_nothing_left();
    check_eq(mapped_bytes, 0);
}

/* A generator of many events: every pair of stack and thread of 300. */
static uint32_t generated;
static bool generate_event(void *context, struct prof_event *event) {
    (void)context;
    *event = (struct prof_event){.stack = 299 - generated * 7 % 300,
                                 .thread = generated % 97,
                                 .freed_stack = generated % 300,
                                 .freed_thread = 96 - generated % 97,
                                 .is_freed = true,
                                 .end_is_known = true};
    return generated++ < 30000;
}

TEST(places_in_the_log_are_those_of_stacks_and_threads) {
    threads_known = 97;
    for (uintptr_t i = 0; i < 300; i++) {
        add_stack(1, &i);
    }
    struct dump_log log = {{generate_event, NULL}, 0, ""};
    check_eq(dump_log(in_directory("log"), &log), 0);
    const char *json = content("log");
    /* With all of them in use, places are numbers. */
    uint32_t i = 0;
    for (const char *at = strstr(json, "\"alloc_thread\":"); at != NULL;
         at = strstr(at + 1, "\"alloc_thread\":"), i++) {
        unsigned thread, free_thread, stack, free_stack;
        check_eq(sscanf(at,
                        "\"alloc_thread\":%u,\"free_thread\":%u,\"alloc_trace\":%u,"
                        "\"free_trace\":%u",
                        &thread, &free_thread, &stack, &free_stack),
                 4);
        check(thread == i % 97 && free_thread == 96 - i % 97);
        check(stack == 299 - i * 7 % 300 && free_stack == i % 300);
    }
    check_eq(i, 30000);
    remove_file("log");
    check_nothing_left();
}

TEST(recent_allocations_are_jemallocs_json) {
    make_events();
    rate = 524288;
    events[1].is_freed = events[1].end_is_known = false;
    size_t length = 0;
    char *json = dump_recent((struct dump_events){next_event, events}, 3, &length);
    check(json != NULL);
    check_eq(strlen(json), length);
    check_str(json, "{\"sample_interval\":524288,\"recent_alloc_max\":3,\"recent_alloc\":["
                    "{\"size\":3003,\"usize\":3072,\"released\":true,\"alloc_thread_uid\":7,"
                    "\"alloc_thread_name\":\"a\\\"b\\\\c\\ufffd\xc3\xa4\\ufffd\",\"alloc_time\":10,"
                    "\"alloc_trace\":[\"0xc1\"],\"dalloc_thread_uid\":3,\"dalloc_time\":20,"
                    "\"dalloc_trace\":[\"0xa1\"]},"
                    "{\"size\":3003,\"usize\":16,\"released\":false,\"alloc_thread_uid\":7,"
                    "\"alloc_thread_name\":\"a\\\"b\\\\c\\ufffd\xc3\xa4\\ufffd\",\"alloc_time\":10,"
                    "\"alloc_trace\":[\"0xa1\"]}]}");
    dump_release(json, length);
    event_count = 0;
    json = dump_recent((struct dump_events){next_event, events}, -1, &length);
    check_str(json, "{\"sample_interval\":524288,\"recent_alloc_max\":-1,\"recent_alloc\":[]}");
    dump_release(json, length);
    check_eq(mapped_bytes, 0);
}

/* ---------------------------------------------------------------- leaks */

TEST(leaks_are_summed_up_in_two_lines) {
    make_sampled_example();
    add_objects(add_stack(1, (uintptr_t[]){0x101}), 0, 16, 9, 0);
    struct capture capture = capture_begin();
    check(!dump_report_leaks());
    check_str(capture_end(capture),
              "tally: Leak approximation summary: ~3842042 bytes, ~2068 objects, >= 2 contexts\n"
              "tally: Run jeprof on dump output for leak detail\n");
    check_eq(mapped_bytes, 0);
}

TEST(a_single_leak_is_an_error_when_asked) {
    add_objects(add_stack(1, (uintptr_t[]){0x101}), 0, 1, 1, 1);
    opt.prof_leak_error = 1;
    struct capture capture = capture_begin();
    check(dump_report_leaks());
    check_str(capture_end(capture),
              "tally: Leak approximation summary: ~1 byte, ~1 object, >= 1 context\n"
              "tally: Run jeprof on dump output for leak detail\n"
              "tally: Exiting with error code because memory leaks were detected\n");
}

TEST(no_leaks_are_no_lines) {
    add_objects(add_stack(1, (uintptr_t[]){0x101}), 0, 16, 9, 0);
    opt.prof_leak_error = 1;
    struct capture capture = capture_begin();
    check(!dump_report_leaks());
    check_str(capture_end(capture), "");
}

/* ---------------------------------------------------------------- for other readers */

/* Where its caller goes on. */
__attribute__((noinline)) static uintptr_t here(void) {
    return (uintptr_t)__builtin_return_address(0);
}

__attribute__((noinline)) static uint32_t reader_small(uintptr_t outer) {
    uintptr_t addresses[] = {here(), (uintptr_t)__builtin_return_address(0), outer};
    return add_stack(3, addresses);
}

/* Not the same code as above, or the compiler would make one of both. */
__attribute__((noinline)) static uint32_t reader_large(uintptr_t outer) {
    uintptr_t outermost = outer;
    uintptr_t addresses[] = {here(), (uintptr_t)__builtin_return_address(0), outermost, 0};
    check(addresses[0] != 0);
    return add_stack(3, addresses);
}

__attribute__((noinline)) static void reader_work(void) {
    uintptr_t outer = (uintptr_t)__builtin_return_address(0);
    uint32_t small = reader_small(outer);
    uint32_t large = reader_large(outer);
    add_objects(small, 0, 1000, 10, 7);
    add_objects(small, 1, 1000, 5, 5);
    add_objects(large, 1, 100000, 3, 2);
    __asm__ volatile("" : : "r"(small), "r"(large)); /* no tail call */
}

static void write_for_readers(const char *folder, const char *name) {
    static const char *const endings[] = {"heap", "pb.gz", "hprof"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s.%s", folder, name, endings[i]);
        check_eq(dump_by_name(path), 0);
    }
}

TEST(files_for_readers) {
    const char *folder = getenv("PROFILES");
    if (folder == NULL) {
        skip("PROFILES names no folder");
    }
    threads_known = 2;
    thread_names[0] = "main";
    thread_names[1] = "worker";
    opt.prof_accum = 1;
    reader_work();
    write_for_readers(folder, "before");
    add_objects(contexts[0].stack, 0, 1000, 4, 4);
    write_for_readers(folder, "after");
    context_count = 0;
    make_sampled_example();
    write_for_readers(folder, "sampled");
}
