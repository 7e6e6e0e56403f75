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
 * peak and short-lived objects.  A stack and thread has one sample for what was not freed, and one
 * for each step of lifetimes.h that something of it was freed after: readers add them up to the
 * same sums, and can look at either alone.
 */
#include <errno.h>

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

/* The values of a sample, in the order of `types`. */
static void put_values(const struct heap_proto *heap, const uint64_t values[VALUES]) {
    for (unsigned i = 0; i < VALUES; i++) {
        if (types[i].kinds & heap->kind) {
            proto_put_varint(&heap->proto->inner, values[i]);
        }
    }
    proto_put_inner(heap->proto, SAMPLE_VALUE);
}

static void finish_sample(const struct heap_proto *heap, const struct extract_row *row) {
    proto_put_text_label(heap->proto, WORD_THREAD, thread_string(heap, row->thread));
    proto_write_message(heap->proto, PROFILE_SAMPLE);
}

/* What of a row was told apart. */
struct told {
    double objects, bytes;     /* the parts so far */
    uint64_t nobjects, nbytes; /* as they were written */
};

/* The part is added before it is rounded, so that all parts together are the rounded sum. */
static uint64_t next_part(double *sum, uint64_t *written, double part, double all) {
    *sum += part;
    uint64_t now = extract_round(*sum < all ? *sum : all);
    uint64_t difference = now - *written;
    *written = now;
    return difference;
}

/* A sample for what was freed after about the same time. */
static void write_life(const struct heap_proto *heap, const struct extract_row *row, unsigned step,
                       struct told *told) {
#define BOUND(bound, text) bound,
    static const uint32_t bounds_ms[LIFETIME_STEPS] = {LIFETIMES(BOUND)};
#undef BOUND
    const struct prof_life *life = &row->lives[step];
    uint64_t objects =
        next_part(&told->objects, &told->nobjects, life->objects, row->accumulated.all_objects);
    uint64_t bytes =
        next_part(&told->bytes, &told->nbytes, life->bytes, row->accumulated.all_bytes);
    if (objects == 0 && bytes == 0) {
        return;
    }
    put_locations(heap, row);
    put_values(heap, (uint64_t[VALUES]){[VALUE_ALLOC_OBJECTS] = objects,
                                        [VALUE_ALLOC_SPACE] = bytes,
                                        [VALUE_TEMP_OBJECTS] = step == 0 ? objects : 0});
    proto_put_number_label(heap->proto, WORD_BYTES, extract_round(life->bytes / life->objects),
                           WORD_BYTES);
    proto_put_number_label(heap->proto, WORD_LIFETIME, bounds_ms[step], WORD_MILLISECONDS);
    finish_sample(heap, row);
}

/* A sample for what was not freed, or nobody knows when. */
static void write_rest(const struct heap_proto *heap, const struct extract_row *row,
                       const struct told *told) {
    const struct prof_sum *sum = row->live.objects > 0 ? &row->live : &row->accumulated;
    const struct prof_sum *all = &row->accumulated;
    const uint64_t values[VALUES] = {
        [VALUE_ALLOC_OBJECTS] = extract_round(all->all_objects) - told->nobjects,
        [VALUE_ALLOC_SPACE] = extract_round(all->all_bytes) - told->nbytes,
        [VALUE_INUSE_OBJECTS] = extract_round(row->live.all_objects),
        [VALUE_INUSE_SPACE] = extract_round(row->live.all_bytes),
        [VALUE_PEAK_OBJECTS] = extract_round(row->peak_objects),
        [VALUE_PEAK_SPACE] = extract_round(row->peak_bytes),
        [VALUE_SLACK_SPACE] = extract_round(row->live.all_slack),
        [VALUE_PINNED_SPACE] = extract_round(row->pinned),
    };
    put_locations(heap, row);
    put_values(heap, values);
    if (sum->objects > 0) {
        proto_put_number_label(heap->proto, WORD_BYTES, sum->bytes / sum->objects, WORD_BYTES);
        proto_put_number_label(heap->proto, WORD_REQUEST, sum->requested / sum->objects,
                               WORD_BYTES);
    }
    finish_sample(heap, row);
}

/* Lives first, so that what is left is known.  Whatever was freed altogether, and was not there at
 * the peak, has nothing left. */
static void write_row(const struct heap_proto *heap, const struct extract_row *row) {
    struct told told = {0};
    for (unsigned step = 0; step < LIFETIME_STEPS; step++) {
        if (row->lives[step].objects > 0) {
            write_life(heap, row, step, &told);
        }
    }
    bool is_all = told.nobjects == extract_round(row->accumulated.all_objects) &&
                  told.nbytes == extract_round(row->accumulated.all_bytes);
    if (!is_all || told.nobjects == 0 || row->live.objects > 0 || row->peak_objects > 0) {
        write_rest(heap, row, &told);
    }
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
