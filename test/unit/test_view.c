/* SPDX-License-Identifier: MIT
 *
 * test_view.c - what the views print, and that their sums are those of a model that counts by hand.
 */
#define _GNU_SOURCE /* open_memstream, strsep */
#include "view/view.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cli.h"
#include "common/glyph.h"
#include "made_profile.h"
#include "profile/estimate.h"
#include "profile/figure.h"
#include "random.h"
#include "test.h"

/* The example of the manual: figures that belong together. */
enum { MIB = 1 << 20 };

static struct profile *example(void) {
    struct profile *profile = make_profile();
    static const struct {
        const char *stack;
        double mib;
        int64_t blocks;
    } rows[] = {
        {"main@server.c:412;handle_request@server.c:301;login@auth.c:77;"
         "account_load@/src/account.c:140",
         64.0, 1024},
        {"main@server.c:412;handle_request@server.c:301;login@auth.c:77;"
         "account_load@/src/account.c:141;body_new@body.c:33",
         31.9, 3072},
        {"main@server.c:412;handle_request@server.c:301;cache_insert@cache.c:88", 15.0, 61440},
        {"main@server.c:412;handle_request@server.c:301;cache_insert@cache.c:90;grow@cache.c:7",
         3.6, 4},
        {"main@server.c:412;setup@server.c:20", 3.7, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t bytes = (int64_t)(rows[i].mib * MIB);
        make_sample(profile, rows[i].stack,
                    (int64_t[]){rows[i].blocks * 2, bytes * 2, rows[i].blocks, bytes});
    }
    return profile;
}

/* What a view prints of a profile, heading included.  The selection is applied, too. */
static struct select select_all = {.most_rows = SELECT_OWN_ROWS, .least_share = SELECT_OWN_SHARE};
static char *printed;

typedef bool (*view_fn)(struct view *view);

static const char *print(struct profile *profile, struct view view, view_fn run) {
    size_t length;
    struct profile *selected = select_apply(profile, &select_all);
    check(selected != NULL);
    uint32_t space, objects;
    view.profile = selected;
    view.select = &select_all;
    view.by = select_all.by;
    view.type = selected->default_type;
    bool has_pair = profile_find_pair(selected, view.type, &space, &objects);
    view.partner = has_pair && view.type == space     ? objects
                   : has_pair && view.type == objects ? space
                                                      : (uint32_t)PROFILE_NONE;
    view.columns = view.columns != 0 ? view.columns : selected->type_count;
    view.base = view.base != 0 ? view.base : (uint32_t)PROFILE_NONE;
    view.whole = profile_total(profile, view.base != PROFILE_NONE ? view.base : view.type);
    view.facts = estimate_all(selected);
    free(printed);
    view.out = open_memstream(&printed, &length);
    view_print_heading(&view);
    check(run(&view));
    fclose(view.out);
    view_end(&view);
    profile_free(selected);
    return printed;
}

static const char *print_plain(struct profile *profile, view_fn run) {
    return print(profile, (struct view){0}, run);
}

TEST(top_is_sorted_by_flat) {
    select_all.most_rows = 3;
    check_str(print_plain(example(), view_top),
              "inuse_space 118.2 MiB (exact) \u00b7 5 stacks\n"
              "      flat  flat%       cum   cum%  blocks       avg  site\n"
              "  64.0 MiB  54.1%  95.9 MiB  81.1%   1,024    64 KiB  account_load  account.c:140\n"
              "  31.9 MiB  27.0%  31.9 MiB  27.0%   3,072  10.6 KiB  body_new      body.c:33\n"
              "  15.0 MiB  12.7%  18.6 MiB  15.7%  61,440     256 B  cache_insert  cache.c:88\n"
              "  \u2026 5 more (-n 0 shows all)\n");
}

TEST(top_can_be_sorted_by_cum_and_cut_by_share) {
    select_all.by_cum = true;
    select_all.least_share = 0.5;
    check_str(
        print_plain(example(), view_top),
        "inuse_space 118.2 MiB (exact) \u00b7 5 stacks\n"
        "      flat  flat%        cum    cum%  blocks     avg  site\n"
        "       0 B   0.0%  118.2 MiB  100.0%                  main            server.c:412\n"
        "       0 B   0.0%  114.5 MiB   96.9%                  handle_request  server.c:301\n"
        "  64.0 MiB  54.1%   95.9 MiB   81.1%   1,024  64 KiB  account_load    account.c:140\n"
        "       0 B   0.0%   95.9 MiB   81.1%                  login           auth.c:77\n");
}

TEST(a_count_has_its_bytes_beside_it) {
    select_all.metric = "inuse_objects";
    select_all.most_rows = 1;
    check_str(print_plain(example(), view_top),
              "inuse_objects 65,541 (exact) \u00b7 5 stacks\n"
              "    flat  flat%     cum   cum%     bytes    avg  site\n"
              "  61,440  93.7%  61,444  93.7%  15.0 MiB  256 B  cache_insert  cache.c:88\n"
              "  \u2026 7 more (-n 0 shows all)\n");
}

TEST(units_can_be_fixed) {
    select_all.most_rows = 1;
    select_all.unit = "KiB";
    check(strstr(print_plain(example(), view_top), "65536.0 KiB") != NULL);
    select_all.unit = "B";
    check(strstr(print_plain(example(), view_top), "67,108,864 B") != NULL);
    select_all.unit = "MiB";
    check(strstr(print_plain(example(), view_top), " 64.0 MiB") != NULL);
}

TEST(rows_can_be_lines_files_and_addresses) {
    select_all.most_rows = 2;
    select_all.by_cum = true;
    select_all.by = BY_FILES;
    check_str(strchr(print_plain(example(), view_top), '\n') + 1,
              "      flat  flat%        cum    cum%  blocks      avg  site\n"
              "   3.7 MiB   3.1%  118.2 MiB  100.0%       1  3.7 MiB  server.c\n"
              "  64.0 MiB  54.1%   95.9 MiB   81.1%   1,024   64 KiB  /src/account.c\n"
              "  \u2026 3 more (-n 0 shows all)\n");
    select_all.by = BY_LINES;
    select_all.focus = "cache_insert";
    select_all.show = "cache_insert";
    check_str(strchr(print_plain(example(), view_top), '\n') + 1,
              "      flat  flat%       cum   cum%  blocks      avg  site\n"
              "  15.0 MiB  12.7%  15.0 MiB  12.7%  61,440    256 B  cache_insert  cache.c:88\n"
              "   3.6 MiB   3.0%   3.6 MiB   3.0%       4  922 KiB  cache_insert  cache.c:90\n");
}

TEST(the_tree_is_drawn_with_bars_for_flat_values) {
    select_all.focus = "handle_request";
    select_all.least_share = 0.1;
    check_str(print_plain(example(), view_tree),
              "inuse_space 114.5 MiB of 118.2 MiB (exact) \u00b7 4 stacks\n"
              "114.5 MiB  96.9% main  server.c:412\n"
              "└─ 114.5 MiB  96.9% handle_request  server.c:301\n"
              "   ├─ 95.9 MiB  81.1% login  auth.c:77\n"
              "   │  └─ 95.9 MiB  81.1% account_load  account.c:140 ■■■■■■■■■■■\n"
              "   │     └─ 31.9 MiB  27.0% body_new  body.c:33 ■■■■■\n"
              "   └─ 18.6 MiB  15.7% cache_insert  cache.c:88 ■■■\n"
              "  … 1 more (--min=0 -n 0 shows all)\n");
}

TEST(without_other_characters_the_tree_is_plain) {
    glyph_is_ascii = true;
    select_all.most_rows = 3;
    check_str(print(example(), (struct view){0}, view_tree),
              "inuse_space 118.2 MiB (exact) - 5 stacks\n"
              "118.2 MiB 100.0% main  server.c:412\n"
              "`- 114.5 MiB  96.9% handle_request  server.c:301\n"
              "   `- 95.9 MiB  81.1% login  auth.c:77\n"
              "  ... 5 more (--min=0 -n 0 shows all)\n");
}

TEST(peek_shows_callers_and_callees) {
    check_str(print(example(), (struct view){.pattern = "^account_load$"}, view_peek),
              "inuse_space 118.2 MiB (exact) \u00b7 5 stacks\n"
              "\n"
              "account_load  account.c:140   flat 64.0 MiB 54.1%   cum 95.9 MiB 81.1%\n"
              "  called by\n"
              "      95.9 MiB  100.0%  login  auth.c:77\n"
              "  calls\n"
              "      64.0 MiB  66.7%  (itself)\n"
              "      31.9 MiB  33.3%  body_new  body.c:33\n");
}

TEST(peek_counts_a_repeated_call_once) {
    struct profile *profile = make_profile();
    make_sample(profile, "main;a;b;a;b;b", (int64_t[]){1, 8, 1, 8});
    check_str(strchr(print(profile, (struct view){.pattern = "^b$"}, view_peek), '\n') + 2,
              "b  b.c   flat 8 B 100.0%   cum 8 B 100.0%\n"
              "  called by\n"
              "      8 B  100.0%  a  a.c\n"
              "  calls\n"
              "      8 B  100.0%  (itself)\n"
              "      8 B  100.0%  a         a.c\n");
}

/* A source of ten lines, and what --list makes of it. */
static void write_source(const char *path) {
    FILE *file = fopen(path, "w");
    check(file != NULL);
    for (int i = 1; i <= 30; i++) {
        fprintf(file, "\tline %d%s\n", i, i == 12 ? " \033[2J" : "");
    }
    fclose(file);
}

static char folder[] = "/tmp/tally_test_view.XXXXXX";

static struct profile *sourced(void) {
    struct profile *profile = make_profile();
    char path[128];
    check(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/deep", folder);
    check(mkdir(path, 0700) == 0);
    snprintf(path, sizeof path, "%s/deep/load.c", folder);
    write_source(path);
    make_sample(profile, "main;load@/gone/deep/load.c:10", (int64_t[]){1, 64, 1, 64});
    make_sample(profile, "main;load@/gone/deep/load.c:12;body", (int64_t[]){1, 32, 1, 32});
    make_sample(profile, "load@/gone/deep/load.c:28;load@/gone/deep/load.c:12",
                (int64_t[]){1, 8, 1, 8});
    return profile;
}

static void remove_source(void) {
    char path[128];
    static const char *const names[] = {"deep/load.c", "deep", ""};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
}

TEST(list_shows_the_lines_of_a_source_that_was_moved) {
    struct profile *profile = sourced();
    const char *paths[] = {folder};
    const char *text =
        print(profile, (struct view){.pattern = "^load$", .source_paths = {paths, 1}}, view_list);
    remove_source();
    check_str(text, "inuse_space 104 B (exact) \u00b7 3 stacks\n"
                    "\n"
                    "load  /gone/deep/load.c   flat 72 B  cum 104 B\n"
                    "     .     .   5          line 5\n"
                    "     .     .   6          line 6\n"
                    "     .     .   7          line 7\n"
                    "     .     .   8          line 8\n"
                    "     .     .   9          line 9\n"
                    "  64 B  64 B  10          line 10\n"
                    "     .     .  11          line 11\n"
                    "   8 B  40 B  12          line 12 \\x1b[2J\n"
                    "     .     .  13          line 13\n"
                    "     .     .  14          line 14\n"
                    "     .     .  15          line 15\n"
                    "     .     .  16          line 16\n"
                    "     .     .  17          line 17\n"
                    "               \u2026\n"
                    "     .     .  23          line 23\n"
                    "     .     .  24          line 24\n"
                    "     .     .  25          line 25\n"
                    "     .     .  26          line 26\n"
                    "     .     .  27          line 27\n"
                    "     .   8 B  28          line 28\n"
                    "     .     .  29          line 29\n"
                    "     .     .  30          line 30\n");
}

TEST(list_without_a_source_has_the_numbers) {
    struct profile *profile = sourced();
    remove_source();
    cli_loudness = 0;
    check_str(strchr(print(profile, (struct view){.pattern = "^load$"}, view_list), '\n') + 2,
              "load  /gone/deep/load.c   flat 72 B  cum 104 B\n"
              "  64 B  64 B  10\n"
              "   8 B  40 B  12\n"
              "     .   8 B  28\n");
}

TEST(list_counts_a_repeated_line_once) {
    struct profile *profile = make_profile();
    make_sample(profile, "load:12;load:12;load:28", (int64_t[]){1, 8, 1, 8});
    cli_loudness = 0;
    check_str(strchr(print(profile, (struct view){.pattern = "^load$"}, view_list), '\n') + 2,
              "load  load.c   flat 8 B  cum 8 B\n"
              "    .  8 B  12\n"
              "  8 B  8 B  28\n");
}

TEST(a_source_is_not_looked_for_outside_of_its_folder) {
    struct profile *profile = make_profile();
    make_sample(profile, "load@../../../../../../../etc/passwd:1", (int64_t[]){1, 8, 1, 8});
    const char *paths[] = {"/usr/share"};
    cli_loudness = 0;
    check(
        strstr(print(profile, (struct view){.pattern = ".", .source_paths = {paths, 1}}, view_list),
               "root:") == NULL);
}

TEST(traces_are_whole_stacks_with_labels) {
    struct profile *profile = make_profile();
    struct profile_label labels[2] = {
        {made_text(profile, "thread"), made_text(profile, "io-3"), 0, made_text(profile, "")},
        {made_text(profile, "bytes"), NULL, 32, made_text(profile, "bytes")}};
    make_labelled(profile, "main:4;work:10+copy:20", (int64_t[]){2, 64, 2, 64}, labels, 2);
    make_sample(profile, "main:5", (int64_t[]){1, 8, 1, 8});
    make_sample(profile, "main:6", (int64_t[]){1, 8, 0, 0});
    check_str(print_plain(profile, view_traces), "inuse_space 72 B (exact) \u00b7 2 stacks\n"
                                                 "\n"
                                                 "64 B 88.9% in 2 blocks   thread: io-3, bytes: 32 "
                                                 "bytes\n"
                                                 "     copy  copy.c:20\n"
                                                 "     work  work.c:10\n"
                                                 "     main  main.c:4\n"
                                                 "\n"
                                                 "8 B 11.1% in 1 block\n"
                                                 "     main  main.c:5\n");
}

static void add_life(struct profile *profile, const char *stack, int64_t objects, int64_t bound) {
    struct profile_label label = {made_text(profile, "lifetime"), NULL, bound,
                                  made_text(profile, "milliseconds")};
    make_labelled(profile, stack, (int64_t[]){objects, objects * 64, 0, 0}, &label, 1);
}

/* Half of what `churn` freed was gone within 10 ms; `hold` frees nothing. */
TEST(rows_tell_how_long_half_of_what_was_freed_lived) {
    struct profile *profile = make_profile();
    add_life(profile, "main:1;churn:2", 4, 1);
    add_life(profile, "main:1;churn:2", 2, 10);
    add_life(profile, "main:1;other:9;churn:2", 5, 3600000);
    add_life(profile, "main:1;slow:3", 1, 3600000);
    make_sample(profile, "main:1;hold:4", (int64_t[]){1, 64, 1, 64});
    profile->default_type = 1;
    const char *text = print_plain(profile, view_sites);
    check(strstr(text, "inuse_space  lifetime  site") != NULL);
    check(strstr(text, "   < 10 ms  churn") != NULL);
    check(strstr(text, "  > 10 min  slow") != NULL);
    check(strstr(text, "64 B            hold") != NULL);
    text = print_plain(profile, view_top);
    check(strstr(text, "lifetime  site") != NULL && strstr(text, "  < 10 ms  churn") != NULL);
    check(strstr(print_plain(example(), view_sites), "lifetime") == NULL);
}

TEST(sites_have_all_metrics_side_by_side) {
    select_all.most_rows = 2;
    check_str(
        print_plain(example(), view_sites),
        "inuse_space 118.2 MiB (exact) \u00b7 5 stacks\n"
        "  alloc_objects  alloc_space  inuse_objects  inuse_space  site\n"
        "          2,048    128.0 MiB          1,024     64.0 MiB  account_load  account.c:140\n"
        "          6,144     63.8 MiB          3,072     31.9 MiB  body_new      body.c:33\n"
        "  \u2026 3 more sites (-n 0 shows all)\n");
}

/* Comparisons: new minus base, and the base beside it. */

static struct profile *compared(void) {
    struct profile *profile = made_keep(profile_new());
    profile_add_type(profile, made_text(profile, "inuse_space"), made_text(profile, "bytes"));
    profile_add_type(profile, made_text(profile, "base"), made_text(profile, "bytes"));
    profile->period = 1;
    make_sample(profile, "main;fresh:3", (int64_t[]){64 << 10, 0});
    make_sample(profile, "main;grown:4", (int64_t[]){5 << 10, 10 << 10});
    make_sample(profile, "main;old:5", (int64_t[]){-(3 << 10), 3 << 10});
    make_sample(profile, "main;shrunk:6", (int64_t[]){-(1 << 10), 4 << 10});
    make_sample(profile, "main;same:7", (int64_t[]){0, 7 << 10});
    return profile;
}

TEST(a_comparison_says_what_is_new_gone_and_how_much) {
    check_str(print(compared(), (struct view){.base = 1, .columns = 1}, view_top),
              "inuse_space  24 \u2192 89 KiB  (+65 KiB, +271 %) \u00b7 4 stacks\n"
              "  +64 KiB  new    fresh   fresh.c:3\n"
              "   +5 KiB  +50 %  grown   grown.c:4\n"
              "   \u22123 KiB  gone   old     old.c:5\n"
              "   \u22121 KiB  \u221225 %  shrunk  shrunk.c:6\n");
}

TEST(a_comparison_by_cum_shows_callers) {
    glyph_is_ascii = true;
    select_all.by_cum = true;
    select_all.most_rows = 2;
    check_str(print(compared(), (struct view){.base = 1, .columns = 1}, view_top),
              "inuse_space  24 -> 89 KiB  (+65 KiB, +271 %) - 4 stacks\n"
              "  +65 KiB  +271 %  main   main.c\n"
              "  +64 KiB  new     fresh  fresh.c:3\n"
              "  ... 3 more (-n 0 shows all)\n");
}

TEST(a_tree_of_a_comparison_shows_what_cancels_out_above) {
    glyph_is_ascii = true;
    struct profile *profile = made_keep(profile_new());
    profile_add_type(profile, made_text(profile, "inuse_space"), made_text(profile, "bytes"));
    profile_add_type(profile, made_text(profile, "base"), made_text(profile, "bytes"));
    make_sample(profile, "main;up", (int64_t[]){512, 512});
    make_sample(profile, "main;down", (int64_t[]){-512, 512});
    check_str(strchr(print(profile, (struct view){.base = 1, .columns = 1}, view_tree), '\n') + 1,
              "0 B   0.0% main  main.c\n"
              "|- -512 B -50.0% down  down.c ##########\n"
              "`- +512 B  50.0% up  up.c ##########\n");
}

/* Edges. */

TEST(an_empty_profile_has_a_heading) {
    static const view_fn views[] = {view_top,  view_tree,   view_peek,
                                    view_list, view_traces, view_sites};
    cli_loudness = 0;
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        const char *text = print(make_profile(), (struct view){.pattern = "x"}, views[i]);
        check(strncmp(text, "inuse_space 0 B (exact) \u00b7 0 stacks\n", 35) == 0);
    }
}

TEST(samples_without_a_stack_count_in_the_total_only) {
    struct profile *profile = make_profile();
    make_sample(profile, "", (int64_t[]){1, 64, 1, 64});
    make_sample(profile, "main", (int64_t[]){1, 64, 1, 64});
    check_str(print_plain(profile, view_tree),
              "inuse_space 128 B (exact) \u00b7 2 stacks\n"
              "64 B  50.0% main  main.c \u25a0\u25a0\u25a0\u25a0\u25a0"
              "\u25a0\u25a0\u25a0\u25a0\u25a0\n");
    check(strstr(print_plain(profile, view_traces), "(no stack)") != NULL);
}

TEST(hostile_names_are_shown_escaped_in_every_view) {
    static const view_fn views[] = {view_top,  view_tree,   view_peek,
                                    view_list, view_traces, view_sites};
    cli_loudness = 0;
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        struct profile *profile = make_profile();
        struct profile_label label = {made_text(profile, "k\033"), made_text(profile, "v\u202e"), 0,
                                      made_text(profile, "\007")};
        make_labelled(profile, "ma\033[31min@f\nile\u202e.c:3;a\u200bb;x\x9b\xff", //
                      (int64_t[]){1, 64, 1, 64}, &label, 1);
        const char *text = print(profile, (struct view){.pattern = "."}, views[i]);
        for (const char *byte = text; *byte != '\0'; byte++) {
            check((unsigned char)*byte >= 0x20 || *byte == '\n');
        }
        check(strstr(text, "\u202e") == NULL && strstr(text, "\u200b") == NULL);
        check(strstr(text, "\xff") == NULL && strstr(text, "\x9b") == NULL);
        check(strstr(text, "f\n") == NULL);
    }
}

TEST(huge_values_stay_at_the_end_of_the_scale) {
    struct profile *profile = make_profile();
    make_sample(profile, "main;a", (int64_t[]){1, 1, 1, INT64_MAX});
    make_sample(profile, "main;b", (int64_t[]){1, 1, INT64_MAX, INT64_MAX});
    make_sample(profile, "main;c", (int64_t[]){1, 1, 0, INT64_MIN});
    check_eq(profile_total(profile, 3), -1); /* stopped at the end, then went back */
    check(strstr(print_plain(profile, view_top), "8.0 EiB") != NULL);
    print_plain(profile, view_tree);
    print_plain(profile, view_sites);
    check_eq(profile_sum(INT64_MAX, 1), INT64_MAX);
    check_eq(profile_sum(INT64_MIN, -1), INT64_MIN);
}

TEST(a_stack_deeper_than_the_tree_is_cut) {
    struct profile *profile = make_profile();
    uint32_t *stack = malloc(100000 * sizeof *stack);
    uint32_t location = made_location(profile, "again");
    for (int i = 0; i < 100000; i++) {
        stack[i] = location;
    }
    profile_add_sample(profile, stack, 100000, (int64_t[]){1, 8, 1, 8}, NULL, 0);
    free(stack);
    select_all.most_rows = 0;
    const char *text = print_plain(profile, view_tree);
    size_t lines = 0;
    for (; *text != '\0'; text++) {
        lines += *text == '\n';
    }
    check_eq(lines, 257);
}

/* The model: every frame of every sample counted one by one, by name. */

enum { LETTERS = 8, MODEL_STACKS = 60, MODEL_DEPTH = 12 };

static void compare_with_model(struct random *random) {
    struct profile *profile = make_profile();
    int64_t flat[LETTERS] = {0}, cum[LETTERS] = {0}, blocks[LETTERS] = {0};
    for (int i = 0; i < MODEL_STACKS; i++) {
        char text[3 * MODEL_DEPTH] = "";
        size_t length = 0;
        unsigned depth = 1 + (unsigned)random_below(random, MODEL_DEPTH), letter = 0, seen = 0;
        int64_t value = (int64_t)random_below(random, 2000) - 1000;
        for (unsigned j = 0; j < depth; j++) {
            letter = (unsigned)random_below(random, LETTERS);
            if (j > 0) {
                text[length++] = random_below(random, 4) == 0 ? '+' : ';';
            }
            text[length++] = (char)('p' + letter);
            seen |= 1U << letter;
        }
        make_sample(profile, text, (int64_t[]){0, 0, i, value});
        flat[letter] += value;
        blocks[letter] += i;
        for (unsigned j = 0; j < LETTERS; j++) {
            cum[j] += (seen >> j & 1) != 0 ? value : 0;
        }
    }
    struct view view = {
        .profile = profile, .select = &select_all, .type = 3, .partner = 2, .base = PROFILE_NONE};
    view.facts = estimate_all(profile);
    view_index(&view);
    struct view_weight *weights = view_weigh(&view);
    unsigned found = 0;
    for (uint32_t node = 0; node < view.node_count; node++) {
        unsigned letter = (unsigned)(view_name(&view, weights[node].slot)[0] - 'p');
        found |= 1U << letter;
        check_eq(weights[node].flat.value, flat[letter]);
        check_eq(weights[node].cum.value, cum[letter]);
        check_eq(weights[node].partner.value, blocks[letter]);
    }
    for (unsigned j = 0; j < LETTERS; j++) {
        check((found >> j & 1) != 0 || cum[j] == 0);
    }
    free(weights);
    view_end(&view);
    view_release(&view);
    profile_free(profile);
}

TEST(sums_are_those_of_a_model_that_counts_recursion_once) {
    struct random random = random_start(7, 1);
    for (int round = 0; round < 500; round++) {
        compare_with_model(&random);
    }
}

/* The margin: of many samplings of the same objects, 95 in 100 contain the truth. */

static double uniform(struct random *random) {
    return (double)(random_next(random) >> 11) / 9007199254740992.0;
}

/* One sampling: sizes[i] bytes, counts[i] times, each seen by chance and then scaled. */
static struct profile *sampled(struct random *random, const double *sizes, const int *counts,
                               size_t kinds, double period) {
    struct profile *profile = make_profile();
    profile->period = (int64_t)period;
    for (size_t i = 0; i < kinds; i++) {
        double p = -expm1(-sizes[i] / period), objects = 0;
        for (int j = 0; j < counts[i]; j++) {
            objects += uniform(random) < p ? 1 / p : 0;
        }
        char name[8];
        snprintf(name, sizeof name, "f%zu", i);
        make_sample(profile, name,
                    (int64_t[]){0, 0, (int64_t)(objects + 0.5), (int64_t)(objects * sizes[i])});
    }
    return profile;
}

TEST(the_margin_holds_the_truth_in_95_of_100_samplings) {
    static const double sizes[] = {64, 4096, 100000, 500000, 4000000};
    static const int counts[] = {4000, 800, 60, 40, 5};
    struct random random = random_start(8, 1);
    double truth[2] = {0, 0};
    for (size_t i = 0; i < 5; i++) {
        truth[0] += counts[i];
        truth[1] += sizes[i] * counts[i];
    }
    enum { ROUNDS = 1000 };
    int hits = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct profile *profile = sampled(&random, sizes, counts, 5, 65536);
        struct figure figure = figure_total(profile, 3);
        hits += figure.low <= truth[1] && truth[1] <= figure.high;
        profile_free(profile);
    }
    check(hits > ROUNDS * 92 / 100);
    check(hits < ROUNDS * 98 / 100);
}

TEST(the_margin_of_objects_much_smaller_than_the_period_is_that_of_counting) {
    struct profile *profile = make_profile();
    profile->period = 512 << 10;
    make_sample(profile, "main", (int64_t[]){0, 0, INT64_C(1) << 26, INT64_C(1) << 29});
    double expected = 1024.0 * (512 << 10) * (512 << 10); /* 1024 samples of 512 KiB */
    check(fabs(estimate_total(profile, 3).variance / expected - 1) < 0.001);
    check(strncmp(print_plain(profile, view_top),
                  "inuse_space 512.0 MiB \u00b1 6.1 % (sampled, 95 % sure)", 50) == 0);
}

TEST(what_was_recorded_whole_has_no_margin) {
    struct profile *profile = example();
    check(estimate_total(profile, 3).variance == 0);
    profile->source = made_text(profile, "folded");
    check(estimate_total(profile, 3).variance < 0);
    check(strncmp(print_plain(profile, view_top), "inuse_space 118.2 MiB \u00b1 unknown \u00b7 5",
                  35) == 0);
}

/* As where one stack has allocated blocks of all sizes: the mean tells nothing. */
TEST(the_margin_is_what_the_writer_has_found_from_the_samples) {
    struct profile *profile = make_profile();
    profile->period = 512 << 10;
    struct profile_label grain = {.key = made_text(profile, "inuse_space_grain"),
                                  .number = 1000000, /* thousandths */
                                  .unit = made_text(profile, "thousandths")};
    make_labelled(profile, "main", (int64_t[]){0, 0, 100, 4000000}, &grain, 1);
    check(estimate_total(profile, 3).variance == 4e9);
    check(estimate_total(profile, 2).variance > 0);
    check(strstr(print_plain(profile, view_traces), "grain") == NULL);
}

TEST(few_samples_have_a_margin_that_differs_by_side) {
    struct profile *profile = make_profile();
    profile->period = 512 << 10;
    make_sample(profile, "main", (int64_t[]){0, 0, INT64_C(4) << 13, INT64_C(4) << 19});
    struct figure figure = figure_total(profile, 3);                 /* four samples */
    check(figure.low > 0.33 * 0x1p21 && figure.low < 0.36 * 0x1p21); /* 1.35 and 9.5 of them */
    check(figure.high > 2.35 * 0x1p21 && figure.high < 2.4 * 0x1p21);
    const char *wanted = "inuse_space 2.0 MiB \u221267 +138 % (sampled, 95 % sure)";
    check(strncmp(print_plain(profile, view_top), wanted, strlen(wanted)) == 0);
}

TEST(where_nothing_was_sampled_there_may_be_a_little) {
    struct profile *profile = make_profile();
    profile->period = 1000;
    make_sample(profile, "main", (int64_t[]){1, 1, 0, 0});
    struct figure figure = figure_total(profile, 3);
    check(figure.low == 0 && figure.high > 2400 && figure.high < 2600);
}

TEST(the_margin_of_time_is_that_of_counting_ticks) {
    struct profile *profile = made_keep(profile_new());
    profile_add_type(profile, made_text(profile, "samples"), made_text(profile, "count"));
    profile_add_type(profile, made_text(profile, "cpu"), made_text(profile, "nanoseconds"));
    profile->period = 10000000;
    profile->period_type.unit = made_text(profile, "nanoseconds");
    make_sample(profile, "main", (int64_t[]){400, INT64_C(4000000000)});
    check(estimate_total(profile, 0).variance == 400);
    check(estimate_total(profile, 1).variance == 4e9 * 1e7);
    profile->default_type = 1;
    check_str(print_plain(profile, view_tree),
              "cpu 4.0 s \u00b1 9.8 % (sampled, 95 % sure) \u00b7 1 stack\n"
              "4.0 s \u00b19.8% 100.0% main  main.c ■■■■■■■■■■■■■■■■■■■■\n");
}
