/* SPDX-License-Identifier: MIT
 *
 * test_stats_print.c - the printed lines are the heap's numbers and add up as they claim; letters
 * leave out what they say; tables show the counters they are given.
 *
 * The kernel's files, the ctl tree, names and counters of arenas are replaced at link time where a
 * test says so (CMakeLists.txt), so that each can be hostile, missing or known.  JSON is judged by a
 * parser in integration/test_stats_json.sh.
 */
#include "control/control.h"

#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/os.h"
#include "control/snapshot.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "opt/opt.h"
#include "unit.h"

/* ---------------------------------------------------------------- what is replaced */

static const char *thp_file;          /* instead of the kernel's; "" cannot be read */
static const char *statm_file;        /* the same */
static bool no_memory;                /* the kernel has none */
static const char *hostile;           /* what every string of the ctl tree and every name is */
static uint64_t ctl_number;           /* what every number of the ctl tree is, if not 0 */
static struct arena_counts *counters; /* what arena 0 and all together have counted */

void *__real_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes);
void *__wrap_os_map(size_t bytes) {
    return no_memory ? NULL : __real_os_map(bytes);
}

int __real_os_read_file(const char *path, char *text, size_t capacity);
int __wrap_os_read_file(const char *path, char *text, size_t capacity);
int __wrap_os_read_file(const char *path, char *text, size_t capacity) {
    const char *replaced = strstr(path, "statm") != NULL ? statm_file : thp_file;
    if (replaced == NULL) {
        return __real_os_read_file(path, text, capacity);
    }
    if (*replaced == '\0') {
        return -EACCES;
    }
    return snprintf(text, capacity, "%s", replaced);
}

int __real_ctl_by_name(const char *name, void *old, size_t *length, void *new, size_t new_length);
int __wrap_ctl_by_name(const char *name, void *old, size_t *length, void *new, size_t new_length);
int __wrap_ctl_by_name(const char *name, void *old, size_t *length, void *new, size_t new_length) {
    if (hostile == NULL && ctl_number == 0) {
        return __real_ctl_by_name(name, old, length, new, new_length);
    }
    bool is_string = strcmp(name, "version") == 0 || strstr(name, ".dss") != NULL ||
                     strstr(name, "malloc_conf") != NULL;
    if (is_string) {
        *(const char **)old = hostile;
        return 0;
    }
    uint64_t number = *length == sizeof(bool) ? 1 : ctl_number;
    memcpy(old, &number, *length);
    return 0;
}

void __real_arena_get_name(unsigned arena, char name[ARENA_NAME_BYTES]);
void __wrap_arena_get_name(unsigned arena, char name[ARENA_NAME_BYTES]);
void __wrap_arena_get_name(unsigned arena, char name[ARENA_NAME_BYTES]) {
    if (hostile == NULL) {
        __real_arena_get_name(arena, name);
        return;
    }
    snprintf(name, ARENA_NAME_BYTES, "%s", hostile);
}

const struct arena_counts *__real_snapshot_arena(size_t arena);
const struct arena_counts *__wrap_snapshot_arena(size_t arena);
const struct arena_counts *__wrap_snapshot_arena(size_t arena) {
    if (counters == NULL) {
        return __real_snapshot_arena(arena);
    }
    return arena == 0 || arena == SNAPSHOT_ALL ? counters : NULL;
}

/* ---------------------------------------------------------------- reading the text */

static const char *printed_with(const char *letters) {
    struct capture capture = capture_begin();
    stats_print(log_write, NULL, letters);
    return capture_end(capture);
}

/* Without the parts that grow with the number of arenas. */
static const char *printed(void) {
    return printed_with("gmdax");
}

/* The number behind a name at the start of a line. */
static size_t number_of(const char *text, const char *name) {
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\n  %s ", name);
    const char *line = strstr(text, pattern);
    if (line == NULL) {
        test_say("    no line '", name, "' in\n", text, NULL);
        check(line != NULL);
    }
    return strtoull(line + strlen(pattern), NULL, 10);
}

/* The figures that scrapers look for. */
struct totals {
    size_t allocated, active, metadata, thp, edata, rtree, resident, mapped, retained;
};

static struct totals totals_line(const char *text) {
    struct totals t;
    const char *line = strstr(text, "\nAllocated: ");
    check(line != NULL);
    check_eq(
        sscanf(line,
               "\nAllocated: %zu, active: %zu, metadata: %zu (n_thp %zu, edata %zu, rtree %zu), "
               "resident: %zu, mapped: %zu, retained: %zu\n",
               &t.allocated, &t.active, &t.metadata, &t.thp, &t.edata, &t.rtree, &t.resident,
               &t.mapped, &t.retained),
        9);
    return t;
}

static void check_sums(const char *text) {
    size_t spans = number_of(text, "live") + number_of(text, "+ cached") +
                   number_of(text, "+ free in slabs") + number_of(text, "+ ends of large blocks");
    size_t kept = number_of(text, "+ free pages kept");
    check_eq(number_of(text, "= in spans"), spans);
    check_eq(spans, pages_totals().used);
    check_eq(number_of(text, "= resident at most"),
             spans + kept + number_of(text, "+ tally's own"));
    check_eq(spans + kept + number_of(text, "without memory"), pages_totals().mapped);
}

/* The summary and jemalloc's line say the same. */
static void check_agreement(const char *text) {
    struct totals t = totals_line(text);
    check_eq(t.allocated, number_of(text, "live"));
    check_eq(t.active, number_of(text, "= in spans"));
    check_eq(t.metadata, number_of(text, "+ tally's own"));
    check_eq(t.resident, number_of(text, "= resident at most"));
    check(t.allocated <= t.active && t.active < t.resident && t.active <= t.mapped);
}

/* Adds up the table of classes: size, live, cached, slabs. */
static size_t live_in_table(const char *text) {
    const char *line = strstr(text, "    size         live     cached    slabs\n");
    check(line != NULL);
    size_t sum = 0;
    size_t size, live, cached, slabs;
    while ((line = strchr(line, '\n')) != NULL &&
           sscanf(++line, "%zu %zu %zu %zu", &size, &live, &cached, &slabs) == 4) {
        check(size_class_of(size) < CLASS_COUNT && size_classes[size_class_of(size)].size == size);
        check(slabs > 0);
        sum += size * live;
    }
    return sum;
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* ---------------------------------------------------------------- the summary */

TEST(empty_heap_prints_zeros) {
    start_heap();
    heap_trim();
    const char *text = printed();
    const char *begin = "___ Begin jemalloc statistics ___\ntally: where the heap's bytes are\n";
    check(strncmp(text, begin, strlen(begin)) == 0);
    check(ends_with(text, "\n--- End jemalloc statistics ---\n"));
    check_eq(number_of(text, "live"), 0);
    check_eq(number_of(text, "= in spans"), 0);
    check(number_of(text, "+ tally's own") > 0);
    check_eq(live_in_table(text), 0);
    check_sums(text);
    check_agreement(text);
}

TEST(lines_add_up_whatever_the_heap_holds) {
    start_heap();
    static void *blocks[3000];
    struct random random = random_start(30, 0);
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 3000; i++) {
            void **slot = &blocks[random_below(&random, 3000)];
            tally_free(*slot);
            *slot = tally_malloc(random_below(&random, random_below(&random, 20) ? 3000 : 200000));
        }
        size_t live = 0, small = 0;
        for (unsigned i = 0; i < 3000; i++) {
            size_t size = tally_usable_size(blocks[i]);
            live += size;
            small += size <= SMALL_MAX ? size : 0;
        }
        const char *text = printed();
        check_sums(text);
        check_agreement(text);
        check_eq(number_of(text, "live"), live);
        check_eq(live_in_table(text), small);
    }
}

TEST(rss_of_the_process_is_what_the_kernel_says) {
    start_heap();
    statm_file = "100 23 7 1 0 5 0\n";
    check_eq(number_of(printed(), "RSS of the process"), 23 * os_facts.page_bytes);
    statm_file = "";
    check(strstr(printed(), "RSS") == NULL);
    statm_file = "100";
    check(strstr(printed(), "RSS") == NULL);
    statm_file = "100 x 3\n";
    check(strstr(printed(), "RSS") == NULL);
    statm_file = NULL;
    check(number_of(printed(), "RSS of the process") > 0);
}

/* ---------------------------------------------------------------- letters */

/* What each letter leaves out of text and of JSON. */
static const struct {
    char letter;
    const char *text;
    const char *json;
} leaves_out[] = {
    {'g', "\nRun-time option settings\n", "\"opt\":{"},
    {'g', "\nQuantum size: ", "\"arenas\":{"},
    {'m', "\nMerged arenas stats:\n", "\"merged\":{"},
    {'a', "\narenas[0]:\n", "\"0\":{"},
    {'a', "\narenas[1]:\n", "\"1\":{"},
    {'b', "\nbins: ", "\"bins\":["},
    {'b', "    size         live     cached    slabs\n", "\"curregs\":"},
    {'l', "\nlarge:                  size", "\"lextents\":["},
    {'x', "\nextents_retained  ", "\"mutexes\":{"},
    {'x', "n_lock_ops", "\"num_ops\":"},
    {'e', "\nextents: ", "\"extents\":["},
    {'h', "\nHPA shard stats:\n", "\"sec_bytes\":"},
};

TEST(letters_leave_out_what_they_say_and_nothing_else) {
    start_heap_with("narenas:2");
    for (const char *letter = "?gmdablxeh"; *letter != '\0'; letter++) {
        char letters[] = {'J', *letter, '\0'};
        for (size_t i = 0; i < sizeof leaves_out / sizeof leaves_out[0]; i++) {
            bool left_out = leaves_out[i].letter == *letter;
            if ((strstr(printed_with(letters), leaves_out[i].json) == NULL) != left_out ||
                (strstr(printed_with(letters + 1), leaves_out[i].text) == NULL) != left_out) {
                test_say("    with ", letters, ": ", leaves_out[i].json, "\n", NULL);
                check(false);
            }
        }
    }
}

/* A share is printed as it is written, in text and in JSON. */
TEST(shares_are_printed_in_digits) {
    static const struct {
        const char *conf, *line;
    } shares[] = {
        {"hpa_dirty_mult:1", "opt.hpa_dirty_mult: \"1.0\"\n"},
        {"hpa_dirty_mult:0", "opt.hpa_dirty_mult: \"0.0\"\n"},
        {"hpa_dirty_mult:0.0625", "opt.hpa_dirty_mult: \"0.0625\"\n"},
        {"hpa_dirty_mult:0.00002", "opt.hpa_dirty_mult: \"0.00001525878906\"\n"},
        {"hpa_dirty_mult:65535.9", "opt.hpa_dirty_mult: \"65535.89999389648437\"\n"},
        {"hpa_dirty_mult:-1", "opt.hpa_dirty_mult: \"-1\"\n"},
    };
    start_heap_with("");
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        opt_parse(shares[i].conf, "TEST_CONF");
        check(strstr(printed_with("mdablxeh"), shares[i].line) != NULL);
    }
}

TEST(sections_stand_in_jemallocs_order) {
    start_heap_with("narenas:2");
    static const char *const order[] = {
        "___ Begin jemalloc statistics ___\n",
        "tally: where",
        "\nVersion: \"",
        "\nBuild-time option settings\n  config.",
        "\nSystem configuration\n  system.thp_mode: \"",
        "\nRun-time option settings\n  Global variable malloc_conf: \"",
        "\n  opt.narenas: ",
        "\nProfiling settings\n  prof.",
        "\nArenas: ",
        "\nQuantum size: ",
        "\nPage size: ",
        "\nHugepage size: ",
        "\nMaximum thread-cached size class: ",
        "\nNumber of bin size classes: ",
        "\nNumber of thread-cache bin size classes: ",
        "\nNumber of large size classes: ",
        "\nAllocated: ",
        "\nCount of realloc(non-null-ptr, 0) calls: ",
        "\nBackground threads: ",
        " n_lock_ops   (#/sec) ",
        "\nbackground_thread ",
        "\nprof_stats ",
        "\nMerged arenas stats:\nassigned threads: ",
        "\nuptime: ",
        "\ndss allocation precedence: \"N/A\"\n",
        "decaying: ",
        "\n   dirty: ",
        "\n   muzzy: ",
        " allocated ",
        "\nsmall: ",
        "\nlarge: ",
        "\ntotal: ",
        "\nactive: ",
        "\nmapped: ",
        "\nextent_avail: ",
        "\nhpa_sec ",
        "\nbins: ",
        "\nlarge: ",
        "\nextents: ",
        "\nHPA shard stats:\n",
        "\narenas[0]:\nname: \"",
        "\nassigned threads: ",
        "\narenas[1]:\nname: \"",
        "\n--- End jemalloc statistics ---\n",
    };
    const char *at = printed_with("");
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        const char *found = strstr(at, order[i]);
        if (found == NULL) {
            test_say("    no '", order[i], "' behind\n", at, NULL);
            check(found != NULL);
        }
        at = found;
    }
    check_str(at, "\n--- End jemalloc statistics ---\n");
}

TEST(one_arena_is_not_summed_up_unless_it_is_left_out) {
    start_heap_with("narenas:1");
    const char *text = printed_with("");
    check(strstr(text, "\narenas[0]:\n") != NULL);
    check(strstr(text, "\nMerged arenas stats:\n") == NULL);
    text = printed_with("a");
    check(strstr(text, "\narenas[0]:\n") == NULL);
    check(strstr(text, "\nMerged arenas stats:\n") != NULL);
    check(strstr(printed_with("am"), "arenas stats:") == NULL);
    check(strstr(printed_with("Jamd"), "\"stats.arenas\"") == NULL);
}

TEST(no_letters_are_as_good_as_an_empty_string) {
    start_heap_with("narenas:1");
    check(ends_with(printed_with(NULL), "\n--- End jemalloc statistics ---\n"));
    struct capture capture = capture_begin();
    stats_print(NULL, NULL, "gmdax"); /* and nobody to write is whoever hears messages */
    check(strstr(capture_end(capture), "\nAllocated: ") != NULL);
}

/* ---------------------------------------------------------------- tables */

/* The line that begins with these words, ended by NUL, in a static buffer. */
static char *line_of(const char *text, const char *begin) {
    static char line[2048];
    const char *found = strstr(text, begin);
    if (found == NULL) {
        test_say("    no '", begin, "' in\n", text, NULL);
        check(found != NULL);
    }
    found += strspn(found, "\n");
    snprintf(line, sizeof line, "%.*s", (int)strcspn(found, "\n"), found);
    return line;
}

/* The words of a line, one blank between each. */
static const char *words_of(char *line) {
    char *to = line;
    for (char *from = line; *from != '\0'; from++) {
        if (*from != ' ' || (to > line && to[-1] != ' ')) {
            *to++ = *from;
        }
    }
    *to = '\0';
    return line;
}

static void give_counters(uint64_t uptime) {
    static struct arena_counts c;
    c.nthreads = 3;
    c.uptime = uptime;
    c.dirty_decay_ms = 1000;
    c.muzzy_decay_ms = -1;
    c.pdirty = 5;
    c.dirty_npurge = 6;
    c.dirty_nmadvise = 7;
    c.dirty_purged = 8;
    c.pactive = 9;
    c.retained = 123456;
    c.small = (struct kind_counts){1000, 40, 30, 50, 4, 2};
    c.large = (struct kind_counts){2000, 5, 3, 5, 5, 1};
    c.bins[2] = (struct bin_counts){.nmalloc = 300,
                                    .ndalloc = 100,
                                    .nrequests = 1000,
                                    .nfills = 20,
                                    .nflushes = 10,
                                    .nslabs = 3,
                                    .nreslabs = 12,
                                    .curregs = 200,
                                    .curslabs = 2,
                                    .nonfull_slabs = 1,
                                    .mutex = {11, 22, 33, 44, 55, 66, 77}};
    c.bins[5] = (struct bin_counts){.nslabs = 1};
    c.lextents[1] = (struct lextent_counts){7, 4, 9, 3};
    c.extents[0] = (struct extent_counts){1, 16384, 2, 32768, 3, 49152};
    c.mutexes[ARENA_MUTEX_BASE].max_num_thds = 12345;
    counters = &c;
}

TEST(tables_show_the_counters_and_rates_by_whole_seconds) {
    start_heap_with("narenas:1");
    give_counters(10999999999);
    const char *text = printed_with("gm");
    check_str(words_of(line_of(text, "\n   dirty:")), "dirty: 1000 5 6 7 8");
    check_str(words_of(line_of(text, "\n   muzzy:")), "muzzy: N/A 0 0 0 0");
    check_str(words_of(line_of(text, "\nsmall:")), "small: 1000 40 4 30 3 50 5 4 0 2 0");
    check_str(words_of(line_of(text, "\ntotal:")), "total: 3000 45 4 33 3 55 5 9 0 3 0");
    check_str(words_of(line_of(text, "\nretained:")), "retained: 123456");
    check_eq(strtoul(line_of(text, "\nactive:") + 7, NULL, 10), 9 * os_facts.page_bytes);
    check_str(words_of(line_of(text, "\nbase  ")), "base 0 0 0 0 0 0 0 0 0 0 0 12345");
    unsigned regs = size_classes[3].total;
    char expected[256];
    snprintf(expected, sizeof expected,
             "48 2 9600 300 30 100 10 1000 100 1 200 2 1 %u %zu 0.%03u 20 2 10 1 3 12 1 11 1 22 2 "
             "33 3 44 4 55 5 66 77",
             regs, (size_classes[3].slab_mask + 1) / os_facts.page_bytes, 200 * 1000 / (2 * regs));
    check_str(words_of(line_of(text, "\n                  48 ")), expected);
    snprintf(expected, sizeof expected, "%zu %u %zu 7 0 4 0 9 0 3", counts_lextent_size(1),
             BIN_CLASSES + 1, 3 * counts_lextent_size(1));
    check(strstr(words_of((char *)text), expected) != NULL);
    snprintf(expected, sizeof expected, "\n %zu 0 1 16384 2 32768 3 49152 6 98304\n",
             counts_extent_size(0));
    check(strstr(text, expected) != NULL);
}

TEST(titles_stand_over_their_columns) {
    start_heap_with("narenas:1");
    give_counters(1);
    const char *text = printed_with("gm");
    check_str(words_of(line_of(text, "\nbins:")),
              "bins: size ind allocated nmalloc (#/sec) ndalloc (#/sec) nrequests (#/sec) nshards "
              "curregs curslabs nonfull_slabs regs pgs util nfills (#/sec) nflushes (#/sec) nslabs "
              "nreslabs (#/sec) n_lock_ops (#/sec) n_waiting (#/sec) n_spin_acq (#/sec) "
              "n_owner_switch (#/sec) total_wait_ns (#/sec) max_wait_ns max_n_thds");
    check_str(words_of(line_of(text, "\nlarge:                  size")),
              "large: size ind allocated nmalloc (#/sec) ndalloc (#/sec) nrequests (#/sec) "
              "curlextents");
    check_str(words_of(line_of(text, "\nextents:")),
              "extents: size ind ndirty dirty nmuzzy muzzy nretained retained ntotal total");
    check_str(words_of(line_of(text, "\ndecaying:")),
              "decaying: time npages sweeps madvises purged");
    check_str(words_of(line_of(text, "\n                        allocated")),
              "allocated nmalloc (#/sec) ndalloc (#/sec) nrequests (#/sec) nfill (#/sec) nflush "
              "(#/sec)");
    check_eq(strlen(line_of(text, "\nbins:")), strlen(line_of(text, "\n                  48 ")));
}

TEST(less_than_a_second_counts_as_one) {
    start_heap_with("narenas:1");
    give_counters(999999999);
    check_str(words_of(line_of(printed_with("gm"), "\nlarge:   ")),
              "large: 2000 5 5 3 3 5 5 5 5 1 1");
}

TEST(runs_of_zero_rows_become_one_line) {
    start_heap_with("narenas:1");
    give_counters(1);
    const char *bins = strstr(printed_with("gmx"), "\nbins:");
    char *line = strchr(bins + 1, '\n');
    static const char *const expected[] = {"---", "48 2 ", "---", "96 5 ", "---", "large: "};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        char *next = strchr(line + 1, '\n');
        char words[1024];
        snprintf(words, sizeof words, "%.*s", (int)(next - line - 1), line + 1);
        check(strncmp(words_of(words), expected[i], strlen(expected[i])) == 0);
        line = next;
    }
}

/* ---------------------------------------------------------------- what others supply */

TEST(values_of_the_ctl_tree_are_printed) {
    start_heap_with("narenas:1");
    ctl_number = 7;
    const char *text = printed_with("a");
    check(strstr(text, "\nArenas: 7\n") != NULL);
    check(strstr(text, "\nCount of realloc(non-null-ptr, 0) calls: 7\n") != NULL);
    check(strstr(text, "\nBackground threads: 7, num_runs: 7, run_interval: 7 ns\n") != NULL);
    check(strstr(text, " (arenas.dirty_decay_ms: 7)\n") != NULL);
    check(strstr(text, "\n  prof.lg_sample: 7\n") != NULL);
    text = printed_with("Ja");
    check(strstr(text, "\"narenas\":7,") != NULL);
    check(strstr(text, "\"zero_reallocs\":7,") != NULL);
}

TEST(hostile_strings_stay_inside_their_quotes) {
    start_heap_with("narenas:2");
    hostile = "\"},\n___ Begin\\\x01\xff";
    const char *escaped = "\"\\\"},\\u000a___ Begin\\\\\\u0001\\ufffd\"";
    const char *text = printed_with("Jx");
    char member[128];
    static const char *const keys[] = {
        "version", "malloc_conf", "global_var", "global_var_2_conf_harder", "name", "dss"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        snprintf(member, sizeof member, "\"%s\":%s", keys[i], escaped);
        check(strstr(text, member) != NULL);
    }
    check_eq(count_lines(text), 1);
    text = printed_with("x");
    snprintf(member, sizeof member, "\nVersion: %s\n", escaped);
    check(strstr(text, member) != NULL);
    snprintf(member, sizeof member, "\nname: %s\n", escaped);
    check(strstr(text, member) != NULL);
    check(strstr(text + 1, "\n___ Begin") == NULL);
}

TEST(setting_of_huge_pages_is_the_word_in_brackets) {
    static const struct {
        const char *file, *mode;
    } cases[] = {
        {"always [madvise] never\n", "madvise"},
        {"[always] madvise never\n", "always"},
        {"always madvise [never]\n", "never"},
        {"always [madvised] never\n", "not supported"},
        {"always madvise never\n", "not supported"},
        {"[", "not supported"},
        {"", "not supported"},
    };
    start_heap_with("narenas:1");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char expected[64];
        thp_file = cases[i].file;
        snprintf(expected, sizeof expected, "\n  system.thp_mode: \"%s\"\n", cases[i].mode);
        check(strstr(printed_with("a"), expected) != NULL);
        snprintf(expected, sizeof expected, "\"system\":{\"thp_mode\":\"%s\"}", cases[i].mode);
        check(strstr(printed_with("Ja"), expected) != NULL);
    }
}

/* ---------------------------------------------------------------- circumstances */

struct gathered {
    char text[1 << 18];
    size_t length;
    unsigned nested;
};

static void allocate_and_gather(void *opaque, const char *text) {
    struct gathered *all = opaque;
    size_t length = strlen(text);
    check(length > 0 && length <= 65536 && all->length + length < sizeof all->text);
    char *copy = tally_malloc(length + 1);
    memcpy(copy, text, length + 1);
    memcpy(all->text + all->length, copy, length + 1);
    tally_free(copy);
    all->length += length;
    if (all->nested > 0) {
        static struct gathered inner[4];
        struct gathered *one = &inner[--all->nested];
        one->length = 0;
        stats_print(allocate_and_gather, one, "Jmal");
        check(strncmp(one->text, "{\"jemalloc\":{", 13) == 0 && ends_with(one->text, "}}\n"));
    }
}

TEST(program_may_allocate_and_print_again_while_it_is_called) {
    static struct gathered all = {.nested = 3};
    start_heap_with("narenas:1");
    thread_mark_inside(true); /* as the exported functions do */
    stats_print(allocate_and_gather, &all, "");
    thread_mark_inside(false);
    check_eq(all.nested, 0);
    check_eq(heap_totals().reentered, 0);
    check(strncmp(all.text, "___ Begin", 9) == 0);
    check(ends_with(all.text, "\n--- End jemalloc statistics ---\n"));
}

static void *print_many(void *unused) {
    (void)unused;
    struct gathered *all = malloc(sizeof *all);
    for (unsigned i = 0; i < 50; i++) {
        all->length = all->nested = 0;
        stats_print(allocate_and_gather, all, i % 2 ? "" : "J");
        check(ends_with(all->text, i % 2 ? "\n--- End jemalloc statistics ---\n" : "}}\n"));
        check_eq(count_lines(all->text) > 1, i % 2);
    }
    free(all);
    return NULL;
}

TEST(threads_that_print_at_once_do_not_mix) {
    start_heap_with("narenas:2");
    run_threads(4, print_many, NULL);
}

TEST(printing_needs_no_memory_of_its_own) {
    start_heap_with("narenas:2");
    no_memory = true; /* nothing was counted yet: there may be no arenas to show, or there may */
    check(strstr(printed_with(""), "\nAllocated: ") != NULL);
    check(ends_with(printed_with("J"), "}}\n"));
    no_memory = false;
    check(snapshot_refresh());
    no_memory = true;
    const char *text = printed_with("");
    check(strstr(text, "\narenas[1]:\n") != NULL);
    check(ends_with(text, "\n--- End jemalloc statistics ---\n"));
}

/* Pages of all mappings of this process. */
static unsigned long mapped_pages(void) {
    char text[128];
    check(__real_os_read_file("/proc/self/statm", text, sizeof text) > 0);
    return strtoul(text, NULL, 10);
}

TEST(printing_leaves_no_mapping_behind) {
    start_heap_with("narenas:2");
    printed_with("");
    unsigned long before = mapped_pages();
    for (unsigned i = 0; i < 20; i++) {
        printed_with(i % 2 ? "" : "J");
    }
    check_eq(mapped_pages(), before);
}

TEST(child_of_a_fork_prints) {
    start_heap_with("narenas:2");
    void *block = tally_malloc(1000);
    pid_t child = fork();
    if (child == 0) {
        pretend_fork();
        check(live_in_table(printed()) >= 1000);
        check(ends_with(printed_with(""), "\n--- End jemalloc statistics ---\n"));
        _exit(0);
    }
    int status;
    check_eq(waitpid(child, &status, 0), child);
    check_eq(status, 0);
    tally_free(block);
}
