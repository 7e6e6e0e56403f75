/* SPDX-License-Identifier: MIT
 *
 * dump_proto.c - the heap as profile.proto, which pprof and many other tools read.
 *
 * proto.h says how the message is made.  Our own strings are names of threads, then comments.
 *
 * Values are our estimates; no reader multiplies.  Addresses lie inside the call: one less than its
 * return address.
 *
 * A dump is compressed by gzip and has the four types that readers expect, how many of the bytes in
 * use nobody asked for, and, unless it is of the peak, how much free space they keep (pinned.c).  A
 * snapshot of a container (frames.h) is plain, because the command compresses, and also has the
 * peak and short-lived objects.  Rounding is an estimate from the samples of a context: their share
 * of it, times what they stand for.
 */
#include <errno.h>

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
    WORD_PINNED_SPACE,
    WORD_SPACE,
    WORD_THREAD,
    WORD_REQUEST,
    WORD_DROP_FRAMES,
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
    [WORD_DROP_FRAMES] = DROP_FRAMES,
};

/* The types of values, and which kinds of profile have them. */
enum { IN_DUMP = 1, IN_PEAK = 2, IN_SNAPSHOT = 4, IN_ALL = IN_DUMP | IN_PEAK | IN_SNAPSHOT };
enum { VALUES = 9 };
static const struct {
    uint8_t name, unit, kinds;
} types[VALUES] = {
    {WORD_ALLOC_OBJECTS, WORD_COUNT, IN_ALL},
    {WORD_ALLOC_SPACE, WORD_BYTES, IN_ALL},
    {WORD_INUSE_OBJECTS, WORD_COUNT, IN_ALL},
    {WORD_INUSE_SPACE, WORD_BYTES, IN_ALL},
    {WORD_PEAK_OBJECTS, WORD_COUNT, IN_SNAPSHOT},
    {WORD_PEAK_SPACE, WORD_BYTES, IN_SNAPSHOT},
    {WORD_TEMP_OBJECTS, WORD_COUNT, IN_SNAPSHOT},
    {WORD_SLACK_SPACE, WORD_BYTES, IN_ALL},
    {WORD_PINNED_SPACE, WORD_BYTES, IN_DUMP | IN_SNAPSHOT},
};

/* Exists for the time of one dump. */
struct heap_proto {
    struct proto *proto;
    const struct extract *extract;
    unsigned kind; /* IN_DUMP, IN_PEAK or IN_SNAPSHOT */
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

static void put_values(const struct heap_proto *heap, const struct extract_row *row) {
    const double values[VALUES] = {
        row->accumulated.all_objects,
        row->accumulated.all_bytes,
        row->live.all_objects,
        row->live.all_bytes,
        row->peak_objects,
        row->peak_bytes,
        row->temporary,
        slack_of(&row->live),
        row->pinned,
    };
    for (unsigned i = 0; i < VALUES; i++) {
        if (types[i].kinds & heap->kind) {
            proto_put_varint(&heap->proto->inner, extract_round(values[i]));
        }
    }
    proto_put_inner(heap->proto, SAMPLE_VALUE);
}

static void write_sample(const struct heap_proto *heap, const struct extract_row *row) {
    const struct prof_sum *sum = row->live.objects > 0 ? &row->live : &row->accumulated;
    struct proto *proto = heap->proto;
    put_locations(heap, row);
    put_values(heap, row);
    if (sum->objects > 0) {
        proto_put_number_label(proto, WORD_BYTES, sum->bytes / sum->objects, WORD_BYTES);
        proto_put_number_label(proto, WORD_REQUEST, sum->requested / sum->objects, WORD_BYTES);
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
    for (unsigned i = 0; i < VALUES; i++) {
        if (types[i].kinds & heap->kind) {
            proto_write_type(heap->proto, PROFILE_SAMPLE_TYPE, types[i].name, types[i].unit);
        }
    }
}

static void write_profile(const struct heap_proto *heap) {
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
    struct heap_proto heap = {.extract = extract};
    heap.kind = is_snapshot ? IN_SNAPSHOT : extract->what == DUMP_PEAK ? IN_PEAK : IN_DUMP;
    heap.proto = proto_begin(out, maps, (struct proto_words){words, WORDS}, is_snapshot);
    if (heap.proto == NULL) {
        return -ENOMEM;
    }
    write_profile(&heap);
    return proto_end(heap.proto);
}
