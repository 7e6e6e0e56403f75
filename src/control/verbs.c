/* SPDX-License-Identifier: MIT
 *
 * verbs.c - what can be asked for on the control socket, built on mallctl and the profiler.
 *
 * Nothing here takes a path, an address or a function: output goes to the descriptor that came with
 * the request, and only what ctl.def allows can be set.  Nothing raises a limit or grants a right.
 *
 * A verb works inside the allocator, as a call of the program would.  It holds no lock while it
 * writes, since the reader may be slow.
 */
#include "control/verbs.h"

#include <errno.h>
#include <string.h>

#include <tally/tally.h>

#include "base/bits.h"
#include "base/fmt.h"
#include "base/os.h"
#include "base/os_socket.h"
#include "base/own.h"
#include "control/control.h"
#include "control/ctl_set.h"
#include "control/recorder.h"
#include "cpu/cpu.h"
#include "leak/leak.h"
#include "opt/opt.h"
#include "prof/prof.h"

enum { REQUEST_MS = 1000, DUMP_MS = 60000, MARK_BYTES = 200, PAUSE_MS_MOST = 60000 };
static const uint64_t dump_bytes = 256 << 20;

struct call {
    const struct verbs_request *request;
    struct wire_writer *reply;
    const char *text; /* of an error */
};

typedef unsigned verb(struct call *call);

static unsigned fail(struct call *call, enum wire_code code, const char *text) {
    call->text = text;
    return code;
}

static const char *find(const struct call *call, const char *key) {
    return wire_find(call->request->message, key);
}

/* ---------------------------------------------------------------- output */

/* The destination of output, its deadline, and the bytes still allowed. */
struct output {
    int fd;
    int error;
    uint64_t end_ms;
    uint64_t written;
};

/* What comes after an error is dropped. */
static int write_output(void *target, const char *bytes, size_t length) {
    struct output *output = target;
    if (output->error == 0 && output->written + length > dump_bytes) {
        output->error = -EFBIG;
    }
    if (output->error == 0) {
        output->error = os_check_room(output->fd, length);
    }
    if (output->error == 0) {
        output->error = os_write_before(output->fd, bytes, length, output->end_ms);
        output->written += output->error == 0 ? length : 0;
    }
    return output->error;
}

static struct output begin_output(const struct call *call, uint64_t ms) {
    return (struct output){.fd = call->request->output, .end_ms = os_now_ms() + ms};
}

static unsigned end_output(struct call *call, const struct output *output, int error) {
    error = output->error != 0 ? output->error : error;
    switch (error) {
    case 0:
        wire_add_number(call->reply, "bytes", output->written);
        return 0;
    case -ETIMEDOUT:
        return fail(call, WIRE_DEADLINE, "whoever reads is too slow");
    case -EFBIG:
        return fail(call, WIRE_LIMIT, "more than may be written at once");
    case -ENOMEM:
        return fail(call, WIRE_UNAVAILABLE, "no memory");
    case -ENOTSUP:
        return fail(call, WIRE_UNAVAILABLE, "hide_addresses allows format=pprof only");
    default:
        return fail(call, WIRE_IO, out_explain(error));
    }
}

/* ---------------------------------------------------------------- looking */

static unsigned answer_hello(struct call *call) {
    wire_add(call->reply, "version", TALLY_VERSION);
    wire_add_number(call->reply, "pid", os_process_id());
    wire_add(call->reply, "control", call->request->right == VERBS_WRITE ? "write" : "read");
    wire_add_number(call->reply, "profiling", prof_is_active());
    wire_add_number(call->reply, "cpu", cpu_is_on());
    return 0;
}

static void write_text(void *target, const char *text) {
    (void)write_output(target, text, strlen(text));
}

/* The page is renewed in any case; a client that maps it needs no output. */
static unsigned answer_stats(struct call *call) {
    const char *format = find(call, "format");
    bool as_json = format != NULL && strcmp(format, "json") == 0;
    if (format != NULL && !as_json && strcmp(format, "text") != 0) {
        return fail(call, WIRE_SYNTAX, "format is text or json");
    }
    stats_page_renew();
    if (call->request->output < 0) {
        return 0;
    }
    struct output output = begin_output(call, REQUEST_MS);
    stats_print(write_text, &output, as_json ? "J" : "");
    return end_output(call, &output, 0);
}

static bool find_format(const char *name, enum dump_format *format) {
    static const struct {
        char name[12];
        enum dump_format format;
    } formats[] = {
        {"pprof", DUMP_PROTO}, {"jemalloc", DUMP_JEMALLOC}, {"gperftools", DUMP_GPERFTOOLS}};
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (name == NULL || strcmp(name, formats[i].name) == 0) {
            *format = formats[i].format;
            return true;
        }
    }
    return false;
}

static bool is_kind(const struct call *call, const char *kind) {
    const char *given = find(call, "kind");
    return given != NULL && strcmp(given, kind) == 0;
}

/* The size of a profile of the processor's time. */
static void tell_cpu(struct call *call) {
    struct cpu_totals totals;
    cpu_read_totals(&totals);
    wire_add_number(call->reply, "samples", totals.samples);
    wire_add_number(call->reply, "lost", totals.lost);
    wire_add_number(call->reply, "left_out", totals.left_out);
}

static unsigned dump_cpu(struct call *call) {
    const char *name = find(call, "format");
    bool is_legacy = name != NULL && strcmp(name, "gperftools-cpu") == 0;
    if (name != NULL && !is_legacy && strcmp(name, "pprof") != 0) {
        return fail(call, WIRE_SYNTAX, "format is pprof or gperftools-cpu");
    }
    if (cpu_hz() == 0) {
        return fail(call, WIRE_UNAVAILABLE, "the processor's time was not recorded yet");
    }
    if (!os_may_tell_user()) {
        return fail(call, WIRE_UNAVAILABLE, "the process may not be dumped");
    }
    if (is_legacy && opt.hide_addresses) {
        return fail(call, WIRE_UNAVAILABLE, "hide_addresses allows format=pprof only");
    }
    struct output output = begin_output(call, DUMP_MS);
    struct out_sink sink = {write_output, &output, opt.hide_addresses != 0};
    int error = cpu_dump_to_sink(sink, is_legacy ? CPU_GPERFTOOLS : CPU_PPROF);
    tell_cpu(call);
    return end_output(call, &output, error);
}

static unsigned answer_dump(struct call *call) {
    enum dump_format format;
    bool is_peak = is_kind(call, "peak");
    if (is_kind(call, "cpu")) {
        return dump_cpu(call);
    }
    if (find(call, "kind") != NULL && !is_peak && !is_kind(call, "heap")) {
        return fail(call, WIRE_SYNTAX, "kind is heap, peak or cpu");
    }
    if (!find_format(find(call, "format"), &format)) {
        return fail(call, WIRE_SYNTAX, "format is pprof, jemalloc or gperftools");
    }
    if (!prof_was_armed()) {
        return fail(call, WIRE_UNAVAILABLE, "the profiler was not started yet");
    }
    if (!os_may_tell_user()) {
        return fail(call, WIRE_UNAVAILABLE, "the process may not be dumped");
    }
    struct output output = begin_output(call, DUMP_MS);
    struct out_sink sink = {write_output, &output, opt.hide_addresses != 0};
    int error = dump_to_sink(sink, format, is_peak ? DUMP_PEAK : DUMP_NOW);
    return end_output(call, &output, error);
}

static unsigned answer_maps(struct call *call) {
    if (!os_may_tell_user()) {
        return fail(call, WIRE_UNAVAILABLE, "the process may not be dumped");
    }
    struct output output = begin_output(call, REQUEST_MS);
    int error = dump_modules((struct out_sink){write_output, &output, opt.hide_addresses != 0});
    return end_output(call, &output, error);
}

/* ---------------------------------------------------------------- the profiler */

/* Does the request say heap, cpu, or neither? */
static bool has_kind(const struct call *call) {
    return find(call, "kind") == NULL || is_kind(call, "heap") || is_kind(call, "cpu");
}

static unsigned start_cpu(struct call *call) {
    static char why[CPU_WHY]; /* only one thread answers */
    const char *text = find(call, "hz");
    uint64_t hz = CPU_HZ_DEFAULT;
    if (text != NULL && (!fmt_parse_number(text, strlen(text), &hz) || hz == 0)) {
        return fail(call, WIRE_SYNTAX, "hz is a number of samples per second");
    }
    struct cpu_options options = {.hz = (unsigned)min_size(hz, CPU_HZ_MOST),
                                  .signal = (int)opt.cpu_signal};
    if (cpu_is_on() && !(cpu_is_paused() && cpu_hz() == options.hz)) {
        return fail(call, WIRE_BUSY, "the processor's time is recorded already");
    }
    if (cpu_is_on()) {
        cpu_pause(false);
    } else if (!cpu_start(&options, why)) {
        return fail(call, WIRE_UNAVAILABLE, why);
    }
    stats_page_renew();
    wire_add_number(call->reply, "hz", options.hz);
    return 0;
}

static unsigned start_heap(struct call *call) {
    const char *rate = find(call, "rate");
    uint64_t bytes = 0;
    if (rate != NULL && (!fmt_parse_number(rate, strlen(rate), &bytes) || bytes == 0)) {
        return fail(call, WIRE_SYNTAX, "rate is a number of bytes");
    }
    unsigned lg = rate != NULL       ? bits_nearest_log2(bytes)
                  : prof_was_armed() ? prof_lg_sample()
                                     : (unsigned)opt.lg_prof_sample;
    if (recorder_is_on() && prof_lg_sample() != lg) {
        /* Another rate starts anew: what the run has recorded so far would be lost. */
        return fail(call, WIRE_BUSY, "this run is recorded at another rate");
    }
    prof_name_threads();
    prof_start(lg);
    triggers_restart();
    wire_add_number(call->reply, "rate", UINT64_C(1) << lg);
    return 0;
}

static unsigned answer_start(struct call *call) {
    if (!has_kind(call)) {
        return fail(call, WIRE_SYNTAX, "kind is heap or cpu");
    }
    return is_kind(call, "cpu") ? start_cpu(call) : start_heap(call);
}

/* The CPU profile of a recorded run belongs to its file, so it is only paused. */
static bool stop_cpu(void) {
    if (!recorder_has_cpu()) {
        return cpu_end();
    }
    bool was_on = cpu_is_on() && !cpu_is_paused();
    cpu_pause(true);
    return was_on;
}

/* Without a kind both are meant. */
static unsigned answer_stop(struct call *call) {
    if (!has_kind(call)) {
        return fail(call, WIRE_SYNTAX, "kind is heap or cpu");
    }
    if (!is_kind(call, "heap")) {
        if (!stop_cpu() && is_kind(call, "cpu")) {
            return fail(call, WIRE_UNAVAILABLE, "the processor's time is not recorded");
        }
        tell_cpu(call);
    }
    if (!is_kind(call, "cpu")) {
        prof_set_active(false);
        triggers_restart();
    }
    stats_page_renew();
    return 0;
}

static unsigned answer_reset(struct call *call) {
    bool has_heap = !is_kind(call, "cpu") && prof_was_armed();
    bool has_cpu = !is_kind(call, "heap") && cpu_hz() != 0;
    if (!has_kind(call)) {
        return fail(call, WIRE_SYNTAX, "kind is heap or cpu");
    }
    if (!has_heap && !has_cpu) {
        return fail(call, WIRE_UNAVAILABLE, "the profiler was not started yet");
    }
    if (has_cpu) {
        cpu_reset();
    }
    if (has_heap) {
        prof_reset(prof_lg_sample());
        triggers_restart();
    }
    (void)recorder_note("reset: what was recorded before is forgotten");
    return 0;
}

/* ---------------------------------------------------------------- the heap */

static unsigned answer_purge(struct call *call) {
    wire_add_number(call->reply, "bytes", heap_trim());
    return 0;
}

static unsigned set(struct call *call, const char *key, const char *text) {
    char old[CTL_SET_OLD_BYTES];
    int error = 0;
    const char *reason = ctl_set_refusal(key);
    if (reason != NULL) {
        return fail(call, WIRE_DENIED, reason);
    }
    const char *mistake = ctl_set(key, text, old, &error);
    if (mistake != NULL) {
        return fail(call, WIRE_SYNTAX, mistake);
    }
    switch (error) {
    case 0:
        if (old[0] != '\0') {
            wire_add(call->reply, "old", old);
        }
        return 0;
    case ENOENT:
        return fail(call, WIRE_UNAVAILABLE, "there is no such thing in this process now");
    case EINVAL:
    case EFAULT:
        return fail(call, WIRE_SYNTAX, "the value is not accepted");
    default:
        return fail(call, WIRE_UNAVAILABLE, "it could not be set");
    }
}

static unsigned answer_set(struct call *call) {
    const char *key = find(call, "key");
    const char *value = find(call, "value");
    if (key == NULL || value == NULL) {
        return fail(call, WIRE_SYNTAX, "set needs key and value");
    }
    return set(call, key, value);
}

static unsigned answer_mark(struct call *call) {
    const char *text = find(call, "text");
    if (text == NULL || text[0] == '\0' || strlen(text) > MARK_BYTES) {
        return fail(call, WIRE_SYNTAX, "mark needs a text of up to 200 bytes");
    }
    if (!recorder_note(text)) {
        return fail(call, WIRE_UNAVAILABLE, "nothing is recorded that a mark could stand in");
    }
    return 0;
}

_Static_assert(WIRE_LEAK_CHECK_S >= 2 * LEAK_SEARCH_MOST_S + PAUSE_MS_MOST / 1000,
               "who asks waits as long as it may take");

/* The client applies the suppressions, since it has better names.  The check is made outside, as by
 * a call of the program. */
static bool find_leaks(struct leaks *leaks, uint64_t pause_ms, bool is_quick) {
    struct leak_wish wish = {
        .step = opt.leak_step, .max_pause_ns = pause_ms * 1000000, .is_quick = is_quick};
    own_end(); /* or another check and this thread would wait for each other */
    thread_set_inside(false);
    bool is_done = leaks_find_by(leaks, &wish, false);
    thread_set_inside(true);
    own_begin();
    return is_done;
}

static unsigned write_leaks(struct call *call, const struct leaks *leaks) {
    struct output output = begin_output(call, DUMP_MS);
    struct out_sink sink = {write_output, &output, opt.hide_addresses != 0};
    own_end();
    thread_set_inside(false);
    int error = leaks_write(leaks, sink);
    thread_set_inside(true);
    own_begin();
    wire_add_number(call->reply, "pause_ns", leaks->result->pause_ns);
    return end_output(call, &output, error);
}

static unsigned answer_leak_check(struct call *call) {
    static struct leaks leaks; /* only one thread answers */
    const char *pause = find(call, "max_pause_ms"), *quick = find(call, "quick");
    uint64_t pause_ms = 1000;
    if (pause != NULL && (!fmt_parse_number(pause, strlen(pause), &pause_ms) || pause_ms == 0 ||
                          pause_ms > PAUSE_MS_MOST)) {
        return fail(call, WIRE_SYNTAX, "max_pause_ms is a number from 1 to 60000");
    }
    if (!os_may_tell_user()) {
        return fail(call, WIRE_UNAVAILABLE, "the process may not be dumped");
    }
    if (!find_leaks(&leaks, pause_ms, quick != NULL && strcmp(quick, "1") == 0)) {
        return fail(call, WIRE_UNAVAILABLE, leaks.why);
    }
    unsigned code = write_leaks(call, &leaks);
    leaks_release(&leaks);
    return code;
}

/* ---------------------------------------------------------------- the list */

enum output_need { NO_OUTPUT, MAY_HAVE_OUTPUT, NEEDS_OUTPUT };

static const struct {
    char name[12];
    enum verbs_right right;
    enum output_need output;
    verb *answer;
} verbs[] = {
    {"hello", VERBS_READ, NO_OUTPUT, answer_hello},
    {"stats", VERBS_READ, MAY_HAVE_OUTPUT, answer_stats},
    {"dump", VERBS_READ, NEEDS_OUTPUT, answer_dump},
    {"maps", VERBS_READ, NEEDS_OUTPUT, answer_maps},
    {"start", VERBS_WRITE, NO_OUTPUT, answer_start},
    {"stop", VERBS_WRITE, NO_OUTPUT, answer_stop},
    {"set", VERBS_WRITE, NO_OUTPUT, answer_set},
    {"purge", VERBS_WRITE, NO_OUTPUT, answer_purge},
    {"reset", VERBS_WRITE, NO_OUTPUT, answer_reset},
    {"mark", VERBS_WRITE, NO_OUTPUT, answer_mark},
    {"leak-check", VERBS_WRITE, NEEDS_OUTPUT, answer_leak_check},
};

static unsigned run(struct call *call, size_t number) {
    const struct verbs_request *request = call->request;
    if (request->right < verbs[number].right) {
        return fail(call, WIRE_DENIED, "this needs control:write");
    }
    if (verbs[number].output == NEEDS_OUTPUT && request->output < 0) {
        return fail(call, WIRE_SYNTAX, "a descriptor for the output must come along");
    }
    if (verbs[number].output == NO_OUTPUT && request->output >= 0) {
        return fail(call, WIRE_SYNTAX, "this has no output");
    }
    if (request->output >= 0 && os_check_output(request->output) != 0) {
        return fail(call, WIRE_DENIED, "output goes to a file or a pipe that is open for writing");
    }
    own_begin();
    thread_set_inside(true);
    unsigned code = verbs[number].answer(call);
    thread_set_inside(false);
    own_end();
    return code;
}

bool verbs_changes(const char *name) {
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return verbs[i].right == VERBS_WRITE;
        }
    }
    return false;
}

unsigned verbs_answer(const struct verbs_request *request, struct wire_writer *reply) {
    struct call call = {request, reply, "no such verb"};
    unsigned code = WIRE_UNKNOWN;
    wire_begin(reply, "ok");
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, request->message->verb) == 0) {
            code = run(&call, i);
        }
    }
    if (code == 0 && wire_end(reply) == 0) {
        code = fail(&call, WIRE_LIMIT, "the answer is too long");
    }
    if (code != 0) {
        wire_error(reply, (enum wire_code)code, call.text);
    }
    return code;
}
