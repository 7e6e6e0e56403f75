/* SPDX-License-Identifier: MIT
 *
 * cmd_ps.c - `tally ps`: which processes have the library.
 */
#include <pwd.h>
#include <stdlib.h>

#include "args/args.h"
#include "common/cli.h"
#include "common/escape.h"
#include "live/target.h"

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_NAMES };

static struct {
    bool all;
    unsigned format;
} options;

static const struct arg_option ps_options[] = {
    {"all", 'a', ARG_SWITCH, NULL, NULL, false, &options.all,
     "Also list processes that have the library but no page of statistics"},
    {"format", 0, ARG_CHOICE, "FORMAT", "text|json|names", false, &options.format,
     "As a table, as JSON, or the names alone for shells"},
    {0},
};

/* One line of the table. */
struct row {
    const struct target *target;
    struct target_page page;
    bool has_page;
    uint64_t rss;
    char user[32];
};

static uint64_t read_rss(long pid) {
    long kilobytes = target_status_number(pid, "VmRSS");
    return kilobytes > 0 ? (uint64_t)kilobytes * 1024 : 0;
}

static void read_row(const struct target *target, struct row *row) {
    *row = (struct row){.target = target, .rss = read_rss(target->pid)};
    row->has_page = target->page_fd >= 0 && target_read_page(target, &row->page);
    const struct passwd *user = getpwuid(target->uid);
    if (user != NULL) {
        snprintf(row->user, sizeof row->user, "%s", user->pw_name);
    } else {
        snprintf(row->user, sizeof row->user, "%u", target->uid);
    }
}

static const char *control_text(const struct row *row) {
    static const char *const rights[] = {"statistics only", "read", "write"};
    if (!row->has_page) {
        return "nothing";
    }
    return row->page.words.control < 3 ? rights[row->page.words.control] : "unknown";
}

static void print_text_row(const struct row *row) {
    char profile[48] = "off", cpu[32] = "off", live[32] = "-", rss[32];
    uint64_t rate = row->page.words.profile_rate;
    if (rate > 0) {
        snprintf(profile, sizeof profile, rate > 1 ? "1 per %s" : "everything",
                 size_text((int64_t)rate));
    }
    if (row->page.words.cpu_hz > 0) {
        snprintf(cpu, sizeof cpu, "%llu Hz", (unsigned long long)row->page.words.cpu_hz);
    }
    if (row->has_page) {
        snprintf(live, sizeof live, "%s", size_text((int64_t)row->page.words.requested));
    }
    snprintf(rss, sizeof rss, "%s", size_text((int64_t)row->rss));
    printf("%7ld  %-8s  %-15s  %10s  %10s  %-14s  %-7s  %s\n", row->target->pid,
           safe_text(row->user), safe_text(row->target->name), live, rss,
           row->has_page ? profile : "-", row->has_page ? cpu : "-", control_text(row));
}

static void print_json_row(const struct row *row, bool is_first) {
    printf("%s\n  {\"pid\": %ld, \"user\": ", is_first ? "" : ",", row->target->pid);
    escape_json(stdout, row->user);
    printf(", \"program\": ");
    escape_json(stdout, row->target->name);
    printf(", \"rss\": %llu", (unsigned long long)row->rss);
    if (row->has_page) {
        printf(", \"live\": %llu, \"profile_rate\": %llu, \"cpu_hz\": %llu",
               (unsigned long long)row->page.words.requested,
               (unsigned long long)row->page.words.profile_rate,
               (unsigned long long)row->page.words.cpu_hz);
    }
    printf(", \"control\": ");
    escape_json(stdout, control_text(row));
    printf("}");
}

static void print_rows(const struct target *list, size_t count) {
    size_t shown = 0;
    if (options.format == FORMAT_TEXT) {
        printf("%7s  %-8s  %-15s  %10s  %10s  %-14s  %-7s  %s\n", "PID", "USER", "PROGRAM", "LIVE",
               "RSS", "HEAP PROFILE", "CPU", "CONTROL");
    } else if (options.format == FORMAT_JSON) {
        printf("[");
    }
    for (size_t i = 0; i < count; i++) {
        struct row row;
        read_row(&list[i], &row);
        if (options.format == FORMAT_TEXT) {
            print_text_row(&row);
        } else if (options.format == FORMAT_JSON) {
            print_json_row(&row, shown == 0);
        } else {
            puts(safe_text(list[i].name));
        }
        shown++;
    }
    if (options.format == FORMAT_JSON) {
        printf("%s]\n", shown > 0 ? "\n" : "");
    }
}

static int run_ps(int count, char **words) {
    struct target *list = NULL;
    (void)count;
    (void)words;
    size_t found = target_list(&list, options.all);
    print_rows(list, found);
    for (size_t i = 0; i < found; i++) {
        target_close(&list[i]);
    }
    free(list);
    if (found == 0 && options.format == FORMAT_TEXT) {
        note("no process has the library; tally run PROGRAM starts one");
    }
    return EXIT_DONE;
}

const struct command command_ps = {
    .name = "ps",
    .summary = "List processes that have the library",
    .usage = "[OPTION...]",
    .text =
        "Lists the processes whose page of statistics can be read: those of the same user, or all "
        "of them for root. LIVE is what the program has asked for and not freed. CONTROL says "
        "what else can be done with it: nothing, reading (stats, dump) or everything (start, "
        "stop, set, purge).\n",
    .options = (const struct arg_option *const[]){ps_options, NULL},
    .run = run_ps,
};
