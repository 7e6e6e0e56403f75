/* SPDX-License-Identifier: MIT
 *
 * test_wire.c - messages of the control socket: what is one, and what is none.
 */
#include "contract/wire.h"

#include <stdio.h>

#include "unit.h"

static struct wire_message message;
static char bytes[WIRE_MOST_BYTES + 2];

/* The text with a head of the right length in front. */
static size_t with_head(const char *text) {
    char head[32];
    size_t rest = strlen(text) + 1; /* the line feed */
    size_t length = rest;
    for (int i = 0; i < 3; i++) { /* digits of the length count, too */
        length = rest + (size_t)snprintf(head, sizeof head, "tally1 %zu ", length);
    }
    check(length < sizeof bytes);
    snprintf(bytes, sizeof bytes, "%s%s\n", head, text);
    check_eq(strlen(bytes), length);
    return length;
}

static bool request(const char *text) {
    return wire_read_request(bytes, with_head(text), &message);
}

static bool reply(const char *text) {
    return wire_read_reply(bytes, with_head(text), &message);
}

static bool raw(const char *text) {
    strcpy(bytes, text);
    return wire_read_request(bytes, strlen(text), &message);
}

TEST(a_request_is_a_verb_and_fields) {
    check(request("hello"));
    check_str(message.verb, "hello");
    check_eq(message.count, 0);
    check(request("dump kind=heap format=pprof"));
    check_str(message.verb, "dump");
    check_eq(message.count, 2);
    check_str(wire_find(&message, "kind"), "heap");
    check_str(wire_find(&message, "format"), "pprof");
    check(wire_find(&message, "form") == NULL);
}

TEST(values_are_decoded_and_may_be_empty) {
    check(request("mark text=a%20b%25%0a%FF other="));
    check_str(wire_find(&message, "text"), "a b%\n\xff");
    check_str(wire_find(&message, "other"), "");
    check(request("mark text=a=b"));
    check_str(wire_find(&message, "text"), "a=b");
}

TEST(whatever_differs_from_the_grammar_is_no_request) {
    static const char *const wrong[] = {"",
                                        " ",
                                        " hello",
                                        "hello ",
                                        "Hello",
                                        "1hello",
                                        "hello kind",
                                        "hello =x",
                                        "hello  a=b",
                                        "hello a=b ",
                                        "hello a=b  c=d",
                                        "hello a=%",
                                        "hello a=%2",
                                        "hello a=%2g",
                                        "hello a=%00",
                                        "hello a=\x7f",
                                        "hello a=\x80",
                                        "hello a=\t",
                                        "hello\ta=b",
                                        "hello a=b a=c",
                                        "hello A=b",
                                        "hello a=b\nc=d",
                                        "hello/",
                                        "a23456789012345678901234567890123"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (request(wrong[i])) {
            test_say("    '", wrong[i], "'\n", NULL);
        }
        check(!request(wrong[i]));
    }
}

TEST(the_head_is_exact) {
    check(raw("tally1 16 hello\n"));
    static const char *const wrong[] = {"tally1 15 hello",
                                        "tally1 16 hello",
                                        "tally1 15 hello\n",
                                        "tally1 17 hello\n",
                                        "tally1 017 hello\n",
                                        "tally2 16 hello\n",
                                        "tally1  17 hello\n",
                                        "tally1 +16 hello\n",
                                        "tally1 99999999999999 hello\n",
                                        "tally1 0 hello\n",
                                        "tally1 ",
                                        "tally1 \n",
                                        "\n",
                                        ""};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check(!raw(wrong[i]));
    }
}

TEST(a_half_message_is_none) {
    size_t length = with_head("set key=background_thread value=true");
    for (size_t part = 0; part < length; part++) {
        char half[200];
        memcpy(half, bytes, part);
        check(!wire_read_request(half, part, &message));
    }
}

TEST(a_message_has_at_most_so_many_fields_and_bytes) {
    char text[WIRE_MOST_BYTES] = "hello";
    for (int i = 0; i < WIRE_MOST_FIELDS; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), " k%d=v", i);
    }
    check(request(text));
    check_eq(message.count, WIRE_MOST_FIELDS);
    check(!request(strcat(text, " more=1")));
    memset(text, 0, sizeof text);
    strcpy(text, "hello a=");
    memset(text + 8, 'x', WIRE_MOST_BYTES - 8 - 13);
    check_eq(with_head(text), WIRE_MOST_BYTES);
    check(request(text));
    text[strlen(text)] = 'x';
    check(!wire_read_request(bytes, with_head(text), &message));
}

TEST(a_reply_is_ok_with_fields_or_an_error_with_a_text) {
    check(reply("ok"));
    check(reply("ok bytes=12 old=-1"));
    check_str(message.verb, "ok");
    check_str(wire_find(&message, "old"), "-1");
    check(reply("err 3 this needs control:write"));
    check_str(message.verb, "err");
    check_eq(message.code, WIRE_DENIED);
    check_str(message.text, "this needs control:write");
    check(!reply("err"));
    check(!reply("err x y"));
    check(!reply("err 3"));
    check(!reply("err 3 a\tb"));
    check(!reply("no"));
    check(!reply("okay"));
}

TEST(what_is_written_is_read_again) {
    struct wire_writer writer;
    char text[256];
    for (int i = 0; i < 255; i++) {
        text[i] = (char)(i + 1);
    }
    text[255] = '\0';
    wire_begin(&writer, "mark");
    wire_add(&writer, "text", text);
    wire_add_number(&writer, "number", 18446744073709551615ull);
    size_t length = wire_end(&writer);
    check(length > 0 && wire_read_request(writer.bytes, length, &message));
    check_str(wire_find(&message, "text"), text);
    check_str(wire_find(&message, "number"), "18446744073709551615");
}

TEST(lengths_of_all_widths_are_written_right) {
    for (size_t padding = 0; padding < WIRE_MOST_BYTES; padding++) {
        struct wire_writer writer;
        char value[WIRE_MOST_BYTES + 1] = "";
        memset(value, 'x', padding);
        wire_begin(&writer, "v");
        wire_add(&writer, "k", value);
        size_t length = wire_end(&writer);
        bool fits = padding + 17 <= WIRE_MOST_BYTES;
        check_eq(length != 0, fits);
        check(!fits || wire_read_request(writer.bytes, length, &message));
    }
}

TEST(an_error_is_one_line_whatever_its_text) {
    struct wire_writer writer;
    size_t length = wire_error(&writer, WIRE_IO, "two\nlines \x80");
    check(wire_read_reply(writer.bytes, length, &message));
    check_eq(message.code, WIRE_IO);
    check_str(message.text, "two?lines ?");
}
