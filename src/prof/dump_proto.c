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
 * A dump is compressed by gzip and has the four types that readers expect.  A snapshot of a
 * container (frames.h) is plain, because the command compresses, and has four more: the peak,
 * short-lived objects, and how many of the bytes in use nobody asked for.  The last is an estimate
 * from the samples of a context: their share of rounding, times what they stand for.  Its samples
 * have labels that say how sure the values are: a value's grain is its variance divided by it,
 * roughly what one sample adds.  Only the samples' own sizes tell that; a mean size does not.
 */
#include <errno.h>
#include <string.h>

#include "base/fmt.h"
#include "base/os.h"
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
    WORD_SPACE,
    WORD_THREAD,
    WORD_REQUEST,
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
    [WORD_SPACE] = "space",
    [WORD_THREAD] = "thread",
    [WORD_REQUEST] = "request",
    [WORD_DROP_FRAMES] = DROP_FRAMES,
    [WORD_ALLOC_OBJECTS_GRAIN] = "alloc_objects_grain",
    [WORD_ALLOC_SPACE_GRAIN] = "alloc_space_grain",
    [WORD_INUSE_OBJECTS_GRAIN] = "inuse_objects_grain",
    [WORD_INUSE_SPACE_GRAIN] = "inuse_space_grain",
    [WORD_PEAK_OBJECTS_GRAIN] = "peak_objects_grain",
    [WORD_PEAK_SPACE_GRAIN] = "peak_space_grain",
    [WORD_THOUSANDTHS] = "thousandths",
};

enum { DUMP_VALUES = 4, SNAPSHOT_VALUES = 8 };

/* Exists for the time of one dump. */
struct heap_proto {
    struct proto *proto;
    const struct extract *extract;
    unsigned values; /* of a sample */
    const struct extract_row *before;
    double sums[SNAPSHOT_VALUES]; /* of the rows so far that are together with it */
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

/* How many of the live bytes are rounding. */
static double slack_of(const struct prof_sum *live) {
    double rest = (double)live->bytes - (double)live->requested;
    return rest > 0 ? live->all_bytes * rest / (double)live->bytes : 0;
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

static void put_values(struct heap_proto *heap, const struct extract_row *row) {
    const double values[SNAPSHOT_VALUES] = {
        row->accumulated.all_objects,
        row->accumulated.all_bytes,
        row->live.all_objects,
        row->live.all_bytes,
        row->peak.all_objects,
        row->peak.all_bytes,
        row->temporary,
        slack_of(&row->live),
    };
    for (unsigned i = 0; i < heap->values; i++) {
        proto_put_varint(&heap->proto->inner, round_with_others(&heap->sums[i], values[i]));
    }
    proto_put_inner(heap->proto, SAMPLE_VALUE);
}

static void put_grain(const struct heap_proto *heap, enum word key, double value, double variance) {
    if (value > 0) {
        uint64_t grain = extract_round(1000 * variance / value);
        proto_put_number_label(heap->proto, key, grain, WORD_THOUSANDTHS);
    }
}

static void put_grains(const struct heap_proto *heap, enum word first, const struct prof_sum *sum) {
    put_grain(heap, first, sum->all_objects, sum->object_variance);
    put_grain(heap, first + 1, sum->all_bytes, sum->byte_variance);
}

static void write_sample(struct heap_proto *heap, const struct extract_row *row) {
    const struct prof_sum *sum = row->live.objects > 0 ? &row->live : &row->accumulated;
    struct proto *proto = heap->proto;
    begin_row(heap, row);
    put_locations(heap, row);
    put_values(heap, row);
    if (sum->objects > 0) {
        proto_put_number_label(proto, WORD_BYTES, sum->bytes / sum->objects, WORD_BYTES);
        proto_put_number_label(proto, WORD_REQUEST, sum->requested / sum->objects, WORD_BYTES);
    }
    if (heap->values == SNAPSHOT_VALUES && heap->extract->rate > 1) {
        put_grains(heap, WORD_ALLOC_OBJECTS_GRAIN, &row->accumulated);
        put_grains(heap, WORD_INUSE_OBJECTS_GRAIN, &row->live);
        put_grains(heap, WORD_PEAK_OBJECTS_GRAIN, &row->peak);
    }
    proto_put_text_label(proto, WORD_THREAD, thread_string(heap, row->thread));
    proto_write_message(proto, PROFILE_SAMPLE);
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
    struct proto *proto = heap->proto;
    proto_write_type(proto, PROFILE_SAMPLE_TYPE, WORD_ALLOC_OBJECTS, WORD_COUNT);
    proto_write_type(proto, PROFILE_SAMPLE_TYPE, WORD_ALLOC_SPACE, WORD_BYTES);
    proto_write_type(proto, PROFILE_SAMPLE_TYPE, WORD_INUSE_OBJECTS, WORD_COUNT);
    proto_write_type(proto, PROFILE_SAMPLE_TYPE, WORD_INUSE_SPACE, WORD_BYTES);
    if (heap->values == SNAPSHOT_VALUES) {
        proto_write_type(proto, PROFILE_SAMPLE_TYPE, WORD_PEAK_OBJECTS, WORD_COUNT);
        proto_write_type(proto, PROFILE_SAMPLE_TYPE, WORD_PEAK_SPACE, WORD_BYTES);
        proto_write_type(proto, PROFILE_SAMPLE_TYPE, WORD_TEMP_OBJECTS, WORD_COUNT);
        proto_write_type(proto, PROFILE_SAMPLE_TYPE, WORD_SLACK_SPACE, WORD_BYTES);
    }
}

static void write_profile(struct heap_proto *heap) {
    struct proto *proto = heap->proto;
    write_types(heap);
    for (uint32_t i = 0; i < heap->extract->count && proto->error == 0; i++) {
        write_sample(heap, extract_row(heap->extract, i));
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
    struct heap_proto heap = {.extract = extract,
                              .values = is_snapshot ? SNAPSHOT_VALUES : DUMP_VALUES};
    heap.proto = proto_begin(out, maps, (struct proto_words){words, WORDS}, is_snapshot);
    if (heap.proto == NULL) {
        return -ENOMEM;
    }
    write_profile(&heap);
    return proto_end(heap.proto);
}
