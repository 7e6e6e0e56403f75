/* SPDX-License-Identifier: MIT
 *
 * test_fmt.c - the formatter against libc's snprintf, and the reader of numbers against a table.
 */
#include "base/fmt.h"

#include <limits.h>
#include <stdio.h>

#include "unit.h"

/* Same text and length as snprintf. */
#define check_like_libc(...)                                                                       \
    do {                                                                                           \
        char ours_[256], libc_[256];                                                               \
        size_t length_ = fmt_text(ours_, sizeof ours_, __VA_ARGS__);                               \
        check_eq(length_, snprintf(libc_, sizeof libc_, __VA_ARGS__));                             \
        check_str(ours_, libc_);                                                                   \
    } while (0)

TEST(every_conversion_reads_as_libc_writes_it) {
    check_like_libc("plain text");
    check_like_libc("%s|%s", "", "abc");
    check_like_libc("%c%c", 'x', '%');
    check_like_libc("100%%");
    check_like_libc("%d %d %d %d", 0, -1, INT_MIN, INT_MAX);
    check_like_libc("%ld %ld", LONG_MIN, LONG_MAX);
    check_like_libc("%u %u", 0u, UINT_MAX);
    check_like_libc("%lu %zu %llu", ULONG_MAX, (size_t)-1, ULLONG_MAX);
    check_like_libc("%x %lx %x", UINT_MAX, 0xdeadbeefcafeul, 0u);
    check_like_libc("%p", (void *)(uintptr_t)0x7fff12345678);
}

TEST(width_and_flags_pad_as_libc_does) {
    check_like_libc("[%5d] [%-5d] [%05d]", 42, 42, 42);
    check_like_libc("[%12zu] [%-12zu] [%012zu]", (size_t)7, (size_t)7, (size_t)7);
    check_like_libc("[%5d] [%-5d] [%05d]", -42, -42, -42);
    check_like_libc("[%8x] [%08x] [%-8x]", 0xabcu, 0xabcu, 0xabcu);
    check_like_libc("[%6s] [%-6s] [%2s]", "abc", "abc", "abc");
    check_like_libc("[%1d]", 123456);
}

TEST(null_pointer_has_digits_like_any_other) {
    char text[16];
    check_eq(fmt_text(text, sizeof text, "%p", NULL), 3);
    check_str(text, "0x0");
}

TEST(text_that_does_not_fit_is_cut_and_ended) {
    static const char whole[] = "abc 12345 00ff";
    for (size_t capacity = 0; capacity < sizeof whole + 4; capacity++) {
        char text[64];
        memset(text, '#', sizeof text);
        size_t length = fmt_text(text, capacity, "%s %d %04x", "abc", 12345, 255u);
        size_t fits = capacity == 0 ? 0 : capacity - 1;
        size_t expected = fits < sizeof whole - 1 ? fits : sizeof whole - 1;
        check_eq(length, expected);
        check(memcmp(text, whole, length) == 0);
        check(capacity == 0 || text[length] == '\0');
        check_eq(text[capacity], '#');
    }
}

TEST(format_that_ends_in_a_percent_sign_ends) {
    char text[16];
    const char *volatile lonely = "ab%";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    check_eq(fmt_text(text, sizeof text, lonely), 2);
#pragma GCC diagnostic pop
    check_str(text, "ab");
}

struct number {
    const char *text;
    bool valid;
    uint64_t value;
};

static const struct number numbers[] = {
    {"0", true, 0},
    {"7", true, 7},
    {"00012", true, 12},
    {"18446744073709551615", true, UINT64_MAX},
    {"18446744073709551616", false, 0},
    {"99999999999999999999", false, 0},
    {"0x0", true, 0},
    {"0xff", true, 255},
    {"0XFf", true, 255},
    {"0xffffffffffffffff", true, UINT64_MAX},
    {"0x10000000000000000", false, 0},
    {"1k", true, 1 << 10},
    {"1K", true, 1 << 10},
    {"3m", true, 3 << 20},
    {"3M", true, 3 << 20},
    {"2g", true, UINT64_C(2) << 30},
    {"2G", true, UINT64_C(2) << 30},
    {"0x10k", true, 16 << 10},
    {"17179869183g", true, UINT64_C(17179869183) << 30},
    {"17179869184g", false, 0},
    {"18014398509481984k", false, 0},
    {"", false, 0},
    {"k", false, 0},
    {"g", false, 0},
    {"0x", false, 0},
    {"0xk", false, 0},
    {"0xg", false, 0},
    {"-1", false, 0},
    {"+1", false, 0},
    {" 1", false, 0},
    {"1 ", false, 0},
    {"1kk", false, 0},
    {"1km", false, 0},
    {"1t", false, 0},
    {"12a", false, 0},
    {"a", false, 0},
    {"1.5", false, 0},
    {"true", false, 0},
    {"\xff", false, 0},
    {"1\xff", false, 0},
};

TEST(numbers_parse_to_their_value_or_not_at_all) {
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uint64_t value = 12345;
        bool valid = fmt_parse_number(numbers[i].text, strlen(numbers[i].text), &value);
        if (valid != numbers[i].valid || value != (valid ? numbers[i].value : 12345)) {
            test_say("    number '", numbers[i].text, "'\n", NULL);
        }
        check_eq(valid, numbers[i].valid);
        check_eq(value, valid ? numbers[i].value : 12345);
    }
}

TEST(a_number_ends_at_its_length) {
    uint64_t value = 0;
    check(fmt_parse_number("123456", 3, &value));
    check_eq(value, 123);
    check(fmt_parse_number("0x12", 1, &value));
    check_eq(value, 0);
    check(!fmt_parse_number("5", 0, &value));
}
