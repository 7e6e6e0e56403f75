/* SPDX-License-Identifier: MIT
 *
 * cmd_control.c - `tally start`, `stop`, `dump`, `set` and `purge`: steering a running process.
 *
 * Each is a request on the control socket.  The process writes its output to a descriptor that it
 * gets from here, so the file belongs to the user who asked and lies where that user is.  Ctrl-C
 * never stops the process, and leaves no half-written file.
 */
#define _GNU_SOURCE /* memfd_create */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "args/args.h"
#include "common/cli.h"
#include "common/glyph.h"
#include "export/export.h"
#include "live/live_dump.h"
#include "live/request.h"
#include "live/target.h"
#include "run/run_plan.h"

static const uint64_t answer_ns = UINT64_C(5000000000);

static struct {
    const char *rate;
    uint64_t for_ns, cpu_hz;
    const char *path, *format;
    unsigned kind;      /* enum live_kind */
    unsigned stop_kind; /* enum stop_kind */
    bool wants_heap, discard, no_names;
} options = {.cpu_hz = RUN_NO_CPU};

enum stop_kind { STOP_ALL, STOP_HEAP, STOP_CPU };

/* A request about all profilers or one of them; the answer stays in `reply`. */
static enum exit_code ask(const struct target *target, const char *verb, const char *kind,
                          struct reply *reply) {
    struct wire_writer request;
    wire_begin(&request, verb);
    if (kind != NULL) {
        wire_add(&request, "kind", kind);
    }
    return request_send(target, &request, -1, answer_ns, reply);
}

/* Dumps. */

/* The format asked for, or that of the file's ending.  NULL after a sentence. */
static const struct export_format *choose_format(void) {
    const struct export_format *format = export_by_name("pprof");
    if (options.kind == LIVE_ALLOCS && options.no_names) {
        complain(EXIT_USAGE, "--no-names saves what the process writes, and that is --kind=heap");
        return NULL;
    }
    if (options.format != NULL) {
        format = export_by_name(options.format);
    } else if (options.path != NULL && export_by_ending(options.path) != NULL) {
        format = export_by_ending(options.path);
    }
    if (format == NULL) {
        complain(EXIT_USAGE,
                 "option --format: there is no format '%s'; tally export --help lists "
                 "them",
                 safe_text(options.format));
    }
    return format;
}

/* "server.4711.pb.gz", "server.4711.cpu.pb.gz". */
static const char *default_path(const struct target *target, const struct export_format *format,
                                enum live_kind kind) {
    static char path[TARGET_NAME_BYTES + 64];
    snprintf(path, sizeof path, "%s.%ld%s%.*s", target->name, target->pid,
             kind == LIVE_CPU ? ".cpu" : "", (int)strcspn(format->endings, " "), format->endings);
    for (char *c = path; *c != '\0'; c++) {
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL) {
            *c = '_';
        }
    }
    return path;
}

/* The process writes only to regular files; other outputs get a copy. */
static int file_for(FILE *file) {
    struct stat status;
    int fd = fileno(file);
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        return fd;
    }
    return memfd_create("tally-dump", MFD_CLOEXEC);
}

static bool copy_into(FILE *file, int fd) {
    char buffer[65536];
    off_t at = 0;
    for (ssize_t got; (got = pread(fd, buffer, sizeof buffer, at)) > 0; at += got) {
        if (fwrite(buffer, 1, (size_t)got, file) != (size_t)got) {
            return false;
        }
    }
    return true;
}

/* As the process writes it. */
static enum exit_code dump_raw(const struct target *target, enum live_kind kind,
                               const struct export_format *format, struct output *output) {
    struct reply reply;
    int fd = file_for(output->file);
    if (fd < 0) {
        return complain(EXIT_OWN_FAILURE, "no place for the output: %s", strerror(errno));
    }
    enum exit_code code = live_dump_raw(target, kind, format->name, fd, &reply);
    if (code == EXIT_DONE && fd != fileno(output->file) && !copy_into(output->file, fd)) {
        code = complain(EXIT_OWN_FAILURE, "cannot write the output: %s", strerror(errno));
    }
    if (fd != fileno(output->file)) {
        close(fd);
    }
    return code;
}

/* With names, in any format. */
static enum exit_code dump_named(const struct target *target, enum live_kind kind,
                                 const struct export_format *format, struct output *output,
                                 struct symbolize_result *names) {
    struct profile *profile = NULL;
    enum exit_code code = live_dump_take(target, kind, &profile, names);
    if (code == EXIT_DONE && !format->write(profile, output)) {
        code = EXIT_OWN_FAILURE;
    }
    profile_free(profile);
    return code;
}

static void tell_saved(const struct output *output, const struct symbolize_result *names) {
    struct stat status;
    if (output->path == NULL || stat(output->path, &status) != 0) {
        return;
    }
    if (names->addresses > 0) {
        note("saved %s (%s)%s%s of %s addresses have a name", safe_text(output->path),
             size_text(status.st_size), glyph(GLYPH_DOT), grouped_text(names->named),
             grouped_text(names->addresses));
    } else {
        note("saved %s (%s)", safe_text(output->path), size_text(status.st_size));
    }
}

/* Does the process write this format itself, and the kind? */
static bool is_of_process(const struct export_format *format, enum live_kind kind) {
    if (kind == LIVE_ALLOCS) {
        return false;
    }
    if (strcmp(format->name, "pprof") == 0) {
        return options.no_names;
    }
    return kind == LIVE_CPU
               ? strcmp(format->name, "gperftools-cpu") == 0
               : strcmp(format->name, "jemalloc") == 0 || strcmp(format->name, "gperftools") == 0;
}

/* A file that is there already is found out about before anything is recorded for it. */
static enum exit_code judge_output(const struct target *target, enum live_kind kind) {
    const struct export_format *format = choose_format();
    if (format == NULL) {
        return EXIT_USAGE;
    }
    const char *path = options.path != NULL ? options.path : default_path(target, format, kind);
    return output_judge(path, false) ? EXIT_DONE : EXIT_OWN_FAILURE;
}

static enum exit_code save_dump(const struct target *target, enum live_kind kind) {
    struct output output;
    struct symbolize_result names = {.addresses = 0};
    const struct export_format *format = choose_format();
    if (format == NULL) {
        return EXIT_USAGE;
    }
    const char *path = options.path != NULL ? options.path : default_path(target, format, kind);
    if (!output_open(&output, path, false)) {
        return EXIT_OWN_FAILURE;
    }
    enum exit_code code = is_of_process(format, kind)
                              ? dump_raw(target, kind, format, &output)
                              : dump_named(target, kind, format, &output, &names);
    if (code != EXIT_DONE) {
        output_discard(&output);
        return code;
    }
    if (!output_close(&output)) {
        return EXIT_OWN_FAILURE;
    }
    tell_saved(&output, &names);
    return EXIT_DONE;
}

/* Start and stop. */

static bool parse_rate(const char *text, uint64_t *rate) {
    static const struct {
        const char *name;
        uint64_t bytes;
    } names[] = {{"prod", 512 << 10}, {"dev", 64 << 10}, {"exact", 1}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i].name) == 0) {
            *rate = names[i].bytes;
            return true;
        }
    }
    if (parse_size(text, rate) && *rate > 0) {
        return true;
    }
    return decline("option --rate: '%s' is neither prod, dev, exact nor a size", safe_text(text));
}

static volatile sig_atomic_t is_interrupted;

static void interrupt(int number) {
    (void)number;
    is_interrupted = 1;
}

/* Ends early with Ctrl-C, and when the process ends. */
static void wait_for(const struct target *target, uint64_t ns) {
    struct sigaction action = {.sa_handler = interrupt}, old;
    uint64_t until = cli_now_ns() + ns;
    sigaction(SIGINT, &action, &old);
    for (uint64_t now = cli_now_ns(); now < until && !is_interrupted && target_is_alive(target);
         now = cli_now_ns()) {
        uint64_t left = until - now < 200000000 ? until - now : 200000000;
        struct timespec nap = {0, (long)left};
        nanosleep(&nap, NULL);
    }
    sigaction(SIGINT, &old, NULL);
}

static bool wants_cpu(void) {
    return options.cpu_hz != RUN_NO_CPU;
}

/* Memory is meant unless only the processor's time is named. */
static bool wants_heap(void) {
    return options.wants_heap || options.rate != NULL || !wants_cpu();
}

static enum exit_code start_cpu(const struct target *target) {
    struct wire_writer request;
    struct reply reply;
    wire_begin(&request, "start");
    wire_add(&request, "kind", "cpu");
    wire_add_number(&request, "hz", options.cpu_hz);
    enum exit_code code = request_send(target, &request, -1, answer_ns, &reply);
    if (code == EXIT_DONE) {
        note("armed%s%llu samples of each thread per second of processor time", glyph(GLYPH_DOT),
             (unsigned long long)request_number(&reply, "hz"));
    }
    return code;
}

static enum exit_code stop_cpu(const struct target *target) {
    struct reply reply;
    enum exit_code code = ask(target, "stop", "cpu", &reply);
    if (code == EXIT_DONE) {
        note("stopped%s%s samples of processor time, %s lost", glyph(GLYPH_DOT),
             grouped_text((int64_t)request_number(&reply, "samples")),
             grouped_text((int64_t)request_number(&reply, "lost")));
        if (request_number(&reply, "left_out") > 0) {
            note("%s threads are missing: they block the signal, or have no timer",
                 grouped_text((int64_t)request_number(&reply, "left_out")));
        }
    }
    return code;
}

static enum exit_code start_heap(const struct target *target) {
    uint64_t rate = 0;
    struct wire_writer request;
    struct reply reply;
    struct target_page page = {.range_count = 0};
    if (options.rate != NULL && !parse_rate(options.rate, &rate)) {
        return EXIT_USAGE;
    }
    if (target->page_fd >= 0) {
        target_read_page(target, &page);
    }
    wire_begin(&request, "start");
    if (options.rate != NULL) { /* Another rate makes the process forget what it recorded so far. */
        wire_add_number(&request, "rate", rate);
    }
    enum exit_code code = request_send(target, &request, -1, answer_ns, &reply);
    if (code == EXIT_DONE && target->page_fd < 0) {
        note("armed; what is live already has no stack");
    } else if (code == EXIT_DONE) {
        note("armed%s%s live are older than this and have no stack", glyph(GLYPH_DOT),
             size_text((int64_t)page.words.requested));
    }
    return code;
}

/* Memory is saved before it stops, time afterwards: stopping counts its last samples. */
static enum exit_code end_profiles(const struct target *target) {
    enum exit_code code = EXIT_DONE;
    struct reply reply;
    if (wants_heap()) {
        code = save_dump(target, (enum live_kind)options.kind);
        enum exit_code stopped = ask(target, "stop", "heap", &reply);
        code = code != EXIT_DONE ? code : stopped;
    }
    if (wants_cpu()) {
        enum exit_code stopped = stop_cpu(target);
        stopped = stopped != EXIT_DONE ? stopped : save_dump(target, LIVE_CPU);
        code = code != EXIT_DONE ? code : stopped;
    }
    return code;
}

/* Everything that is known to go wrong later. */
static enum exit_code judge_start(const struct target *target) {
    if (wants_cpu() && !run_is_cpu_hz(options.cpu_hz)) {
        return EXIT_USAGE;
    }
    if (wants_cpu() && wants_heap() && options.path != NULL) {
        return complain(EXIT_USAGE, "-o names one file, and these are two profiles: leave it out");
    }
    if (options.for_ns == 0) {
        return EXIT_DONE;
    }
    enum exit_code code =
        wants_heap() ? judge_output(target, (enum live_kind)options.kind) : EXIT_DONE;
    return code == EXIT_DONE && wants_cpu() ? judge_output(target, LIVE_CPU) : code;
}

static int run_start(const struct target *target) {
    enum exit_code code = judge_start(target);
    if (code != EXIT_DONE) {
        return code;
    }
    code = wants_heap() ? start_heap(target) : EXIT_DONE;
    if (code == EXIT_DONE && wants_cpu()) {
        code = start_cpu(target);
    }
    if (code != EXIT_DONE || options.for_ns == 0) {
        return code;
    }
    wait_for(target, options.for_ns);
    return end_profiles(target);
}

static int run_stop(const struct target *target) {
    static const char *const kinds[] = {
        [STOP_ALL] = NULL, [STOP_HEAP] = "heap", [STOP_CPU] = "cpu"};
    struct reply reply;
    enum exit_code code = ask(target, "stop", kinds[options.stop_kind], &reply);
    if (code == EXIT_DONE && options.discard) {
        code = ask(target, "reset", kinds[options.stop_kind], &reply);
    }
    if (code == EXIT_DONE) {
        note(options.discard ? "stopped, and what was recorded is gone"
                             : "stopped; tally dump still has what was recorded");
    }
    return code;
}

static int run_purge(const struct target *target) {
    struct reply reply;
    enum exit_code code = ask(target, "purge", NULL, &reply);
    if (code == EXIT_DONE) {
        note("given back to the kernel: %s", size_text((int64_t)request_number(&reply, "bytes")));
    }
    return code;
}

/* All of them take a target last. */
static int with_target(const char *word, int (*run)(const struct target *target)) {
    struct target target;
    enum exit_code code = target_open_to_ask(word, &target);
    if (code != EXIT_DONE) {
        return code;
    }
    int result = run(&target);
    target_close(&target);
    return result;
}

static int run_dump(const struct target *target) {
    return save_dump(target, (enum live_kind)options.kind);
}

static int run_start_command(int count, char **words) {
    return with_target(words[count - 1], run_start);
}

static int run_stop_command(int count, char **words) {
    return with_target(words[count - 1], run_stop);
}

static int run_dump_command(int count, char **words) {
    return with_target(words[count - 1], run_dump);
}

static int run_purge_command(int count, char **words) {
    return with_target(words[count - 1], run_purge);
}

/* Set. */

static char **settings;
static int setting_count;

/* Options that have other names while a program runs.  Times apply to existing arenas and to future
 * ones, which are two names. */
static const struct {
    const char *option, *names[2];
} running_names[] = {
    {"dirty_decay_ms", {"arena.4096.dirty_decay_ms", "arenas.dirty_decay_ms"}},
    {"muzzy_decay_ms", {"arena.4096.muzzy_decay_ms", "arenas.muzzy_decay_ms"}},
    {"prof_active", {"prof.active", NULL}},
    {"prof_gdump", {"prof.gdump", NULL}},
    {"prof_thread_active_init", {"prof.thread_active_init", NULL}},
};

static enum exit_code send_setting(const struct target *target, const char *name, const char *value,
                                   struct reply *reply) {
    struct wire_writer request;
    wire_begin(&request, "set");
    wire_add(&request, "key", name);
    wire_add(&request, "value", value);
    return request_send(target, &request, -1, answer_ns, reply);
}

static enum exit_code set_one(const struct target *target, const char *setting) {
    enum { RUNNING_NAMES = sizeof running_names / sizeof running_names[0] };
    char key[256];
    struct reply reply, more;
    size_t length = strcspn(setting, "=");
    const char *value = setting + length + 1, *names[2] = {key, NULL};
    memcpy(key, setting, length);
    key[length] = '\0';
    for (size_t i = 0; i < RUNNING_NAMES; i++) {
        if (strcmp(key, running_names[i].option) == 0) {
            names[0] = running_names[i].names[0];
            names[1] = running_names[i].names[1];
        }
    }
    enum exit_code code = send_setting(target, names[0], value, &reply);
    if (code == EXIT_DONE && names[1] != NULL) {
        code = send_setting(target, names[1], value, &more);
    }
    if (code == EXIT_DONE) {
        const char *old = wire_find(&reply.message, "old");
        note("%s is %s%s%s%s", safe_text(key), safe_text(value), old != NULL ? " (was " : "",
             old != NULL ? safe_text(old) : "", old != NULL ? ")" : "");
    }
    return code;
}

static int run_set(const struct target *target) {
    enum exit_code code = EXIT_DONE;
    for (int i = 0; i < setting_count && code == EXIT_DONE; i++) {
        code = set_one(target, settings[i]);
    }
    return code;
}

static int run_set_command(int count, char **words) {
    settings = words;
    setting_count = count - 1;
    for (int i = 0; i < setting_count; i++) {
        size_t length = strcspn(words[i], "=");
        if (length == 0 || length > 200 || words[i][length] != '=') {
            return complain(EXIT_USAGE, "'%s' is not of the form KEY=VALUE", safe_text(words[i]));
        }
    }
    return with_target(words[count - 1], run_set);
}

/* Tables. */

static const struct arg_option start_options[] = {
    {"cpu", 0, ARG_NUMBER, "HZ", RUN_CPU_HZ, true, &options.cpu_hz,
     "Record where processor time goes instead of memory, with HZ samples per second of each "
     "thread's processor time; 100 unless given"},
    {"heap", 0, ARG_SWITCH, NULL, NULL, false, &options.wants_heap,
     "Record memory; the default without --cpu, and implied by --rate"},
    {"rate", 0, ARG_TEXT, "RATE", NULL, false, &options.rate,
     "Mean bytes between samples: prod (512K), dev (64K), exact, or a size; unless given, the "
     "rate of its recording so far, or of its options"},
    {"for", 0, ARG_DURATION, "DUR", NULL, false, &options.for_ns,
     "Record for this long, save a profile and stop; Ctrl-C stops early"},
    {0},
};

static const struct arg_option stop_options[] = {
    {"kind", 0, ARG_CHOICE, "KIND", "all|heap|cpu", false, &options.stop_kind,
     "Which profiler "
     "to stop"},
    {"discard", 0, ARG_SWITCH, NULL, NULL, false, &options.discard, "Forget what was recorded"},
    {0},
};

static const struct arg_option output_options[] = {
    {"output", 'o', ARG_TEXT, "OUT", NULL, false, &options.path,
     "The file, or - for the standard output; NAME.PID.pb.gz unless given"},
    {"format", 0, ARG_TEXT, "FORMAT", NULL, false, &options.format,
     "A format of tally export; unless given, the ending of the file decides, and pprof if it is "
     "unknown"},
    {"no-names", 0, ARG_SWITCH, NULL, NULL, false, &options.no_names,
     "addresses stay as they are, which is quicker"},
    {"kind", 0, ARG_CHOICE, "KIND", "heap|peak|allocs|cpu", false, &options.kind,
     "What is live now, what was live at the peak, what was allocated so far, or where processor time "
     "went; tally leak-check finds what is lost"},
    {0},
};

const struct command command_start = {
    .name = "start",
    .summary = "Switch a profiler on in a running process",
    .usage = "[OPTION...] TARGET",
    .text = "Allocations from now on are sampled; what is older has no stack. The process must "
            "have been started by tally run or with TALLY_CONF=control:write.\n"
            "\n"
            "    tally start server\n"
            "    tally start --rate=dev --for=60s -o burst.pb.gz server\n"
            "    tally start --cpu --for=10s -o time.pb.gz server\n",
    .options = (const struct arg_option *const[]){start_options, output_options,
                                                  args_symbolize_options, NULL},
    .words = {1, 1},
    .run = run_start_command,
};

const struct command command_stop = {
    .name = "stop",
    .summary = "Switch the profilers off in a running process",
    .usage = "[OPTION...] TARGET",
    .text = "Nothing more is sampled. What was recorded stays and can be dumped.\n",
    .options = (const struct arg_option *const[]){stop_options, NULL},
    .words = {1, 1},
    .run = run_stop_command,
};

const struct command command_dump = {
    .name = "dump",
    .summary = "Save a profile of a running process",
    .usage = "[OPTION...] TARGET",
    .text = "The process keeps running meanwhile. An existing file is never replaced.\n"
            "\n"
            "    tally dump -o heap.pb.gz server\n"
            "    tally report --top heap.pb.gz\n"
            "    tally dump -o flame.svg server\n"
            "    tally dump --kind=cpu -o time.prof server\n",
    .options = (const struct arg_option *const[]){output_options, args_symbolize_options, NULL},
    .words = {1, 1},
    .run = run_dump_command,
};

const struct command command_set = {
    .name = "set",
    .summary = "Change options of a running process",
    .usage = "KEY=VALUE... TARGET",
    .text =
        "KEY is one of the options dirty_decay_ms, muzzy_decay_ms, prof_active, prof_gdump and "
        "prof_thread_active_init, or any name of mallctl that can be written, except those that "
        "name a file, take an address, raise a limit, or concern the calling thread or memory "
        "that the program holds.  VALUE is true or false, a number, a word, or run for a name "
        "that performs an action.\n"
        "\n"
        "    tally set dirty_decay_ms=0 background_thread=true server\n"
        "    tally set arena.4096.purge=run server\n",
    .words = {2, 64},
    .run = run_set_command,
};

const struct command command_purge = {
    .name = "purge",
    .summary = "Make a running process give empty pages back",
    .usage = "TARGET",
    .text = "Empty pages that the allocator keeps for reuse go back to the kernel at once.\n",
    .words = {1, 1},
    .run = run_purge_command,
};
