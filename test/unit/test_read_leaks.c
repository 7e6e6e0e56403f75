/* SPDX-License-Identifier: MIT
 *
 * test_read_leaks.c - the result of a leak check as text: read whole, refused when damaged, suppressed by rules.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "view/growth.h"
#include "view/leak_sites.h"
#include "read/read.h"
#include "test.h"

static const char good[] = "tally-leaks 1\n"
                           "heap 1048576\nroots 4096\nthreads 3\nunanswered 1\n"
                           "pause_ns 5000\ntotal_ns 9000\nrate 1\n"
                           "definite 3 3072 3000\nindirect 2 64 40\npossible 0 0 0\n"
                           "reachable 10 2048 2000\nignored 0 0 0\nsuppressed 0 0 0\n"
                           "why one thread did not answer\n"
                           "group definite 2 2048 2000 0 0x401010 0x402020\n"
                           "below 1 32 24\n"
                           "group definite 1 1024 1000 0 0x501010\n"
                           "below 1 32 16\n"
                           "group indirect 2 64 40 32\n"
                           "module 0x400000 0x500000 0x0 abcdef /bin/program with blanks\n"
                           "module 0x500000 0x600000 0x1000 - /lib/libz.so\n"
                           "end\n";

static struct read_leaks *read_text(const char *text) {
    char why[READ_WHY_BYTES] = "";
    struct read_leaks *leaks = read_leaks((const uint8_t *)text, strlen(text), why);
    check((leaks == NULL) == (why[0] != '\0'));
    return leaks;
}

TEST(a_result_is_read_whole) {
    struct read_leaks *leaks = read_text(good);
    check(leaks != NULL);
    check_eq(leaks->heap, 1048576);
    check_eq(leaks->threads, 3);
    check_eq(leaks->unanswered, 1);
    check_eq(leaks->pause_ns, 5000);
    check_eq(leaks->sums[READ_LEAK_DEFINITE].requested, 3000);
    check_eq(leaks->sums[READ_LEAK_REACHABLE].objects, 10);
    check_str(leaks->why, "one thread did not answer");
    const struct profile *profile = leaks->profile;
    check(profile_verify(profile));
    check_eq(profile->sample_count, 3);
    check_eq(profile->samples[0].depth, 2);
    check_eq(profile->samples[2].depth, 0);
    check_eq(profile_value(profile, 0, 1), 2000);
    check_str(profile->mappings[0].path, "/bin/program with blanks");
    check_str(profile->mappings[0].build_id, "abcdef");
    check_str(profile->mappings[1].build_id, "");
    check_eq(profile->locations[profile->stacks[profile->samples[1].stack]].mapping, 1);
    read_leaks_free(leaks);
}

/* Cut anywhere it is refused, or, behind the last line, complete. */
TEST(a_damaged_result_is_refused) {
    for (size_t length = 0; length + 4 < sizeof good; length++) {
        char why[READ_WHY_BYTES] = "";
        struct read_leaks *leaks = read_leaks((const uint8_t *)good, length, why);
        check(leaks == NULL);
    }
    static const char *const bad[] = {
        "tally-leaks 2\nend\n",
        "tally-leaks 1\nheap -1\nend\n",
        "tally-leaks 1\nheap 99999999999999999999\nend\n",
        "tally-leaks 1\nwhat 1\nend\n",
        "tally-leaks 1\ngroup definite 1 1\nend\n",
        "tally-leaks 1\ngroup reachable 1 1 1 0\nend\n",
        "tally-leaks 1\ngroup definite 1 1 1 0 zz\nend\n",
        "tally-leaks 1\nmodule 0x2 0x1 0x0 - x\nend\n",
        "tally-leaks 1\nmodule 0x1 0x2\nend\n",
        "tally-leaks 1\nbelow 1 1 1\nend\n",
        "tally-leaks 1\nindirect 1 1 1\ngroup indirect 1 1 1 0\nbelow 1 1 1\nend\n",
        "tally-leaks 1\ndefinite 1 1 1\ngroup definite 1 1 1 0\nbelow 1 1\nend\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check(read_text(bad[i]) == NULL);
    }
}

/* An object of a tenth of the rate is seen one time in about ten. */
TEST(what_was_sampled_stands_for_more) {
    struct read_leaks *leaks = read_text("tally-leaks 1\nrate 10000\ndefinite 11 11000 11000\n"
                                         "group definite 1 1000 1000 0 0x1000\nend\n");
    check(leaks != NULL);
    check(profile_value(leaks->profile, 0, 0) >= 10);
    check(profile_value(leaks->profile, 0, 0) <= 11);
    check_eq(leaks->sums[READ_LEAK_DEFINITE].objects, 11);
    read_leaks_free(leaks);
}

TEST(estimates_add_up_to_what_is_known_exactly) {
    /* Two seen of 64 that stand for 131: they share the 64, and nothing is left without a stack. */
    struct read_leaks *leaks = read_text("tally-leaks 1\nrate 65536\ndefinite 64 65536 65536\n"
                                         "group definite 2 2048 2048 0 0x1000\n"
                                         "group definite 62 63488 63488 1024\nend\n");
    check_eq(profile_value(leaks->profile, 0, 0), 64);
    check_eq(profile_value(leaks->profile, 0, 1), 65536);
    check_eq(profile_value(leaks->profile, 1, 0), 0);
    read_leaks_free(leaks);
    /* One seen of 200 that stands for about 65: the rest stays without. */
    leaks = read_text("tally-leaks 1\nrate 65536\ndefinite 200 204800 204800\n"
                      "group definite 1 1024 1024 0 0x1000\n"
                      "group definite 199 203776 203776 1024\nend\n");
    int64_t with_stack = profile_value(leaks->profile, 0, 0);
    check(with_stack >= 63 && with_stack <= 66);
    check_eq(profile_value(leaks->profile, 1, 0), 0);
    check_eq(profile_value(leaks->profile, 2, 0), 200 - with_stack);
    check_eq(profile_value(leaks->profile, 2, 1), 204800 - profile_value(leaks->profile, 0, 1));
    check_eq(leaks->rounded, 199);
    read_leaks_free(leaks);
}

static int64_t sum_of(const struct profile *profile, uint32_t type) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        sum += profile_value(profile, i, type);
    }
    return sum;
}

/* Stacks stand for more blocks than there are and for fewer bytes, or the other way round, or there is nothing without
 * a stack: samples add up to the sums in all types. */
TEST(samples_add_up_whatever_was_sampled) {
    static const char *const groups[] = {
        "group definite 9 900 900 0 0x1000\nbelow 3 60000 60000\n"
        "group definite 2 90000 90000 0 0x2000\ngroup definite 89 1000 1000 1024\n",
        "group definite 1 50000 50000 0 0x1000\nbelow 1 10 10\n"
        "group definite 7 700 700 0 0x2000\nbelow 7 70 70\ngroup definite 92 41200 41200 448\n",
        "group definite 3 9000 9000 0 0x1000\n",
        "group definite 100 91900 91900 1024\nbelow 40 60080 60080\n",
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "tally-leaks 1\nrate 65536\ndefinite 100 91900 91900\nindirect 40 60080 60080\n"
                 "%sgroup indirect 40 60080 60080 0 0x3000\nend\n",
                 groups[i]);
        struct read_leaks *leaks = read_text(text);
        check(leaks != NULL && read_leaks_are_sound(leaks));
        check_eq(sum_of(leaks->profile, 0), 100 + 40);
        check_eq(sum_of(leaks->profile, 1), 91900 + 60080);
        check_eq(sum_of(leaks->profile, 2), 40);
        check_eq(sum_of(leaks->profile, 3), 60080);
        read_leaks_free(leaks);
    }
}

TEST(a_rule_takes_a_place_out_and_what_only_it_held) {
    struct read_leaks *leaks = read_text(good);
    struct leak_matches matches = {0};
    leak_sites_suppress(leaks, "leak:libz\n", &matches);
    check_eq(matches.count, 1);
    check_str(matches.rows[0].rule, "leak:libz");
    check_eq(leaks->sums[READ_LEAK_DEFINITE].objects, 2);
    check_eq(leaks->sums[READ_LEAK_INDIRECT].objects, 1);
    leak_sites_suppress(leaks, "leak:^/bin/program\n", &matches);
    check_eq(leaks->sums[READ_LEAK_DEFINITE].objects, 0);
    check_eq(leaks->sums[READ_LEAK_INDIRECT].objects, 0);
    check_eq(leaks->sums[READ_LEAK_SUPPRESSED].objects, 5);
    read_leaks_free(leaks);
}

TEST(places_are_joined_and_sorted_by_kind_and_size) {
    struct read_leaks *leaks = read_text(good);
    struct leak_sites sites = {0};
    leak_sites_collect(&sites, leaks->profile, " <- ");
    check_eq(sites.count, 3);
    check_eq(sites.rows[0].bytes, 2000);
    check_eq(sites.rows[0].below_objects, 1);
    check_eq(sites.rows[0].below_bytes, 24);
    check_str(sites.rows[0].path, "program with blanks+0x1010 <- program with blanks+0x2020");
    check_str(sites.rows[1].place, "libz.so+0x2010");
    check_str(sites.rows[1].rule, "leak:libz.so");
    check_eq(sites.rows[2].kind, READ_LEAK_INDIRECT);
    check_str(sites.rows[2].place, "");
    leak_sites_free(&sites);
    read_leaks_free(leaks);
}

/* The smaller place leads to more. */
TEST(places_are_ranked_with_what_hangs_below_them) {
    struct read_leaks *leaks =
        read_text("tally-leaks 1\nrate 1\ndefinite 2 1100 1100\nindirect 9 9000 9000\n"
                  "group definite 1 1000 1000 0 0x1000\n"
                  "group definite 1 100 100 0 0x2000\nbelow 9 9000 9000\n"
                  "group indirect 9 9000 9000 0 0x3000\nend\n");
    struct leak_sites sites = {0};
    leak_sites_collect(&sites, leaks->profile, " <- ");
    check_eq(sites.rows[0].bytes, 100);
    check_eq(sites.rows[0].below_bytes, 9000);
    check_eq(sites.rows[1].bytes, 1000);
    leak_sites_free(&sites);
    read_leaks_free(leaks);
}

/* Profiles of four moments, with the bytes of two places each. */
static struct profile *moment(int64_t first, int64_t second) {
    struct profile *profile = profile_new();
    profile_add_type(profile, profile_text(profile, "inuse_space", 11),
                     profile_text(profile, "bytes", 5));
    const int64_t values[] = {first, second};
    for (unsigned i = 0; i < 2; i++) {
        uint32_t location = profile_add_location(profile, 0x1000 + i, PROFILE_NONE, NULL, 0);
        profile_add_sample(profile, &location, 1, &values[i], NULL, 0);
    }
    return profile;
}

static unsigned find(const int64_t values[4][2], struct growth found[GROWTH_MOST]) {
    struct growth_moment moments[4];
    for (unsigned i = 0; i < 4; i++) {
        moments[i] = (struct growth_moment){(i + 1) * UINT64_C(900000000000),
                                            moment(values[i][0], values[i][1])};
    }
    unsigned count = growth_find(moments, 4, found);
    for (unsigned i = 0; i < 4; i++) {
        profile_free(moments[i].profile);
    }
    return count;
}

TEST(what_grows_all_the_time_is_named_with_its_pace) {
    struct growth found[GROWTH_MOST];
    const int64_t steady[4][2] = {
        {1 << 20, 5 << 20}, {2 << 20, 5 << 20}, {3 << 20, 5 << 20}, {4 << 20, 5 << 20}};
    check_eq(find(steady, found), 1);
    check_str(found[0].place, "0x1000");
    check_eq((long)found[0].per_hour, 4 << 20);
    check_eq(found[0].bytes, 4 << 20);
    const int64_t both[4][2] = {
        {1 << 20, 2 << 20}, {2 << 20, 4 << 20}, {3 << 20, 6 << 20}, {4 << 20, 8 << 20}};
    check_eq(find(both, found), 2);
    check_str(found[0].place, "0x1001");
}

/* A quarter of the first is lost, and most of the second. */
TEST(what_is_lost_does_not_count_as_growing) {
    struct leak_site rows[] = {
        {.place = "first", .kind = READ_LEAK_DEFINITE, .bytes = 200, .below_bytes = 5000},
        {.place = "first", .kind = READ_LEAK_INDIRECT, .bytes = 50},
        {.place = "first", .kind = READ_LEAK_POSSIBLE, .bytes = 7000},
        {.place = "second", .kind = READ_LEAK_DEFINITE, .bytes = 900},
    };
    const struct leak_sites sites = {.rows = rows, .count = 4};
    struct growth found[] = {{.place = "first", .per_hour = 4000, .bytes = 1000},
                             {.place = "second", .per_hour = 3000, .bytes = 1000},
                             {.place = "third", .per_hour = 2000, .bytes = 1000}};
    check_eq(leak_sites_leave(&sites, found, 3), 2);
    check_str(found[0].place, "first");
    check_eq(found[0].bytes, 750);
    check_eq((int)found[0].per_hour, 3000);
    check_str(found[1].place, "third");
    check_eq(found[1].bytes, 1000);
}

TEST(what_goes_up_and_down_does_not_grow) {
    struct growth found[GROWTH_MOST];
    const int64_t waves[4][2] = {{4 << 20, 100}, {1 << 20, 200}, {4 << 20, 300}, {2 << 20, 400}};
    check_eq(find(waves, found), 0);
    const int64_t falls[4][2] = {{8 << 20, 0}, {6 << 20, 0}, {4 << 20, 0}, {2 << 20, 0}};
    check_eq(find(falls, found), 0);
}
