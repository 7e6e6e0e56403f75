/* SPDX-License-Identifier: MIT
 *
 * test_json.c - what goes in comes out, in pieces that fit; quotes hold whatever is put in them.
 */
#include "out/json.h"

#include "unit.h"

/* Everything that was written, one piece after the other. */
static struct {
    char text[1 << 20];
    size_t length;
    size_t longest;
    unsigned calls;
} got;

static char buffer[4096];

static int gather(void *target, const char *bytes, size_t length) {
    check(target == &got);
    check(length > 0);
    check((bytes[0] & 0xc0) != 0x80); /* the rest of a character */
    check(got.length + length < sizeof got.text);
    memcpy(got.text + got.length, bytes, length);
    got.length += length;
    got.text[got.length] = '\0';
    got.longest = length > got.longest ? length : got.longest;
    got.calls++;
    return 0;
}

static void begin(struct out *out) {
    got.length = 0;
    out_begin(out, (struct out_sink){gather, &got, false}, buffer, sizeof buffer);
}

static const char *quoted(const char *text) {
    struct out out;
    begin(&out);
    json_quote(&out, text);
    check_eq(out_end(&out), 0);
    return got.text;
}

TEST(nothing_written_calls_nobody) {
    struct out out;
    begin(&out);
    check_eq(out_end(&out), 0);
    check_eq(got.calls, 0);
}

TEST(long_output_comes_whole_and_in_strings_that_fit) {
    struct out out;
    begin(&out);
    for (unsigned i = 0; i < 20000; i++) {
        out_text(&out, "%u,", i);
    }
    check_eq(out_end(&out), 0);
    check(got.calls > 10);
    check(got.longest <= sizeof buffer);
    const char *at = got.text;
    for (unsigned i = 0; i < 20000; i++) {
        char *end;
        check_eq(strtoul(at, &end, 10), i);
        check(*end == ',');
        at = end + 1;
    }
    check(*at == '\0');
}

TEST(characters_that_json_reserves_are_escaped) {
    check_str(quoted("plain"), "\"plain\"");
    check_str(quoted(""), "\"\"");
    check_str(quoted(NULL), "\"\"");
    check_str(quoted("a\"b\\c"), "\"a\\\"b\\\\c\"");
    check_str(quoted("line\n\ttab\x01\x7f"), "\"line\\u000a\\u0009tab\\u0001\\u007f\"");
}

TEST(valid_utf8_stays_and_other_bytes_are_replaced) {
    check_str(quoted("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
              "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
    check_str(quoted("\x80"), "\"\\ufffd\"");                       /* no start */
    check_str(quoted("\xc0\xaf"), "\"\\ufffd\\ufffd\"");            /* overlong */
    check_str(quoted("\xe0\x80\xaf"), "\"\\ufffd\\ufffd\\ufffd\""); /* overlong */
    check_str(quoted("\xf0\x80\x80\xaf"), "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
    check_str(quoted("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"");            /* a surrogate */
    check_str(quoted("\xf4\x90\x80\x80"), "\"\\ufffd\\ufffd\\ufffd\\ufffd\""); /* too large */
    check_str(quoted("\xff\xfe"), "\"\\ufffd\\ufffd\"");
    check_str(quoted("\xe2\x82"), "\"\\ufffd\\ufffd\""); /* cut off by the end */
    check_str(quoted("\xf0\x9f\x98"), "\"\\ufffd\\ufffd\\ufffd\"");
    check_str(quoted("\xc3\""), "\"\\ufffd\\\"\""); /* does not hide a quote */
}

TEST(string_longer_than_the_buffer_comes_whole) {
    static char long_text[20001];
    memset(long_text, 'x', sizeof long_text - 1);
    const char *text = quoted(long_text);
    check_eq(strlen(text), sizeof long_text + 1);
    check(got.longest <= sizeof buffer);
}

TEST(json_members_are_separated_by_commas) {
    struct out out;
    begin(&out);
    json_open(&out, NULL, '{');
    json_number(&out, "a", UINT64_MAX);
    json_open(&out, "b", '[');
    json_close(&out, '[');
    json_open(&out, "c", '[');
    json_open(&out, NULL, '{');
    json_string(&out, "d\"", "e");
    json_close(&out, '{');
    json_number(&out, NULL, 2);
    json_close(&out, '[');
    json_hex(&out, "0", 31);
    json_value(&out, "f", VALUE_BOOL, (union value){.boolean = true});
    json_value(&out, "g", VALUE_SSIZE, (union value){.ssize = -1});
    json_value(&out, "h", VALUE_UINT32, (union value){.uint32 = UINT32_MAX});
    json_value(&out, "i", VALUE_INT64, (union value){.int64 = INT64_MIN});
    json_value(&out, "j", VALUE_STRING, (union value){.string = NULL});
    json_close(&out, '{');
    check_eq(out_end(&out), 0);
    check_str(got.text, "{\"a\":18446744073709551615,\"b\":[],\"c\":[{\"d\\\"\":\"e\"},2],\"0\":"
                        "\"0x1f\",\"f\":true,"
                        "\"g\":-1,\"h\":4294967295,\"i\":-9223372036854775808,\"j\":\"\"}");
}

TEST(a_character_is_never_cut_by_the_end_of_a_piece) {
    static char euros[3 * 5000 + 1];
    for (size_t i = 0; i < 5000; i++) {
        memcpy(euros + 3 * i, "\xe2\x82\xac", 3);
    }
    check_eq(strlen(quoted(euros)), 2 + 3 * 5000); /* no piece but the first has a multiple of 3 */
}
