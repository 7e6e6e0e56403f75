/* SPDX-License-Identifier: MIT
 *
 * test_select.c - what --focus and its like leave of a profile, against a model that works on text.
 */
#define _GNU_SOURCE /* O_TMPFILE, strsep */
#include "select/select.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "common/cli.h"
#include "made_profile.h"
#include "random.h"
#include "test.h"

static const int64_t one[4] = {1, 64, 1, 64};

static struct profile *apply(const struct profile *profile, const struct select *select) {
    return made_keep(select_apply(profile, select));
}

/* The only sample that is left, as text; "" when none is. */
static const char *chosen(struct profile *profile, const struct select *select) {
    struct profile *selected = apply(profile, select);
    check(selected != NULL);
    check(selected->sample_count <= 1);
    return selected->sample_count == 1 ? made_stack_text(selected, 0) : "";
}

static const char *chosen_of(const char *stack, const struct select *select) {
    struct profile *profile = make_profile();
    make_sample(profile, stack, one);
    return chosen(profile, select);
}

/* What the body says on standard error. */
static char said[1024];
static void listen(void) {
    int fd = open("/tmp", O_RDWR | O_TMPFILE, 0600);
    check(fd >= 0);
    check(dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
}
static const char *heard(void) {
    ssize_t length = pread(STDERR_FILENO, said, sizeof said - 1, 0);
    said[length > 0 ? length : 0] = '\0';
    return said;
}

TEST(focus_keeps_stacks_that_have_a_match_anywhere) {
    check_str(chosen_of("main;work;copy", &(struct select){.focus = "^wor"}), "main;work;copy");
    check_str(chosen_of("main;work;copy", &(struct select){.focus = "^ork"}), "");
    check_str(chosen_of("main;work+copy", &(struct select){.focus = "copy"}), "main;work+copy");
}

TEST(an_expression_is_looked_for_in_files_and_modules_too) {
    check_str(chosen_of("main;work@/src/deep.c:3", &(struct select){.focus = "deep"}), "main;work");
    struct profile *profile = make_profile();
    profile_add_mapping(profile, (struct profile_mapping){.limit = UINT64_MAX,
                                                          .path = made_text(profile, "/lib/x.so"),
                                                          .build_id = made_text(profile, "")});
    make_sample(profile, "main", one);
    check_str(chosen(profile, &(struct select){.focus = "x\\.so"}), "main");
    check_str(chosen(profile, &(struct select){.module = "x\\.so"}), "main");
    check_str(chosen(profile, &(struct select){.module = "main"}), "");
    check_str(chosen(profile, &(struct select){.file = "main\\.c"}), "main");
    check_str(chosen(profile, &(struct select){.file = "x\\.so"}), "");
    check_str(chosen(profile, &(struct select){.hide = "x\\.so"}), "");
}

TEST(a_leading_i_in_parentheses_ignores_case) {
    check_str(chosen_of("Main", &(struct select){.focus = "main"}), "");
    check_str(chosen_of("Main", &(struct select){.focus = "(?i)mAIN"}), "Main");
}

TEST(ignore_wins_over_focus) {
    check_str(chosen_of("main;work", &(struct select){.focus = "main", .ignore = "work"}), "");
    check_str(chosen_of("main;work", &(struct select){.ignore = "other"}), "main;work");
}

TEST(hide_takes_single_inlined_calls_out_of_a_location) {
    check_str(chosen_of("main;a+b+c", &(struct select){.hide = "^b$"}), "main;a+c");
    check_str(chosen_of("main;a+b+c;d", &(struct select){.hide = "^[abc]$"}), "main;d");
    check_str(chosen_of("main;a", &(struct select){.hide = "."}), "");
}

TEST(show_leaves_only_matches) {
    check_str(chosen_of("main;a+b;c", &(struct select){.show = "^[bc]$"}), "b;c");
    check_str(chosen_of("main;a+b;c", &(struct select){.show = "^x$"}), "");
}

TEST(show_from_cuts_above_the_outermost_match_even_inside_a_location) {
    check_str(chosen_of("main;a+b+c;b;d", &(struct select){.show_from = "^b$"}), "b+c;b;d");
    check_str(chosen_of("main;a", &(struct select){.show_from = "^x$"}), "");
}

TEST(without_inlines_a_location_is_its_outermost_function) {
    check_str(chosen_of("main;a+b+c;d", &(struct select){.no_inlines = true}), "main;a;d");
    check_str(chosen_of("main;a+b", &(struct select){.focus = "^b$", .no_inlines = true}),
              "main;a");
    check_str(chosen_of("main;a+b", &(struct select){.hide = "^a$", .no_inlines = true}), "main;b");
}

TEST(frames_of_allocators_are_taken_off_the_leaf) {
    static const char *const leaves[] = {
        "malloc",
        "calloc",
        "je_malloc",
        "tc_new",
        "operator new(unsigned long)",
        "operator new[](unsigned long)",
        "_Znwm",
        "tally_malloc",
        "__rust_alloc",
        "alloc::raw_vec::finish_grow",
        "std::vector<int, std::allocator<int> >::_M_allocate(unsigned long)",
        ("std::allocator_traits<std::allocator<int> >::allocate(std::allocator<int>&, unsigned "
         "long)"),
        "realloc@plt",
    };
    for (size_t i = 0; i < sizeof leaves / sizeof leaves[0]; i++) {
        struct profile *profile = make_profile();
        struct profile_function function = {.name = made_text(profile, leaves[i]),
                                            .system_name = made_text(profile, leaves[i]),
                                            .file = made_text(profile, "")};
        struct profile_line line = {profile_add_function(profile, function), 0};
        uint32_t stack[2] = {profile_add_location(profile, 77, PROFILE_NONE, &line, 1),
                             made_location(profile, "main+strdup")};
        profile_add_sample(profile, stack, 2, one, NULL, 0);
        check_str(chosen(profile, &(struct select){0}), "main+strdup");
        struct profile *all = apply(profile, &(struct select){.show_internal = true});
        check_eq(all->samples[0].depth, 2);
    }
}

TEST(names_that_only_look_like_allocators_stay) {
    static const char *const names[] = {"malloc_stats", "new",
                                        "alloc",        "my_malloc",
                                        "mallocate",    "std::vector<int>::push_back(int)",
                                        "xmalloc"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct profile *profile = make_profile();
        char stack[128];
        snprintf(stack, sizeof stack, "main;%s", names[i]);
        for (char *colon = stack; (colon = strchr(colon, ':')) != NULL;) {
            *colon = '.'; /* which means something in the text of a stack */
        }
        make_sample(profile, stack, one);
        check_str(chosen(profile, &(struct select){0}), stack);
    }
}

TEST(a_stack_of_nothing_but_allocators_keeps_the_outermost) {
    check_str(chosen_of("calloc;malloc", &(struct select){0}), "calloc");
    check_str(chosen_of("calloc+malloc", &(struct select){0}), "calloc");
}

TEST(in_a_cpu_profile_malloc_is_a_function_like_others) {
    struct profile *profile = make_profile();
    profile->is_exact_leaf = true;
    make_sample(profile, "main;malloc", one);
    check_str(chosen(profile, &(struct select){0}), "main;malloc");
}

/* Labels. */

static struct profile *labelled(void) {
    struct profile *profile = make_profile();
    struct profile_label labels[2] = {
        {made_text(profile, "thread"), made_text(profile, "io-3"), 0, made_text(profile, "")},
        {made_text(profile, "bytes"), NULL, 4096, made_text(profile, "bytes")}};
    make_labelled(profile, "main;work", one, labels, 2);
    return profile;
}

TEST(tags_become_frames_and_can_be_asked_for) {
    check_str(chosen(labelled(), &(struct select){.tag_root = "thread"}), "io-3;main;work");
    check_str(chosen(labelled(), &(struct select){.tag_leaf = "bytes"}), "main;work;4096");
    check_str(chosen(labelled(), &(struct select){.tag_root = "color"}), "(no color);main;work");
    check_str(chosen(labelled(), &(struct select){.tag_root = "thread", .focus = "io-3"}),
              "io-3;main;work");
    check_str(chosen(labelled(), &(struct select){.tag_root = "thread", .show = "io|work"}),
              "io-3;work");
}

TEST(samples_are_chosen_by_tag_thread_and_size) {
    static const struct {
        struct select select;
        bool is_kept;
    } rows[] = {
        {{.tag = "thread=^io"}, true},   {{.tag = "thread=^o"}, false},
        {{.tag = "thread"}, true},       {{.tag = "color"}, false},
        {{.tag = "bytes=^4096$"}, true}, {{.thread = "io"}, true},
        {{.thread = "main"}, false},     {{.size_least = 4096}, true},
        {{.size_least = 4097}, false},   {{.size_most = 4096}, true},
        {{.size_most = 4095}, false},    {{.size_least = 1, .size_most = 9000}, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check_str(chosen(labelled(), &rows[i].select), rows[i].is_kept ? "main;work" : "");
    }
}

/* A step of lifetimes is known by its upper bound; what lives has no label. */
TEST(samples_are_chosen_by_how_long_they_lived) {
    static const struct {
        uint64_t least_ms, most_ms;
        int64_t
            kept; /* objects: 1 lived for less than 1 ms, 2 for less than 10, 4 for less than 1 min */
    } rows[] = {{0, 10, 3}, {0, 9, 1},  {0, 2, 1},     {10, 0, 4},     {11, 0, 4},
                {9, 0, 6},  {1, 10, 2}, {60000, 0, 0}, {0, 3600000, 7}};
    static const int64_t bounds[] = {1, 10, 60000};
    struct profile *profile = make_profile();
    for (unsigned i = 0; i < 3; i++) {
        struct profile_label label = {made_text(profile, "lifetime"), NULL, bounds[i],
                                      made_text(profile, "milliseconds")};
        make_labelled(profile, "main", (int64_t[]){1 << i, 64, 0, 0}, &label, 1);
    }
    make_sample(profile, "main", (int64_t[]){8, 64, 8, 64});
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct select select = {.metric = "alloc_objects",
                                .life_least = rows[i].least_ms * 1000000,
                                .life_most = rows[i].most_ms * 1000000};
        check_eq(profile_total(apply(profile, &select), 0), rows[i].kept);
    }
}

TEST(without_a_label_the_size_is_the_mean_of_the_metric) {
    struct profile *profile = make_profile();
    make_sample(profile, "main", (int64_t[]){10, 1000, 2, 400});
    check_str(chosen(profile, &(struct select){.size_least = 200, .size_most = 200}), "main");
    check_str(
        chosen(profile,
               &(struct select){.metric = "alloc_space", .size_least = 100, .size_most = 100}),
        "main");
    check_str(chosen(profile, &(struct select){.metric = "alloc_space", .size_least = 101}), "");
}

TEST(labels_and_values_survive) {
    struct profile *selected = apply(labelled(), &(struct select){.metric = "alloc_space"});
    check_eq(selected->default_type, 1);
    check_eq(selected->samples[0].label_count, 2);
    check_str(selected->labels[0].text, "io-3");
    check_eq(selected->labels[1].number, 4096);
    check_eq(profile_value(selected, 0, 1), 64);
    check_str(selected->source, "pprof");
}

/* Edges. */

TEST(a_metric_that_is_not_there_is_answered_with_those_that_are) {
    struct profile *profile = make_profile();
    listen();
    check(apply(profile, &(struct select){.metric = "peak_space"}) == NULL);
    check_str(heard(), "tally: the profile has no peak_space; it has alloc_objects, alloc_space, "
                       "inuse_objects, inuse_space\n");
}

TEST(an_expression_that_is_none_is_one_sentence) {
    struct profile *profile = make_profile();
    listen();
    check(apply(profile, &(struct select){.hide = "a("}) == NULL);
    check(strncmp(heard(), "tally: --hide=a( is no regular expression: ", 43) == 0);
    check(strchr(said, '\n') == said + strlen(said) - 1);
}

TEST(a_profile_without_types_is_refused) {
    listen();
    check(apply(made_keep(profile_new()), &(struct select){0}) == NULL);
    check_str(heard(), "tally: the profile has no values\n");
}

TEST(an_empty_profile_stays_one) {
    struct profile *selected = apply(make_profile(), &(struct select){.focus = "x"});
    check_eq(selected->sample_count, 0);
    check_eq(selected->type_count, 4);
}

TEST(a_sample_without_stack_counts_until_frames_are_asked_for) {
    struct profile *profile = make_profile();
    make_sample(profile, "", one);
    check_eq(apply(profile, &(struct select){0})->sample_count, 1);
    check_eq(apply(profile, &(struct select){.ignore = "x"})->sample_count, 1);
    check_eq(apply(profile, &(struct select){.focus = "x"})->sample_count, 0);
    check_eq(apply(profile, &(struct select){.show = "x"})->sample_count, 0);
    check_str(chosen(profile, &(struct select){.tag_root = "k"}), "(no k)");
}

TEST(addresses_without_a_name_match_as_they_are_shown) {
    struct profile *profile = make_profile();
    uint32_t location = profile_add_location(profile, 0x4011d2, PROFILE_NONE, NULL, 0);
    profile_add_sample(profile, &location, 1, one, NULL, 0);
    check_str(select_frame_name(profile, location, 0, BY_FUNCTIONS), "0x4011d2");
    check_str(chosen(profile, &(struct select){.focus = "^0x4011d2$"}), "0x4011d2");
    check_str(chosen(profile, &(struct select){.hide = "^0x4011d2$"}), "");
}

TEST(a_frame_has_a_name_for_each_way_of_looking) {
    struct profile *profile = make_profile();
    profile_add_mapping(profile, (struct profile_mapping){.limit = UINT64_MAX,
                                                          .path = made_text(profile, "/lib/x.so"),
                                                          .build_id = made_text(profile, "")});
    uint32_t location = made_location(profile, "insert@/src/cache.c:88+copy@/src/copy.h:7");
    check_str(select_frame_name(profile, location, 0, BY_FUNCTIONS), "copy");
    check_str(select_frame_name(profile, location, 1, BY_LINES), "cache.c:88");
    check_str(select_frame_name(profile, location, 1, BY_FILES), "/src/cache.c");
    check_str(select_frame_name(profile, location, 1, BY_MODULES), "/lib/x.so");
    profile->locations[location].address = 0x1234;
    check_str(select_frame_name(profile, location, 1, BY_ADDRESSES), "0x1234");
}

/* The model: stacks as rows of letters, expressions as sets of letters. */

enum { LETTERS = 6, MODEL_STACKS = 40, MODEL_DEPTH = 9 };

struct model {
    char frames[MODEL_DEPTH + 1]; /* root first */
    bool joins[MODEL_DEPTH + 1];  /* inlined into the one before */
    int depth;
};

static bool is_in(const char *set, char letter) {
    return set != NULL && letter != '\0' && strchr(set, letter) != NULL;
}

/* What is left of a stack, as made_stack_text spells it; "" for nothing. */
static const char *model_select(const struct model *model, const char *const sets[5]) {
    static char text[128];
    bool has_focus = sets[0] == NULL, has_ignore = false;
    text[0] = '\0';
    for (int i = 0; i < model->depth; i++) {
        has_focus |= is_in(sets[0], model->frames[i]);
        has_ignore |= is_in(sets[1], model->frames[i]);
    }
    if (!has_focus || has_ignore) {
        return text;
    }
    bool is_open = sets[4] == NULL; /* show_from was met */
    size_t length = 0;
    int last_location = -1, location = -1;
    for (int i = 0; i < model->depth; i++) {
        char letter = model->frames[i];
        location += !model->joins[i];
        if (is_in(sets[2], letter) || (sets[3] != NULL && !is_in(sets[3], letter))) {
            continue;
        }
        is_open |= is_in(sets[4], letter);
        if (is_open) {
            if (length > 0) {
                text[length++] = location == last_location ? '+' : ';';
            }
            text[length++] = letter;
            last_location = location;
        }
    }
    text[length] = '\0';
    return text;
}

static const char *model_stack(const struct model *model) {
    static char text[64];
    size_t length = 0;
    for (int i = 0; i < model->depth; i++) {
        if (i > 0) {
            text[length++] = model->joins[i] ? '+' : ';';
        }
        text[length++] = model->frames[i];
    }
    text[length] = '\0';
    return text;
}

static void compare_with_model(struct random *random) {
    struct model models[MODEL_STACKS];
    struct profile *profile = make_profile();
    for (int i = 0; i < MODEL_STACKS; i++) {
        models[i] = (struct model){.depth = 1 + (int)random_below(random, MODEL_DEPTH)};
        for (int j = 0; j < models[i].depth; j++) {
            models[i].frames[j] = (char)('p' + random_below(random, LETTERS));
            models[i].joins[j] = j > 0 && random_below(random, 3) == 0;
        }
        make_sample(profile, model_stack(&models[i]), (int64_t[]){0, 0, 1, i + 1});
    }
    char letters[5][4] = {{0}}, expressions[5][8];
    const char *sets[5] = {0}, *texts[5] = {0};
    for (int i = 0; i < 5; i++) {
        if (random_below(random, 2) == 0) {
            letters[i][0] = (char)('p' + random_below(random, LETTERS));
            letters[i][1] = (char)('p' + random_below(random, LETTERS));
            sets[i] = letters[i];
            snprintf(expressions[i], sizeof expressions[i], "^[%.2s]$", letters[i]);
            texts[i] = expressions[i];
        }
    }
    struct profile *selected = select_apply(profile, &(struct select){.focus = texts[0],
                                                                      .ignore = texts[1],
                                                                      .hide = texts[2],
                                                                      .show = texts[3],
                                                                      .show_from = texts[4]});
    uint32_t next = 0;
    for (int i = 0; i < MODEL_STACKS; i++) {
        const char *expected = model_select(&models[i], sets);
        if (expected[0] != '\0') {
            check(next < selected->sample_count);
            check_str(made_stack_text(selected, next), expected);
            check_eq(profile_value(selected, next, 3), i + 1);
            next++;
        }
    }
    check_eq(next, selected->sample_count);
    profile_free(selected);
    profile_free(profile);
}

TEST(selection_is_that_of_a_model_on_text) {
    struct random random = random_start(6, 1);
    for (int round = 0; round < 2000; round++) {
        compare_with_model(&random);
    }
}
