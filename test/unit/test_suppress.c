/* SPDX-License-Identifier: MIT
 *
 * test_suppress.c - lists of LeakSanitizer's format: which lines are rules, and which names they match.
 */
#include "contract/suppress.h"

#include <string.h>

#include "unit.h"

static bool matches(const char *pattern, const char *name) {
    struct suppress_rule rule = {pattern, strlen(pattern)};
    return suppress_matches(&rule, name);
}

static bool next_is(const char **text, const char *pattern) {
    struct suppress_rule rule;
    return suppress_next(text, &rule) && rule.length == strlen(pattern) &&
           memcmp(rule.pattern, pattern, rule.length) == 0;
}

TEST(rules_are_lines_that_begin_with_leak) {
    const char *text = "# comment\n"
                       "leak:first\n"
                       "\n"
                       "race:other_tool\n"
                       "  leak:second \t\r\n"
                       "leak:\n"
                       "leaks:none\n"
                       "leak:third";
    check(next_is(&text, "first"));
    check(next_is(&text, "second"));
    check(next_is(&text, "third"));
    struct suppress_rule rule;
    check(!suppress_next(&text, &rule));
    check(!suppress_next(&text, &rule));
}

TEST(a_pattern_matches_anywhere_in_a_name) {
    check(matches("config", "/usr/lib/libfontconfig.so.1"));
    check(matches("libfontconfig", "libfontconfig"));
    check(!matches("libfontconfig", "libfontconfi"));
    check(!matches("config", NULL));
    check(matches("*", ""));
    check(matches("*", "anything"));
}

TEST(a_star_is_any_text) {
    check(matches("g_*_init", "g_type_class_init"));
    check(matches("g_*_init", "xx g_a_init yy"));
    check(!matches("g_*_init", "g_type_inix"));
    check(matches("a*b*c", "a-b-b-c"));
    check(matches("**", ""));
}

TEST(ends_of_a_name_can_be_meant) {
    check(matches("^main$", "main"));
    check(!matches("^main$", "mainly"));
    check(!matches("^main$", "domain"));
    check(matches("^main", "mainly"));
    check(matches("main$", "domain"));
    check(!matches("main$", "main_loop"));
    check(matches("^a*z$", "az"));
    check(matches("^a*z$", "a_z_z"));
    check(!matches("^a*z$", "a_z_zx"));
    check(matches("b$", "bab"));
}

TEST(the_first_rule_that_fits_is_found) {
    const char *const names[] = {NULL, "read_all", "/lib/libz.so.1"};
    struct suppress_rule rule;
    check(suppress_find("leak:write\nleak:libz\nleak:read", names, 3, &rule));
    check(strncmp(rule.pattern, "libz", rule.length) == 0);
    check(!suppress_find("leak:write\n", names, 3, &rule));
    check(!suppress_find("", names, 3, &rule));
}

/* What takes exponential time elsewhere ends here. */
TEST(many_stars_end_soon) {
    char name[4001];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    check(!matches("a*a*a*a*a*a*a*b", name));
}
