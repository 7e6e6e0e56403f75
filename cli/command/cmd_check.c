/* SPDX-License-Identifier: MIT
 *
 * cmd_check.c - `tally check`: limits for a profile, for scripts and continuous integration.
 *
 * Every limit given becomes one verdict.  A limit that cannot be checked, because the profile does
 * not have the number, is an error and never a pass.
 *
 *      peak      the highest point of a recorded run; of other files, what they have in use
 *      leaks     what a search found (tally run --leaks), or what was never freed: in use at the end
 *      allocs    how many allocations there were
 *      growth    of the peak, over that of --baseline
 *      rss       the highest of the recorded series
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "args/args.h"
#include "common/cli.h"
#include "common/escape.h"
#include "names/symbolize.h"
#include "select/argument.h"
#include "select/site.h"
#include "view/view.h"

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_GITHUB, FORMAT_JUNIT };

/* Limits as they were typed; NULL: none. */
static struct {
    const char *peak, *leaks, *allocs, *growth, *rss, *baseline, *output;
    unsigned format;
} g;

static const struct arg_option check_options[] = {
    {"max-peak", 0, ARG_TEXT, "SIZE", NULL, false, &g.peak, "Most bytes in use at any time"},
    {"max-leaks", 0, ARG_TEXT, "SIZE|N", NULL, false, &g.leaks,
     "Most bytes never freed, such as 64K, or most blocks if it is a bare number"},
    {"max-allocs", 0, ARG_TEXT, "N", NULL, false, &g.allocs, "Most allocations"},
    {"max-growth", 0, ARG_TEXT, "PCT", NULL, false, &g.growth,
     "Most growth of the peak over that of --baseline, such as 5%"},
    {"max-rss", 0, ARG_TEXT, "SIZE", NULL, false, &g.rss,
     "Most memory of the whole process at any time"},
    {"baseline", 0, ARG_TEXT, "PROFILE", NULL, false, &g.baseline,
     "What --max-growth compares with"},
    {"format", 0, ARG_CHOICE, "FORMAT", "text|json|github|junit", false, &g.format,
     "Text for people, JSON for scripts, annotations of GitHub, or a JUnit file"},
    {"output", 'o', ARG_TEXT, "OUT", NULL, false, &g.output,
     "Write to this file, which must not exist, instead of the standard output"},
    {0}};

/* The site that most of a sum came from. */
struct place {
    char *name, *file; /* NULL: unknown */
    uint32_t line;
};

struct verdict {
    const char *name; /* "leaks" */
    bool is_ok;
    char text[160];   /* "95.9 MiB > 0" */
    char detail[160]; /* "0.62 -> 0.98 GiB"; "" where the site says it */
    double value, limit;
    const char *unit;
    struct place site;
};

/* What is checked, or compared with. */
struct subject {
    struct read_run *run;
    struct profile *profile; /* the moment that was meant; belongs to the run */
};

struct check {
    struct subject run, baseline;
    struct verdict verdicts[5]; /* one for each limit */
    size_t count, failures;
    int status; /* of the command when something cannot be checked */
};

/* Numbers of a run. */

/* The first of two types that the profile has; PROFILE_NONE. */
static uint32_t find_either(const struct profile *profile, const char *name, const char *other) {
    uint32_t type = profile_find_type(profile, name);
    return type != PROFILE_NONE ? type : profile_find_type(profile, other);
}

/* The type of the highest point: the recorded peak, or what is in use. */
static uint32_t peak_type(const struct profile *profile) {
    return find_either(profile, "peak_space", "inuse_space");
}

/* A recording without an end may lack what matters most, such as the growth that killed the program. */
static bool open_subject(const char *word, struct subject *subject, int *status) {
    struct read_choice choice = {0};
    subject->run = read_argument_run(word, &choice, status);
    if (subject->run == NULL) {
        return false;
    }
    if (!subject->run->has_ended && !choice.is_given) {
        *status = (int)complain(
            EXIT_BAD_INPUT,
            "%s has no end, so no limit can be checked: the program was killed or still "
            "runs; %s@end is its last snapshot",
            safe_text(word), safe_text(word));
        return false;
    }
    subject->profile = read_chosen(subject->run, &choice, word, status);
    return subject->profile != NULL;
}

/* The site that has most of a type. */
static struct place find_place(struct profile *profile, uint32_t type) {
    struct place place = {0};
    struct select select = {.metric = profile->types[type].name};
    symbolize(profile, &args_symbolize);
    struct profile *selected = select_apply(profile, &select);
    if (selected == NULL) {
        return place;
    }
    struct sites sites;
    sites_collect(&sites, selected, type, BY_LINES, NULL);
    if (sites.count > 0 && sites.rows[0].value > 0) {
        uint32_t location = sites.rows[0].location;
        const struct profile_location *at = &selected->locations[location];
        const char *name = select_frame_name(selected, location, 0, BY_FUNCTIONS);
        place.name = must_copy(name[0] != '\0' ? safe_text(name) : "(no name)");
        if (at->line_count > 0) {
            const struct profile_line *line = &selected->lines[at->lines];
            place.file = must_copy(safe_text(selected->functions[line->function].file));
            place.line = line->number;
        }
    }
    sites_free(&sites);
    profile_free(selected);
    return place;
}

/* Verdicts. */

static struct verdict *add_verdict(struct check *check, const char *name, double value,
                                   double limit, const char *unit) {
    struct verdict *verdict = &check->verdicts[check->count++];
    *verdict = (struct verdict){
        .name = name, .value = value, .limit = limit, .unit = unit, .is_ok = value <= limit};
    check->failures += !verdict->is_ok;
    return verdict;
}

static int64_t as_int(double value) {
    return value >= 9.2e18 ? INT64_MAX : value <= -9.2e18 ? INT64_MIN : (int64_t)value;
}

static const char *number_text(double value, const char *unit) {
    return value == 0                   ? "0"
           : strcmp(unit, "bytes") == 0 ? size_text(as_int(value))
                                        : grouped_text(as_int(value));
}

/* "95.9 MiB > 0"; to the byte where fewer digits would not show the difference. */
static void put_text(struct verdict *verdict) {
    const char *value = number_text(verdict->value, verdict->unit);
    const char *limit = number_text(verdict->limit, verdict->unit);
    const char *unit = strcmp(verdict->unit, "blocks") == 0 ? " blocks" : "";
    if (strcmp(value, limit) == 0 && !verdict->is_ok) {
        value = grouped_text(as_int(verdict->value));
        limit = grouped_text(as_int(verdict->limit));
        unit = strcmp(verdict->unit, "bytes") == 0 ? " B" : unit;
    }
    snprintf(verdict->text, sizeof verdict->text, "%s %s %s%s", value,
             verdict->is_ok ? "\u2264" : ">", limit, unit);
}

/* Says the verdict about the sum of a type and, if it is too much, where most of it came from. */
static bool tell(struct verdict *verdict, struct profile *profile, uint32_t type) {
    put_text(verdict);
    if (!verdict->is_ok) {
        verdict->site = find_place(profile, type);
    }
    return true;
}

static bool wants_size(const char *option, const char *text, double *limit) {
    uint64_t bytes;
    if (!parse_size(text, &bytes)) {
        return decline("--%s=%s is no size such as 64M", option, safe_text(text));
    }
    *limit = (double)bytes;
    return true;
}

static bool is_bare_number(const char *text) {
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

static bool wants_count(const char *option, const char *text, double *limit) {
    *limit = strtod(text, NULL);
    if (!is_bare_number(text)) {
        return decline("--%s=%s is no number", option, safe_text(text));
    }
    return true;
}

static bool wants_percent(const char *text, double *limit) {
    char *end;
    *limit = strtod(text, &end) / 100;
    bool is_good =
        end != text && isfinite(*limit) && *limit >= 0 && (*end == '\0' || strcmp(end, "%") == 0);
    if (!is_good) {
        complain(EXIT_USAGE, "--max-growth=%s is no percentage such as 5%%", safe_text(text));
    }
    return is_good;
}

/* The sentence for a limit whose number is missing. */
static bool cannot(struct check *check, const char *option, const char *what) {
    check->status = (int)complain(EXIT_BAD_INPUT, "--%s cannot be checked: the profile has no %s",
                                  option, what);
    return false;
}

static bool check_peak(struct check *check) {
    double limit = 0;
    if (!wants_size("max-peak", g.peak, &limit)) {
        return false;
    }
    struct profile *profile = check->run.profile;
    uint32_t type = peak_type(profile);
    if (type == PROFILE_NONE) {
        return cannot(check, "max-peak", "peak_space and no inuse_space");
    }
    return tell(add_verdict(check, "peak", (double)profile_total(profile, type), limit, "bytes"),
                profile, type);
}

/* What a search found, if there was one: the sum is exact, and possible leaks do not count. */
static double sum_of_leaks(const struct read_leaks *leaks, bool in_blocks) {
    const struct read_leak_sum *definite = &leaks->sums[READ_LEAK_DEFINITE];
    const struct read_leak_sum *indirect = &leaks->sums[READ_LEAK_INDIRECT];
    return in_blocks ? (double)(definite->objects + indirect->objects)
                     : (double)(definite->requested + indirect->requested);
}

static bool check_leaks(struct check *check) {
    const struct read_leaks *leaks = check->run.run->leaks;
    double limit = 0;
    bool in_blocks = is_bare_number(g.leaks) && strtod(g.leaks, NULL) > 0;
    if (in_blocks ? !wants_count("max-leaks", g.leaks, &limit)
                  : !wants_size("max-leaks", g.leaks, &limit)) {
        return false;
    }
    struct profile *profile = leaks != NULL ? leaks->profile : check->run.profile;
    const char *in_use = in_blocks ? "inuse_objects" : "inuse_space";
    uint32_t type = find_either(profile, in_blocks ? "leak_objects" : "leak_space", in_use);
    if (type == PROFILE_NONE) {
        return cannot(check, "max-leaks", in_use);
    }
    double value =
        leaks != NULL ? sum_of_leaks(leaks, in_blocks) : (double)profile_total(profile, type);
    return tell(add_verdict(check, "leaks", value, limit, in_blocks ? "blocks" : "bytes"), profile,
                type);
}

static bool check_allocs(struct check *check) {
    double limit = 0;
    if (!wants_count("max-allocs", g.allocs, &limit)) {
        return false;
    }
    struct profile *profile = check->run.profile;
    uint32_t type = profile_find_type(profile, "alloc_objects");
    if (type == PROFILE_NONE) {
        return cannot(check, "max-allocs", "alloc_objects");
    }
    return tell(add_verdict(check, "allocs", (double)profile_total(profile, type), limit, "count"),
                profile, type);
}

static bool check_growth(struct check *check) {
    double limit = 0;
    if (!wants_percent(g.growth, &limit)) {
        return false;
    }
    const struct profile *profile = check->run.profile, *base = check->baseline.profile;
    uint32_t type = peak_type(profile), base_type = peak_type(base);
    if (type == PROFILE_NONE || base_type == PROFILE_NONE) {
        return cannot(check, "max-growth", "peak_space and no inuse_space");
    }
    double after = (double)profile_total(profile, type),
           before = (double)profile_total(base, base_type);
    double growth = before > 0 ? after / before - 1 : after > 0 ? INFINITY : 0;
    struct verdict *verdict = add_verdict(check, "growth", growth, limit, "share");
    char percent[48] = "from nothing";
    if (isfinite(growth)) {
        snprintf(percent, sizeof percent, "%s%.1f %%", growth < 0 ? "\u2212" : "+",
                 100 * fabs(growth));
    }
    snprintf(verdict->text, sizeof verdict->text, "peak %s %s %g %%", percent,
             verdict->is_ok ? "\u2264" : ">", 100 * limit);
    snprintf(verdict->detail, sizeof verdict->detail, "%s \u2192 %s", size_text(as_int(before)),
             size_text(as_int(after)));
    return true;
}

static bool check_rss(struct check *check) {
    double limit = 0;
    if (!wants_size("max-rss", g.rss, &limit)) {
        return false;
    }
    if (check->run.run->point_count == 0) {
        return cannot(check, "max-rss", "series of statistics");
    }
    uint64_t most = 0;
    for (uint32_t i = 0; i < check->run.run->point_count; i++) {
        most = check->run.run->points[i].rss > most ? check->run.run->points[i].rss : most;
    }
    put_text(add_verdict(check, "rss", (double)most, limit, "bytes"));
    return true;
}

/* Formats.  Failures come first. */

static void print_text(const struct check *check, FILE *out) {
    struct view_grid grid = {.columns = "lll", .is_flush = true};
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < check->count; i++) {
            const struct verdict *verdict = &check->verdicts[i];
            if (verdict->is_ok != (pass == 1)) {
                continue;
            }
            char head[64], rest[9000];
            snprintf(head, sizeof head, "%-4s  %-10s", verdict->is_ok ? "ok" : "FAIL",
                     verdict->name);
            view_grid_put(&grid, head);
            view_grid_put(&grid, verdict->text);
            const struct place *site = &verdict->site;
            snprintf(rest, sizeof rest, "%s", verdict->detail);
            if (site->name != NULL && site->line != 0) {
                snprintf(rest, sizeof rest, "%.4000s %.4000s:%" PRIu32, site->name,
                         base_name(site->file), site->line);
            } else if (site->name != NULL) {
                snprintf(rest, sizeof rest, "%.4000s", site->name);
            }
            view_grid_put(&grid, rest);
        }
    }
    view_grid_print(&grid, out);
}

static void put_number(FILE *out, double value) {
    if (isfinite(value)) {
        fprintf(out, "%.15g", value);
    } else {
        fputs("null", out);
    }
}

static void print_json(const struct check *check, FILE *out) {
    fprintf(out, "{\"ok\": %s, \"checks\": [", check->failures == 0 ? "true" : "false");
    for (size_t i = 0; i < check->count; i++) {
        const struct verdict *verdict = &check->verdicts[i];
        fprintf(out, "%s\n  {\"name\": \"%s\", \"ok\": %s, \"value\": ", i > 0 ? "," : "",
                verdict->name, verdict->is_ok ? "true" : "false");
        put_number(out, verdict->value);
        fputs(", \"limit\": ", out);
        put_number(out, verdict->limit);
        fprintf(out, ", \"unit\": \"%s\", \"text\": ", verdict->unit);
        escape_json(out, verdict->text);
        if (verdict->site.name != NULL) {
            fputs(", \"function\": ", out);
            escape_json(out, verdict->site.name);
        }
        if (verdict->site.line != 0) {
            fputs(", \"file\": ", out);
            escape_json(out, verdict->site.file);
            fprintf(out, ", \"line\": %" PRIu32, verdict->site.line);
        }
        fputc('}', out);
    }
    fputs("\n]}\n", out);
}

/* Workflow commands end at the line; what would end a property early is percent-encoded. */
static void put_github(FILE *out, const char *text, bool is_property) {
    for (; *text != '\0'; text++) {
        bool is_special = strchr(is_property ? "%\r\n:," : "%\r\n", *text) != NULL;
        fprintf(out, is_special ? "%%%02X" : "%c", (unsigned char)*text);
    }
}

/* Annotations want paths as the repository has them: below the current folder. */
static void print_github(const struct check *check, FILE *out) {
    for (size_t i = 0; i < check->count; i++) {
        const struct verdict *verdict = &check->verdicts[i];
        fputs(verdict->is_ok ? "::notice " : "::error ", out);
        if (verdict->site.line != 0) {
            fputs("file=", out);
            put_github(out, path_from_here(verdict->site.file), true);
            fprintf(out, ",line=%" PRIu32 ",", verdict->site.line);
        }
        fprintf(out, "title=tally check %s::", verdict->name);
        put_github(out, verdict->text, false);
        if (verdict->site.name != NULL) {
            fputs(", most of it in ", out);
            put_github(out, verdict->site.name, false);
        } else if (verdict->detail[0] != '\0') {
            fputs(", ", out);
            put_github(out, verdict->detail, false);
        }
        fputc('\n', out);
    }
}

static void print_junit(const struct check *check, FILE *out) {
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<testsuites>\n<testsuite name=\"tally check\" tests=\"%zu\" failures=\"%zu\">\n",
            check->count, check->failures);
    for (size_t i = 0; i < check->count; i++) {
        const struct verdict *verdict = &check->verdicts[i];
        fprintf(out, "<testcase classname=\"tally\" name=\"%s\">", verdict->name);
        if (!verdict->is_ok) {
            fputs("<failure message=\"", out);
            escape_xml(out, verdict->text);
            fputs("\">", out);
            escape_xml(out, verdict->site.name != NULL ? verdict->site.name : verdict->detail);
            if (verdict->site.line != 0) {
                fputc(' ', out);
                escape_xml(out, verdict->site.file);
                fprintf(out, ":%" PRIu32, verdict->site.line);
            }
            fputs("</failure>", out);
        } else {
            fputs("<system-out>", out);
            escape_xml(out, verdict->text);
            fputs("</system-out>", out);
        }
        fputs("</testcase>\n", out);
    }
    fputs("</testsuite>\n</testsuites>\n", out);
}

static int print_verdicts(const struct check *check) {
    static void (*const printers[])(const struct check *, FILE *) = {print_text, print_json,
                                                                     print_github, print_junit};
    struct output output;
    if (!output_open(&output, g.output, false)) {
        return EXIT_OWN_FAILURE;
    }
    printers[g.format](check, output.file);
    return !output_close(&output) ? EXIT_OWN_FAILURE : check->failures > 0 ? EXIT_FOUND : EXIT_DONE;
}

static bool is_sensible(void) {
    if (g.peak == NULL && g.leaks == NULL && g.allocs == NULL && g.growth == NULL &&
        g.rss == NULL) {
        return decline("check what? Give a limit, such as --max-peak=1G or --max-leaks=0");
    }
    if ((g.growth != NULL) != (g.baseline != NULL)) {
        return decline(g.growth != NULL
                           ? "--max-growth needs --baseline=PROFILE to compare with"
                           : "--baseline needs --max-growth=PCT, or it changes nothing");
    }
    return true;
}

static bool check_all(struct check *check) {
    return (g.leaks == NULL || check_leaks(check)) && (g.growth == NULL || check_growth(check)) &&
           (g.peak == NULL || check_peak(check)) && (g.allocs == NULL || check_allocs(check)) &&
           (g.rss == NULL || check_rss(check));
}

static int run_check(int count, char **words) {
    (void)count;
    struct check check = {.status = EXIT_USAGE};
    if (!is_sensible()) {
        return EXIT_USAGE;
    }
    if (!output_judge(g.output, false)) {
        return EXIT_OWN_FAILURE;
    }
    int status = EXIT_BAD_INPUT;
    if (open_subject(words[0], &check.run, &status) &&
        (g.baseline == NULL || open_subject(g.baseline, &check.baseline, &status))) {
        status = check_all(&check) ? print_verdicts(&check) : check.status;
    }
    for (size_t i = 0; i < check.count; i++) {
        free(check.verdicts[i].site.name);
        free(check.verdicts[i].site.file);
    }
    read_run_free(check.run.run);
    read_run_free(check.baseline.run);
    return status;
}

const struct command command_check = {
    .name = "check",
    .summary = "Hold a profile to limits, for continuous integration",
    .usage = "LIMIT... [OPTION...] PROFILE",
    .text = "Exits with 1 when a limit is exceeded, and says where most of it came from.  A limit "
            "that cannot be checked with this profile is an error, never a pass.\n"
            "\n"
            "peak is the highest point of a recorded run, or what any other file has in use; "
            "leaks are what was in use at the end, or at the moment that PROFILE names.  A "
            "recording without an end is checked only if PROFILE names a moment.\n"
            "\n"
            "  tally check --max-peak=1G --max-leaks=0 ci.tally\n"
            "  tally check --max-growth=5% --baseline=main.tally --format=github ci.tally",
    .options = (const struct arg_option *const[]){check_options, args_symbolize_options, NULL},
    .words = {1, 1},
    .run = run_check,
};
