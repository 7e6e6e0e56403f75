/* SPDX-License-Identifier: MIT
 *
 * test_export.c - the call tree that exports are made of, the table of formats, and profiles without names.
 *
 * With PROFILES set, the test `files_for_exports` leaves profiles there, which test/interop has exported and
 * shows to other people's programs.
 */
#define _GNU_SOURCE /* memmem */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "export/call_tree.h"
#include "command/commands.h"
#include "export/export.h"
#include "exported.h"
#include "profiles.h"

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
