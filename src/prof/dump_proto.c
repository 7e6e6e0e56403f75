/* SPDX-License-Identifier: MIT
 *
 * dump_proto.c - profile.proto, which pprof and everything that speaks its language reads.
 *
 * The message is written as it is met, without a tree in memory: sample types, samples, mappings,
 * locations, strings.  A sample names its locations by number, so these are numbered as they come and
 * written after the samples.  The numbers of strings are known before the strings are written:
 *
 *      0 "" and the words of `words`, then path and build id of each module, then threads, then comments
 *
 * Values are our estimates; no reader multiplies.  Addresses lie inside the call: one less than where
 * it returns to.
 *
 * A dump is in gzip and has the four types that readers expect.  A snapshot of a container (frames.h) is
 * plain, because the command compresses, and has four more: the peak, what lived shortly, and how much
 * of what is in use was not asked for.  The last is an estimate from the samples of a context: their
 * share of rounding, times what they stand for.
 */
#include <errno.h>
#include <string.h>

#include "base/fmt.h"
#include "base/os.h"
#include "prof/dump_writers.h"
#include "prof/gzip.h"

/* Numbers of fields, with the name of their message. */
enum {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE = 2,
    PROFILE_MAPPING = 3,
    PROFILE_LOCATION = 4,
    PROFILE_STRING = 6,
    PROFILE_DROP_FRAMES = 7,
    PROFILE_TIME = 9,
    PROFILE_PERIOD_TYPE = 11,
    PROFILE_PERIOD = 12,
    PROFILE_COMMENT = 13,
    PROFILE_DEFAULT_TYPE = 14,
    TYPE_NAME = 1,
    TYPE_UNIT = 2,
    SAMPLE_LOCATION = 1,
    SAMPLE_VALUE = 2,
    SAMPLE_LABEL = 3,
    LABEL_KEY = 1,
    LABEL_TEXT = 2,
    LABEL_NUMBER = 3,
    LABEL_UNIT = 4,
    MAPPING_ID = 1,
    MAPPING_START = 2,
    MAPPING_LIMIT = 3,
    MAPPING_OFFSET = 4,
    MAPPING_FILE = 5,
    MAPPING_BUILD_ID = 6,
    LOCATION_ID = 1,
    LOCATION_MAPPING = 2,
    LOCATION_ADDRESS = 3,
};

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
    WORDS,
};

/* Frames below these, which are ours or those of a wrapper of ours, are of no interest. */
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
};

enum { VARINT_BYTES = 10, DUMP_VALUES = 4, SNAPSHOT_VALUES = 8 };

/* The message being made: at most as many frames as a stack has, of ten bytes each, and a little. */
struct message {
    size_t length;
    unsigned char bytes[PROF_DEPTH_MOST * VARINT_BYTES + 512];
};

/* Lives in memory of its own for the time of one dump. */
struct proto {
    const struct extract *extract;
    const struct maps *maps;
    unsigned values;  /* of a sample */
    struct out plain; /* the profile before it is compressed */
    struct gzip gzip;
    struct message message;
    struct message inner;
    struct pile locations; /* addresses; location i + 1 is the i-th */
    struct pile slots; /* hash of these addresses: numbers of locations, 0 where there is none */
    uint32_t location_count;
    int error;
};

/* ---------------------------------------------------------------- encoding */

/* Seven bits a byte, the lowest first; returns how many bytes. */
static size_t encode_varint(unsigned char *to, uint64_t value) {
    size_t length = 0;
    for (; value >= 0x80; value >>= 7) {
        to[length++] = (unsigned char)(value | 0x80);
    }
    to[length++] = (unsigned char)value;
    return length;
}

static void put_varint(struct message *message, uint64_t value) {
    message->length += encode_varint(message->bytes + message->length, value);
}

static void put_number(struct message *message, uint32_t field, uint64_t value) {
    if (value != 0) { /* which is what a field says that is not there */
        put_varint(message, field << 3);
        put_varint(message, value);
    }
}

/* A message inside of a message. */
static void put_inner(struct message *message, uint32_t field, const struct message *inner) {
    put_varint(message, field << 3 | 2);
    put_varint(message, inner->length);
    memcpy(message->bytes + message->length, inner->bytes, inner->length);
    message->length += inner->length;
}

static void write_varint(struct out *out, uint64_t value) {
    unsigned char bytes[VARINT_BYTES];
    out_bytes(out, bytes, encode_varint(bytes, value));
}

/* Fields of the profile itself. */
static void write_bytes(struct proto *proto, uint32_t field, const void *bytes, size_t length) {
    write_varint(&proto->plain, field << 3 | 2);
    write_varint(&proto->plain, length);
    out_bytes(&proto->plain, bytes, length);
}

static void write_number(struct proto *proto, uint32_t field, uint64_t value) {
    write_varint(&proto->plain, field << 3);
    write_varint(&proto->plain, value);
}

static void write_message(struct proto *proto, uint32_t field) {
    write_bytes(proto, field, proto->message.bytes, proto->message.length);
    proto->message.length = 0;
}

static void write_string(struct proto *proto, const char *text) {
    write_bytes(proto, PROFILE_STRING, text, strlen(text));
}

static void write_type(struct proto *proto, uint32_t field, enum word name, enum word unit) {
    put_number(&proto->message, TYPE_NAME, name);
    put_number(&proto->message, TYPE_UNIT, unit);
    write_message(proto, field);
}

/* ---------------------------------------------------------------- locations */

static uintptr_t *locations(const struct proto *proto) {
    return (uintptr_t *)(void *)proto->locations.bytes;
}

/* The slot that has the address, or the one where it belongs. */
static uint32_t *find_slot(const struct proto *proto, uintptr_t address) {
    uint32_t *slots = (uint32_t *)(void *)proto->slots.bytes;
    size_t mask = proto->slots.length / sizeof(*slots) - 1;
    size_t at = (address * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & mask;
    while (slots[at] != 0 && locations(proto)[slots[at] - 1] != address) {
        at = (at + 1) & mask;
    }
    return &slots[at];
}

/* At most half of the slots are used. */
static bool grow_slots(struct proto *proto) {
    enum { LEAST_SLOTS = 1 << 14 };
    struct pile old = proto->slots;
    size_t bytes = old.length > 0 ? 2 * old.length : LEAST_SLOTS * sizeof(uint32_t);
    if (old.length / sizeof(uint32_t) > 2 * (size_t)proto->location_count) {
        return true;
    }
    proto->slots = (struct pile){0};
    if (!pile_grow(&proto->slots, bytes)) {
        proto->slots = old;
        return false;
    }
    proto->slots.length = bytes;
    for (uint32_t i = 0; i < proto->location_count; i++) {
        *find_slot(proto, locations(proto)[i]) = i + 1;
    }
    pile_release(&old);
    return true;
}

/* The number of the location of an address; 0 without memory. */
static uint32_t number_location(struct proto *proto, uintptr_t address) {
    if (!grow_slots(proto) || !pile_grow(&proto->locations, sizeof(address))) {
        proto->error = -ENOMEM;
        return 0;
    }
    uint32_t *slot = find_slot(proto, address);
    if (*slot == 0) {
        locations(proto)[proto->location_count] = address;
        proto->locations.length += sizeof(address);
        *slot = ++proto->location_count;
    }
    return *slot;
}

/* Mappings have numbers from 1 on, the program first. */
static uint64_t mapping_number(const struct maps *maps, size_t module) {
    if (module == maps->count) {
        return 0;
    }
    if (maps->program == maps->count || module > maps->program) {
        return module + 1;
    }
    return module == maps->program ? 1 : module + 2;
}

static void write_locations(struct proto *proto) {
    for (uint32_t i = 0; i < proto->location_count; i++) {
        uintptr_t address = locations(proto)[i];
        size_t module = maps_find(proto->maps, address);
        put_number(&proto->message, LOCATION_ID, i + 1);
        put_number(&proto->message, LOCATION_MAPPING, mapping_number(proto->maps, module));
        put_number(&proto->message, LOCATION_ADDRESS, maps_tell(proto->maps, module, address));
        write_message(proto, PROFILE_LOCATION);
    }
}

/* ---------------------------------------------------------------- samples */

static size_t thread_string(const struct proto *proto, uint32_t thread) {
    return WORDS + 2 * proto->maps->count + thread;
}

static void put_label(struct proto *proto, enum word key, uint32_t field, uint64_t value) {
    put_number(&proto->inner, LABEL_KEY, key);
    put_number(&proto->inner, field, value);
    if (field == LABEL_NUMBER) {
        put_number(&proto->inner, LABEL_UNIT, WORD_BYTES);
    }
    put_inner(&proto->message, SAMPLE_LABEL, &proto->inner);
    proto->inner.length = 0;
}

static void put_locations(struct proto *proto, const struct extract_row *row) {
    for (uint32_t i = 0; i < row->depth; i++) {
        uintptr_t address = extract_address(proto->extract, row, i) - 1;
        put_varint(&proto->inner, number_location(proto, address));
    }
    put_inner(&proto->message, SAMPLE_LOCATION, &proto->inner);
    proto->inner.length = 0;
}

/* Bytes of rounding among those that live. */
static double slack_of(const struct prof_sum *live) {
    double rest = (double)live->bytes - (double)live->requested;
    return rest > 0 ? live->all_bytes * rest / (double)live->bytes : 0;
}

static void put_values(struct proto *proto, const struct extract_row *row) {
    const double values[SNAPSHOT_VALUES] = {
        row->accumulated.all_objects,
        row->accumulated.all_bytes,
        row->live.all_objects,
        row->live.all_bytes,
        row->peak_objects,
        row->peak_bytes,
        row->temporary,
        slack_of(&row->live),
    };
    for (unsigned i = 0; i < proto->values; i++) {
        put_varint(&proto->inner, extract_round(values[i]));
    }
    put_inner(&proto->message, SAMPLE_VALUE, &proto->inner);
    proto->inner.length = 0;
}

static void write_sample(struct proto *proto, const struct extract_row *row) {
    const struct prof_sum *sum = row->live.objects > 0 ? &row->live : &row->accumulated;
    put_locations(proto, row);
    put_values(proto, row);
    if (sum->objects > 0) {
        put_label(proto, WORD_BYTES, LABEL_NUMBER, sum->bytes / sum->objects);
        put_label(proto, WORD_REQUEST, LABEL_NUMBER, sum->requested / sum->objects);
    }
    put_label(proto, WORD_THREAD, LABEL_TEXT, thread_string(proto, row->thread));
    write_message(proto, PROFILE_SAMPLE);
}

/* ---------------------------------------------------------------- mappings and strings */

static void write_mapping(struct proto *proto, size_t module) {
    const struct maps_module *mapping = maps_module(proto->maps, module);
    put_number(&proto->message, MAPPING_ID, mapping_number(proto->maps, module));
    put_number(&proto->message, MAPPING_START, maps_tell(proto->maps, module, mapping->start));
    put_number(&proto->message, MAPPING_LIMIT, maps_tell(proto->maps, module, mapping->end));
    put_number(&proto->message, MAPPING_OFFSET, mapping->offset);
    put_number(&proto->message, MAPPING_FILE, WORDS + 2 * module);
    if (mapping->build_id[0] != '\0') {
        put_number(&proto->message, MAPPING_BUILD_ID, WORDS + 2 * module + 1);
    }
    write_message(proto, PROFILE_MAPPING);
}

/* Readers take the first for the program. */
static void write_mappings(struct proto *proto) {
    size_t program = proto->maps->program;
    if (program < proto->maps->count) {
        write_mapping(proto, program);
    }
    for (size_t i = 0; i < proto->maps->count; i++) {
        if (i != program) {
            write_mapping(proto, i);
        }
    }
}

/* A thread without a name is called by its number. */
static void write_thread_name(struct proto *proto, uint32_t number) {
    const struct extract_thread *thread = extract_thread(proto->extract, number);
    char text[16];
    if (thread->name[0] != '\0') {
        write_string(proto, thread->name);
    } else {
        fmt_text(text, sizeof(text), "%u", number);
        write_string(proto, text);
    }
}

static void write_strings(struct proto *proto) {
    for (int i = 0; i < WORDS; i++) {
        write_string(proto, words[i]);
    }
    for (size_t i = 0; i < proto->maps->count; i++) {
        const struct maps_module *module = maps_module(proto->maps, i);
        write_bytes(proto, PROFILE_STRING, proto->maps->text.bytes + module->path,
                    module->path_bytes);
        write_string(proto, module->build_id);
    }
    for (uint32_t i = 0; i < proto->extract->threads; i++) {
        write_thread_name(proto, i);
    }
}

/* What a reader should know; strings behind all others. */
static void write_comments(struct proto *proto) {
    size_t string = thread_string(proto, proto->extract->threads);
    char text[100];
    if (proto->extract->what == DUMP_PEAK) {
        write_string(proto, "in use: at the highest point so far");
        write_number(proto, PROFILE_COMMENT, string++);
    }
    if (proto->extract->drops > 0) {
        fmt_text(text, sizeof(text), "%lu samples are missing for want of memory",
                 (unsigned long)proto->extract->drops);
        write_string(proto, text);
        write_number(proto, PROFILE_COMMENT, string);
    }
}

static void write_profile(struct proto *proto) {
    write_type(proto, PROFILE_SAMPLE_TYPE, WORD_ALLOC_OBJECTS, WORD_COUNT);
    write_type(proto, PROFILE_SAMPLE_TYPE, WORD_ALLOC_SPACE, WORD_BYTES);
    write_type(proto, PROFILE_SAMPLE_TYPE, WORD_INUSE_OBJECTS, WORD_COUNT);
    write_type(proto, PROFILE_SAMPLE_TYPE, WORD_INUSE_SPACE, WORD_BYTES);
    if (proto->values == SNAPSHOT_VALUES) {
        write_type(proto, PROFILE_SAMPLE_TYPE, WORD_PEAK_OBJECTS, WORD_COUNT);
        write_type(proto, PROFILE_SAMPLE_TYPE, WORD_PEAK_SPACE, WORD_BYTES);
        write_type(proto, PROFILE_SAMPLE_TYPE, WORD_TEMP_OBJECTS, WORD_COUNT);
        write_type(proto, PROFILE_SAMPLE_TYPE, WORD_SLACK_SPACE, WORD_BYTES);
    }
    for (uint32_t i = 0; i < proto->extract->count && proto->error == 0; i++) {
        write_sample(proto, extract_row(proto->extract, i));
    }
    write_mappings(proto);
    write_locations(proto);
    write_strings(proto);
    write_comments(proto);
    write_number(proto, PROFILE_DROP_FRAMES, WORD_DROP_FRAMES);
    write_number(proto, PROFILE_TIME, os_wall_ns());
    write_type(proto, PROFILE_PERIOD_TYPE, WORD_SPACE, WORD_BYTES);
    write_number(proto, PROFILE_PERIOD, proto->extract->rate);
    write_number(proto, PROFILE_DEFAULT_TYPE, WORD_INUSE_SPACE);
}

/* A target for an out: another one. */
static int pass_on(void *out, const char *bytes, size_t length) {
    out_bytes(out, bytes, length);
    return 0;
}

static struct proto *begin(const struct extract *extract, const struct maps *maps,
                           unsigned values) {
    struct proto *proto = os_map(align_up(sizeof(struct proto), os_facts.page_bytes));
    if (proto != NULL) {
        proto->extract = extract;
        proto->maps = maps;
        proto->values = values;
    }
    return proto;
}

static int end(struct proto *proto) {
    int error = proto->error;
    pile_release(&proto->locations);
    pile_release(&proto->slots);
    os_unmap(proto, align_up(sizeof(struct proto), os_facts.page_bytes));
    return error;
}

int dump_write_proto(struct out *out, const struct extract *extract, const struct maps *maps) {
    struct proto *proto = begin(extract, maps, DUMP_VALUES);
    if (proto == NULL) {
        return -ENOMEM;
    }
    gzip_begin(&proto->gzip, out);
    out_begin(&proto->plain, gzip_take, &proto->gzip);
    write_profile(proto);
    out_end(&proto->plain);
    gzip_end(&proto->gzip);
    return end(proto);
}

int dump_write_snapshot(struct out *out, const struct extract *extract, const struct maps *maps) {
    struct proto *proto = begin(extract, maps, SNAPSHOT_VALUES);
    if (proto == NULL) {
        return -ENOMEM;
    }
    out_begin(&proto->plain, pass_on, out);
    write_profile(proto);
    out_end(&proto->plain);
    return end(proto);
}
