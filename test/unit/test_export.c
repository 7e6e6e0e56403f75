/* SPDX-License-Identifier: MIT
 *
 * test_export.c - every writer of `tally export`, with names that mean harm.
 *
 * A small profile is built by hand and written into memory.  What comes out is compared to the byte where
 * the format is ours to lay out, and taken apart where it is packed.  With PROFILES set, the test
 * `files_for_exports` leaves profiles there, which test/interop has exported and shows to other people's
 * programs.
 */
#define _GNU_SOURCE /* memmem */
#include "export/export.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "export/address_stacks.h"
#include "args/args.h"
#include "export/call_tree.h"
#include "command/commands.h"
#include "common/escape.h"
#include "export/frame_table.h"
#include "profiles.h"
#include "select/select.h"
#include "test.h"

/* What tests make lives until their end, and is still known then: a leak is a writer's. */
static void *made[256];
static size_t made_count;

static void *remember(void *memory) {
    check(made_count < sizeof made / sizeof made[0]);
    return made[made_count++] = memory;
}

/* Profiles. */

static struct profile *make_profile(void) {
    return remember(profile_new());
}

static const char *keep(struct profile *profile, const char *text) {
    return profile_text(profile, text, strlen(text));
}

static struct profile *new_heap(void) {
    struct profile *profile = make_profile();
    profile_add_type(profile, keep(profile, "alloc_objects"), keep(profile, "count"));
    profile_add_type(profile, keep(profile, "alloc_space"), keep(profile, "bytes"));
    profile_add_type(profile, keep(profile, "inuse_objects"), keep(profile, "count"));
    profile_add_type(profile, keep(profile, "inuse_space"), keep(profile, "bytes"));
    profile->default_type = 3;
    profile->period_type = (struct profile_type){"space", "bytes"};
    profile->period = 1;
    profile->source = "test";
    struct profile_mapping mapping = {.start = 0x400000,
                                      .limit = 0x402000,
                                      .path = keep(profile, "/bin/demo"),
                                      .build_id = keep(profile, "0011aabb")};
    profile_add_mapping(profile, mapping);
    return profile;
}

static uint32_t add_bare(struct profile *profile, uint64_t address) {
    return profile_add_location(profile, address, 0, NULL, 0);
}

static uint32_t add_named(struct profile *profile, uint64_t address, const char *name,
                          const char *file, uint32_t line) {
    struct profile_function function = {keep(profile, name), keep(profile, name),
                                        keep(profile, file), 1};
    struct profile_line at = {profile_add_function(profile, function), line};
    return profile_add_location(profile, address, 0, &at, 1);
}

static void add_sample(struct profile *profile, const uint32_t *stack, uint32_t depth,
                       const int64_t *values, const char *thread) {
    struct profile_label label = {.key = "thread", .text = thread};
    if (thread != NULL) {
        label.key = keep(profile, label.key);
        label.text = keep(profile, thread);
    }
    profile_add_sample(profile, stack, depth, values, &label, thread != NULL);
}

/* The worked example of the format of gperftools: main calls twice, once through one more. */
static struct profile *new_example(void) {
    struct profile *profile = new_heap();
    uint32_t inner = add_bare(profile, 0x401136), middle = add_bare(profile, 0x40118b);
    uint32_t outer = add_bare(profile, 0x4011b4), other = add_bare(profile, 0x401140);
    add_sample(profile, (uint32_t[]){inner, middle, outer}, 3, (int64_t[]){1, 4096, 1, 4096}, NULL);
    add_sample(profile, (uint32_t[]){other, outer}, 2, (int64_t[]){4, 1088, 2, 64}, NULL);
    return profile;
}

/* The same with names, lines and threads. */
static struct profile *new_named(void) {
    struct profile *profile = new_heap();
    uint32_t load = add_named(profile, 0x401136, "load", "account.c", 140);
    uint32_t login = add_named(profile, 0x40118b, "login", "auth.c", 77);
    uint32_t outer = add_named(profile, 0x4011b4, "main", "server.c", 412);
    add_sample(profile, (uint32_t[]){load, login, outer}, 3, (int64_t[]){1, 4096, 1, 4096}, "a");
    add_sample(profile, (uint32_t[]){login, outer}, 2, (int64_t[]){4, 1088, 2, 64}, "b");
    return profile;
}

/* One frame of that name. */
static struct profile *new_single(const char *name) {
    struct profile *profile = new_heap();
    uint32_t location = add_named(profile, 0x401136, name, "", 0);
    add_sample(profile, &location, 1, (int64_t[]){1, 100, 1, 100}, NULL);
    return profile;
}

/* Writing into memory. */

static size_t written_bytes;

static const char *write_with(bool (*write)(const struct profile *, struct output *),
                              const struct profile *profile, bool expected) {
    char *text = NULL;
    struct output output = {.file = open_memstream(&text, &written_bytes)};
    check(output.file != NULL);
    bool is_written = write(profile, &output);
    check(fclose(output.file) == 0);
    check_eq(is_written, expected);
    return remember(text);
}

static const char *written(bool (*write)(const struct profile *, struct output *),
                           const struct profile *profile) {
    return write_with(write, profile, true);
}

static const char *escaped(void (*escape)(FILE *, const char *), const char *text) {
    char *result = NULL;
    FILE *file = open_memstream(&result, &written_bytes);
    escape(file, text);
    check(fclose(file) == 0);
    return remember(result);
}

static void check_has(const char *text, const char *part) {
    if (strstr(text, part) == NULL) {
        test_say("missing: ", part, "\nin: ", text, "\n", NULL);
        check(false);
    }
}

static void check_lacks(const char *text, const char *part) {
    if (strstr(text, part) != NULL) {
        test_say("should not be there: ", part, "\nin: ", text, "\n", NULL);
        check(false);
    }
}

static unsigned count_of(const char *text, const char *part) {
    unsigned count = 0;
    for (text = strstr(text, part); text != NULL; text = strstr(text + 1, part)) {
        count++;
    }
    return count;
}

static void usual_selection(void) {
    args_select.most_rows = SELECT_OWN_ROWS;
    args_select.least_share = SELECT_OWN_SHARE;
    cli_loudness = 0;
}
TEST_SETUP(usual_selection);

/* The parts below the writers. */

TEST(frames_of_one_name_and_file_are_one_whatever_their_address) {
    struct profile *profile = new_heap();
    uint32_t one = add_named(profile, 0x401000, "f", "a.c", 1);
    uint32_t two = add_named(profile, 0x401100, "f", "a.c", 9);
    uint32_t other = add_named(profile, 0x401200, "f", "b.c", 1);
    add_sample(profile, (uint32_t[]){one, two, other}, 3, (int64_t[]){1, 1, 1, 1}, NULL);
    struct frame_table *table = frame_table_new(profile, BY_FUNCTIONS);
    check_eq(table->frame_count, 2);
    check_eq(table->ids[0], table->ids[1]);
    check(table->ids[0] != table->ids[2]);
    check_eq(table->lines[0], 1);
    check_eq(table->lines[1], 9);
    frame_table_free(table);
}

TEST(inlined_calls_are_frames_of_their_own_innermost_first) {
    struct profile *profile = new_heap();
    struct profile_line lines[2] = {
        {profile_add_function(profile, (struct profile_function){"inner", "inner", "a.h", 1}), 5},
        {profile_add_function(profile, (struct profile_function){"outer", "outer", "a.c", 1}), 50}};
    uint32_t location = profile_add_location(profile, 0x401000, 0, lines, 2);
    add_sample(profile, &location, 1, (int64_t[]){1, 1, 1, 7}, NULL);
    check_str(written(export_folded, profile), "outer;inner 7\n");
}

TEST(totals_of_the_call_tree_are_those_of_its_leaves_and_the_heaviest_comes_first) {
    struct profile *profile = new_heap();
    uint32_t top = add_named(profile, 1, "top", "", 0),
             light = add_named(profile, 2, "light", "", 0);
    uint32_t heavy = add_named(profile, 3, "heavy", "", 0);
    add_sample(profile, (uint32_t[]){light, top}, 2, (int64_t[]){0, 0, 0, 1}, NULL);
    add_sample(profile, (uint32_t[]){heavy, top}, 2, (int64_t[]){0, 0, 0, 5}, NULL);
    add_sample(profile, (uint32_t[]){top}, 1, (int64_t[]){0, 0, 0, 2}, NULL);
    struct frame_table *table = frame_table_new(profile, BY_FUNCTIONS);
    struct call_tree *tree = call_tree_new(profile, table, 3);
    uint32_t node = call_tree_next(tree, 0);
    check_eq(tree->nodes[0].total, 8);
    check_str(table->frames[tree->nodes[node].frame].name, "top");
    check_eq(tree->nodes[node].total, 8);
    check_eq(tree->nodes[node].self, 2);
    node = call_tree_next(tree, node);
    check_str(table->frames[tree->nodes[node].frame].name, "heavy");
    node = call_tree_next(tree, node);
    check_str(table->frames[tree->nodes[node].frame].name, "light");
    check_eq(call_tree_next(tree, node), 0);
    call_tree_free(tree);
    frame_table_free(table);
}

TEST(sums_beyond_all_numbers_stop_at_the_largest) {
    struct profile *profile = new_heap();
    uint32_t f = add_named(profile, 1, "f", "", 0);
    add_sample(profile, &f, 1, (int64_t[]){1, INT64_MAX, 1, INT64_MAX}, "a");
    add_sample(profile, &f, 1, (int64_t[]){1, INT64_MAX, 1, INT64_MAX}, "b");
    check_str(written(export_folded, profile), "f 9223372036854775807\n");
    for (const struct export_format *one = export_formats; one->name != NULL; one++) {
        if (!one->needs_graphviz && strcmp(one->name, "gperftools-cpu") != 0) {
            written(one->write, profile);
        }
    }
}

/* Escapes: a test per character that means something. */

TEST(json_escapes_quotes_and_backslashes) {
    check_str(escaped(escape_json, "a\"b\\c"), "\"a\\\"b\\\\c\"");
}

TEST(json_escapes_control_characters) {
    check_str(escaped(escape_json, "\n\r\t\x1b\x7f"), "\"\\u000a\\u000d\\u0009\\u001b\\u007f\"");
}

TEST(json_escapes_what_could_end_a_script) {
    check_str(escaped(escape_json, "</script>&"), "\"\\u003c/script\\u003e\\u0026\"");
}

TEST(json_escapes_lines_of_javascript_and_hidden_characters) {
    check_str(escaped(escape_json, "\u2028\u2029\u202e\u200b\ufeff"),
              "\"\\u2028\\u2029\\u202e\\u200b\\ufeff\"");
    check_str(escaped(escape_json, "a\U000e0001b\ufe0f"), "\"a\\udb40\\udc01b\\ufe0f\"");
}

TEST(json_replaces_what_is_no_utf8) {
    check_str(escaped(escape_json, "a\xff"
                                   "b\xc0\x80"),
              "\"a\\ufffdb\\ufffd\\ufffd\"");
    check_str(escaped(escape_json, "\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\""); /* a surrogate */
    check_str(escaped(escape_json, "\xe2\x82"), "\"\\ufffd\\ufffd\"");            /* cut */
    check_str(escaped(escape_json, "\xf4\x90\x80\x80"), "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
}

TEST(json_leaves_other_characters_alone) {
    check_str(escaped(escape_json, "größe 😀"), "\"größe 😀\"");
}

TEST(xml_escapes_each_of_its_characters) {
    check_str(escaped(escape_xml, "<"), "&lt;");
    check_str(escaped(escape_xml, ">"), "&gt;");
    check_str(escaped(escape_xml, "&"), "&amp;");
    check_str(escaped(escape_xml, "\""), "&quot;");
    check_str(escaped(escape_xml, "'"), "&#39;");
    check_str(escaped(escape_xml, "]]>"), "]]&gt;");
    check_str(escaped(escape_xml, "a\uffff"), "a\ufffd");
}

TEST(xml_shows_what_cannot_be_seen) {
    check_lacks(escaped(escape_xml, "a\x1b[2J\nb"), "\x1b");
    check_lacks(escaped(escape_xml, "a\nb"), "\n");
    check_lacks(escaped(escape_xml, "\u202egnp.exe"), "\u202e");
    check_lacks(escaped(escape_xml, "a\xff"), "\xff");
}

TEST(dot_escapes_a_quote) {
    check_str(escaped(escape_dot, "a\"b"), "a\\\"b");
}

TEST(dot_escapes_a_backslash) {
    check_str(escaped(escape_dot, "\\N\\"), "\\\\N\\\\");
}

TEST(dot_escapes_an_ampersand) {
    check_str(escaped(escape_dot, "&quot;"), "&amp;quot;");
}

TEST(dot_never_has_a_new_line_or_control_character_in_a_name) {
    check_lacks(escaped(escape_dot, "a\nb"), "\n");
    check_lacks(escaped(escape_dot, "a\rb"), "\r");
    check_lacks(escaped(escape_dot, "a\x01"), "\x01");
    check_lacks(escaped(escape_dot, "a\u202e"), "\u202e");
    check_lacks(escaped(escape_dot, "a\xfe"), "\xfe");
}

TEST(dot_leaves_what_means_nothing_between_quotes) {
    check_str(escaped(escape_dot, "<b>{x|y};[$]"), "<b>{x|y};[$]");
}

TEST(csv_makes_text_of_what_a_spreadsheet_would_compute) {
    check_str(escaped(escape_csv, "=1+1"), "\"'=1+1\"");
    check_str(escaped(escape_csv, "+1"), "\"'+1\"");
    check_str(escaped(escape_csv, "-1"), "\"'-1\"");
    check_str(escaped(escape_csv, "@SUM(A1)"), "\"'@SUM(A1)\"");
    check_str(escaped(escape_csv, "a=1"), "a=1");
}

TEST(csv_quotes_commas_quotes_and_semicolons) {
    check_str(escaped(escape_csv, "f(int, int)"), "\"f(int, int)\"");
    check_str(escaped(escape_csv, "operator\"\""), "\"operator\"\"\"\"\"");
    check_str(escaped(escape_csv, "a;b"), "\"a;b\"");
    check_lacks(escaped(escape_csv, "a\r\nb"), "\n");
    check_lacks(escaped(escape_csv, "a\tb"), "\t");
    check_str(escaped(escape_csv, "plain"), "plain");
}

TEST(folded_frames_have_neither_semicolons_nor_lines) {
    check_str(escaped(escape_folded, "a;b"), "a:b");
    check_lacks(escaped(escape_folded, "a\nb"), "\n");
}

TEST(paths_of_maps_are_written_as_the_kernel_does) {
    check_str(escaped(escape_maps, "/a b\n\\"), "/a b\\012\\134");
}

TEST(a_shortened_name_ends_between_characters) {
    char room[ESCAPE_SHORT * 4 + 4];
    check_str(escape_shorten("abc", 3, room), "abc");
    check_str(escape_shorten("abcd", 3, room), "ab…");
    check_str(escape_shorten("äöüß", 3, room), "äö…");
    char longer[1000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    check_eq(strlen(escape_shorten(longer, 900, room)), ESCAPE_SHORT - 1 + 3);
}

/* pprof. */

/* Unpacks into a static buffer. */
static const uint8_t *unpack(const char *packed, size_t *length) {
    static uint8_t bytes[1 << 16];
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)packed,
                       .avail_in = (uInt)written_bytes,
                       .next_out = bytes,
                       .avail_out = sizeof bytes};
    check_eq(inflateInit2(&stream, 15 + 16), Z_OK);
    check_eq(inflate(&stream, Z_FINISH), Z_STREAM_END);
    *length = stream.total_out;
    check_eq(inflateEnd(&stream), Z_OK);
    return bytes;
}

static uint64_t take_varint(const uint8_t **at, const uint8_t *end) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        check(*at < end && shift < 70);
        value |= (uint64_t)(**at & 127) << shift;
        if (*(*at)++ < 128) {
            return value;
        }
    }
}

struct field {
    unsigned number;
    uint64_t value;
    const uint8_t *bytes; /* NULL: a number */
    size_t length;
};

static bool take_field(const uint8_t **at, const uint8_t *end, struct field *field) {
    if (*at == end) {
        return false;
    }
    uint64_t tag = take_varint(at, end);
    *field = (struct field){.number = (unsigned)(tag >> 3), .value = take_varint(at, end)};
    check((tag & 7) == 0 || (tag & 7) == 2);
    if ((tag & 7) == 2) {
        check(field->value <= (size_t)(end - *at));
        field->bytes = *at;
        field->length = (size_t)field->value;
        *at += field->length;
    }
    return true;
}

/* The n-th field of a number in a message; false: there are fewer. */
static bool nth_field(const uint8_t *bytes, size_t length, unsigned number, unsigned n,
                      struct field *field) {
    const uint8_t *at = bytes;
    while (take_field(&at, bytes + length, field)) {
        if (field->number == number && n-- == 0) {
            return true;
        }
    }
    return false;
}

static unsigned count_fields(const uint8_t *bytes, size_t length, unsigned number) {
    struct field field;
    unsigned count = 0;
    while (nth_field(bytes, length, number, count, &field)) {
        count++;
    }
    return count;
}

enum { TYPE = 1, SAMPLE = 2, MAPPING = 3, LOCATION = 4, FUNCTION = 5, STRING = 6 };

static const char *string_of(const uint8_t *bytes, size_t length, uint64_t number) {
    static char text[8][256];
    static unsigned next;
    struct field field;
    check(nth_field(bytes, length, STRING, (unsigned)number, &field) && field.length < 256);
    char *room = text[next++ % 8];
    memcpy(room, field.bytes, field.length);
    room[field.length] = '\0';
    return room;
}

/* The text that a field of the n-th message of a kind refers to. */
static const char *text_in(const uint8_t *bytes, size_t length, unsigned kind, unsigned n,
                           unsigned number) {
    struct field message, field;
    check(nth_field(bytes, length, kind, n, &message));
    check(nth_field(message.bytes, message.length, number, 0, &field));
    return string_of(bytes, length, field.value);
}

static uint64_t number_in(const uint8_t *bytes, size_t length, unsigned kind, unsigned n,
                          unsigned number) {
    struct field message, field;
    check(nth_field(bytes, length, kind, n, &message));
    return nth_field(message.bytes, message.length, number, 0, &field) ? field.value : 0;
}

static uint64_t nth_packed(struct field field, unsigned n) {
    const uint8_t *at = field.bytes;
    while (n-- > 0) {
        take_varint(&at, field.bytes + field.length);
    }
    return take_varint(&at, field.bytes + field.length);
}

TEST(pprof_has_the_types_in_the_order_of_go_whatever_ours_was) {
    struct profile *profile = make_profile();
    static const char *const names[] = {"peak_space", "inuse_space", "alloc_space", "inuse_objects",
                                        "alloc_objects"};
    for (size_t i = 0; i < 5; i++) {
        profile_add_type(profile, names[i], "bytes");
    }
    profile->default_type = 1;
    uint32_t f = profile_add_location(profile, 0x10, PROFILE_NONE, NULL, 0);
    profile_add_sample(profile, &f, 1, (int64_t[]){10, 11, 12, 13, 14}, NULL, 0);
    size_t length;
    const uint8_t *bytes = unpack(written(export_pprof, profile), &length);
    static const char *const expected[] = {"alloc_objects", "alloc_space", "inuse_objects",
                                           "inuse_space", "peak_space"};
    static const uint64_t values[] = {14, 12, 13, 11, 10};
    struct field sample, packed, named;
    check(nth_field(bytes, length, SAMPLE, 0, &sample));
    check(nth_field(sample.bytes, sample.length, 2, 0, &packed));
    for (unsigned i = 0; i < 5; i++) {
        check_str(text_in(bytes, length, TYPE, i, 1), expected[i]);
        check_eq(nth_packed(packed, i), values[i]);
    }
    check(nth_field(bytes, length, 14, 0, &named));
    check_str(string_of(bytes, length, named.value), "inuse_space");
}

TEST(pprof_keeps_addresses_mappings_build_ids_and_labels) {
    struct profile *profile = new_named();
    size_t length;
    const uint8_t *bytes = unpack(written(export_pprof, profile), &length);
    check_str(string_of(bytes, length, 0), "");
    check_eq(count_fields(bytes, length, LOCATION), 3);
    check_eq(number_in(bytes, length, LOCATION, 0, 3), 0x401136);
    check_eq(number_in(bytes, length, LOCATION, 0, 2), 1);
    check_str(text_in(bytes, length, MAPPING, 0, 5), "/bin/demo");
    check_str(text_in(bytes, length, MAPPING, 0, 6), "0011aabb");
    check_eq(number_in(bytes, length, MAPPING, 0, 7), 1); /* every address has a name */
    check_str(text_in(bytes, length, FUNCTION, 0, 2), "load");
    check_str(text_in(bytes, length, FUNCTION, 0, 4), "account.c");
    struct field sample, label, field;
    check(nth_field(bytes, length, SAMPLE, 1, &sample));
    check(nth_field(sample.bytes, sample.length, 3, 0, &label));
    check(nth_field(label.bytes, label.length, 2, 0, &field));
    check_str(string_of(bytes, length, field.value), "b");
}

TEST(pprof_says_that_names_are_missing_when_one_is) {
    struct profile *profile = new_named();
    uint32_t bare = add_bare(profile, 0x400500);
    add_sample(profile, &bare, 1, (int64_t[]){1, 1, 1, 1}, NULL);
    size_t length;
    const uint8_t *bytes = unpack(written(export_pprof, profile), &length);
    check_eq(number_in(bytes, length, MAPPING, 0, 7), 0);
}

TEST(pprof_writes_equal_functions_once) {
    struct profile *profile = new_named();
    /* As somebody may have changed names after they were added. */
    for (uint32_t i = 0; i < profile->function_count; i++) {
        profile->functions[i].name = "same";
        profile->functions[i].file = "same.c";
    }
    size_t length;
    const uint8_t *bytes = unpack(written(export_pprof, profile), &length);
    check_eq(count_fields(bytes, length, FUNCTION), 1);
    check_eq(count_fields(bytes, length, LOCATION), 3);
    profile->functions[0].start_line = 99;
    bytes = unpack(written(export_pprof, profile), &length);
    check_eq(count_fields(bytes, length, FUNCTION), 2);
}

TEST(pprof_has_only_utf8_and_negative_values_as_they_are) {
    struct profile *profile = new_heap();
    uint32_t f = add_named(profile, 1, "a\xff", "", 0);
    add_sample(profile, &f, 1, (int64_t[]){0, 0, -1, -5}, NULL);
    size_t length;
    const uint8_t *bytes = unpack(written(export_pprof, profile), &length);
    check_str(text_in(bytes, length, FUNCTION, 0, 2), "a\ufffd");
    struct field sample, packed;
    check(nth_field(bytes, length, SAMPLE, 0, &sample));
    check(nth_field(sample.bytes, sample.length, 2, 0, &packed));
    check_eq((int64_t)nth_packed(packed, 3), -5);
}

/* Text formats of stacks. */

TEST(folded_adds_up_stacks_that_read_the_same_and_leaves_negative_ones_out) {
    struct profile *profile = new_heap();
    uint32_t one = add_named(profile, 1, "f", "", 0), two = add_named(profile, 2, "f", "", 0);
    uint32_t top = add_named(profile, 3, "main", "", 0);
    add_sample(profile, (uint32_t[]){one, top}, 2, (int64_t[]){0, 0, 0, 3}, NULL);
    add_sample(profile, (uint32_t[]){two, top}, 2, (int64_t[]){0, 0, 0, 4}, NULL);
    add_sample(profile, (uint32_t[]){top}, 1, (int64_t[]){0, 0, 0, -4}, NULL);
    add_sample(profile, NULL, 0, (int64_t[]){0, 0, 0, 2}, NULL);
    check_str(written(export_folded, profile), "[unknown] 2\nmain;f 7\n");
}

TEST(folded_has_a_line_per_stack_whatever_the_names_are) {
    struct profile *profile = new_heap();
    uint32_t f = add_named(profile, 1, "evil\n100;x 7", "", 0);
    add_sample(profile, &f, 1, (int64_t[]){0, 0, 0, 3}, NULL);
    const char *text = written(export_folded, profile);
    check_eq(count_of(text, "\n"), 1);
    check_eq(count_of(text, ";"), 0);
    check_has(text, " 3\n");
}

TEST(speedscope_has_a_profile_per_type_and_opens_at_the_default) {
    const char *text = written(export_speedscope, new_named());
    check_has(text, "\"activeProfileIndex\":3");
    check_has(text, "{\"name\":\"load\",\"file\":\"account.c\",\"line\":140}");
    check_eq(count_of(text, "\"type\":\"sampled\""), 4);
    check_has(text, "\"name\":\"inuse_space\",\"unit\":\"bytes\",\"startValue\":0,\"samples\":[\n"
                    "[2,1,0],\n[2,1]],\"weights\":[4096,64],\"endValue\":4160}");
    check_has(text, "\"name\":\"inuse_objects\",\"unit\":\"none\"");
}

TEST(callgrind_has_lines_calls_and_a_summary) {
    check_str(written(export_callgrind, new_named()),
              "# callgrind format\nversion: 1\ncreator: tally\npositions: line\n"
              "events: inuse_space alloc_objects alloc_space inuse_objects\n"
              "summary: 4160 5 5184 3\n"
              "\n"
              "\n"
              "ob=(1) /bin/demo\nfl=(1) account.c\nfn=(1) load\n"
              "140 4096 1 4096 1\n"
              "\n"
              "ob=(1)\nfl=(2) auth.c\nfn=(2) login\n"
              "77 64 4 1088 2\n"
              "cob=(1)\ncfi=(1)\ncfn=(1)\ncalls=1 140\n"
              "77 4096 1 4096 1\n"
              "\n"
              "ob=(1)\nfl=(3) server.c\nfn=(3) main\n"
              "cob=(1)\ncfi=(2)\ncfn=(2)\ncalls=2 77\n"
              "412 4160 5 5184 3\n");
}

TEST(callgrind_counts_a_stack_once_however_deep_it_recurs) {
    struct profile *profile = new_heap();
    uint32_t f = add_named(profile, 1, "f", "f.c", 5);
    add_sample(profile, (uint32_t[]){f, f, f, f}, 4, (int64_t[]){0, 0, 0, 10}, NULL);
    check_has(written(export_callgrind, profile), "calls=1 5\n5 10 0 0 0\n");
}

TEST(callgrind_has_no_blanks_in_events_and_no_lines_in_names) {
    struct profile *profile = make_profile();
    profile_add_type(profile, "my metric\nfn=x", "count");
    uint32_t f = add_named(profile, 1, "(1) a\nfn=(2) b", "x\ny", 0);
    profile->locations[f].mapping = PROFILE_NONE;
    add_sample(profile, &f, 1, (int64_t[]){4}, NULL);
    const char *text = written(export_callgrind, profile);
    check_has(text, "events: my_metric_fn_x\n");
    check_has(text, "\nfn=(1) (1) a");
    check_eq(count_of(text, "\nfn="), 1);
}

TEST(csv_has_a_row_per_stack_and_all_metrics) {
    check_str(
        written(export_csv, new_named()),
        "function,file,line,module,alloc_objects,alloc_space,inuse_objects,inuse_space,labels,"
        "stack\r\n"
        "load,account.c,140,/bin/demo,1,4096,1,4096,\"thread=a\",\"main;login;load\"\r\n"
        "login,auth.c,77,/bin/demo,4,1088,2,64,\"thread=b\",\"main;login\"\r\n");
}

TEST(csv_rows_and_cells_stay_as_many_whatever_the_names_are) {
    struct profile *profile = new_single("=cmd|' /C calc'!A0,\"\r\n;x");
    const char *text = written(export_csv, profile);
    check_eq(count_of(text, "\r\n"), 2);
    check_has(text, "\r\n\"'=cmd|' /C calc'!A0,\"\"");
    check_has(text, ",\"'=cmd|");
}

TEST(json_holds_everything) {
    struct profile *profile = new_named();
    profile_add_comment(profile, "a \"comment\"");
    const char *text = written(export_json, profile);
    check_has(text, "\"default_type\":\"inuse_space\"");
    check_has(text, "{\"name\":\"inuse_space\",\"unit\":\"bytes\",\"total\":4160}");
    check_has(text, "\"comments\":[\"a \\\"comment\\\"\"]");
    check_has(text, "{\"path\":\"/bin/demo\",\"build_id\":\"0011aabb\",\"start\":\"0x400000\"");
    check_has(text, "{\"values\":[4,1088,2,64],\"stack\":[1,2],\"lines\":[77,412],"
                    "\"labels\":[{\"key\":\"thread\",\"text\":\"b\"}]}");
}

/* Formats of addresses. */

TEST(gperftools_is_written_to_the_byte) {
    check_str(written(export_gperftools, new_example()),
              "heap profile:      3:     4160 [     5:     5184] @ heapprofile\n"
              "     1:     4096 [     1:     4096] @ 0x00401136 0x0040118c 0x004011b5\n"
              "     2:       64 [     4:     1088] @ 0x00401140 0x004011b5\n"
              "\n"
              "MAPPED_LIBRARIES:\nleaf=call\n"
              "00400000-00402000 r-xp 00000000 00:00 0 /bin/demo\n");
}

TEST(gperftools_has_one_line_per_stack_and_never_bytes_of_no_object) {
    struct profile *profile = new_heap();
    uint32_t f = add_bare(profile, 0x401136);
    add_sample(profile, &f, 1, (int64_t[]){0, 10, 0, 10}, "a");
    add_sample(profile, &f, 1, (int64_t[]){0, 20, 0, 20}, "b");
    check_has(written(export_gperftools, profile),
              "@ heapprofile\n     1:       30 [     1:       30] @ 0x00401136\n\n");
}

TEST(gperftools_leaves_negative_values_out) {
    struct profile *profile = new_heap();
    uint32_t f = add_bare(profile, 0x401136), h = add_bare(profile, 0x401236);
    add_sample(profile, &f, 1, (int64_t[]){0, 0, -2, -10}, NULL);
    add_sample(profile, &h, 1, (int64_t[]){1, 5, 1, 5}, NULL);
    const char *text = written(export_gperftools, profile);
    check_lacks(text, "-10");
    check_lacks(text, "0x00401136");
    check_has(text, "heap profile:      1:        5 [     1:        5]");
}

/* What a writer says on descriptor 2. */
static const char *said_by(bool (*write)(const struct profile *, struct output *),
                           const struct profile *profile) {
    static char text[1024];
    FILE *file = tmpfile();
    int saved = dup(2);
    check(file != NULL && saved >= 0);
    fflush(stderr);
    dup2(fileno(file), 2);
    written(write, profile);
    fflush(stderr);
    dup2(saved, 2);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    close(saved);
    return text;
}

static void check_warning(const struct export_format *format) {
    struct profile *profile = new_example();
    bool has_room = format->write == export_pprof || format->write == export_csv ||
                    format->write == export_json;
    cli_loudness = 2;
    check_str(said_by(format->write, profile), "");
    profile->values[3] = -4096;
    const char *said = said_by(format->write, profile);
    check_eq(count_of(said, "values below zero are left out, in 1 of the stacks\n"), !has_room);
    check_eq(count_of(said, "\n"), !has_room);
}

TEST(what_has_no_room_for_negative_values_says_that_they_are_missing) {
    for (const struct export_format *one = export_formats; one->name != NULL; one++) {
        if (!one->needs_graphviz && one->write != export_gperftools_cpu) {
            check_child(check_warning(one)); /* each alone: what is said often is said no more */
        }
    }
}

TEST(gperftools_takes_live_objects_for_all_where_nothing_else_is_known) {
    struct profile *profile = make_profile();
    profile_add_type(profile, "objects", "count");
    profile_add_type(profile, "space", "bytes");
    uint32_t f = profile_add_location(profile, 0x10, PROFILE_NONE, NULL, 0);
    profile_add_sample(profile, &f, 1, (int64_t[]){2, 20}, NULL, 0);
    check_has(written(export_gperftools, profile), "     2:       20 [     2:       20] @ heap");
}

TEST(the_metric_decides_which_objects_are_called_live) {
    struct profile *profile = make_profile();
    static const char *const names[] = {"inuse_objects", "inuse_space", "peak_objects",
                                        "peak_space"};
    for (size_t i = 0; i < 4; i++) {
        profile_add_type(profile, names[i], "x");
    }
    uint32_t f = profile_add_location(profile, 0x10, PROFILE_NONE, NULL, 0);
    profile_add_sample(profile, &f, 1, (int64_t[]){1, 10, 3, 30}, NULL, 0);
    profile->default_type = 3;
    check_has(written(export_gperftools, profile), "     3:       30 [");
    profile->default_type = 0;
    check_has(written(export_gperftools, profile), "     1:       10 [");
}

TEST(jemalloc_is_written_at_rate_one_with_threads) {
    struct profile *profile = new_example();
    uint32_t f = profile->stacks[0];
    add_sample(profile, &f, 1, (int64_t[]){1, 100, 1, 100}, "worker 1\n@ 0x1");
    add_sample(profile, &f, 1, (int64_t[]){1, 200, 1, 200}, "main");
    check_str(written(export_jemalloc, profile),
              "heap_v2/1\n"
              "  t*: 5: 4460 [7: 5484]\n"
              "  t0: 1: 200 [1: 200] main\n"
              "  t1: 1: 100 [1: 100] worker 1\\x0a@ 0x1\n"
              "@ 0x401136\n"
              "  t*: 2: 300 [2: 300]\n"
              "  t0: 1: 200 [1: 200]\n"
              "  t1: 1: 100 [1: 100]\n"
              "@ 0x401136 0x40118c 0x4011b5\n"
              "  t*: 1: 4096 [1: 4096]\n"
              "@ 0x401140 0x4011b5\n"
              "  t*: 2: 64 [4: 1088]\n"
              "\n"
              "MAPPED_LIBRARIES:\nleaf=call\n"
              "00400000-00402000 r-xp 00000000 00:00 0 /bin/demo\n");
}

/* What a reader makes of a line: it multiplies by 1 / (1 - exp(-mean)). */
TEST(jemalloc_makes_up_for_the_factor_of_tiny_objects) {
    struct profile *profile = new_heap();
    uint32_t f = add_bare(profile, 0x401136);
    add_sample(profile, &f, 1, (int64_t[]){0, 0, 1000000, 1000000}, NULL); /* one byte each */
    check_has(written(export_jemalloc, profile), "@ 0x401136\n  t*: 632121: 632121 [0: 0]\n");
}

TEST(formats_of_addresses_refuse_profiles_without_any) {
    struct profile *profile = new_heap();
    uint32_t f = add_named(profile, 0, "f", "", 0);
    add_sample(profile, &f, 1, (int64_t[]){1, 1, 1, 1}, NULL);
    check_str(write_with(export_gperftools, profile, false), "");
    check_str(write_with(export_jemalloc, profile, false), "");
    profile->period_type.name = "cpu";
    profile->types[0].name = "samples";
    check_str(write_with(export_gperftools_cpu, profile, false), "");
}

TEST(a_stack_of_labels_alone_still_counts) {
    struct profile *profile = new_example();
    uint32_t f = add_named(profile, 0, "a label", "", 0);
    add_sample(profile, &f, 1, (int64_t[]){1, 7, 1, 7}, NULL);
    check_has(written(export_gperftools, profile),
              "     1:        7 [     1:        7] @ 0x00000001\n");
}

/* Out and in again, as often as one likes: every frame stays where it was, the leaf too. */
static void check_round(bool (*write)(const struct profile *, struct output *), read_fn read,
                        struct profile *profile) {
    for (unsigned round = 0; round < 3; round++) {
        const char *bytes = written(write, profile);
        struct profile *again = profile_of(read, bytes, written_bytes);
        const struct profile_sample *a = &profile->samples[0], *b = &again->samples[0];
        check_eq(a->depth, b->depth);
        for (uint32_t i = 0; i < a->depth; i++) {
            check_eq(profile->locations[profile->stacks[a->stack + i]].address,
                     again->locations[again->stacks[b->stack + i]].address);
        }
        profile = remember(again);
    }
}

static struct profile *new_cpu(void) {
    struct profile *profile = make_profile();
    profile_add_type(profile, "samples", "count");
    profile_add_type(profile, "cpu", "nanoseconds");
    profile->default_type = 1;
    profile->period_type = (struct profile_type){"cpu", "nanoseconds"};
    profile->period = 10000000;
    profile->is_exact_leaf = true;
    uint32_t inner = profile_add_location(profile, 0x401136, PROFILE_NONE, NULL, 0);
    uint32_t outer = profile_add_location(profile, 0x4011b4, PROFILE_NONE, NULL, 0);
    profile_add_sample(profile, (uint32_t[]){inner, outer}, 2, (int64_t[]){5, 50000000}, NULL, 0);
    return profile;
}

TEST(cpu_profiles_of_gperftools_are_written_to_the_word) {
    static const uintptr_t expected[] = {0, 3, 0, 10000, 0, 5, 2, 0x401136, 0x4011b5, 0, 1, 0};
    const char *bytes = written(export_gperftools_cpu, new_cpu());
    check_eq(written_bytes, sizeof expected);
    check(memcmp(bytes, expected, sizeof expected) == 0);
}

TEST(addresses_stay_where_they_are_through_every_format_of_addresses) {
    struct profile *profile = new_heap();
    uint32_t stack[] = {add_bare(profile, 0x401136), add_bare(profile, 0x4011b4)};
    add_sample(profile, stack, 2, (int64_t[]){1, 64, 1, 64}, NULL);
    check_round(export_jemalloc, read_jemalloc, profile);
    check_round(export_gperftools, read_gperftools, profile);
    check_round(export_gperftools_cpu, read_gperftools_cpu, new_cpu());
}

TEST(cpu_profiles_without_a_count_have_as_many_samples_as_periods) {
    struct profile *profile = new_cpu();
    profile->types[0].name = "something";
    const char *bytes = written(export_gperftools_cpu, profile);
    uintptr_t count;
    memcpy(&count, bytes + 5 * sizeof count, sizeof count);
    check_eq(count, 5);
}

TEST(heap_and_cpu_formats_refuse_each_other) {
    check_str(write_with(export_gperftools_cpu, new_example(), false), "");
    check_str(write_with(export_gperftools, new_cpu(), false), "");
    check_str(write_with(export_jemalloc, new_cpu(), false), "");
}

/* Pictures. */

TEST(dot_has_boxes_and_arrows_with_their_values) {
    const char *text = written(export_dot, new_named());
    check_has(text, "= 4160 bytes");
    check_has(text, "tooltip=\"load\\naccount.c\\nflat 4096 cum 4096\"");
    check_has(text, "tooltip=\"login\\nauth.c\\nflat 64 cum 4160\"");
    check_has(text, "N1 -> N0 [");
    check_has(text, "tooltip=\"4096\"");
    check_eq(count_of(text, " -> "), 2);
}

TEST(dot_leads_past_what_is_left_out) {
    struct profile *profile = new_heap();
    uint32_t top = add_named(profile, 1, "top", "", 0), between = add_named(profile, 2, "b", "", 0);
    uint32_t leaf = add_named(profile, 3, "leaf", "", 0), other = add_named(profile, 4, "o", "", 0);
    add_sample(profile, (uint32_t[]){leaf, between, top}, 3, (int64_t[]){0, 0, 0, 50}, NULL);
    add_sample(profile, (uint32_t[]){leaf, top}, 2, (int64_t[]){0, 0, 0, 60}, NULL);
    add_sample(profile, (uint32_t[]){leaf, other, top}, 3, (int64_t[]){0, 0, 0, 20}, NULL);
    args_select.most_rows = 2;
    check_lacks(written(export_dot, profile), "dotted"); /* some go straight */
    profile->values[7] = 0;
    const char *text = written(export_dot, profile);
    check_has(text, "style=dotted");
    check_has(text, "2 of 4 functions");
    args_select.most_rows = 0;
    args_select.least_share = 0.0;
    check_lacks(written(export_dot, profile), "dotted");
}

TEST(dot_leaves_out_what_is_below_the_least_share) {
    struct profile *profile = new_named();
    args_select.least_share = 0.99;
    check_lacks(written(export_dot, profile), "account.c"); /* 4096 of 4160 */
    args_select.least_share = 0.9;
    check_has(written(export_dot, profile), "account.c");
}

TEST(dot_counts_a_stack_once_however_deep_it_recurs) {
    struct profile *profile = new_heap();
    uint32_t f = add_named(profile, 1, "f", "", 0);
    add_sample(profile, (uint32_t[]){f, f, f}, 3, (int64_t[]){0, 0, 0, 10}, NULL);
    const char *text = written(export_dot, profile);
    check_has(text, "flat 10 cum 10");
    check_has(text, "tooltip=\"10\"");
}

TEST(dot_has_as_many_quotes_as_it_opens_whatever_the_names_are) {
    const char *text = written(export_dot, new_single("\"]; evil [label=\"\\"));
    check_has(text, "\\\"]; evil [label=\\\"\\\\");
    bool is_inside = false;
    for (; *text != '\0'; text++) {
        if (*text == '\\') {
            text++;
        } else if (*text == '"') {
            is_inside = !is_inside;
        }
        check(!is_inside || *text != '\n');
    }
    check(!is_inside);
}

TEST(svg_draws_frames_as_wide_as_their_share) {
    const char *text = written(export_svg, new_named());
    check_has(text, "total 4160 bytes");
    check_eq(count_of(text, "class=\"f\""), 4); /* all, main, login, load */
    check_eq(count_of(text, "width=\"1180.000\""), 3);
    check_has(text, "width=\"1161.846\""); /* 1180 * 4096 / 4160 */
    check_has(text, "<title>load\n");
}

TEST(svg_needs_nothing_from_outside) {
    const char *text = written(export_svg, new_named());
    check_eq(count_of(text, "http"), 1); /* the name of the format */
    check_lacks(text, "href");
    check_lacks(text, "@import");
    check_lacks(text, "url(");
    check_lacks(text, "innerHTML");
    check_lacks(text, "eval");
    check_lacks(text, " on");
}

TEST(svg_shows_names_as_text_and_nothing_else) {
    const char *text =
        written(export_svg, new_single("</title><script>alert(1)</script>\" onload=\"x"));
    check_eq(count_of(text, "<script>"), 1);
    check_lacks(text, "\" onload");
    check_has(text, "&lt;/title&gt;&lt;script&gt;");
}

TEST(svg_leaves_out_what_nobody_could_see_and_says_so) {
    struct profile *profile = new_heap();
    uint32_t big = add_named(profile, 1, "big", "", 0),
             small = add_named(profile, 2, "small", "", 0);
    uint32_t below = add_named(profile, 3, "below", "", 0);
    add_sample(profile, &big, 1, (int64_t[]){0, 0, 0, 1000000}, NULL);
    add_sample(profile, (uint32_t[]){below, small}, 2, (int64_t[]){0, 0, 0, 1}, NULL);
    const char *text = written(export_svg, profile);
    check_has(text, "2 frames too small");
    check_lacks(text, "<title>small");
    check_lacks(text, "<title>below");
}

TEST(svg_gives_modules_colours_and_names_them) {
    struct profile *profile = new_named();
    struct profile_mapping mapping = {
        .start = 0x500000, .limit = 0x600000, .path = "/lib/lib<x>.so", .build_id = ""};
    profile->locations[0].mapping = profile_add_mapping(profile, mapping);
    const char *text = written(export_svg, profile);
    check_has(text, ">demo</text>");
    check_has(text, ">lib&lt;x&gt;.so</text>");
}

TEST(pictures_of_an_empty_profile_are_empty_and_whole) {
    struct profile *profile = new_heap();
    check_has(written(export_svg, profile), "</svg>\n");
    check_has(written(export_dot, profile), "}\n");
    check_str(written(export_folded, profile), "");
    check_has(written(export_speedscope, profile), "\"endValue\":0}]}\n");
}

TEST(a_stack_deeper_than_any_picture_is_cut) {
    enum { DEEP = 5000 };
    struct profile *profile = new_heap();
    static uint32_t stack[DEEP];
    for (uint32_t i = 0; i < DEEP; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%u", i);
        stack[i] = add_named(profile, 16 + i, name, "", 0);
    }
    add_sample(profile, stack, DEEP, (int64_t[]){0, 0, 0, 5}, NULL);
    check_has(written(export_svg, profile), "frames too small");
    check_eq(count_of(written(export_folded, profile), ";"), DEEP - 1);
}

/* Graphviz. */

static const char *make_dot(const char *text) {
    static char folder[32];
    strcpy(folder, "/tmp/tally-export-XXXXXX");
    check(mkdtemp(folder) != NULL);
    char path[64];
    snprintf(path, sizeof path, "%s/dot", folder);
    FILE *file = fopen(path, "w");
    check(file != NULL);
    fputs(text, file);
    check(fclose(file) == 0 && chmod(path, 0700) == 0);
    return folder;
}

static void remove_dot(const char *folder) {
    char path[64];
    snprintf(path, sizeof path, "%s/dot", folder);
    unlink(path);
    rmdir(folder);
}

TEST(dot_is_found_only_in_the_folders_given) {
    const char *folder = make_dot("");
    check(export_find_dot((const char *const[]){"/nonexistent", NULL}) == NULL);
    char *found = export_find_dot((const char *const[]){"/nonexistent", folder, NULL});
    check(found != NULL && strncmp(found, folder, strlen(folder)) == 0);
    free(found);
    remove_dot(folder);
}

static void run_fake_dot(const char *script, bool expected, char *result, size_t bytes) {
    const char *folder = make_dot(script);
    char *program = export_find_dot((const char *const[]){folder, NULL});
    FILE *text = tmpfile(), *picture = tmpfile();
    check(text != NULL && picture != NULL);
    fputs("digraph {}", text);
    check_eq(export_run_dot(program, "png", text, picture), expected);
    rewind(picture);
    result[fread(result, 1, bytes - 1, picture)] = '\0';
    fclose(text);
    fclose(picture);
    free(program);
    remove_dot(folder);
}

TEST(dot_gets_the_graph_the_kind_and_a_clean_environment) {
    setenv("EVIL", "1", 1);
    setenv("LD_PRELOAD", "", 1);
    char result[512];
    run_fake_dot("#!/bin/sh\necho \"$*\"\necho \"${EVIL-none} $PATH\"\ncat\n", true, result,
                 sizeof result);
    check_str(result, "-Tpng\nnone /usr/bin:/bin\ndigraph {}");
}

TEST(dot_that_fails_is_a_failure) {
    char result[16];
    run_fake_dot("#!/bin/sh\nexit 3\n", false, result, sizeof result);
    run_fake_dot("#!/bin/sh\nkill -9 $$\n", false, result, sizeof result);
}

/* Formats and names. */

TEST(formats_are_found_by_name_and_by_the_longest_ending) {
    check_str(export_by_name("pprof")->name, "pprof");
    check(export_by_name("pprof2") == NULL);
    check_str(export_by_ending("a.pb.gz")->name, "pprof");
    check_str(export_by_ending("a.json")->name, "json");
    check_str(export_by_ending("a.speedscope.json")->name, "speedscope");
    check_str(export_by_ending("a.svg")->name, "svg");
    check_str(export_by_ending("a.pdf")->name, "graph-pdf");
    check(export_by_ending("a.gz") == NULL);
    check(export_by_ending(".svg") == NULL);
    check(export_by_ending("svg") == NULL);
}

TEST(help_names_every_format_and_its_first_ending) {
    for (const struct export_format *one = export_formats; one->name != NULL; one++) {
        char row[64];
        int length = (int)strcspn(one->endings, " ");
        snprintf(row, sizeof row, "\n    %-15s %.*s ", one->name, length, one->endings);
        check_has(command_export.text, row);
    }
}

TEST(anonymous_profiles_have_no_name_in_any_format) {
    struct profile *profile = new_named();
    profile_add_comment(profile, keep(profile, "/home/anna/server --secret"));
    profile->labels[0].text = keep(profile, "annas thread");
    export_anonymize(profile);
    static const char *const secrets[] = {"load",   "login", "main",     "account", "auth",
                                          "server", "demo",  "0011aabb", "anna",    "secret"};
    for (const struct export_format *one = export_formats; one->name != NULL; one++) {
        if (one->needs_graphviz || strcmp(one->name, "gperftools-cpu") == 0) {
            continue;
        }
        const char *text = written(one->write, profile);
        size_t length = written_bytes;
        if (one->is_binary) {
            text = (const char *)unpack(text, &length);
        }
        for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++) {
            check(memmem(text, length, secrets[i], strlen(secrets[i])) == NULL);
        }
    }
}

TEST(anonymous_names_are_equal_where_names_were_and_only_there) {
    struct profile *one = new_named(), *two = new_named();
    export_anonymize(one);
    export_anonymize(two);
    for (uint32_t i = 0; i < 3; i++) {
        check_str(one->functions[i].name, two->functions[i].name);
        check_eq(strlen(one->functions[i].name), strlen("function_") + 12);
    }
    check(strcmp(one->functions[0].name, one->functions[1].name) != 0);
    check(strcmp(one->functions[0].file, one->functions[1].file) != 0);
    check_eq(profile_total(one, 3), 4160);
}

TEST(anonymous_libraries_still_look_like_libraries) {
    struct profile *profile = new_named();
    profile->mappings[0].path = keep(profile, "/usr/lib/libsecret.so.3");
    export_anonymize(profile);
    check_has(profile->mappings[0].path, ".so");
    check_lacks(profile->mappings[0].path, "secret");
    check_str(profile->mappings[0].build_id, "");
}

/* For test/interop. */

static const char *const hostile[] = {
    "plain_function",
    "std::vector<int, std::allocator<int> >::push_back(int const&)",
    "</title><script>alert(1)</script>",
    "\"]; evil [label=\"\\",
    "=cmd|' /C calc'!A0",
    "a;b c 7",
    "(2) fn=x\nfn=(9) y\n1 1000000",
    "gr\u00f6\u00dfe\u202e\xff\x1b[31m",
    "\\N &quot; {a|b} $x",
    "@ 0x1 0x2",
};
enum { HOSTILE = sizeof hostile / sizeof hostile[0] };

/* Every hostile function is called by main through one of three others, and calls the one before it. */
static struct profile *new_hostile(void) {
    struct profile *profile = new_heap();
    uint32_t outer = add_named(profile, 0x400100, "main", "main.c", 10);
    uint32_t between[] = {add_named(profile, 0x400200, "read_all", "read.c", 20),
                          add_named(profile, 0x400300, "write_all", "write.c", 30),
                          add_named(profile, 0x400400, "idle", "main.c", 40)};
    uint32_t before = add_named(profile, 0x400500, "helper", "helper.c", 50);
    for (uint32_t i = 0; i < HOSTILE; i++) {
        uint32_t leaf = add_named(profile, 0x401000 + i * 16, hostile[i], hostile[i], 100 + i);
        uint32_t via = between[i % 3];
        int64_t objects = 3 * (int64_t)i + 1, bytes = objects * (40 + (int64_t)i);
        add_sample(profile, (uint32_t[]){leaf, via, outer}, 3,
                   (int64_t[]){objects * 2, bytes * 2, objects, bytes}, hostile[i]);
        add_sample(profile, (uint32_t[]){before, leaf, via, outer}, 4, (int64_t[]){5, 500, 1, 100},
                   "main");
        before = leaf;
    }
    return profile;
}

static struct profile *new_busy(void) {
    struct profile *profile = new_cpu();
    uint32_t outer = profile->stacks[1];
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t leaf = profile_add_location(profile, 0x402000 + i * 64, PROFILE_NONE, NULL, 0);
        uint32_t via = profile_add_location(profile, 0x403000 + i * 64, PROFILE_NONE, NULL, 0);
        int64_t count = 3 + i;
        profile_add_sample(profile, (uint32_t[]){leaf, via, outer}, 3,
                           (int64_t[]){count, count * profile->period}, NULL, 0);
    }
    return profile;
}

static FILE *create(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    check(file != NULL);
    return file;
}

static void leave_profile(const char *folder, const char *name, const struct profile *profile) {
    struct output output = {.file = create(folder, name)};
    check(export_pprof(profile, &output));
    check(fclose(output.file) == 0);
}

TEST(files_for_exports) {
    const char *folder = getenv("PROFILES");
    if (folder == NULL) {
        skip("PROFILES names no folder");
    }
    struct profile *profile = new_hostile();
    leave_profile(folder, "hostile.pb.gz", profile);
    leave_profile(folder, "busy.pb.gz", new_busy());
    FILE *truth = create(folder, "hostile.truth");
    for (uint32_t i = 0; i < profile->type_count; i++) {
        fprintf(truth, "%s %" PRId64 "\n", profile->types[i].name, profile_total(profile, i));
    }
    fprintf(truth, "samples %u\n", profile->sample_count);
    check(fclose(truth) == 0);
}
