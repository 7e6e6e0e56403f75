/* SPDX-License-Identifier: MIT
 *
 * proto.c - writes profile.proto, piece by piece.
 */
#include "out/proto.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/os.h"

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

void proto_put_varint(struct proto_message *message, uint64_t value) {
    message->length += encode_varint(message->bytes + message->length, value);
}

void proto_put_number(struct proto_message *message, uint32_t field, uint64_t value) {
    if (value != 0) { /* a missing field means 0 */
        proto_put_varint(message, field << 3);
        proto_put_varint(message, value);
    }
}

/* A message inside of a message. */
void proto_put_inner(struct proto *proto, uint32_t field) {
    struct proto_message *message = &proto->message;
    proto_put_varint(message, field << 3 | 2);
    proto_put_varint(message, proto->inner.length);
    memcpy(message->bytes + message->length, proto->inner.bytes, proto->inner.length);
    message->length += proto->inner.length;
    proto->inner.length = 0;
}

void proto_put_text_label(struct proto *proto, unsigned key, uint64_t text) {
    proto_put_number(&proto->inner, LABEL_KEY, key);
    proto_put_number(&proto->inner, LABEL_TEXT, text);
    proto_put_inner(proto, SAMPLE_LABEL);
}

void proto_put_number_label(struct proto *proto, unsigned key, uint64_t value, unsigned unit) {
    proto_put_number(&proto->inner, LABEL_KEY, key);
    proto_put_number(&proto->inner, LABEL_NUMBER, value);
    proto_put_number(&proto->inner, LABEL_UNIT, unit);
    proto_put_inner(proto, SAMPLE_LABEL);
}

static void write_varint(struct out *out, uint64_t value) {
    unsigned char bytes[PROTO_VARINT_BYTES];
    out_bytes(out, bytes, encode_varint(bytes, value));
}

/* Fields of the profile itself. */
static void write_bytes(struct proto *proto, uint32_t field, const void *bytes, size_t length) {
    write_varint(&proto->plain, field << 3 | 2);
    write_varint(&proto->plain, length);
    out_bytes(&proto->plain, bytes, length);
}

void proto_write_number(struct proto *proto, uint32_t field, uint64_t value) {
    write_varint(&proto->plain, field << 3);
    write_varint(&proto->plain, value);
}

void proto_write_message(struct proto *proto, uint32_t field) {
    write_bytes(proto, field, proto->message.bytes, proto->message.length);
    proto->message.length = 0;
}

void proto_write_string(struct proto *proto, const char *text) {
    write_bytes(proto, PROFILE_STRING, text, strlen(text));
}

void proto_write_type(struct proto *proto, uint32_t field, unsigned name, unsigned unit) {
    proto_put_number(&proto->message, TYPE_NAME, name);
    proto_put_number(&proto->message, TYPE_UNIT, unit);
    proto_write_message(proto, field);
}

/* ---------------------------------------------------------------- locations */

static uintptr_t *locations(const struct proto *proto) {
    return (uintptr_t *)(void *)proto->locations.bytes;
}

/* The slot that has the address, or the one where it belongs. */
static uint32_t *find_slot(const struct proto *proto, uintptr_t address) {
    uint32_t *slots = (uint32_t *)(void *)proto->slots.bytes;
    size_t mask = proto->slots.length / sizeof(*slots) - 1;
    size_t at = hash_masked(address, mask);
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
uint32_t proto_number_location(struct proto *proto, uintptr_t address) {
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
        proto_put_number(&proto->message, LOCATION_ID, i + 1);
        proto_put_number(&proto->message, LOCATION_MAPPING, mapping_number(proto->maps, module));
        proto_put_number(&proto->message, LOCATION_ADDRESS,
                         maps_tell(proto->maps, module, address));
        proto_write_message(proto, PROFILE_LOCATION);
    }
}

/* ---------------------------------------------------------------- mappings and strings */

static void write_mapping(struct proto *proto, size_t module) {
    const struct maps_module *mapping = maps_module(proto->maps, module);
    proto_put_number(&proto->message, MAPPING_ID, mapping_number(proto->maps, module));
    proto_put_number(&proto->message, MAPPING_START,
                     maps_tell(proto->maps, module, mapping->start));
    proto_put_number(&proto->message, MAPPING_LIMIT, maps_tell(proto->maps, module, mapping->end));
    proto_put_number(&proto->message, MAPPING_OFFSET, mapping->offset);
    proto_put_number(&proto->message, MAPPING_FILE, proto->words.count + 2 * module);
    if (mapping->build_id[0] != '\0') {
        proto_put_number(&proto->message, MAPPING_BUILD_ID, proto->words.count + 2 * module + 1);
    }
    proto_write_message(proto, PROFILE_MAPPING);
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

static void write_strings(struct proto *proto) {
    for (unsigned i = 0; i < proto->words.count; i++) {
        proto_write_string(proto, proto->words.words[i]);
    }
    for (size_t i = 0; i < proto->maps->count; i++) {
        const struct maps_module *module = maps_module(proto->maps, i);
        write_bytes(proto, PROFILE_STRING, proto->maps->text.bytes + module->path,
                    module->path_bytes);
        proto_write_string(proto, module->build_id);
    }
}

void proto_write_places(struct proto *proto) {
    write_mappings(proto);
    write_locations(proto);
    write_strings(proto);
}

size_t proto_own_string(const struct proto *proto) {
    return proto->words.count + 2 * proto->maps->count;
}

/* ---------------------------------------------------------------- begin and end */

/* A target for an out: another out. */
static int pass_on(void *out, const char *bytes, size_t length) {
    out_bytes(out, bytes, length);
    return 0;
}

struct proto *proto_begin(struct out *out, const struct maps *maps, struct proto_words words,
                          bool is_plain) {
    struct proto *proto = os_map(align_up(sizeof(struct proto), os_facts.page_bytes));
    if (proto == NULL) {
        return NULL;
    }
    proto->maps = maps;
    proto->words = words;
    proto->is_plain = is_plain;
    struct out_sink sink = {pass_on, out, false};
    if (!is_plain) {
        gzip_begin(&proto->gzip, out);
        sink = (struct out_sink){gzip_take, &proto->gzip, false};
    }
    out_begin(&proto->plain, sink, proto->plain_bytes, OUT_BYTES);
    return proto;
}

int proto_end(struct proto *proto) {
    int error = proto->error;
    out_end(&proto->plain);
    if (!proto->is_plain) {
        gzip_end(&proto->gzip);
    }
    pile_release(&proto->locations);
    pile_release(&proto->slots);
    os_unmap(proto, align_up(sizeof(struct proto), os_facts.page_bytes));
    return error;
}
