/* SPDX-License-Identifier: MIT
 *
 * live_stats.c - looks at a process and writes the bridge as text, JSON and Prometheus metrics.
 *
 * Text has one unit for all lines, so that the eye can add them up; the others have bytes.
 */
#include "live/live_stats.h"

#include <inttypes.h>
#include <string.h>

#include "common/escape.h"
#include "common/glyph.h"

enum { PATH_BYTES = 4096 };

/* The memory limit of the control group that the process is in; only what its own group says. */
static uint64_t read_cgroup_limit(long pid) {
    FILE *groups = fopen(target_proc_path(pid, "cgroup"), "re");
    char line[PATH_BYTES], path[PATH_BYTES + 64] = "";
    while (groups != NULL && fgets(line, sizeof line, groups) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *memory = strstr(line, ":memory:");
        if (strncmp(line, "0::/", 4) == 0 && path[0] == '\0') {
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", line + 3);
        } else if (memory != NULL) {
            snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/memory.limit_in_bytes",
                     memory + 8);
        }
    }
    if (groups != NULL) {
        fclose(groups);
    }
    FILE *limit = path[0] != '\0' ? fopen(path, "re") : NULL;
    uint64_t bytes = 0;
    if (limit != NULL) {
        bytes = fscanf(limit, "%" SCNu64, &bytes) == 1 ? bytes : 0;
        fclose(limit);
    }
    return bytes < (uint64_t)1 << 60 ? bytes : 0; /* v1 says "none" with a huge number */
}

/* In another time namespace the process' clock may be ahead of ours. */
static uint64_t since(uint64_t now_ns, uint64_t ns) {
    return now_ns > ns ? now_ns - ns : 0;
}

bool live_stats_look(const struct target *target, struct look_at_process *look) {
    look->target = target;
    if (!target_read_page(target, &look->page) ||
        !bridge_build(target, &look->page, &look->bridge)) {
        return false;
    }
    look->now_ns = cli_now_ns();
    look->cgroup_limit = read_cgroup_limit(target->pid);
    return true;
}

/* Totals only grow, but two looks may come from sums that were taken in another order. */
static double grown(uint64_t now, uint64_t before) {
    return now > before ? (double)(now - before) : 0;
}

struct live_rates live_stats_rates(const struct look_at_process *before,
                                   const struct look_at_process *look) {
    static const struct look_at_process nothing;
    const struct look_at_process *old = before != NULL ? before : &nothing;
    const struct stats_page *words = &look->page.words, *past = &old->page.words;
    uint64_t now = words->sum_ns > 0 ? words->sum_ns : words->refresh_ns; /* of the totals */
    uint64_t began = before == NULL      ? words->start_ns
                     : words->sum_ns > 0 ? past->sum_ns
                                         : past->refresh_ns;
    double seconds = now > began ? (double)(now - began) / 1e9 : 0;
    if (seconds <= 0) {
        return (struct live_rates){.is_known = false};
    }
    return (struct live_rates){
        .is_known = true,
        .malloc_per_s = grown(words->nmalloc, past->nmalloc) / seconds,
        .free_per_s = grown(words->nfree, past->nfree) / seconds,
        .bytes_per_s = grown(words->allocated_total, past->allocated_total) / seconds,
    };
}

/* Text. */

/* The unit of all lines. */
struct unit {
    double bytes;
    const char *name;
};

static void print_words(FILE *file, char sign, const char *what, const char *number,
                        const char *unit, const char *remark) {
    fprintf(file, "%c %-36s %12s %s%s%s\n", sign, what, number, unit,
            remark[0] != '\0' ? "   " : "", remark);
}

static void print_line(FILE *file, struct unit unit, char sign, const char *what, uint64_t bytes,
                       const char *remark) {
    int64_t tenths = (int64_t)((double)bytes / unit.bytes * 10 + 0.5);
    const char *number = ring_text("%s.%d", grouped_text(tenths / 10), (int)(tenths % 10));
    print_words(file, sign, what, number, unit.name, remark);
}

static double share(uint64_t part, uint64_t all) {
    return all > 0 ? 100 * (double)part / (double)all : 0;
}

static const char *group_text(const struct bridge_group *group) {
    bool is_nameless = strcmp(group->name, "[anon]") == 0;
    return is_nameless ? "mapped by the program" : safe_text(group->name);
}

/* "libfoo.so 61 MiB, stacks 34 MiB, mapped by the program 56 MiB". */
static const char *groups_text(const struct bridge *bridge, char text[256]) {
    enum { SHOWN = 3 };
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < bridge->group_count && i < SHOWN; i++) {
        length += (size_t)snprintf(text + length, 256 - length, "%s%.48s %s", i > 0 ? ", " : "",
                                   group_text(&bridge->groups[i]),
                                   size_text((int64_t)bridge->groups[i].rss));
    }
    return text;
}

/* "between blocks of 112 B 8.0 MiB, of 48 B 1.0 MiB": where most of the free space is. */
static const char *worst_text(const struct stats_page *words, char text[256]) {
    const uint64_t worst[][2] = {{words->worst_size_1, words->worst_free_1},
                                 {words->worst_size_2, words->worst_free_2},
                                 {words->worst_size_3, words->worst_free_3}};
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof worst / sizeof worst[0] && worst[i][1] > 0; i++) {
        length += (size_t)snprintf(text + length, 256 - length, "%s of %s %s",
                                   i > 0 ? "," : "between blocks", size_text((int64_t)worst[i][0]),
                                   size_text((int64_t)worst[i][1]));
    }
    return text;
}

static void print_head(FILE *file, const struct look_at_process *look) {
    const struct stats_page *words = &look->page.words;
    char profile[64] = "off";
    if (words->profile_rate > 1) {
        snprintf(profile, sizeof profile, "on (1 per %s)", size_text((int64_t)words->profile_rate));
    } else if (words->profile_rate == 1) {
        snprintf(profile, sizeof profile, "on (everything)");
    }
    uint64_t up = since(look->now_ns, words->start_ns);
    const char *dot = glyph(GLYPH_DOT);
    fprintf(file, "pid %ld %s%sup %s%slibtally %s%sheap profiling %s\n\n", look->target->pid,
            safe_text(look->target->name), dot, duration_text(up), dot, safe_text(words->version),
            dot, profile);
}

static void print_live(FILE *file, struct unit unit, const struct look_at_process *look) {
    const struct bridge *bridge = &look->bridge;
    char remark[128];
    snprintf(remark, sizeof remark, "live, %s blocks",
             grouped_text((int64_t)look->page.words.live_objects));
    print_line(file, unit, ' ', "what the program asked for", bridge->requested, remark);
    if (!bridge->knows_rounding) {
        print_words(file, '+', "rounding to size classes", "unknown", "   ", "in the line above");
        return;
    }
    snprintf(remark, sizeof remark, "%.1f %%", share(bridge->rounding, bridge->requested));
    print_line(file, unit, '+', "rounding to size classes", bridge->rounding, remark);
}

static void print_bridge(FILE *file, const struct look_at_process *look) {
    const struct bridge *bridge = &look->bridge;
    const struct stats_page *words = &look->page.words;
    struct unit unit =
        bridge->rss < 10 << 20 ? (struct unit){1024, "KiB"} : (struct unit){1 << 20, "MiB"};
    char remark[256];
    print_live(file, unit, look);
    print_line(file, unit, '+', "free space inside used pages", bridge->inside,
               worst_text(words, remark));
    snprintf(remark, sizeof remark, "%s thread%s", grouped_text((int64_t)words->threads),
             words->threads == 1 ? "" : "s");
    print_line(file, unit, '+', "thread caches", bridge->cached, remark);
    print_line(file, unit, '+', "empty pages kept for reuse", bridge->kept, "");
    print_line(file, unit, '+', "allocator bookkeeping", bridge->own, "");
    print_line(file, unit, '-', "of all that without memory", bridge->untouched,
               "never written to, or swapped out");
    remark[0] = '\0';
    if (bridge->assumed > 0) {
        snprintf(remark, sizeof remark, "%s of it assumed: the heap has more ranges than the page",
                 size_text((int64_t)bridge->assumed));
    }
    print_line(file, unit, '=', "heap, resident", bridge->heap, remark);
    print_line(file, unit, '+', "binaries, stacks, other mappings", bridge->other,
               groups_text(bridge, remark));
    snprintf(remark, sizeof remark, "%.1f %%", share(bridge->unexplained, bridge->rss));
    print_line(file, unit, '+', "unexplained", bridge->unexplained, remark);
    remark[0] = '\0';
    if (look->cgroup_limit > 0) {
        snprintf(remark, sizeof remark, "cgroup limit %s (%.0f %%)",
                 size_text((int64_t)look->cgroup_limit), share(bridge->rss, look->cgroup_limit));
    }
    print_line(file, unit, '=', "RSS", bridge->rss, remark);
}

static void print_rates(FILE *file, const struct look_at_process *look,
                        const struct look_at_process *before) {
    struct live_rates rates = live_stats_rates(before, look);
    if (!rates.is_known) {
        fprintf(file, "\n  rates  unknown: the program has told nothing new\n");
        return;
    }
    fprintf(file, "\n  rates  %s malloc/s%s%s free/s%s%s/s%s\n",
            count_text((int64_t)rates.malloc_per_s), glyph(GLYPH_DOT),
            count_text((int64_t)rates.free_per_s), glyph(GLYPH_DOT),
            size_text((int64_t)rates.bytes_per_s), before == NULL ? ", since the start" : "");
}

/* How old the page is, if it matters. */
static void print_age(FILE *file, const struct look_at_process *look) {
    const struct stats_page *words = &look->page.words;
    uint64_t age = since(look->now_ns, words->refresh_ns);
    if (age <= UINT64_C(2000000000)) {
        return;
    }
    if (words->behind == 0) {
        fprintf(file, "  the program has not needed its heap for %s; its figures are of then\n",
                duration_text(age));
        return;
    }
    const char *bound = words->behind == UINT64_MAX
                            ? "any amount"
                            : ring_text("up to %s", size_text((int64_t)words->behind));
    fprintf(file,
            "  figures are those of %s ago; the program has called since, and %s may have moved\n",
            duration_text(age), bound);
}

void live_stats_print_text(FILE *file, const struct look_at_process *look,
                           const struct look_at_process *before) {
    print_head(file, look);
    print_bridge(file, look);
    print_rates(file, look, before);
    print_age(file, look);
    if (look->page.is_torn) {
        fprintf(file,
                "  the process stands still in the middle of counting; figures may not fit\n");
    }
}

/* A line per look. */

void live_stats_print_heading(FILE *file) {
    fprintf(file, "%10s  %10s  %10s  %10s  %10s  %9s  %9s  %10s\n", "LIVE", "HEAP", "KEPT", "OTHER",
            "RSS", "MALLOC/S", "FREE/S", "BYTES/S");
}

void live_stats_print_row(FILE *file, const struct look_at_process *look,
                          const struct look_at_process *before) {
    struct live_rates rates = live_stats_rates(before, look);
    const struct bridge *bridge = &look->bridge;
    fprintf(file, "%10s  %10s  %10s  %10s  %10s  %9s  %9s  %10s\n",
            size_text((int64_t)bridge->requested), size_text((int64_t)bridge->heap),
            size_text((int64_t)bridge->kept), size_text((int64_t)bridge->other),
            size_text((int64_t)bridge->rss),
            rates.is_known ? count_text((int64_t)rates.malloc_per_s) : "-",
            rates.is_known ? count_text((int64_t)rates.free_per_s) : "-",
            rates.is_known ? size_text((int64_t)rates.bytes_per_s) : "-");
}

/* For programs. */

/* A figure under its names for JSON and Prometheus. */
struct figure {
    const char *name, *type, *help;
    uint64_t value; /* or unknown */
};

static const uint64_t unknown = UINT64_MAX;

enum { FIGURES_MOST = 40 };

static size_t list_figures(const struct look_at_process *look, struct figure *figures) {
    const struct bridge *bridge = &look->bridge;
    const struct stats_page *words = &look->page.words;
    const struct figure list[] = {
        {"heap_live_bytes", "gauge",
         "Bytes the program asked for and has not freed, with their rounding where that is unknown.",
         bridge->requested},
        {"heap_rounding_bytes", "gauge", "Bytes lost to size classes.",
         bridge->knows_rounding ? bridge->rounding : unknown},
        {"heap_inside_bytes", "gauge", "Free bytes inside of pages in use.", bridge->inside},
        {"heap_cached_bytes", "gauge", "Bytes of free objects that threads keep.", bridge->cached},
        {"heap_kept_bytes", "gauge", "Bytes of empty pages kept for reuse.", bridge->kept},
        {"heap_own_bytes", "gauge", "Bytes of the allocator's bookkeeping.", bridge->own},
        {"heap_untouched_bytes", "gauge",
         "Bytes of the above that have no memory: never written to, or swapped out.",
         bridge->untouched},
        {"heap_resident_bytes", "gauge", "Memory of the heap.", bridge->heap},
        {"files_resident_bytes", "gauge", "Memory of binaries and other files.", bridge->files},
        {"stacks_resident_bytes", "gauge", "Memory of stacks.", bridge->stacks},
        {"shared_resident_bytes", "gauge", "Shared memory.", bridge->shared},
        {"anonymous_resident_bytes", "gauge", "Memory of other anonymous mappings.",
         bridge->anonymous},
        {"unexplained_bytes", "gauge", "Memory that nothing above accounts for.",
         bridge->unexplained},
        {"resident_bytes", "gauge", "Memory of the process.", bridge->rss},
        {"heap_mapped_bytes", "gauge", "Address space of the heap.", words->mapped},
        {"heap_objects", "gauge", "Objects that the program holds.", words->live_objects},
        {"heap_threads", "gauge", "Threads with a cache.", words->threads},
        {"heap_limit_bytes", "gauge", "Hard limit of the heap, or 0.", words->limit_hard},
        {"profile_rate_bytes", "gauge", "Mean bytes between samples; 0 when the profiler is off.",
         words->profile_rate},
        {"profile_samples", "gauge", "Live samples.", words->profile_samples},
        {"cpu_profile_hertz", "gauge", "Samples per second of processor time; 0 when it is off.",
         words->cpu_hz},
        {"allocations_total", "counter", "Allocations so far.", words->nmalloc},
        {"frees_total", "counter", "Frees so far, without those that were not looked at yet.",
         words->nfree},
        {"allocated_bytes_total", "counter", "Bytes allocated so far.", words->allocated_total},
        {"freed_bytes_total", "counter", "Bytes freed so far.", words->freed_total},
        {"purged_bytes_total", "counter", "Bytes given back to the kernel so far.",
         words->purged_total},
    };
    _Static_assert(sizeof list / sizeof list[0] <= FIGURES_MOST, "they fit");
    memcpy(figures, list, sizeof list);
    return sizeof list / sizeof list[0];
}

void live_stats_print_json(FILE *file, const struct look_at_process *look) {
    struct figure figures[FIGURES_MOST];
    size_t count = list_figures(look, figures);
    const struct stats_page *words = &look->page.words;
    fprintf(file, "{\"pid\": %ld, \"program\": ", look->target->pid);
    escape_json(file, look->target->name);
    fprintf(file, ", \"version\": ");
    escape_json(file, words->version);
    fprintf(file,
            ", \"uptime_ns\": %" PRIu64 ", \"age_ns\": %" PRIu64 ", \"behind_bytes\": %" PRIu64
            ", \"control\": %" PRIu64,
            since(look->now_ns, words->start_ns), since(look->now_ns, words->refresh_ns),
            words->behind, words->control);
    for (size_t i = 0; i < count; i++) {
        fprintf(file, ", \"%s\": ", figures[i].name);
        fprintf(file, figures[i].value == unknown ? "null" : "%" PRIu64, figures[i].value);
    }
    fprintf(file, "}\n");
}

void live_stats_print_prometheus(FILE *file, const struct look_at_process *look) {
    struct figure figures[FIGURES_MOST];
    size_t count = list_figures(look, figures);
    for (size_t i = 0; i < count; i++) {
        const struct figure *figure = &figures[i];
        if (figure->value == unknown) {
            continue;
        }
        fprintf(file, "# HELP tally_%s %s\n# TYPE tally_%s %s\n", figure->name, figure->help,
                figure->name, figure->type);
        fprintf(file, "tally_%s{pid=\"%ld\",exe=", figure->name, look->target->pid);
        cli_print_quoted(file, look->target->name);
        fprintf(file, "} %" PRIu64 "\n", figure->value);
    }
}
