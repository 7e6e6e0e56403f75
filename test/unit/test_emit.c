/* SPDX-License-Identifier: MIT
 *
 * test_emit.c - what goes in comes out, in strings that fit; quotes hold whatever is put in them.
 */
#include "control/emit.h"

#include "heap/heap.h"
#include "unit.h"

/* Everything that was written, one string after the other. */
static struct {
    char text[1 << 20];
    size_t length;
    size_t longest;
    unsigned calls;
} got;

static void gather(void *opaque, const char *text) {
    check(opaque == &got);
    size_t length = strlen(text);
    check(length > 0);
    check(got.length + length < sizeof got.text);
    memcpy(got.text + got.length, text, length + 1);
    got.length += length;
    got.longest = length > got.longest ? length : got.longest;
    got.calls++;
}

static const char *quoted(const char *text) {
    struct emit emit;
    got.length = 0;
    emit_begin(&emit, gather, &got);
    emit_quoted(&emit, text);
    emit_end(&emit);
    return got.text;
}

TEST(nothing_written_calls_nobody) {
    struct emit emit;
    emit_begin(&emit, gather, &got);
    emit_end(&emit);
    check_eq(got.calls, 0);
}

TEST(long_output_comes_whole_and_in_strings_that_fit) {
    struct emit emit;
    emit_begin(&emit, gather, &got);
    for (unsigned i = 0; i < 20000; i++) {
        emit_text(&emit, "%u,", i);
    }
    emit_end(&emit);
    check(got.calls > 10);
    check(got.longest < sizeof emit.buffer);
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
    check(got.longest < sizeof(((struct emit *)0)->buffer));
}

TEST(json_members_are_separated_by_commas) {
    struct emit emit;
    emit_begin(&emit, gather, &got);
    json_open(&emit, NULL, '{');
    json_number(&emit, "a", UINT64_MAX);
    json_open(&emit, "b", '[');
    json_close(&emit, '[');
    json_open(&emit, "c", '[');
    json_open(&emit, NULL, '{');
    json_string(&emit, "d\"", "e");
    json_close(&emit, '{');
    json_number(&emit, NULL, 2);
    json_close(&emit, '[');
    json_value(&emit, "f", VALUE_BOOL, (union value){.boolean = true});
    json_value(&emit, "g", VALUE_SSIZE, (union value){.ssize = -1});
    json_value(&emit, "h", VALUE_UINT32, (union value){.uint32 = UINT32_MAX});
    json_value(&emit, "i", VALUE_INT64, (union value){.int64 = INT64_MIN});
    json_value(&emit, "j", VALUE_STRING, (union value){.string = NULL});
    json_close(&emit, '{');
    emit_end(&emit);
    check_str(got.text,
              "{\"a\":18446744073709551615,\"b\":[],\"c\":[{\"d\\\"\":\"e\"},2],\"f\":true,"
              "\"g\":-1,\"h\":4294967295,\"i\":-9223372036854775808,\"j\":\"\"}");
}

static void look_at_mark(void *opaque, const char *text) {
    check(!tls.inside);
    *(unsigned *)opaque += (unsigned)strlen(text);
}

TEST(program_is_called_outside_of_the_allocator) {
    struct emit emit;
    unsigned seen = 0;
    emit_begin(&emit, look_at_mark, &seen);
    thread_mark_inside(true);
    emit_text(&emit, "five\n");
    emit_end(&emit);
    check(tls.inside);
    thread_mark_inside(false);
    check_eq(seen, 5);
}
