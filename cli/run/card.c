/* SPDX-License-Identifier: MIT
 *
 * card.c - draws the summary of a run.
 *
 *      figures     three pairs: of the peak, of the end, of all that was allocated
 *      chart       bytes the program held over time, two rows of eighths of a character
 *      sites       what held the peak: beside the chart where there is room, else below it
 *      time        what used the processor, by function, where that was recorded
 *
 * What was counted is shown as it is.  Sums come from the snapshots, so they are estimates unless every
 * allocation was recorded, bounded by what was counted (known.h), with their 95 % intervals behind them.
 * Where that of the peak is wide, because little was allocated, the highest count is shown as a bound.
 */
#include "run/card.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/escape.h"
#include "common/glyph.h"
#include "profile/estimate.h"
#include "read/known.h"
#include "run/chart.h"
#include "select/site.h"
#include "view/leak_sites.h"

enum {
    WIDTH_LEAST = 60,
    WIDTH_MOST = 120,
    WIDTH_OF_TWO = 100, /* from here on the sites stand beside the chart */
    NAME_BYTES = 1024,  /* more than a line has columns of four bytes */
    LINE_BYTES = 4 * NAME_BYTES,
};

/* The sites that held memory, or the functions that used the processor. */
struct holders {
    bool is_time;
    const struct profile *profile;
    uint32_t type; /* the metric */
    struct sites sites;
    int64_t total;
};

/* The output, its style and its escape sequences. */
struct drawing {
    FILE *out;
    struct card_style style;
    const char *bold, *faint, *plain;
};

/* ---------------------------------------------------------------- figures */

struct figure_cell {
    char name[48], text[128];
};

static int64_t total_of(const struct profile *profile, const char *type) {
    uint32_t index = profile_find_type(profile, type);
    return index != PROFILE_NONE ? profile_total(profile, index) : 0;
}

static struct figure highest_rss(const struct read_run *run) {
    uint64_t highest = 0;
    for (uint32_t i = 0; i < run->point_count; i++) {
        highest = run->points[i].rss > highest ? run->points[i].rss : highest;
    }
    return run->point_count > 0 ? figure_exact((double)highest)
                                : (struct figure){.kind = FIGURE_UNKNOWN};
}

/* "1.21 GiB ± 1.4 % at 31.0 s", or "at least 1.2 GiB at 31.0 s" where samples tell no more than the
 * highest count. */
static void describe_peak(const struct known_moment *end, char *text, size_t bytes) {
    const double wide = 0.25;
    const struct read_point *highest = known_highest(end);
    struct figure peak = known_peak(end);
    if (highest == NULL) {
        snprintf(text, bytes, "%s", figure_text(peak, size_text));
        return;
    }
    bool is_bound = peak.kind == FIGURE_UNKNOWN ||
                    (peak.kind == FIGURE_ESTIMATE && figure_margin(peak) > wide * peak.value);
    const char *figure = is_bound ? ring_text("at least %s", size_text((int64_t)highest->live))
                                  : figure_text(peak, size_text);
    /* Higher than all counts: it was between two of them, and nobody knows when. */
    bool has_time = is_bound || peak.low <= (double)highest->live;
    snprintf(text, bytes, "%s%s%s", figure, has_time ? " at " : "",
             has_time ? duration_text(highest->t_ns) : "");
}

/* What a search found.  Sums are exact, wherever the objects come from. */
static void describe_search(const struct read_leaks *leaks, char *text, size_t bytes) {
    const struct read_leak_sum *definite = &leaks->sums[READ_LEAK_DEFINITE];
    const struct read_leak_sum *indirect = &leaks->sums[READ_LEAK_INDIRECT];
    int64_t objects = definite->objects + indirect->objects;
    if (objects == 0) {
        snprintf(text, bytes, "nothing (searched)");
    } else {
        snprintf(text, bytes, "%s in %s block%s (searched, %s)",
                 size_text(definite->requested + indirect->requested), grouped_text(objects),
                 objects == 1 ? "" : "s", leaks->rounded > 0 ? "sizes rounded" : "exact");
    }
}

/* Without a search, what was not freed is an upper bound of what leaked. */
static void describe_leak(const struct known_moment *end, char *text, size_t bytes) {
    struct figure live = known_live(end), blocks = known_live_blocks(end);
    char count[64] = "";
    if (blocks.kind == FIGURE_EXACT) {
        snprintf(count, sizeof count, " in %s block%s", grouped_text((int64_t)blocks.value),
                 blocks.value == 1 ? "" : "s");
    }
    if (end->run->leaks != NULL) {
        describe_search(end->run->leaks, text, bytes);
    } else if (!end->is_end) {
        snprintf(text, bytes, "unknown: the end is not recorded");
    } else if (live.kind == FIGURE_EXACT && live.value == 0) {
        snprintf(text, bytes, "nothing");
    } else {
        snprintf(text, bytes, "at most %s%s", figure_text(live, size_text), count);
    }
}

/* At the end, or when it was last known. */
static void describe_live(const struct known_moment *end, struct figure_cell *cell) {
    const struct read_run *run = end->run;
    struct figure live = known_live(end);
    uint64_t at;
    if (read_reach(run, &at) != NULL) {
        if (run->point_count > 0) {
            at = run->points[run->point_count - 1].t_ns;
            live = figure_exact((double)run->points[run->point_count - 1].live);
        }
        snprintf(cell->name, sizeof cell->name, "live at %s", duration_text(at));
    }
    snprintf(cell->text, sizeof cell->text, "%s", figure_text(live, size_text));
}

/* The variance of a share of a whole that it is a part of: errors of both go the same way. */
static double variance_of_share(double part, double of_part, double whole, double of_whole) {
    double share = part / whole;
    double variance = of_part * (1 - 2 * share) + share * share * of_whole;
    return of_part < 0 || of_whole < 0 ? -1 : fmax(variance, 0) / (whole * whole);
}

static struct figure share_of(const struct profile *profile, const char *part, const char *whole) {
    const double unseen = 3.69; /* samples of a part that shows up in none, in 2.5 of 100 cases */
    uint32_t a = profile_find_type(profile, part), b = profile_find_type(profile, whole);
    double sum = b != PROFILE_NONE ? (double)profile_total(profile, b) : 0;
    if (a == PROFILE_NONE || sum <= 0) {
        return (struct figure){FIGURE_UNKNOWN, 0, 0, 1, 0, false};
    }
    double value = (double)profile_total(profile, a);
    double variance = variance_of_share(value, estimate_total(profile, a).variance, sum,
                                        estimate_total(profile, b).variance);
    struct figure share = figure_even(profile, value / sum, variance);
    double least = unseen / figure_total(profile, b).samples;
    share.low = fmin(share.low, share.value - least);
    share.high = fmax(share.high, share.value + least);
    return figure_bound(share, 0, 1);
}

/* "66 ± 2 % of 3.4 M ± 1.9 % allocations" */
static void describe_temporary(const struct known_moment *end, char *text, size_t bytes) {
    struct figure share = share_of(end->profile, "temp_objects", "alloc_objects");
    struct figure all = known_allocations(end);
    char margin[32] = "";
    if (share.kind == FIGURE_ESTIMATE) {
        snprintf(margin, sizeof margin, " %s %.0f", glyph(GLYPH_PLUS_MINUS),
                 ceil(100 * figure_margin(share)));
    }
    if (share.kind == FIGURE_UNKNOWN) {
        snprintf(text, bytes, "unknown");
    } else {
        snprintf(text, bytes, "%.0f%s %% of %s allocations", 100 * share.value, margin,
                 figure_text(all, count_text));
    }
}

static void put_padded(FILE *out, const char *text, unsigned width) {
    unsigned columns = text_columns(text);
    fprintf(out, "%s%*s", text, columns < width ? (int)(width - columns) : 0, "");
}

/* The widths of names and texts of each column; lay_out returns the width of a row. */
struct grid {
    unsigned per_row, names[3], texts[3];
};

static unsigned larger(unsigned a, unsigned b) {
    return a > b ? a : b;
}

static unsigned lay_out(struct grid *grid, const struct figure_cell *figures, unsigned count) {
    enum { INDENT = 2, BEHIND_NAME = 2, BEHIND_TEXT = 3 };
    unsigned columns = 0;
    memset(grid->names, 0, sizeof grid->names);
    memset(grid->texts, 0, sizeof grid->texts);
    for (unsigned i = 0; i < count; i++) {
        unsigned at = i % grid->per_row;
        grid->names[at] = larger(grid->names[at], text_columns(figures[i].name) + BEHIND_NAME);
        grid->texts[at] = larger(grid->texts[at], text_columns(figures[i].text) + BEHIND_TEXT);
    }
    for (unsigned i = 0; i < grid->per_row; i++) {
        columns += grid->names[i] + grid->texts[i];
    }
    return INDENT + columns - BEHIND_TEXT;
}

/* As many in a row as fit. */
static void print_figures(const struct drawing *drawing, const struct figure_cell *figures,
                          unsigned count) {
    struct grid grid = {.per_row = 3};
    while (lay_out(&grid, figures, count) > drawing->style.width && grid.per_row > 1) {
        grid.per_row--;
    }
    for (unsigned i = 0; i < count; i++) {
        unsigned at = i % grid.per_row;
        bool is_last = at == grid.per_row - 1 || i == count - 1;
        fprintf(drawing->out, "%s%s", at == 0 ? "  " : "", drawing->faint);
        put_padded(drawing->out, figures[i].name, grid.names[at]);
        fputs(drawing->plain, drawing->out);
        if (is_last) {
            fprintf(drawing->out, "%s\n", figures[i].text);
        } else {
            put_padded(drawing->out, figures[i].text, grid.texts[at]);
        }
    }
    fputc('\n', drawing->out);
}

static void print_all_figures(const struct drawing *drawing, const struct card *card,
                              const struct profile *profile) {
    enum { TEXT = sizeof((struct figure_cell *)0)->text };
    struct known_moment end = known_end(card->run, profile);
    struct figure_cell figures[] = {
        {"peak", ""}, {"live at exit", ""}, {"leaked", ""},
        {"rss", ""},  {"allocated", ""},    {"temporary", ""},
    };
    describe_peak(&end, figures[0].text, TEXT);
    describe_live(&end, &figures[1]);
    describe_leak(&end, figures[2].text, TEXT);
    snprintf(figures[3].text, TEXT, "%s", figure_text(highest_rss(card->run), size_text));
    snprintf(figures[4].text, TEXT, "%s", figure_text(known_allocated(&end), size_text));
    describe_temporary(&end, figures[5].text, TEXT);
    print_figures(drawing, figures, sizeof figures / sizeof figures[0]);
}

/* ---------------------------------------------------------------- sites */

static void collect(struct holders *holders, const struct profile *profile, const char *metric) {
    uint32_t type = profile_find_type(profile, metric);
    holders->profile = profile;
    holders->type = type;
    if (type != PROFILE_NONE) {
        struct interval_facts *facts = estimate_all(profile);
        sites_collect(&holders->sites, profile, type, holders->is_time ? BY_FUNCTIONS : BY_LINES,
                      NULL, facts);
        free(facts);
        holders->total = profile_total(profile, type);
    }
}

/* Cuts a text to a number of columns, with a mark. */
static void cut(char *text, unsigned columns) {
    if (text_columns(text) <= columns) {
        return;
    }
    unsigned mark = text_columns(glyph(GLYPH_MORE)), kept = 0;
    char *at = text;
    for (; *at != '\0' && kept + mark < columns; kept++) {
        for (at++; (*at & 0xc0) == 0x80; at++) {
        }
    }
    strcpy(at, glyph(GLYPH_MORE));
}

/* The texts of a site: its function, and file and line where they are known. */
struct place {
    char name[NAME_BYTES + 8], line[NAME_BYTES + 8];
};

static void describe_place(const struct holders *holders, size_t index, struct place *place) {
    const struct profile *profile = holders->profile;
    uint32_t location = holders->sites.rows[index].location;
    const struct profile_location *at = &profile->locations[location];
    place->line[0] = '\0';
    if (at->line_count == 0) {
        site_text(profile, location, 0, place->name);
        return;
    }
    const struct profile_line *line = &profile->lines[at->lines];
    const struct profile_function *function = &profile->functions[line->function];
    snprintf(place->name, NAME_BYTES, "%s", safe_text(function->name));
    int length = snprintf(place->line, NAME_BYTES, "%s", safe_text(base_name(function->file)));
    if (length > 0 && length < NAME_BYTES && line->number != 0 && !holders->is_time) {
        snprintf(place->line + length, (size_t)(NAME_BYTES - length), ":%u", line->number);
    }
}

/* How far off what a site has may be; nothing where that is exact or nobody knows. */
static const char *site_margin(const struct holders *holders, const struct site *site) {
    if (site->facts == NULL) {
        return "";
    }
    struct figure figure =
        figure_of(holders->profile, (double)site->value, site->facts[holders->type]);
    return figure.kind == FIGURE_ESTIMATE ? figure_margin_text(figure) : "";
}

/* How the columns of a list of sites share its width: names get what the others leave. */
struct site_columns {
    unsigned margin, name, line;
};

static struct site_columns share_width(const struct holders *holders, size_t shown,
                                       unsigned width) {
    enum { FIGURES = 21, GAP = 2, NAME_LEAST = 12, LINE_MOST = 28 };
    struct site_columns columns = {0, 0, 0};
    struct place place;
    for (size_t i = 0; i < shown; i++) {
        const char *margin = site_margin(holders, &holders->sites.rows[i]);
        describe_place(holders, i, &place);
        columns.margin = larger(columns.margin, text_columns(margin));
        columns.name = larger(columns.name, text_columns(place.name));
        columns.line = larger(columns.line, text_columns(place.line));
    }
    columns.line = columns.line < LINE_MOST ? columns.line : LINE_MOST;
    unsigned others = FIGURES + columns.margin + GAP + columns.line;
    unsigned left = width > others + NAME_LEAST ? width - others : NAME_LEAST;
    columns.name = columns.name < left ? columns.name : left;
    return columns;
}

/* What a site has, and how far off that may be. */
static const char *site_figure(const struct holders *holders, const struct site *site,
                               unsigned margin_columns) {
    const char *value =
        holders->is_time ? duration_text((uint64_t)site->value) : size_text(site->value);
    /* As wide as characters, which are not bytes. */
    const char *margin = site_margin(holders, site);
    return ring_text("%10s%s%*s", value, margin, (int)(margin_columns - text_columns(margin)), "");
}

/* " 38.1 %  472.0 MiB ± 2.1 %  cache_insert  cache.c:88" */
static void describe_site(const struct holders *holders, size_t index, struct site_columns columns,
                          char *text) {
    const struct site *site = &holders->sites.rows[index];
    struct place place;
    describe_place(holders, index, &place);
    cut(place.name, columns.name);
    cut(place.line, columns.line);
    unsigned name = text_columns(place.name);
    bool has_line = place.line[0] != '\0';
    sprintf(text, "%5.1f %%  %s  %s%*s%s", 100 * (double)site->value / (double)holders->total,
            site_figure(holders, site, columns.margin), place.name,
            has_line ? (int)(columns.name - name + 2) : 0, "", place.line);
}

/* The list of sites as lines: a title, the largest of those that held something, and how many more there are. */
struct list {
    const struct holders *holders;
    size_t shown, lines;
    struct site_columns columns;
};

static struct list make_list(const struct holders *holders, size_t most, unsigned width) {
    const struct sites *sites = &holders->sites;
    size_t shown = 0;
    while (shown < most && shown < sites->count && sites->rows[shown].value > 0) {
        shown++;
    }
    size_t lines = shown > 0 ? shown + 1 + (sites->count > shown) : 0;
    return (struct list){holders, shown, lines, share_width(holders, shown, width)};
}

static void describe_line(const struct list *list, size_t line, char *text) {
    if (line == 0) {
        strcpy(text, "where the peak was");
    } else if (line <= list->shown) {
        describe_site(list->holders, line - 1, list->columns, text);
    } else {
        sprintf(text, "%s %s more %s", glyph(GLYPH_MORE),
                grouped_text((int64_t)(list->holders->sites.count - list->shown)),
                list->holders->is_time ? "functions" : "sites");
    }
}

static void print_beside(const struct drawing *drawing, const struct list *list,
                         const struct chart *chart, unsigned chart_columns) {
    size_t rows = list->lines > chart->count ? list->lines : chart->count;
    for (size_t row = 0; row < rows; row++) {
        char text[LINE_BYTES] = "";
        const char *left = row < chart->count ? chart->lines[row] : "";
        if (row < list->lines) {
            describe_line(list, row, text);
            put_padded(drawing->out, left, chart_columns);
            left = "";
        }
        fprintf(drawing->out, "%s%s\n", left, text);
    }
}

static void print_list(const struct drawing *drawing, const struct list *list, size_t first) {
    for (size_t line = first; line < list->lines; line++) {
        char text[LINE_BYTES];
        describe_line(list, line, text);
        fprintf(drawing->out, "  %s\n", text);
    }
}

/* Chart and sites side by side, or one after the other. */
static void print_body(const struct drawing *drawing, const struct card *card,
                       const struct holders *holders) {
    enum { GAP = 4, BESIDE_COLUMNS = 24, ALONE_COLUMNS = 40 };
    struct chart chart = {.count = 0};
    bool is_wide = drawing->style.width >= WIDTH_OF_TWO;
    unsigned columns = is_wide ? BESIDE_COLUMNS : ALONE_COLUMNS;
    if (card->run->point_count >= 2) {
        chart_draw(card->run, columns, &chart);
    }
    bool is_beside = is_wide && chart.count > 0;
    unsigned left = is_beside ? CHART_LABEL + columns + GAP : 2;
    struct list list = make_list(holders, card->sites_most, drawing->style.width - left);
    if (is_beside) {
        print_beside(drawing, &list, &chart, left);
    } else {
        for (size_t row = 0; row < chart.count; row++) {
            fprintf(drawing->out, "%s\n", chart.lines[row]);
        }
        print_list(drawing, &list, 0);
    }
    if (chart.count + list.lines > 0) {
        fputc('\n', drawing->out);
    }
}

/* ---------------------------------------------------------------- time */

/* "where 12.3 s of processor time went (1,230 samples, none lost)" */
static void print_time_title(const struct drawing *drawing, const struct card *card,
                             int64_t samples, int64_t total_ns) {
    char lost[64] = "none";
    if (card->run->cpu_lost > 0) {
        snprintf(lost, sizeof lost, "%s", grouped_text((int64_t)card->run->cpu_lost));
    }
    fprintf(drawing->out, "  where %s of processor time went (%s samples, %s lost)\n",
            duration_text((uint64_t)total_ns), grouped_text(samples), lost);
    if (card->run->cpu_left_out > 0) {
        fprintf(drawing->out, "  %s threads are missing: they block the signal, or have no timer\n",
                grouped_text((int64_t)card->run->cpu_left_out));
    }
}

/* The functions that used the processor themselves, the heaviest first; nothing where it was not recorded. */
static void print_time(const struct drawing *drawing, const struct card *card) {
    enum { INDENT = 2 };
    const struct read_run *run = card->run;
    const struct profile *profile =
        run->cpu_count > 0 ? run->cpu[run->cpu_count - 1].profile : NULL;
    struct holders users = {.is_time = true};
    if (profile == NULL) {
        return;
    }
    collect(&users, profile, "cpu");
    struct list list = make_list(&users, card->sites_most, drawing->style.width - INDENT);
    print_time_title(drawing, card, total_of(profile, "samples"), users.total);
    print_list(drawing, &list, 1);
    fputc('\n', drawing->out);
    sites_free(&users.sites);
}

/* ---------------------------------------------------------------- head and foot */

/* "every allocation recorded until 4.8 s", "sampled 1 per 64 KiB (± 95 % sure)" */
static void print_coverage(const struct drawing *drawing, const struct read_run *run) {
    uint64_t reach;
    if (run->rate <= 1) {
        fprintf(drawing->out, "%severy allocation recorded", glyph(GLYPH_DOT));
    } else {
        bool has_room = drawing->style.width >= WIDTH_OF_TWO;
        fprintf(drawing->out, "%ssampled 1 per %s%s%s%s", glyph(GLYPH_DOT),
                size_text((int64_t)run->rate), has_room ? " (" : "",
                has_room ? glyph(GLYPH_PLUS_MINUS) : "", has_room ? " 95 % sure)" : "");
    }
    if (read_reach(run, &reach) != NULL) {
        fprintf(drawing->out, " until %s", duration_text(reach));
    }
    if (run->dropped > 0) {
        fprintf(drawing->out, "%s%s samples lost", glyph(GLYPH_DOT),
                grouped_text((int64_t)run->dropped));
    }
}

static void print_head(const struct drawing *drawing, const struct card *card) {
    const struct read_run *run = card->run;
    fprintf(drawing->out, "%stally: %s (pid %llu) ran %s%s", drawing->bold,
            safe_text(base_name(run->program)), (unsigned long long)run->pid,
            duration_text(card->wall_ns), drawing->plain);
    print_coverage(drawing, run);
    if (card->end[0] != '\0') {
        fprintf(drawing->out, "%s%s", glyph(GLYPH_DOT), card->end);
    }
    fputs("\n\n", drawing->out);
}

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

static bool is_made_of(const char *word, const char *characters) {
    return word[0] != '\0' && word[strspn(word, characters)] == '\0';
}

/* "tally report --tree server.4711.tally@peak", to be typed into a shell. */
static void print_next(const struct drawing *drawing, const char *title, const struct card *card,
                       const char *command, const char *moment) {
    char path[LINE_BYTES];
    snprintf(path, sizeof path, "%s%s", card->path, moment);
    fprintf(drawing->out, "  %-9stally %s ", title, command);
    if (is_made_of(path, LETTERS "./:=@%+,-")) {
        fputs(path, drawing->out);
    } else {
        escape_shell(drawing->out, path);
    }
    fputc('\n', drawing->out);
}

/* "biggest leak  64.0 MiB in 1,024 blocks: account_load (account.c:140) <- login" */
static void print_biggest_leak(const struct drawing *drawing, const struct read_leaks *leaks) {
    struct leak_sites sites = {0};
    struct select select = {.metric = "leak_space"};
    struct profile *visible = select_apply(leaks->profile, &select);
    if (visible == NULL) {
        return;
    }
    leak_sites_collect(&sites, visible, glyph(GLYPH_CALLER));
    if (sites.count > 0 && sites.rows[0].kind == READ_LEAK_DEFINITE) {
        const struct leak_site *first = &sites.rows[0];
        int64_t objects = first->objects + first->below_objects;
        fprintf(drawing->out, "  %-9s%s%s in %s block%s: %s\n", "leak",
                leaks->rate > 1 ? "about " : "", size_text(first->bytes + first->below_bytes),
                grouped_text(objects), objects == 1 ? "" : "s",
                first->place[0] != '\0' ? first->path : "without a recorded stack");
    }
    leak_sites_free(&sites);
    profile_free(visible);
}

/* Does the profile have what the program maps itself?  Then its peak is far above what the heap held. */
static bool has_mappings(const struct read_run *run, uint64_t held, uint64_t outside) {
    const struct profile *profile = run->moments[run->moment_count - 1].profile;
    uint32_t type = profile_find_type(profile, "peak_space");
    int64_t peak = type != PROFILE_NONE ? profile_total(profile, type) : 0;
    return peak > 0 && (uint64_t)peak > held + outside / 2;
}

/* Why RSS is far above the peak of the heap, where it is. */
static void print_outside(const struct drawing *drawing, const struct read_run *run) {
    enum { LEAST = 16 << 20 };
    const struct read_point none = {0}, *highest = &none;
    for (uint32_t i = 0; i < run->point_count; i++) {
        highest = run->points[i].rss > highest->rss ? &run->points[i] : highest;
    }
    uint64_t held = highest->held > highest->live ? highest->held : highest->live;
    uint64_t outside = highest->rss > held ? highest->rss - held : 0;
    if (outside < LEAST || outside < highest->rss / 2) {
        return;
    }
    fprintf(drawing->out, "  %-9s%s is not the heap's: mappings of the program, files, stacks\n",
            "rss", size_text((int64_t)outside));
    if (!has_mappings(run, held, outside)) {
        fprintf(drawing->out, "  %-9sTALLY_CONF=prof_mmap:true tally run ... records who maps it\n",
                "");
    }
}

/* What is to be typed next shows what the card shows: the peak, where it is known. */
static void print_foot(const struct drawing *drawing, const struct card *card, const char *name,
                       const char *moment) {
    const struct read_leaks *leaks = card->run->leaks;
    bool has_leaks = leaks != NULL && leaks->sums[READ_LEAK_DEFINITE].objects > 0;
    if (has_leaks) {
        print_biggest_leak(drawing, leaks);
    }
    print_outside(drawing, card->run);
    fprintf(drawing->out, "  %-9s%s (%s)\n", "profile", safe_text(card->path),
            size_text((int64_t)card->file_bytes));
    if (card->children > 0) {
        fprintf(drawing->out, "  %-9s%s more: %s\n", "", grouped_text(card->children),
                safe_text(card->children_path));
    }
    print_next(drawing, "next", card, "report --tree", moment);
    if (card->run->cpu_count > 0) {
        print_next(drawing, "", card, "report --tree --metric=cpu", "");
    }
    /* Only a plain name is shown as an expression to look for. */
    if (is_made_of(name, LETTERS)) {
        char command[LINE_BYTES];
        snprintf(command, sizeof command, "report --list=%s", name);
        print_next(drawing, "", card, command, moment);
    }
    if (has_leaks) {
        print_next(drawing, "", card, "leak-check", "");
    }
}

void card_print(FILE *out, const struct card *card, struct card_style style) {
    style.width = style.width < WIDTH_LEAST ? WIDTH_LEAST : style.width;
    style.width = style.width > WIDTH_MOST ? WIDTH_MOST : style.width;
    const struct drawing drawing = {
        .out = out,
        .style = style,
        .bold = style.has_color ? "\033[1m" : "",
        .faint = style.has_color ? "\033[2m" : "",
        .plain = style.has_color ? "\033[0m" : "",
    };
    const struct read_run *run = card->run;
    const struct profile *profile = run->moments[run->moment_count - 1].profile;
    struct holders holders = {0};
    struct select select = {.metric = "peak_space"};
    struct profile *visible = NULL;
    if (profile_find_type(profile, select.metric) != PROFILE_NONE) {
        visible = select_apply(profile, &select);
    }
    if (visible != NULL) {
        collect(&holders, visible, select.metric);
    }
    print_head(&drawing, card);
    print_all_figures(&drawing, card, profile);
    print_body(&drawing, card, &holders);
    print_time(&drawing, card);
    bool has_name = holders.sites.count > 0 && holders.sites.rows[0].value > 0;
    print_foot(&drawing, card, has_name ? holders.sites.rows[0].name : "",
               visible != NULL ? "@peak" : "");
    sites_free(&holders.sites);
    profile_free(visible);
}
