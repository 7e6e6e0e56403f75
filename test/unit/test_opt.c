/* SPDX-License-Identifier: MIT
 *
 * test_opt.c - configuration text: what is valid is applied, what is not is one warning line each,
 * and nothing ends the program.
 */
#include "base/opt.h"

#include "base/os.h"
#include "unit.h"

static struct options defaults(void) {
    unsetenv("TALLY_CONF");
    unsetenv("MALLOC_CONF");
    os_init();
    opt_init();
    return opt;
}

static bool same_options(const struct options *a, const struct options *b) {
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* Parses and returns what was said about it. */
static const char *parse(const char *text) {
    struct capture capture = capture_begin();
    opt_parse(text, "TEST_CONF");
    return capture_end(capture);
}

TEST(defaults_are_those_of_the_table) {
    struct options found = defaults();
#define OPTION(name, type, initial, least, most, help) check_eq(found.name, initial);
#define CHOICE(name, words, initial, help) check_eq(found.name, initial);
#include "base/options.def"
#undef OPTION
#undef CHOICE
}

TEST(a_choice_takes_its_words_and_no_others) {
    defaults();
    check_str(parse("background_thread:true"), "");
    check_eq(opt.background_thread, BACKGROUND_THREAD_TRUE);
    check_str(parse("background_thread:auto"), "");
    check_eq(opt.background_thread, BACKGROUND_THREAD_AUTO);
    check_str(parse("background_thread:false"), "");
    check_eq(opt.background_thread, BACKGROUND_THREAD_FALSE);
    check(parse("background_thread:aut")[0] != '\0');
    check(parse("background_thread:")[0] != '\0');
    check(parse("background_thread:false|true")[0] != '\0');
    check_eq(opt.background_thread, BACKGROUND_THREAD_FALSE);
}

TEST(valid_entries_are_applied_in_silence) {
    defaults();
    check_str(parse("narenas:3,all_slow:true,thread_cache_bytes:0x1000,depot_bytes:17"), "");
    check_eq(opt.narenas, 3);
    check_eq(opt.all_slow, 1);
    check_eq(opt.thread_cache_bytes, 4096);
    check_eq(opt.depot_bytes, 17);
    check_str(parse("all_slow:false,narenas:0"), "");
    check_eq(opt.all_slow, 0);
    check_eq(opt.narenas, 0);
}

TEST(choice_is_one_of_its_words_and_nothing_else) {
    defaults();
    check_str(parse("thp:never"), "");
    check_eq(opt.thp, THP_NEVER);
    check_str(parse("thp:always"), "");
    check_eq(opt.thp, THP_ALWAYS);
    check_str(parse("thp:auto"), "");
    check_eq(opt.thp, THP_AUTO);
    static const char *const wrong[] = {"thp:", "thp:true", "thp:Never", "thp:never|always",
                                        "thp:2"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_eq(count_lines(parse(wrong[i])), 1);
        check_eq(opt.thp, THP_AUTO);
    }
    check_str(parse("thp:sometimes"), "tally: invalid value 'sometimes' for option 'thp' in"
                                      " TEST_CONF is ignored; it is one of auto|never|always\n");
}

TEST(limits_are_bytes_with_or_without_a_suffix) {
    defaults();
    check_str(parse("limit_soft:1048576,limit_hard:4g"), "");
    check_eq(opt.limit_soft, 1 << 20);
    check_eq(opt.limit_hard, (uint64_t)4 << 30);
    check_str(parse("limit_soft:18446744073709551615"), "");
    check_eq(opt.limit_soft, UINT64_MAX);
    check_eq(count_lines(parse("limit_hard:-1")), 1);
    check_eq(count_lines(parse("limit_hard:17179869184g")), 1);
    check_eq(opt.limit_hard, (uint64_t)4 << 30);
}

TEST(suffixes_multiply) {
    defaults();
    check_str(parse("thread_cache_bytes:12k,depot_bytes:3M,dirty_decay_ms:7g"), "");
    check_eq(opt.thread_cache_bytes, 12 << 10);
    check_eq(opt.depot_bytes, 3 << 20);
    check_eq(opt.dirty_decay_ms, INT64_C(7) << 30);
    check_str(parse("thread_cache_bytes:1g"), "");
    check_eq(opt.thread_cache_bytes, 1 << 30);
}

TEST(signed_option_takes_a_sign_and_keeps_its_limits) {
    defaults();
    check_str(parse("dirty_decay_ms:-1"), "");
    check_eq(opt.dirty_decay_ms, -1);
    check_str(parse("dirty_decay_ms:9223372036854775807"), "");
    check_eq(opt.dirty_decay_ms, INT64_MAX);
}

TEST(the_last_of_two_entries_wins) {
    defaults();
    check_str(parse("narenas:3,narenas:4"), "");
    check_eq(opt.narenas, 4);
}

TEST(empty_text_and_empty_entries_say_nothing) {
    struct options before = defaults();
    check_str(parse(""), "");
    check_str(parse(","), "");
    check_str(parse(",,,"), "");
    check_str(parse(",narenas:2,"), "");
    check_eq(opt.narenas, 2);
    check_str(parse("narenas:0"), "");
    check(same_options(&before, &opt));
}

TEST(unknown_key_is_one_warning_and_ignored) {
    struct options before = defaults();
    check_str(parse("no_such_key:1"),
              "tally: unknown option 'no_such_key' in TEST_CONF is ignored\n");
    check_str(parse("narena:1"), "tally: unknown option 'narena' in TEST_CONF is ignored\n");
    check_str(parse("narenass:1"), "tally: unknown option 'narenass' in TEST_CONF is ignored\n");
    check_str(parse("NARENAS:1"), "tally: unknown option 'NARENAS' in TEST_CONF is ignored\n");
    check_str(parse(" narenas:1"), "tally: unknown option ' narenas' in TEST_CONF is ignored\n");
    check_str(parse("unknown"), "tally: unknown option 'unknown' in TEST_CONF is ignored\n");
    check_str(parse(":5"), "tally: unknown option '' in TEST_CONF is ignored\n");
    check(same_options(&before, &opt));
}

struct malformed {
    const char *entry;
    const char *warning;
};

#define INVALID(value, key)                                                                        \
    {                                                                                              \
        key ":" value,                                                                             \
            "tally: invalid value '" value "' for option '" key "' in TEST_CONF is ignored\n"      \
    }

static const struct malformed malformed[] = {
    INVALID("", "narenas"),
    INVALID("x", "narenas"),
    INVALID("-1", "narenas"),
    INVALID("1 ", "narenas"),
    INVALID("1.5", "narenas"),
    INVALID("257", "narenas"),
    INVALID("1k", "narenas"),
    INVALID("2g", "thread_cache_bytes"),
    INVALID("1t", "thread_cache_bytes"),
    INVALID("18446744073709551616", "depot_bytes"),
    INVALID("999999999999999999999999999999999999", "depot_bytes"),
    INVALID("-2", "dirty_decay_ms"),
    INVALID("--1", "dirty_decay_ms"),
    INVALID("-", "dirty_decay_ms"),
    INVALID("-99999999999999999999", "dirty_decay_ms"),
    INVALID("9223372036854775808", "dirty_decay_ms"),
    INVALID("1", "all_slow"),
    INVALID("yes", "all_slow"),
    INVALID("TRUE", "all_slow"),
    INVALID("truefalse", "all_slow"),
    INVALID("tru", "all_slow"),
    INVALID("", "all_slow"),
    INVALID("1:2", "narenas"),
};

TEST(malformed_value_is_one_warning_and_ignored) {
    struct options before = defaults();
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        check_str(parse(malformed[i].entry), malformed[i].warning);
        check(same_options(&before, &opt));
    }
    check_str(parse("narenas"),
              "tally: invalid value '' for option 'narenas' in TEST_CONF is ignored\n");
}

TEST(good_entries_beside_bad_ones_apply) {
    defaults();
    check_eq(count_lines(parse("bad:1,narenas:5,all_slow:maybe,depot_bytes:9,bad")), 3);
    check_eq(opt.narenas, 5);
    check_eq(opt.depot_bytes, 9);
    check_eq(opt.all_slow, 0);
}

static char huge[(1 << 20) + 64];

TEST(key_of_a_mebibyte_is_one_short_warning) {
    struct options before = defaults();
    memset(huge, 'k', 1 << 20);
    strcpy(huge + (1 << 20), ":1");
    const char *said = parse(huge);
    check_eq(count_lines(said), 1);
    check(strlen(said) < 200);
    check(strncmp(said, "tally: unknown option 'kkkk", 27) == 0);
    check(strstr(said, "' in TEST_CONF is ignored\n") != NULL);
    check(same_options(&before, &opt));
}

TEST(value_of_a_mebibyte_is_one_short_warning) {
    struct options before = defaults();
    strcpy(huge, "narenas:");
    memset(huge + 8, '9', 1 << 20);
    strcpy(huge + 8 + (1 << 20), ",all_slow:true");
    const char *said = parse(huge);
    check_eq(count_lines(said), 1);
    check(strlen(said) < 200);
    check(strstr(said, "for option 'narenas' in TEST_CONF is ignored\n") != NULL);
    check_eq(opt.all_slow, 1);
    opt.all_slow = before.all_slow;
    check(same_options(&before, &opt));
}

TEST(bytes_that_would_upset_a_terminal_are_replaced) {
    defaults();
    check_str(parse("a\033[31m\n\x80:1"),
              "tally: unknown option 'a?[31m?\?' in TEST_CONF is ignored\n");
}

TEST(random_bytes_never_end_the_program) {
    struct options before = defaults();
    struct random random = random_start(3, 0);
    static const char alphabet[] = "narenas:,true0x19gk\x01\xff";
    struct capture capture = capture_begin();
    for (unsigned round = 0; round < 20000; round++) {
        char text[40];
        size_t length = random_below(&random, sizeof text);
        for (size_t i = 0; i < length; i++) {
            text[i] = alphabet[random_below(&random, sizeof alphabet - 1)];
        }
        text[length] = '\0';
        opt_parse(text, "TEST_CONF");
    }
    capture_end(capture);
    check(opt.narenas <= 256);
    check_eq(opt.depot_bytes, before.depot_bytes);
}

TEST(environment_is_read_and_the_own_variable_wins) {
    setenv("MALLOC_CONF", "narenas:2,depot_bytes:5", 1);
    setenv("TALLY_CONF", "narenas:3", 1);
    os_init();
    opt_init();
    check_eq(opt.narenas, 3);
    check_eq(opt.depot_bytes, 5);
}

TEST(environment_warnings_name_their_variable) {
    setenv("MALLOC_CONF", "nothing:1", 1);
    setenv("TALLY_CONF", "narenas:x", 1);
    os_init();
    struct capture capture = capture_begin();
    opt_init();
    check_str(capture_end(capture),
              "tally: unknown option 'nothing' in MALLOC_CONF is ignored\n"
              "tally: invalid value 'x' for option 'narenas' in TALLY_CONF is ignored\n");
}

TEST(secure_process_does_not_read_the_environment) {
    struct options before = defaults();
    setenv("MALLOC_CONF", "narenas:2", 1);
    setenv("TALLY_CONF", "all_slow:true", 1);
    os_facts.secure = true;
    opt_init();
    check(same_options(&before, &opt));
}
