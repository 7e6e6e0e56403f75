/* SPDX-License-Identifier: MIT
 *
 * test_read_gperftools.c - the heap text of gperftools in its variants: which are scaled, how, and which
 * are not.
 */
#include "profiles.h"

static const char maps[] = "\nMAPPED_LIBRARIES:\n"
                           "00400000-00402000 r-xp 00000000 08:01 131 /bin/demo\n";

/* A profile of these lines with the maps behind them. */
static struct profile *with_maps(const char *lines) {
    char text[4000];
    snprintf(text, sizeof text, "%s%s", lines, maps);
    return profile_of_text(read_gperftools, text);
}

static const char exact[] =
    "heap profile:      3:     4160 [     5:     5184] @ heapprofile\n"
    "     1:     4096 [     1:     4096] @ 0x00401136 0x0040118c 0x004011b5\n"
    "     2:       64 [     4:     1088] @ 0x00401140 0x004011b5\n";

TEST(an_exact_profile_is_as_it_is) {
    struct profile *profile = with_maps(exact);
    check_eq(profile->type_count, 4);
    check_eq(total_of(profile, "inuse_space"), 4160);
    check_eq(total_of(profile, "inuse_objects"), 3);
    check_eq(total_of(profile, "alloc_space"), 5184);
    check_eq(value_of(profile, 1, "alloc_objects"), 4);
    check_str(stack_of(profile, 0), "401135 40118b 4011b4");
    check_str(label_of(profile, 1, "bytes"), "32 bytes");
    check_str(module_of(profile, 0, 0), "/bin/demo");
    check_str(profile->types[profile->default_type].name, "inuse_space");
    check_eq(profile->period, 1);
    check_str(profile->source, "gperftools");
    profile_free(profile);
}

TEST(a_sampled_profile_is_scaled_line_by_line) {
    struct profile *profile =
        with_maps("heap profile:      2:     8192 [     2:     8192] @ heap_v2/524288\n"
                  "     1:     4096 [     1:     4096] @ 0x401136 0x40118c 0x4011b5\n"
                  "     1:     4096 [     1:     4096] @ 0x401140 0x4011b5\n");
    check_eq(total_of(profile, "inuse_space"), 1052677); /* as google-pprof and jeprof have it */
    check_eq(total_of(profile, "alloc_space"), 1052677);
    check_eq(total_of(profile, "inuse_objects"), 257);
    check_eq(value_of(profile, 0, "inuse_space"), 526338);
    check_eq(profile->period, 524288);
    profile_free(profile);
}

TEST(growth_and_unknown_words_are_not_scaled) {
    static const char *const words[] = {"growth", "growthz/524288", "fragmentation", "heapprofile",
                                        "heap_v2/1"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "heap profile: 1: 1048576 [ 1: 1048576] @ %s\n"
                 " 1: 1048576 [ 1: 1048576] @ 0x401136 0x4011b5\n",
                 words[i]);
        struct profile *profile = with_maps(text);
        check_eq(total_of(profile, "inuse_space"), 1048576);
        profile_free(profile);
    }
}

TEST(the_old_way_of_sampling_is_linear) {
    struct profile *profile = with_maps("heap profile: 2: 200000 [ 2: 200000] @ heap/131072\n"
                                        " 1: 1000 [ 1: 1000] @ 0x401136\n"
                                        " 1: 199000 [ 1: 199000] @ 0x401140\n");
    check_eq(value_of(profile, 0, "inuse_space"), 65536);
    check_eq(value_of(profile, 1, "inuse_space"), 199000);
    check_eq(profile->period, 65536);
    profile_free(profile);
    profile = with_maps("heap profile: 1: 1024 [ 1: 1024] @\n 1: 1024 [ 1: 1024] @ 0x401136\n");
    check_eq(total_of(profile, "inuse_space"), 131072);
    check_eq(total_of(profile, "inuse_objects"), 128);
    profile_free(profile);
    profile = with_maps("heap profile: 1: 1024 [ 2: 2048] @\n 1: 1024 [ 2: 2048] @ 0x401136\n");
    check_eq(total_of(profile, "inuse_space"), 1024);
    profile_free(profile);
}

TEST(warnings_comments_and_carriage_returns_are_passed_over) {
    struct profile *profile = with_maps("%warn sampling was off\n"
                                        "heap profile: 1: 10 [ 1: 10] @ heapprofile\r\n"
                                        "# a comment\r\n"
                                        "\r\n"
                                        " 1: 10 [ 1: 10] @ 0x401136\r\n");
    check_eq(total_of(profile, "inuse_space"), 10);
    profile_free(profile);
}

TEST(negative_numbers_of_a_difference_are_read) {
    struct profile *profile = with_maps("heap profile: -1: -10 [ 1: 10] @ heapprofile\n"
                                        " -1: -10 [ 1: 10] @ 0x401136\n");
    check(total_of(profile, "inuse_space") == -10);
    profile_free(profile);
}

TEST(damage_is_one_sentence) {
    check_refused_text(read_gperftools, "heap profile: 1: \n", "the first line has no totals");
    check_refused_text(read_gperftools,
                       "heap profile: 1: 10 [1: 10] @ heapprofile\n 1: 10 [1: 10 @ 0x1\n",
                       "line 2 has no counts");
    check_refused_text(read_gperftools,
                       "heap profile: 1: 10 [1: 10] @ heapprofile\n 1: 10 [1: 10] @ main\n",
                       "line 2 has no stack behind its counts");
    check_refused(read_gperftools, exact, strlen(exact) - 60,
                  "it was cut: lines that the first one has counted are missing");
}

TEST(no_cut_and_no_changed_byte_does_harm) {
    char text[1000];
    snprintf(text, sizeof text, "%s%s", exact, maps);
    check_every_cut(read_gperftools, text, strlen(text));
    check_every_change(read_gperftools, text, strlen(text));
}
