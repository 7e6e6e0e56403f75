/* SPDX-License-Identifier: MIT
 *
 * test_read_folded.c - folded stacks: names from the outermost to the innermost, then a number.
 */
#include "profiles.h"

TEST(a_line_is_a_stack_with_a_number) {
    struct profile *profile =
        profile_of_text(read_folded, "main;handle;operator new(unsigned long) 40\n"
                                     "main;handle 2\n"
                                     "main 100\n");
    check_eq(profile->sample_count, 3);
    check_eq(total_of(profile, "samples"), 142);
    check_str(stack_of(profile, 0), "operator new(unsigned long) handle main");
    check_str(stack_of(profile, 1), "handle main");
    check_eq(value_of(profile, 2, "samples"), 100);
    check_eq(profile->function_count, 3);
    check_eq(profile->location_count, 3);
    check_str(profile->source, "folded");
    profile_free(profile);
}

TEST(empty_frames_comments_and_line_ends_do_not_matter) {
    struct profile *profile =
        profile_of_text(read_folded, "# made by hand\r\n\r\n;a;;b; 1\r\n  c 2");
    check_eq(profile->sample_count, 2);
    check_str(stack_of(profile, 0), "b a");
    check_str(stack_of(profile, 1), "c");
    profile_free(profile);
}

TEST(fractions_are_rounded_and_differences_are_negative) {
    struct profile *profile = profile_of_text(read_folded, "a 1.5\nb 1.49\nc -2.5\nd 3.\n");
    check_eq(value_of(profile, 0, "samples"), 2);
    check_eq(value_of(profile, 1, "samples"), 1);
    check(value_of(profile, 2, "samples") == -3);
    check_eq(value_of(profile, 3, "samples"), 3);
    profile_free(profile);
}

static bool is_folded(const char *text) {
    return read_is_folded((const uint8_t *)text, strlen(text));
}

TEST(it_is_recognised_by_its_first_line) {
    check(is_folded("a;b 1\nanything"));
    check(is_folded("\n# x\na 1"));
    check(!is_folded("a;b\n"));
    check(!is_folded("17\n"));
    check(!is_folded(""));
    check(!is_folded("a 1x\n"));
    check(!read_is_folded((const uint8_t *)"a 1\n\0", 5));
}

TEST(damage_is_one_sentence) {
    check_refused_text(read_folded, "a 1\nb;c\n", "line 2 does not end in a number");
    check_refused_text(read_folded, "a 1\n7\n", "line 2 does not end in a number");
    check_refused_text(read_folded, "a 9223372036854775808\n", "line 1 does not end in a number");
    check_refused_text(read_folded, "a 9223372036854775807.9\n", "line 1 does not end in a number");
}

TEST(no_cut_and_no_changed_byte_does_harm) {
    static const char text[] = "main;handle;f 40\nmain;handle 2.5\nmain 100\n";
    check_every_cut(read_folded, text, strlen(text));
    check_every_change(read_folded, text, strlen(text));
}
