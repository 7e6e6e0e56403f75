/* SPDX-License-Identifier: MIT
 *
 * recorder.c - which processes record themselves, and when frames are written.
 *
 *      points      every 50 ms at first            collected, written each second
 *      snapshots   100, 200, 400 ms, then each     at the end, too, and when a trigger asks
 *                  run_every_ms
 *
 * After each 256 of a kind its interval doubles, so a week gives a few thousand.  After a snapshot
 * the recorder waits at least a hundred times as long as it took; a snapshot that is large,
 * compared to the room that is left, doubles the interval.  So the recorder takes at most about 1 %
 * of one CPU, and history never grows beyond 64 MiB.  The last snapshot is no history: it comes on
 * top, however large it is, because figures of the whole run are read from it.  Where it cannot be
 * written all the same, the last frame says so.
 *
 * The background thread, which the recorder asks for (triggers.c), looks at the clock; where there
 * can be none, slow calls do.  Nothing is sampled between two slow calls, so all that is missed
 * then is the last moments before the program fell idle.  A process that ends by _exit, exec or a
 * signal leaves what was written until then.
 *
 * `tally run` says in TALLY_ROOT which process it has started.  All other processes that find the
 * variable are descendants, and record themselves only if run_children matches their name.  So do
 * forked children, each in a file of its own, which begins when the child has lived for a moment or
 * ends by itself: most call exec at once.  The others do nothing at all: the options are meant for
 * another process.
 *
 * Threads     The thread that holds `is_busy` writes, and owns everything else.  A child that
 *             shares its parent's memory (vfork) has another process id, and touches nothing.
 */
#include "control/recorder.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include <tally/tally.h>

#include "base/attention.h"
#include "base/fmt.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_socket.h"
#include "control/control.h"
#include "control/pressure.h"
#include "cpu/cpu.h"
#include "heap/counts.h"
#include "opt/opt.h"
#include "out/container.h"
#include "prof/prof.h"

enum {
    POINT_MS = 50,
    FIRST_SNAP_MS = 100,
    POINTS_WRITTEN_MS = 1000,
    DOUBLED_AFTER = 256,
    COST_SHARE = 100,  /* a snapshot may take 1/this of the time until the next */
    ROOM_SHARE = 64,   /* and 1/this of the room that is left */
    POINTS_MOST = 64,  /* collected */
    TAKEN_MOST = 1000, /* file names to try */
    /* A snapshot that finds no room doubles the interval, and triggers may ask for any number. */
    INTERVAL_MS_MOST = 1 << 30,
    BUSY_MS = 10,      /* before looking again when another thread is at it */
    END_WAITS = 500,   /* number of such waits at exit */
    TEXT_BYTES = 8192, /* of the first frame */
};
static const uint64_t HISTORY_BYTES_MOST = 64 << 20;
static const uint64_t LAST_BYTES_MOST = 896 << 20; /* the command reads files of 1 GiB */

/* Something that is done at growing intervals. */
struct pace {
    uint64_t next_ms, interval_ms, count;
};

static struct {
    _Atomic bool is_on;
    _Atomic bool is_quiet; /* a descendant that is not to record itself */
    _Atomic uint32_t is_busy;
    _Atomic bool is_wished;   /* a snapshot is wanted, but another thread was busy */
    _Atomic uint64_t next_ms; /* when the next thing is due */
    /* What follows belongs to the holder of is_busy. */
    bool is_begun, has_armed, is_above;
    bool is_root;               /* the process that was started, or TALLY_ROOT is not set */
    _Atomic bool has_cpu;       /* the recorder has started the CPU profiler */
    bool must_start_cpu;        /* in a child, once the child has a file */
    _Atomic bool may_start_cpu; /* now it has */
    uint64_t written_ms;
    struct pace snaps, points;
    unsigned point_count;
} g;

/* Not in g, since few processes touch them. */
SPARSE static struct container container;
SPARSE static struct container_point points[POINTS_MOST];

STARTUP bool recorder_is_on(void) {
    return g.is_on;
}

bool recorder_has_cpu(void) {
    return g.is_on && g.has_cpu;
}

bool recorder_is_meant(void) {
    return !g.is_quiet;
}

/* ---------------------------------------------------------------- which processes */

/* When this process started, in the kernel's units: the 22nd word of its line.  Words are counted
 * from the end of the name, since that may contain blanks. */
static uint64_t start_time(void) {
    char text[1024];
    uint64_t time = 0;
    if (os_read_file("/proc/self/stat", text, sizeof(text)) <= 0) {
        return 0;
    }
    const char *word = strrchr(text, ')');
    for (int i = 2; word != NULL && i < 22; i++) {
        word = strchr(word + 1, ' ');
    }
    return word != NULL && fmt_parse_number(word + 1, strspn(word + 1, "0123456789"), &time) ? time
                                                                                             : 0;
}

/* TALLY_ROOT=PID:STARTTIME */
static bool is_root(void) {
    const char *root = os_environment("TALLY_ROOT");
    char own[48];
    if (root == NULL) {
        return true;
    }
    fmt_text(own, sizeof(own), "%u:%lu", os_process_id(), (unsigned long)start_time());
    return strcmp(root, own) == 0;
}

/* The last part of the program's path; returns its length. */
static size_t program_name(char *name, size_t capacity) {
    char path[1024];
    int length = os_read_link("/proc/self/exe", path, sizeof(path) - 1);
    if (length <= 0) {
        name[0] = '\0';
        return 0;
    }
    path[length] = '\0';
    const char *slash = strrchr(path, '/');
    return fmt_text(name, capacity, "%s", slash != NULL ? slash + 1 : path);
}

/* Does the text match a pattern with * and ?  After a mismatch the last star takes one character
 * more. */
static bool matches(const char *pattern, const char *text) {
    const char *star = NULL, *resume = NULL;
    while (*text != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            resume = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star + 1;
            text = ++resume;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}

static bool is_wanted_child(void) {
    char name[256];
    program_name(name, sizeof(name));
    return opt.run_children[0] != '\0' && matches(opt.run_children, name);
}

/* ---------------------------------------------------------------- names */

/*
 * The path of the option, with %p replaced by the process id, made unique before the ending .tally:
 * by the process id, for a process other than the first, and by a number.
 */
static size_t put_name(char *path, bool with_process, unsigned number) {
    char process[24] = "", suffix[48] = "";
    const char *from = opt.run_file;
    size_t at = 0, length = strlen(from);
    bool has_ending = length > 6 && strcmp(from + length - 6, ".tally") == 0;
    const char *ending = from + length - (has_ending ? 6 : 0);
    fmt_text(process, sizeof(process), "%u", os_process_id());
    for (; from < ending && at < OUT_FILE_PREFIX_BYTES; from++) {
        if (from[0] == '%' && from[1] == 'p') {
            at += fmt_text(path + at, OUT_FILE_NAME_BYTES - at, "%s", process);
            with_process = false;
            from++;
        } else {
            from += from[0] == '%' && from[1] == '%';
            path[at++] = *from;
        }
    }
    if (number > 1) {
        fmt_text(suffix, sizeof(suffix), ".%u", number);
    }
    return at + fmt_text(path + at, OUT_FILE_NAME_BYTES - at, "%s%s%s%s", with_process ? "." : "",
                         with_process ? process : "", suffix, has_ending ? ".tally" : "");
}

/* Makes a name independent of later changes of the working directory. */
static bool make_absolute(char path[OUT_FILE_NAME_BYTES], char scratch[OUT_FILE_NAME_BYTES]) {
    if (path[0] == '/') {
        return true;
    }
    int length = os_read_link("/proc/self/cwd", scratch, OUT_FILE_NAME_BYTES - 1);
    size_t own = strlen(path);
    if (length <= 0 || (size_t)length + own + 2 > OUT_FILE_NAME_BYTES) {
        return false;
    }
    scratch[length] = '/';
    memcpy(scratch + length + 1, path, own + 1);
    memcpy(path, scratch, (size_t)length + own + 2);
    return true;
}

/* ---------------------------------------------------------------- the first frame and the last */

/* Adds one line to the first frame; a character that would end it early becomes a blank. */
static size_t put_line(char *text, size_t at, const char *key, const char *value) {
    size_t start = at + fmt_text(text + at, TEXT_BYTES - at, "%s=", key);
    at = start + fmt_text(text + start, TEXT_BYTES - start, "%s", value);
    for (size_t i = start; i < at; i++) {
        text[i] = (unsigned char)text[i] < ' ' ? ' ' : text[i];
    }
    return at + fmt_text(text + at, TEXT_BYTES - at, "\n");
}

static size_t put_number(char *text, size_t at, const char *key, uint64_t number) {
    char value[24];
    fmt_text(value, sizeof(value), "%lu", (unsigned long)number);
    return put_line(text, at, key, value);
}

/* /proc has words that each end with a NUL.  They come last, since they may exceed the room. */
static size_t put_arguments(char *text, size_t at, char *scratch) {
    int length = os_read_file("/proc/self/cmdline", scratch, TEXT_BYTES / 2);
    for (int i = 0; i < length;) {
        if (i > 0) { /* The first is the program. */
            at = put_line(text, at, "argument", scratch + i);
        }
        i += (int)strlen(scratch + i) + 1;
    }
    return at;
}

static size_t describe_run(char *text, char *scratch) {
    int length = os_read_link("/proc/self/exe", scratch, TEXT_BYTES / 2);
    scratch[length > 0 ? length : 0] = '\0';
    size_t at = put_line(text, 0, "program", scratch);
    at = put_number(text, at, "pid", os_process_id());
    if (os_read_file("/proc/sys/kernel/hostname", scratch, 256) > 0) {
        scratch[strcspn(scratch, "\n")] = '\0';
        at = put_line(text, at, "host", scratch);
    }
    at = put_number(text, at, "rate", UINT64_C(1) << opt.lg_prof_sample);
    at = put_line(text, at, "version", TALLY_VERSION);
    return put_arguments(text, at, scratch);
}

/* Memory straight from the kernel, for the duration of the call. */
struct room {
    char path[OUT_FILE_NAME_BYTES], scratch[OUT_FILE_NAME_BYTES];
    char text[TEXT_BYTES], words[TEXT_BYTES];
};

static int begin_in(struct room *room) {
    size_t length = describe_run(room->text, room->words);
    int error = -EEXIST;
    for (unsigned i = 1; i <= TAKEN_MOST && error == -EEXIST; i++) {
        put_name(room->path, !g.is_root, i);
        error = make_absolute(room->path, room->scratch)
                    ? container_begin(&container, room->path, room->text, length)
                    : -ENAMETOOLONG;
    }
    return error;
}

/* The file can take no more; says so once. */
static void stop(const char *path, int error) {
    if (!atomic_exchange(&g.is_on, false)) {
        return; /* It was said. */
    }
    log_line("the run is not recorded any further: cannot write %s: %s (%d)", path,
             out_explain(error), -error);
}

static bool begin(void) {
    size_t bytes = align_up(sizeof(struct room), os_facts.page_bytes);
    struct room *room = os_map(bytes);
    int error = room != NULL ? begin_in(room) : -ENOMEM;
    if (error != 0) {
        stop(room != NULL ? room->path : opt.run_file, error);
    }
    if (room != NULL) {
        os_unmap(room, bytes);
    }
    g.is_begun = error == 0;
    return g.is_begun;
}

/* ---------------------------------------------------------------- what is written */

/* Errors that may pass: no memory, a snapshot too large, all descriptors of the program in use. */
static bool may_pass(int error) {
    return error == -ENOMEM || error == -EMSGSIZE || error == -EMFILE || error == -ENFILE;
}

static bool is_written(int error) {
    if (error != 0 && !may_pass(error)) {
        stop(container.path, error);
    }
    return error == 0;
}

static void take_point(void) {
    struct prof_totals totals;
    struct total_counts counts;
    prof_read_totals(&totals);
    counts_read_totals(&counts);
    double allocated = totals.accumulated.all_bytes, live = totals.live.all_bytes;
    points[g.point_count++] = (struct container_point){
        .t_ns = container_now(&container),
        .rss = pressure_resident_bytes(),
        .live = counts.allocated,
        .held = counts.resident,
        .allocated = (uint64_t)allocated,
        .freed = allocated > live ? (uint64_t)(allocated - live) : 0,
    };
}

static void write_points(uint64_t now) {
    if (g.point_count > 0) {
        (void)is_written(container_stat(&container, points, g.point_count));
        g.point_count = 0;
    }
    g.written_ms = now;
}

static uint64_t history_left(void) {
    return HISTORY_BYTES_MOST - min_size(container.bytes, HISTORY_BYTES_MOST);
}

/* The largest snapshot allowed now. */
static uint64_t room_for_snap(bool is_last) {
    return is_last ? LAST_BYTES_MOST : history_left();
}

/* The next snapshot comes later if this one was expensive. */
static void slow_down(uint64_t took_ms, uint64_t bytes) {
    struct pace *pace = &g.snaps;
    if (pace->interval_ms < opt.run_every_ms) {
        pace->interval_ms = min_size(2 * pace->interval_ms, opt.run_every_ms);
    } else if (pace->count % DOUBLED_AFTER == 0 || bytes > history_left() / ROOM_SHARE) {
        pace->interval_ms = min_size(2 * pace->interval_ms, INTERVAL_MS_MOST);
    }
    pace->next_ms = os_now_ms() + max_size(pace->interval_ms, took_ms * COST_SHARE);
}

static int write_cpu(struct out_sink sink) {
    return cpu_dump_to_sink(sink, CPU_PPROF_PLAIN);
}

static int write_heap(struct out_sink sink) {
    return dump_to_sink(sink, DUMP_SNAPSHOT, DUMP_NOW);
}

/* Writes the processor's time until now, before the snapshot of the same moment. */
static void snap_cpu(bool is_last) {
    if (g.has_cpu && os_may_tell_user()) {
        (void)is_written(
            container_profile(&container, FRAME_CPU, room_for_snap(is_last), write_cpu));
    }
}

/* False: it could not be written. */
static bool snap(bool is_last) {
    uint64_t before = container.bytes;
    uint64_t start = os_now_ns();
    snap_cpu(is_last);
    /* Asked each time: the program may have changed its rights, or hidden its memory, meanwhile. */
    int error = -EPERM;
    if (os_may_tell_user()) {
        error = container_profile(&container, FRAME_SNAP, room_for_snap(is_last), write_heap);
    }
    uint64_t bytes = is_written(error) ? container.bytes - before : HISTORY_BYTES_MOST;
    g.snaps.count++;
    slow_down((os_now_ns() - start) / 1000000, bytes);
    return error == 0;
}

STARTUP void recorder_start_cpu(void) {
    struct cpu_options options = {.hz = (unsigned)opt.run_cpu_hz, .signal = (int)opt.cpu_signal};
    char why[CPU_WHY];
    if (!g.is_on || options.hz == 0 || g.has_cpu) {
        return;
    }
    g.has_cpu = cpu_start(&options, why);
    if (!g.has_cpu) {
        log_line("the processor's time is not recorded: %s", why);
    }
}

void recorder_start_cpu_in_child(void) {
    if (atomic_exchange(&g.may_start_cpu, false)) {
        recorder_start_cpu();
    }
}

/* Counts samples that are still on their way. */
static void end_cpu(void) {
    if (g.has_cpu) {
        (void)cpu_stop();
    }
}

/* ---------------------------------------------------------------- the clock */

static bool is_due(const struct pace *pace, uint64_t now) {
    return now >= pace->next_ms;
}

/* One snapshot each time the limit is reached; memory has to fall 1/16 below it before the next. */
static bool crosses_limit(uint64_t rss) {
    uint64_t limit = opt.run_rss;
    bool was_above = g.is_above;
    g.is_above = limit != 0 && rss >= (was_above ? limit - limit / 16 : limit);
    return g.is_above && !was_above;
}

static void point(uint64_t now) {
    struct pace *pace = &g.points;
    take_point();
    if (++pace->count % DOUBLED_AFTER == 0) {
        pace->interval_ms *= 2;
    }
    pace->next_ms = now + pace->interval_ms;
    if (crosses_limit(points[g.point_count - 1].rss)) {
        (void)is_written(
            container_note(&container, "the memory of the process has reached run_rss"));
        g.snaps.next_ms = now;
    }
    if (g.point_count == POINTS_MOST || now - g.written_ms >= POINTS_WRITTEN_MS) {
        write_points(now);
    }
}

/* Is this a child that has not yet noticed the fork, or one that shares its parent's memory?  Such
 * a child neither writes nor waits for a thread of its parent. */
static bool is_others(void) {
    return g.is_begun && container.process != os_process_id();
}

static void look(uint64_t now) {
    if (is_others() || (!g.is_begun && !begin())) {
        return;
    }
    if (g.must_start_cpu) { /* Later: at the end of a free no thread can be made. */
        g.must_start_cpu = false;
        g.may_start_cpu = true;
        attention_raise(ATTENTION_CPU);
    }
    if (atomic_exchange(&g.is_wished, false)) {
        (void)is_written(
            container_note(&container, "a trigger, while another snapshot was written"));
        g.snaps.next_ms = now;
    }
    if (is_due(&g.points, now)) {
        point(now);
    }
    if (g.is_on && is_due(&g.snaps, now)) {
        write_points(now);
        (void)snap(false);
    }
    g.next_ms = min_size(g.points.next_ms, g.snaps.next_ms);
}

static bool take_turn(void) {
    return atomic_exchange(&g.is_busy, 1) == 0;
}

static void end_turn(void) {
    atomic_store(&g.is_busy, 0);
    os_wake(&g.is_busy);
}

uint64_t recorder_tick(void) {
    if (LIKELY(!g.is_on)) {
        return UINT64_MAX;
    }
    uint64_t now = os_now_ms();
    if (now >= g.next_ms || g.is_wished) {
        if (!take_turn()) {
            return BUSY_MS;
        }
        look(now);
        end_turn();
    }
    uint64_t next = g.next_ms;
    return next > now ? next - now : 1;
}

/* If another thread is busy, the wish is left to the next look at the clock. */
void recorder_snap(const char *why) {
    if (!g.is_on) {
        return;
    }
    if (!take_turn()) {
        g.is_wished = true;
        return;
    }
    if (!is_others()) {
        if (g.is_begun) {
            (void)is_written(container_note(&container, why));
        }
        g.snaps.next_ms = 0;
        look(os_now_ms());
    }
    end_turn();
}

/* Another thread may be in the middle of a snapshot; gives up after some seconds. */
static bool wait_for_turn(void) {
    for (int i = 0; i < END_WAITS; i++) {
        if (take_turn()) {
            return true;
        }
        os_wait_ms(&g.is_busy, 1, BUSY_MS);
    }
    return false;
}

bool recorder_note(const char *text) {
    if (!g.is_on || is_others() || !wait_for_turn()) {
        return false;
    }
    bool is_done =
        g.is_on && (g.is_begun || begin()) && is_written(container_note(&container, text));
    end_turn();
    return is_done;
}

bool recorder_leaks(const char *text, size_t length) {
    if (!g.is_on || is_others() || !wait_for_turn()) {
        return false;
    }
    bool is_done = g.is_on && (g.is_begun || begin()) && length <= room_for_snap(false) &&
                   is_written(container_leaks(&container, text, length));
    end_turn();
    return is_done;
}

/* ---------------------------------------------------------------- start, end, fork */

/* Paces begin anew. */
static void start(void) {
    uint64_t now = os_now_ms();
    uint64_t every = opt.run_every_ms;
    g.is_begun = false;
    g.point_count = 0;
    g.written_ms = now;
    g.points = (struct pace){now, min_size(POINT_MS, every), 0};
    g.snaps =
        (struct pace){now + min_size(FIRST_SNAP_MS, every), min_size(FIRST_SNAP_MS, every), 0};
    g.next_ms = g.points.next_ms;
    g.is_on = true;
}

STARTUP bool recorder_init(void) {
    if (opt.run_file[0] == '\0' || os_facts.secure) {
        return false;
    }
    g.is_root = is_root();
    g.is_quiet = !g.is_root && !is_wanted_child();
    if (g.is_quiet) {
        return false;
    }
    start();
    prof_name_threads();
    g.has_armed = begin() && !opt.prof;
    return g.is_begun;
}

/* The lines of the last frame. */
static size_t describe_end(char *text, size_t room, size_t live_blocks, bool has_snapshot) {
    struct prof_totals totals;
    prof_read_totals(&totals);
    size_t length = fmt_text(
        text, room, "samples=%lu\ndropped=%lu\nsnapshots=%lu\nlive_blocks=%lu\nend_snapshot=%u\n",
        (unsigned long)totals.accumulated.objects, (unsigned long)totals.drops,
        (unsigned long)g.snaps.count, (unsigned long)live_blocks, has_snapshot ? 1U : 0U);
    if (g.has_cpu) {
        struct cpu_totals time;
        cpu_read_totals(&time);
        length += fmt_text(text + length, room - length,
                           "cpu_samples=%lu\ncpu_lost=%lu\ncpu_left_out=%u\n",
                           (unsigned long)time.samples, (unsigned long)time.lost, time.left_out);
    }
    return length;
}

static void write_end(void) {
    char text[320];
    take_point(); /* There is room for it: a full array is written at once. */
    size_t live_blocks = heap_totals().live_objects;
    write_points(os_now_ms());
    end_cpu();
    bool has_snapshot = snap(true);
    size_t length = describe_end(text, sizeof(text), live_blocks, has_snapshot);
    if (g.is_on) {
        (void)is_written(container_end(&container, text, length));
    }
}

void recorder_end(void) {
    if (!g.is_on || is_others() || !wait_for_turn()) {
        return;
    }
    if (g.is_begun || begin()) {
        write_end();
        g.is_on = false;
    }
    end_turn();
}

void recorder_forked(void) {
    g.is_busy = 0;
    g.is_wished = false;
    if (!g.is_on) {
        return;
    }
    g.is_root = false;
    g.may_start_cpu = false;
    g.has_cpu = false; /* The parent's processor time was recorded; the child's is not yet. */
    g.is_quiet = !is_wanted_child();
    if (!g.is_quiet) {
        start();
        g.must_start_cpu = opt.run_cpu_hz != 0;
        g.next_ms = g.points.next_ms = os_now_ms() + FIRST_SNAP_MS;
    } else {
        g.is_on = false;
        if (g.has_armed) {
            prof_set_active(false);
        }
    }
}
