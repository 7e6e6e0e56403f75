/* SPDX-License-Identifier: MIT
 *
 * test_export_escape.c - names that mean harm do none in JSON, XML, dot, CSV and text.
 */
#define _GNU_SOURCE /* memmem */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "common/escape.h"
#include "exported.h"
#include "test.h"

static const char *escaped(void (*escape)(FILE *, const char *), const char *text) {
    char *result = NULL;
    FILE *file = open_memstream(&result, &written_bytes);
    escape(file, text);
    check(fclose(file) == 0);
    return remember(result);
}

TEST_SETUP(usual_selection);

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
