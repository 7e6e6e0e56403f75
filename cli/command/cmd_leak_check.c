/* SPDX-License-Identifier: MIT
 *
 * cmd_leak_check.c - `tally leak-check`: what a process has lost, or what its recording says about that.
 *
 * A running process searches itself and writes what it finds to a descriptor from here; names,
 * rules and the report are made here.  What grows although it can be reached shows in snapshots:
 * those of the recording that `tally run` makes, or two that --watch takes.
 */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "args/args.h"
#include "common/cli.h"
#include "common/glyph.h"
#include "common/pager.h"
#include "live/live_dump.h"
#include "live/request.h"
#include "live/target.h"
#include "names/symbolize.h"
#include "read/read_worker.h"
#include "select/argument.h"
#include "select/select.h"
#include "view/growth.h"
#include "view/leak_sites.h"

enum { ROWS_SHOWN = 10, GROWTH_SHOWN = 3, RULES_MOST = 1 << 20, PATH_BYTES = 8192 };

static struct {
    uint64_t least_bytes, max_pause_ns, watch_ns, rows;
    const char *suppressions;
    bool prints_rules, with_reachable, is_quick;
} options = {.max_pause_ns = 1000000000, .rows = ROWS_SHOWN};

/* What the report shows. */
struct finding {
    struct read_leaks *leaks;
    struct growth growth[GROWTH_MOST];
    unsigned growth_count;
    bool knows_growth; /* there were moments to compare */
    struct leak_matches matches;
};

/* ---------------------------------------------------------------- the picture */

static const char *blocks(int64_t count) {
    return ring_text("%s block%s", grouped_text(count), count == 1 ? "" : "s");
}

/* "DEFINITE          64.0 MiB in 1,024 blocks   " */
static void print_sum(const char *name, const struct read_leak_sum *sum) {
    printf("%-16s %10s in %-16s", name, size_text(sum->requested), blocks(sum->objects));
}

static int64_t all_bytes(const struct leak_site *site) {
    return site->bytes + site->below_bytes;
}

static int64_t all_objects(const struct leak_site *site) {
    return site->objects + site->below_objects;
}

static bool is_shown(const struct leak_site *site, uint32_t kind) {
    return site->kind == kind && all_objects(site) > 0 &&
           all_bytes(site) >= (int64_t)options.least_bytes;
}

static uint32_t count_shown(const struct leak_sites *sites, uint32_t kind) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < sites->count; i++) {
        count += is_shown(&sites->rows[i], kind);
    }
    return count;
}

static const char *path_of(const struct leak_site *site) {
    return site->place[0] != '\0' ? site->path
           : site->objects > 0    ? "without a recorded stack"
                                  : "below what is not reported";
}

static uint64_t rows_most(void) {
    return options.rows == 0 ? UINT64_MAX : options.rows;
}

/* "  62.5 KiB and 12.5 KiB below, in 128 blocks: lose_pair (lose.c:13)" */
static void print_site(const struct leak_site *site, const char *about) {
    const char *below =
        site->below_objects > 0 ? ring_text(" and %s below,", size_text(site->below_bytes)) : "";
    printf("  %s%s%s in %s: %s\n", about, size_text(site->bytes), below, blocks(all_objects(site)),
           path_of(site));
}

/* Places that have no line: there are too many, or they lost too little. */
static void print_rest(const struct leak_site *rest, uint32_t more) {
    if (more > 0) {
        printf("  and %s more (-n 0 shows all)", grouped_text(more));
    } else {
        printf("  less than %s each", size_text((int64_t)options.least_bytes));
    }
    printf(": %s in %s\n", size_text(all_bytes(rest)), blocks(all_objects(rest)));
}

static void add_site(struct leak_site *sum, const struct leak_site *site) {
    sum->objects += site->objects;
    sum->bytes += site->bytes;
    sum->below_objects += site->below_objects;
    sum->below_bytes += site->below_bytes;
}

/* More places than one, and what they leave. */
static void print_places(const struct read_leaks *leaks, const struct leak_sites *sites,
                         uint32_t kind, uint32_t count) {
    struct leak_site many = {0}, small = {0};
    uint32_t shown = 0;
    for (uint32_t i = 0; i < sites->count; i++) {
        const struct leak_site *site = &sites->rows[i];
        if (is_shown(site, kind) && shown < rows_most()) {
            print_site(site, leaks->rate > 1 ? "about " : "");
            shown++;
        } else if (site->kind == kind) {
            add_site(is_shown(site, kind) ? &many : &small, site);
        }
    }
    if (shown < count) {
        print_rest(&many, count - shown);
    }
    if (all_objects(&small) > 0) {
        print_rest(&small, 0);
    }
}

/* One place beside the sum, more of them below it. */
static void print_sites(const struct read_leaks *leaks, const struct leak_sites *sites,
                        uint32_t kind) {
    uint32_t count = count_shown(sites, kind), all = 0;
    const struct leak_site *first = NULL;
    for (uint32_t i = 0; i < sites->count; i++) {
        bool is_one = sites->rows[i].kind == kind && all_objects(&sites->rows[i]) > 0;
        first = is_one && first == NULL ? &sites->rows[i] : first;
        all += is_one;
    }
    if (count == 0) {
        printf("less than %s in each place\n", size_text((int64_t)options.least_bytes));
    } else if (all == 1) {
        puts(path_of(first));
    } else {
        printf("%s place%s:\n", grouped_text(count), count == 1 ? "" : "s");
        print_places(leaks, sites, kind, count);
    }
}

static void print_head(const struct read_leaks *leaks) {
    printf("searched %s of heap and %s of roots, %s thread%s%spaused %s\n", size_text(leaks->heap),
           size_text(leaks->roots), grouped_text(leaks->threads), leaks->threads == 1 ? "" : "s",
           glyph(GLYPH_DOT), duration_text((uint64_t)leaks->pause_ns));
    if (leaks->unanswered > 0) {
        printf("%s of the threads did not answer: their stacks were searched whole\n",
               grouped_text(leaks->unanswered));
    }
    if (leaks->why[0] != '\0') {
        puts(safe_text(leaks->why));
    }
}

static void print_growth(const struct finding *finding) {
    for (unsigned i = 0; i < finding->growth_count && i < GROWTH_SHOWN; i++) {
        const struct growth *one = &finding->growth[i];
        printf("%s  growing: %s (+%s/h, now %s)\n", i == 0 ? "" : "                 ", one->place,
               size_text((int64_t)one->per_hour), size_text(one->bytes));
    }
    if (finding->growth_count == 0) {
        puts(finding->knows_growth ? "  nothing keeps growing" : "");
    }
}

static void print_matches(const struct finding *finding) {
    const struct leak_matches *matches = &finding->matches;
    for (unsigned i = 0; i < matches->count; i++) {
        printf("suppressed: %s (%s)\n", blocks(matches->rows[i].objects),
               safe_text(matches->rows[i].rule));
    }
    int64_t inside = finding->leaks->sums[READ_LEAK_SUPPRESSED].objects - matches->objects;
    if (inside > 0 && matches->count == 0) {
        printf("suppressed by the process itself: %s\n", blocks(inside));
    }
}

static void print_rules(const struct leak_sites *sites) {
    for (uint32_t i = 0; i < sites->count; i++) {
        const struct leak_site *site = &sites->rows[i];
        bool is_new = site->rule[0] != '\0';
        for (uint32_t before = 0; before < i; before++) {
            is_new &= strcmp(site->rule, sites->rows[before].rule) != 0;
        }
        if (is_new && is_shown(site, READ_LEAK_DEFINITE)) {
            puts(site->rule);
        }
    }
}

static void print_all(const struct finding *finding, const struct leak_sites *sites) {
    const struct read_leaks *leaks = finding->leaks;
    const struct read_leak_sum *sums = leaks->sums;
    print_head(leaks);
    if (sums[READ_LEAK_DEFINITE].objects > 0) {
        print_sum("DEFINITE", &sums[READ_LEAK_DEFINITE]);
        print_sites(leaks, sites, READ_LEAK_DEFINITE);
    }
    if (sums[READ_LEAK_INDIRECT].objects > 0) {
        print_sum("INDIRECT", &sums[READ_LEAK_INDIRECT]);
        puts("only lost ones lead to them");
    }
    if (sums[READ_LEAK_POSSIBLE].objects > 0) {
        print_sum("POSSIBLE", &sums[READ_LEAK_POSSIBLE]);
        if (options.with_reachable) {
            print_sites(leaks, sites, READ_LEAK_POSSIBLE);
        } else {
            puts("only pointers into their middle; --reachable lists them");
        }
    }
    if (sums[READ_LEAK_DEFINITE].objects == 0) {
        puts("NO LEAKS");
    }
    printf("%-16s %10s in %s, not leaks", "STILL REACHABLE",
           size_text(sums[READ_LEAK_REACHABLE].requested),
           blocks(sums[READ_LEAK_REACHABLE].objects));
    print_growth(finding);
    if (leaks->rounded > 0) {
        printf("sizes of %s without a recorded stack are rounded to size classes\n",
               blocks(leaks->rounded));
    }
    if (leaks->rate == 0 && sums[READ_LEAK_DEFINITE].objects > 0) {
        puts("no call stacks: the profiler was not on when these were allocated");
    }
    print_matches(finding);
}

/* What counts for the exit status. */
static bool is_finding(const struct read_leaks *leaks, const struct leak_sites *sites) {
    return leaks->sums[READ_LEAK_DEFINITE].objects > 0 &&
           (options.least_bytes == 0 || count_shown(sites, READ_LEAK_DEFINITE) > 0);
}

/* ---------------------------------------------------------------- rules */

/* NULL after a sentence. */
static char *read_rules(const char *path) {
    char *text = must_alloc(RULES_MOST + 1);
    FILE *file = fopen(path, "re");
    size_t length = file != NULL ? fread(text, 1, RULES_MOST + 1, file) : 0;
    if (file == NULL || ferror(file) || length > RULES_MOST) {
        complain(EXIT_BAD_INPUT, "--suppressions: cannot read %s: %s", safe_text(path),
                 length > RULES_MOST ? "it is larger than 1 MiB" : strerror(errno));
        free(text);
        text = NULL;
    } else {
        text[length] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

static enum exit_code tell(struct finding *finding) {
    struct read_leaks *leaks = finding->leaks;
    struct select select = {.metric = "leak_space"};
    struct leak_sites sites = {0};
    if (options.suppressions != NULL) {
        char *rules = read_rules(options.suppressions);
        if (rules == NULL) {
            return EXIT_BAD_INPUT;
        }
        leak_sites_suppress(leaks, rules, &finding->matches);
        free(rules);
    }
    struct profile *visible = select_apply(leaks->profile, &select);
    if (visible == NULL) {
        return EXIT_OWN_FAILURE;
    }
    leak_sites_collect(&sites, visible, glyph(GLYPH_CALLER));
    finding->growth_count = leak_sites_leave(&sites, finding->growth, finding->growth_count);
    bool is_found = is_finding(leaks, &sites);
    if (options.prints_rules) {
        print_rules(&sites);
    } else {
        print_all(finding, &sites);
    }
    leak_sites_free(&sites);
    profile_free(visible);
    return is_found ? EXIT_FOUND : EXIT_DONE;
}

/* ---------------------------------------------------------------- a process */

/* A process can send what it likes. */
static struct read_leaks *read_answer(int fd, char why[READ_WHY_BYTES]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct read_run *run = read_confined(path, "leaks", why);
    if (run == NULL) {
        return NULL;
    }
    struct read_leaks *leaks = run->leaks;
    run->leaks = NULL; /* they no longer belong to the run */
    read_run_free(run);
    return leaks;
}

static enum exit_code ask(const struct target *target, struct read_leaks **leaks) {
    char why[READ_WHY_BYTES] = "it is empty";
    struct wire_writer request;
    struct reply reply;
    int fd = memfd_create("tally-leaks", MFD_CLOEXEC);
    if (fd < 0) {
        return complain(EXIT_OWN_FAILURE, "no place for the output: %s", strerror(errno));
    }
    uint64_t pause_ms = options.max_pause_ns / 1000000;
    wire_begin(&request, "leak-check");
    wire_add_number(&request, "max_pause_ms", pause_ms > 0 ? pause_ms : 1);
    wire_add_number(&request, "quick", options.is_quick);
    enum exit_code code =
        request_send(target, &request, fd, UINT64_C(1000000000) * WIRE_LEAK_CHECK_S, &reply);
    *leaks = code == EXIT_DONE ? read_answer(fd, why) : NULL;
    close(fd);
    if (code == EXIT_DONE && *leaks == NULL) {
        code = complain(EXIT_BAD_INPUT, "the answer of process %ld is not readable: %s",
                        target->pid, safe_text(why));
    }
    return code;
}

/* The value of a variable in the environment that a process began with; NULL.  In a static buffer. */
static const char *find_variable(long pid, const char *name) {
    static char text[1 << 16];
    size_t length = strlen(name);
    FILE *file = fopen(target_proc_path(pid, "environ"), "re");
    size_t got = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    text[got] = '\0';
    for (char *at = text; at < text + got; at += strlen(at) + 1) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            return at + length + 1;
        }
    }
    return NULL;
}

/* Where the recording of a process is: what the key run_file says, seen through the root of the process. */
static bool find_recording(const struct target *target, char path[PATH_BYTES]) {
    static const char key[] = "run_file:";
    const char *conf = find_variable(target->pid, "TALLY_CONF");
    const char *from = NULL;
    for (const char *at = conf; at != NULL && (at = strstr(at, key)) != NULL; at++) {
        from = at + sizeof key - 1; /* The last one wins. */
    }
    if (from == NULL || *from != '/') {
        return false;
    }
    int at = snprintf(path, PATH_BYTES, "%s", target_proc_path(target->pid, "root"));
    for (; *from != '\0' && *from != ',' && at < PATH_BYTES - 64; from++) {
        if (from[0] == '%' && from[1] == 'p') {
            at += snprintf(path + at, (size_t)(PATH_BYTES - at), "%ld", target->own_pid);
            from++;
        } else {
            from += from[0] == '%' && from[1] == '%';
            path[at++] = *from;
        }
    }
    snprintf(path + at, (size_t)(PATH_BYTES - at), ".part");
    return access(path, R_OK) == 0;
}

static void look_at_recording(const struct target *target, struct finding *finding) {
    char path[PATH_BYTES], why[READ_WHY_BYTES];
    if (!find_recording(target, path)) {
        return;
    }
    struct read_run *run = read_confined(path, NULL, why);
    if (run != NULL && run->pid == (uint64_t)target->own_pid) {
        finding->knows_growth = run->moment_count >= 3;
        finding->growth_count = growth_of_run(run, finding->growth);
    }
    read_run_free(run);
}

/* One moment of a process that nobody records. */
static enum exit_code take_moment(const struct target *target, struct growth_moment *moment) {
    struct profile *profile = NULL;
    struct symbolize_result names;
    struct select select = {.metric = "inuse_space"};
    moment->t_ns = cli_now_ns();
    enum exit_code code = live_dump_take(target, LIVE_HEAP, &profile, &names);
    moment->profile = code == EXIT_DONE ? select_apply(profile, &select) : NULL;
    profile_free(profile);
    return code == EXIT_DONE && moment->profile == NULL ? EXIT_OWN_FAILURE : code;
}

static enum exit_code watch(const struct target *target, struct finding *finding) {
    enum { LOOKS = 4 };
    struct growth_moment moments[LOOKS];
    unsigned count = 0;
    enum exit_code code = EXIT_DONE;
    while (count < LOOKS && code == EXIT_DONE) {
        if (count > 0) {
            cli_wait_until(cli_now_ns() + options.watch_ns / (LOOKS - 1));
        }
        code = take_moment(target, &moments[count]);
        count += code == EXIT_DONE;
    }
    if (code == EXIT_DONE) {
        finding->knows_growth = true;
        finding->growth_count = growth_find(moments, count, finding->growth);
    }
    while (count > 0) {
        profile_free(moments[--count].profile);
    }
    return code;
}

static enum exit_code check_process(const struct target *target, struct finding *finding) {
    enum exit_code code = EXIT_DONE;
    if (options.watch_ns > 0) {
        code = watch(target, finding);
    } else {
        look_at_recording(target, finding);
    }
    code = code == EXIT_DONE ? ask(target, &finding->leaks) : code;
    if (code == EXIT_DONE) {
        struct symbolize_options names = args_symbolize;
        names.pid = target->pid;
        symbolize(finding->leaks->profile, &names);
    }
    return code;
}

/* ---------------------------------------------------------------- a file */

static enum exit_code check_file(const char *word, struct finding *finding) {
    int status = EXIT_BAD_INPUT;
    struct read_choice choice = {0};
    struct read_run *run = read_argument_run(word, &choice, &status);
    if (run == NULL) {
        return (enum exit_code)status;
    }
    finding->leaks = run->leaks;
    run->leaks = NULL;
    if (finding->leaks == NULL) {
        read_run_free(run);
        return complain(EXIT_BAD_INPUT,
                        "%s: no leak check is recorded in it; tally run --leaks records one",
                        safe_text(word));
    }
    symbolize(finding->leaks->profile, &args_symbolize);
    finding->knows_growth = run->moment_count >= 3;
    finding->growth_count = growth_of_run(run, finding->growth);
    read_run_free(run);
    return EXIT_DONE;
}

/* ---------------------------------------------------------------- the command */

/* Is there a file of this name that is no program?  A program's name may also be a process's. */
static bool is_data(const char *path) {
    char first[4] = "", why[READ_WHY_BYTES];
    int fd = read_open(path, why);
    ssize_t got = fd >= 0 ? read(fd, first, sizeof first) : 0;
    if (fd >= 0) {
        close(fd);
    }
    return got > 0 && memcmp(first, "\177ELF", 4) != 0 && memcmp(first, "#!", 2) != 0;
}

/* A number or a socket is a process, whatever file has that name here. */
static bool is_file(const char *word) {
    bool is_socket = ends_with(word, ".sock");
    bool is_number = word[strspn(word, "0123456789")] == '\0';
    bool has_ending = strstr(word, ".tally") != NULL;
    return !is_socket && !is_number && (has_ending || strcmp(word, "-") == 0 || is_data(word));
}

static int run_leak_check(int count, char **words) {
    const char *word = words[count - 1];
    struct finding finding = {0};
    enum exit_code code;
    if (is_file(word)) {
        code = check_file(word, &finding);
    } else {
        struct target target;
        word = strncmp(word, "pid:", 4) == 0 ? word + 4 : word;
        code = target_open_to_ask(word, &target);
        if (code == EXIT_DONE) {
            code = check_process(&target, &finding);
            target_close(&target);
        }
    }
    if (code == EXIT_DONE) {
        code = tell(&finding);
    }
    read_leaks_free(finding.leaks);
    return code;
}

static const struct arg_option leak_options[] = {
    {"min", 0, ARG_SIZE, "SIZE", NULL, false, &options.least_bytes,
     "Ignore places that lost less than this: not shown, and no reason to fail"},
    {"suppressions", 0, ARG_TEXT, "FILE", NULL, false, &options.suppressions,
     "Leaks that are not to be reported, in the format of LeakSanitizer: leak:PATTERN"},
    {"print-suppressions", 0, ARG_SWITCH, NULL, NULL, false, &options.prints_rules,
     "Print only a line of such a file for each place"},
    {"reachable", 0, ARG_SWITCH, NULL, NULL, false, &options.with_reachable,
     "Also list possible leaks: memory that only pointers into its middle lead to"},
    {"max-pause", 0, ARG_DURATION, "DUR", NULL, false, &options.max_pause_ns,
     "Give up if the process would be paused for longer; 1s unless given"},
    {"quick", 0, ARG_SWITCH, NULL, NULL, false, &options.is_quick,
     "Do not tell definite and indirect leaks apart"},
    {"watch", 0, ARG_DURATION, "DUR", NULL, false, &options.watch_ns,
     "First watch the process for this long, to see what grows"},
    {"rows", 'n', ARG_NUMBER, "N", NULL, false, &options.rows,
     "At most N places; 10 unless given, 0 for all"},
    {0},
};

const struct command command_leak_check = {
    .name = "leak-check",
    .summary = "Find memory that a process has lost",
    .usage = "[OPTION...] TARGET|PROFILE",
    .text = "Looks for memory that the process has not freed and can no longer reach, and says "
            "where it was allocated; the process pauses for a moment and then continues. It must "
            "have been started by tally run or with TALLY_CONF=control:write. For a recording it "
            "shows what the check at the end found (tally run --leaks). Places whose reachable "
            "memory keeps growing are named as well.\n"
            "\n"
            "The exit status is 1 if there are definite leaks, otherwise 0.\n"
            "\n"
            "    tally leak-check server\n"
            "    tally leak-check --suppressions=known.supp --min=1K 4711\n"
            "    tally leak-check server.4711.tally\n",
    .options = (const struct arg_option *const[]){leak_options, args_symbolize_options, NULL},
    .words = {1, 1},
    .run = run_leak_check,
};
