/* SPDX-License-Identifier: MIT
 *
 * test_read_jemalloc.c - heap_v2 is scaled once, line by line, and divided among threads without counting
 * anything twice; what is damaged is refused.
 */
#include "profiles.h"

static const char sampled[] = "heap_v2/524288\n"
                              "  t*: 7: 13594 [0: 0]\n"
                              "  t0: 3: 3072 [0: 0]\n"
                              "  t1: 4: 18430 [0: 0] worker one\n"
                              "@ 0x401136 0x40118c 0x4011b5\n"
                              "  t*: 4: 4096 [0: 0]\n"
                              "  t0: 3: 3072 [0: 0]\n"
                              "  t1: 1: 1024 [0: 0]\n"
                              "@ 0x401140 0x4011b5\n"
                              "  t*: 3: 301518 [0: 0]\n"
                              "  t1: 3: 301518 [0: 0]\n"
                              "\n"
                              "MAPPED_LIBRARIES:\n"
                              "00400000-00402000 r-xp 00000000 08:01 131 /bin/demo\n";

TEST(totals_are_those_of_jeprof) {
    struct profile *profile = profile_of_text(read_jemalloc, sampled);
    check_eq(total_of(profile, "inuse_space"), 3827637);
    check_eq(total_of(profile, "inuse_objects"), 2067);
    check_eq(profile->period, 524288);
    check_str(profile->source, "jemalloc");
    check_str(profile->types[profile->default_type].name, "inuse_space");
    check_eq(profile->type_count, 2); /* nothing was accumulated */
    profile_free(profile);
}

TEST(threads_are_labels_and_nothing_is_counted_twice) {
    struct profile *profile = profile_of_text(read_jemalloc, sampled);
    check_eq(profile->sample_count, 3);
    check_str(label_of(profile, 0, "thread"), "0");
    check_str(label_of(profile, 1, "thread"), "worker one");
    check_str(label_of(profile, 2, "thread"), "worker one");
    check_str(label_of(profile, 0, "bytes"), "1024 bytes");
    check_str(label_of(profile, 2, "bytes"), "100506 bytes");
    /* jeprof --thread=0 and --thread=1 */
    check_eq(value_of(profile, 0, "inuse_space"), 1574400);
    check_eq(value_of(profile, 1, "inuse_space") + value_of(profile, 2, "inuse_space"), 2253237);
    profile_free(profile);
}

TEST(addresses_lie_inside_the_calls) {
    struct profile *profile = profile_of_text(read_jemalloc, sampled);
    check_str(stack_of(profile, 0), "401135 40118b 4011b4");
    check_str(stack_of(profile, 2), "40113f 4011b4");
    check_str(module_of(profile, 0, 2), "/bin/demo");
    check_eq(profile->location_count, 4);
    check(!profile->is_exact_leaf);
    profile_free(profile);
}

TEST(at_a_rate_of_one_small_objects_are_scaled_as_jeprof_does_it) {
    struct profile *profile =
        profile_of_text(read_jemalloc, "heap_v2/1\n@ 0x10\n  t*: 1000: 7998 [0: 0]\n");
    check_eq(total_of(profile, "inuse_space"), 8000); /* 7998 / (1 - exp(-7.998)) = 8000.69 */
    profile_free(profile);
    profile = profile_of_text(read_jemalloc, "heap_v2/0\n@ 0x10\n  t*: 1000: 7998 [0: 0]\n");
    check_eq(total_of(profile, "inuse_space"), 7998);
    profile_free(profile);
}

TEST(at_a_rate_of_one_numbers_are_what_they_are) {
    static const char *const rates[] = {"heap_v2/0\n", "heap_v2/1\n"};
    for (int i = 0; i < 2; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "%s  t*: 1: 8 [0: 0]\n@ 0x10\n  t*: 3: 24 [9: 9007199254740993]\n"
                 "  t1: 2: 16 [9: 9007199254740993]\n  t2: 1: 8 [0: 0]\n",
                 rates[i]);
        struct profile *profile = profile_of_text(read_jemalloc, text);
        check_eq(total_of(profile, "inuse_space"), 24);
        check_eq(value_of(profile, 0, "inuse_space"), 16);
        check_eq(value_of(profile, 1, "inuse_objects"), 1);
        check_eq(total_of(profile, "alloc_space"), 9007199254740993);
        check_eq(total_of(profile, "alloc_objects"), 9);
        check_eq(profile->period, 1);
        profile_free(profile);
    }
}

TEST(lines_of_threads_that_do_not_add_up_divide_the_line_of_all) {
    struct profile *profile = profile_of_text(read_jemalloc, "heap_v2/1\n"
                                                             "@ 0x10 0x20\n"
                                                             "  t*: 10: 1000 [0: 0]\n"
                                                             "  t1: 1: 1 [0: 0]\n"
                                                             "  t2: 1: 1 [0: 0]\n"
                                                             "  t3: 1: 1 [0: 0]\n");
    check_eq(total_of(profile, "inuse_space"), 1000);
    check_eq(total_of(profile, "inuse_objects"), 10);
    check_eq(value_of(profile, 0, "inuse_space"), 333);
    check_eq(value_of(profile, 1, "inuse_space"), 334);
    check_eq(value_of(profile, 2, "inuse_space"), 333);
    profile_free(profile);
}

TEST(what_a_line_loses_by_rounding_the_next_one_gets) {
    char text[8000] = "heap_v2/524288\n";
    for (int i = 0; i < 100; i++) { /* each stands for 526338.6667 bytes */
        snprintf(text + strlen(text), 100, "@ 0x%x\n  t*: 1: 4096 [0: 0]\n", 0x1000 + i);
    }
    struct profile *profile = profile_of_text(read_jemalloc, text);
    check_eq(total_of(profile, "inuse_space"), 52633866);
    profile_free(profile);
}

TEST(a_profile_without_stacks_is_one) {
    struct profile *profile = profile_of_text(read_jemalloc, "heap_v2/524288\n  t*: 0: 0 [0: 0]\n");
    check_eq(profile->sample_count, 0);
    profile_free(profile);
}

TEST(it_is_recognised_by_its_first_line) {
    check(read_is_jemalloc((const uint8_t *)"heap_v2/5", 9));
    check(!read_is_jemalloc((const uint8_t *)"heap_v2/", 8));
    check(!read_is_jemalloc((const uint8_t *)"heap_v2/x", 9));
    check(!read_is_jemalloc((const uint8_t *)"heap_v", 6));
}

TEST(damage_is_one_sentence) {
    check_refused_text(read_jemalloc, "heap_v2/99999999999999999999\n",
                       "the first line has no sampling rate");
    check_refused_text(read_jemalloc, "heap_v2/1\n@ 0x10\n",
                       "line 2: the stack before it has no counts");
    check_refused_text(read_jemalloc, "heap_v2/1\n@ 0x10\n  t1: 1: 1 [0: 0]\n@ 0x20\n",
                       "line 4: the stack before it has no counts");
    check_refused_text(read_jemalloc, "heap_v2/1\n@ 0x10 main\n",
                       "line 2 has something else than addresses");
    check_refused_text(read_jemalloc, "heap_v2/1\n@ 0x10\n  t*: 1: 1 [0: \n",
                       "line 3 has neither a stack nor counts");
    check_refused_text(read_jemalloc, "heap_v2/1\n@ 0x10\n  t*: 1: -1 [0: 0]\n",
                       "line 3 has neither a stack nor counts");
    check_refused_text(read_jemalloc, "heap_v2/1\nsomething\n",
                       "line 2 has neither a stack nor counts");
}

TEST(no_cut_and_no_changed_byte_does_harm) {
    check_every_cut(read_jemalloc, sampled, strlen(sampled));
    check_every_change(read_jemalloc, sampled, strlen(sampled));
}
