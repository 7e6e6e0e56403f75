/* SPDX-License-Identifier: MIT
 *
 * test_card.c - the card of a run that is made up: its layout to the character, and its arithmetic.
 */
#define _GNU_SOURCE /* open_memstream, strsep */
#include "run/card.h"

#include <stdio.h>

#include "common/glyph.h"
#include "made_profile.h"
#include "test.h"

static const int64_t MIB = 1 << 20;
static const uint64_t SECOND = 1000000000;

/* A server that grows for 31 s and shrinks. */
static struct profile *make_moment(void) {
    static const struct {
        const char *stack;
        int64_t peak_mib, peak_blocks, live_mib, live_blocks;
    } rows[] = {
        {"main@server.c:412;handle@server.c:301;cache_insert@/src/cache.c:88;malloc@:0", 472, 61440,
         15, 1920},
        {"main@server.c:412;handle@server.c:301;parse@json.c:9+parse_json@json.c:212", 265, 33920,
         0, 0},
        {"main@server.c:412;conn_new@net.c:51", 136, 17408, 7, 1},
        {"main@server.c:500;handle@server.c:301;cache_insert@/src/cache.c:88;malloc@:0", 200, 25600,
         64, 1024},
        {"main@server.c:412;a@a.c:1", 90, 100, 0, 0},
        {"main@server.c:412;b@b.c:2", 50, 100, 0, 0},
        {"main@server.c:412;c@c.c:3", 20, 100, 0, 0},
        {"main@server.c:412;d@d.c:4", 7, 100, 32, 3072},
    };
    static const char *const more[][2] = {{"peak_objects", "count"},
                                          {"peak_space", "bytes"},
                                          {"temp_objects", "count"},
                                          {"slack_space", "bytes"}};
    struct profile *profile = make_profile();
    for (size_t i = 0; i < 4; i++) {
        profile_add_type(profile, made_text(profile, more[i][0]), made_text(profile, more[i][1]));
    }
    profile->period = 65536;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_sample(profile, rows[i].stack,
                    (int64_t[]){1150000, 6233 * MIB, rows[i].live_blocks, rows[i].live_mib * MIB,
                                rows[i].peak_blocks, rows[i].peak_mib * MIB, 816500, MIB / 8});
    }
    return profile;
}

enum { POINTS = 43 };
static struct read_point points[POINTS];
static struct read_moment moment;
static struct read_run run;
static struct card card;

static void make_run(void) {
    for (uint64_t i = 0; i < POINTS; i++) {
        uint64_t live = (uint64_t)MIB * (i <= 31 ? 40 * i : 1240 - (i - 31) * 102);
        points[i] = (struct read_point){
            .t_ns = i * SECOND, .rss = live + 173 * (uint64_t)MIB, .live = live};
    }
    moment = (struct read_moment){.t_ns = 42 * SECOND, .profile = make_moment()};
    run = (struct read_run){
        .moments = &moment,
        .moment_count = 1,
        .points = points,
        .point_count = POINTS,
        .program = "/srv/bin/server",
        .pid = 4711,
        .rate = 65536,
        .has_ended = true,
        .has_live_blocks = true,
        .live_blocks = 6017,
    };
    card = (struct card){
        .run = &run,
        .path = "server.4711.tally",
        .file_bytes = 1153434,
        .end = "",
        .wall_ns = 42300000000,
        .sites_most = 5,
    };
}
TEST_SETUP(make_run);

static const char *print(struct card_style style) {
    static char *text;
    size_t length;
    free(text);
    FILE *out = open_memstream(&text, &length);
    card_print(out, &card, style);
    fclose(out);
    return text;
}

static void lacks(const char *text, const char *part) {
    check(strstr(text, part) == NULL);
}

static void has(const char *text, const char *part) {
    if (strstr(text, part) == NULL) {
        test_say("in:\n", text, NULL);
        test_fail(part, 0, "is missing");
    }
}

TEST(a_peak_is_never_told_as_less_than_what_was_counted) {
    points[31].live = (uint64_t)2048 * MIB;
    const char *text = print((struct card_style){.width = 120});
    has(text, "peak  at least 2.0 GiB at 31.0 s");
}

TEST(a_wide_card_has_the_sites_beside_the_chart) {
    check_str(
        print((struct card_style){.width = 120}),
        "tally: server (pid 4711) ran 42.3 s · sampled 1 per 64 KiB (± 95 % sure)\n"
        "\n"
        "  peak  1.2 GiB ± 1.3 % at 31.0 s   live at exit  118.0 MiB          leaked     at most "
        "118.0 MiB in 6,017 blocks\n"
        "  rss   1.4 GiB                     allocated     48.7 GiB ± 0.2 %   temporary  71 ± 1 % "
        "of 9.2 M ± 0.2 % allocations\n"
        "\n"
        "  memory over time                      where the peak was\n"
        "   1.2 GiB           ▁▂▃▄▅▆▆▇█▇▅▃▁       54.2 %   672.0 MiB ± 1.8 %  cache_insert  cache.c:88\n"
        " 620.0 MiB  ▁▂▃▄▅▆▇▇██████████████▆▃     21.4 %   265.0 MiB ± 2.9 %  parse_json    json.c:212\n"
        "         0 └────────────────────────     11.0 %   136.0 MiB ± 4.1 %  conn_new      net.c:51\n"
        "            0                 42.0 s      7.3 %    90.0 MiB ± 0.0 %  a             a.c:1\n"
        "                                          4.0 %    50.0 MiB ± 0.7 %  b             b.c:2\n"
        "                                        … 2 more sites\n"
        "\n"
        "  profile  server.4711.tally (1.1 MiB)\n"
        "  next     tally report --tree server.4711.tally@peak\n"
        "           tally report --list=cache_insert server.4711.tally@peak\n");
}

TEST(a_narrow_card_has_them_below) {
    check_str(print((struct card_style){.width = 80}),
              "tally: server (pid 4711) ran 42.3 s · sampled 1 per 64 KiB\n"
              "\n"
              "  peak          1.2 GiB ± 1.3 % at 31.0 s\n"
              "  live at exit  118.0 MiB\n"
              "  leaked        at most 118.0 MiB in 6,017 blocks\n"
              "  rss           1.4 GiB\n"
              "  allocated     48.7 GiB ± 0.2 %\n"
              "  temporary     71 ± 1 % of 9.2 M ± 0.2 % allocations\n"
              "\n"
              "  memory over time\n"
              "   1.2 GiB                 ▁▁▂▂▃▄▄▅▅▆▆▇▇██▇▆▅▃▂▁\n"
              " 620.0 MiB  ▁▂▂▃▃▄▄▅▅▆▆▇▇███████████████████████▇▆▅▃\n"
              "         0 └────────────────────────────────────────\n"
              "            0                                 42.0 s\n"
              "  where the peak was\n"
              "   54.2 %   672.0 MiB ± 1.8 %  cache_insert  cache.c:88\n"
              "   21.4 %   265.0 MiB ± 2.9 %  parse_json    json.c:212\n"
              "   11.0 %   136.0 MiB ± 4.1 %  conn_new      net.c:51\n"
              "    7.3 %    90.0 MiB ± 0.0 %  a             a.c:1\n"
              "    4.0 %    50.0 MiB ± 0.7 %  b             b.c:2\n"
              "  … 2 more sites\n"
              "\n"
              "  profile  server.4711.tally (1.1 MiB)\n"
              "  next     tally report --tree server.4711.tally@peak\n"
              "           tally report --list=cache_insert server.4711.tally@peak\n");
}

TEST(a_card_without_utf8_is_plain) {
    glyph_is_ascii = true;
    const char *text = print((struct card_style){.width = 80});
    for (const char *at = text; *at != '\0'; at++) {
        check((unsigned char)*at < 128 && (*at >= ' ' || *at == '\n'));
    }
    has(text, "+- ");
    has(text, "... 2 more sites");
}

TEST(colours_are_only_where_they_are_wanted) {
    lacks(print((struct card_style){.width = 80}), "\033");
    has(print((struct card_style){.width = 80, .has_color = true}), "\033[0m");
}

/* But for commands, which are there to be copied. */
TEST(no_line_is_wider_than_the_screen) {
    for (unsigned width = 60; width <= 130; width++) {
        const char *text = print((struct card_style){.width = width});
        const char *foot = strstr(text, "  next ");
        unsigned columns = 0;
        for (; text != foot; text++) {
            columns = *text == '\n' ? 0 : columns + ((*text & 0xc0) != 0x80);
            check(columns <= width);
            check(text[0] != ' ' || text[1] != '\n');
        }
    }
}

TEST(hostile_names_are_cut_and_escaped) {
    char stack[600];
    memset(stack, 'x', sizeof stack);
    memcpy(stack + 4, "\033[2J", 4);
    stack[300] = '\0';
    struct profile *profile = moment.profile;
    make_sample(profile, stack, (int64_t[]){1, 1, 1, 1, 1, 4000 * MIB, 0, 0});
    const char *text = print((struct card_style){.width = 100});
    has(text, "xxxx\\");
    has(text, "xxxxxx…");
    lacks(text, "\033");
    lacks(text, "--list=x");
}

TEST(an_exact_run_has_no_interval) {
    run.rate = 1;
    moment.profile->period = 1;
    const char *text = print((struct card_style){.width = 120});
    lacks(text, "±");
    lacks(text, "estimate");
    has(text, "every allocation recorded");
}

/* 1,240 MiB in blocks of 8 KiB sampled at 64 KiB: the mean of n s^2 (1-p)/p, taken by hand. */
TEST(the_interval_is_that_of_the_samples) {
    profile_free(moment.profile);
    moment.profile = make_profile();
    profile_add_type(moment.profile, "peak_objects", "count");
    profile_add_type(moment.profile, "peak_space", "bytes");
    moment.profile->period = 65536;
    make_sample(moment.profile, "main", (int64_t[]){1, 1, 1, 1, 158720, 158720 * 8192});
    /* p = 1 - e^(-1/8) = 0.117503; sd = sqrt(158720 * 7.51039) * 8192 = 8.944e6; 1.96 sd / 1.30e9 */
    has(print((struct card_style){.width = 120}), "peak  1.2 GiB ± 1.3 % at 31.0 s");
}

TEST(little_memory_is_shown_as_it_was_counted) {
    profile_free(moment.profile);
    moment.profile = make_profile();
    profile_add_type(moment.profile, "peak_objects", "count");
    profile_add_type(moment.profile, "peak_space", "bytes");
    moment.profile->period = 65536;
    make_sample(moment.profile, "main", (int64_t[]){1, 1, 1, 1, 655, 65500});
    has(print((struct card_style){.width = 120}), "peak  at least 1.2 GiB at 31.0 s");
}

TEST(a_run_without_samples_or_points_is_a_card_too) {
    profile_free(moment.profile);
    moment.profile = make_profile();
    run.point_count = 0;
    run.has_ended = false;
    card.end = "killed by SIGKILL";
    const char *text = print((struct card_style){.width = 80});
    has(text, " until 42.0 s · killed by SIGKILL\n");
    has(text, "live at 42.0 s");
    has(text, "unknown: the end is not recorded");
    lacks(text, "where the peak was");
}

TEST(time_on_the_processor_is_listed_by_functions) {
    struct profile *profile = made_keep(profile_new());
    profile_add_type(profile, made_text(profile, "samples"), made_text(profile, "count"));
    profile_add_type(profile, made_text(profile, "cpu"), made_text(profile, "nanoseconds"));
    make_sample(profile, "main@a.c:1;hash@hash.c:10", (int64_t[]){500, 5000000000});
    make_sample(profile, "main@a.c:1;hash@hash.c:12", (int64_t[]){200, 2000000000});
    make_sample(profile, "main@a.c:1;malloc@malloc.c:3", (int64_t[]){300, 3000000000});
    struct read_moment time = {.t_ns = 42 * SECOND, .profile = profile};
    run.cpu = &time;
    run.cpu_count = 1;
    run.cpu_lost = 1200;
    const char *text = print((struct card_style){.width = 120});
    has(text, "  where 10.0 s of processor time went (1,000 samples, 1,200 lost)\n"
              "   70.0 %       7.0 s  hash    hash.c\n"
              "   30.0 %       3.0 s  malloc  malloc.c\n"
              "\n"
              "  profile ");
    has(text, "           tally report --tree --metric=cpu server.4711.tally\n");
    run.cpu_lost = 0;
    has(print((struct card_style){.width = 60}), "(1,000 samples, none lost)\n");
}

TEST(memory_outside_of_the_heap_has_a_reason) {
    lacks(print((struct card_style){.width = 80}), "is not the heap's");
    for (uint64_t i = 0; i < POINTS; i++) {
        points[i].live = 12 * (uint64_t)MIB;
        points[i].held = 14 * (uint64_t)MIB;
        points[i].rss = (100 + i) * (uint64_t)MIB;
    }
    const char *text = print((struct card_style){.width = 80});
    has(text, "  rss      128.0 MiB is not the heap's: mappings of the program, files, stacks\n");
    lacks(text, "prof_mmap"); /* The profile has more than the heap held: it is on. */
    run.moments->profile = made_keep(profile_new());
    has(print((struct card_style){.width = 80}),
        "           TALLY_CONF=prof_mmap:true tally run ... records who maps it\n");
}

TEST(paths_are_quoted_for_a_shell) {
    card.path = "my file's.tally";
    has(print((struct card_style){.width = 80}),
        "tally report --tree 'my file'\\''s.tally@peak'\n");
}
