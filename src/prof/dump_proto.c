/* SPDX-License-Identifier: MIT
 *
 * dump_proto.c - the heap as profile.proto, which pprof and many other tools read.
 *
 * proto.h says how the message is made.  Our own strings are names of threads, then comments.
 *
 * A stack of a thread has a sample for each range of sizes (context.h), whose label bytes is their mean.  Values are
 * rounded so that those of the stack add up to its own, rounded.
 *
 * Values are our estimates; no reader multiplies.  Addresses lie inside the call: one less than its
 * return address.
 *
 * A dump is compressed by gzip and has the four types that readers expect, how many of the bytes in
 * use nobody asked for, and, unless it is of the peak, how much free space they keep (pinned.c).  A
 * snapshot of a container (frames.h) is plain, because the command compresses, and also has the
 * peak and short-lived objects.  A context has one sample for what was not freed, and one for each
 * step of lifetimes.h that something of it was freed after: readers add them up to the same sums,
 * and can look at either alone.
 *
 * Samples of a snapshot have labels that say how sure the values are: a value's grain is its
 * variance divided by it, roughly what one sample adds.  Only the samples' own sizes tell that; a
 * mean size does not.  All samples of a context have the same, so that the variances add up, too.
 */
#include <errno.h>
#include <string.h>

#include "base/fmt.h"
#include "base/os.h"
#include "contract/lifetimes.h"
#include "prof/dump_writers.h"
#include "out/proto.h"

enum word {
    WORD_NONE,
    WORD_ALLOC_OBJECTS,
    WORD_COUNT,
    WORD_ALLOC_SPACE,
    WORD_BYTES,
    WORD_INUSE_OBJECTS,
    WORD_INUSE_SPACE,
    WORD_PEAK_OBJECTS,
    WORD_PEAK_SPACE,
    WORD_TEMP_OBJECTS,
    WORD_SLACK_SPACE,
    WORD_PINNED_SPACE,
    WORD_SPACE,
    WORD_THREAD,
    WORD_REQUEST,
    WORD_LIFETIME,
    WORD_MILLISECONDS,
    WORD_DROP_FRAMES,
    WORD_ALLOC_OBJECTS_GRAIN,
    WORD_ALLOC_SPACE_GRAIN,
    WORD_INUSE_OBJECTS_GRAIN,
    WORD_INUSE_SPACE_GRAIN,
    WORD_PEAK_OBJECTS_GRAIN,
    WORD_PEAK_SPACE_GRAIN,
    WORD_THOUSANDTHS,
    WORDS,
};

/* Frames below these functions, which are ours or wrap ours, are of no interest. */
#define DROP_FRAMES                                                                                \
    "(je_|tally_)?(malloc|calloc|realloc|reallocarray|memalign|posix_memalign|aligned_alloc|"      \
    "valloc|pvalloc|mallocx|rallocx)|operator new(\\[\\])?"

static const char *const words[WORDS] = {
    [WORD_NONE] = "",
    [WORD_ALLOC_OBJECTS] = "alloc_objects",
    [WORD_COUNT] = "count",
    [WORD_ALLOC_SPACE] = "alloc_space",
    [WORD_BYTES] = "bytes",
    [WORD_INUSE_OBJECTS] = "inuse_objects",
    [WORD_INUSE_SPACE] = "inuse_space",
    [WORD_PEAK_OBJECTS] = "peak_objects",
    [WORD_PEAK_SPACE] = "peak_space",
    [WORD_TEMP_OBJECTS] = "temp_objects",
    [WORD_SLACK_SPACE] = "slack_space",
    [WORD_PINNED_SPACE] = "pinned_space",
    [WORD_SPACE] = "space",
    [WORD_THREAD] = "thread",
    [WORD_REQUEST] = "request",
    [WORD_LIFETIME] = LIFETIME_LABEL,
    [WORD_MILLISECONDS] = LIFETIME_UNIT,
    [WORD_DROP_FRAMES] = DROP_FRAMES,
    [WORD_ALLOC_OBJECTS_GRAIN] = "alloc_objects_grain",
    [WORD_ALLOC_SPACE_GRAIN] = "alloc_space_grain",
    [WORD_INUSE_OBJECTS_GRAIN] = "inuse_objects_grain",
    [WORD_INUSE_SPACE_GRAIN] = "inuse_space_grain",
    [WORD_PEAK_OBJECTS_GRAIN] = "peak_objects_grain",
    [WORD_PEAK_SPACE_GRAIN] = "peak_space_grain",
    [WORD_THOUSANDTHS] = "thousandths",
};

/* The types of values, and which kinds of profile have them. */
enum { IN_DUMP = 1, IN_PEAK = 2, IN_SNAPSHOT = 4, IN_ALL = IN_DUMP | IN_PEAK | IN_SNAPSHOT };
enum value {
    VALUE_ALLOC_OBJECTS,
    VALUE_ALLOC_SPACE,
    VALUE_INUSE_OBJECTS,
    VALUE_INUSE_SPACE,
    VALUE_PEAK_OBJECTS,
    VALUE_PEAK_SPACE,
    VALUE_TEMP_OBJECTS,
    VALUE_SLACK_SPACE,
    VALUE_PINNED_SPACE,
    VALUES,
};
static const struct {
    uint8_t name, unit, kinds;
} types[VALUES] = {
    [VALUE_ALLOC_OBJECTS] = {WORD_ALLOC_OBJECTS, WORD_COUNT, IN_ALL},
    [VALUE_ALLOC_SPACE] = {WORD_ALLOC_SPACE, WORD_BYTES, IN_ALL},
    [VALUE_INUSE_OBJECTS] = {WORD_INUSE_OBJECTS, WORD_COUNT, IN_ALL},
    [VALUE_INUSE_SPACE] = {WORD_INUSE_SPACE, WORD_BYTES, IN_ALL},
    [VALUE_PEAK_OBJECTS] = {WORD_PEAK_OBJECTS, WORD_COUNT, IN_SNAPSHOT},
    [VALUE_PEAK_SPACE] = {WORD_PEAK_SPACE, WORD_BYTES, IN_SNAPSHOT},
    [VALUE_TEMP_OBJECTS] = {WORD_TEMP_OBJECTS, WORD_COUNT, IN_SNAPSHOT},
    [VALUE_SLACK_SPACE] = {WORD_SLACK_SPACE, WORD_BYTES, IN_ALL},
    [VALUE_PINNED_SPACE] = {WORD_PINNED_SPACE, WORD_BYTES, IN_DUMP | IN_SNAPSHOT},
};

/* Exists for the time of one dump. */
struct heap_proto {
    struct proto *proto;
    const struct extract *extract;
    unsigned kind; /* IN_DUMP, IN_PEAK or IN_SNAPSHOT */
    const struct extract_row *before;
    double sums[VALUES]; /* of the rows so far that are together with it */
};

/* ---------------------------------------------------------------- samples */

static size_t thread_string(const struct heap_proto *heap, uint32_t thread) {
    return proto_own_string(heap->proto) + thread;
}

static void put_locations(const struct heap_proto *heap, const struct extract_row *row) {
    struct proto *proto = heap->proto;
    for (uint32_t i = 0; i < row->depth; i++) {
        uintptr_t address = extract_address(heap->extract, row, i) - 1;
        proto_put_varint(&proto->inner, proto_number_location(proto, address));
    }
    proto_put_inner(proto, SAMPLE_LOCATION);
}

/* What the rounded sum grows by. */
static uint64_t round_with_others(double *sum, double value) {
    uint64_t before = extract_round(*sum);
    *sum += value > 0 ? value : 0;
    return extract_round(*sum) - before;
}

static void begin_row(struct heap_proto *heap, const struct extract_row *row) {
    if (heap->before == NULL || !extract_are_together(heap->before, row)) {
        memset(heap->sums, 0, sizeof(heap->sums));
    }
    heap->before = row;
}

/* The values of a sample, in the order of `types`.  False: all are 0, and there is no sample; what was too
 * little to be told is in the sums. */
static bool round_values(struct heap_proto *heap, const double values[VALUES],
                         uint64_t rounded[VALUES]) {
    uint64_t any = 0;
    for (unsigned i = 0; i < VALUES; i++) {
        if (types[i].kinds & heap->kind) {
            rounded[i] = round_with_others(&heap->sums[i], values[i]);
            any |= rounded[i];
        }
    }
    return any != 0;
}

static bool begin_sample(struct heap_proto *heap, const struct extract_row *row,
                         const double values[VALUES]) {
    uint64_t rounded[VALUES];
    if (!round_values(heap, values, rounded)) {
        return false;
    }
    put_locations(heap, row);
    for (unsigned i = 0; i < VALUES; i++) {
        if (types[i].kinds & heap->kind) {
            proto_put_varint(&heap->proto->inner, rounded[i]);
        }
    }
    proto_put_inner(heap->proto, SAMPLE_VALUE);
    return true;
}

static void put_grain(const struct heap_proto *heap, enum word key, double value, double variance) {
    if (value > 0) {
        uint64_t grain = extract_round(1000 * variance / value);
        proto_put_number_label(heap->proto, key, grain, WORD_THOUSANDTHS);
    }
}

static void put_grains(const struct heap_proto *heap, enum word first, const struct prof_sum *sum) {
    if (heap->kind == IN_SNAPSHOT && heap->extract->rate > 1) {
        put_grain(heap, first, sum->all_objects, sum->object_variance);
        put_grain(heap, first + 1, sum->all_bytes, sum->byte_variance);
    }
}

static void finish_sample(const struct heap_proto *heap, const struct extract_row *row) {
    put_grains(heap, WORD_ALLOC_OBJECTS_GRAIN, &row->accumulated);
    proto_put_text_label(heap->proto, WORD_THREAD, thread_string(heap, row->thread));
    proto_write_message(heap->proto, PROFILE_SAMPLE);
}

/* A sample for what was freed after about the same time. */
static void write_life(struct heap_proto *heap, const struct extract_row *row, unsigned step) {
#define BOUND(bound, text) bound,
    static const uint32_t bounds_ms[LIFETIME_STEPS] = {LIFETIMES(BOUND)};
#undef BOUND
    const struct prof_life *life = &row->lives[step];
    const double values[VALUES] = {
        [VALUE_ALLOC_OBJECTS] = life->objects,
        [VALUE_ALLOC_SPACE] = life->bytes,
        [VALUE_TEMP_OBJECTS] = step == 0 ? life->objects : 0,
    };
    if (life->objects > 0 && begin_sample(heap, row, values)) {
        uint64_t mean = extract_round(life->bytes / life->objects);
        proto_put_number_label(heap->proto, WORD_BYTES, mean, WORD_BYTES);
        proto_put_number_label(heap->proto, WORD_LIFETIME, bounds_ms[step], WORD_MILLISECONDS);
        finish_sample(heap, row);
    }
}

/* A sample for what was not freed, or nobody knows when: all but the `told`. */
static void write_rest(struct heap_proto *heap, const struct extract_row *row,
                       const struct prof_life *told) {
    const struct prof_sum *sum = row->live.objects > 0 ? &row->live : &row->accumulated;
    const double values[VALUES] = {
        [VALUE_ALLOC_OBJECTS] = row->accumulated.all_objects - told->objects,
        [VALUE_ALLOC_SPACE] = row->accumulated.all_bytes - told->bytes,
        [VALUE_INUSE_OBJECTS] = row->live.all_objects,
        [VALUE_INUSE_SPACE] = row->live.all_bytes,
        [VALUE_PEAK_OBJECTS] = row->peak.all_objects,
        [VALUE_PEAK_SPACE] = row->peak.all_bytes,
        [VALUE_SLACK_SPACE] = row->live.all_slack,
        [VALUE_PINNED_SPACE] = row->pinned,
    };
    if (!begin_sample(heap, row, values)) {
        return;
    }
    if (sum->objects > 0) {
        struct proto *proto = heap->proto;
        proto_put_number_label(proto, WORD_BYTES, sum->bytes / sum->objects, WORD_BYTES);
        proto_put_number_label(proto, WORD_REQUEST, sum->requested / sum->objects, WORD_BYTES);
    }
    put_grains(heap, WORD_INUSE_OBJECTS_GRAIN, &row->live);
    put_grains(heap, WORD_PEAK_OBJECTS_GRAIN, &row->peak);
    finish_sample(heap, row);
}

static void write_row(struct heap_proto *heap, const struct extract_row *row) {
    struct prof_life told = {0, 0};
    begin_row(heap, row);
    for (unsigned step = 0; step < LIFETIME_STEPS; step++) {
        write_life(heap, row, step);
        told.objects += row->lives[step].objects;
        told.bytes += row->lives[step].bytes;
    }
    write_rest(heap, row, &told);
}

/* ---------------------------------------------------------------- strings of our own */

/* A thread without a name is called by its number. */
static void write_thread_name(const struct heap_proto *heap, uint32_t number) {
    const struct extract_thread *thread = extract_thread(heap->extract, number);
    char text[16];
    if (thread->name[0] != '\0') {
        proto_write_string(heap->proto, thread->name);
    } else {
        fmt_text(text, sizeof(text), "%u", number);
        proto_write_string(heap->proto, text);
    }
}

/* What a reader should know, as strings behind all others. */
static void write_comments(const struct heap_proto *heap) {
    struct proto *proto = heap->proto;
    size_t string = thread_string(heap, heap->extract->threads);
    char text[100];
    if (heap->extract->what == DUMP_PEAK) {
        proto_write_string(proto, "in use: at the highest point so far");
        proto_write_number(proto, PROFILE_COMMENT, string++);
    }
    if (heap->extract->drops > 0) {
        fmt_text(text, sizeof(text), "%lu samples are missing for want of memory",
                 (unsigned long)heap->extract->drops);
        proto_write_string(proto, text);
        proto_write_number(proto, PROFILE_COMMENT, string);
    }
}

static void write_types(const struct heap_proto *heap) {
    for (unsigned i = 0; i < VALUES; i++) {
        if (types[i].kinds & heap->kind) {
            proto_write_type(heap->proto, PROFILE_SAMPLE_TYPE, types[i].name, types[i].unit);
        }
    }
}

static void write_profile(struct heap_proto *heap) {
    struct proto *proto = heap->proto;
    write_types(heap);
    for (uint32_t i = 0; i < heap->extract->count && proto->error == 0; i++) {
        write_row(heap, extract_row(heap->extract, i));
    }
    proto_write_places(proto);
    for (uint32_t i = 0; i < heap->extract->threads; i++) {
        write_thread_name(heap, i);
    }
    write_comments(heap);
    proto_write_number(proto, PROFILE_DROP_FRAMES, WORD_DROP_FRAMES);
    proto_write_number(proto, PROFILE_TIME, os_wall_ns());
    proto_write_type(proto, PROFILE_PERIOD_TYPE, WORD_SPACE, WORD_BYTES);
    proto_write_number(proto, PROFILE_PERIOD, heap->extract->rate);
    proto_write_number(proto, PROFILE_DEFAULT_TYPE, WORD_INUSE_SPACE);
}

int dump_proto_write(struct out *out, const struct extract *extract, const struct maps *maps,
                     bool is_snapshot) {
    struct heap_proto heap = {.extract = extract};
    heap.kind = is_snapshot ? IN_SNAPSHOT : extract->what == DUMP_PEAK ? IN_PEAK : IN_DUMP;
    heap.proto = proto_begin(out, maps, (struct proto_words){words, WORDS}, is_snapshot);
    if (heap.proto == NULL) {
        return -ENOMEM;
    }
    write_profile(&heap);
    return proto_end(heap.proto);
}
