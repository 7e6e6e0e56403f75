/* SPDX-License-Identifier: MIT
 *
 * test_dump_proto.c - profiles are written as profile.proto says.
 */
#define _GNU_SOURCE /* memfd_create */
#include <sys/stat.h>

#include "gunzip.h"
#include "made_samples.h"
#include "opt/opt.h"
#include "prof/prof.h"
#include "unit.h"

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
    check_eq(count_fields(1), 6);
    check_type(0, "alloc_objects", "count");
    check_type(1, "alloc_space", "bytes");
    check_type(2, "inuse_objects", "count");
    check_type(3, "inuse_space", "bytes");
    check_type(4, "slack_space", "bytes");
    check_type(5, "pinned_space", "bytes");
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

/* The pages of today say nothing about it. */
TEST(a_profile_of_the_peak_does_not_tell_what_is_pinned) {
    make_sampled_example();
    dump_profile(DUMP_PEAK);
    check_eq(count_fields(1), 5);
    check_type(4, "slack_space", "bytes");
}

/* The last two are of one stack, which has 17.5 objects: 8.5 and 9. */
TEST(proto_has_a_sample_for_each_stack_thread_and_size) {
    make_sampled_example();
    pinned[0] = 700.4;
    pinned[context_of(1, 0, 1024) - contexts] = 3e9;
    dump_profile(DUMP_NOW);
    check_eq(count_fields(2), 4);
    /* One byte of each object was not asked for. */
    static const uint64_t values[4][6] = {{2563, 2624000, 1538, 1574400, 1538, 3000000000},
                                          {513, 524800, 513, 524800, 513, 0},
                                          {9, 557738, 9, 557738, 9, 0},
                                          {9, 1185104, 9, 1185104, 9, 700}};
    static const char *const names[4] = {"0", "worker", "worker", "worker"};
    static const uint64_t sizes[4] = {1024, 1024, 65536, 131072};
    for (size_t i = 0; i < 4; i++) {
        struct field sample;
        check(find_field(2, i, &sample));
        for (size_t v = 0; v < 6; v++) {
            check_eq(packed_value(sample, 2, v), values[i][v]);
        }
        check_eq(packed_value(sample, 2, 6), UINT64_MAX);
        check_str(string_at(label(sample, "thread")), names[i]);
        check_eq(label(sample, "bytes"), sizes[i]);
        check_eq(label(sample, "request"), sizes[i] - 1);
    }
}

TEST(proto_rounds_the_sizes_of_a_stack_so_that_they_add_up) {
    maps_text = "";
    threads_known = 1;
    uint32_t stack = add_stack(1, (uintptr_t[]){0x101});
    for (uint64_t size = 1; size < 1 << 20; size *= 2) { /* 20 contexts of 1.4 objects: 28 */
        add_objects(stack, 0, size, 1, 1);
        context_of(stack, 0, size)->live.all_objects = 1.4;
    }
    dump_profile(DUMP_NOW);
    check_eq(count_fields(2), 20);
    uint64_t objects = 0;
    struct field sample;
    for (size_t i = 0; i < 20; i++) {
        check(find_field(2, i, &sample));
        uint64_t rounded = packed_value(sample, 2, 2);
        check(rounded == 1 || rounded == 2);
        check_eq(label(sample, "bytes"), UINT64_C(1) << i);
        objects += rounded;
    }
    check_eq(objects, 28);
}

/* What a snapshot's samples say of their values: variance / value, in thousandths.  What was freed is told apart,
 * and is as sure. */
TEST(snapshot_says_how_sure_its_values_are) {
    make_sampled_example();
    contexts[0].live.byte_variance = 3.5 * contexts[0].live.all_bytes;
    contexts[0].accumulated.object_variance = 7 * contexts[0].accumulated.all_objects;
    contexts[0].lives[2] = (struct prof_life){2, 2 << 16};
    size_t length = 0;
    char *dumped = dump_to_memory(DUMP_SNAPSHOT, DUMP_NOW, &length);
    check(dumped != NULL && length <= sizeof(profile));
    memcpy(profile, dumped, length);
    profile_end = profile + length;
    dump_release(dumped, length);
    bool found = false, found_life = false;
    struct field sample;
    for (size_t i = 0; find_field(2, i, &sample); i++) {
        found_life |= label(sample, "lifetime") == 10 && packed_value(sample, 2, 0) == 2 &&
                      label(sample, "inuse_space_grain") == 0 &&
                      label(sample, "alloc_objects_grain") == 7000;
        found |= label(sample, "lifetime") == 0 && label(sample, "inuse_space_grain") == 3500 &&
                 label(sample, "alloc_objects_grain") == 7000 &&
                 label(sample, "inuse_objects_grain") == 0;
    }
    check(found && found_life);
}

/* What was freed is told apart, and all rows together are what they were. */
TEST(proto_has_a_sample_for_each_step_of_lifetimes) {
    make_sampled_example();
    struct prof_context *context = context_of(1, 0, 1024); /* 5 objects, of which 3 live */
    context->lives[0] = (struct prof_life){300.3, 307507.2};
    context->lives[3] = (struct prof_life){0.2, 204.8}; /* rounds to nothing, and is not lost */
    context->lives[11] = (struct prof_life){724.5, 741888};
    dump_profile(DUMP_NOW);
    static const uint64_t values[5][3] = {
        {300, 307507, 0}, {1, 205, 0}, {724, 741888, 0}, {1538, 1574400, 1538}, {513, 524800, 513}};
    static const uint64_t bounds[5] = {1, 30, 3600000, 0, 0};
    check_eq(count_fields(2), 7);
    for (size_t i = 0; i < 5; i++) {
        struct field sample;
        check(find_field(2, i, &sample));
        for (size_t v = 0; v < 3; v++) {
            check_eq(packed_value(sample, 2, v), values[i][v]);
        }
        check_eq(label(sample, "lifetime"), bounds[i]);
        check_eq(label(sample, "bytes"), 1024);
    }
}

/* Nothing is left to tell. */
TEST(proto_has_no_sample_without_values) {
    uint32_t stack = add_stack(1, (uintptr_t[]){0x1234});
    add_objects(stack, 0, 1024, 2, 0);
    contexts[0].lives[2] = (struct prof_life){2, 2048};
    dump_profile(DUMP_NOW);
    check_eq(count_fields(2), 1);
    struct field sample;
    check(find_field(2, 0, &sample));
    check_eq(packed_value(sample, 2, 1), 2048);
    check_eq(label(sample, "lifetime"), 10);
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
