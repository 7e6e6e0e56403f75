/* SPDX-License-Identifier: MIT
 *
 * proto.h - the parts of profile.proto that every profile has: numbers, strings, places in code.
 *
 * The message is written part by part, without a tree in memory: sample types, samples, mappings,
 * locations, strings.  A sample names its locations by number, so these are numbered as they come
 * and written after the samples.  The numbers of strings are known before the strings are written:
 *
 *      0 "" and the other words of the profile, then path and build id of each module, then the profile's own
 *
 * Threads     One proto, one thread.
 */
#pragma once

#include "out/gzip.h"
#include "out/maps.h"
#include "contract/proto_fields.h"

enum { PROTO_VARINT_BYTES = 10, PROTO_FRAMES_MOST = 256 };

/* The message being made: room for the frames of a stack, ten bytes each, and a little more. */
struct proto_message {
    size_t length;
    unsigned char bytes[PROTO_FRAMES_MOST * PROTO_VARINT_BYTES + 512];
};

/* Words of a profile by number; the first is empty. */
struct proto_words {
    const char *const *words;
    unsigned count;
};

/* Lives in memory of its own for the time of one profile. */
struct proto {
    const struct maps *maps;
    struct proto_words words;
    bool is_plain;    /* not compressed */
    struct out plain; /* the profile before it is compressed */
    char plain_bytes[OUT_BYTES];
    struct gzip gzip;
    struct proto_message message; /* what proto_write_message writes */
    struct proto_message inner;   /* what becomes a part of it */
    struct pile locations;        /* addresses; location i + 1 is the i-th */
    struct pile slots; /* hash of these addresses: numbers of locations, 0 where there is none */
    uint32_t location_count;
    int error;
};

/* A profile into `out`; NULL without memory.  The end gives 0 or a negative errno. */
struct proto *proto_begin(struct out *out, const struct maps *maps, struct proto_words words,
                          bool is_plain);
int proto_end(struct proto *proto);

/* Fields of a message; a number that is 0 is left out.  The last adds `inner` and empties it. */
void proto_put_varint(struct proto_message *message, uint64_t value);
void proto_put_number(struct proto_message *message, uint32_t field, uint64_t value);
void proto_put_inner(struct proto *proto, uint32_t field);

/* A label of a sample: a text by its number, or a number with its unit. */
void proto_put_text_label(struct proto *proto, unsigned key, uint64_t text);
void proto_put_number_label(struct proto *proto, unsigned key, uint64_t value, unsigned unit);

/* Fields of the profile itself.  The second writes `message` and empties it. */
void proto_write_number(struct proto *proto, uint32_t field, uint64_t value);
void proto_write_message(struct proto *proto, uint32_t field);
void proto_write_string(struct proto *proto, const char *text);
void proto_write_type(struct proto *proto, uint32_t field, unsigned name, unsigned unit);

/* The number of the location of an address, which lies in the call; 0 without memory. */
uint32_t proto_number_location(struct proto *proto, uintptr_t address);

/* Once, after all samples: mappings, locations, and the strings before the profile's own. */
void proto_write_places(struct proto *proto);

/* The number of the first of the profile's own strings. */
size_t proto_own_string(const struct proto *proto);
