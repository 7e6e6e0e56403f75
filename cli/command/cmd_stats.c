/* SPDX-License-Identifier: MIT
 *
 * cmd_stats.c - `tally stats`: the memory of a running process, line by line.
 *
 * It reads the page of statistics and /proc; it asks nothing of the process, so it works while the
 * process is stopped or hangs.
 */
#include "args/args.h"
#include "common/cli.h"
#include "live/live_stats.h"
#include "live/serve.h"

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_PROMETHEUS };

static struct {
    uint64_t every_ns, times;
    unsigned format;
    const char *path, *socket;
} options;

static const struct arg_option stats_options[] = {
    {"every", 0, ARG_DURATION, "DUR", NULL, false, &options.every_ns,
     "Print an update this often until the process ends; as text, one line each"},
    {"times", 0, ARG_NUMBER, "N", NULL, false, &options.times,
     "With --every: number of updates, then exit"},
    {"format", 0, ARG_CHOICE, "FORMAT", "text|json|prometheus", false, &options.format,
     "Text for people, JSON (one object per line), or Prometheus metrics"},
    {"output", 'o', ARG_TEXT, "OUT", NULL, false, &options.path,
     "Write to this file; with --every it is replaced each time"},
    {"serve", 0, ARG_TEXT, "PATH.sock", NULL, false, &options.socket,
     "Serve HTTP at this Unix socket, which only you can open, until the process ends: "
     "Prometheus metrics, or JSON with --format=json"},
    {0},
};

static void print_look(FILE *file, const struct look_at_process *look,
                       const struct look_at_process *before, bool is_row) {
    switch ((enum format)options.format) {
    case FORMAT_TEXT:
        if (is_row) {
            live_stats_print_row(file, look, before);
        } else {
            live_stats_print_text(file, look, before);
        }
        break;
    case FORMAT_JSON:
        live_stats_print_json(file, look);
        break;
    case FORMAT_PROMETHEUS:
        live_stats_print_prometheus(file, look);
        break;
    }
}

/* A file holds only the last look, complete; stdout has all of them. */
static bool write_look(const struct look_at_process *look, const struct look_at_process *before) {
    struct output output;
    if (!output_open(&output, options.path, options.every_ns > 0)) {
        return false;
    }
    print_look(output.file, look, before, options.every_ns > 0 && output.path == NULL);
    return output_close(&output);
}

static enum exit_code look_once(const struct target *target) {
    static struct look_at_process look;
    if (!live_stats_look(target, &look)) {
        return EXIT_NO_TARGET;
    }
    return write_look(&look, NULL) ? EXIT_DONE : EXIT_OWN_FAILURE;
}

/* The process may end at any time: that ends the command and is no error. */
static enum exit_code look_again_and_again(const struct target *target) {
    static struct look_at_process looks[2];
    uint64_t next = cli_now_ns();
    if (options.format == FORMAT_TEXT && options.path == NULL) {
        live_stats_print_heading(stdout);
    }
    for (uint64_t i = 0; options.times == 0 || i < options.times; i++) {
        if (i > 0) {
            next += options.every_ns;
            cli_wait_until(next);
            if (!target_is_alive(target)) {
                note("process %ld has ended", target->pid);
                return EXIT_DONE;
            }
        }
        if (!live_stats_look(target, &looks[i % 2])) {
            return target_is_alive(target) ? EXIT_NO_TARGET : EXIT_DONE;
        }
        if (!write_look(&looks[i % 2], i > 0 ? &looks[(i + 1) % 2] : NULL)) {
            return EXIT_OWN_FAILURE;
        }
    }
    return EXIT_DONE;
}

static bool print_page(FILE *file, void *object) {
    static struct look_at_process look;
    if (!live_stats_look(object, &look)) {
        return false;
    }
    print_look(file, &look, NULL, false);
    return true;
}

static bool has_ended(void *object) {
    return !target_is_alive(object);
}

static enum exit_code serve_looks(struct target *target) {
    options.format = options.format == FORMAT_TEXT ? FORMAT_PROMETHEUS : options.format;
    const struct serve_page page = {.type = options.format == FORMAT_JSON
                                                ? "application/json"
                                                : "text/plain; version=0.0.4; charset=utf-8",
                                    .print = print_page,
                                    .is_over = has_ended,
                                    .object = target};
    enum exit_code code = serve(options.socket, &page);
    if (code == EXIT_DONE && !target_is_alive(target)) {
        note("process %ld has ended", target->pid);
    }
    return code;
}

static int run_stats(int count, char **words) {
    struct target target;
    (void)count;
    if (options.socket != NULL && (options.every_ns > 0 || options.path != NULL)) {
        return complain(EXIT_USAGE, "--serve looks whenever somebody asks: it goes with neither"
                                    " --every nor -o");
    }
    enum exit_code code = target_open(words[0], true, &target);
    if (code != EXIT_DONE) {
        return code;
    }
    code = options.socket != NULL ? serve_looks(&target)
           : options.every_ns > 0 ? look_again_and_again(&target)
                                  : look_once(&target);
    target_close(&target);
    return code;
}

const struct command command_stats = {
    .name = "stats",
    .summary = "Explain the memory of a running process, line by line",
    .usage = "[OPTION...] TARGET",
    .text =
        "TARGET is a process id, the name of a program that exactly one process with the library "
        "runs, or the path of a control socket.\n"
        "\n"
        "Prints where the memory of the process is: what the program asked for, what the "
        "allocator adds, and everything else that the kernel counts. The lines add up to RSS. The "
        "process is not asked anything, so this works for a stopped one too.\n"
        "\n"
        "    tally stats server\n"
        "    tally stats --every=1s 4711\n"
        "    tally stats --every=15s --format=prometheus -o /var/lib/metrics/server.prom server\n"
        "    tally stats --serve=/run/user/1000/server.sock server\n",
    .options = (const struct arg_option *const[]){stats_options, NULL},
    .words = {1, 1},
    .run = run_stats,
};
