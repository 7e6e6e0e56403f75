/* SPDX-License-Identifier: MIT
 *
 * test_args.c - every kind of option, the order of words, and what is refused.
 */
#include "args/args.h"

#include <stdarg.h>
#include <string.h>

#include "test.h"

static struct {
    bool source, no_inlines, cum;
    const char *text, *unit, *cpu;
    uint64_t number, size, duration, sizes[2], times[2];
    double share;
    unsigned choice, count;
    uint32_t small;
    struct arg_list list;
} got;

static const struct arg_option table[] = {
    {.name = "source", .letter = 's', .kind = ARG_SWITCH, .target = &got.source, .help = "-"},
    {.name = "no-inlines", .kind = ARG_SWITCH, .target = &got.no_inlines, .help = "-"},
    {.name = "flat", .kind = ARG_OFF, .target = &got.cum, .help = "-"},
    {.name = "cum", .kind = ARG_SWITCH, .target = &got.cum, .help = "-"},
    {.name = "text",
     .letter = 't',
     .kind = ARG_TEXT,
     .value = "X",
     .target = &got.text,
     .help = "-"},
    {.name = "unit",
     .kind = ARG_TEXT,
     .value = "X",
     .choices = "auto|B",
     .target = &got.unit,
     .help = "-"},
    {.name = "number",
     .letter = 'n',
     .kind = ARG_NUMBER,
     .value = "N",
     .target = &got.number,
     .help = "-"},
    {.name = "size", .kind = ARG_SIZE, .value = "SIZE", .target = &got.size, .help = "-"},
    {.name = "sizes", .kind = ARG_SIZES, .value = "A:B", .target = got.sizes, .help = "-"},
    {.name = "times", .kind = ARG_TIMES, .value = "A:B", .target = got.times, .help = "-"},
    {.name = "every", .kind = ARG_DURATION, .value = "DUR", .target = &got.duration, .help = "-"},
    {.name = "min", .kind = ARG_SHARE, .value = "PCT", .target = &got.share, .help = "-"},
    {.name = "by",
     .kind = ARG_CHOICE,
     .value = "X",
     .choices = "one|two|three",
     .target = &got.choice,
     .help = "-"},
    {.name = "count", .letter = 'c', .kind = ARG_COUNT, .target = &got.count, .help = "-"},
    {.name = "small", .kind = ARG_SMALL, .value = "N", .target = &got.small, .help = "-"},
    {.name = "list",
     .letter = 'l',
     .kind = ARG_LIST,
     .value = "X",
     .target = &got.list,
     .help = "-"},
    {.name = "cpu",
     .kind = ARG_TEXT,
     .value = "HZ",
     .value_is_optional = true,
     .target = &got.cpu,
     .help = "-"},
    {.name = NULL},
};

static const struct arg_option *const tables[] = {table, NULL};
static struct command fake = {
    .name = "fake", .usage = "WORD...", .options = tables, .words = {0, 9}};

static char *words[32];
static int count;

/* The words up to NULL. */
static bool parse(const char *first, ...) {
    va_list more;
    count = 0;
    va_start(more, first);
    for (const char *word = first; word != NULL; word = va_arg(more, const char *)) {
        words[count++] = (char *)(uintptr_t)word;
    }
    va_end(more);
    return args_parse(&fake, &count, words);
}

TEST(every_kind_of_value_is_stored) {
    check(parse("--text=a", "--number", "42", "--size=64K", "--every=5s", "--min=10%", "--by=two",
                "--small=7", "--list=x", "-ly", "-l", "z", "--sizes=16:4K", "--unit=B", NULL));
    check_eq(count, 0);
    check_str(got.text, "a");
    check_eq(got.number, 42);
    check_eq(got.size, 65536);
    check_eq(got.duration, UINT64_C(5000000000));
    check(got.share > 0.09 && got.share < 0.11);
    check_eq(got.choice, 1);
    check_eq(got.small, 7);
    check_eq(got.list.count, 3);
    check_str(got.list.texts[2], "z");
    check_eq(got.sizes[0], 16);
    check_eq(got.sizes[1], 4096);
    check_str(got.unit, "B");
}

TEST(half_a_range_leaves_the_other_end) {
    got.sizes[0] = 1;
    got.sizes[1] = 2;
    check(parse("--sizes=:8", NULL));
    check_eq(got.sizes[0], 1);
    check_eq(got.sizes[1], 8);
    check(parse("--sizes=4:", NULL));
    check_eq(got.sizes[0], 4);
    check(!parse("--sizes=4", NULL) && !parse("--sizes=a:b", NULL));
    check(parse("--times=10ms:2m", NULL));
    check_eq(got.times[0], 10000000);
    check_eq(got.times[1], UINT64_C(120000000000));
    check(!parse("--times=4", NULL) && !parse("--times=4K:", NULL));
}

TEST(every_switch_can_be_turned_off) {
    check(parse("--source", "--no-inlines", "--cum", NULL));
    check(got.source && got.no_inlines && got.cum);
    check(parse("--no-source", "--inlines", "--flat", NULL));
    check(!got.source && !got.no_inlines && !got.cum);
    check(!parse("--no-text", NULL) && !parse("--no-count", NULL));
    check(!parse("--source=yes", NULL));
}

TEST(long_options_may_be_shortened_while_unique) {
    check(parse("--so", "--num=3", NULL));
    check(got.source);
    check_eq(got.number, 3);
    check(parse("--no-so", NULL) && !got.source);
    check(!parse("--s", NULL));     /* source, size, sizes, small */
    check(parse("--size=9", NULL)); /* whole, although sizes begins so */
    check_eq(got.size, 9);
    check(!parse("--", "--nonsense", NULL) || count == 1);
}

TEST(letters_may_be_joined) {
    check(parse("-ccsn5", "-c", NULL));
    check_eq(got.count, 3);
    check(got.source);
    check_eq(got.number, 5);
    check(parse("-n=6", NULL));
    check_eq(got.number, 6);
    check(!parse("-n", NULL) && !parse("-cx", NULL));
}

TEST(an_optional_value_is_never_the_next_word) {
    got.cpu = "99";
    check(parse("--cpu", "word", NULL));
    check_str(got.cpu, "99");
    check_eq(count, 1);
    check(parse("--cpu=10", NULL));
    check_str(got.cpu, "10");
}

TEST(options_follow_words_and_two_dashes_end_them) {
    check(parse("a", "--source", "b", "--", "--text", "-", NULL));
    check(got.source);
    check_eq(count, 4);
    check_str(words[0], "a");
    check_str(words[1], "b");
    check_str(words[2], "--text");
    check_str(words[3], "-");
}

TEST(somebody_elses_command_line_is_left_alone) {
    fake.stops_at_word = true;
    check(parse("--source", "program", "--text", "--", "-x", NULL));
    check_eq(count, 4);
    check_str(words[1], "--text");
    check_str(words[2], "--");
    check(words[4] == NULL);
    check(parse("--source", "--", "--program", "--text", NULL));
    check_eq(count, 2);
    check_str(words[0], "--program");
}

TEST(values_that_are_none_are_refused) {
    check(!parse("--number=x", NULL) && !parse("--number=-1", NULL) && !parse("--number=", NULL));
    check(!parse("--number=18446744073709551616", NULL) && !parse("--small=4294967296", NULL));
    check(!parse("--size=1X", NULL) && !parse("--every=1y", NULL) && !parse("--min=200%", NULL));
    check(!parse("--by=four", NULL) && !parse("--unit=GiB", NULL) && !parse("--text", NULL));
    check(!parse("--unknown", NULL) && !parse("-z", NULL));
}

TEST(too_few_and_too_many_words_are_refused) {
    fake.words[0] = 1;
    fake.words[1] = 2;
    check(!parse(NULL));
    check(parse("a", NULL) && parse("a", "b", NULL));
    check(!parse("a", "b", "c", NULL));
    check(parse("--help", NULL) && args_wants_help == 1);
}

TEST(a_variable_holds_options_and_quotes) {
    check(args_parse_variable(&fake, "X", "  --text 'a b' --number=\"4\"2 "));
    check_str(got.text, "a b");
    check_eq(got.number, 42);
    check(args_parse_variable(&fake, "X", ""));
    check(args_parse_variable(&fake, "X", "--man --source") && got.source); /* --man: of help */
    check(!args_parse_variable(&fake, "X", "word") && !args_parse_variable(&fake, "X", "--nobody"));
}

TEST(the_nearest_word_is_found) {
    check_str(args_nearest("jsno", "text|json|prometheus"), "json");
    check_str(args_nearest("promethius", "text|json|prometheus"), "prometheus");
    check(args_nearest("xyzzy", "text|json|prometheus") == NULL);
    check(args_nearest("", "text|json") == NULL);
}
