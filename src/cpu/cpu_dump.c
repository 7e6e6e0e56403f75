/* SPDX-License-Identifier: MIT
 *
 * cpu_dump.c - a CPU profile as profile.proto, and in the binary format of gperftools.
 *
 *      gperftools   0 3 0 period 0 | count depth pc ... | count depth pc ... | 0 1 0 | text of the maps
 *
 * All are words of the machine.  The first pc of a stack is exact, the others are return addresses; in
 * profile.proto all lie in the call.  A stack that could not be kept for want of memory has no frames; the
 * binary format cannot say that, and leaves it out.
 */
#include <errno.h>

#include "base/fmt.h"
#include "base/os.h"
#include "cpu/rack.h"
#include "cpu/writer.h"
#include "out/maps.h"
#include "out/proto.h"
#include "prof/prof.h"

enum { NS_PER_US = 1000 };

/* ---------------------------------------------------------------- gperftools */

static void put_words(struct out *out, const uintptr_t *words, unsigned count) {
    out_bytes(out, words, count * sizeof(words[0]));
}

static void put_record(struct out *out, const struct cpu_sample *sample) {
    uintptr_t record[2 + RACK_DEPTH];
    unsigned depth = prof_read_stack(sample->stack, record + 2, RACK_DEPTH);
    if (depth == 0 || sample->count == 0) {
        return;
    }
    record[0] = sample->count;
    record[1] = depth;
    record[2]--;
    put_words(out, record, 2 + depth);
}

static void put_maps(struct out *out, const struct maps *maps) {
    size_t length;
    for (size_t at = 0; (length = maps_next_line(maps, at)) > 0; at += length) {
        if (maps_line_is_executable(maps->text.bytes + at, length)) {
            out_bytes(out, maps->text.bytes + at, length);
        }
    }
}

static int write_gperftools(struct out *out, const struct maps *maps) {
    struct cpu_totals totals;
    struct cpu_sample sample;
    cpu_read_totals(&totals);
    uintptr_t period_us = max_size(totals.period_ns / NS_PER_US, 1);
    put_words(out, (uintptr_t[]){0, 3, 0, period_us, 0}, 5);
    for (uint32_t i = 0; cpu_read_sample(i, &sample); i++) {
        put_record(out, &sample);
    }
    put_words(out, (uintptr_t[]){0, 1, 0}, 3);
    put_maps(out, maps);
    return 0;
}

/* ---------------------------------------------------------------- profile.proto */

enum word {
    WORD_NONE,
    WORD_SAMPLES,
    WORD_COUNT,
    WORD_CPU,
    WORD_WALL,
    WORD_NANOSECONDS,
    WORD_THREAD,
    WORD_THREAD_ID,
    WORDS,
};

static const char *const words[WORDS] = {
    [WORD_NONE] = "",         [WORD_SAMPLES] = "samples",     [WORD_COUNT] = "count",
    [WORD_CPU] = "cpu",       [WORD_WALL] = "wall",           [WORD_NANOSECONDS] = "nanoseconds",
    [WORD_THREAD] = "thread", [WORD_THREAD_ID] = "thread_id",
};

static void put_locations(struct proto *proto, uint32_t stack) {
    uintptr_t addresses[RACK_DEPTH];
    unsigned depth = prof_read_stack(stack, addresses, RACK_DEPTH);
    for (unsigned i = 0; i < depth; i++) {
        proto_put_varint(&proto->inner, proto_number_location(proto, addresses[i] - 1));
    }
    proto_put_inner(proto, SAMPLE_LOCATION);
}

static void write_sample(struct proto *proto, const struct cpu_sample *sample, uint64_t period_ns) {
    char name[16];
    pid_t tid;
    put_locations(proto, sample->stack);
    proto_put_varint(&proto->inner, sample->count);
    proto_put_varint(&proto->inner, sample->count * period_ns);
    proto_put_inner(proto, SAMPLE_VALUE);
    if (cpu_read_thread(sample->thread, name, &tid)) {
        proto_put_text_label(proto, WORD_THREAD, proto_own_string(proto) + sample->thread);
        proto_put_number_label(proto, WORD_THREAD_ID, (uint64_t)tid, WORD_NONE);
    }
    proto_write_message(proto, PROFILE_SAMPLE);
}

/* Of the threads up to the last that has samples; one without a name is called by its number. */
static void write_thread_names(struct proto *proto, uint32_t count) {
    char name[16] = "";
    pid_t tid;
    for (uint32_t i = 0; i < count; i++) {
        if (!cpu_read_thread(i, name, &tid)) {
            name[0] = '\0'; /* A profile that has begun meanwhile does not know it. */
        } else if (name[0] == '\0') {
            fmt_text(name, sizeof(name), "%d", tid);
        }
        proto_write_string(proto, name);
    }
}

static void write_comment(struct proto *proto, uint32_t string, const char *text) {
    proto_write_string(proto, text);
    proto_write_number(proto, PROFILE_COMMENT, proto_own_string(proto) + string);
}

/* What is missing; strings of ours are those of the threads until now. */
static void write_comments(struct proto *proto, uint32_t threads, const struct cpu_totals *totals) {
    char text[64];
    uint32_t string = threads;
    if (totals->lost > 0) {
        fmt_text(text, sizeof(text), "%lu samples were lost", (unsigned long)totals->lost);
        write_comment(proto, string++, text);
    }
    if (totals->left_out > 0) {
        fmt_text(text, sizeof(text), "%u threads could not be sampled", totals->left_out);
        write_comment(proto, string, text);
    }
}

static uint32_t write_samples(struct proto *proto, uint64_t period_ns) {
    struct cpu_sample sample;
    uint32_t threads = 0;
    for (uint32_t i = 0; proto->error == 0 && cpu_read_sample(i, &sample); i++) {
        threads = sample.thread >= threads ? sample.thread + 1 : threads;
        write_sample(proto, &sample, period_ns);
    }
    return threads;
}

static int write_proto(struct out *out, const struct maps *maps, bool is_plain) {
    struct proto *proto = proto_begin(out, maps, (struct proto_words){words, WORDS}, is_plain);
    struct cpu_totals totals;
    if (proto == NULL) {
        return -ENOMEM;
    }
    cpu_read_totals(&totals);
    enum word time = totals.is_wall ? WORD_WALL : WORD_CPU;
    proto_write_type(proto, PROFILE_SAMPLE_TYPE, WORD_SAMPLES, WORD_COUNT);
    proto_write_type(proto, PROFILE_SAMPLE_TYPE, time, WORD_NANOSECONDS);
    uint32_t threads = write_samples(proto, totals.period_ns);
    proto_write_places(proto);
    write_thread_names(proto, threads);
    write_comments(proto, threads, &totals);
    uint64_t age = os_now_ns() - totals.start_ns;
    proto_write_number(proto, PROFILE_TIME, os_wall_ns() - age);
    proto_write_number(proto, PROFILE_DURATION, age);
    proto_write_type(proto, PROFILE_PERIOD_TYPE, time, WORD_NANOSECONDS);
    proto_write_number(proto, PROFILE_PERIOD, totals.period_ns);
    return proto_end(proto);
}

/* ---------------------------------------------------------------- both */

struct profile {
    enum cpu_format format;
    bool hides_addresses;
};

static int write_profile(struct out *out, const void *what) {
    const struct profile *profile = what;
    struct maps maps;
    maps_read(&maps);
    maps.hides = profile->hides_addresses;
    int error = profile->format == CPU_GPERFTOOLS
                    ? write_gperftools(out, &maps)
                    : write_proto(out, &maps, profile->format == CPU_PPROF_PLAIN);
    maps_release(&maps);
    return error;
}

int cpu_dump_to_sink(struct out_sink sink, enum cpu_format format) {
    struct profile profile = {format, sink.hides_addresses};
    if (sink.hides_addresses && format == CPU_GPERFTOOLS) {
        return -ENOTSUP;
    }
    writer_count();
    return out_run(sink, write_profile, &profile);
}

int cpu_dump_fill(struct out *out, enum cpu_format format) {
    struct profile profile = {format, false};
    return write_profile(out, &profile);
}

bool cpu_dump_fd(int fd, enum cpu_format format) {
    return cpu_dump_to_sink((struct out_sink){out_to_descriptor, &fd, false}, format) == 0;
}
