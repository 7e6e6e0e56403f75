/* SPDX-License-Identifier: MIT
 *
 * cmd_run.c - `tally run`: starts a program under the library and reports where its memory went.
 *
 * The program runs with the library preloaded (run_program.c) and we end as it did.  Then the file
 * that the library wrote (recording.c) is read, named and summed up on a card (card.c).
 *
 * The loader skips a library that it cannot map, with one line of warning at most.  The proof that
 * ours was there is the recording, made at its start; without one, the program's file says why.
 */
#define _GNU_SOURCE /* sigabbrev_np */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "command/commands.h"
#include "common/cli.h"
#include "names/symbolize.h"
#include "run/card.h"
#include "run/elf_facts.h"
#include "run/recording.h"
#include "run/run_program.h"

enum { SITES_SHOWN = 5, NS_PER_SECOND = 1000000000 };

/* ---------------------------------------------------------------- options */

static struct run_wishes wishes = {.rate = "dev", .cpu_hz = RUN_NO_CPU};

static const struct arg_option run_options[] = {
    {"rate", 0, ARG_TEXT, "prod|dev|exact|SIZE", NULL, false, &wishes.rate,
     "Mean bytes between two samples: prod 512 KiB, dev 64 KiB (the default), exact for every "
     "allocation; other sizes are rounded to a power of two"},
    {"cpu", 0, ARG_NUMBER, "HZ", RUN_CPU_HZ, true, &wishes.cpu_hz,
     "Also record where processor time goes, with HZ samples per second of each thread's "
     "processor time; 100 unless given"},
    {"output", 'o', ARG_TEXT, "FILE.tally", NULL, false, &wishes.output,
     "Where the recording goes, instead of PROGRAM.PID.tally in this directory"},
    {"report", 0, ARG_CHOICE, "WHAT", "summary|none", false, &wishes.report,
     "What is printed to standard error at the end"},
    {"every", 0, ARG_DURATION, "DUR", NULL, false, &wishes.every_ns,
     "Time between snapshots at first, 1s unless given; it doubles after every 256 snapshots"},
    {"every-bytes", 0, ARG_SIZE, "SIZE", NULL, false, &wishes.every_bytes,
     "Also take a snapshot whenever this many bytes have been allocated"},
    {"dump-at", 0, ARG_LIST, "WHEN", NULL, false, &wishes.dump_at,
     "Also take a snapshot at rss=90% of the memory limit, rss=SIZE, heap=SIZE, every +SIZE, "
     "exit, or signal=N"},
    {"children", 0, ARG_TEXT, "all|none|GLOB", NULL, false, &wishes.children,
     "Which descendants are recorded, by the name of their program, each in a file of its own; "
     "none unless given"},
    {"leaks", 0, ARG_SWITCH, NULL, NULL, false, &wishes.leaks,
     "Look for leaks when the program exits; the summary and tally leak-check show them"},
    {"exit-code-on-leak", 0, ARG_NUMBER, "N", NULL, false, &wishes.leak_exit_code,
     "Exit with N if the program exits with 0 but has definite leaks; implies --leaks"},
    {"depth", 0, ARG_NUMBER, "N", NULL, false, &wishes.depth,
     "Frames kept of each call stack; 128 unless given, at most 256"},
    {"timeout", 0, ARG_DURATION, "DUR", NULL, false, &wishes.timeout_ns,
     "End the program after this time, with SIGTERM and, 5 seconds later, SIGKILL; the exit "
     "status is 124"},
    {"wait", 0, ARG_SWITCH, NULL, NULL, false, &wishes.wait,
     "Also wait for processes that the program leaves running; Ctrl-C stops waiting"},
    {"control", 0, ARG_CHOICE, "RIGHTS", "write|read|off", false, &wishes.control,
     "What `tally` may do to the program while it runs"},
    {"preload-only", 0, ARG_SWITCH, NULL, NULL, false, &wishes.preload_only,
     "Print the environment that would be set, then exit"},
    {0},
};

/* ---------------------------------------------------------------- the card */

static struct card_style choose_style(void) {
    enum { WIDTH_WITHOUT_TERMINAL = 110 };
    struct winsize size;
    bool is_terminal = isatty(STDERR_FILENO);
    const char *columns = getenv("COLUMNS");
    struct card_style style = {
        .width = WIDTH_WITHOUT_TERMINAL,
        .has_color = args_has_color(STDERR_FILENO),
    };
    if (columns != NULL && atoi(columns) > 0) {
        style.width = (unsigned)atoi(columns);
    } else if (is_terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        style.width = size.ws_col;
    }
    return style;
}

static void describe_end(int status, char *text, size_t bytes) {
    text[0] = '\0';
    if (run_program_is_late()) {
        snprintf(text, bytes, "ended by --timeout");
    } else if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        snprintf(text, bytes, "killed by SIG%s", name != NULL ? name : "?");
    } else if (WEXITSTATUS(status) != 0) {
        snprintf(text, bytes, "exit status %d", WEXITSTATUS(status));
    }
}

static void print_card(const struct run_plan *plan, const struct recording *found, int status,
                       uint64_t took_ns) {
    static struct recording_children children;
    children.since = time(NULL) - (time_t)(took_ns / NS_PER_SECOND) - 1;
    char end[64];
    describe_end(status, end, sizeof end);
    if (wishes.children != NULL) {
        recording_settle_children(plan, run_program_pid(), &children);
    }
    symbolize(found->run->moments[found->run->moment_count - 1].profile, &args_symbolize);
    if (found->run->cpu_count > 0) {
        symbolize(found->run->cpu[found->run->cpu_count - 1].profile, &args_symbolize);
    }
    if (found->run->leaks != NULL) {
        symbolize(found->run->leaks->profile, &args_symbolize);
    }
    struct card card = {
        .run = found->run,
        .path = path_from_here(found->path),
        .file_bytes = found->run->file_bytes,
        .end = end,
        .wall_ns = took_ns,
        .sites_most = SITES_SHOWN,
        .children = children.count,
        .children_path = path_from_here(children.pattern),
    };
    fputc('\n', stderr);
    card_print(stderr, &card, choose_style());
}

enum { NOT_SEARCHED = -1 };

/* Definite leaks in the recording. */
static int64_t leaks_of(const struct read_run *run) {
    return run != NULL && run->leaks != NULL ? run->leaks->sums[READ_LEAK_DEFINITE].objects
                                             : NOT_SEARCHED;
}

/* How many objects the program has lost, or NOT_SEARCHED. */
static int64_t report(const struct run_plan *plan, const char *program, int status,
                      uint64_t since_ns, uint64_t took_ns) {
    struct recording found;
    char why[READ_WHY_BYTES] = "";
    if (!recording_find(plan, run_program_pid(), since_ns, &found, why)) {
        warn("no summary of %s: %s", safe_text(program),
             elf_explain_absence(program, plan->library));
        return NOT_SEARCHED;
    }
    if (wishes.report == RUN_REPORT_NONE) {
        note("the recording is %s", safe_text(path_from_here(found.path)));
    } else if (found.run == NULL) {
        warn("no summary of %s: %s: %s", safe_text(program), safe_text(found.path), why);
    } else if (found.run->moment_count == 0) {
        warn("no summary of %s: it ended before the first snapshot, and not by exit(3) (%s)",
             safe_text(program), safe_text(path_from_here(found.path)));
    } else {
        print_card(plan, &found, status, took_ns);
    }
    int64_t leaks = leaks_of(found.run);
    read_run_free(found.run);
    return leaks;
}

/* ---------------------------------------------------------------- the command */

static uint64_t wall_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static int exit_code_of(int status) {
    if (run_program_is_late()) {
        return EXIT_TIMEOUT;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int run(int count, char **words) {
    static struct run_plan plan;
    words[count] = NULL; /* The words that were options are still after it. */
    if (!run_plan_make(&plan, &wishes, words[0])) {
        return (int)plan.failure;
    }
    if (wishes.preload_only) {
        return run_program_print(&plan);
    }
    uint64_t start = cli_now_ns(), since = wall_ns();
    if (wishes.wait) {
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
    int error = run_program_start(&plan, words);
    if (error != 0) {
        int code = run_program_pid() < 0                 ? EXIT_OWN_FAILURE
                   : error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND
                                                         : EXIT_NOT_EXECUTABLE;
        if (run_program_pid() > 0) {
            (void)run_program_wait();
        }
        return (int)complain((enum exit_code)code, "cannot run %s: %s", safe_text(words[0]),
                             strerror(error));
    }
    int status = run_program_wait();
    if (wishes.wait) {
        run_program_wait_for_rest();
    }
    int64_t leaks = report(&plan, words[0], status, since, cli_now_ns() - start);
    int code = exit_code_of(status);
    if (code != 0 || wishes.leak_exit_code == 0) {
        return code;
    }
    if (leaks == NOT_SEARCHED) {
        return (int)complain(EXIT_OWN_FAILURE,
                             "%s was not searched for leaks: nothing is known about them",
                             safe_text(words[0]));
    }
    return leaks > 0 ? (int)wishes.leak_exit_code : code;
}

static const struct arg_option *const option_tables[] = {run_options, args_symbolize_options, NULL};

const struct command command_run = {
    .name = "run",
    .summary = "Run a program and say where its memory went",
    .usage = "[OPTION...] [--] PROGRAM [ARG...]",
    .text =
        "Starts PROGRAM with the library loaded, waits for it, and prints a summary to standard "
        "error: the peak memory and when it was reached, what was live at the end, a chart, and "
        "the lines of code that held most; with --cpu also the functions that used the most "
        "processor time.  The recording stays in PROGRAM.PID.tally for `tally report`.\n"
        "\n"
        "The exit status is that of PROGRAM, or that of --exit-code-on-leak; 128+N if signal N "
        "ended it, 124 after --timeout, 125 if tally itself failed, 126 and 127 if PROGRAM cannot "
        "be run or does not exist.\n"
        "\n"
        "    tally run ./server --port 8080\n"
        "    tally run --cpu ./server --port 8080\n"
        "    tally run --rate=exact -o test.tally -- make check",
    .options = option_tables,
    .stops_at_word = true,
    .words = {1, SIZE_MAX},
    .run = run,
};
