/* SPDX-License-Identifier: MIT
 *
 * cmd_check.c - `tally check`: limits for a profile, for scripts and continuous integration.
 *
 * Every limit given becomes one verdict.  A limit that cannot be checked, because the profile does
 * not have the number or the recording stops before it, is an error and never a pass.  Only a figure whose
 * whole interval exceeds the limit fails it, unless --noise says otherwise (figure.h).
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
#include "command/verdicts.h"
#include "common/cli.h"
#include "common/glyph.h"
#include "names/symbolize.h"
#include "read/known.h"
#include "select/argument.h"
#include "select/site.h"

enum noise { NOISE_IGNORE, NOISE_FAIL };

/* Limits as they were typed; NULL: none. */
static struct {
    const char *peak, *leaks, *allocs, *growth, *rss, *baseline, *output;
    unsigned format, noise;
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
    {"noise", 0, ARG_CHOICE, "WHAT", "ignore|fail", false, &g.noise,
     "Whether a limit that lies within the 95 % interval of a sampled figure passes (the default) "
     "or fails"},
    {"format", 0, ARG_CHOICE, "FORMAT", VERDICT_FORMATS, false, &g.format,
     "Text for people, JSON for scripts, annotations of GitHub, or a JUnit file"},
    {"output", 'o', ARG_TEXT, "OUT", NULL, false, &g.output,
     "Write to this file, which must not exist, instead of the standard output"},
    {0}};

/* What is checked, or compared with. */
struct subject {
    const char *word;
    struct read_run *run;
    struct profile *profile;    /* the moment that was meant; belongs to the run */
    struct known_moment moment; /* the same */
    bool lacks_end;             /* the end is meant, and is not there */
};

struct check {
    struct subject run, baseline;
    struct verdicts verdicts;
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

/* The moment that the choice means: counts that came after it do not matter. */
static struct known_moment moment_of(const struct subject *subject,
                                     const struct read_choice *choice) {
    struct known_moment moment = known_end(subject->run, subject->profile);
    if (choice->is_given && subject->run->point_count > 0) {
        moment.until_ns = subject->run->moments[choice->moment].t_ns;
        moment.is_end &= choice->moment + 1 == subject->run->moment_count;
    }
    moment.is_end &= !choice->is_peak;
    return moment;
}

static bool open_subject(const char *word, struct subject *subject, int *status) {
    struct read_choice choice = {0};
    uint64_t reach;
    subject->word = word;
    subject->run = read_argument_run(word, &choice, status);
    subject->profile =
        subject->run != NULL ? read_chosen(subject->run, &choice, word, status) : NULL;
    if (subject->profile == NULL) {
        return false;
    }
    subject->moment = moment_of(subject, &choice);
    subject->lacks_end = !choice.is_given && read_reach(subject->run, &reach) != NULL;
    return true;
}

/* The site that has most of a type. */
static struct verdict_place find_place(struct profile *profile, uint32_t type) {
    struct verdict_place place = {0};
    struct select select = {.metric = profile->types[type].name};
    symbolize(profile, &args_symbolize);
    struct profile *selected = select_apply(profile, &select);
    if (selected == NULL) {
        return place;
    }
    struct sites sites;
    sites_collect(&sites, selected, type, BY_LINES, NULL, NULL);
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

static struct verdict *add_verdict(struct check *check, const char *name, struct figure figure,
                                   double limit, const char *unit) {
    struct verdict *verdict = &check->verdicts.rows[check->verdicts.count++];
    enum figure_verdict judgement = figure_judge(figure, limit);
    bool is_doubtful = judgement == FIGURE_NOISE || judgement == FIGURE_FEW;
    *verdict = (struct verdict){.name = name,
                                .figure = figure,
                                .limit = limit,
                                .unit = unit,
                                .judgement = judgement,
                                .is_ok = is_doubtful ? g.noise == NOISE_IGNORE
                                                     : judgement == FIGURE_WITHIN};
    check->verdicts.failures += !verdict->is_ok;
    return verdict;
}

static const char *number_text(double value, const char *unit) {
    return value == 0                   ? "0"
           : strcmp(unit, "bytes") == 0 ? size_text(figure_int(value))
                                        : grouped_text(figure_int(value));
}

/* What an interval makes of a comparison; nothing where the figure is exact. */
static const char *doubt_text(const struct verdict *verdict) {
    static const char *const texts[] = {[FIGURE_WITHIN] = " (significant)",
                                        [FIGURE_OVER] = " (significant)",
                                        [FIGURE_NOISE] = " (within noise)",
                                        [FIGURE_FEW] = " (too few samples)"};
    return verdict->figure.kind == FIGURE_EXACT ? "" : texts[verdict->judgement];
}

static const char *sign_text(const struct verdict *verdict) {
    return verdict->figure.value <= verdict->limit ? "\u2264" : ">";
}

/* "95.9 MiB ± 3.9 % > 0 (significant)"; to the byte where fewer digits would not show the difference. */
static void put_text(struct verdict *verdict) {
    double number = verdict->figure.value;
    const char *value = number_text(number, verdict->unit);
    const char *limit = number_text(verdict->limit, verdict->unit);
    const char *unit = strcmp(verdict->unit, "blocks") == 0 ? " blocks" : "";
    if (strcmp(value, limit) == 0 && number > verdict->limit) {
        value = grouped_text(figure_int(number));
        limit = grouped_text(figure_int(verdict->limit));
        unit = strcmp(verdict->unit, "bytes") == 0 ? " B" : unit;
    }
    snprintf(verdict->text, sizeof verdict->text, "%s%s %s %s%s%s", value,
             figure_margin_text(verdict->figure), sign_text(verdict), limit, unit,
             doubt_text(verdict));
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

/* Whether a figure can be held to a limit: it is known, and what is missing of the recording cannot
 * change the verdict.  What only ever grows is over its limit whatever comes later. */
static bool is_known(struct check *check, const struct subject *subject, const char *option,
                     struct figure figure, double limit, bool only_grows) {
    uint64_t reach;
    bool is_over = only_grows && figure.low > limit;
    if (subject->lacks_end && !is_over) {
        const char *why = read_reach(subject->run, &reach), *word = safe_text(subject->word);
        check->status = (int)complain(EXIT_BAD_INPUT,
                                      "--%s cannot be checked: %s reaches only until %s, since %s; "
                                      "%s@end is its last snapshot",
                                      option, word, duration_text(reach), why, word);
        return false;
    }
    if (figure.kind == FIGURE_UNKNOWN && !is_over) {
        check->status = (int)complain(
            EXIT_BAD_INPUT, "--%s cannot be checked: nobody knows how far off the figure of %s is",
            option, safe_text(subject->word));
        return false;
    }
    return true;
}

static bool check_peak(struct check *check) {
    double limit = 0;
    if (!wants_size("max-peak", g.peak, &limit)) {
        return false;
    }
    uint32_t type = peak_type(check->run.profile);
    if (type == PROFILE_NONE) {
        return cannot(check, "max-peak", "peak_space and no inuse_space");
    }
    struct figure peak = known_peak(&check->run.moment);
    return is_known(check, &check->run, "max-peak", peak, limit, true) &&
           tell(add_verdict(check, "peak", peak, limit, "bytes"), check->run.profile, type);
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
    struct figure figure = leaks != NULL ? figure_exact(sum_of_leaks(leaks, in_blocks))
                           : in_blocks   ? known_live_blocks(&check->run.moment)
                                         : known_live(&check->run.moment);
    return (leaks != NULL || is_known(check, &check->run, "max-leaks", figure, limit, false)) &&
           tell(add_verdict(check, "leaks", figure, limit, in_blocks ? "blocks" : "bytes"), profile,
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
    struct figure allocs = known_allocations(&check->run.moment);
    return is_known(check, &check->run, "max-allocs", allocs, limit, true) &&
           tell(add_verdict(check, "allocs", allocs, limit, "count"), profile, type);
}

/* An end of the interval of a / b: where a - x b is as far from 0 as chance takes it (Fieller).  `of_a`
 * and `of_b` are how far off a and b may be. */
static double end_of_ratio(double a, double of_a, double b, double of_b, bool is_low) {
    double room = b * b - of_b * of_b, product = a * b;
    double sum = product + sqrt(fmax(product * product - room * (a * a - of_a * of_a), 0));
    return is_low ? (a * a - of_a * of_a) / sum : room > 0.01 * b * b ? sum / room : INFINITY;
}

/* after / before - 1, and how far off that may be. */
static struct figure growth_of(struct figure after, struct figure before) {
    if (after.kind == FIGURE_EXACT && before.kind == FIGURE_EXACT) {
        double growth = before.value > 0  ? after.value / before.value - 1
                        : after.value > 0 ? INFINITY
                                          : 0;
        return figure_exact(growth);
    }
    double a = after.value, b = before.value;
    struct figure growth = {
        FIGURE_ESTIMATE, INFINITY, -1, INFINITY, fmin(after.samples, before.samples), false};
    if (after.kind == FIGURE_UNKNOWN || before.kind == FIGURE_UNKNOWN || b <= 0 || a <= 0) {
        growth.value = b > 0 ? a / b - 1 : INFINITY;
        return growth;
    }
    growth.value = a / b - 1;
    growth.low = end_of_ratio(a, a - after.low, b, before.high - b, true) - 1;
    growth.high = end_of_ratio(a, after.high - a, b, b - before.low, false) - 1;
    return growth;
}

/* "peak +12.0 % ± 3.1 % > 5 % (significant)"; percentages are of the baseline. */
static void put_growth(struct verdict *verdict) {
    double growth = verdict->figure.value, low = verdict->figure.low, high = verdict->figure.high;
    char percent[48] = "from nothing", doubt[64] = "";
    if (isfinite(growth)) {
        snprintf(percent, sizeof percent, "%s%.1f %%", growth < 0 ? "\u2212" : "+",
                 100 * fabs(growth));
    }
    if (verdict->figure.kind == FIGURE_ESTIMATE && isfinite(growth) && isfinite(high)) {
        snprintf(doubt, sizeof doubt, " %s",
                 figure_sides(100 * (growth - low), 100 * (high - growth), " "));
    } else if (verdict->figure.kind == FIGURE_ESTIMATE) {
        snprintf(doubt, sizeof doubt, ", at least %s%.1f %%,", low < 0 ? "\u2212" : "+",
                 100 * fabs(low));
    }
    snprintf(verdict->text, sizeof verdict->text, "peak %s%s %s %g %%%s", percent, doubt,
             sign_text(verdict), 100 * verdict->limit, doubt_text(verdict));
}

static bool check_growth(struct check *check) {
    double limit = 0;
    if (!wants_percent(g.growth, &limit)) {
        return false;
    }
    if (peak_type(check->run.profile) == PROFILE_NONE ||
        peak_type(check->baseline.profile) == PROFILE_NONE) {
        return cannot(check, "max-growth", "peak_space and no inuse_space");
    }
    struct figure after = known_peak(&check->run.moment),
                  before = known_peak(&check->baseline.moment), growth = growth_of(after, before);
    if (!is_known(check, &check->baseline, "max-growth", before, 0, false) ||
        !is_known(check, &check->run, "max-growth", growth, limit, true)) {
        return false;
    }
    struct verdict *verdict = add_verdict(check, "growth", growth, limit, "share");
    put_growth(verdict);
    snprintf(verdict->detail, sizeof verdict->detail, "%s \u2192 %s",
             figure_text(before, size_text), figure_text(after, size_text));
    return true;
}

static bool check_rss(struct check *check) {
    double limit = 0;
    if (!wants_size("max-rss", g.rss, &limit)) {
        return false;
    }
    const struct read_run *run = check->run.run;
    if (run->point_count == 0) {
        return cannot(check, "max-rss", "series of statistics");
    }
    uint64_t most = 0;
    for (uint32_t i = 0; i < run->point_count; i++) {
        most = run->points[i].rss > most ? run->points[i].rss : most;
    }
    /* The series reaches to the end where only the last snapshot is missing. */
    struct figure rss = figure_exact((double)most);
    if (!run->has_ended && !is_known(check, &check->run, "max-rss", rss, limit, true)) {
        return false;
    }
    put_text(add_verdict(check, "rss", rss, limit, "bytes"));
    return true;
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
        status =
            check_all(&check) ? verdicts_print(&check.verdicts, g.format, g.output) : check.status;
    }
    verdicts_free(&check.verdicts);
    read_run_free(check.run.run);
    read_run_free(check.baseline.run);
    return status;
}

const struct command command_check = {
    .name = "check",
    .summary = "Hold a profile to limits, for continuous integration",
    .usage = "LIMIT... [OPTION...] PROFILE",
    .text =
        "Exits with 1 when a limit is exceeded, and says where most of it came from.  A limit "
        "that cannot be checked with this profile, or with a recording that stops before the "
        "program did, is an error (status 4), never a pass.\n"
        "\n"
        "A figure of a sampled profile is known within an interval only.  It exceeds a limit "
        "when all of the interval does; a limit inside of it is within noise, or there are "
        "too few samples to say anything, and that passes unless --noise=fail is given.\n"
        "\n"
        "peak is the highest point of a recorded run, or what any other file has in use; "
        "leaks are what a search found (tally run --leaks), else what was in use at the end, or at "
        "the moment that PROFILE names.\n"
        "\n"
        "  tally check --max-peak=1G --max-leaks=0 ci.tally\n"
        "  tally check --max-growth=5% --baseline=main.tally --format=github ci.tally",
    .options = (const struct arg_option *const[]){check_options, args_symbolize_options, NULL},
    .words = {1, 1},
    .run = run_check,
};
