/* SPDX-License-Identifier: MIT
 *
 * test_export_files.c - the formats of `tally export` that other programs read.
 */
#define _GNU_SOURCE /* memmem */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "export/export.h"
#include "exported.h"
#include "profiles.h"
#include "select/select.h"

static uint32_t add_bare(struct profile *profile, uint64_t address) {
    return profile_add_location(profile, address, 0, NULL, 0);
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

TEST_SETUP(usual_selection);

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
