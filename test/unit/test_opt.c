/* SPDX-License-Identifier: MIT
 *
 * test_opt.c - configuration text: what is valid is applied, what is not is one warning line each,
 * and nothing ends the program.
 */
#include <stdio.h>

#include "base/os.h"
#include "opt/opt.h"
#include "opt/opt_sources.h"
#include "opt_start.h"
#include "unit.h"

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
    defaults();
    check_eq(opt.narenas, 4 * os_facts.cpus);
    opt.narenas = 0;
    for (size_t i = 0; i < opt_count(); i++) {
        const struct opt_row *row = opt_row(i);
        if (row->bytes != 0) {
            check_str(opt_field(row), row->initial_text);
        } else if (row->is_kept) {
            check_eq(*(uint64_t *)opt_field(row), row->initial);
        }
    }
    check_eq(opt.dirty_decay_ms, 1000);
    check_eq(opt.tcache_max, 32768);
    check_str(opt.prof_prefix, "jeprof");
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
                                      " TEST_CONF is ignored; it is one of"
                                      " auto|never|always|default\n");
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
    check_str(parse(",depot_bytes:2,"), "");
    check_eq(opt.depot_bytes, 2);
    opt.depot_bytes = before.depot_bytes;
    check(same_options(&before, &opt));
}

TEST(unknown_key_is_one_warning_and_ignored) {
    struct options before = defaults();
    check_str(parse("no_such_key:1"),
              "tally: unknown option 'no_such_key:1' in TEST_CONF is ignored\n");
    check_str(parse("NARENAS:1"), "tally: unknown option 'NARENAS:1' in TEST_CONF is ignored\n");
    check_str(parse("unknown"), "tally: unknown option 'unknown' in TEST_CONF is ignored\n");
    check_str(parse(":5"), "tally: unknown option ':5' in TEST_CONF is ignored\n");
    check(same_options(&before, &opt));
}

TEST(unknown_key_that_is_nearly_one_is_told_which) {
    struct options before = defaults();
    static const char *const keys[][2] = {{"narena", "narenas"},
                                          {"narenass", "narenas"},
                                          {" narenas", "narenas"},
                                          {"g_prof_interval", "lg_prof_interval"},
                                          {"prof_actvie", "prof_active"}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char entry[40], said[160];
        snprintf(entry, sizeof entry, "%s:1", keys[i][0]);
        snprintf(said, sizeof said,
                 "tally: unknown option '%s:1' in TEST_CONF is ignored; did you mean '%s'?\n",
                 keys[i][0], keys[i][1]);
        check_str(parse(entry), said);
    }
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
    INVALID("1k9", "narenas"),
    INVALID("08", "narenas"),
    INVALID("+", "narenas"),
    INVALID("Default", "narenas"),
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

TEST(key_of_a_mebibyte_is_one_short_warning) {
    struct options before = defaults();
    memset(huge, 'k', 1 << 20);
    strcpy(huge + (1 << 20), ":1");
    const char *said = parse(huge);
    check_eq(count_lines(said), 1);
    check(strlen(said) < 200);
    check(strncmp(said, "tally: unknown option 'kkkk", 27) == 0);
    check(strstr(said, "k:1' in TEST_CONF is ignored\n") != NULL);
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

TEST(a_mebibyte_of_commas_takes_no_time) {
    struct options before = defaults();
    memset(huge, ',', 1 << 20);
    huge[1 << 20] = '\0';
    check_str(parse(huge), "");
    check(same_options(&before, &opt));
}

TEST(bytes_that_would_upset_a_terminal_are_replaced) {
    defaults();
    check_str(parse("a\033[31m\n\x80:1"),
              "tally: unknown option 'a?[31m?\?:1' in TEST_CONF is ignored\n");
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

/* ---------------------------------------------------------------- the whole table */

static const struct {
    enum value_type leaf;
    const char *names; /* each with a blank in front */
} leaves[] = {
    {VALUE_BOOL,
     " abort abort_conf cache_oblivious trust_madvise confirm_conf retain background_thread"
     " stats_print zero utrace xmalloc experimental_infallible_new experimental_tcache_gc tcache"
     " prof prof_active prof_thread_active_init prof_gdump prof_final prof_leak prof_leak_error"
     " prof_accum prof_pid_namespace prof_stats prof_sys_thread_name"
     " disable_large_size_classes"
     " huge_arena_pac_thp hpa hpa_hugify_sync experimental_hpa_start_huge_if_thp_always"
     " experimental_hpa_enforce_hugify all_slow prof_time_in_name prof_mmap prof_mmap_only"
     " prof_mmap_log stats_page hide_addresses control_log"
     " leak_list_objects leak_say_none leak_since_main leak_threads leak_globals"
     " leak_test_alignment"},
    {VALUE_STRING,
     " dss percpu_arena stats_print_opts stats_interval_opts junk thp prof_prefix"
     " prof_time_resolution zero_realloc metadata_thp hpa_hugify_style prof_unwind"
     " prof_names prof_format usdt control control_dir run_file run_children"
     " cpu_file cpu_clock cpu_timer leak_check leak_text leak_suppressions leak_dump_dir"},
    {VALUE_UNSIGNED, " narenas tcache_nslots_small_min tcache_nslots_small_max tcache_nslots_large"
                     " lg_tcache_flush_small_div lg_tcache_flush_large_div prof_bt_max"
                     " debug_double_free_max_scan prof_signal cpu_hz cpu_signal"
                     " cpu_toggle_signal"
                     " run_cpu_hz leak_exit_code"},
    {VALUE_SIZE, " oversize_threshold max_background_threads tcache_max tcache_gc_incr_bytes"
                 " tcache_gc_delay_bytes lg_extent_max_active_fit lg_prof_sample"
                 " process_madvise_max_batch hpa_slab_max_alloc hpa_hugification_threshold"
                 " hpa_purge_threshold hpa_sec_nshards hpa_sec_max_alloc hpa_sec_max_bytes"
                 " hpa_sec_batch_fill_extra thread_cache_bytes depot_bytes limit_soft limit_hard"
                 " run_rss"
                 " leak_max_reports leak_max_offset leak_step"
                 " prof_free_interval prof_live_threshold prof_time_interval"},
    {VALUE_SSIZE, " dirty_decay_ms muzzy_decay_ms lg_tcache_nslots_mul lg_prof_interval"
                  " prof_recent_alloc_max lg_san_uaf_align experimental_hpa_max_purge_nhp"
                  " prof_alloc_interval prof_live_step"},
    {VALUE_INT64, " mutex_max_spin stats_interval"},
    {VALUE_UINT64, " hpa_hugify_delay_ms hpa_min_purge_interval_ms hpa_min_purge_delay_ms"
                   " run_every_ms leak_max_pause_ms"},
    {VALUE_UINT32, " hpa_dirty_mult"},
    {VALUE_NONE,
     " narenas_ratio bin_shards slab_sizes tcache_ncached_max lg_tcache_max"
     " calloc_madvise_threshold prof_log prof_unbias san_guard_small san_guard_large log"
     " hpa_hugification_threshold_ratio hpa_purge_threshold_ratio lg_chunk lg_dirty_mult purge"
     " redzone quarantine decay_time valgrind hpa_sec_bytes_after_flush"
     " experimental_lg_prof_threshold prof_memory_share"},
};

TEST(every_key_is_there_once_and_has_the_leaf_that_jemalloc_documents) {
    size_t count = 0;
    for (size_t i = 0; i < sizeof leaves / sizeof leaves[0]; i++) {
        char names[2048];
        strcpy(names, leaves[i].names);
        for (char *name = strtok(names, " "); name != NULL; name = strtok(NULL, " ")) {
            size_t found = 0;
            for (size_t row = 0; row < opt_count(); row++) {
                if (strcmp(opt_name(row), name) == 0) {
                    found++;
                    check_eq(opt_leaf(row), leaves[i].leaf);
                    check(strlen(opt_help(row)) > 5);
                }
            }
            if (found != 1) {
                test_say("    option ", name, "\n", NULL);
            }
            check_eq(found, 1);
            count++;
        }
    }
    check_eq(count, opt_count());
}

/* Sets one row and returns what was said. */
static const char *set(const struct opt_row *row, const char *value) {
    static char text[256];
    check(snprintf(text, sizeof text, "%s:%s", row->name, value) < (int)sizeof text);
    return parse(text);
}

/* The leaf of a row as a number, whatever its type. */
static uint64_t read_number(size_t row) {
    union value value = opt_read(row);
    switch (opt_leaf(row)) {
    case VALUE_BOOL:
        return value.boolean;
    case VALUE_UNSIGNED:
        return value.number;
    case VALUE_SIZE:
        return value.size;
    case VALUE_SSIZE:
        return (uint64_t)value.ssize;
    case VALUE_INT64:
        return (uint64_t)value.int64;
    case VALUE_UINT64:
        return value.uint64;
    case VALUE_UINT32:
        return value.uint32;
    default:
        return 0;
    }
}

static void check_set(size_t row, const char *value, uint64_t expected) {
    const char *said = set(opt_row(row), value);
    if (said[0] != '\0' || (opt_leaf(row) != VALUE_NONE && read_number(row) != expected)) {
        test_say("    ", opt_name(row), ":", value, "\n", NULL);
    }
    check_str(said, "");
    if (opt_leaf(row) != VALUE_NONE) {
        check_eq(read_number(row), expected);
    }
}

static void check_refused(const struct opt_row *row, const char *value) {
    struct options before = opt;
    const char *said = set(row, value);
    char expected[256];
    snprintf(expected, sizeof expected,
             "tally: invalid value '%s' for option '%s' in TEST_CONF is ignored", value, row->name);
    check(strncmp(said, expected, strlen(expected)) == 0);
    check_eq(count_lines(said), 1);
    check(same_options(&before, &opt));
}

static const char *decimal(uint64_t value, bool is_signed) {
    static char text[32];
    snprintf(text, sizeof text, is_signed ? "%ld" : "%lu", (long)value);
    return text;
}

static void check_limit(size_t row, uint64_t beyond, uint64_t limit, bool is_signed) {
    const struct opt_row *r = opt_row(row);
    if (r->limits == OPT_REFUSE) {
        check_refused(r, decimal(beyond, is_signed));
    } else if (r->limits == OPT_CLIP) {
        check_set(row, decimal(beyond, is_signed), limit);
    }
}

static void check_number_row(size_t row) {
    const struct opt_row *r = opt_row(row);
    bool is_signed = r->type == OPT_TYPE_SIGNED;
    check_set(row, decimal(r->least, is_signed), r->least);
    check_set(row, decimal(r->most, is_signed), r->most);
    check_set(row, decimal(r->least + 1, is_signed), r->least + 1);
    if (r->least > 0) { /* signed ones have a least below 0 */
        check_limit(row, r->least - 1, r->least, is_signed);
    }
    if (r->most != (is_signed ? INT64_MAX : UINT64_MAX)) {
        check_limit(row, r->most + 1, r->most, is_signed);
    }
    check_refused(r, "x");
    check_refused(r, "");
}

static void check_word_row(size_t row) {
    const struct opt_row *r = opt_row(row);
    for (size_t i = 0; r->words[i][0] != '\0'; i++) {
        opt_reset(); /* One word may be final. */
        check_str(set(r, r->words[i]), "");
        if (r->leaf == VALUE_STRING) {
            check_str(opt_read(row).string, r->words[i]);
        } else {
            check_eq(opt_read(row).boolean, i != 0);
        }
    }
    check_refused(r, "");
    check_refused(r, "nothing_like_it");
    char part[32];
    strcpy(part, r->words[0]);
    part[strlen(part) - 1] = '\0';
    check_refused(r, part);
}

static void check_row(size_t row) {
    const struct opt_row *r = opt_row(row);
    switch (r->type) {
    case OPT_TYPE_SWITCH:
        check_set(row, "true", 1);
        check_set(row, "false", 0);
        check_refused(r, "1");
        check_refused(r, "tru");
        break;
    case OPT_TYPE_UNSIGNED:
    case OPT_TYPE_UNSIGNED_OR_DEFAULT:
    case OPT_TYPE_SIGNED:
        check_number_row(row);
        break;
    case OPT_TYPE_WORD:
        check_word_row(row);
        break;
    case OPT_TYPE_RATIO_OR_MINUS:
        check_set(row, "-1", UINT32_MAX);
        /* fall through */
    case OPT_TYPE_RATIO:
        check_set(row, "0.5", 1 << 15);
        check_refused(r, "65536");
        check_refused(r, "1.");
        check_refused(r, ".5");
        check_refused(r, "1.x");
        check_refused(r, "-2");
        break;
    case OPT_TYPE_LIST_OR_DEFAULT:
        check_set(row, "default", 0);
        /* fall through */
    case OPT_TYPE_LIST:
        check_set(row, "1-16:1|17-0x20:2", 0);
        check_refused(r, "1-16");
        check_refused(r, "1-16:1|");
        check_refused(r, "16-1:1");
        check_refused(r, "1-16:x");
        check_refused(r, "");
        break;
    case OPT_TYPE_TEXT:
    case OPT_TYPE_LETTERS:
        check_str(set(r, "Jgg?x"), "");
        break;
    }
}

TEST(control_off_is_final_wherever_it_stands) {
    defaults();
    check_str(parse("control:off,control:write"), "");
    check_eq(opt.control, CONTROL_OFF);
    check_str(parse("control:read"), "");
    check_eq(opt.control, CONTROL_OFF);
    opt_reset();
    check_str(parse("control:read,control:write"), "");
    check_eq(opt.control, CONTROL_WRITE);
}

TEST(every_option_is_set_and_read_back_and_keeps_its_limits) {
    defaults();
    for (size_t row = 0; row < opt_count(); row++) {
        if (opt_row(row)->is_kept || opt_row(row)->effect == OPT_IGNORED) {
            check_row(row);
        }
    }
}

TEST(texts_are_kept_and_letters_sorted_out) {
    defaults();
    check_str(parse("stats_print_opts:JabzaJ ,stats_interval_opts:,prof_prefix:/tmp/a b:c"), "");
    check_str(opt.stats_print_opts, "Jab");
    check_str(opt.stats_interval_opts, "");
    check_str(opt.prof_prefix, "/tmp/a b:c");
    check_str(parse("prof_prefix:,stats_print_opts:Jgmdablxehh"), "");
    check_str(opt.prof_prefix, "");
    check_str(opt.stats_print_opts, "Jgmdablxeh");
    strcpy(huge, "prof_prefix:");
    memset(huge + 12, 'p', 4096);
    huge[12 + 4096] = '\0';
    check_str(parse(huge), "");
    check_eq(strlen(opt.prof_prefix), 4096);
    strcpy(huge + 12 + 4096, "p");
    check_eq(count_lines(parse(huge)), 1);
    check_eq(strlen(opt.prof_prefix), 4096);
}

TEST(numbers_have_signs_blanks_and_the_bases_of_c) {
    defaults();
    check_str(parse("depot_bytes:010,thread_cache_bytes: +0X10,dirty_decay_ms:\t-0"), "");
    check_eq(opt.depot_bytes, 8);
    check_eq(opt.thread_cache_bytes, 16);
    check_eq(opt.dirty_decay_ms, 0);
    check_str(parse("depot_bytes:0,thread_cache_bytes:0k,dirty_decay_ms:-01"), "");
    check_eq(opt.depot_bytes, 0);
    check_eq(opt.thread_cache_bytes, 0);
    check_eq(opt.dirty_decay_ms, -1);
    check_eq(count_lines(parse("limit_hard:07777777777777777777777777")), 1);
}

TEST(too_many_arenas_are_reduced_with_a_message) {
    defaults();
    check_str(parse("narenas:256"), "");
    check_str(parse("narenas:257"),
              "tally: value '257' for option 'narenas' in TEST_CONF is reduced to 256\n");
    check_eq(opt.narenas, 256);
    check_str(parse("narenas:default"), "");
    check_eq(opt.narenas, 0);
}

TEST(arenas_follow_from_the_cpus_and_the_ratio) {
    clear_environment();
    os_facts.cpus = 6;
    opt_init((struct opt_program){"narenas_ratio:1.5", NULL});
    check_eq(opt.narenas, 9);
    opt_init((struct opt_program){"narenas_ratio:0", NULL});
    check_eq(opt.narenas, 1);
    opt_init((struct opt_program){"narenas_ratio:60000", NULL});
    check_eq(opt.narenas, 256);
    opt_init((struct opt_program){"narenas_ratio:3,narenas:2", NULL});
    check_eq(opt.narenas, 2);
}

TEST(list_is_taken_apart_range_by_range) {
    const char *list = "1-16:3|32-0x40:010";
    const char *end = list + strlen(list);
    struct opt_range range;
    check(opt_next_range(&list, end, &range));
    check(range.from == 1 && range.to == 16 && range.value == 3);
    check(opt_next_range(&list, end, &range));
    check(range.from == 32 && range.to == 64 && range.value == 8);
    check(!opt_next_range(&list, end, &range));
    check(list == end);
    static const char *const wrong[] = {"|1-2:3", "1:2",    "-2:3",        "1-:3",
                                        "1-2:",   "1-2:3|", "1-2:3||4-5:6"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *at = wrong[i];
        end = at + strlen(at);
        while (opt_next_range(&at, end, &range)) {
        }
        check(at != end);
    }
}

TEST(shards_beyond_64_are_refused_and_slots_are_not) {
    defaults();
    check_eq(count_lines(parse("bin_shards:1-16:65")), 1);
    check_eq(count_lines(parse("bin_shards:1-16:0")), 1);
    check_str(parse("bin_shards:1-16:64,tcache_ncached_max:1-16:100000"), "");
    check_str(opt.tcache_ncached_max, "1-16:100000");
}

/* ---------------------------------------------------------------- keys of older versions */

TEST(old_keys_with_a_meaning_set_what_they_mean) {
    defaults();
    check_str(parse("lg_tcache_max:12,decay_time:7,purge:decay"), "");
    check_eq(opt.tcache_max, 4096);
    check_eq(opt.dirty_decay_ms, 7000);
    check_str(parse("lg_tcache_max:40,lg_dirty_mult:-1"), "");
    check_eq(opt.tcache_max, 32768);
    check_eq(opt.dirty_decay_ms, -1);
    check_str(parse("dirty_decay_ms:5,decay_time:-1"), "");
    check_eq(opt.dirty_decay_ms, -1);
    check_str(parse("hpa_hugification_threshold_ratio:0.5,hpa_purge_threshold_ratio:1"), "");
    check_eq(opt.hpa_hugification_threshold, 1 << 20);
    check_eq(opt.hpa_purge_threshold, 2 << 20);
    check_eq(count_lines(parse("hpa_purge_threshold_ratio:1.1")), 1);
}

TEST(old_keys_without_a_meaning_are_one_line) {
    struct options before = defaults();
    static const char *const old[] = {"lg_chunk:21",
                                      "lg_dirty_mult:3",
                                      "purge:ratio",
                                      "redzone:true",
                                      "quarantine:4k",
                                      "valgrind:false",
                                      "hpa_sec_bytes_after_flush:1",
                                      "experimental_lg_prof_threshold:20"};
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++) {
        char expected[128];
        snprintf(expected, sizeof expected, "tally: option '%s' in TEST_CONF has no effect\n",
                 old[i]);
        check_str(parse(old[i]), expected);
    }
    check_str(parse("redzone:maybe"),
              "tally: invalid value 'maybe' for option 'redzone' in TEST_CONF is ignored\n");
    check(same_options(&before, &opt));
}

/* ---------------------------------------------------------------- what follows from options */

TEST(filling_memory_means_slow_calls) {
    clear_environment();
    opt_init((struct opt_program){"junk:free", NULL});
    check_eq(opt.all_slow, 1);
    opt_init((struct opt_program){"zero:true", NULL});
    check_eq(opt.all_slow, 1);
    opt_init((struct opt_program){"junk:false,zero:false", NULL});
    check_eq(opt.all_slow, 0);
}

TEST(options_of_the_profiler_depend_on_each_other) {
    clear_environment();
    check_str(init((struct opt_program){"prof_leak:true", NULL}), "");
    check_eq(opt.prof, 1);
    check_str(init((struct opt_program){"prof_leak_error:true,prof_final:true", NULL}), "");
    check_eq(opt.prof_leak, 1);
    check_eq(opt.prof, 1);
    check_str(init((struct opt_program){"prof_leak_error:true", NULL}),
              "tally: option 'prof_leak_error' needs 'prof_final'\n");
}

TEST(odd_values_read_as_jemalloc_makes_of_them) {
    clear_environment();
    opt_init((struct opt_program){"max_background_threads:5000,lg_san_uaf_align:3", NULL});
    check_eq(opt.max_background_threads, 4);
    check_eq(opt.lg_san_uaf_align, 12);
    opt_init((struct opt_program){"max_background_threads:0,lg_san_uaf_align:-1", NULL});
    check_eq(opt.max_background_threads, 1);
    check_eq(opt.lg_san_uaf_align, -1);
}
