/* SPDX-License-Identifier: MIT
 *
 * message.h - a protobuf message: fields, each a number and a kind, then a varint or some bytes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { KIND_VARINT = 0, KIND_64_BITS = 1, KIND_BYTES = 2, KIND_32_BITS = 5 };

struct message {
    const uint8_t *at, *end;
};

struct field {
    uint32_t number;
    unsigned kind;
    uint64_t value;       /* of a varint */
    struct message bytes; /* of the other kinds */
};

/* False: the message is damaged. */
bool message_take_varint(struct message *message, uint64_t *value);

/* False at the end of the message, or, before its end, where it is damaged. */
bool message_next(struct message *message, struct field *field);

static inline bool message_is_at_end(const struct message *message) {
    return message->at == message->end;
}
