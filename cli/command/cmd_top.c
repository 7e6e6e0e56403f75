/* SPDX-License-Identifier: MIT
 *
 * cmd_top.c - `tally top`: the memory of a process on the whole screen, refreshed again and again.
 *
 * The upper half is what `tally stats` prints and costs the process nothing.  Below are the places that hold
 * most, taken from a dump, when the profiler is on and the process answers requests.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "args/args.h"
#include "common/cli.h"
#include "common/glyph.h"
#include "common/screen.h"
#include "live/live_dump.h"
#include "live/live_stats.h"
#include "names/symbolize.h"
#include "view/view.h"

enum { HISTORY = 512, SITES = 10 };

static struct { uint64_t every_ns; } options = {.every_ns = 1000000000};

static const struct arg_option top_options[] = {
    {"every", 0, ARG_DURATION, "DUR", NULL, false, &options.every_ns,
     "Time between updates; 1s unless given"},
    {0},
};

/* What was seen so far, newest last. */
struct history {
    uint64_t live[HISTORY], rss[HISTORY];
    size_t count;
};

static void remember(struct history *history, const struct bridge *bridge) {
    if (history->count == HISTORY) {
        memmove(history->live, history->live + 1, sizeof history->live - sizeof history->live[0]);
        memmove(history->rss, history->rss + 1, sizeof history->rss - sizeof history->rss[0]);
        history->count--;
    }
    history->live[history->count] = bridge->requested;
    history->rss[history->count++] = bridge->rss;
}

/* A bar of eight heights per look, the highest is the largest of them. */
static void draw_history(FILE *file, const char *name, const uint64_t *values, size_t count) {
    enum { BESIDES = 24 };
    unsigned columns = screen_columns();
    size_t shown = columns > BESIDES ? columns - BESIDES : 1,
           first = count > shown ? count - shown : 0;
    uint64_t most = 1;
    for (size_t i = first; i < count; i++) {
        most = values[i] > most ? values[i] : most;
    }
    fprintf(file, "  %-5s ", name);
    for (size_t i = first; i < count; i++) {
        fputs(glyph_height(1 + (unsigned)((double)values[i] / (double)most * 7.999)), file);
    }
    fprintf(file, " %s at most\n", size_text((int64_t)most));
}

/* Sites. */

/* The last list of sites, or why there is none. */
struct sites {
    char *text;
    uint64_t taken_ns;
    bool is_refused; /* so no dump is asked for again */
};

static bool print_sites(FILE *file, const struct profile *profile) {
    struct profile *selected = select_apply(profile, &args_select);
    struct view view = {.select = &args_select, .by = args_select.by, .out = file};
    if (selected == NULL) {
        return false;
    }
    view_begin(&view, selected, profile);
    view_print_heading(&view);
    bool is_printed = view_top(&view);
    view_end(&view);
    profile_free(selected);
    return is_printed;
}

static void say_instead(struct sites *sites, const char *sentence) {
    free(sites->text);
    sites->text = must_copy(sentence);
}

/* A dump costs the process time, so not every look asks for one. */
static void take_sites(const struct look_at_process *look, struct sites *sites) {
    enum { BETWEEN_NS = 2000000000 };
    struct profile *profile = NULL;
    struct symbolize_result names;
    size_t length = 0;
    if (look->page.words.control == 0 || look->page.words.profile_rate == 0) {
        say_instead(sites, look->page.words.control == 0
                               ? "  no sites: control is off in the process\n"
                               : "  no sites: the profiler is off; tally start switches it on\n");
        return;
    }
    if (sites->is_refused || (sites->taken_ns > 0 && look->now_ns - sites->taken_ns < BETWEEN_NS)) {
        return;
    }
    sites->taken_ns = look->now_ns;
    if (strchr("Tt", target_state(look->target->pid)) != NULL) {
        return; /* The old list stays until the process runs again. */
    }
    if (live_dump_take(look->target, LIVE_HEAP, &profile, &names) != EXIT_DONE) {
        sites->is_refused = true;
        say_instead(sites, "  no sites: the process did not give a profile\n");
        return;
    }
    free(sites->text);
    sites->text = NULL;
    FILE *file = open_memstream(&sites->text, &length);
    sites->is_refused = file == NULL || !print_sites(file, profile);
    if (file != NULL) {
        fclose(file);
    }
    profile_free(profile);
}

static void draw(const struct look_at_process *look, const struct look_at_process *before,
                 const struct history *history, const struct sites *sites) {
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    if (file == NULL) {
        return;
    }
    live_stats_print_text(file, look, before);
    fputc('\n', file);
    draw_history(file, "live", history->live, history->count);
    draw_history(file, "RSS", history->rss, history->count);
    fprintf(file, "\n  every %s%sq ends, + and - change how often, space looks now\n",
            duration_text(options.every_ns), glyph(GLYPH_DOT));
    fprintf(file, "\n%s", sites->text != NULL ? sites->text : "");
    fclose(file);
    screen_draw(text, length);
    free(text);
}

/* False: the user wants to end. */
static bool obey(int key) {
    enum { LEAST_NS = 100000000 };
    switch (key) {
    case 'q':
    case 'Q':
        return false;
    case '+':
        options.every_ns = options.every_ns / 2 > LEAST_NS ? options.every_ns / 2 : LEAST_NS;
        return true;
    case '-':
        options.every_ns =
            options.every_ns < UINT64_C(3600000000000) ? options.every_ns * 2 : options.every_ns;
        return true;
    default:
        return true;
    }
}

/* Runs until the user or a signal ends it; returns 0 or the signal. */
static int watch(const struct target *target) {
    static struct look_at_process looks[2];
    static struct history history;
    static struct sites sites;
    size_t seen = 0;
    bool wants_look = true;
    uint64_t next = cli_now_ns();
    for (;;) {
        int number = 0;
        if (wants_look) {
            if (!target_is_alive(target) || !live_stats_look(target, &looks[seen % 2])) {
                return 0;
            }
            remember(&history, &looks[seen % 2].bridge);
            take_sites(&looks[seen % 2], &sites);
            seen++;
            next = cli_now_ns() + options.every_ns;
        }
        draw(&looks[(seen + 1) % 2], seen > 1 ? &looks[seen % 2] : NULL, &history, &sites);
        enum screen_event event = screen_wait(next, target->pidfd, &number);
        if (event == SCREEN_END || event == SCREEN_OTHER) {
            return number;
        }
        if (event == SCREEN_KEY && !obey(number)) {
            return 0;
        }
        wants_look = event == SCREEN_TIME || (event == SCREEN_KEY && number == ' ');
    }
}

static int run_top(int count, char **words) {
    struct target target;
    (void)count;
    enum exit_code code = target_open(words[0], true, &target);
    if (code != EXIT_DONE) {
        return code;
    }
    if (args_select.most_rows == SELECT_OWN_ROWS) {
        args_select.most_rows = SITES;
    }
    if (options.every_ns == 0 || !screen_begin()) {
        target_close(&target);
        return complain(EXIT_USAGE,
                        "top needs a terminal and an interval; tally stats --every=1s %s "
                        "prints lines instead",
                        safe_text(words[0]));
    }
    int loudness = cli_loudness;
    cli_loudness = 0; /* the screen is no place for warnings */
    int number = watch(&target);
    cli_loudness = loudness;
    screen_end();
    if (!target_is_alive(&target)) {
        note("process %ld has ended", target.pid);
    }
    target_close(&target);
    if (number != 0 && number != SIGINT) {
        raise(number);
    }
    return EXIT_DONE;
}

const struct command command_top = {
    .name = "top",
    .summary = "Watch the memory of a running process",
    .usage = "[OPTION...] TARGET",
    .text =
        "Shows the lines of tally stats on the whole screen, with how they changed, and the sites "
        "that hold most while the profiler is on.\n"
        "\n"
        "    tally top server\n"
        "    tally top --metric=alloc_space --cum server\n",
    .options = (const struct arg_option *const[]){top_options, args_select_options,
                                                  args_symbolize_options, NULL},
    .words = {1, 1},
    .run = run_top,
};
