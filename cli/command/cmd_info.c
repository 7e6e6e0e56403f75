/* SPDX-License-Identifier: MIT
 *
 * cmd_info.c - `tally info`: what a file of a profile holds, for people or as JSON.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "command/commands.h"
#include "common/cli.h"
#include "common/escape.h"
#include "profile/figure.h"
#include "select/argument.h"

enum format { FORMAT_TEXT, FORMAT_JSON };

static struct { unsigned format; } g;

/* What is looked at. */
struct info {
    const char *word;
    const struct read_run *run;
    const struct profile *profile; /* NULL: the run has none */
};

/* ---------------------------------------------------------------- facts */

static uint32_t count_named(const struct profile *profile) {
    uint32_t named = 0;
    for (uint32_t i = 0; i < profile->location_count; i++) {
        named += profile->locations[i].line_count > 0;
    }
    return named;
}

static uint32_t count_build_ids(const struct profile *profile) {
    uint32_t known = 0;
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        known += profile->mappings[i].build_id[0] != '\0';
    }
    return known;
}

/* The keys of labels, each once, in order of appearance; returns how many are there and fit. */
static size_t find_label_keys(const struct profile *profile, const char **keys, size_t most) {
    size_t count = 0;
    for (uint32_t i = 0; i < profile->label_count && count < most; i++) {
        size_t at = 0;
        while (at < count && keys[at] != profile->labels[i].key) {
            at++;
        }
        if (at == count) {
            keys[count++] = profile->labels[i].key;
        }
    }
    return count;
}

enum { KEYS_MOST = 32 };

/* ---------------------------------------------------------------- text */

static const char *value_text(const struct profile_type *type, int64_t value) {
    if (strcmp(type->unit, "bytes") == 0) {
        return size_text(value);
    }
    if (strcmp(type->unit, "nanoseconds") == 0 && value >= 0) {
        return duration_text((uint64_t)value);
    }
    return count_text(value);
}

static void print_row(const char *name, const char *text) {
    printf("  %-10s %s\n", name, text);
}

static void print_origin(const struct read_run *run) {
    if (run->program[0] != '\0') {
        printf("  %-10s %s", "program", safe_text(run->program));
        printf("%s%s", run->arguments[0] != '\0' ? " " : "", safe_text(run->arguments));
        if (run->pid != 0) {
            printf(", pid %" PRIu64, run->pid);
        }
        printf("%s%s\n", run->host[0] != '\0' ? " on " : "", safe_text(run->host));
    }
    if (run->version[0] != '\0') {
        print_row("library", safe_text(run->version));
    }
    if (run->start_wall_ns != 0) {
        char text[40];
        struct tm tm;
        time_t seconds = (time_t)(run->start_wall_ns / 1000000000);
        if (gmtime_r(&seconds, &tm) != NULL &&
            strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &tm) > 0) {
            print_row(strcmp(run->format, "tally") == 0 ? "started" : "made", text);
        }
    }
}

static void print_end(const struct read_run *run) {
    if (!run->has_ended) {
        print_row("ended", "not by itself: it was killed, or it still runs");
    } else if (!run->has_status) {
        print_row("ended", "by itself");
    } else if (WIFSIGNALED(run->status)) {
        printf("  %-10s by signal %d\n", "ended", WTERMSIG(run->status));
    } else {
        printf("  %-10s with status %d\n", "ended", WEXITSTATUS(run->status));
    }
}

/* The processor's time, where it was recorded. */
static void print_time(const struct read_run *run) {
    const struct profile *last = run->cpu_count > 0 ? run->cpu[run->cpu_count - 1].profile : NULL;
    uint32_t type = last != NULL ? profile_find_type(last, "cpu") : (uint32_t)PROFILE_NONE;
    if (type != PROFILE_NONE) {
        printf("  %-10s %s of processor time, 1 sample per %s, %s lost; --metric=cpu shows it\n",
               "time", value_text(&last->types[type], profile_total(last, type)),
               value_text(&last->period_type, last->period), grouped_text((int64_t)run->cpu_lost));
    }
}

static void print_container(const struct read_run *run) {
    uint64_t reach;
    const char *why = read_reach(run, &reach);
    print_end(run);
    if (why != NULL) {
        printf("  %-10s only until %s: %s\n", "reaches", duration_text(reach), why);
    }
    if (run->dropped > 0) {
        printf("  %-10s %s samples for want of memory\n", "lost",
               grouped_text((int64_t)run->dropped));
    }
    if (run->lost_bytes > 0) {
        printf("  %-10s %s bytes behind the last whole frame\n", "left out",
               grouped_text((int64_t)run->lost_bytes));
    }
    if (run->unknown_frames > 0) {
        printf("  %-10s %" PRIu64 " frames that this tally does not know\n", "skipped",
               run->unknown_frames);
    }
    printf("  %-10s %u", "snapshots", run->moment_count);
    if (run->moment_count > 0) {
        printf(", #1 at %s", duration_text(run->moments[0].t_ns));
    }
    if (run->moment_count > 1) {
        printf(" to #%u at %s", run->moment_count,
               duration_text(run->moments[run->moment_count - 1].t_ns));
    }
    printf("\n  %-10s %u points\n", "series", run->point_count);
    print_time(run);
    for (uint32_t i = 0; i < run->note_count; i++) {
        printf("  %-10s at %s: %s\n", i == 0 ? "notes" : "", duration_text(run->notes[i].t_ns),
               safe_text(run->notes[i].text));
    }
}

static void print_rate(const struct profile *profile) {
    if (strcmp(profile->period_type.name, "space") == 0 && profile->period > 1) {
        printf("  %-10s 1 per %s\n", "sampled", size_text(profile->period));
    } else if (strcmp(profile->period_type.name, "space") == 0) {
        print_row("sampled", "no: every allocation is in it");
    } else if (profile->period > 0 && profile->period_type.name[0] != '\0') {
        printf("  %-10s 1 per %s of %s\n", "sampled",
               value_text(&profile->period_type, profile->period),
               safe_text(profile->period_type.name));
    }
}

static void print_profile(const struct profile *profile) {
    const char *keys[KEYS_MOST];
    print_rate(profile);
    if (profile->duration_ns > 0) {
        print_row("duration", duration_text((uint64_t)profile->duration_ns));
    }
    printf("  %-10s %s, ", "samples", grouped_text(profile->sample_count));
    printf("%s locations, %s of them with names\n", grouped_text(profile->location_count),
           grouped_text(count_named(profile)));
    for (uint32_t i = 0; i < profile->type_count; i++) {
        const struct profile_type *type = &profile->types[i];
        int64_t total = profile_total(profile, i);
        printf("  %-10s %-14s %12s  %s%s %s%s\n", i == 0 ? "metrics" : "", safe_text(type->name),
               value_text(type, total), grouped_text(total),
               figure_margin_text(figure_total(profile, i)), safe_text(type->unit),
               i == profile->default_type ? ", shown first" : "");
    }
    size_t count = find_label_keys(profile, keys, KEYS_MOST);
    for (size_t i = 0; i < count; i++) {
        printf("%s%s", i == 0 ? "  labels     " : ", ", safe_text(keys[i]));
    }
    printf("%s", count > 0 ? "\n" : "");
    for (uint32_t i = 0; i < profile->comment_count; i++) {
        print_row(i == 0 ? "comments" : "", safe_text(profile->comments[i]));
    }
    printf("  %-10s %u, %u of them with a build id\n", "modules", profile->mapping_count,
           count_build_ids(profile));
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        const struct profile_mapping *mapping = &profile->mappings[i];
        printf("    %#" PRIx64 "-%#" PRIx64 " %s%s%s\n", mapping->start, mapping->limit,
               mapping->path[0] != '\0' ? safe_text(mapping->path) : "[anonymous]",
               mapping->build_id[0] != '\0' ? " " : "", safe_text(mapping->build_id));
    }
}

static void print_text(const struct info *info) {
    printf("%s%s: %s%s\n", cli_style(stdout, STYLE_BOLD), safe_text(info->word), info->run->format,
           cli_style(stdout, STYLE_PLAIN));
    print_origin(info->run);
    if (strcmp(info->run->format, "tally") == 0) {
        print_container(info->run);
    }
    if (info->profile != NULL) {
        print_profile(info->profile);
    }
}

/* ---------------------------------------------------------------- JSON */

/* A name inside an object; `before` separates it from the one before. */
static void put_key(const char *before, const char *name) {
    printf("%s\"%s\": ", before, name);
}

static void put_text(const char *before, const char *name, const char *text) {
    put_key(before, name);
    escape_json(stdout, text);
}

static void put_number(const char *before, const char *name, uint64_t number) {
    put_key(before, name);
    printf("%" PRIu64, number);
}

static void put_bool(const char *before, const char *name, bool value) {
    put_key(before, name);
    printf("%s", value ? "true" : "false");
}

static void put_run(const struct info *info) {
    const struct read_run *run = info->run;
    uint64_t reach;
    put_text("{\n  ", "file", info->word);
    put_text(",\n  ", "format", run->format);
    put_text(",\n  ", "program", run->program);
    put_text(",\n  ", "arguments", run->arguments);
    put_text(",\n  ", "host", run->host);
    put_text(",\n  ", "version", run->version);
    put_number(",\n  ", "pid", run->pid);
    put_number(",\n  ", "start_wall_ns", run->start_wall_ns);
    put_number(",\n  ", "rate", run->rate);
    put_bool(",\n  ", "has_ended", run->has_ended);
    put_bool(",\n  ", "reaches_end", read_reach(run, &reach) == NULL);
    if (run->has_status) {
        put_number(",\n  ", "status", (uint64_t)run->status);
    }
    put_number(",\n  ", "dropped", run->dropped);
    put_number(",\n  ", "lost_bytes", run->lost_bytes);
    put_number(",\n  ", "unknown_frames", run->unknown_frames);
    put_number(",\n  ", "points", run->point_count);
    put_number(",\n  ", "cpu_profiles", run->cpu_count);
    put_number(",\n  ", "cpu_lost", run->cpu_lost);
    put_key(",\n  ", "snapshots_at_ns");
    for (uint32_t i = 0; i < run->moment_count; i++) {
        printf("%s%" PRIu64, i == 0 ? "[" : ", ", run->moments[i].t_ns);
    }
    printf("%s", run->moment_count > 0 ? "]" : "[]");
    put_key(",\n  ", "notes");
    for (uint32_t i = 0; i < run->note_count; i++) {
        put_number(i == 0 ? "[{" : ", {", "t_ns", run->notes[i].t_ns);
        put_text(", ", "text", run->notes[i].text);
        printf("}");
    }
    printf("%s", run->note_count > 0 ? "]" : "[]");
}

/* How far off the total may be: null where nobody knows. */
static void put_margin(struct figure figure) {
    put_bool(", ", "is_exact", figure.kind == FIGURE_EXACT);
    if (figure.kind == FIGURE_UNKNOWN) {
        put_key(", ", "margin");
        printf("null");
    } else if (figure.kind == FIGURE_ESTIMATE) {
        put_key(", ", "margin");
        printf("%.0f", figure_margin(figure));
        put_key(", ", "confidence");
        printf("0.95");
    }
}

static void put_types(const struct profile *profile) {
    put_key(",\n    ", "metrics");
    for (uint32_t i = 0; i < profile->type_count; i++) {
        put_text(i == 0 ? "[\n      {" : ",\n      {", "name", profile->types[i].name);
        put_text(", ", "unit", profile->types[i].unit);
        put_key(", ", "total");
        printf("%" PRId64, profile_total(profile, i));
        put_margin(figure_total(profile, i));
        put_bool(", ", "is_default", i == profile->default_type);
        printf("}");
    }
    printf("%s", profile->type_count > 0 ? "\n    ]" : "[]");
}

static void put_modules(const struct profile *profile) {
    put_key(",\n    ", "modules");
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        const struct profile_mapping *mapping = &profile->mappings[i];
        put_text(i == 0 ? "[\n      {" : ",\n      {", "path", mapping->path);
        put_text(", ", "build_id", mapping->build_id);
        put_number(", ", "start", mapping->start);
        put_number(", ", "limit", mapping->limit);
        put_number(", ", "offset", mapping->offset);
        printf("}");
    }
    printf("%s", profile->mapping_count > 0 ? "\n    ]" : "[]");
}

static void put_texts(const char *name, const char *const *texts, size_t count) {
    put_key(",\n    ", name);
    for (size_t i = 0; i < count; i++) {
        printf("%s", i == 0 ? "[" : ", ");
        escape_json(stdout, texts[i]);
    }
    printf("%s", count > 0 ? "]" : "[]");
}

static void put_profile(const struct profile *profile) {
    const char *keys[KEYS_MOST];
    put_key(",\n  ", "profile");
    put_number("{\n    ", "samples", profile->sample_count);
    put_number(",\n    ", "locations", profile->location_count);
    put_number(",\n    ", "named_locations", count_named(profile));
    put_number(",\n    ", "functions", profile->function_count);
    put_key(",\n    ", "time_ns");
    printf("%" PRId64, profile->time_ns);
    put_key(",\n    ", "duration_ns");
    printf("%" PRId64, profile->duration_ns);
    put_key(",\n    ", "period");
    printf("%" PRId64, profile->period);
    put_text(",\n    ", "period_type", profile->period_type.name);
    put_text(",\n    ", "period_unit", profile->period_type.unit);
    put_types(profile);
    put_modules(profile);
    put_texts("labels", keys, find_label_keys(profile, keys, KEYS_MOST));
    put_texts("comments", profile->comments, profile->comment_count);
    printf("\n  }");
}

static void print_json(const struct info *info) {
    put_run(info);
    if (info->profile != NULL) {
        put_profile(info->profile);
    }
    printf("\n}\n");
}

/* ---------------------------------------------------------------- the command */

static int run_info(int count, char **words) {
    (void)count;
    int status = EXIT_DONE;
    struct read_choice choice = {0};
    struct read_run *run = read_argument_run(words[0], &choice, &status);
    if (run == NULL) {
        return status;
    }
    struct info info = {.word = words[0], .run = run};
    if (choice.moment != PROFILE_NONE) {
        info.profile = read_chosen(run, &choice, words[0], &status);
    }
    if (status == EXIT_DONE && g.format == FORMAT_JSON) {
        print_json(&info);
    } else if (status == EXIT_DONE) {
        print_text(&info);
    }
    read_run_free(run);
    return status;
}

static const struct arg_option info_options[] = {
    {"format", 0, ARG_CHOICE, "FORMAT", "text|json", false, &g.format, "Text for people, or JSON"},
    {0},
};

const struct command command_info = {
    .name = "info",
    .summary = "Say what a profile holds",
    .usage = "[OPTION...] PROFILE",
    .text = "Prints what kind of file it is, which program it is about, how it was sampled, its "
            "snapshots, the total of each metric, labels and modules.\n\n"
            "    tally info server.4711.tally\n"
            "    tally info --format=json heap.pb.gz\n",
    .options = (const struct arg_option *const[]){info_options, NULL},
    .words = {1, 1},
    .run = run_info,
};
