/* SPDX-License-Identifier: MIT
 *
 * test_export_pictures.c - the formats of `tally export` that people look at: dot, and flame graphs in SVG.
 */
#define _GNU_SOURCE /* memmem */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "args/args.h"
#include "export/export.h"
#include "exported.h"
#include "profiles.h"
#include "select/select.h"

TEST_SETUP(usual_selection);

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
