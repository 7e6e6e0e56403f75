/* SPDX-License-Identifier: MIT
 *
 * read_proto.c - profile.proto, the format of pprof, not compressed.
 *
 * The profile is read once for each kind of part, because parts refer to each other by identifier
 * in any order:
 *
 *      strings, types, numbers  ->  mappings, functions  ->  locations  ->  samples
 *
 * Identifiers are any numbers but 0; writers count from 1, and then finding one takes no search.
 * Values are estimates already and addresses lie inside the calls.  Unknown fields are skipped.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "contract/proto_fields.h"
#include "read/message.h"
#include "read/read_text.h"

enum { TYPES_MOST = 64, MAPPINGS_MOST = 1 << 16 };
/* No more strings and parts than this; no more frames, labels or lines in one part. */
enum { PARTS_MOST = 1 << 25, IN_PART_MOST = 1 << 20 };

/* Identifiers in the order of the file, each with the index that it became. */
struct ids {
    struct id {
        uint64_t id;
        uint32_t index;
    } * rows;
    uint32_t count, room;
};

/* Lists that grow while one message is read, and are used again for the next one. */
struct list {
    uint64_t *items;
    uint32_t count, room;
};

struct proto {
    struct profile *profile;
    struct message whole;
    struct string {
        const uint8_t *at;
        uint32_t length;
        const char *text; /* NULL: not asked for yet */
    } * strings;
    uint32_t string_count, string_room;
    struct ids mappings, functions, locations;
    struct list stack, values;
    uint32_t *stack_indices;
    uint32_t stack_indices_room;
    struct profile_line *lines;
    uint32_t line_count, line_room;
    struct profile_label *labels;
    uint32_t label_count, label_room;
    uint64_t default_type;
    char *why;
};

/* ---------------------------------------------------------------- recognising it */

/* The kind of a field of the profile; -1: unknown. */
static int kind_of(uint32_t number) {
    switch (number) {
    case PROFILE_SAMPLE_TYPE:
    case PROFILE_SAMPLE:
    case PROFILE_MAPPING:
    case PROFILE_LOCATION:
    case PROFILE_FUNCTION:
    case PROFILE_STRING:
    case PROFILE_PERIOD_TYPE:
        return KIND_BYTES;
    case PROFILE_COMMENT: /* packed or not */
        return -1;
    default:
        return number <= 15 ? KIND_VARINT : -1;
    }
}

/* Nothing but two small numbers. */
static bool is_type(struct message message) {
    struct field field;
    while (message_next(&message, &field)) {
        if (field.number > TYPE_UNIT || field.kind != KIND_VARINT) {
            return false;
        }
    }
    return message_is_at_end(&message);
}

/* Text is hardly ever a row of fields, each of its kind, with a type of samples among them. */
bool read_is_proto(const uint8_t *bytes, size_t length) {
    enum { LOOK = 1 << 16 };
    struct message message = {bytes, bytes + length};
    struct field field;
    bool has_type = false;
    while (!message_is_at_end(&message) && (size_t)(message.at - bytes) < LOOK) {
        if (!message_next(&message, &field)) {
            return has_type; /* damaged, but meant to be one */
        }
        if (field.number > 15 ||
            (kind_of(field.number) >= 0 && kind_of(field.number) != (int)field.kind) ||
            (field.number == PROFILE_SAMPLE_TYPE && !is_type(field.bytes))) {
            return false;
        }
        has_type |= field.number == PROFILE_SAMPLE_TYPE || field.number == PROFILE_STRING;
    }
    return has_type;
}

/* ---------------------------------------------------------------- lists */

static bool push(struct list *list, uint64_t item) {
    if (list->count == IN_PART_MOST) {
        return false;
    }
    list->items = must_have_room(list->items, list->count, &list->room, sizeof *list->items);
    list->items[list->count++] = item;
    return true;
}

/* A repeated number: one, or many packed into bytes. */
static bool push_numbers(struct list *list, const struct field *field) {
    struct message packed = field->bytes;
    if (field->kind == KIND_VARINT) {
        return push(list, field->value);
    }
    while (field->kind == KIND_BYTES && !message_is_at_end(&packed)) {
        uint64_t value;
        if (!message_take_varint(&packed, &value) || !push(list, value)) {
            return false;
        }
    }
    return field->kind == KIND_BYTES;
}

static bool add_id(struct proto *proto, struct ids *ids, uint64_t id, uint32_t index) {
    if (ids->count == PARTS_MOST) {
        return read_damage(proto->why, "it has more than %d parts of one kind", PARTS_MOST);
    }
    ids->rows = must_have_room(ids->rows, ids->count, &ids->room, sizeof *ids->rows);
    ids->rows[ids->count++] = (struct id){id, index};
    return true;
}

static int compare_ids(const void *a, const void *b) {
    uint64_t first = ((const struct id *)a)->id, second = ((const struct id *)b)->id;
    return (first > second) - (first < second);
}

/* Once all are there.  False: two are equal, or one is 0. */
static bool sort_ids(struct ids *ids) {
    if (ids->count == 0) {
        return true;
    }
    qsort(ids->rows, ids->count, sizeof *ids->rows, compare_ids);
    for (uint32_t i = 1; i < ids->count; i++) {
        if (ids->rows[i].id == ids->rows[i - 1].id) {
            return false;
        }
    }
    return ids->rows[0].id != 0;
}

static bool find_id(const struct ids *ids, uint64_t id, uint32_t *index) {
    const struct id key = {id, 0};
    const struct id *found = NULL;
    if (id - 1 < ids->count && ids->rows[id - 1].id == id) {
        found = &ids->rows[id - 1];
    } else if (ids->count > 0) {
        found = bsearch(&key, ids->rows, ids->count, sizeof key, compare_ids);
    }
    *index = found != NULL ? found->index : PROFILE_NONE;
    return found != NULL;
}

/* ---------------------------------------------------------------- strings */

static bool add_string(struct proto *proto, const struct field *field) {
    if (field->kind != KIND_BYTES) {
        return read_damage(proto->why, "a string is something else");
    }
    if (proto->string_count == PARTS_MOST) {
        return read_damage(proto->why, "it has more than %d strings", PARTS_MOST);
    }
    proto->strings = must_have_room(proto->strings, proto->string_count, &proto->string_room,
                                    sizeof *proto->strings);
    proto->strings[proto->string_count++] =
        (struct string){field->bytes.at, (uint32_t)(field->bytes.end - field->bytes.at), NULL};
    return true;
}

static bool get_string(struct proto *proto, uint64_t number, const char **text) {
    if (number == 0 && proto->string_count == 0) {
        *text = profile_text(proto->profile, "", 0);
        return true;
    }
    if (number >= proto->string_count) {
        return read_damage(proto->why, "string %" PRIu64 " is not there", number);
    }
    struct string *string = &proto->strings[number];
    if (string->text == NULL) {
        string->text = profile_text(proto->profile, (const char *)string->at, string->length);
    }
    *text = string->text;
    return true;
}

/* ---------------------------------------------------------------- messages in general */

/* The numbers of a flat message, by field; others are skipped. */
static bool take_numbers(struct proto *proto, struct message message, uint64_t *values,
                         uint32_t most) {
    struct field field;
    memset(values, 0, (most + 1) * sizeof *values);
    while (message_next(&message, &field)) {
        if (field.number <= most && field.kind == KIND_VARINT) {
            values[field.number] = field.value;
        }
    }
    return message_is_at_end(&message) || read_damage(proto->why, "a part of it is damaged");
}

static bool take_type(struct proto *proto, struct message message, struct profile_type *type) {
    uint64_t values[TYPE_UNIT + 1];
    return take_numbers(proto, message, values, TYPE_UNIT) &&
           get_string(proto, values[TYPE_NAME], &type->name) &&
           get_string(proto, values[TYPE_UNIT], &type->unit);
}

static bool add_type(struct proto *proto, struct message message) {
    struct profile_type type;
    if (!take_type(proto, message, &type)) {
        return false;
    }
    if (proto->profile->type_count == TYPES_MOST) {
        return read_damage(proto->why, "it has more than %d types of samples", TYPES_MOST);
    }
    profile_add_type(proto->profile, type.name, type.unit);
    return true;
}

/* ---------------------------------------------------------------- parts */

static bool add_mapping(struct proto *proto, struct message message) {
    uint64_t values[MAPPING_HAS_FUNCTIONS + 1];
    struct profile_mapping mapping;
    if (!take_numbers(proto, message, values, MAPPING_HAS_FUNCTIONS) ||
        !get_string(proto, values[MAPPING_FILE], &mapping.path) ||
        !get_string(proto, values[MAPPING_BUILD_ID], &mapping.build_id)) {
        return false;
    }
    if (proto->profile->mapping_count == MAPPINGS_MOST) {
        return read_damage(proto->why, "it has more than %d mappings", MAPPINGS_MOST);
    }
    mapping.start = values[MAPPING_START];
    mapping.limit = values[MAPPING_LIMIT];
    mapping.offset = values[MAPPING_OFFSET];
    mapping.has_functions = values[MAPPING_HAS_FUNCTIONS] != 0;
    return add_id(proto, &proto->mappings, values[MAPPING_ID],
                  profile_add_mapping(proto->profile, mapping));
}

static uint32_t line_number(uint64_t value) {
    return value < PROFILE_NONE ? (uint32_t)value : 0; /* a negative one says nothing */
}

static bool add_function(struct proto *proto, struct message message) {
    uint64_t values[FUNCTION_START_LINE + 1];
    struct profile_function function;
    if (!take_numbers(proto, message, values, FUNCTION_START_LINE) ||
        !get_string(proto, values[FUNCTION_NAME], &function.name) ||
        !get_string(proto, values[FUNCTION_SYSTEM_NAME], &function.system_name) ||
        !get_string(proto, values[FUNCTION_FILE], &function.file)) {
        return false;
    }
    if (function.name[0] == '\0') {
        function.name = function.system_name;
    }
    function.start_line = line_number(values[FUNCTION_START_LINE]);
    return add_id(proto, &proto->functions, values[FUNCTION_ID],
                  profile_add_function(proto->profile, function));
}

static bool add_line(struct proto *proto, const struct field *field) {
    uint64_t values[LINE_NUMBER + 1];
    struct profile_line line;
    if (field->kind != KIND_BYTES || !take_numbers(proto, field->bytes, values, LINE_NUMBER)) {
        return read_damage(proto->why, "a line is damaged");
    }
    if (!find_id(&proto->functions, values[LINE_FUNCTION], &line.function)) {
        return read_damage(proto->why, "function %" PRIu64 " is not there", values[LINE_FUNCTION]);
    }
    if (proto->line_count == IN_PART_MOST) {
        return read_damage(proto->why, "a location has more than %d lines", IN_PART_MOST);
    }
    line.number = line_number(values[LINE_NUMBER]);
    proto->lines =
        must_have_room(proto->lines, proto->line_count, &proto->line_room, sizeof *proto->lines);
    proto->lines[proto->line_count++] = line;
    return true;
}

static bool add_location(struct proto *proto, struct message message) {
    uint64_t values[LOCATION_ADDRESS + 1];
    uint32_t mapping = PROFILE_NONE;
    struct field field;
    proto->line_count = 0;
    if (!take_numbers(proto, message, values, LOCATION_ADDRESS)) {
        return false;
    }
    while (message_next(&message, &field)) {
        if (field.number == LOCATION_LINE && !add_line(proto, &field)) {
            return false;
        }
    }
    if (values[LOCATION_MAPPING] != 0 &&
        !find_id(&proto->mappings, values[LOCATION_MAPPING], &mapping)) {
        return read_damage(proto->why, "mapping %" PRIu64 " is not there",
                           values[LOCATION_MAPPING]);
    }
    uint32_t index = profile_add_location(proto->profile, values[LOCATION_ADDRESS], mapping,
                                          proto->lines, proto->line_count);
    return add_id(proto, &proto->locations, values[LOCATION_ID], index);
}

/* ---------------------------------------------------------------- samples */

static bool add_label(struct proto *proto, const struct field *field) {
    uint64_t values[LABEL_UNIT + 1];
    struct profile_label label = {0};
    if (field->kind != KIND_BYTES || !take_numbers(proto, field->bytes, values, LABEL_UNIT)) {
        return read_damage(proto->why, "a label is damaged");
    }
    if (!get_string(proto, values[LABEL_KEY], &label.key) ||
        !get_string(proto, values[LABEL_UNIT], &label.unit)) {
        return false;
    }
    if (values[LABEL_TEXT] != 0 && !get_string(proto, values[LABEL_TEXT], &label.text)) {
        return false;
    }
    if (proto->label_count == IN_PART_MOST) {
        return read_damage(proto->why, "a sample has more than %d labels", IN_PART_MOST);
    }
    label.number = (int64_t)values[LABEL_NUMBER];
    proto->labels = must_have_room(proto->labels, proto->label_count, &proto->label_room,
                                   sizeof *proto->labels);
    proto->labels[proto->label_count++] = label;
    return true;
}

static bool take_sample_fields(struct proto *proto, struct message message) {
    struct field field;
    proto->stack.count = proto->values.count = proto->label_count = 0;
    while (message_next(&message, &field)) {
        bool is_good = true;
        if (field.number == SAMPLE_LOCATION) {
            is_good = push_numbers(&proto->stack, &field);
        } else if (field.number == SAMPLE_VALUE) {
            is_good = push_numbers(&proto->values, &field);
        } else if (field.number == SAMPLE_LABEL && !add_label(proto, &field)) {
            return false;
        }
        if (!is_good) {
            return read_damage(proto->why, "the numbers of a sample are damaged or too many");
        }
    }
    return message_is_at_end(&message) || read_damage(proto->why, "a sample is damaged");
}

static bool find_locations(struct proto *proto) {
    while (proto->stack_indices_room < proto->stack.count) {
        proto->stack_indices = must_have_room(proto->stack_indices, proto->stack_indices_room,
                                              &proto->stack_indices_room, sizeof(uint32_t));
    }
    for (uint32_t i = 0; i < proto->stack.count; i++) {
        if (!find_id(&proto->locations, proto->stack.items[i], &proto->stack_indices[i])) {
            return read_damage(proto->why, "location %" PRIu64 " is not there",
                               proto->stack.items[i]);
        }
    }
    return true;
}

static bool add_sample(struct proto *proto, struct message message) {
    if (!take_sample_fields(proto, message) || !find_locations(proto)) {
        return false;
    }
    if (proto->values.count != proto->profile->type_count) {
        return read_damage(proto->why, "a sample has %u values of %u types", proto->values.count,
                           proto->profile->type_count);
    }
    profile_add_sample(proto->profile, proto->stack_indices, proto->stack.count,
                       (const int64_t *)proto->values.items, proto->labels, proto->label_count);
    return true;
}

/* ---------------------------------------------------------------- the profile */

/* Strings may come after the parts that name them, so they are collected first. */
static bool take_strings(struct proto *proto) {
    struct message message = proto->whole;
    struct field field;
    while (message_next(&message, &field)) {
        if (field.number == PROFILE_STRING && !add_string(proto, &field)) {
            return false;
        }
    }
    if (!message_is_at_end(&message)) {
        return read_damage(proto->why, "it is damaged at byte %zu, or was cut",
                           (size_t)(message.at - proto->whole.at));
    }
    return true;
}

static bool add_comments(struct proto *proto, const struct field *field) {
    struct list numbers = {0};
    bool is_good = push_numbers(&numbers, field) || read_damage(proto->why, "a comment is damaged");
    for (uint32_t i = 0; i < numbers.count && is_good; i++) {
        const char *text;
        is_good = get_string(proto, numbers.items[i], &text);
        if (is_good) {
            profile_add_comment(proto->profile, text);
        }
    }
    free(numbers.items);
    return is_good;
}

static bool take_numbers_of_profile(struct proto *proto, const struct field *field) {
    struct profile *profile = proto->profile;
    int64_t value = (int64_t)field->value;
    switch (field->number) {
    case PROFILE_TIME:
        profile->time_ns = value;
        break;
    case PROFILE_DURATION:
        profile->duration_ns = value;
        break;
    case PROFILE_PERIOD:
        profile->period = value;
        break;
    case PROFILE_DEFAULT_TYPE:
        proto->default_type = field->value;
        break;
    case PROFILE_COMMENT:
        return add_comments(proto, field);
    case PROFILE_PERIOD_TYPE:
        return take_type(proto, field->bytes, &profile->period_type);
    default:
        break;
    }
    return true;
}

enum pass { PASS_TYPES, PASS_TARGETS, PASS_LOCATIONS, PASS_SAMPLES, PASSES };

/* Reads a field of the profile, in the pass for its kind. */
static bool take_field(struct proto *proto, enum pass pass, const struct field *field) {
    static const struct {
        uint32_t number;
        enum pass pass;
        bool (*take)(struct proto *proto, struct message message);
    } parts[] = {
        {PROFILE_SAMPLE_TYPE, PASS_TYPES, add_type},
        {PROFILE_MAPPING, PASS_TARGETS, add_mapping},
        {PROFILE_FUNCTION, PASS_TARGETS, add_function},
        {PROFILE_LOCATION, PASS_LOCATIONS, add_location},
        {PROFILE_SAMPLE, PASS_SAMPLES, add_sample},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].number == field->number) {
            if (field->kind != KIND_BYTES) {
                return read_damage(proto->why, "field %u is of a wrong kind", field->number);
            }
            return parts[i].pass != pass || parts[i].take(proto, field->bytes);
        }
    }
    return pass != PASS_TYPES || take_numbers_of_profile(proto, field);
}

static bool take_parts(struct proto *proto, enum pass pass) {
    struct message message = proto->whole;
    struct field field;
    while (message_next(&message, &field)) {
        if (!take_field(proto, pass, &field)) {
            return false;
        }
    }
    struct ids *const ids[] = {&proto->mappings, &proto->functions, &proto->locations};
    size_t first = pass == PASS_TARGETS ? 0 : 2;
    size_t end = pass == PASS_TARGETS ? 2 : pass == PASS_LOCATIONS ? 3 : 0;
    for (size_t i = first; i < end; i++) {
        if (!sort_ids(ids[i])) {
            return read_damage(proto->why,
                               "two of its parts have the same number, or one has none");
        }
    }
    return true;
}

/* What pprof does: the type by name, else the last. */
static bool choose_default_type(struct proto *proto) {
    struct profile *profile = proto->profile;
    const char *name;
    if (!get_string(proto, proto->default_type, &name)) {
        return false;
    }
    uint32_t type = profile_find_type(profile, name);
    if (type == PROFILE_NONE) {
        type = profile_find_type(profile, "inuse_space");
    }
    if (type == PROFILE_NONE) {
        type = profile->type_count - 1;
    }
    profile->default_type = type;
    return true;
}

static bool take_profile(struct proto *proto) {
    if (!take_strings(proto)) {
        return false;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        if (!take_parts(proto, (enum pass)pass)) {
            return false;
        }
        if (proto->profile->type_count == 0) {
            return read_damage(proto->why, "it has no type of samples");
        }
    }
    proto->profile->is_exact_leaf = strcmp(proto->profile->period_type.name, "cpu") == 0;
    return choose_default_type(proto);
}

struct profile *read_proto(const uint8_t *bytes, size_t length, char why[READ_WHY_BYTES]) {
    struct proto proto = {.profile = profile_new(), .whole = {bytes, bytes + length}, .why = why};
    proto.profile->source = profile_text(proto.profile, "pprof", 5);
    bool is_good = take_profile(&proto);
    void *const scratch[] = {proto.strings,        proto.mappings.rows, proto.functions.rows,
                             proto.locations.rows, proto.stack.items,   proto.values.items,
                             proto.stack_indices,  proto.lines,         proto.labels};
    for (size_t i = 0; i < sizeof scratch / sizeof scratch[0]; i++) {
        free(scratch[i]);
    }
    return read_result(proto.profile, is_good);
}
