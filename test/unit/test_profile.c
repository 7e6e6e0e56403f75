/* SPDX-License-Identifier: MIT
 *
 * test_profile.c - parts are shared where they are equal, and adding, merging and subtracting profiles gives
 * the sums that one expects.
 */
#include "profile/profile.h"

#include <sys/wait.h>
#include <unistd.h>

#include "common/cli.h"
#include "profiles.h"

static const char *text(struct profile *profile, const char *words) {
    return profile_text(profile, words, strlen(words));
}

static uint32_t add_function(struct profile *profile, const char *name, const char *file) {
    return profile_add_function(profile,
                                (struct profile_function){.name = text(profile, name),
                                                          .system_name = text(profile, name),
                                                          .file = text(profile, file)});
}

static uint32_t add_location(struct profile *profile, uint64_t address, const char *name) {
    struct profile_line line = {add_function(profile, name, "a.c"), 1};
    return profile_add_location(profile, address, PROFILE_NONE, &line, 1);
}

/* Two types and one sample per call: objects of 10 bytes. */
static struct profile *make_profile(void) {
    struct profile *profile = profile_new();
    profile_add_type(profile, text(profile, "inuse_objects"), text(profile, "count"));
    profile->default_type =
        profile_add_type(profile, text(profile, "inuse_space"), text(profile, "bytes"));
    return profile;
}

static void add(struct profile *profile, const char *leaf, int64_t objects, const char *thread) {
    uint32_t stack[2] = {add_location(profile, 0x1000 + (uint64_t)leaf[0], leaf),
                         add_location(profile, 0x1000, "main")};
    int64_t values[2] = {objects, 10 * objects};
    struct profile_label label = {
        .key = text(profile, "thread"), .text = text(profile, thread), .unit = text(profile, "")};
    profile_add_sample(profile, stack, 2, values, &label, 1);
}

TEST(texts_are_kept_once_and_do_not_move) {
    struct profile *profile = profile_new();
    const char *first = text(profile, "first");
    for (int i = 0; i < 100000; i++) {
        char name[32];
        snprintf(name, sizeof name, "name %d", i);
        check_str(text(profile, name), name);
    }
    check_eq(text(profile, "first"), first);
    check_str(first, "first");
    check_eq(text(profile, "name 77"), profile_text(profile, "name 777", 7));
    profile_free(profile);
}

TEST(a_long_text_is_whole_and_a_zero_ends_one) {
    struct profile *profile = profile_new();
    static char words[300000];
    memset(words, 'x', sizeof words - 1);
    check_eq(strlen(text(profile, words)), sizeof words - 1);
    check_eq(text(profile, words), text(profile, words));
    check_eq(profile_text(profile, "ab\0cd", 5), text(profile, "ab"));
    profile_free(profile);
}

TEST(equal_functions_share_an_index) {
    struct profile *profile = profile_new();
    uint32_t first = add_function(profile, "f", "a.c");
    check_eq(add_function(profile, "f", "a.c"), first);
    check(add_function(profile, "f", "b.c") != first);
    check(add_function(profile, "g", "a.c") != first);
    check_eq(profile->function_count, 3);
    profile_free(profile);
}

TEST(equal_locations_share_an_index) {
    struct profile *profile = profile_new();
    uint32_t plain = profile_add_location(profile, 0x10, PROFILE_NONE, NULL, 0);
    uint32_t named = add_location(profile, 0x10, "f");
    check_eq(profile_add_location(profile, 0x10, PROFILE_NONE, NULL, 0), plain);
    check_eq(add_location(profile, 0x10, "f"), named);
    check(named != plain);
    check(add_location(profile, 0x10, "g") != named);
    check(add_location(profile, 0x11, "f") != named);
    check(profile_verify(profile));
    profile_free(profile);
}

TEST(a_location_can_get_its_lines_later) {
    struct profile *profile = profile_new();
    uint32_t location = profile_add_location(profile, 0x10, PROFILE_NONE, NULL, 0);
    struct profile_line lines[2] = {{add_function(profile, "inlined", ""), 3},
                                    {add_function(profile, "caller", ""), 9}};
    profile_set_lines(profile, location, lines, 2);
    check_eq(profile->locations[location].line_count, 2);
    check_eq(profile->lines[profile->locations[location].lines + 1].number, 9);
    /* Lines that are the profile's own stay valid while their array moves. */
    for (int i = 0; i < 1000; i++) {
        profile_set_lines(profile, location, profile->lines + profile->locations[location].lines,
                          2);
    }
    check_eq(profile->lines[profile->locations[location].lines + 1].number, 9);
    check(profile_verify(profile));
    profile_free(profile);
}

TEST(samples_keep_their_values_stacks_and_labels) {
    struct profile *profile = make_profile();
    static const char *const names[] = {"f", "g", "h"};
    for (int i = 0; i < 1000; i++) {
        add(profile, names[i % 3], i, i % 2 == 0 ? "even" : "odd");
    }
    check_eq(profile->sample_count, 1000);
    check_eq(total_of(profile, "inuse_objects"), 499500);
    check_eq(total_of(profile, "inuse_space"), 4995000);
    check_eq(value_of(profile, 7, "inuse_space"), 70);
    check_str(label_of(profile, 7, "thread"), "odd");
    check_str(stack_of(profile, 2), "h main");
    check_eq(profile_find_type(profile, "nothing"), PROFILE_NONE);
    check(profile_verify(profile));
    profile_free(profile);
}

TEST(equal_samples_become_one) {
    struct profile *profile = make_profile();
    for (int i = 0; i < 900; i++) {
        add(profile, i % 3 == 0 ? "f" : "g", 1, i % 2 == 0 ? "even" : "odd");
    }
    profile_merge_equal(profile);
    check_eq(profile->sample_count, 4);
    check_eq(total_of(profile, "inuse_space"), 9000);
    check_eq(value_of(profile, 0, "inuse_objects"), 150);
    check_str(stack_of(profile, 0), "f main");
    check_eq(value_of(profile, 1, "inuse_objects"), 300);
    check(profile_verify(profile));
    profile_free(profile);
}

TEST(a_profile_less_itself_is_nothing) {
    struct profile *profile = make_profile(), *other = make_profile();
    add(profile, "f", 3, "a");
    add(profile, "g", 4, "b");
    add(other, "g", 4, "b");
    add(other, "f", 3, "a");
    profile_add_profile(profile, other, -1);
    profile_merge_equal(profile);
    check_eq(profile->sample_count, 2);
    check_eq(value_of(profile, 0, "inuse_objects"), 0);
    check_eq(value_of(profile, 1, "inuse_space"), 0);
    check(profile_verify(profile));
    profile_free(profile);
    profile_free(other);
}

TEST(an_empty_profile_becomes_what_is_added) {
    struct profile *profile = profile_new(), *other = make_profile();
    add(other, "f", 3, "a");
    other->period = 512;
    other->time_ns = 77;
    profile_add_mapping(other, (struct profile_mapping){.start = 1,
                                                        .limit = 2,
                                                        .path = text(other, "/bin/a"),
                                                        .build_id = text(other, "ab")});
    profile_add_comment(other, text(other, "said"));
    profile_add_profile(profile, other, 1);
    profile_free(other); /* nothing of it is used any more */
    check_eq(total_of(profile, "inuse_space"), 30);
    check_eq(profile->period, 512);
    check_eq(profile->time_ns, 77);
    check_eq(profile->default_type, 1);
    check_str(stack_of(profile, 0), "f main");
    check_str(label_of(profile, 0, "thread"), "a");
    check_str(profile->mappings[0].build_id, "ab");
    check_str(profile->comments[0], "said");
    check(profile_verify(profile));
    profile_free(profile);
}

TEST(types_of_one_profile_only_are_left_out) {
    struct profile *profile = make_profile(), *other = profile_new();
    add(profile, "f", 3, "a");
    profile_add_type(other, text(other, "alloc_space"), text(other, "bytes"));
    profile_add_type(other, text(other, "inuse_space"), text(other, "bytes"));
    uint32_t location = add_location(other, 0x20, "g");
    profile_add_sample(other, &location, 1, (const int64_t[]){1000, 7}, NULL, 0);
    profile_add_profile(profile, other, 1);
    check_eq(profile->type_count, 1);
    check_eq(profile->default_type, 0);
    check_eq(total_of(profile, "inuse_space"), 37);
    check_eq(value_of(profile, 1, "inuse_space"), 7);
    check(profile_verify(profile));
    profile_free(profile);
    profile_free(other);
}

TEST(sums_stay_at_the_ends_of_what_can_be_said) {
    struct profile *profile = profile_new(), *other = profile_new();
    profile_add_type(profile, text(profile, "x"), text(profile, ""));
    profile_add_sample(profile, NULL, 0, (const int64_t[]){INT64_MAX}, NULL, 0);
    profile_add_sample(profile, NULL, 0, (const int64_t[]){INT64_MAX}, NULL, 0);
    check(profile_total(profile, 0) == INT64_MAX);
    profile_merge_equal(profile);
    check_eq(profile->sample_count, 1);
    check(profile_value(profile, 0, 0) == INT64_MAX);
    profile_add_type(other, text(other, "x"), text(other, ""));
    profile_add_sample(other, NULL, 0, (const int64_t[]){INT64_MIN}, NULL, 0);
    profile_add_profile(profile, other, -1);
    check(profile_value(profile, 1, 0) == INT64_MAX);
    profile_free(profile);
    profile_free(other);
}

TEST(a_profile_above_the_limit_of_memory_ends_the_command) {
    cli_memory_limit = 1 << 20;
    pid_t child = fork();
    if (child == 0) {
        struct profile *profile = make_profile();
        for (;;) {
            add(profile, "f", 1, "a");
        }
    }
    int status;
    check(waitpid(child, &status, 0) == child);
    check(WIFEXITED(status));
    check_eq(WEXITSTATUS(status), EXIT_OWN_FAILURE);
}
