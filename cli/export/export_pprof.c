/* SPDX-License-Identifier: MIT
 *
 * export_pprof.c - profile.proto in gzip.
 *
 * The message is built in memory, its strings numbered as they come, and packed at the end.  Functions
 * are merged by name, file and first line, because viewers draw one box per function.  The types of
 * heap profiles come in the order in which Go writes them, which some viewers take for granted; others
 * follow.  Values are estimates and no reader of this format multiplies; the period is for information.
 *
 * Fields are those of perftools.profiles.Profile; numbers stand in the enums.
 */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "args/args.h"
#include "common/escape.h"
#include "common/keys.h"
#include "common/text_table.h"
#include "contract/proto_fields.h"
#include "export/export.h"
#include "select/select.h"

/* Entry points of allocators: pprof drops them and what they call once it has found names. */
static const char drop_frames[] =
    "(je_|tally_)?(malloc|calloc|realloc|reallocarray|memalign|posix_memalign|aligned_alloc|"
    "valloc|pvalloc|mallocx|rallocx)|operator new(\\[\\])?";

struct bytes {
    uint8_t *data;
    size_t length, room;
};

struct proto {
    const struct profile *profile;
    struct bytes message;
    struct text_table strings; /* in UTF-8, in the order of the file */
    uint32_t *functions;       /* the id of each function of the profile, from 1 */
};

static void put(struct bytes *bytes, const void *data, size_t length) {
    if (bytes->room - bytes->length < length) {
        bytes->room = (bytes->length + length) * 2 + 64;
        bytes->data = must_grow(bytes->data, bytes->room);
    }
    if (length > 0) {
        memcpy(bytes->data + bytes->length, data, length);
    }
    bytes->length += length;
}

static void put_varint(struct bytes *bytes, uint64_t value) {
    uint8_t text[10];
    size_t length = 0;
    for (; value >= 128; value >>= 7) {
        text[length++] = (uint8_t)(value | 128);
    }
    text[length++] = (uint8_t)value;
    put(bytes, text, length);
}

/* Zero is what a missing field means. */
static void put_number(struct bytes *bytes, unsigned field, uint64_t value) {
    if (value != 0) {
        put_varint(bytes, field << 3);
        put_varint(bytes, value);
    }
}

static void put_bytes(struct bytes *bytes, unsigned field, const void *data, size_t length) {
    put_varint(bytes, field << 3 | 2);
    put_varint(bytes, length);
    put(bytes, data, length);
}

/* Appends the part as a field and empties it for the next use. */
static void put_message(struct bytes *bytes, unsigned field, struct bytes *part) {
    put_bytes(bytes, field, part->data, part->length);
    part->length = 0;
}

/* The number of a string; NULL is the empty one. */
static uint32_t number_string(struct proto *proto, const char *text) {
    char *clean = escape_utf8(text != NULL ? text : "");
    uint32_t number = text_table_add(&proto->strings, clean);
    free(clean);
    return number;
}

static void put_type(struct proto *proto, unsigned field, struct profile_type type) {
    struct bytes part = {0};
    put_number(&part, TYPE_NAME, number_string(proto, type.name));
    put_number(&part, TYPE_UNIT, number_string(proto, type.unit));
    put_message(&proto->message, field, &part);
    free(part.data);
}

/* Go's four first, then the others as they are.  To be freed. */
static uint32_t *order_types(const struct profile *profile) {
    static const char *const first[] = {"alloc_objects", "alloc_space", "inuse_objects",
                                        "inuse_space"};
    uint32_t *order = must_alloc((profile->type_count + (size_t)1) * sizeof(*order));
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        for (uint32_t type = 0; type < profile->type_count; type++) {
            if (strcmp(profile->types[type].name, first[i]) == 0) {
                order[count++] = type;
            }
        }
    }
    uint32_t known = count;
    for (uint32_t type = 0; type < profile->type_count; type++) {
        bool is_known = false;
        for (uint32_t i = 0; i < known; i++) {
            is_known |= order[i] == type;
        }
        if (!is_known) {
            order[count++] = type;
        }
    }
    return order;
}

static void put_label(struct proto *proto, struct bytes *sample,
                      const struct profile_label *label) {
    struct bytes part = {0};
    put_number(&part, LABEL_KEY, number_string(proto, label->key));
    if (label->text != NULL) {
        put_number(&part, LABEL_TEXT, number_string(proto, label->text));
    } else {
        put_number(&part, LABEL_NUMBER, (uint64_t)label->number);
        put_number(&part, LABEL_UNIT, number_string(proto, label->unit));
    }
    put_message(sample, SAMPLE_LABEL, &part);
    free(part.data);
}

static void put_samples(struct proto *proto, const uint32_t *order) {
    const struct profile *profile = proto->profile;
    struct bytes part = {0}, packed = {0};
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        const struct profile_sample *sample = &profile->samples[i];
        for (uint32_t k = 0; k < sample->depth; k++) {
            put_varint(&packed, (uint64_t)profile->stacks[sample->stack + k] + 1);
        }
        put_message(&part, SAMPLE_LOCATION, &packed);
        for (uint32_t k = 0; k < profile->type_count; k++) {
            put_varint(&packed, (uint64_t)profile_value(profile, i, order[k]));
        }
        put_message(&part, SAMPLE_VALUE, &packed);
        for (uint32_t k = 0; k < sample->label_count; k++) {
            put_label(proto, &part, &profile->labels[sample->labels + k]);
        }
        put_message(&proto->message, PROFILE_SAMPLE, &part);
    }
    free(part.data);
    free(packed.data);
}

/* What the locations of a mapping have; names only where none lacks one, so that pprof looks for
 * missing ones. */
struct found {
    bool has_locations, is_unnamed, has_files, has_lines, has_inlined;
};

static struct found *look_at_mappings(const struct profile *profile) {
    struct found *found = must_zeroed((profile->mapping_count + (size_t)1) * sizeof(*found));
    for (uint32_t i = 0; i < profile->location_count; i++) {
        const struct profile_location *location = &profile->locations[i];
        if (location->mapping == PROFILE_NONE) {
            continue;
        }
        struct found *of = &found[location->mapping];
        of->has_locations = true;
        of->is_unnamed |= location->line_count == 0;
        of->has_inlined |= location->line_count > 1;
        for (uint32_t k = 0; k < location->line_count; k++) {
            const struct profile_line *line = &profile->lines[location->lines + k];
            of->has_files |= profile->functions[line->function].file[0] != '\0';
            of->has_lines |= line->number != 0;
        }
    }
    return found;
}

static void put_mappings(struct proto *proto) {
    const struct profile *profile = proto->profile;
    struct found *found = look_at_mappings(profile);
    struct bytes part = {0};
    for (uint32_t i = 0; i < profile->mapping_count; i++) {
        const struct profile_mapping *mapping = &profile->mappings[i];
        put_number(&part, MAPPING_ID, (uint64_t)i + 1);
        put_number(&part, MAPPING_START, mapping->start);
        put_number(&part, MAPPING_LIMIT, mapping->limit);
        put_number(&part, MAPPING_OFFSET, mapping->offset);
        put_number(&part, MAPPING_FILE, number_string(proto, mapping->path));
        put_number(&part, MAPPING_BUILD_ID, number_string(proto, mapping->build_id));
        if (found[i].has_locations && !found[i].is_unnamed) {
            put_number(&part, MAPPING_HAS_FUNCTIONS, 1);
            put_number(&part, MAPPING_HAS_FILES, found[i].has_files);
            put_number(&part, MAPPING_HAS_LINES, found[i].has_lines);
            put_number(&part, MAPPING_HAS_INLINED, found[i].has_inlined);
        }
        put_message(&proto->message, PROFILE_MAPPING, &part);
    }
    free(part.data);
    free(found);
}

/* Gives functions their ids: equal ones the same.  Writes each once. */
static void put_functions(struct proto *proto) {
    const struct profile *profile = proto->profile;
    struct keys known = {0};
    struct bytes part = {0};
    uint32_t count = 0;
    proto->functions = must_alloc((profile->function_count + (size_t)1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < profile->function_count; i++) {
        const struct profile_function *function = &profile->functions[i];
        uint64_t name = number_string(proto, function->name);
        uint64_t file = number_string(proto, function->file);
        uint32_t id = keys_add(&known, name, file, function->start_line) + 1;
        if (id > count) {
            count = id;
            put_number(&part, FUNCTION_ID, id);
            put_number(&part, FUNCTION_NAME, name);
            put_number(&part, FUNCTION_SYSTEM_NAME, number_string(proto, function->system_name));
            put_number(&part, FUNCTION_FILE, file);
            put_number(&part, FUNCTION_START_LINE, function->start_line);
            put_message(&proto->message, PROFILE_FUNCTION, &part);
        }
        proto->functions[i] = id;
    }
    free(part.data);
    keys_free(&known);
}

static void put_locations(struct proto *proto) {
    const struct profile *profile = proto->profile;
    struct bytes part = {0}, line = {0};
    for (uint32_t i = 0; i < profile->location_count; i++) {
        const struct profile_location *location = &profile->locations[i];
        put_number(&part, LOCATION_ID, (uint64_t)i + 1);
        if (location->mapping != PROFILE_NONE) {
            put_number(&part, LOCATION_MAPPING, (uint64_t)location->mapping + 1);
        }
        put_number(&part, LOCATION_ADDRESS, location->address);
        for (uint32_t k = 0; k < location->line_count; k++) {
            const struct profile_line *of = &profile->lines[location->lines + k];
            put_number(&line, LINE_FUNCTION, proto->functions[of->function]);
            put_number(&line, LINE_NUMBER, of->number);
            put_message(&part, LOCATION_LINE, &line);
        }
        put_message(&proto->message, PROFILE_LOCATION, &part);
    }
    free(part.data);
    free(line.data);
}

static bool is_heap(const struct profile *profile) {
    return profile_find_type(profile, "inuse_space") != PROFILE_NONE ||
           profile_find_type(profile, "alloc_space") != PROFILE_NONE;
}

static void put_facts(struct proto *proto) {
    const struct profile *profile = proto->profile;
    struct bytes *message = &proto->message;
    if (is_heap(profile) && !args_select.show_internal) {
        put_number(message, PROFILE_DROP_FRAMES, number_string(proto, drop_frames));
    }
    put_number(message, PROFILE_TIME, (uint64_t)profile->time_ns);
    put_number(message, PROFILE_DURATION, (uint64_t)profile->duration_ns);
    if (profile->period_type.name != NULL) {
        put_type(proto, PROFILE_PERIOD_TYPE, profile->period_type);
    }
    put_number(message, PROFILE_PERIOD, (uint64_t)(profile->period > 0 ? profile->period : 1));
    for (uint32_t i = 0; i < profile->comment_count; i++) {
        put_number(message, PROFILE_COMMENT, number_string(proto, profile->comments[i]));
    }
    if (profile->type_count > 0) {
        const char *name = profile->types[profile->default_type].name;
        put_number(message, PROFILE_DEFAULT_TYPE, number_string(proto, name));
    }
}

static void build(struct proto *proto) {
    const struct profile *profile = proto->profile;
    number_string(proto, ""); /* the format wants it first */
    uint32_t *order = order_types(profile);
    for (uint32_t i = 0; i < profile->type_count; i++) {
        put_type(proto, PROFILE_SAMPLE_TYPE, profile->types[order[i]]);
    }
    put_samples(proto, order);
    put_mappings(proto);
    put_functions(proto);
    put_locations(proto);
    put_facts(proto);
    for (uint32_t i = 0; i < proto->strings.count; i++) {
        const char *text = proto->strings.texts[i];
        put_bytes(&proto->message, PROFILE_STRING, text, strlen(text));
    }
    free(order);
}

/* In pieces, because zlib counts bytes in 32 bits. */
static bool pack(const struct bytes *bytes, FILE *file) {
    enum { PIECE = 1 << 16, GZIP_WINDOW = 15 + 16 };
    static uint8_t packed[PIECE];
    z_stream stream = {0};
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        return decline("zlib does not start");
    }
    size_t done = 0;
    int status = Z_OK;
    while (status == Z_OK) {
        size_t piece = bytes->length - done < PIECE ? bytes->length - done : PIECE;
        if (stream.avail_in == 0) {
            stream.next_in = bytes->data + done;
            stream.avail_in = (uInt)piece;
            done += piece;
        }
        stream.next_out = packed;
        stream.avail_out = PIECE;
        status = deflate(&stream, done == bytes->length ? Z_FINISH : Z_NO_FLUSH);
        fwrite(packed, 1, PIECE - stream.avail_out, file);
    }
    deflateEnd(&stream);
    return status == Z_STREAM_END;
}

bool export_pprof(const struct profile *profile, struct output *output) {
    struct proto proto = {.profile = profile};
    build(&proto);
    bool is_packed = pack(&proto.message, output->file);
    text_table_free(&proto.strings);
    free(proto.functions);
    free(proto.message.data);
    return is_packed;
}
