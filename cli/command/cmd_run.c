/* SPDX-License-Identifier: MIT
 *
 * cmd_run.c - `tally run`: starts a program under the library and tells where its memory went.
 *
 *      environment     LD_PRELOAD begins with the library, TALLY_CONF ends with our keys, TALLY_ROOT says
 *                      which process is meant; nothing else changes
 *      child           the program, in our process group, with our descriptors
 *      we              wait, pass on signals that were sent to us, and end as the program did
 *      afterwards      the file that the library wrote is read, named and summed up on a card
 *
 * The loader skips a library that it cannot map, and says so on a line at most.  The proof that ours was
 * there is the file, which it creates at its start; where there is none, the program's file says why.
 *
 * A signal from the terminal, or to the whole group, reaches the program anyway: only what a process sent
 * to us is passed on (witness.h).
 */
#define _GNU_SOURCE /* execvpe, renameat2 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "command/commands.h"
#include "common/cli.h"
#include "names/symbolize.h"
#include "read/read_worker.h"
#include "run/card.h"
#include "run/elf_facts.h"
#include "run/run_plan.h"
#include "run/witness.h"

enum {
    IMAGES_MOST = 1000, /* programs one process becomes by exec, each with a file */
    GRACE_SECONDS = 5,  /* from SIGTERM to SIGKILL at --timeout */
    SITES_SHOWN = 5,
    NS_PER_SECOND = 1000000000,
};

/* ---------------------------------------------------------------- options */

static struct run_wishes wishes = {.rate = "dev", .cpu_hz = RUN_NO_CPU};

static const struct arg_option run_options[] = {
    {.name = "rate",
     .kind = ARG_TEXT,
     .value = "prod|dev|exact|SIZE",
     .target = &wishes.rate,
     .help = "Mean bytes between two samples: prod 512 KiB, dev 64 KiB (the default), exact every"
             " allocation; others are rounded to a power of two"},
    {.name = "cpu",
     .kind = ARG_NUMBER,
     .value = "HZ",
     .value_is_optional = true,
     .choices = RUN_CPU_HZ,
     .target = &wishes.cpu_hz,
     .help =
         "Record where the processor's time goes, too: so many samples of each thread per second"
         " that it computes, 100 unless given"},
    {.name = "output",
     .letter = 'o',
     .kind = ARG_TEXT,
     .value = "FILE.tally",
     .target = &wishes.output,
     .help = "Where the recording goes, instead of PROGRAM.PID.tally in this directory"},
    {.name = "report",
     .kind = ARG_CHOICE,
     .value = "WHAT",
     .choices = "summary|none",
     .target = &wishes.report,
     .help = "What is printed to standard error at the end"},
    {.name = "every",
     .kind = ARG_DURATION,
     .value = "DUR",
     .target = &wishes.every_ns,
     .help =
         "Time from one snapshot to the next at first, 1s unless given; it doubles after each 256"},
    {.name = "every-bytes",
     .kind = ARG_SIZE,
     .value = "SIZE",
     .target = &wishes.every_bytes,
     .help = "A snapshot more each time so many bytes were allocated"},
    {.name = "dump-at",
     .kind = ARG_LIST,
     .value = "WHEN",
     .target = &wishes.dump_at,
     .help =
         "A snapshot more at rss=90% of the memory limit, rss=SIZE, heap=SIZE, each +SIZE, exit, or"
         " signal=N"},
    {.name = "children",
     .kind = ARG_TEXT,
     .value = "all|none|GLOB",
     .target = &wishes.children,
     .help =
         "Which descendants are recorded, by the name of their program, each in a file of its own;"
         " none unless given"},
    {.name = "leaks",
     .kind = ARG_SWITCH,
     .target = &wishes.leaks,
     .help = "Look for leaks when the program exits; the summary and tally leak-check tell them"},
    {.name = "exit-code-on-leak",
     .kind = ARG_NUMBER,
     .value = "N",
     .target = &wishes.leak_exit_code,
     .help = "The exit status if the program ends with 0 and has definite leaks; turns --leaks on"},
    {.name = "depth",
     .kind = ARG_NUMBER,
     .value = "N",
     .target = &wishes.depth,
     .help = "Frames kept of a call stack, 128 unless given, 256 at most"},
    {.name = "timeout",
     .kind = ARG_DURATION,
     .value = "DUR",
     .target = &wishes.timeout_ns,
     .help =
         "End the program after this time, with SIGTERM and later SIGKILL; the exit status is 124"},
    {.name = "wait",
     .kind = ARG_SWITCH,
     .target = &wishes.wait,
     .help =
         "Then wait for the processes that the program has left running, too; Ctrl-C ends that"},
    {.name = "control",
     .kind = ARG_CHOICE,
     .value = "RIGHTS",
     .choices = "write|read|off",
     .target = &wishes.control,
     .help = "What `tally` may do to the program while it runs"},
    {.name = "preload-only",
     .kind = ARG_SWITCH,
     .target = &wishes.preload_only,
     .help = "Print the environment that would be set, and stop"},
    {.name = NULL},
};

/* ---------------------------------------------------------------- the environment */

static void set_joined(const char *name, const char *first, const char *between,
                       const char *second) {
    char *text = must_alloc(strlen(first) + strlen(between) + strlen(second) + 1);
    sprintf(text, "%s%s%s", first, between, second);
    if (setenv(name, text, 1) != 0) {
        complain(EXIT_OWN_FAILURE, "no memory for the environment");
        _exit(EXIT_OWN_FAILURE);
    }
    free(text);
}

static const char *or_empty(const char *text) {
    return text != NULL ? text : "";
}

static void set_environment(const struct run_plan *plan) {
    const char *preload = or_empty(getenv("LD_PRELOAD")), *conf = or_empty(getenv("TALLY_CONF"));
    set_joined("LD_PRELOAD", plan->library, preload[0] != '\0' ? ":" : "", preload);
    set_joined("TALLY_CONF", conf, conf[0] != '\0' ? "," : "", plan->conf);
}

/* When this process started, in the kernel's ticks; it stays the same over exec. */
static unsigned long long start_time(void) {
    char text[1024] = "";
    unsigned long long time = 0;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t length = read(fd, text, sizeof text - 1);
        text[length > 0 ? length : 0] = '\0';
        close(fd);
    }
    const char *word = strrchr(text, ')');
    for (int i = 2; word != NULL && i < 22; i++) {
        word = strchr(word + 1, ' ');
    }
    if (word != NULL) {
        time = strtoull(word + 1, NULL, 10);
    }
    return time;
}

static void print_quoted(const char *name, const char *value) {
    printf("%s='", name);
    for (; *value != '\0'; value++) {
        if (*value == '\'') {
            fputs("'\\''", stdout);
        } else {
            putchar(*value);
        }
    }
    fputs("'\n", stdout);
}

static int print_environment(const struct run_plan *plan) {
    set_environment(plan);
    print_quoted("LD_PRELOAD", getenv("LD_PRELOAD"));
    print_quoted("TALLY_CONF", getenv("TALLY_CONF"));
    return EXIT_DONE;
}

/* ---------------------------------------------------------------- the program */

/* What the handlers know.  The child is set before they are, and stays when they are gone. */
static volatile pid_t child;
static volatile sig_atomic_t is_late;

static void pass_on(int number, siginfo_t *info, void *context) {
    (void)context;
    int saved = errno;
    /* By a process, not by the terminal, and not to all of a group that the program is in. */
    bool is_for_all = info->si_code > 0 || witness_has(number);
    if (child > 0 && (!is_for_all || (info->si_code <= 0 && getpgid(child) != getpgrp()))) {
        kill(child, number);
    }
    if (is_for_all) {
        witness_forget();
    }
    errno = saved;
}

static void end_late(int number) {
    (void)number;
    int saved = errno;
    kill(child, is_late ? SIGKILL : SIGTERM);
    is_late = 1;
    errno = saved;
}

static const int passed_on[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
enum { PASSED_ON = sizeof passed_on / sizeof passed_on[0] };

/* What signals did to us before, and do again when the program has ended. */
static struct sigaction before_us[PASSED_ON];

static void watch_signals(void) {
    struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < PASSED_ON; i++) { /* One after the other. */
        sigaddset(&action.sa_mask, passed_on[i]);
    }
    for (size_t i = 0; i < PASSED_ON; i++) {
        sigaction(passed_on[i], &action, &before_us[i]);
    }
}

/* A summary can take a while, and whoever is tired of it ends it as any other program. */
static void leave_signals(void) {
    struct itimerval none = {0};
    setitimer(ITIMER_REAL, &none, NULL);
    for (size_t i = 0; i < PASSED_ON; i++) {
        sigaction(passed_on[i], &before_us[i], NULL);
    }
    witness_end();
}

static void watch_time(void) {
    struct sigaction action = {.sa_handler = end_late, .sa_flags = SA_RESTART};
    struct itimerval timer = {
        .it_value = {(time_t)(wishes.timeout_ns / NS_PER_SECOND),
                     (suseconds_t)(wishes.timeout_ns % NS_PER_SECOND / 1000)},
        .it_interval = {GRACE_SECONDS, 0},
    };
    sigemptyset(&action.sa_mask);
    if (wishes.timeout_ns != 0) {
        timer.it_value.tv_usec += timer.it_value.tv_sec == 0 && timer.it_value.tv_usec == 0;
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &timer, NULL);
    }
}

/* In the child: becomes the program, or tells why not through the pipe. */
_Noreturn static void become_program(const struct run_plan *plan, char **words, int report) {
    char root[64];
    snprintf(root, sizeof root, "%d:%llu", (int)getpid(), start_time());
    set_environment(plan);
    setenv("TALLY_ROOT", root, 1);
    execvp(words[0], words);
    int error = errno;
    ssize_t written = write(report, &error, sizeof error);
    (void)written;
    _exit(EXIT_NOT_FOUND);
}

/* 0, or errno of what prevented it. */
static int start_program(const struct run_plan *plan, char **words) {
    int report[2];
    int error = 0;
    sigset_t all, before;
    struct sigaction by_default = {.sa_handler = SIG_DFL}, on_end;
    if (pipe2(report, O_CLOEXEC) != 0) {
        return errno;
    }
    fflush(NULL);
    sigfillset(&all); /* Nothing is lost between the fork and the handlers. */
    sigprocmask(SIG_BLOCK, &all, &before);
    sigaction(SIGCHLD, &by_default,
              &on_end); /* Where it is ignored, nobody hears how a child ended. */
    child = fork();
    if (child == 0) {
        sigaction(SIGCHLD, &on_end, NULL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(report[0]);
        become_program(plan, words, report[1]);
    }
    error = child < 0 ? errno : 0;
    close(report[1]);
    if (child > 0) {
        witness_start();
        watch_signals();
        watch_time();
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (child > 0) {
        ssize_t length;
        do {
            length = read(report[0], &error, sizeof error);
        } while (length < 0 && errno == EINTR);
    }
    close(report[0]);
    return error;
}

/* Its id is ours until it is reaped, so the handlers, which send to it, go first. */
static int wait_for_program(void) {
    siginfo_t end;
    int status = 0;
    while (waitid(P_PID, (id_t)child, &end, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    leave_signals();
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

static void stop_waiting(int number) {
    (void)number;
}

/* Processes whose parent has ended became our children; a signal is not restarted behind, so it ends this. */
static void wait_for_rest(void) {
    struct sigaction action = {.sa_handler = stop_waiting}, before[2];
    sigaction(SIGINT, &action, &before[0]);
    sigaction(SIGTERM, &action, &before[1]);
    while (waitpid(-1, NULL, 0) > 0) {
    }
    sigaction(SIGINT, &before[0], NULL);
    sigaction(SIGTERM, &before[1], NULL);
}

static int exit_code_of(int status) {
    if (is_late) {
        return EXIT_TIMEOUT;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---------------------------------------------------------------- why there is no card */

/* The file that execvp took. */
static bool find_program(const char *word, char path[RUN_PATH_BYTES]) {
    if (strchr(word, '/') != NULL) {
        snprintf(path, RUN_PATH_BYTES, "%s", word);
        return true;
    }
    const char *folders = or_empty(getenv("PATH"));
    while (*folders != '\0') {
        size_t length = strcspn(folders, ":");
        snprintf(path, RUN_PATH_BYTES, "%.*s/%s", (int)length, folders, word);
        if (access(path, X_OK) == 0) {
            return true;
        }
        folders += length + (folders[length] == ':');
    }
    return false;
}

static bool has_our_form(const struct elf_facts *facts, const char *library) {
    struct elf_facts own;
    return elf_look(library, &own) && own.is_elf && own.machine == facts->machine &&
           own.is_64_bit == facts->is_64_bit;
}

/* One sentence about a program that ran without the library. */
static const char *explain_absence(const char *word, const char *library) {
    static const char nothing[] = "the library was not loaded; `tally doctor` may know why";
    char path[RUN_PATH_BYTES];
    struct stat found;
    struct elf_facts facts;
    if (!find_program(word, path) || stat(path, &found) != 0 || !elf_look(path, &facts)) {
        return nothing;
    }
    if (found.st_mode & (S_ISUID | S_ISGID)) {
        return "it is set-id, and the loader ignores LD_PRELOAD for those";
    }
    if (facts.is_script) { /* Its interpreter counts. */
        snprintf(path, sizeof path, "%s", facts.interpreter);
        path[strcspn(path, " \t")] = '\0';
        if (!elf_look(path, &facts)) {
            return nothing;
        }
    }
    if (facts.is_elf && !has_our_form(&facts, library)) {
        return "it is for another machine or word size than the library";
    }
    if (facts.is_elf && !facts.is_dynamic) {
        return "it is statically linked; link it with libtally.a instead";
    }
    return nothing;
}

/* ---------------------------------------------------------------- the recording */

struct recording {
    char path[RUN_PATH_BYTES];
    struct read_run *run;
    size_t bytes;
};

/* Where a file is: under its name, or under the one it has until its process ends well. */
static bool find_file(const char *path, char found[RUN_PATH_BYTES + 8]) {
    snprintf(found, RUN_PATH_BYTES + 8, "%s", path);
    if (access(found, F_OK) != 0) {
        snprintf(found, RUN_PATH_BYTES + 8, "%s.part", path);
    }
    return access(found, F_OK) == 0;
}

/* Gives a file that a killed process has left its name. */
static void settle_file(const char *path) {
    char part[RUN_PATH_BYTES + 8];
    if (find_file(path, part) && strcmp(part, path) != 0 &&
        renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_NOREPLACE) != 0 && errno == EINVAL &&
        link(part, path) == 0) {
        unlink(part);
    }
}

static struct read_run *read_recording(const char *path, size_t *bytes, char why[READ_WHY_BYTES]) {
    struct read_run *run = read_confined(path, NULL, why);
    *bytes = run != NULL ? run->file_bytes : 0;
    return run;
}

static uint64_t wall_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

/* Files of earlier runs may lie under the same names.  One that was cut before it says its process has
 * nothing but the time. */
static bool is_of_this_run(const struct read_run *run, uint64_t since_ns) {
    return run->start_wall_ns >= since_ns && (run->pid == (uint64_t)child || run->pid == 0);
}

static bool was_changed(const char *path, uint64_t since_ns) {
    struct stat file;
    return stat(path, &file) == 0 && (uint64_t)file.st_mtime >= since_ns / NS_PER_SECOND;
}

/* The file of the program that the process was in the end; files of those it was before, such as a
 * shell that called exec at once, are removed where nothing is in them.  Other runs' stay as they are. */
static bool find_recording(const struct run_plan *plan, uint64_t since_ns, struct recording *found,
                           char why[READ_WHY_BYTES]) {
    *found = (struct recording){0};
    for (unsigned i = 1; i <= IMAGES_MOST; i++) {
        struct recording next = {0};
        char file[RUN_PATH_BYTES + 8];
        run_plan_name(plan, child, i, next.path);
        if (!find_file(next.path, file)) {
            break;
        }
        char damage[READ_WHY_BYTES] = "";
        next.run = read_recording(file, &next.bytes, damage);
        if (next.run == NULL && found->run == NULL && was_changed(file, since_ns)) {
            snprintf(why, READ_WHY_BYTES, "%s", damage);
            *found = next;
        }
        if (next.run == NULL || !is_of_this_run(next.run, since_ns)) {
            read_run_free(next.run);
            continue;
        }
        settle_file(next.path);
        if (found->run != NULL && found->run->moment_count == 0) {
            unlink(found->path);
        }
        read_run_free(found->run);
        *found = next;
    }
    return found->path[0] != '\0';
}

/* ---------------------------------------------------------------- recordings of others */

struct children {
    char pattern[RUN_PATH_BYTES];
    time_t since; /* older ones are of another run */
    int64_t count;
};

/* The process of STEM.PID.tally or STEM.PID.N.tally, perhaps with ".part"; 0: it is none of these. */
static pid_t process_of(const char *name, const char *stem, bool *is_part) {
    size_t length = strlen(stem);
    char *end = NULL;
    if (strncmp(name, stem, length) != 0 || name[length] != '.') {
        return 0;
    }
    long pid = strtol(name + length + 1, &end, 10);
    const char *ending = strstr(end, ".tally");
    *is_part = ending != NULL && strcmp(ending, ".tally.part") == 0;
    bool is_one = *is_part || (ending != NULL && strcmp(ending, ".tally") == 0);
    return is_one && *end == '.' && pid > 0 ? (pid_t)pid : 0;
}

/* Gives those of the dead their names, where `settles`, or counts what has one. */
static void visit_children(const struct run_plan *plan, struct children *children, bool settles) {
    char folder[RUN_PATH_BYTES], path[2 * RUN_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", plan->stem);
    char *name = strrchr(folder, '/') + 1; /* A stem is a whole path. */
    char stem[RUN_PATH_BYTES];
    strcpy(stem, name);
    *name = '\0';
    DIR *list = opendir(folder);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        struct stat file;
        bool is_part;
        pid_t pid = process_of(entry->d_name, stem, &is_part);
        if (pid == 0 || pid == child || is_part != settles) {
            continue;
        }
        int length = snprintf(path, sizeof path, "%s%s", folder, entry->d_name);
        if (is_part && kill(pid, 0) != 0 && errno == ESRCH) {
            path[length - (int)strlen(".part")] = '\0';
            settle_file(path);
        } else if (!is_part) {
            children->count += stat(path, &file) == 0 && file.st_mtime >= children->since;
        }
    }
    if (list != NULL) {
        closedir(list);
    }
}

/* Those who still run keep their files as they are. */
static void settle_children(const struct run_plan *plan, struct children *children) {
    snprintf(children->pattern, sizeof children->pattern, "%.4000s.*.tally", plan->stem);
    visit_children(plan, children, true);
    visit_children(plan, children, false);
}

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
    if (is_late) {
        snprintf(text, bytes, "ended by --timeout");
    } else if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        snprintf(text, bytes, "killed by SIG%s", name != NULL ? name : "?");
    } else if (WEXITSTATUS(status) != 0) {
        snprintf(text, bytes, "exit status %d", WEXITSTATUS(status));
    }
}

/* Relative where that is shorter, as people type it. */
static const char *shown_path(const char *path) {
    char folder[RUN_PATH_BYTES];
    size_t length = getcwd(folder, sizeof folder) != NULL ? strlen(folder) : 0;
    bool is_below = length > 0 && strncmp(path, folder, length) == 0 && path[length] == '/';
    return is_below ? path + length + 1 : path;
}

static void print_card(const struct run_plan *plan, const struct recording *found, int status,
                       uint64_t took_ns) {
    static struct children children;
    children.since = time(NULL) - (time_t)(took_ns / NS_PER_SECOND) - 1;
    char end[64];
    describe_end(status, end, sizeof end);
    if (wishes.children != NULL) {
        settle_children(plan, &children);
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
        .path = shown_path(found->path),
        .file_bytes = found->bytes,
        .end = end,
        .wall_ns = took_ns,
        .sites_most = SITES_SHOWN,
        .children = children.count,
        .children_path = shown_path(children.pattern),
    };
    fputc('\n', stderr);
    card_print(stderr, &card, choose_style());
}

enum { NOT_SEARCHED = -1 };

/* Definite leaks that the recording tells of. */
static int64_t leaks_of(const struct read_run *run) {
    return run != NULL && run->leaks != NULL ? run->leaks->sums[READ_LEAK_DEFINITE].objects
                                             : NOT_SEARCHED;
}

/* How many objects the program has lost, or NOT_SEARCHED. */
static int64_t report(const struct run_plan *plan, const char *program, int status,
                      uint64_t since_ns, uint64_t took_ns) {
    struct recording found;
    char why[READ_WHY_BYTES] = "";
    if (!find_recording(plan, since_ns, &found, why)) {
        warn("no summary of %s: %s", safe_text(program), explain_absence(program, plan->library));
        return NOT_SEARCHED;
    }
    if (wishes.report == RUN_REPORT_NONE) {
        note("the recording is %s", safe_text(shown_path(found.path)));
    } else if (found.run == NULL) {
        warn("no summary of %s: %s: %s", safe_text(program), safe_text(found.path), why);
    } else if (found.run->moment_count == 0) {
        warn("no summary of %s: it ended before the first snapshot, and not by exit(3) (%s)",
             safe_text(program), safe_text(shown_path(found.path)));
    } else {
        print_card(plan, &found, status, took_ns);
    }
    int64_t leaks = leaks_of(found.run);
    read_run_free(found.run);
    return leaks;
}

/* ---------------------------------------------------------------- the command */

static int run(int count, char **words) {
    static struct run_plan plan;
    words[count] = NULL; /* What was taken for options is still behind. */
    if (!run_plan_make(&plan, &wishes, words[0])) {
        return (int)plan.failure;
    }
    if (wishes.preload_only) {
        return print_environment(&plan);
    }
    uint64_t start = cli_now_ns(), since = wall_ns();
    if (wishes.wait) {
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
    int error = start_program(&plan, words);
    if (error != 0) {
        int code = child < 0                             ? EXIT_OWN_FAILURE
                   : error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND
                                                         : EXIT_NOT_EXECUTABLE;
        if (child > 0) {
            (void)wait_for_program();
        }
        return (int)complain((enum exit_code)code, "cannot run %s: %s", safe_text(words[0]),
                             strerror(error));
    }
    int status = wait_for_program();
    if (wishes.wait) {
        wait_for_rest();
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
        "error:"
        " the highest memory and when it was, what was live at the end, a chart, and the lines of"
        " code that held most; with --cpu also the functions that used the processor.  The "
        "recording stays in PROGRAM.PID.tally for `tally report`."
        "\n\n"
        "The exit status is that of PROGRAM, or that of --exit-code-on-leak; 128+N if signal N "
        "ended it, 124 after --timeout, 125 "
        "if"
        " tally itself failed, 126 and 127 if PROGRAM cannot be run or is not there."
        "\n\n"
        "    tally run ./server --port 8080\n"
        "    tally run --cpu ./server --port 8080\n"
        "    tally run --rate=exact -o test.tally -- make check",
    .options = option_tables,
    .stops_at_word = true,
    .words_least = 1,
    .words_most = SIZE_MAX,
    .run = run,
};
