/* SPDX-License-Identifier: MIT
 *
 * test_read_proto.c - profile.proto: a file that others have read, parts in any order, and damage.
 */
#include "profiles.h"

/* ---------------------------------------------------------------- making messages */

struct bytes {
    uint8_t at[8192];
    size_t length;
};

static void put_varint(struct bytes *bytes, uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
        bytes->at[bytes->length++] = (uint8_t)(value | 0x80);
    }
    bytes->at[bytes->length++] = (uint8_t)value;
}

static void put_number(struct bytes *bytes, unsigned field, uint64_t value) {
    put_varint(bytes, field << 3);
    put_varint(bytes, value);
}

static void put_bytes(struct bytes *bytes, unsigned field, const void *from, size_t length) {
    put_varint(bytes, field << 3 | 2);
    put_varint(bytes, length);
    memcpy(bytes->at + bytes->length, from, length);
    bytes->length += length;
}

static void put_string(struct bytes *bytes, const char *text) {
    put_bytes(bytes, 6, text, strlen(text));
}

/* A message of the numbers 1, 2, ... */
static void put_flat(struct bytes *bytes, unsigned field, const uint64_t *numbers, size_t count) {
    struct bytes inner = {.length = 0};
    for (size_t i = 0; i < count; i++) {
        put_number(&inner, (unsigned)i + 1, numbers[i]);
    }
    put_bytes(bytes, field, inner.at, inner.length);
}

/* Types "a" and "b", both without a unit. */
static struct bytes begin(void) {
    struct bytes bytes = {.length = 0};
    put_flat(&bytes, 1, (const uint64_t[]){1}, 1);
    put_flat(&bytes, 1, (const uint64_t[]){2}, 1);
    put_string(&bytes, "");
    put_string(&bytes, "a");
    put_string(&bytes, "b");
    return bytes;
}

static void put_sample(struct bytes *bytes, uint64_t location, int64_t a, int64_t b) {
    struct bytes inner = {.length = 0};
    put_number(&inner, 1, location);
    put_number(&inner, 2, (uint64_t)a);
    put_number(&inner, 2, (uint64_t)b);
    put_bytes(bytes, 2, inner.at, inner.length);
}

static struct profile *read_made(const struct bytes *bytes) {
    return profile_of(read_proto, bytes->at, bytes->length);
}

static void check_made_refused(const struct bytes *bytes, const char *sentence) {
    check_refused(read_proto, bytes->at, bytes->length, sentence);
}

/* ---------------------------------------------------------------- a file that others have read */

static const uint8_t example[] =
    "\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\x0a\x04\x08\x05\x10\x02\x0a\x04\x08\x06\x10"
    "\x04"
    "\x12\x10\x0a\x02\x01\x02\x12\x04\x04\x40\x02\x20\x1a\x04\x08\x04\x18\x10"
    "\x1a\x10\x08\x01\x10\x80\x80\x80\x02\x18\x80\xc0\x80\x02\x28\x08\x30\x09"
    "\x22\x09\x08\x01\x10\x01\x18\xb5\xa2\x80\x02\x22\x09\x08\x02\x10\x01\x18\xb4\xa3\x80\x02"
    "\x32\x00\x32\x0d"
    "alloc_objects\x32\x05"
    "count\x32\x0b"
    "alloc_space\x32\x05"
    "bytes\x32\x0d"
    "inuse_objects\x32\x0b"
    "inuse_space\x32\x05"
    "space\x32\x09"
    "/bin/demo\x32\x08"
    "0011aabb"
    "\x5a\x04\x08\x07\x10\x04\x60\x01\x70\x06";
enum { EXAMPLE_BYTES = sizeof example - 1 };

TEST(the_example_is_read_as_pprof_reads_it) {
    check_eq(EXAMPLE_BYTES, 192);
    check(read_is_proto(example, EXAMPLE_BYTES));
    struct profile *profile = profile_of(read_proto, example, EXAMPLE_BYTES);
    check_eq(profile->type_count, 4);
    check_eq(value_of(profile, 0, "alloc_objects"), 4);
    check_eq(value_of(profile, 0, "alloc_space"), 64);
    check_eq(value_of(profile, 0, "inuse_objects"), 2);
    check_eq(value_of(profile, 0, "inuse_space"), 32);
    check_str(stack_of(profile, 0), "401135 4011b4");
    check_str(label_of(profile, 0, "bytes"), "16 ");
    check_str(module_of(profile, 0, 1), "/bin/demo");
    check_eq(profile->mappings[0].start, 0x400000);
    check_eq(profile->mappings[0].limit, 0x402000);
    check_str(profile->mappings[0].build_id, "0011aabb");
    check_str(profile->types[profile->default_type].name, "inuse_space");
    check_str(profile->period_type.name, "space");
    check_str(profile->period_type.unit, "bytes");
    check_eq(profile->period, 1);
    check_str(profile->source, "pprof");
    check(!profile->is_exact_leaf);
    profile_free(profile);
}

/* ---------------------------------------------------------------- parts */

TEST(names_and_inlined_lines_belong_to_a_location) {
    struct bytes bytes = begin();
    struct bytes location = {.length = 0};
    put_sample(&bytes, 1000, 1, -2);
    put_number(&location, 1, 1000);
    put_number(&location, 3, 0x77);
    put_flat(&location, 4, (const uint64_t[]){900, 12}, 2);
    put_flat(&location, 4, (const uint64_t[]){5, 34}, 2);
    put_bytes(&bytes, 4, location.at, location.length);
    put_string(&bytes, "inner");
    put_string(&bytes, "outer");
    put_string(&bytes, "x.c");
    put_flat(&bytes, 5, (const uint64_t[]){900, 3, 3, 5, 10}, 5);
    put_flat(&bytes, 5, (const uint64_t[]){5, 4, 4, 5, 30}, 5);
    struct profile *profile = read_made(&bytes);
    const struct profile_location *made = &profile->locations[0];
    check_eq(made->address, 0x77);
    check_eq(made->mapping, PROFILE_NONE);
    check_eq(made->line_count, 2);
    const struct profile_line *lines = profile->lines + made->lines;
    check_str(profile->functions[lines[0].function].name, "inner");
    check_str(profile->functions[lines[1].function].file, "x.c");
    check_eq(profile->functions[lines[1].function].start_line, 30);
    check_eq(lines[0].number, 12);
    check(value_of(profile, 0, "b") == -2);
    check_eq(profile->default_type, 1); /* the last */
    profile_free(profile);
}

TEST(numbers_may_be_packed_or_not_and_unknown_fields_are_skipped) {
    struct bytes bytes = begin(), sample = {.length = 0};
    put_number(&sample, 1, 1);
    put_bytes(&sample, 1, "\x01\x01", 2);
    put_bytes(&sample, 2, "\x05\x06", 2);
    put_number(&sample, 99, 7);
    put_varint(&sample, 98 << 3 | 5);
    sample.length += 4; /* zeros */
    put_bytes(&bytes, 2, sample.at, sample.length);
    put_flat(&bytes, 4, (const uint64_t[]){1, 0, 0x10}, 3);
    put_bytes(&bytes, 77, "something", 9);
    put_varint(&bytes, 78 << 3 | 1);
    bytes.length += 8;
    put_bytes(&bytes, 13, "\x01\x02", 2);
    put_number(&bytes, 13, 1);
    struct profile *profile = read_made(&bytes);
    check_str(stack_of(profile, 0), "10 10 10");
    check_eq(value_of(profile, 0, "b"), 6);
    check_eq(profile->comment_count, 3);
    check_str(profile->comments[1], "b");
    profile_free(profile);
}

TEST(a_profile_of_time_has_an_exact_leaf) {
    struct bytes bytes = begin();
    put_string(&bytes, "cpu");
    put_flat(&bytes, 11, (const uint64_t[]){3, 0}, 2);
    put_number(&bytes, 9, 1234);
    put_number(&bytes, 10, 99);
    struct profile *profile = read_made(&bytes);
    check(profile->is_exact_leaf);
    check_eq(profile->time_ns, 1234);
    check_eq(profile->duration_ns, 99);
    profile_free(profile);
}

/* ---------------------------------------------------------------- damage */

TEST(references_that_lead_nowhere_are_refused) {
    struct bytes bytes = begin();
    put_sample(&bytes, 1, 1, 1);
    check_made_refused(&bytes, "location 1 is not there");
    struct bytes mapping = begin();
    put_flat(&mapping, 4, (const uint64_t[]){1, 9, 0x10}, 3);
    check_made_refused(&mapping, "mapping 9 is not there");
    struct bytes function = begin(), location = {.length = 0};
    put_number(&location, 1, 1);
    put_flat(&location, 4, (const uint64_t[]){8, 1}, 2);
    put_bytes(&function, 4, location.at, location.length);
    check_made_refused(&function, "function 8 is not there");
    struct bytes string = begin();
    put_flat(&string, 5, (const uint64_t[]){1, 3}, 2);
    check_made_refused(&string, "string 3 is not there");
}

TEST(samples_have_a_value_for_each_type) {
    struct bytes bytes = begin(), sample = {.length = 0};
    put_number(&sample, 2, 1);
    put_bytes(&bytes, 2, sample.at, sample.length);
    check_made_refused(&bytes, "a sample has 1 values of 2 types");
    check_refused(read_proto, "\x32\0", 2, "it has no type of samples");
}

TEST(numbers_of_parts_are_there_and_differ) {
    struct bytes bytes = begin();
    put_flat(&bytes, 4, (const uint64_t[]){1, 0, 1}, 3);
    put_flat(&bytes, 4, (const uint64_t[]){1, 0, 2}, 3);
    check_made_refused(&bytes, "two of its parts have the same number, or one has none");
    struct bytes none = begin();
    put_flat(&none, 5, (const uint64_t[]){0, 1}, 2);
    check_made_refused(&none, "two of its parts have the same number, or one has none");
}

TEST(no_number_of_types_or_mappings_is_too_large_to_be_refused) {
    struct bytes bytes = {.length = 0};
    for (int i = 0; i < 65; i++) {
        put_flat(&bytes, 1, NULL, 0);
    }
    check_made_refused(&bytes, "it has more than 64 types of samples");
    enum { MOST = 1 << 16 };
    uint8_t *many = malloc(2 * MOST + 100);
    bytes = begin();
    memcpy(many, bytes.at, bytes.length);
    size_t length = bytes.length;
    for (int i = 0; i <= MOST; i++) {
        many[length++] = 3 << 3 | 2;
        many[length++] = 0;
    }
    check_refused(read_proto, many, length, "it has more than 65536 mappings");
    free(many);
}

TEST(a_stack_is_not_endless) {
    enum { MOST = 1 << 20 };
    struct bytes bytes = begin(), head = {.length = 0};
    put_flat(&bytes, 4, (const uint64_t[]){1, 0, 1}, 3);
    for (int more = 0; more < 2; more++) { /* a sample with values 7 and 8, and so many frames */
        uint64_t frames = MOST + (uint64_t)more;
        head.length = 0;
        put_bytes(&head, 2, "\x07\x08", 2);
        put_varint(&head, 1 << 3 | 2);
        put_varint(&head, frames);
        uint8_t *all = malloc(bytes.length + head.length + frames + 20);
        struct bytes sample = {.length = 0};
        put_varint(&sample, 2 << 3 | 2);
        put_varint(&sample, head.length + frames);
        memcpy(all, bytes.at, bytes.length);
        memcpy(all + bytes.length, sample.at, sample.length);
        memcpy(all + bytes.length + sample.length, head.at, head.length);
        size_t length = bytes.length + sample.length + head.length;
        memset(all + length, 1, frames);
        if (more == 0) {
            struct profile *profile = profile_of(read_proto, all, length + frames);
            check_eq(profile->samples[0].depth, MOST);
            profile_free(profile);
        } else {
            check_refused(read_proto, all, length + frames,
                          "the numbers of a sample are damaged or too many");
        }
        free(all);
    }
}

TEST(a_cut_file_says_where) {
    check_refused(read_proto, example, EXAMPLE_BYTES - 1, "it is damaged at byte 190, or was cut");
    check(read_is_proto(example, EXAMPLE_BYTES - 1));
}

TEST(no_cut_and_no_changed_byte_does_harm) {
    check_every_cut(read_proto, example, EXAMPLE_BYTES);
    check_every_change(read_proto, example, EXAMPLE_BYTES);
}

TEST(text_is_not_taken_for_one) {
    static const char *const texts[] = {
        "", "main;f 12\n", "\nmain;f 12\n", "heap profile: 1", "{\"a\": 1}\n", "\177ELF\2\1\1"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        check(!read_is_proto((const uint8_t *)texts[i], strlen(texts[i])));
    }
}
