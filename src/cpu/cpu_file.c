/* SPDX-License-Identifier: MIT
 *
 * cpu_file.c - a profile that goes to a file, from start to end and across forks.
 *
 * What is on the disk is always complete: each time the whole profile is written beside it, under a temporary
 * name, and takes its place.  A file of the same user that was there before is replaced, such as the profile of an
 * earlier run; two processes with the same name may do so at the same time.  One that was there and empty is written
 * in place instead: somebody has made it for this profile, and may have it open.  To a descriptor the profile goes
 * once, at the end.
 *
 * By CPUPROFILESIGNAL a signal turns the profile on and off: its handler only rings, and the writer does it.
 *
 * Threads     `is_busy` is taken, by compare and swap, for the time of a change or of writing.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/attention.h"
#include "base/fmt.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_confined.h"
#include "base/os_timer.h"
#include "base/own.h"
#include "cpu/writer.h"
#include "opt/opt.h"
#include "out/out_file.h"

enum {
    FLUSH_MS = 3000,
    FLUSH_SHARE = 100,
    BUSY_MS = 10000,
    EXIT_MS = 1000, /* no more is waited for at the end of the process */
    SUFFIX_BYTES = 24,
    NS_PER_S = 1000000000
};

static struct {
    _Atomic bool is_on;
    _Atomic uint32_t is_busy;
    _Atomic bool wants_again; /* a child that has not begun yet */
    _Atomic uint32_t toggles; /* by the signal */
    uint32_t toggles_done;
    _Atomic bool is_over; /* the process ends */
    bool is_child;
    bool has_toggle; /* its handler is set */
    size_t name_at;  /* where in `path` the name begins as it was given */
    uint32_t number; /* of the next file that the signal starts */
    struct cpu_options options;
    uint64_t start_seconds;
    uint64_t flush_ms;        /* when the next is due */
    uint64_t samples_written; /* what the file has */
    enum out_target target;   /* what was under the name at the start */
    bool has_failed;          /* and it was said */
} g;

/* Apart from g: most programs never touch them. */
SPARSE static char base[OUT_FILE_PREFIX_BYTES]; /* with the folder where that was asked for */
SPARSE static char path[OUT_FILE_PREFIX_BYTES + SUFFIX_BYTES]; /* of this process */
SPARSE static struct out_file file;

/* ---------------------------------------------------------------- one at a time */

static bool try_to_enter(void) {
    uint32_t free = 0;
    return atomic_compare_exchange_strong(&g.is_busy, &free, 1);
}

/* False when another thread keeps writing for very long. */
static bool enter(unsigned most_ms) {
    for (unsigned i = 0; i < most_ms; i++) {
        if (try_to_enter()) {
            return true;
        }
        os_wait_ms(&g.is_busy, 1, 1);
    }
    return false;
}

static void leave(void) {
    atomic_store(&g.is_busy, 0);
    os_wake(&g.is_busy);
}

/* ---------------------------------------------------------------- writing */

enum cpu_format cpu_format_by_name(const char *name) {
    static const char *const endings[] = {".pb", ".pb.gz"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t tail = strlen(endings[i]);
        if (length > tail && strcmp(name + length - tail, endings[i]) == 0) {
            return CPU_PPROF;
        }
    }
    return CPU_GPERFTOOLS;
}

static int fill_file(struct out *out, const void *what) {
    (void)what;
    return cpu_dump_fill(out, cpu_format_by_name(base));
}

static int write_file(void) {
    if (g.target == OUT_TARGET_EMPTY || g.target == OUT_TARGET_STREAM) {
        return out_file_write_given(path, fill_file, NULL);
    }
    bool replaces = os_is_own_file(path);
    int error = replaces ? out_file_begin_anew(&file, path) : out_file_begin(&file, path);
    if (error != 0) {
        return error;
    }
    error = out_run((struct out_sink){out_to_descriptor, &file.fd, false}, fill_file, NULL);
    return replaces ? out_file_replace(&file, path, error) : out_file_end(&file, path, error);
}

/* A stream would get a profile behind the other. */
static bool is_writable_now(void) {
    return g.target != OUT_TARGET_STREAM || !cpu_is_on();
}

/* Said once; the next time it is tried again. */
static void warn(int error) {
    if (!g.has_failed) {
        g.has_failed = true;
        log_line("cannot write the CPU profile %s: %s (%d)", path, out_explain(error), -error);
    }
}

/* If there is something new; the longer writing takes, the less often. */
static void flush(void) {
    struct cpu_totals totals;
    cpu_read_totals(&totals);
    uint64_t before_ms = os_now_ms();
    if (is_writable_now() && totals.samples != g.samples_written) {
        int error = write_file();
        if (error == 0) {
            g.samples_written = totals.samples;
        } else {
            warn(error);
        }
    }
    uint64_t now_ms = os_now_ms();
    g.flush_ms = now_ms + max_size(FLUSH_MS, (now_ms - before_ms) * FLUSH_SHARE);
}

/* ---------------------------------------------------------------- start and stop */

/* Puts the working folder, with a slash at its end, before a relative name: the program may change it later.  Its
 * length; 0 for an absolute name. */
static size_t put_folder(const char *name, size_t length) {
    if (name[0] == '/' || !os_working_folder(base, sizeof(base))) {
        return 0;
    }
    size_t at = strlen(base);
    at += base[at - 1] != '/';
    base[at - 1] = '/';
    return at + length < sizeof(base) ? at : 0;
}

static bool set_base(const char *name) {
    size_t length = strlen(name);
    if (length >= sizeof(base)) {
        return false;
    }
    g.name_at = put_folder(name, length);
    memcpy(base + g.name_at, name, length + 1);
    return true;
}

static void set_path(bool is_child) {
    size_t length = strlen(base);
    memcpy(path, base, length + 1);
    if (is_child) {
        fmt_text(path + length, SUFFIX_BYTES, "_%u", os_process_id());
    }
}

/* The first file, without samples, says that it can be written.  A child has its file when it has samples: it may be
 * about to become another program. */
static int begin_file(bool is_child) {
    int target = is_child ? OUT_TARGET_NEW : out_file_judge(path);
    if (target < 0) {
        return target;
    }
    g.target = (enum out_target)target;
    if (!is_writable_now()) {
        g.samples_written = UINT64_MAX; /* not even a profile without samples */
        return 0;
    }
    return is_child ? 0 : write_file();
}

static bool start(const struct cpu_options *options, bool is_child, char why[CPU_WHY]) {
    g.has_failed = false;
    g.samples_written = 0;
    if (!cpu_start(options, why)) {
        return false;
    }
    int error = begin_file(is_child);
    if (error != 0) {
        cpu_stop();
        fmt_text(why, CPU_WHY, "%s", out_explain(error));
        return false;
    }
    g.options = *options;
    g.start_seconds = os_wall_ns() / NS_PER_S;
    g.flush_ms = os_now_ms() + FLUSH_MS;
    g.is_on = true;
    return true;
}

static bool start_alone(const struct cpu_options *options, const char *name, bool is_child,
                        char why[CPU_WHY]) {
    if (os_facts.secure || name[0] == '\0' || g.is_on || cpu_is_on()) {
        fmt_text(why, CPU_WHY, "%s",
                 os_facts.secure   ? "a set-uid program writes no profile"
                 : name[0] == '\0' ? "the name is empty"
                                   : "the CPU profiler is on already");
        return false;
    }
    if (!set_base(name)) {
        fmt_text(why, CPU_WHY, "%s", out_explain(-ENAMETOOLONG));
        return false;
    }
    set_path(is_child);
    return start(options, false, why);
}

bool cpu_file_start(const struct cpu_options *options, const char *name, char why[CPU_WHY]) {
    if (!enter(BUSY_MS)) {
        fmt_text(why, CPU_WHY, "the CPU profiler is busy");
        return false;
    }
    bool started = start_alone(options, name, false, why);
    leave();
    return started;
}

static void stop_alone(void) {
    if (g.is_on) {
        cpu_stop();
        flush();
        g.is_on = false;
    }
}

bool cpu_file_stop(void) {
    bool was_on = false;
    if (g.is_on && enter(BUSY_MS)) {
        was_on = g.is_on;
        stop_alone();
        leave();
    }
    return was_on;
}

bool cpu_end(void) {
    return cpu_file_stop() || cpu_stop();
}

/* A start by the signal that is under way is waited for, too. */
void cpu_file_exit(void) {
    g.is_over = true;
    if ((g.is_on || g.is_busy) && os_may_ask_kernel() && enter(EXIT_MS)) {
        stop_alone();
        leave();
    }
}

void cpu_file_flush(void) {
    if (g.is_on && enter(BUSY_MS)) {
        if (g.is_on) {
            writer_count();
            flush();
        }
        leave();
    }
}

bool cpu_file_read(char *name, size_t capacity, uint64_t *start_seconds) {
    name[0] = '\0';
    *start_seconds = 0;
    if (g.is_on) {
        fmt_text(name, capacity, "%s", path + g.name_at);
        *start_seconds = g.start_seconds;
    }
    return g.is_on;
}

/* ---------------------------------------------------------------- options */

struct cpu_options cpu_options_of_process(void) {
    return (struct cpu_options){.hz = (unsigned)opt.cpu_hz,
                                .is_wall = opt.cpu_clock == CPU_CLOCK_WALL,
                                .is_process_timer = opt.cpu_timer == CPU_TIMER_PROCESS,
                                .signal = (int)opt.cpu_signal};
}

static void on_toggle(int number) {
    (void)number;
    g.toggles++;
    writer_ring();
}

static bool catch_toggle(void) {
    struct sigaction action = {.sa_handler = on_toggle, .sa_flags = SA_RESTART | SA_ONSTACK};
    struct sigaction old;
    int number = (int)opt.cpu_toggle_signal;
    sigfillset(&action.sa_mask);
    return sigaction(number, NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) &&
           (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN ||
            old.sa_handler == on_toggle) &&
           sigaction(number, &action, NULL) == 0;
}

static void say_why_not(const char *why) {
    log_line("no CPU profile: %s: %s", opt.cpu_file, why);
}

/* The thread that does what the signal says. */
static void keep_writer(void) {
    writer_keep(true);
    if (!writer_make()) {
        say_why_not("a thread for it cannot be made");
    }
}

static void wait_for_toggle(void) {
    g.has_toggle = catch_toggle();
    if (g.has_toggle) {
        keep_writer();
    } else {
        log_line("signal %d is taken or cannot be caught: no CPU profile",
                 (int)opt.cpu_toggle_signal);
    }
}

/* The name that the option gives, with the process id for %p; false if it is too long then. */
static bool name_of_process(char *name, size_t capacity) {
    size_t length = 0;
    for (const char *from = opt.cpu_file; *from != '\0'; from++) {
        if (length + SUFFIX_BYTES >= capacity) {
            return false;
        }
        if (from[0] == '%' && from[1] == 'p') {
            length += fmt_text(name + length, SUFFIX_BYTES, "%u", os_process_id());
            from++;
        } else {
            name[length++] = *from;
        }
    }
    name[length] = '\0';
    return true;
}

STARTUP void cpu_settle(void) {
    char why[CPU_WHY];
    char name[OUT_FILE_PREFIX_BYTES];
    struct cpu_options options = cpu_options_of_process();
    if (opt.cpu_file[0] == '\0' || os_facts.secure) {
        return;
    }
    if (opt.cpu_toggle_signal != 0) {
        wait_for_toggle();
    } else if (!name_of_process(name, sizeof(name))) {
        say_why_not(out_explain(-ENAMETOOLONG));
    } else if (!cpu_file_start(&options, name, why)) {
        say_why_not(why);
    }
}

static void toggle(void) {
    char name[OUT_FILE_PREFIX_BYTES];
    char why[CPU_WHY];
    struct cpu_options options = cpu_options_of_process();
    if (g.is_on) {
        stop_alone();
        return;
    }
    if (!name_of_process(name, sizeof(name) - SUFFIX_BYTES)) {
        say_why_not(out_explain(-ENAMETOOLONG));
        return;
    }
    size_t length = strlen(name);
    fmt_text(name + length, sizeof(name) - length, ".%u", g.number++);
    if (!start_alone(&options, name, g.is_child, why)) {
        say_why_not(why);
    }
}

/* ---------------------------------------------------------------- the writer, and children */

static bool is_toggled(void) {
    return atomic_load(&g.toggles) != g.toggles_done && !g.is_over;
}

/* Outside of the gate of own.h: the file may be on a slow disk, and nothing else changes. */
static void toggle_as_own(void) {
    own_begin();
    g.toggles_done++;
    toggle();
    own_end();
}

bool cpu_file_tick(void) {
    bool is_due = g.is_on && os_now_ms() >= g.flush_ms;
    if ((!is_toggled() && !is_due) || !try_to_enter()) {
        return is_toggled();
    }
    if (!os_may_ask_kernel()) {
        g.flush_ms = UINT64_MAX;
        g.toggles_done = g.toggles;
    } else if (is_toggled()) {
        toggle_as_own();
    } else if (g.is_on) {
        flush();
    }
    leave();
    return is_toggled();
}

void cpu_file_forked(bool was_on) {
    g.is_busy = 0;
    g.is_child = true;
    g.toggles = g.toggles_done = 0;
    g.wants_again = g.is_on && was_on;
    g.is_on = false;
    if (g.wants_again || g.has_toggle) {
        attention_raise(ATTENTION_CPU);
    }
}

void cpu_begin_again(void) {
    char why[CPU_WHY];
    if (atomic_exchange(&g.wants_again, false) && enter(BUSY_MS)) {
        if (!g.is_on) {
            set_path(true);
            start(&g.options, true, why);
        }
        leave();
    }
    if (g.has_toggle && g.is_child) {
        keep_writer();
    }
}
