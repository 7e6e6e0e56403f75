/* SPDX-License-Identifier: MIT
 *
 * verbs.c - what can be asked for on the control socket, over what mallctl and the profiler offer anyway.
 *
 * Nothing here takes a path, an address or a function: output goes to the descriptor that came along, and
 * what can be set is what ctl.def leaves to others.  Nothing raises a limit or gives a right.
 *
 * A verb works inside the allocator, as a call of the program would.  It holds no lock while it writes:
 * whoever reads may be slow, and nobody shall wait for that.
 */
#include "control/verbs.h"

#include <errno.h>
#include <string.h>

#include <tally/tally.h>

#include "base/bits.h"
#include "base/fmt.h"
#include "base/opt.h"
#include "base/os.h"
#include "base/os_socket.h"
#include "control/control.h"
#include "control/ctl_set.h"
#include "prof/prof.h"

enum { REQUEST_MS = 1000, DUMP_MS = 60000, MARK_BYTES = 200 };
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

/* Where output goes, until when, and how much may still come. */
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
        return fail(call, WIRE_IO, dump_explain(error));
    }
}

/* ---------------------------------------------------------------- looking */

static unsigned answer_hello(struct call *call) {
    wire_add(call->reply, "version", TALLY_VERSION);
    wire_add_number(call->reply, "pid", os_process_id());
    wire_add(call->reply, "control", call->request->right == VERBS_WRITE ? "write" : "read");
    wire_add_number(call->reply, "profiling", prof_is_active());
    return 0;
}

static void write_text(void *target, const char *text) {
    (void)write_output(target, text, strlen(text));
}

/* The page is renewed in any case; whoever has it needs no output. */
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

static unsigned answer_dump(struct call *call) {
    const char *kind = find(call, "kind");
    enum dump_format format;
    bool is_peak = kind != NULL && strcmp(kind, "peak") == 0;
    if (kind != NULL && !is_peak && strcmp(kind, "heap") != 0) {
        return fail(call, WIRE_SYNTAX, "kind is heap or peak");
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
    struct dump_sink sink = {write_output, &output, opt.hide_addresses != 0};
    int error = dump_to_sink(sink, format, is_peak ? DUMP_PEAK : DUMP_NOW);
    return end_output(call, &output, error);
}

static unsigned answer_maps(struct call *call) {
    if (!os_may_tell_user()) {
        return fail(call, WIRE_UNAVAILABLE, "the process may not be dumped");
    }
    struct output output = begin_output(call, REQUEST_MS);
    int error = dump_modules((struct dump_sink){write_output, &output, opt.hide_addresses != 0});
    return end_output(call, &output, error);
}

/* ---------------------------------------------------------------- the profiler */

static unsigned answer_start(struct call *call) {
    const char *rate = find(call, "rate");
    uint64_t bytes = 0;
    if (rate != NULL && (!fmt_parse_number(rate, strlen(rate), &bytes) || bytes == 0)) {
        return fail(call, WIRE_SYNTAX, "rate is a number of bytes");
    }
    unsigned lg = rate != NULL       ? bits_nearest_log2(bytes)
                  : prof_was_armed() ? prof_lg_sample()
                                     : (unsigned)opt.lg_prof_sample;
    if (recorder_is_on() && prof_lg_sample() != lg) {
        /* Another rate begins anew, and what the run has recorded so far would be gone. */
        return fail(call, WIRE_BUSY, "this run is recorded at another rate");
    }
    if (!prof_was_armed() || prof_lg_sample() != lg) {
        prof_reset(lg);
    }
    prof_set_active(true);
    triggers_restart();
    wire_add_number(call->reply, "rate", UINT64_C(1) << lg);
    return 0;
}

static unsigned answer_stop(struct call *call) {
    (void)call;
    prof_set_active(false);
    triggers_restart();
    return 0;
}

static unsigned answer_reset(struct call *call) {
    if (!prof_was_armed()) {
        return fail(call, WIRE_UNAVAILABLE, "the profiler was not started yet");
    }
    prof_reset(prof_lg_sample());
    (void)recorder_note("reset: what was recorded before is forgotten");
    triggers_restart();
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

static unsigned answer_leak_check(struct call *call) {
    return fail(call, WIRE_UNAVAILABLE, "this version has no leak check");
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
    {"leak-check", VERBS_WRITE, NO_OUTPUT, answer_leak_check},
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
    thread_mark_inside(true);
    unsigned code = verbs[number].answer(call);
    thread_mark_inside(false);
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
